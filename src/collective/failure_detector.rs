//! What happens when ranks can't go on: all report it to rank 0, which finds the failed rank and tells all others.
//!
//! Nothing is said while all is well. That a rank is gone is seen by those who wait for it: on its host because the kernel
//! took its lock (see `shm`), elsewhere because its connections closed, once all that it had sent has come.

use rustix::event::{PollFd, PollFlags};

use super::config::GroupConfig;
use super::control::{Cause, Kind, Line, Message, Ranks, Received};
use super::deadline::Deadline;
use super::error::CollectiveError;
use super::failure_attribution::{self, FailureReport, attribute};
use super::op::OpId;
use super::socket;

/// How long rank 0 collects reports of a standstill before it judges, µs: all ranks' deadlines end together, give
/// or take how fast they are woken.
const REPORTING: u64 = 700_000;
/// How long a rank waits for rank 0's verdict on a standstill, µs. Rank 0 had the whole deadline already.
const GRACE: u64 = 900_000;
/// How long rank 0 waits on at a barrier at which a rank is missed that has gone, µs: a rank that came, did its part and
/// left went after all had come, and what says so is on its way.
const DEPARTED: u64 = 1_000_000;
/// How long a rank that sees rank 0 gone looks for a last word of it, µs.
const LAST_WORD: u64 = 100_000;

/// One rank's part in finding out who is to blame.
pub(super) struct FailureDetector {
    /// Rank 0: one a rank, from rank 1. Others: one, to rank 0.
    lines: Vec<Line>,
    /// Rank 0: reports of the next operation, received while its own part of the last one was still in flight.
    early: Vec<FailureReport>,
    /// Others: a verdict on the next operation, received likewise.
    verdict: Option<Message>,
}

/// One wait of one rank in an operation.
pub(super) struct Wait {
    /// What is being done.
    pub(super) op: OpId,
    /// Until when; set at the first look, for most operations need no clock.
    pub(super) deadline: Option<Deadline>,
    /// All have entered it; bytes move.
    pub(super) all_entered: bool,
    /// Rank 0: until when it waits on though a rank has gone.
    pub(super) departed: Option<Deadline>,
    /// A time had passed at the last look. Only the next look reports it: a rank that was stopped meanwhile first takes
    /// what has come to its sockets.
    pub(super) late: bool,
    /// How much was moved before: the less, the nearer to the fault.
    pub(super) progress: u64,
}

/// Why this rank can't go on.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// Because of whom; others of whom the same is true.
    pub(super) about: u32,
    pub(super) more: Vec<u32>,
    pub(super) cause: Cause,
    /// What a rank that diverged does.
    pub(super) theirs: Option<OpId>,
    /// What it said, if it is nonsense.
    pub(super) what: String,
}

impl Failure {
    /// Because of one rank.
    pub(super) fn of(about: u32, cause: Cause) -> Self {
        Self { about, more: Vec::new(), cause, theirs: None, what: String::new() }
    }
}

impl Wait {
    /// For `op`, from now on.
    pub(super) fn new(op: OpId) -> Self {
        Self { op, deadline: None, all_entered: false, departed: None, late: false, progress: 0 }
    }
}

impl FailureDetector {
    pub(super) fn new(lines: Vec<Line>) -> Self {
        Self { lines, early: Vec::new(), verdict: None }
    }

