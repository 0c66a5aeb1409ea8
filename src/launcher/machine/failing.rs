//! A rank that fails stops the others, a moment later: those that end by themselves keep their own exit codes, and the cause may be
//! among them. What ranks print tells which it is, see [`root_cause`](crate::domain::root_cause).

use std::sync::Arc;

use super::{Action, RunMachine, StopCause};
use crate::domain::ids::Rank;
use crate::domain::log::LogLine;
use crate::domain::outcome::RunOutcome;
use crate::domain::root_cause::SETTLE_US;
use crate::domain::run::{RankExit, RunStage};
use crate::domain::time::{HostTime, Stamp};
use crate::launcher::verdict;

/// A line that comes so late was not read when it was printed: its moment is from the notes that its host makes of a file's length,
/// one in so long, microseconds.
const HEARD_LATE_US: i64 = 2_000_000;
const NOTED_EVERY_US: i64 = 1_000_000;

impl RunMachine {
    /// A rank's line may tell why it ends.
    pub(super) fn printed(&mut self, at: Stamp, rank: Rank, line: &Arc<LogLine>) {
        let printed = self.moment(at, rank, line.t);
        let unsure_us = line.t.and_then(|there| self.unsure_us(rank, there)).map_or(0, i64::from);
        let (output, words) = self.words.entry(rank).or_default();
        let logged = output.line(printed, line);
        words.take(printed, &logged, output);
        words.is_unsure(unsure_us);
        if at.micros_since(printed) > HEARD_LATE_US {
            words.is_unsure(NOTED_EVERY_US);
        }
    }

    /// When it was on a rank's host, as far as that is known; else when it came.
    pub(super) fn moment(&self, at: Stamp, rank: Rank, there: Option<HostTime>) -> Stamp {
        let clock = self.host_of(rank).and_then(|host| self.clocks.get(host));
        there.and_then(|there| clock?.stamp(there)).unwrap_or(at)
    }

    /// By how much that may be off, microseconds; `None` where the host's clock is not known then.
    fn unsure_us(&self, rank: Rank, there: HostTime) -> Option<u32> {
        self.clocks.get(self.host_of(rank)?)?.unsure_us(there)
    }

    /// The outcome by how the ranks ended.
    pub(super) fn verdict(&self) -> RunOutcome {
        let words = |rank: Rank| Some(&self.words.get(&rank)?.1);
        verdict::outcome(&self.spec, &self.exits, words, |rank, exit| self.unsure_us(rank, exit.t))
    }

    pub(super) fn rank_exited(&mut self, at: Stamp, rank: Rank, exit: &RankExit, actions: &mut Vec<Action>) {
        // of one whose end was not seen, the host gives no time that means anything
        let when = self.moment(at, rank, Some(exit.t).filter(|_| !exit.is_lost()));
        self.rank_gone(at, rank, when, exit, actions);
    }

    pub(super) fn rank_gone(
        &mut self,
        at: Stamp,
        rank: Rank,
        when: Stamp,
        exit: &RankExit,
        actions: &mut Vec<Action>,
    ) {
        self.exits.insert(rank, (when, exit.clone()));
        self.ranks_due.remove(&rank);
        if exit.stopped && self.stopping.is_none() && !self.spec.has_launcher() {
            self.stopped_by_others.insert(rank);
        }
        self.fail_fast(at, when, exit, actions);
    }

    /// One rank that failed by itself stops the others, a moment later: the cause may be another one that is just ending.
    fn fail_fast(&mut self, at: Stamp, when: Stamp, exit: &RankExit, actions: &mut Vec<Action>) {
        if exit.shell_code() == 0 || self.stopping.is_some() {
            return;
        }
        if exit.stopped {
            return self.stopped_elsewhere(at, actions);
        }
        // a clock that was set may put it into the future
        let stop_at = when.min(at).plus_micros(SETTLE_US.cast_signed());
        if stop_at <= at || exit.error.is_some() || exit.is_lost() {
            // the host's own supervisor stops its other ranks by itself
            return self.stop_all(StopCause::Rank, false, at, actions);
        }
        self.stopping = Some(StopCause::Rank);
        self.stop_at = Some(stop_at);
        self.begin_stopping(at, actions);
    }

    /// A rank was told to stop, and not from here: another client that did so may not have reached all hosts. A host that can't be
    /// reached now is told when it is back.
    fn stopped_elsewhere(&mut self, at: Stamp, actions: &mut Vec<Action>) {
        if self.committed && self.stage != RunStage::Stopping && !self.spec.has_launcher() {
            self.tell_to_stop(false, actions);
            self.begin_stopping(at, actions);
        }
    }

    /// Whether another client stopped the run: ranks were told to stop before any here was, and neither a rank of their host nor one
    /// that ended earlier had failed, for which its supervisor or that client stops the others.
    pub(super) fn was_stopped_elsewhere(&self) -> bool {
        let is_so = |rank: &Rank| {
            let Some((stopped_at, exit)) = self.exits.get(rank) else { return false };
            let failed = |(other, (at, exit)): (&Rank, &(Stamp, RankExit))| {
                let ended_by_itself = exit.shell_code() != 0 && !exit.stopped;
                ended_by_itself && (at <= stopped_at || self.host_of(*other) == self.host_of(*rank))
            };
            exit.shell_code() != 0 && !self.exits.iter().any(failed)
        };
        self.stopped_by_others.iter().any(is_so)
    }

    /// Tells the other hosts to stop when their ranks have had the time to end by themselves.
    pub(super) fn look_at_failure(&mut self, now: Stamp, actions: &mut Vec<Action>) {
        if self.stop_at.is_some_and(|stop_at| stop_at <= now) && !self.is_over() {
            self.stop_all(StopCause::Rank, false, now, actions);
        }
    }
}
