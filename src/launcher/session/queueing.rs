//! Launches that wait for GPUs: their places in the hosts' queues, and what becomes of them.

use std::collections::BTreeMap;

use super::{Output, Session};
use crate::domain::event::Event;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::RunStage;
use crate::domain::time::Stamp;
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::name;
use crate::launcher::inventory::HostFacts;
use crate::launcher::place_words;
use crate::launcher::random::run_id;
use crate::launcher::readiness::{Gathered, gather};
use crate::launcher::waiting::{PendingLaunch, QueueTicket};
use crate::wire::message::{Queue, ToAgent};

impl Session {
    /// Takes a place in the queue of each host whose GPUs the launch may take.
    pub(super) fn queue(
        &mut self,
        pending: &mut PendingLaunch,
        facts: &[HostFacts],
        wanted: BTreeMap<HostId, Vec<GpuUuid>>,
        at: Stamp,
    ) -> Result<(), LaunchError> {
        pending.begin_to_wait(at);
        let queue_ticket = match &mut pending.queue_ticket {
            Some(queue_ticket) => queue_ticket,
            empty => empty.insert(QueueTicket::new(run_id()?)),
        };
        let name = pending.request.name.clone();
        let name = name.unwrap_or_else(|| name::name_of(&pending.request.command));
        for (host, gpus) in wanted {
            if queue_ticket.asked.get(&host) == Some(&gpus) {
                continue;
            }
            let lease_dir =
                facts.iter().find(|known| known.id == host).and_then(|known| known.lease_dir.clone());
            let ticket = queue_ticket.id.clone();
            let queue = Queue { ticket, name: name.clone(), gpus: gpus.clone(), lease_dir };
            self.cluster.send(&host, ToAgent::Queue(queue));
            queue_ticket.asked.insert(host, gpus);
        }
        Ok(())
    }

    pub(super) fn wait(&mut self, mut pending: PendingLaunch, why: String, at: Stamp) {
        pending.forget_loss();
        let timed_out = pending.timed_out(at);
        if let Some(queue_ticket) = &mut pending.queue_ticket {
            if let Some(why) = queue_ticket.tell(why, at) {
                self.outputs.push_back(Output::Waiting(why));
            }
            if timed_out {
                let held = queue_ticket.why().to_owned();
                return self.waited_too_long(pending, held);
            }
        }
        self.pending.push(pending);
    }

    /// A launch has waited as long as it was to; `held` says for what.
    pub(super) fn waited_too_long(&mut self, pending: PendingLaunch, held: String) {
        let reason = format!("still busy after the time of --wait: {held}");
        self.launch_failed(pending, LaunchError::new(LaunchFault::Busy(held), reason));
    }

    pub(super) fn launch_failed(&mut self, pending: PendingLaunch, error: LaunchError) {
        self.leave_queue(pending.queue_ticket);
        self.outputs.push_back(Output::LaunchFailed(error));
    }

    pub(super) fn leave_queue(&mut self, queue_ticket: Option<QueueTicket>) {
        let Some(QueueTicket { id: ticket, asked, .. }) = queue_ticket else { return };
        for host in asked.into_keys() {
            let leave =
                Queue { ticket: ticket.clone(), name: String::new(), gpus: Vec::new(), lease_dir: None };
            self.cluster.send(&host, ToAgent::Queue(leave));
        }
    }

    /// A launch that may be tried again holds its GPUs by now, or has ended for good.
    pub(super) fn follow_start(&mut self, run: &RunId, event: &Event) {
        let is_decided = match event {
            Event::StageEntered { stage, .. } => *stage > RunStage::Start && *stage < RunStage::Stopping,
            // its GPUs were held: what becomes of it now is no matter of the queue
            Event::RunRestarted { .. } | Event::RunEnded { .. } => true,
            _ => false,
        };
        if is_decided && let Some(pending) = self.starting.remove(run) {
            self.leave_queue(pending.queue_ticket);
        }
    }