    /// To be called about every 20 ms of a wait. Whether time is up.
    pub(super) fn look(&mut self, config: &GroupConfig, wait: &mut Wait) -> Result<bool, CollectiveError> {
        let was_late = std::mem::take(&mut wait.late);
        if config.rank == 0 {
            let all = self.listen(config, wait.op)?;
            let (now, early): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|report| report.seq <= wait.op.seq);
            // Who reports the next operation has done this one, and so has the rank that is missed there: what rank 0
            // still needs of this one is on its way.
            self.early = early;
            if !now.is_empty() {
                return Err(self.sentence(config, wait.op, now));
            }
            if !wait.all_entered
                && let Some(&gone) = self.gone(wait.op).first()
                && wait.departed.get_or_insert_with(|| Deadline::after(config.clock, DEPARTED)).passed()
            {
                if was_late {
                    let lost =
                        Message { cause: Cause::Lost, rank: gone, ..Message::plain(Kind::Verdict, wait.op) };
                    return Err(self.pronounce(config, lost));
                }
                wait.late = true;
            }
        } else if !self.lines[0].is_closed() {
            match self.lines[0].receive() {
                // The others have done this operation and failed at the next. What they sent before is still on
                // its way, so this one can be ended in peace.
                Received::Message(message)
                    if message.kind == Kind::Verdict && message.op.seq > wait.op.seq =>
                {
                    self.verdict = Some(message);
                }
                Received::Message(message) if message.kind == Kind::Verdict => {
                    return Err(error_of(config, &message));
                }
                // Rank 0 may have done its part and left. Whether it did is told by the end of the connection that carries
                // its bytes, after them, and on its own host by its lock.
                Received::Message(Message { kind: Kind::Finalized, .. })
                | Received::Closed
                | Received::Nothing => {}
                Received::Message(_) | Received::Malformed => {
                    let what = "a control message".to_owned();
                    return Err(CollectiveError::Garbled { op: wait.op, rank: 0, what });
                }
            }
        }
        let deadline =
            *wait.deadline.get_or_insert_with(|| Deadline::after(config.clock, config.timeout_us()));
        wait.late |= deadline.passed();
        Ok(wait.late && was_late)
    }

    /// Tells the others that this rank closes its group in good order, after operation `last`.
    pub(super) fn finalize(&mut self, last: OpId) {
        let message = Message::plain(Kind::Finalized, last);
        self.lines.iter_mut().for_each(|line| line.send(&message));
    }

    /// Rank 0: the ranks whose control line has closed before they had done `op`.
    fn gone(&self, op: OpId) -> Vec<u32> {
        let lines = (1..).zip(&self.lines);
        lines.filter(|(_, line)| line.is_closed() && !line.has_done(op.seq)).map(|(rank, _)| rank).collect()
    }

    /// An error that is known before an operation begins.
    pub(super) fn known(&self, config: &GroupConfig) -> Option<CollectiveError> {
        self.verdict.as_ref().map(|verdict| error_of(config, verdict))
    }

    /// Waits for something to read on a control line.
    fn wait_for_lines(&self, config: &GroupConfig, deadline: Deadline) -> Result<(), CollectiveError> {
        let mut fds: Vec<PollFd<'_>> = self
            .lines
            .iter()
            .filter_map(Line::stream)
            .map(|stream| PollFd::new(stream, PollFlags::IN))
            .collect();
        socket::wait(&mut fds, deadline).map_err(config.system("wait for the other ranks"))
    }

    /// Rank 0: takes in what the others say, and returns their reports, those of before among them.
    fn listen(&mut self, config: &GroupConfig, op: OpId) -> Result<Vec<FailureReport>, CollectiveError> {
        let mut reports = std::mem::take(&mut self.early);
        for at in 0..self.lines.len() {
            let from = at as u32 + 1;
            while !self.lines[at].is_closed() {
                match self.lines[at].receive() {
                    Received::Message(message) if message.kind == Kind::FailureReport => {
                        let Message { rank: about, more, cause, progress, op, theirs, .. } = message;
                        reports.push(FailureReport {
                            from,
                            about,
                            more,
                            cause,
                            seq: op.seq,
                            progress,
                            ours: op,
                            theirs,
                        });
                    }
                    Received::Message(Message { kind: Kind::Finalized, .. }) => {}
                    Received::Message(_) | Received::Malformed => {
                        return Err(self.pronounce(
                            config,
                            Message {
                                cause: Cause::Garbled,
                                rank: from,
                                ..Message::plain(Kind::Verdict, op)
                            },
                        ));
                    }
                    Received::Nothing | Received::Closed => break,
                }
            }
        }
        Ok(reports)
    }

    /// This rank can't go on: asks rank 0 who is to blame (or finds out, as rank 0).
    pub(super) fn report_failure(
        &mut self,
        config: &GroupConfig,
        wait: &Wait,
        failure: Failure,
    ) -> CollectiveError {
        let Failure { about, cause, .. } = failure;
        let op = wait.op;
        let theirs = failure.theirs.unwrap_or(op);
        if config.rank == 0 {
            let more = Ranks::of(failure.more);
            let progress = wait.progress;
            let own = FailureReport { from: 0, about, more, cause, seq: op.seq, progress, ours: op, theirs };
            return with_words(self.sentence(config, op, vec![own]), failure.what);
        }
        if let Some(verdict) = self.verdict {
            return error_of(config, &verdict);
        }
        let report = Message {
            cause,
            rank: about,
            more: Ranks::of(failure.more),
            other: config.rank,
            progress: wait.progress,
            theirs,
            ..Message::plain(Kind::FailureReport, op)
        };
        self.lines[0].send(&report);
        // After a loss rank 0 may be at work outside of any operation, so it gets its time: a rank that gave up
        // before would itself look lost to the next one.
        let patience = match (cause, wait.deadline) {
            (Cause::Lost, _) if about == 0 => Deadline::after(config.clock, LAST_WORD),
            (Cause::Lost, Some(deadline)) => deadline.later(GRACE),
            (Cause::Lost, None) => Deadline::after(config.clock, config.timeout_us()).later(GRACE),
            _ => Deadline::after(config.clock, GRACE),
        };
        while !self.lines[0].is_closed() {
            // Before what has come is read: this rank may have been stopped as the verdict came.
            let is_over = patience.passed();
            match self.lines[0].receive() {
                Received::Message(message) if message.kind == Kind::Verdict => {
                    return with_words(error_of(config, &message), failure.what);
                }
                Received::Message(_) => {}
                Received::Malformed | Received::Closed => break,
                // Rank 0 is silent in a standstill, so it is rank 0 that stands still.
                Received::Nothing if is_over && cause == Cause::Stuck => {
                    return error_of(config, &Message { rank: 0, more: Ranks::default(), ..report });
                }
                Received::Nothing if is_over => {
                    return with_words(error_of(config, &report), failure.what);
                }
                Received::Nothing => {
                    if let Err(error) = self.wait_for_lines(config, patience) {
                        return error;
                    }
                }
            }
        }
        // Rank 0 left in the middle of an operation that then failed: the failure began there, unless it is plain, or rank 0
        // had done its part.
        if matches!(cause, Cause::Garbled | Cause::Diverged) || self.lines[0].has_done(op.seq) {
            return with_words(error_of(config, &report), failure.what);
        }
        CollectiveError::PeerLost { op, rank: 0 }
    }

    /// Rank 0: hears everyone, finds the culprit, tells all.
    fn sentence(
        &mut self,
        config: &GroupConfig,
        op: OpId,
        mut reports: Vec<FailureReport>,
    ) -> CollectiveError {
        // A standstill ends for all ranks at about the same time; a rank that says nothing until then is stuck.
        if reports.iter().all(|report| report.cause == Cause::Stuck) {
            let reporting = Deadline::after(config.clock, REPORTING);
            let all_but_one = config.world as usize - 2;
            while !reporting.passed() && reports.len() < all_but_one.max(1) {
                match self.listen(config, op) {
                    Ok(more) => reports.extend(more),
                    Err(error) => return error,
                }
                if reports.iter().any(|report| report.cause != Cause::Stuck) {
                    break;
                }
                if let Err(error) = self.wait_for_lines(config, reporting) {
                    return error;
                }
            }
        }
        match self.listen(config, op) {
            Ok(more) => reports.extend(more),
            Err(error) => return error,
        }
        let gone = self.gone(op);
        let Some(mut found) = attribute(&reports, &gone) else {
            return self
                .pronounce(config, Message { cause: Cause::Stuck, ..Message::plain(Kind::Verdict, op) });
        };
        // Of two that differ, the one that does what rank 0 does is not the one that diverged.
        if found.cause == Cause::Diverged && found.theirs == op && found.ours != op {
            (found.about, found.from) = (found.from, found.about);
            (found.theirs, found.ours) = (found.ours, found.theirs);
        }
        let mut verdict = Message {
            cause: found.cause,
            rank: found.about,
            other: found.from,
            theirs: found.theirs,
            ..Message::plain(Kind::Verdict, if found.cause == Cause::Diverged { found.ours } else { op })
        };
        if found.cause == Cause::Stuck {
            let named = reports.iter().flat_map(|report| report.more.iter());
            let silent = failure_attribution::silent(&reports, named);
            verdict.more = Ranks::of(silent.into_iter().filter(|rank| *rank != found.about));
        }
        self.pronounce(config, verdict)
    }

    /// Rank 0: tells all ranks why it is over.
    fn pronounce(&mut self, config: &GroupConfig, verdict: Message) -> CollectiveError {
        for line in &mut self.lines {
            line.send(&verdict);
        }
        error_of(config, &verdict)
    }
}

