//! When the ranks of a host are told to stop, when they are killed, and when nothing is left: a state
//! machine of its inputs and the time that is passed in. Knows nothing of processes.

use std::collections::BTreeSet;

use crate::domain::ids::Rank;
use crate::domain::run::RankExit;
use crate::domain::time::HostTime;

/// How long processes that outlive their ranks may take to end by themselves after TERM.
const STRAY_GRACE_US: u64 = 2_000_000;
/// After so long of KILL the rank-wraps are killed too: they hang.
const WRAP_PATIENCE_US: u64 = 5_000_000;
/// After so long of KILL what is left hangs in the kernel and never ends. The client hears of it within ten seconds.
const KILL_PATIENCE_US: u64 = 9_000_000;
/// Between two rounds of KILL.
const KILL_ROUND_US: u64 = 20_000;
/// No round counts for more: a supervisor that had no processor for longer gave nothing time to end.
const MOST_A_ROUND_US: u64 = 500_000;
/// Between two rounds of KILL to the rank-wraps: one that waited for a process that the first has ended has its time.
const WRAP_ROUND_US: u64 = 1_000_000;

/// What the supervisor does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write down that the ranks are told to stop, and why. Comes before the first signal.
    MarkStop(String),
    /// TERM to every process but the rank-wraps.
    Term,
    /// KILL to every process, to the rank-wraps too if `wraps`.
    Kill {
        /// The rank-wraps hang.
        wraps: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Running,
    /// A rank has failed; the others may end by themselves.
    Settling {
        until: HostTime,
        why: String,
    },
    Ending {
        kill_at: HostTime,
        /// The grace that begins when TERM has been sent; 0 once it has.
        untold_us: u64,
    },
    Killing {
        /// So long so far, µs.
        spent_us: u64,
        /// The last round.
        last: HostTime,
    },
    Abandoned,
}

impl Phase {
    /// TERM is to be sent.
    fn ending(grace_us: u64, now: HostTime) -> Self {
        Self::Ending { kill_at: after(now, grace_us), untold_us: grace_us }
    }
}

/// The end of a host's share of a run.
#[derive(Debug)]
pub struct Machine {
    open: BTreeSet<Rank>,
    grace_us: u64,
    settle_us: u64,
    phase: Phase,
}

impl Machine {
    /// For these ranks, with so many milliseconds between TERM and KILL.
    pub fn new(ranks: impl IntoIterator<Item = Rank>, grace_ms: u64) -> Self {
        Self {
            open: ranks.into_iter().collect(),
            grace_us: grace_ms.saturating_mul(1000),
            settle_us: 0,
            phase: Phase::Running,
        }
    }

    /// The same, whose ranks have so many microseconds to end by themselves after one has failed.
    #[must_use]
    pub fn settling(self, settle_us: u64) -> Self {
        Self { settle_us, ..self }
    }

    /// Ranks whose end is not known yet.
    pub fn open(&self) -> &BTreeSet<Rank> {
        &self.open
    }

    /// A rank ended. The first that fails ends the others, a moment later: those that end by themselves keep their own exit code,
    /// and the cause may be among them.
    pub fn exited(&mut self, rank: Rank, exit: &RankExit, now: HostTime) -> Vec<Action> {
        self.open.remove(&rank);
        if self.phase != Phase::Running || exit.shell_code() == 0 || self.open.is_empty() {
            return Vec::new();
        }
        let why = format!("rank {rank} failed: {}", exit.describe());
        if self.settle_us > 0 && exit.error.is_none() {
            self.phase = Phase::Settling { until: after(now, self.settle_us), why };
            return Vec::new();
        }
        self.end(why, self.grace_us, now)
    }

    /// A stop was requested; `at_once` without grace. A second request to stop changes nothing: a client that sees the
    /// same failure asks just as the first grace has begun.
    pub fn stop(&mut self, at_once: bool, now: HostTime) -> Vec<Action> {
        match &self.phase {
            Phase::Running | Phase::Settling { .. } if at_once => {
                let mut actions = self.end("asked to stop now".to_owned(), 0, now);
                actions.retain(|action| *action != Action::Term);
                actions.extend(self.kill(now));
                actions
            }
            Phase::Running => self.end("asked to stop".to_owned(), self.grace_us, now),
            Phase::Settling { why, .. } => self.end(why.clone(), self.grace_us, now),
            Phase::Ending { .. } if at_once => self.kill(now),
            Phase::Ending { .. } | Phase::Killing { .. } | Phase::Abandoned => Vec::new(),
        }
    }

