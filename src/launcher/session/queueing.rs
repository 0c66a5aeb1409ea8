//! Launches that wait for GPUs: their places in the hosts' queues, and what becomes of them.

use std::collections::BTreeMap;

use super::{Output, Session};
use crate::domain::event::Event;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::outcome::RunEnd;
use crate::domain::run::RunStage;
use crate::domain::time::Stamp;
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::name;
use crate::launcher::inventory::HostFacts;
use crate::launcher::random::run_id;
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
        let queue_ticket = match &mut pending.queue_ticket {
            Some(queue_ticket) => queue_ticket,
            empty => empty.insert(QueueTicket::new(run_id()?, at)),
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
        let patience = pending.request.on_busy.wait;
        if let Some(queue_ticket) = &mut pending.queue_ticket {
            if let Some(why) = queue_ticket.tell(why, at) {
                self.outputs.push_back(Output::Waiting(why));
            }
            if patience.is_some_and(|patience| queue_ticket.timed_out(patience, at)) {
                let held = queue_ticket.why().to_owned();
                let reason = format!("still busy after the time of --wait: {held}");
                return self.launch_failed(pending, LaunchError::new(LaunchFault::Busy(held), reason));
            }
        }
        self.pending.push(pending);
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

    /// A launch that has waited holds its GPUs, or has come too late after all and waits again.
    pub(super) fn follow_start(&mut self, run: &RunId, event: &Event) {
        let again = match event {
            Event::StageEntered { stage, .. } if *stage > RunStage::Start && *stage < RunStage::Stopping => {
                None
            }
            // its GPUs were held: what becomes of it now is no matter of the queue
            Event::RunRestarted { .. } => None,
            Event::RunEnded { outcome } => Some(outcome).filter(|outcome| outcome.end == RunEnd::Busy),
            _ => return,
        };
        let Some(pending) = self.starting.remove(run) else { return };
        match again {
            Some(outcome) => {
                self.outputs.push_back(Output::Waiting(outcome.summary.clone()));
                self.pending.push(pending);
            }
            None => self.leave_queue(pending.queue_ticket),
        }
    }
}
