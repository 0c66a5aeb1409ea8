//! How a run starts: every host is asked whether it can, then all are told to; both again where a link was lost.
//!
//! A host that can start has taken the leases of its GPUs. Hosts with GPUs are asked one after the other, in an order
//! that is the same for every client: of several launches that want the same GPUs one then gets all of them, because
//! a launch that is refused at a host holds none that comes after it. None of them waits for another: who is refused gives
//! everything back.

use std::collections::BTreeMap;

use super::{Action, RunMachine, START_DEADLINE_US};
use crate::domain::container::ImageId;
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::late::Late;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{HostRun, RefusalClass, RunStage};
use crate::domain::time::Stamp;
use crate::launcher::kinds::{self, Start};
use crate::launcher::plan;
use crate::wire::message::{Commit, Follow, Refused, RunRef, ToAgent};

/// A host that was told to start and went away has so long to come back and say that it did.
pub(super) const LOST_US: i64 = 3_000_000;

impl RunMachine {
    /// Asks all hosts without GPUs, and the first one with them.
    pub(super) fn ask_first(&mut self, at: Stamp, actions: &mut Vec<Action>) {
        let (leased, free): (Vec<HostRun>, Vec<HostRun>) =
            self.plans.iter().cloned().partition(|plan| !plan.leases.held.is_empty());
        self.unasked = leased.into_iter().map(|plan| plan.host).collect();
        self.hosts_due = free.iter().map(|plan| plan.host.clone()).collect();
        let first = self.unasked.pop_front();
        self.hosts_due.extend(first.clone());
        self.enter(RunStage::Prepare, at, actions);
        for host in free.into_iter().map(|plan| plan.host).chain(first) {
            self.ask(&host, actions);
        }
    }

    /// A rank has reached what the stage waits for.
    pub(super) fn came(&mut self, at: Stamp) {
        if self.stage == RunStage::Start {
            // a host starts its ranks one after the other: while some come, the others have time
            self.entered = at;
        }
    }

    /// Why the run is given up, when hosts or ranks have not answered in time.
    pub(super) fn late_start(&self, now: Stamp) -> Option<String> {
        let limit = match self.stage {
            RunStage::Prepare => START_DEADLINE_US,
            RunStage::Start => i64::from(kinds::of(&self.spec).start_deadline_s()) * 1_000_000,
            _ => return None,
        };
        if self.attached || now.micros_since(self.entered) <= limit {
            return None;
        }
        let (who, stage, seconds) = (self.waiting_for(), self.stage.name(), limit / 1_000_000);
        Some(format!("no answer from {who} to {stage} within {seconds} s"))
    }

    fn ask(&self, host: &HostId, actions: &mut Vec<Action>) {
        if let Some(plan) = self.plans.iter().find(|plan| plan.host == *host) {
            actions.push(Action::Send(host.clone(), ToAgent::Prepare(Box::new(plan.clone()))));
        }
    }

    /// A host can start its ranks.
    pub(super) fn prepared(
        &mut self,
        host: &HostId,
        (ports, image): (&[u16], Option<&ImageId>),
        at: Stamp,
        actions: &mut Vec<Action>,
    ) {
        match self.stage {
            RunStage::Prepare if self.hosts_due.remove(host) => {
                self.ports.insert(host.clone(), ports.to_vec());
                self.images.extend(image.map(|image| (host.clone(), image.clone())));
                if let Some(outcome) = self.images_differ() {
                    self.give_up_as(outcome, at, actions);
                    return;
                }
                let leased = self.plans.iter().any(|plan| plan.host == *host && !plan.leases.held.is_empty());
                let goes_on = leased && self.lacking.is_none();
                if let Some(next) = goes_on.then(|| self.unasked.pop_front()).flatten() {
                    self.ask(&next, actions);
                    self.hosts_due.insert(next);
                    // each has its own time to answer
                    self.entered = at;
                }
                if self.lacking.is_some() {
                    self.look_at_lacking(at, actions);
                } else if self.hosts_due.is_empty() {
                    self.commit(at, actions);
                }
            }
            // the port of the rendezvous stays: others have been told of it
            RunStage::Start if self.is_asked_again(host) => self.order(host, actions),
            _ => {}
        }
    }

    /// Ranks of different images would be different programs: that is refused.
    fn images_differ(&self) -> Option<RunOutcome> {
        let (first, image) = self.images.first_key_value()?;
        let (other, theirs) = self.images.iter().find(|(_, theirs)| !theirs.is(image))?;
        let name = self.spec.options.container.as_ref().map_or("", |container| container.image.as_str());
        let summary = format!(
            "image {name} is {} on {first} and {} on {other}: bring the same one to all, by `hvtui image push {name}` from a machine that has the right one",
            image.short(),
            theirs.short()
        );
        Some(RunOutcome::refused(RefusalClass::Command, summary))
    }

    fn commit(&mut self, at: Stamp, actions: &mut Vec<Action>) {
        self.committed = true;
        self.hosts_due = self.spec.hosts().into_iter().collect();
        self.enter(RunStage::Start, at, actions);
        let hosts: Vec<HostId> = self.plans.iter().map(|plan| plan.host.clone()).collect();
        for host in hosts {
            self.order(&host, actions);
        }
    }