    /// A launch that has come too late for its slots is placed again or waits, and this try of it is no run. Whether it does.
    pub(super) fn withdraw(&mut self, run: &RunId, outcome: &RunOutcome, at: Stamp) -> bool {
        let Some(pending) = self.starting.get(run).filter(|_| outcome.end == RunEnd::Busy) else {
            return false;
        };
        let is_placed_again = pending.is_placed_again(at);
        if pending.request.on_busy.wait.is_none() && !is_placed_again {
            let words = self.lost_words(pending);
            self.outputs.extend(words.map(Output::Remark));
            return false;
        }
        let Some(mut pending) = self.starting.remove(run) else { return false };
        self.outputs.push_back(Output::Withdrawn(run.clone()));
        if !is_placed_again {
            self.outputs.push_back(Output::Waiting(outcome.summary.clone()));
        }
        pending.lose(run, &outcome.summary, at);
        self.pending.push(pending);
        true
    }

    /// The launch of a run that lost its slots is not tried again. Whether there was one.
    pub(super) fn stop_lost(&mut self, run: &RunId) -> bool {
        let lost: Vec<PendingLaunch> = self.pending.extract_if(.., |pending| pending.has_lost(run)).collect();
        let is_one = !lost.is_empty();
        for pending in lost {
            self.launch_failed(pending, LaunchError::usage("stopped; nothing was started"));
        }
        is_one
    }

    /// Stops the runs of launches that were called off before that was read which run they had become: those that are not handed
    /// out yet, which are not told of as launched any more, and those that were not read since.
    pub(super) fn stop_unread_tries(&mut self, mut unread: Vec<RunId>) {
        self.outputs.retain(|output| {
            let Output::Launched(run) = output else { return true };
            unread.push(run.clone());
            false
        });
        for run in unread {
            self.stop(&run, false);
        }
    }

