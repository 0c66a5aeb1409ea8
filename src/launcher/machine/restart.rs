//! `--max-restarts`: a rank that fails by itself ends the attempt and not the run. Every host then starts its ranks
//! again, asked and told as for the first time: new ports, a new secret, the GPUs leased anew.
//!
//! Only who launched the run starts it again: nothing else knows its secret variables and what each host executes.

use ring::hmac;

use super::{Action, BTreeMap, BTreeSet, RunMachine, VecDeque};
use crate::domain::event::Event;
use crate::domain::ids::Rank;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::root_cause::Evidence;
use crate::domain::time::Stamp;
use crate::launcher::plan;

impl RunMachine {
    /// The rank whose failure makes the run start again, if one does. What its owner stopped, what a host refused, and
    /// GPUs that are in use are no such failures.
    pub(super) fn restarts_after(&self, outcome: &RunOutcome) -> Option<Rank> {
        let again = !self.unwanted
            && !self.attached
            && outcome.end == RunEnd::Failed
            && self.attempt.is_some_and(|attempt| attempt < self.spec.options.max_restarts);
        outcome.root.filter(|_| again)
    }

    /// Asks every host again whether it can start its ranks. Nothing is left of the attempt before.
    pub(super) fn restart(&mut self, root: Rank, outcome: &RunOutcome, at: Stamp, actions: &mut Vec<Action>) {
        let attempt = self.attempt.unwrap_or_default().saturating_add(1);
        self.attempt = Some(attempt);
        let how = self.exits.get(&root).map(|(_, exit)| exit.describe()).unwrap_or_default();
        // one that was told to stop before it had ended failed by what it printed
        let how = match &outcome.evidence {
            None => format!("failed: {how}"),
            evidence => Evidence::headline(evidence.as_ref(), &how),
        };
        let why = format!("rank {root} ({}) {how}", self.place(root));
        let of = self.spec.options.max_restarts.saturating_add(1);
        let event = Event::RunRestarted { attempt: attempt.saturating_add(1), of, why, root };
        actions.push(Action::Emit(self.origin(), event));
        for share in &mut self.plans {
            share.attempt = attempt;
            for rank in &mut share.ranks {
                plan::count_restarts(&mut rank.env, attempt);
            }
        }
        self.hosts_due = BTreeSet::new();
        self.unasked = VecDeque::new();
        self.asked_again = BTreeSet::new();
        self.progress = BTreeMap::new();
        self.links_down = BTreeMap::new();
        self.meeting = None;
        self.ports = BTreeMap::new();
        self.finished = BTreeSet::new();
        self.exits = BTreeMap::new();
        self.words = BTreeMap::new();
        self.stop_at = None;
        self.committed = false;
        self.stopping = None;
        self.stopped_by_others = BTreeSet::new();
        self.ask_first(at, actions);
    }

    /// The secret by which the ranks of this attempt know each other. None of them can tell that of another attempt.
    pub(super) fn secret_of_attempt(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.0.as_bytes());
        let tag = hmac::sign(&key, &self.attempt.unwrap_or_default().to_be_bytes());
        tag.as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    /// The outcome, which says in which attempt it came where there were several.
    pub(super) fn of_attempt(&self, outcome: RunOutcome) -> RunOutcome {
        let Some(attempt) = self.attempt.filter(|attempt| *attempt > 0 && !self.attached) else {
            return outcome;
        };
        let of = self.spec.options.max_restarts.saturating_add(1);
        let summary = format!("{} (attempt {} of {of})", outcome.summary, attempt.saturating_add(1));
        RunOutcome { summary, ..outcome }
    }

    /// The outcome of an attempt that did not start. Where ranks of an earlier one have run, it is no run that a host refused.
    pub(super) fn after_attempts(&self, outcome: RunOutcome, at: Stamp) -> RunOutcome {
        RunOutcome { at: self.attempt.filter(|attempt| *attempt > 0).map(|_| at), ..outcome }
    }

    /// A host refuses it, for another client has stopped it there.
    pub(super) fn unwanted_there(&self) -> RunOutcome {
        let summary = if self.committed { "stopped".to_owned() } else { self.unstarted() };
        RunOutcome::new(RunEnd::StoppedElsewhere, summary)
    }

    /// What a stop says of a run none of whose ranks runs yet, or runs again.
    pub(super) fn unstarted(&self) -> String {
        match self.attempt {
            Some(attempt @ 1..) => format!("stopped before attempt {} started", attempt.saturating_add(1)),
            _ => "stopped before anything started".to_owned(),
        }
    }
}

#[cfg(test)]
#[path = "restart_tests.rs"]
mod tests;
