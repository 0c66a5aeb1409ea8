//! A rank that fails stops the others, a moment later: those that end by themselves keep their own exit codes, and the cause may be
//! among them. What ranks print tells which it is, see [`root_cause`](crate::domain::root_cause).

use std::sync::Arc;

use super::{Action, RunMachine, StopCause};
use crate::domain::ids::Rank;
use crate::domain::log::LogLine;
use crate::domain::root_cause::SETTLE_US;
use crate::domain::run::RankExit;
use crate::domain::time::Stamp;

impl RunMachine {
    /// A rank's line may tell why it ends.
    pub(super) fn printed(&mut self, at: Stamp, rank: Rank, line: &Arc<LogLine>) {
        let clock = self.host_of(rank).and_then(|host| self.clocks.get(host));
        let at = line.t.and_then(|t| clock?.stamp(t)).unwrap_or(at);
        let (output, words) = self.words.entry(rank).or_default();
        let logged = output.line(at, line);
        words.take(at, &logged, output);
    }

    pub(super) fn rank_exited(&mut self, at: Stamp, rank: Rank, exit: &RankExit, actions: &mut Vec<Action>) {
        // of one whose end was not seen, the host gives no time that means anything
        let clock = self.host_of(rank).filter(|_| !exit.is_lost());
        let when = clock.and_then(|host| self.clocks.get(host)?.stamp(exit.t)).unwrap_or(at);
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
        self.fail_fast(at, when, exit, actions);
    }

    /// One rank that failed by itself stops the others, a moment later: the cause may be another one that is just ending.
    fn fail_fast(&mut self, at: Stamp, when: Stamp, exit: &RankExit, actions: &mut Vec<Action>) {
        if exit.shell_code() == 0 || exit.stopped || self.stopping.is_some() {
            return;
        }
        let stop_at = when.plus_micros(i64::try_from(SETTLE_US).unwrap_or(i64::MAX));
        if stop_at <= at || exit.error.is_some() || exit.is_lost() {
            // the host's own supervisor stops its other ranks by itself
            return self.stop_all(StopCause::Rank, false, at, actions);
        }
        self.stopping = Some(StopCause::Rank);
        self.stop_at = Some(stop_at);
        self.begin_stopping(at, actions);
    }

    /// Tells the other hosts to stop when their ranks have had the time to end by themselves.
    pub(super) fn look_at_failure(&mut self, now: Stamp, actions: &mut Vec<Action>) {
        if self.stop_at.is_some_and(|stop_at| stop_at <= now) && !self.is_over() {
            self.stop_all(StopCause::Rank, false, now, actions);
        }
    }
}