    /// Of a launch that is tried no more: how often it came too late, and what is free now.
    fn lost_words(&self, pending: &PendingLaunch) -> Option<String> {
        let lost = pending.lost_words()?;
        Some(match gather(&pending.request, &self.cluster_view()) {
            Gathered::Ready(facts) => format!("{lost}; free now: {}", place_words::inventory(&facts)),
            Gathered::Wait(_) | Gathered::Unsatisfiable(_) => lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::Origin;
    use crate::domain::fixtures::placement;
    use crate::launch::request::{LaunchRequest, Patience, Pick, PlacementSpec, SlotName};

    fn request(place: PlacementSpec) -> LaunchRequest {
        LaunchRequest { place, ..LaunchRequest::of(vec!["true".to_owned()]) }
    }

    /// What a session tells when another launch is faster than the first try of this one, and whether that goes on.
    fn lost(request: LaunchRequest) -> (Vec<Output>, bool) {
        let mut session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let run = RunId::new(1, 1);
        let mut pending = PendingLaunch::new(request);
        pending.try_on(&[placement(0, "a", 0)]);
        session.starting.insert(run.clone(), pending);
        let outcome = RunOutcome::new(RunEnd::Busy, "a: GPU 0 is busy".to_owned());
        session.emit(Stamp(1), Origin::Run(run), Event::RunEnded { outcome });
        assert!(session.starting.is_empty());
        (session.outputs.drain(..).collect(), !session.pending.is_empty())
    }

    #[tokio::test]
    async fn a_try_that_lost_its_slots_is_withdrawn_where_the_launch_goes_on() {
        let withdrawn = Output::Withdrawn(RunId::new(1, 1));
        let counted = request(PlacementSpec::Count(Some(1)));
        assert_eq!(lost(counted), (vec![withdrawn.clone()], true));
        let picked = request(PlacementSpec::Picks(vec![Pick { host: "a".into(), slot: SlotName::Index(0) }]));
        let mut waits = picked.clone();
        waits.on_busy.wait = Some(Patience::Endless);
        let why = Output::Waiting("a: GPU 0 is busy".to_owned());
        assert_eq!(lost(waits), (vec![withdrawn, why], true));
        // one that can go nowhere else is a run that has ended so
        let (told, goes_on) = lost(picked);
        assert!(matches!(told.as_slice(), [Output::Event(_)]) && !goes_on, "{told:?}");
    }

    #[tokio::test]
    async fn a_launch_that_waits_no_longer_is_not_tried_again() {
        let mut session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let run = RunId::new(1, 1);
        let mut waits = request(PlacementSpec::Count(Some(1)));
        waits.on_busy.wait = Some(Patience::Endless);
        let mut pending = PendingLaunch::new(waits);
        pending.try_on(&[placement(0, "a", 0)]);
        session.starting.insert(run.clone(), pending);
        session.forget_launches(Vec::new());
        let outcome = RunOutcome::new(RunEnd::Busy, "a: GPU 0 is busy".to_owned());
        session.emit(Stamp(1), Origin::Run(run), Event::RunEnded { outcome });
        let told: Vec<Output> = session.outputs.drain(..).collect();
        assert!(matches!(told.as_slice(), [Output::Event(_)]) && session.pending.is_empty(), "{told:?}");
    }

    #[tokio::test]
    async fn a_launch_that_is_called_off_before_that_was_read_is_not_told_of_as_launched() {
        let mut session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let said = Output::Remark("x".to_owned());
        session.outputs.extend([Output::Launched(RunId::new(1, 1)), said.clone()]);
        session.forget_launches(Vec::new());
        assert_eq!(session.outputs.drain(..).collect::<Vec<_>>(), [said]);
    }

    #[tokio::test]
    async fn a_launch_that_a_host_keeps_refusing_ends_at_the_deadline_of_its_wait() {
        let mut session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let pick = Pick { host: "a".into(), slot: SlotName::Index(0) };
        let mut request = request(PlacementSpec::Picks(vec![pick]));
        request.on_busy.wait = Some(Patience::Seconds(3));
        let mut pending = PendingLaunch::new(request);
        pending.try_on(&[placement(0, "a", 0)]);
        pending.lose(&RunId::new(1, 1), "a: GPU 0 is busy", Stamp(0));
        session.try_launch(pending, Stamp(3_000_000));
        let told: Vec<Output> = session.outputs.drain(..).collect();
        let [Output::LaunchFailed(error)] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(error.reason, "still busy after the time of --wait: a: GPU 0 is busy");
        assert!(error.busy().is_some() && session.pending.is_empty());
    }

    #[tokio::test]
    async fn a_launch_that_is_stopped_after_it_lost_is_not_tried_again() {
        let mut session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let (run, other) = (RunId::new(1, 1), RunId::new(1, 2));
        let mut pending = PendingLaunch::new(request(PlacementSpec::Count(Some(1))));
        pending.try_on(&[placement(0, "a", 0)]);
        pending.lose(&run, "a: GPU 0 is busy", Stamp(0));
        session.pending.push(pending);
        assert!(!session.stop(&other, false));
        assert!(session.stop(&run, false) && session.pending.is_empty());
        let told: Vec<Output> = session.outputs.drain(..).collect();
        assert!(matches!(told.as_slice(), [Output::LaunchFailed(_)]), "{told:?}");
    }

    #[tokio::test]
    async fn a_launch_that_lost_each_of_its_tries_says_so_before_it_ends() {
        let mut session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let run = RunId::new(1, 1);
        let mut pending = PendingLaunch::new(request(PlacementSpec::Count(Some(1))));
        while pending.is_placed_again(Stamp(1)) {
            pending.try_on(&[placement(0, "a", 0)]);
        }
        session.starting.insert(run.clone(), pending);
        let outcome = RunOutcome::new(RunEnd::Busy, "a: GPU 0 is busy".to_owned());
        session.emit(Stamp(1), Origin::Run(run), Event::RunEnded { outcome });
        let told: Vec<Output> = session.outputs.drain(..).collect();
        let [Output::Remark(words), Output::Event(_)] = told.as_slice() else { panic!("{told:?}") };
        assert!(words.starts_with("other launches were faster 8 times"), "{words}");
    }
}
