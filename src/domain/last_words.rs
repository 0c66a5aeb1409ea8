//! The error that a rank has printed since its last step, and whether it says no more than that another rank is gone. A fold. Pure.

use serde::{Deserialize, Serialize};

use super::blame;
use super::launcher_words;
use super::log::Stream;
use super::log_text::level::Level;
use super::log_text::{last_state, plain};
use super::rank_output::RankOutput;
use super::time::Stamp;
use super::world::LoggedLine;

/// So many characters of an error are kept.
const TEXT: usize = 160;

/// What programs and libraries say when another rank has gone away, in lower case.
const LOST_PEER: [&str; 35] = [
    "connection closed",
    "closed the connection",
    "connection was closed",
    "connection reset",
    "connection aborted",
    "connection refused",
    "connection lost",
    "lost connection",
    "socket closed",
    "broken pipe",
    "brokenpipe",
    "connectionreset",
    "connectionaborted",
    "connectionrefused",
    "eoferror",
    "peer gone",
    "peer is gone",
    "peer closed",
    "its connection closed",
    "transport endpoint is not connected",
    "ncclremoteerror",
    "ncclsystemerror",
    "unhandled system error",
    "remote process exited",
    "remote process exiting",
    "collective operation timeout",
    "horovod has been shut down",
    "exception on one of the ranks",
    "got 0 bytes",
    "connection was likely closed",
    "dump signal",
    "communicator was aborted",
    "for recv operation to complete",
    "for send operation to complete",
    "caused pair closure",
];

/// What libraries print as an error that stops nothing: the dynamic loader, and TensorFlow at each start.
const HARMLESS: [&str; 2] = ["ERROR: ld.so: object ", "Unable to register cu"];

/// Whether a text says that another rank is gone.
pub fn is_of_lost_peer(text: &str) -> bool {
    let text = text.to_lowercase();
    LOST_PEER.iter().any(|words| text.contains(words))
}

/// How programs point to their help, in lower case, behind the line that says what is wrong.
const POINTERS: [&str; 7] =
    ["type '", "try '", "try \"", "usage:", "for usage", "for more information", "for more details"];

/// Whether a line says something of what happened: it is no rule of dashes, and does not only point to a program's help.
pub fn tells(line: &str) -> bool {
    let text = line.trim().to_lowercase();
    let points = text.starts_with(POINTERS[3])
        || POINTERS.iter().any(|words| text.contains(words))
            && (text.contains("help") || text.contains("usage"))
        || text.starts_with("see ") && text.contains("for more");
    text.contains(char::is_alphanumeric) && !points
}

/// What of a rank's output and steps tells why it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWords {
    error: Option<Printed>,
    /// When a traceback began whose exception has not come yet.
    #[serde(default)]
    traceback: Option<Stamp>,
    /// When a line of no level told last of a lost peer.
    #[serde(default)]
    said_peer_at: Option<Stamp>,
    /// Open MPI's handler of errors speaks here for another rank.
    #[serde(default)]
    handles_another: bool,
    /// The last step that it told.
    step: Option<u64>,
}

/// An error that a rank has printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// When its first line came.
    pub at: Stamp,
    /// By how much it may have come earlier, microseconds.
    #[serde(default)]
    pub unsure_us: i64,
    /// The line that names it: the exception of a traceback.
    pub text: String,
    /// All of the line says no more than that another rank is gone.
    #[serde(default)]
    of_peer: bool,
    /// Programs end by it: an uncaught exception, or a fatal error.
    #[serde(default)]
    is_grave: bool,
}

impl Printed {
    fn is_of_lost_peer(&self) -> bool {
        self.of_peer || is_of_lost_peer(&self.text)
    }

    /// Whether a later error tells more of the end than this one. A program recovers from a plain one, and what it prints while it
    /// goes down tells less than what it began with.
    fn yields_to(&self, later: &Self) -> bool {
        let after_us = later.at.micros_since(self.at);
        let is_old = after_us >= if later.is_of_lost_peer() { APART_US } else { PLAIN_US };
        !self.is_grave && (is_old || later.is_grave && !later.is_of_lost_peer())
    }
}

