//! The error that a rank has printed since its last step, and whether it says no more than that another rank is gone. A fold. Pure.

use serde::{Deserialize, Serialize};

use super::blame;
use super::log::Stream;
use super::log_text::level::Level;
use super::log_text::{last_state, plain};
use super::rank_output::RankOutput;
use super::time::Stamp;
use super::world::LoggedLine;

/// So many characters of an error are kept.
const TEXT: usize = 160;

/// What programs and libraries say when another rank has gone away, in lower case.
const LOST_PEER: [&str; 28] = [
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
];

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
    /// Lines of no level tell of a lost peer.
    said_peer: bool,
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
    /// The line that names it: the exception of a traceback. Empty while there is none.
    pub text: String,
}

impl LastWords {
    /// A line that the rank's output has just taken in.
    pub fn take(&mut self, at: Stamp, logged: &LoggedLine, output: &RankOutput) {
        let line = &logged.line;
        // what programs print on their way is not looked through: it is much
        if logged.level >= Level::Error || line.stream == Stream::Stderr {
            self.line(at, logged.level, output.is_part(line.stream), &line.text);
        }
    }

    /// A line; `is_part` where it is one of a traceback that another line names.
    pub fn line(&mut self, at: Stamp, level: Level, is_part: bool, text: &str) {
        if level < Level::Error {
            self.said_peer |= is_of_lost_peer(text);
            return;
        }
        if !is_part && blame::is_launchers(text) {
            // a traceback that it names was the launcher's too
            self.error = self.error.take().filter(|error| !error.text.is_empty());
            return;
        }
        let error = self.error.get_or_insert_with(|| Printed { at, unsure_us: 0, text: String::new() });
        if error.text.is_empty() && !is_part {
            error.text = plain(last_state(text)).trim().chars().take(TEXT).collect();
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
            (self.error, self.said_peer) = (None, false);
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
        (is_recent && !error.text.is_empty() && !is_of_lost_peer(&error.text)).then_some(error)
    }

    /// Whether all that it says is that another rank is gone.
    pub fn is_of_lost_peer(&self) -> bool {
        self.error.as_ref().map_or(self.said_peer, |error| is_of_lost_peer(&error.text))
    }
}

/// Lines and steps come by different files: what lies closer together has no order, microseconds.
const APART_US: i64 = 300_000;
/// An error of a program that tells no steps may be one from which it recovered: after so long it is no cause, microseconds.
const RECENT_US: i64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!words.is_of_lost_peer());
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
        assert!(words.is_of_lost_peer());
        assert_eq!(words.step(), Some(3));
    }
}