/// Only the rank that saw nonsense knows what it was; its own words are the best.
fn with_words(error: CollectiveError, words: String) -> CollectiveError {
    match error {
        CollectiveError::Garbled { op, rank, .. } if !words.is_empty() => {
            CollectiveError::Garbled { op, rank, what: words }
        }
        other => other,
    }
}

fn error_of(config: &GroupConfig, message: &Message) -> CollectiveError {
    let (op, rank) = (message.op, message.rank);
    match message.cause {
        Cause::Lost => CollectiveError::PeerLost { op, rank },
        Cause::Stuck => {
            let mut ranks: Vec<u32> = std::iter::once(rank).chain(message.more.iter()).collect();
            ranks.sort_unstable();
            CollectiveError::Stalled { op, ranks, seconds: config.timeout.as_secs() }
        }
        Cause::Garbled => {
            let what = "the rank that received it has logged it".to_owned();
            CollectiveError::Garbled { op, rank, what }
        }
        Cause::Diverged => {
            CollectiveError::Diverged { rank, theirs: message.theirs, other: message.other, ours: op }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use super::super::auth::Secret;
    use super::super::config::TransportPreference;
    use super::super::op::OpKind;
    use super::*;
    use crate::clock;
    use crate::domain::time::HostTime;

    /// Rank 0 of three, and the others' ends of its lines.
    fn rank_0() -> (FailureDetector, Vec<Line>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let pair = |_| {
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let ours = listener.accept().unwrap().0;
            for stream in [&ours, &theirs] {
                stream.set_nonblocking(true).unwrap();
            }
            (Line::new(ours), Line::new(theirs))
        };
        let (ours, theirs) = (1..3).map(pair).unzip();
        (FailureDetector::new(ours), theirs)
    }

    /// Any other of the three, and rank 0's end of its line.
    fn other() -> (FailureDetector, Line) {
        let (zero, mut others) = rank_0();
        let line = zero.lines.into_iter().next().unwrap();
        (FailureDetector::new(vec![others.remove(0)]), line)
    }

    thread_local! {
        /// What [`stopped`] shows, µs.
        static TIME: Cell<u64> = const { Cell::new(1) };
    }

    /// A clock that stands still until it is set.
    fn stopped() -> HostTime {
        HostTime(TIME.get())
    }

    fn later(micros: u64) {
        TIME.set(TIME.get() + micros);
    }

    fn config() -> GroupConfig {
        GroupConfig {
            rank: 0,
            world: 3,
            master: String::new(),
            port: 0,
            bind: None,
            secret: Secret::from_hex(&"0".repeat(64)).unwrap(),
            timeout: Duration::from_secs(40),
            clock: clock::host_now,
            ticker: clock::ticker(),
            transport: TransportPreference::Tcp,
            shm_domain: String::new(),
            streams: None,
            pin: false,
            local: None,
        }
    }

    fn barrier(seq: u64) -> OpId {
        OpId { kind: OpKind::Barrier, seq, len: 0 }
    }

    #[test]
    fn rank_0_ends_its_part_of_an_operation_before_it_judges_what_happened_in_the_next() {
        let config = config();
        let (mut detector, mut others) = rank_0();
        others[0].send(&Message { rank: 2, ..Message::plain(Kind::FailureReport, barrier(8)) });
        until_received(&detector);
        for _ in 0..2 {
            assert_eq!(detector.look(&config, &mut Wait::new(barrier(7))), Ok(false));
        }
        let lost = CollectiveError::PeerLost { op: barrier(8), rank: 2 };
        assert_eq!(detector.look(&config, &mut Wait::new(barrier(8))), Err(lost));
    }

    #[test]
    fn rank_0_that_can_not_end_its_part_counts_what_was_said_of_the_next() {
        let config = config();
        let (mut detector, mut others) = rank_0();
        others[0].send(&Message { rank: 2, ..Message::plain(Kind::FailureReport, barrier(8)) });
        until_received(&detector);
        assert_eq!(detector.look(&config, &mut Wait::new(barrier(7))), Ok(false));
        let error = detector.report_failure(&config, &Wait::new(barrier(7)), Failure::of(1, Cause::Stuck));
        assert_eq!(error, CollectiveError::PeerLost { op: barrier(7), rank: 2 });
    }

    #[test]
    fn who_has_done_the_operation_and_closed_its_group_is_not_missed_however_late_rank_0_is() {
        let config = GroupConfig { clock: stopped, ..config() };
        let (mut detector, mut others) = rank_0();
        others[0].send(&Message::plain(Kind::Finalized, barrier(7)));
        others.remove(0);
        until_closed(&mut detector, &config, barrier(7));
        let mut wait = Wait::new(barrier(7));
        for _ in 0..5 {
            assert_eq!(detector.look(&config, &mut wait), Ok(false));
            later(2 * DEPARTED);
        }
        // Nor is it named in its place whom the others wait for.
        let error = detector.report_failure(&config, &wait, Failure::of(2, Cause::Stuck));
        let stalled = CollectiveError::Stalled { op: barrier(7), ranks: vec![2], seconds: 40 };
        assert_eq!(error, stalled);
        // In the next operation it is missed.
        let mut wait = Wait::new(barrier(8));
        let lost = CollectiveError::PeerLost { op: barrier(8), rank: 1 };
        let error = (0..5).find_map(|_| {
            later(2 * DEPARTED);
            detector.look(&config, &mut wait).err()
        });
        assert_eq!(error, Some(lost));
    }

    #[test]
    fn who_was_stopped_takes_what_has_come_before_it_judges() {
        let config = GroupConfig { clock: stopped, ..config() };
        // A line that closed without a word, and a deadline.
        for closes in [true, false] {
            let (mut detector, mut others) = rank_0();
            if closes {
                others.remove(0);
                until_closed(&mut detector, &config, barrier(6));
            }
            let mut wait = Wait::new(barrier(7));
            assert_eq!(detector.look(&config, &mut wait), Ok(false));
            later(config.timeout_us() + DEPARTED);
            assert_eq!(detector.look(&config, &mut wait), Ok(false), "not before what has come is taken");
            let lost = CollectiveError::PeerLost { op: barrier(7), rank: 1 };
            let judged = if closes { Err(lost) } else { Ok(true) };
            assert_eq!(detector.look(&config, &mut wait), judged);
        }
    }

    #[test]
    fn a_verdict_that_comes_while_a_rank_is_stopped_counts() {
        thread_local! {
            /// Rank 0's line, and the other end to see that what was sent has come.
            static ZERO: RefCell<Option<(Line, OwnedFd)>> = const { RefCell::new(None) };
        }
        /// At the first look after the deadline was made a long time has gone, in which the verdict has come.
        fn pausing() -> HostTime {
            let now = stopped();
            if now == HostTime(1) {
                later(1);
            } else if let Some((mut zero, ours)) = ZERO.take() {
                zero.send(&Message {
                    rank: 2,
                    cause: Cause::Stuck,
                    ..Message::plain(Kind::Verdict, barrier(7))
                });
                let mut fds = [PollFd::new(&ours, PollFlags::IN)];
                let time = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
                assert_eq!(rustix::event::poll(&mut fds, Some(&time)), Ok(1));
                later(2 * GRACE);
                ZERO.set(Some((zero, ours)));
                return stopped();
            }
            now
        }
        TIME.set(1);
        let config = GroupConfig { rank: 1, clock: pausing, ..config() };
        let (mut detector, zero) = other();
        let ours = detector.lines[0].stream().unwrap().as_fd().try_clone_to_owned().unwrap();
        ZERO.set(Some((zero, ours)));
        let error = detector.report_failure(&config, &Wait::new(barrier(7)), Failure::of(2, Cause::Stuck));
        let stalled = CollectiveError::Stalled { op: barrier(7), ranks: vec![2], seconds: 40 };
        assert_eq!(error, stalled, "rank 0 has spoken");
    }

    #[test]
    fn the_last_word_of_a_rank_0_that_has_gone_is_read_though_nothing_can_be_sent_to_it() {
        let config = GroupConfig { rank: 1, ..config() };
        let (mut detector, mut zero) = other();
        // What rank 0 leaves unread makes the kernel reset the connection.
        detector.lines[0].send(&Message { rank: 2, ..Message::plain(Kind::FailureReport, barrier(6)) });
        zero.send(&Message { rank: 2, ..Message::plain(Kind::Verdict, barrier(7)) });
        until_received(&detector);
        drop(zero);
        until_reset(&detector);
        let error = detector.report_failure(&config, &Wait::new(barrier(7)), Failure::of(2, Cause::Lost));
        assert_eq!(error, CollectiveError::PeerLost { op: barrier(7), rank: 2 });
    }

    #[test]
    fn a_rank_0_that_had_done_its_part_is_not_named_for_who_dies_after_it_left() {
        let config = GroupConfig { rank: 1, ..config() };
        let lost = |rank| CollectiveError::PeerLost { op: barrier(7), rank };
        for (done, named) in [(barrier(6), 0), (barrier(7), 2)] {
            let (mut detector, zero) = other();
            let mut zero = FailureDetector::new(vec![zero]);
            zero.finalize(done);
            drop(zero);
            let error = detector.report_failure(&config, &Wait::new(barrier(7)), Failure::of(2, Cause::Lost));
            assert_eq!(error, lost(named));
        }
    }

    /// Rank 0 has read all that rank 1 said, and its end.
    fn until_closed(detector: &mut FailureDetector, config: &GroupConfig, op: OpId) {
        while !detector.lines[0].is_closed() {
            until_received(detector);
            assert_eq!(detector.listen(config, op).unwrap(), []);
        }
    }

    fn until_reset(detector: &FailureDetector) {
        let mut fds = [PollFd::new(detector.lines[0].stream().unwrap(), PollFlags::empty())];
        let time = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&time)), Ok(1));
        assert!(fds[0].revents().contains(PollFlags::ERR));
    }

    fn until_received(detector: &FailureDetector) {
        let mut fds = [PollFd::new(detector.lines[0].stream().unwrap(), PollFlags::IN)];
        let time = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&time)), Ok(1));
    }
}