    /// The ranks are to end for another reason than a person's word; nothing where they end already.
    pub fn give_up(&mut self, why: String, now: HostTime) -> Vec<Action> {
        if !matches!(self.phase, Phase::Running | Phase::Settling { .. }) || self.open.is_empty() {
            return Vec::new();
        }
        self.end(why, self.grace_us, now)
    }

    /// A new supervisor finds that the ranks were told to stop at `since`. Its predecessor may have died before
    /// it told them all.
    pub fn resume_stop(&mut self, at_once: bool, since: HostTime, now: HostTime) -> Vec<Action> {
        if at_once {
            return self.kill(now);
        }
        self.phase = Phase::Ending { kill_at: after(since, self.grace_us), untold_us: 0 };
        vec![Action::Term]
    }

    /// TERM has been sent: the grace begins now, however long that took. A second TERM begins no second one.
    pub fn told(&mut self, now: HostTime) {
        if let Phase::Ending { kill_at, untold_us } = &mut self.phase {
            *kill_at = after(now, std::mem::take(untold_us)).max(*kill_at);
        }
    }

    /// Time has passed or processes have ended; `empty` when no process of the run is left.
    pub fn tick(&mut self, empty: bool, now: HostTime) -> Vec<Action> {
        match &self.phase {
            Phase::Running | Phase::Settling { .. } if self.open.is_empty() => {
                if empty {
                    return Vec::new();
                }
                self.phase = Phase::ending(self.grace_us.min(STRAY_GRACE_US), now);
                vec![Action::Term]
            }
            Phase::Settling { until, why } if now >= *until => self.end(why.clone(), self.grace_us, now),
            Phase::Ending { kill_at, .. } if now >= *kill_at => self.kill(now),
            Phase::Killing { spent_us, last } if now >= after(*last, KILL_ROUND_US) => {
                let before = *spent_us;
                let spent_us = before + (now.0 - last.0).min(MOST_A_ROUND_US);
                if spent_us >= KILL_PATIENCE_US {
                    self.phase = Phase::Abandoned;
                    return Vec::new();
                }
                self.phase = Phase::Killing { spent_us, last: now };
                let is_due = spent_us / WRAP_ROUND_US > before / WRAP_ROUND_US;
                vec![Action::Kill { wraps: is_due && spent_us >= WRAP_PATIENCE_US }]
            }
            _ => Vec::new(),
        }
    }

    /// Whether the supervisor's work is over: all is gone, or what is left can't be ended.
    pub fn done(&self, empty: bool) -> bool {
        (self.open.is_empty() && empty) || self.phase == Phase::Abandoned
    }

    /// When the next [`Self::tick`] is due; `None` while only processes and people can change anything.
    pub fn wake_at(&self) -> Option<HostTime> {
        match self.phase {
            Phase::Running | Phase::Abandoned => None,
            Phase::Settling { until, .. } => Some(until),
            Phase::Ending { kill_at, .. } => Some(kill_at),
            Phase::Killing { last, .. } => Some(after(last, KILL_ROUND_US)),
        }
    }

    fn end(&mut self, why: String, grace_us: u64, now: HostTime) -> Vec<Action> {
        self.phase = Phase::ending(grace_us, now);
        vec![Action::MarkStop(why), Action::Term]
    }

    fn kill(&mut self, now: HostTime) -> Vec<Action> {
        self.phase = Phase::Killing { spent_us: 0, last: now };
        vec![Action::Kill { wraps: false }]
    }
}

