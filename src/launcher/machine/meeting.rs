//! How the ranks of a run come to be connected where their rendezvous tells of it: who is missing, and until when.

use std::collections::BTreeSet;

use super::{Action, Progress, RunMachine};
use crate::domain::ids::Rank;
use crate::domain::note::Note;
use crate::domain::outcome::RunEnd;
use crate::domain::rendezvous::Progress as Told;
use crate::domain::run::{JobKind, RunStage};
use crate::domain::time::Stamp;
use crate::launcher::kinds::START_TIMEOUT_S;

/// A rendezvous that has begun.
#[derive(Debug)]
pub(super) struct Meeting {
    /// When its first rank came.
    since: Stamp,
    /// The ranks that have come.
    joined: BTreeSet<Rank>,
}

impl RunMachine {
    /// Takes in what a host says of the rendezvous that it serves.
    pub(super) fn rendezvous_told(&mut self, at: Stamp, note: &Note, actions: &mut Vec<Action>) {
        match Told::parse(note) {
            Some(Told::Joined { ranks, .. }) => {
                let since = self.meeting.as_ref().map_or(at, |meeting| meeting.since);
                self.meeting = Some(Meeting { since, joined: ranks });
            }
            Some(Told::Connected { .. }) => {
                for placement in &self.spec.placements {
                    let progress = self.progress.entry(placement.rank).or_insert(Progress::Connected);
                    *progress = Progress::Connected.max(*progress);
                }
                if matches!(self.stage, RunStage::Start | RunStage::Rendezvous) {
                    self.ranks_due.clear();
                }
                self.advance(at, actions);
            }
            None => {}
        }
    }

    /// The ranks of those that are due which have not come to the rendezvous; all that are due where all have come or it
    /// tells of none.
    pub(super) fn missing(&self) -> Vec<Rank> {
        let joined = self.meeting.as_ref().filter(|_| self.stage == RunStage::Rendezvous);
        let absent = |rank: &&Rank| joined.is_none_or(|meeting| !meeting.joined.contains(rank));
        let missing: Vec<Rank> = self.ranks_due.iter().filter(absent).copied().collect();
        if missing.is_empty() { self.ranks_due.iter().copied().collect() } else { missing }
    }

    /// Why the run is given up, when its ranks have not been connected in time.
    pub(super) fn late_meeting(&self, now: Stamp) -> Option<(RunEnd, String)> {
        if self.stage != RunStage::Rendezvous || self.attached {
            return None;
        }
        let asked = self.spec.options.start_timeout_s;
        let begun = self.meeting.as_ref().map(|meeting| meeting.since);
        let (since, seconds) = match (asked, self.spec.kind) {
            (Some(seconds), _) => (begun.unwrap_or(self.entered), seconds),
            (None, JobKind::Horovod) => (begun?, START_TIMEOUT_S),
            _ => return None,
        };
        if now.micros_since(since) < i64::from(seconds) * 1_000_000 {
            return None;
        }
        let all_came = self
            .meeting
            .as_ref()
            .is_some_and(|meeting| self.ranks_due.iter().all(|rank| meeting.joined.contains(rank)));
        let summary = if all_came {
            format!(
                "all ranks joined the rendezvous, but were not connected within {seconds} s: they do not reach each \
                 other; check --network-interface and firewalls between the hosts"
            )
        } else {
            format!(
                "{} did not join the other ranks within {seconds} s: see its log; --start-timeout gives it longer",
                self.waiting_for()
            )
        };
        Some((RunEnd::Silent, summary))
    }
}