impl LastWords {
    /// A line that the rank's output has just taken in.
    pub fn take(&mut self, at: Stamp, logged: &LoggedLine, output: &RankOutput) {
        let line = &logged.line;
        // what programs print on their way is not looked through: it is much
        if logged.level >= Level::Error || line.stream == Stream::Stderr {
            if let Some(reporter) = blame::reporter(&line.text) {
                self.handles_another = reporter != line.rank.0;
            }
            self.line(at, logged.level, output.is_part(line.stream), &line.text);
        }
    }

    /// A line; `is_part` where it is one of a traceback that another line names.
    pub fn line(&mut self, at: Stamp, level: Level, is_part: bool, text: &str) {
        if level < Level::Error {
            if is_of_lost_peer(text) {
                self.said_peer_at = Some(at);
            }
            return;
        }
        if is_part {
            if text.contains("Traceback (most recent call last)") {
                self.traceback = Some(at);
            }
            return;
        }
        let traceback = self.traceback.take();
        let is_anothers = self.handles_another && blame::is_error_handlers(text);
        // a traceback that a launcher names was the launcher's too
        if is_anothers
            || launcher_words::is_launchers(text)
            || HARMLESS.iter().any(|words| text.contains(words))
        {
            return;
        }
        let error = Printed {
            at: traceback.unwrap_or(at),
            unsure_us: 0,
            text: plain(last_state(text)).trim().chars().take(TEXT).collect(),
            of_peer: is_of_lost_peer(text),
            is_grave: traceback.is_some() || level == Level::Fatal,
        };
        if self.error.as_ref().is_none_or(|earlier| earlier.yields_to(&error)) {
            self.error = Some(error);
        }
    }

    /// What it has printed may have come so much earlier than told: a file whose length was noted from time to time.
    pub fn is_unsure(&mut self, unsure_us: i64) {
        if let Some(error) = &mut self.error {
            error.unsure_us = error.unsure_us.max(unsure_us);
        }
    }

    /// It has finished a step: what it printed before did not end it. A step and a line of the same moment come in any order.
    pub fn stepped(&mut self, at: Stamp, step: u64) {
        self.step = Some(step);
        if self.error.as_ref().is_none_or(|error| at.micros_since(error.at) >= APART_US) {
            (self.error, self.said_peer_at) = (None, None);
            self.traceback = self.traceback.filter(|began| at.micros_since(*began) < APART_US);
        }
    }

    /// The last step that it told.
    pub fn step(&self) -> Option<u64> {
        self.step
    }

    /// Its error where that says more than that another rank is gone, and did not lie long before `end` in a program that tells no
    /// steps.
    pub fn own_error(&self, end: Stamp) -> Option<&Printed> {
        let error = self.error.as_ref()?;
        let is_recent = self.step.is_some() || end.micros_since(error.at) <= RECENT_US;
        (is_recent && !error.text.is_empty() && !error.is_of_lost_peer()).then_some(error)
    }

    /// Whether all that it said before `end` is that another rank is gone.
    pub fn is_of_lost_peer(&self, end: Stamp) -> bool {
        // peers that are not there yet are waited for
        let said_peer = || self.said_peer_at.is_some_and(|at| end.micros_since(at) <= PEER_US);
        self.error.as_ref().map_or_else(said_peer, Printed::is_of_lost_peer)
    }
}

