//! Launches that wait until their GPUs are free: whom they wait for, and whose turn it is. Pure.

use std::collections::BTreeMap;

use super::cpu_slots::CpuSlots;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::lease::Ticket;
use crate::domain::run::HostRun;
use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::launch::request::{LaunchRequest, Patience};

/// How long the words that tell why a launch waits stand before others are told, microseconds.
const TELL_AFTER_US: i64 = 5_000_000;

/// A launch that has not become a run.
#[derive(Debug)]
pub(super) struct PendingLaunch {
    pub(super) request: LaunchRequest,
    /// Its place in the queue, once it has found its GPUs held.
    pub(super) queue_ticket: Option<QueueTicket>,
    /// The hosts at which the doctor has looked for it.
    pub(super) looked: Vec<HostId>,
    /// Which CPU slots it had better leave to others.
    pub(super) cpu_slots: CpuSlots,
}

impl PendingLaunch {
    pub(super) fn new(request: LaunchRequest) -> Self {
        Self { request, queue_ticket: None, looked: Vec::new(), cpu_slots: CpuSlots::default() }
    }
}

/// A place in the hosts' queues.
#[derive(Debug)]
pub(super) struct QueueTicket {
    /// Smaller ones come first.
    pub(super) id: RunId,
    since: Stamp,
    /// Why it waits, and which of that was told when.
    why: String,
    told: Option<(String, Stamp)>,
    /// Where it queues, and for which GPUs.
    pub(super) asked: BTreeMap<HostId, Vec<GpuUuid>>,
}

impl QueueTicket {
    pub(super) fn new(id: RunId, since: Stamp) -> Self {
        Self { id, since, why: String::new(), told: None, asked: BTreeMap::new() }
    }

    /// The words to tell, if they are others than the last ones and those were not told just now: what a filter lets
    /// through may be another number each second.
    pub(super) fn tell(&mut self, why: String, now: Stamp) -> Option<String> {
        self.why = why;
        let is_due = self
            .told
            .as_ref()
            .is_none_or(|(told, at)| *told != self.why && now.micros_since(*at) >= TELL_AFTER_US);
        is_due.then(|| {
            self.told = Some((self.why.clone(), now));
            self.why.clone()
        })
    }

    /// Why it waits.
    pub(super) fn why(&self) -> &str {
        &self.why
    }

    /// Whether it has waited as long as it was to.
    pub(super) fn timed_out(&self, patience: Patience, now: Stamp) -> bool {
        match patience {
            Patience::Endless => false,
            Patience::Seconds(seconds) => now.micros_since(self.since) >= i64::from(seconds) * 1_000_000,
        }
    }
}

/// Who has waited longer for a GPU that these plans take. `own` is this launch's ticket, if it has one: who has
/// none came last.
pub(super) fn ahead<'w>(plans: &[HostRun], own: Option<&RunId>, world: &'w World) -> Option<&'w Ticket> {
    plans.iter().find_map(|plan| {
        let queue = &world.hosts.get(&plan.host)?.leases.as_ref()?.queue;
        let takes = |ticket: &&Ticket| plan.leases.held.keys().any(|gpu| ticket.gpus.contains(gpu));
        queue.iter().filter(|ticket| own.is_none_or(|own| ticket.id < *own)).find(takes)
    })
}

/// For whom a launch waits that could start but for this ticket.
pub(super) fn behind(ticket: &Ticket) -> String {
    format!("{} was first in the queue ({})", ticket.user, ticket.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::host_run;
    use crate::domain::ids::Rank;
    use crate::domain::lease::{LeasePlan, Leases};

    fn world(queue: Vec<Ticket>) -> World {
        let mut world = World::default();
        let host = world.hosts.entry(HostId::from("a")).or_default();
        host.leases = Some(Leases { queue, ..Leases::default() });
        world
    }

    fn ticket(at: u64, gpus: &[&str]) -> Ticket {
        let gpus = gpus.iter().map(|gpu| GpuUuid::from(*gpu)).collect();
        Ticket { id: RunId::new(at, 0), user: "li".to_owned(), own: false, name: "job".to_owned(), gpus }
    }

    #[test]
    fn first_come_is_first_served_where_they_want_the_same() {
        let plan = HostRun {
            run: RunId::new(9, 9),
            name: String::new(),
            grace_ms: 0,
            leases: LeasePlan {
                held: BTreeMap::from([(GpuUuid::from("G1"), Rank(0))]),
                ..LeasePlan::default()
            },
            ..host_run(Vec::new())
        };
        let world = world(vec![ticket(3, &["G0"]), ticket(5, &["G0", "G1"]), ticket(7, &["G1"])]);
        let plans = [plan];
        let first = |own: Option<u64>| {
            let own = own.map(|at| RunId::new(at, 0));
            ahead(&plans, own.as_ref(), &world).map(|ticket| ticket.id.clone())
        };
        assert_eq!(first(Some(4)), None, "who waits for another GPU is not in the way");
        assert_eq!(first(Some(5)), None);
        assert_eq!(first(Some(7)), Some(RunId::new(5, 0)));
        assert_eq!(first(None), Some(RunId::new(5, 0)), "a newcomer comes last");
    }

    #[test]
    fn patience_ends_and_words_are_told_once() {
        let mut queue_ticket = QueueTicket::new(RunId::new(1, 1), Stamp(0));
        assert!(!queue_ticket.timed_out(Patience::Endless, Stamp(i64::MAX)));
        assert!(!queue_ticket.timed_out(Patience::Seconds(2), Stamp(1_999_999)));
        assert!(queue_ticket.timed_out(Patience::Seconds(2), Stamp(2_000_000)));
        let mut tell = |why: &str, second: i64| queue_ticket.tell(why.to_owned(), Stamp(second * 1_000_000));
        assert_eq!(tell("x", 0).as_deref(), Some("x"));
        assert_eq!(tell("x", 9), None);
        assert_eq!(tell("y", 10).as_deref(), Some("y"));
        assert_eq!(tell("z", 11), None, "another number each second is not told each second");
        assert_eq!(tell("z", 15).as_deref(), Some("z"));
        assert_eq!(queue_ticket.why(), "z");
    }
}