fn after(now: HostTime, micros: u64) -> HostTime {
    HostTime(now.0.saturating_add(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> RankExit {
        RankExit { code: Some(code), signal: None, t: HostTime(0), error: None, stopped: false, cause: None }
    }

    fn machine() -> Machine {
        Machine::new([Rank(0), Rank(1)], 100)
    }

    #[test]
    fn ranks_that_end_well_end_the_run_without_a_signal() {
        let mut machine = machine();
        assert_eq!(machine.exited(Rank(0), &exit(0), HostTime(1)), []);
        assert_eq!(machine.tick(false, HostTime(1)), []);
        assert!(!machine.done(true));
        assert_eq!(machine.exited(Rank(1), &exit(0), HostTime(2)), []);
        assert!(machine.done(true));
    }

    #[test]
    fn processes_that_outlive_their_ranks_are_ended() {
        let mut machine = Machine::new([Rank(0)], 60_000);
        machine.exited(Rank(0), &exit(0), HostTime(0));
        assert_eq!(machine.tick(false, HostTime(0)), [Action::Term]);
        assert_eq!(machine.wake_at(), Some(HostTime(STRAY_GRACE_US)));
        assert_eq!(machine.tick(false, HostTime(STRAY_GRACE_US)), [Action::Kill { wraps: false }]);
        assert!(machine.done(true));
    }

    #[test]
    fn the_first_failure_ends_the_others_after_grace() {
        let mut machine = machine();
        let actions = machine.exited(Rank(1), &exit(3), HostTime(0));
        assert_eq!(actions, [Action::MarkStop("rank 1 failed: exit 3".to_owned()), Action::Term]);
        assert_eq!(machine.tick(false, HostTime(99_999)), []);
        assert_eq!(machine.tick(false, HostTime(100_000)), [Action::Kill { wraps: false }]);
        assert_eq!(machine.exited(Rank(0), &exit(1), HostTime(100_001)), []);
        assert!(machine.done(true));
    }

    #[test]
    fn ranks_that_end_by_themselves_after_a_failure_are_not_told_to_stop() {
        let settling = || Machine::new([Rank(0), Rank(1), Rank(2)], 100).settling(1000);
        let mut machine = settling();
        assert_eq!(machine.exited(Rank(1), &exit(1), HostTime(0)), []);
        assert_eq!(machine.wake_at(), Some(HostTime(1000)));
        assert_eq!(machine.exited(Rank(0), &exit(3), HostTime(900)), [], "no second reason");
        assert_eq!(machine.tick(false, HostTime(999)), []);
        let told = [Action::MarkStop("rank 1 failed: exit 1".to_owned()), Action::Term];
        assert_eq!(machine.tick(false, HostTime(1000)), told);
        // all of them in time
        let mut machine = settling();
        for rank in 0..3 {
            assert_eq!(machine.exited(Rank(rank), &exit(1), HostTime(rank.into())), []);
        }
        assert!(machine.done(true) && machine.tick(true, HostTime(2000)).is_empty());
        assert_eq!(machine.tick(false, HostTime(2000)), [Action::Term], "what they have left");
        // a person does not wait
        let mut machine = settling();
        machine.exited(Rank(1), &exit(1), HostTime(0));
        assert_eq!(machine.stop(false, HostTime(5)), told);
        let mut machine = settling();
        machine.exited(Rank(1), &exit(1), HostTime(0));
        assert_eq!(machine.stop(true, HostTime(5)).last(), Some(&Action::Kill { wraps: false }));
        // a rank that never began has nothing to settle
        let mut machine = settling();
        let never = RankExit { error: Some("exec: no such file".to_owned()), ..exit(126) };
        assert_eq!(machine.exited(Rank(1), &never, HostTime(0)).len(), 2);
    }

    #[test]
    fn a_second_stop_leaves_the_grace_and_one_at_once_does_not() {
        let mut machine = machine();
        assert_eq!(
            machine.stop(false, HostTime(0)),
            [Action::MarkStop("asked to stop".to_owned()), Action::Term]
        );
        assert_eq!(machine.stop(false, HostTime(1)), []);
        assert_eq!(machine.wake_at(), Some(HostTime(100_000)), "the grace of the first");
        assert_eq!(machine.stop(true, HostTime(1)), [Action::Kill { wraps: false }]);
        assert_eq!(machine.stop(true, HostTime(2)), []);
        let mut machine = Machine::new([Rank(0)], 100);
        let actions = machine.stop(true, HostTime(0));
        assert_eq!(
            actions,
            [Action::MarkStop("asked to stop now".to_owned()), Action::Kill { wraps: false }]
        );
    }

    #[test]
    fn the_grace_begins_when_the_ranks_have_been_told() {
        let mut machine = machine();
        machine.stop(false, HostTime(0));
        machine.told(HostTime(5_000_000));
        assert_eq!(machine.tick(false, HostTime(5_099_999)), []);
        machine.told(HostTime(5_099_999));
        assert_eq!(machine.wake_at(), Some(HostTime(5_100_000)), "another TERM is no other grace");
        assert_eq!(machine.tick(false, HostTime(5_100_000)), [Action::Kill { wraps: false }]);
        // what outlives the ranks
        let mut machine = Machine::new([Rank(0)], 60_000);
        machine.exited(Rank(0), &exit(0), HostTime(0));
        machine.tick(false, HostTime(0));
        machine.told(HostTime(7));
        assert_eq!(machine.wake_at(), Some(HostTime(STRAY_GRACE_US + 7)));
        // a predecessor has told them
        let mut machine = Machine::new([Rank(0)], 100);
        machine.resume_stop(false, HostTime(50_000), HostTime(90_000));
        machine.told(HostTime(100_000));
        assert_eq!(machine.wake_at(), Some(HostTime(150_000)));
    }

    #[test]
    fn a_run_is_given_up_once_and_never_after_its_end() {
        let mut machine = machine();
        let why = || "silent".to_owned();
        assert_eq!(machine.give_up(why(), HostTime(5)), [Action::MarkStop(why()), Action::Term]);
        assert_eq!(machine.give_up(why(), HostTime(6)), []);
        assert_eq!(machine.tick(false, HostTime(100_005)), [Action::Kill { wraps: false }]);
        let mut machine = Machine::new([Rank(0)], 100);
        machine.exited(Rank(0), &exit(0), HostTime(0));
        assert_eq!(machine.give_up(why(), HostTime(5)), []);
    }

    #[test]
    fn a_stop_outlives_the_supervisor_that_began_it() {
        let mut machine = machine();
        assert_eq!(machine.resume_stop(false, HostTime(50_000), HostTime(90_000)), [Action::Term]);
        assert_eq!(machine.exited(Rank(0), &exit(1), HostTime(90_000)), [], "it is no new failure");
        assert_eq!(machine.tick(false, HostTime(149_999)), []);
        assert_eq!(machine.tick(false, HostTime(150_000)), [Action::Kill { wraps: false }]);
        let mut machine = Machine::new([Rank(0)], 100);
        assert_eq!(machine.resume_stop(true, HostTime(0), HostTime(1)), [Action::Kill { wraps: false }]);
    }

    #[test]
    fn what_hangs_in_the_kernel_is_given_up() {
        let mut machine = machine();
        machine.stop(true, HostTime(0));
        assert_eq!(machine.tick(false, HostTime(KILL_ROUND_US)), [Action::Kill { wraps: false }]);
        assert_eq!(machine.tick(false, HostTime(KILL_ROUND_US + 1)), []);
        let mut rounds = (2..).map(|round| round * KILL_ROUND_US);
        for at in rounds.by_ref().take_while(|at| *at < WRAP_PATIENCE_US) {
            assert_eq!(machine.tick(false, HostTime(at)), [Action::Kill { wraps: false }]);
        }
        let mut to_wraps = vec![WRAP_PATIENCE_US];
        let mut machine_at = |at| machine.tick(false, HostTime(at));
        assert_eq!(machine_at(WRAP_PATIENCE_US), [Action::Kill { wraps: true }]);
        for at in rounds.by_ref().take_while(|at| *at < KILL_PATIENCE_US) {
            match machine_at(at).as_slice() {
                [Action::Kill { wraps: true }] => to_wraps.push(at),
                actions => assert_eq!(actions, [Action::Kill { wraps: false }]),
            }
        }
        assert_eq!(to_wraps, [5, 6, 7, 8].map(|at| at * WRAP_ROUND_US));
        assert_eq!(machine_at(KILL_PATIENCE_US), []);
        assert!(machine.done(false));
        assert_eq!(machine.open().len(), 2);
    }

    #[test]
    fn a_time_without_a_processor_is_no_patience() {
        let mut machine = machine();
        machine.stop(true, HostTime(0));
        for pause in [30_000_000, 60_000_000] {
            assert_eq!(machine.tick(false, HostTime(pause)), [Action::Kill { wraps: false }]);
            assert!(!machine.done(false));
        }
    }
}