/// Lines and steps come by different files: what lies closer together has no order, microseconds.
const APART_US: i64 = 300_000;
/// An error of a program that tells no steps may be one from which it recovered: after so long it is no cause, microseconds.
const RECENT_US: i64 = 60_000_000;
/// A plain error may be one from which a program recovers, if another one comes so much later, microseconds.
const PLAIN_US: i64 = 1_000_000;
/// A line of no level that tells of a lost peer has to do with an end that comes so soon, microseconds.
const PEER_US: i64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::log_line;

    #[test]
    fn errors_of_libraries_about_a_lost_peer_are_told_from_own_ones() {
        for text in [
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            "BrokenPipeError: [Errno 32] Broken pipe",
            "EOFError",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4711",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "torch.distributed.DistBackendError: NCCL error in: x.hpp:219, unhandled system error, NCCL version 2.18",
            "peer gone",
            "allreduce: rank 1 is gone (its connection closed); its log says why",
            "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
            "[rank0]:[E723 01:58:45.667329643 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 0] Observed flight \
             recorder dump signal from another rank via TCPStore.",
            "[rank1]:[E723 01:58:45.667329643 ProcessGroupNCCL.cpp:698] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump \
             signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info.",
            "RuntimeError: NCCL communicator was aborted on rank 0.",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv \
             operation to complete",
        ] {
            assert!(is_of_lost_peer(text), "{text}");
        }
        for text in ["RuntimeError: CUDA error: out of memory", "KeyError: 'x'", "loss is nan"] {
            assert!(!is_of_lost_peer(text), "{text}");
        }
    }

    #[test]
    fn rules_and_pointers_to_a_help_tell_nothing() {
        for line in [
            "--------------------------------------------------------------------------",
            "Type '/usr/bin/mpirun --help' for usage.",
            "Try 'ls --help' for more information.",
            "usage: train.py [-h] [--lr LR]",
            "  ",
            "See the manual for more details.",
        ] {
            assert!(!tells(line), "{line}");
        }
        for line in [
            "mpirun: Error: unknown option \"--bogus-opt\"",
            "train.py: error: unrecognized arguments: --lr",
            "Killed",
        ] {
            assert!(tells(line), "{line}");
        }
    }

    #[test]
    fn a_traceback_is_told_by_its_exception_and_its_first_line() {
        let mut words = LastWords::default();
        words.line(Stamp(5), Level::Error, true, "Traceback (most recent call last):");
        assert_eq!(words.own_error(Stamp(9)), None);
        words.line(Stamp(6), Level::Error, false, "RuntimeError: out of memory");
        words.line(Stamp(7), Level::Error, false, "ConnectionResetError: in its teardown");
        let error = words.own_error(Stamp(9)).unwrap();
        assert_eq!((error.at, error.text.as_str()), (Stamp(5), "RuntimeError: out of memory"));
        assert!(!words.is_of_lost_peer(Stamp(9)));
    }

    #[test]
    fn the_whole_line_tells_of_a_lost_peer_though_only_its_beginning_is_kept() {
        let mut words = LastWords::default();
        let text = "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] \
                    via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer";
        assert!(text.find("Connection reset").unwrap() > TEXT);
        words.line(Stamp(5), Level::Error, false, text);
        assert!(words.is_of_lost_peer(Stamp(9)) && words.own_error(Stamp(9)).is_none());
    }

    fn traceback(words: &mut LastWords, ms: i64, exception: &str) {
        words.line(Stamp(ms * 1000), Level::Error, true, "Traceback (most recent call last):");
        words.line(Stamp(ms * 1000 + 1), Level::Error, false, exception);
    }

    fn plain_error(words: &mut LastWords, ms: i64, text: &str) {
        words.line(Stamp(ms * 1000), Level::of(text), false, text);
    }

    #[test]
    fn an_error_that_stopped_nothing_yields_to_the_one_that_did() {
        let own = |words: &LastWords| words.own_error(Stamp(9_000_000)).map(|error| error.text.clone());
        let refused = "ConnectionResetError: [Errno 104] Connection reset by peer";
        let mut words = LastWords::default();
        for harmless in [
            "ERROR: ld.so: object '/opt/x.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
            "2026-11-21 14:32:07.310: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] Unable to register cuFFT \
             factory: Attempting to register factory for plugin cuFFT when one has already been registered",
        ] {
            assert_eq!(Level::of(harmless), Level::Error);
            plain_error(&mut words, 0, harmless);
            assert_eq!(own(&words), None);
        }
        plain_error(&mut words, 0, "ERROR: no cache");
        traceback(&mut words, 100, "ValueError: no labels");
        assert_eq!(own(&words).as_deref(), Some("ValueError: no labels"));
        assert_eq!(words.own_error(Stamp(0)).unwrap().at, Stamp(100_000));
        // what it prints on its way down is no cause
        traceback(&mut words, 3000, "RuntimeError: can't join");
        plain_error(&mut words, 4000, "ERROR: giving up");
        assert_eq!(own(&words).as_deref(), Some("ValueError: no labels"));
        // a lost peer behind an error of its own, and long behind one that stopped nothing
        for (ms, own_is_last) in [(299, true), (300, false)] {
            let mut words = LastWords::default();
            plain_error(&mut words, 0, "ERROR: shard 3 is damaged");
            traceback(&mut words, ms, refused);
            assert_eq!((own(&words).is_some(), words.is_of_lost_peer(Stamp(0))), (own_is_last, !own_is_last));
        }
        for (ms, kept) in [(999, "ERROR: no cache"), (1000, "ERROR: disk full")] {
            let mut words = LastWords::default();
            plain_error(&mut words, 0, "ERROR: no cache");
            plain_error(&mut words, ms, "ERROR: disk full");
            assert_eq!(own(&words).as_deref(), Some(kept));
        }
    }

    #[test]
    fn a_peer_that_was_waited_for_at_the_start_has_to_do_with_no_later_end() {
        let mut words = LastWords::default();
        let text = "[W socket.cpp:601] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 111 - Connection \
                    refused).";
        words.line(Stamp(5), Level::of(text), false, text);
        let is_lost = |end| words.is_of_lost_peer(Stamp(end));
        assert_eq!((is_lost(2_000_005), is_lost(2_000_006)), (true, false));
    }

    /// Takes a line of standard error of a rank.
    fn prints(words: &mut LastWords, output: &mut RankOutput, rank: u32, text: &str) {
        let line = log_line(rank, text);
        let logged = output.line(Stamp(5), &std::sync::Arc::new(line));
        words.take(Stamp(5), &logged, output);
    }

    #[test]
    fn open_mpis_handler_of_errors_accuses_the_rank_that_it_names_alone() {
        let said = [
            "[n2:00079] *** An error occurred in MPI_Send",
            "[n2:00079] *** reported by process [2079981569,1]",
            "[n2:00079] *** on communicator MPI_COMM_WORLD",
            "[n2:00079] *** MPI_ERR_RANK: invalid rank",
            "[n2:00079] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,",
            "[n2:00079] ***    and potentially your MPI job)",
        ];
        for (rank, is_own) in [(0, false), (1, true)] {
            let (mut words, mut output) = (LastWords::default(), RankOutput::default());
            for line in said {
                prints(&mut words, &mut output, rank, line);
            }
            assert_eq!(words.own_error(Stamp(9)).is_some(), is_own, "rank {rank}");
        }
    }

    #[test]
    fn what_a_launcher_says_in_the_output_of_a_rank_is_no_error_of_that() {
        let mut words = LastWords::default();
        let of_daemon = "[n1:00194] [[6621,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer";
        words.line(Stamp(5), Level::Error, false, of_daemon);
        words.line(Stamp(6), Level::Error, true, "Traceback (most recent call last):");
        words.line(
            Stamp(7),
            Level::Error,
            false,
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        );
        assert_eq!(words.own_error(Stamp(9)), None);
        words.line(Stamp(8), Level::Error, false, "KeyError: 'x'");
        assert_eq!(words.own_error(Stamp(9)).unwrap().at, Stamp(8));
        words.line(Stamp(8), Level::Error, false, of_daemon);
        assert_eq!(words.own_error(Stamp(9)).unwrap().text, "KeyError: 'x'");
    }

    #[test]
    fn an_error_before_another_step_or_long_ago_ended_nothing() {
        let mut words = LastWords::default();
        words.line(Stamp(5), Level::Error, false, "ERROR: no cache");
        assert!(words.own_error(Stamp(6)).is_some());
        assert!(words.own_error(Stamp(100_000_000)).is_none(), "a minute ago");
        words.stepped(Stamp(200_000), 2);
        assert!(words.own_error(Stamp(6)).is_some(), "the report of the step before was late");
        words.stepped(Stamp(400_000), 3);
        assert!(words.own_error(Stamp(6)).is_none());
        words.line(Stamp(7), Level::Unknown, false, "peer gone");
        assert!(words.is_of_lost_peer(Stamp(9)));
        assert_eq!(words.step(), Some(3));
    }
}