    /// Tells a host to start its ranks, and follows them.
    fn order(&self, host: &HostId, actions: &mut Vec<Action>) {
        let Some(plan) = self.plans.iter().find(|plan| plan.host == *host) else { return };
        let start = Start { spec: &self.spec, rendezvous: &self.rendezvous, ports: &self.ports };
        let mut env = start.common();
        env.extend(kinds::of(&self.spec).at_start(&start));
        let mut secrets: BTreeMap<String, String> = self.values.for_host(plan).collect();
        secrets.insert("HVTUI_SECRET".to_owned(), self.secret_of_attempt());
        let ranks = start.ranks(host);
        let commit = Commit {
            run: self.spec.id.clone(),
            host: host.clone(),
            late: Late { env, ranks, secrets },
            attempt: plan.attempt,
        };
        actions.push(Action::Send(host.clone(), ToAgent::Commit(commit)));
        self.follow(host, actions);
    }

    /// Asks for what a host's ranks print and how they end, in this attempt and later ones.
    fn follow(&self, host: &HostId, actions: &mut Vec<Action>) {
        let attempt = self.attempt.filter(|_| self.spec.options.max_restarts > 0);
        let follow = Follow { attempt, ..plan::follow(&self.spec, host) };
        actions.push(Action::Send(host.clone(), ToAgent::Follow(follow)));
    }

    /// A host has started its ranks.
    pub(super) fn started(&mut self, host: &HostId, actions: &mut Vec<Action>) {
        let again = self.is_asked_again(host);
        self.hosts_due.remove(host);
        // The order had reached it over the link that was lost. What followed the run since may have come too early.
        if again && !self.is_heard(host) {
            self.follow(host, actions);
        }
    }

    /// A host is there again. The order to start may be lost with the link, or the answer: the host knows by the
    /// run's id. Its new agent holds nothing of what the old one had made ready.
    pub(super) fn link_up(&mut self, host: &HostId, actions: &mut Vec<Action>) {
        let was_down = self.links_down.remove(host).is_some();
        if was_down && self.may_be_asked_again(host) {
            self.asked_again.insert(host.clone());
            self.ask(host, actions);
        }
    }

    /// Whether the order to start may not have come there, and there is time to say it again.
    fn may_be_asked_again(&self, host: &HostId) -> bool {
        self.stage == RunStage::Start && !self.attached && self.hosts_due.contains(host)
    }

    fn is_asked_again(&self, host: &HostId) -> bool {
        self.may_be_asked_again(host) && self.asked_again.contains(host)
    }

    /// All hosts start or none: one that went away before it said that it has started may never have heard of it.
    pub(super) fn lost_while_starting(&self, now: Stamp) -> Option<String> {
        let due = self.hosts_due.iter().filter(|_| self.stage == RunStage::Start);
        due.filter_map(|host| Some((host, self.links_down.get(host)?)))
            .find(|(_, (since, _))| now.micros_since(*since) > LOST_US)
            .map(|(host, (_, reason))| format!("{host} was lost while the run was being started: {reason}"))
    }

    /// Whether an answer says only what is known: the order to start has not come there yet. It is said again, until the
    /// host has been away for too long or the time to start is over.
    pub(super) fn is_no_end(&self, host: &HostId, refused: &Refused) -> bool {
        refused.class == RefusalClass::Unknown && self.is_asked_again(host)
    }

    /// Whether a message that could not be sent is sent again with the next link.
    pub(super) fn goes_with_next_link(&self, host: &HostId) -> bool {
        self.may_be_asked_again(host) && self.links_down.contains_key(host)
    }

    /// Whether a rank of a host was heard of.
    pub(super) fn is_heard(&self, host: &HostId) -> bool {
        let mut here = self.spec.placements.iter().filter(|placement| placement.host == *host);
        here.any(|placement| self.progress.contains_key(&placement.rank))
    }

    /// Before the order to start: what every host has made ready is given back.
    pub(super) fn abort(&self, actions: &mut Vec<Action>) {
        // those that were never asked hold nothing
        for host in self.spec.hosts().into_iter().filter(|host| !self.unasked.contains(host)) {
            let run = self.spec.id.clone();
            actions.push(Action::Send(host.clone(), ToAgent::Abort(RunRef { run, host })));
        }
    }

    /// A host that was asked again must not hold GPUs for an order that does not come any more.
    pub(super) fn abort_again(&mut self, actions: &mut Vec<Action>) {
        for host in std::mem::take(&mut self.asked_again) {
            let about = RunRef { run: self.spec.id.clone(), host: host.clone() };
            actions.push(Action::Send(host, ToAgent::Abort(about)));
        }
    }

    /// Takes in what became of a link.
    pub(super) fn link(&mut self, host: &HostId, state: &LinkState, at: Stamp, actions: &mut Vec<Action>) {
        match state {
            LinkState::Up => self.link_up(host, actions),
            LinkState::Down { reason, .. }
            | LinkState::Limited { reason }
            | LinkState::Refused { reason, .. } => {
                let since = self.links_down.get(host).map_or(at, |(since, _)| *since);
                self.links_down.insert(host.clone(), (since, reason.clone()));
                let may_come_back = self.is_syncing() && matches!(state, LinkState::Down { .. });
                if !self.committed && !may_come_back {
                    let summary = format!("{host} was lost before anything started: {reason}");
                    self.give_up(RunEnd::Unreachable, summary, at, actions);
                }
            }
            _ => {}
        }
    }
}
