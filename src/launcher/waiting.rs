//! Launches that wait until their GPUs are free: whom they wait for, and whose turn it is; and those that are placed again because
//! another launch was faster. Pure.

use std::collections::BTreeMap;

use super::cpu_slots::CpuSlots;
use super::place;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::lease::Ticket;
use crate::domain::run::{HostRun, Placement};
use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::launch::request::{LaunchRequest, Patience};

/// How long the words that tell why a launch waits stand before others are told, microseconds.
const TELL_AFTER_US: i64 = 5_000_000;

/// How often a launch that does not wait is tried on slots that are chosen for it.
const MOST_TRIES: u32 = 3;

/// How long a launch whose slots were taken first waits for its hosts to tell of that, microseconds: until then the same slots
/// look free.
const FRESH_US: i64 = 3_000_000;

/// So many places are named.
const NAMED: usize = 4;

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
    /// How often it was tried, and where last.
    tries: u32,
    tried: Vec<Placement>,
    /// That another launch has slots of the last try.
    lost: Option<Lost>,
}

/// A try that came too late.
#[derive(Debug)]
struct Lost {
    /// Its run, which is none.
    run: RunId,
    /// The refusal, and when it came.
    why: String,
    at: Stamp,
}

impl Lost {
    fn is_fresh(&self, now: Stamp) -> bool {
        now.micros_since(self.at) < FRESH_US
    }
}

impl PendingLaunch {
    pub(super) fn new(request: LaunchRequest) -> Self {
        Self {
            request,
            queue_ticket: None,
            looked: Vec::new(),
            cpu_slots: CpuSlots::default(),
            tries: 0,
            tried: Vec::new(),
            lost: None,
        }
    }

    /// It is tried on these places. What there is to say of that where others than the last ones are taken because another launch
    /// was faster there.
    pub(super) fn try_on(&mut self, places: &[Placement]) -> Option<String> {
        self.tries += 1;
        let before = std::mem::replace(&mut self.tried, places.to_vec());
        let Lost { why, .. } = self.lost.take().filter(|_| before != places)?;
        Some(format!("{why}: taken in the meantime, placed again on {}", named(places)))
    }

    /// Whether it is placed again where another launch is faster than its last try.
    pub(super) fn is_placed_again(&self) -> bool {
        self.tries < MOST_TRIES && place::chooses_slots(&self.request)
    }

    /// Another launch was faster than its last try, which was to be this run, as a host has said at `now`.
    pub(super) fn lose(&mut self, run: &RunId, why: &str, now: Stamp) {
        self.lost = Some(Lost { run: run.clone(), why: why.to_owned(), at: now });
        // it seemed to have started: why it waits is said anew
        if let Some(queue_ticket) = &mut self.queue_ticket {
            queue_ticket.told = None;
        }
    }

    /// It waits for its turn: what took its slots first is no news when that comes.
    pub(super) fn forget_loss(&mut self) {
        self.lost = None;
    }

    /// Whether a try on these places comes too early: they were refused a moment ago, and their hosts have not told yet who has them.
    pub(super) fn is_too_early(&self, places: &[Placement], now: Stamp) -> bool {
        self.lost.as_ref().is_some_and(|lost| lost.is_fresh(now)) && self.tried == places
    }

    /// Whether hosts still tell that its last try, which was refused elsewhere a moment ago, holds GPUs there: they are about to be
    /// given back.
    pub(super) fn still_holds(&self, world: &World, now: Stamp) -> bool {
        self.lost.as_ref().filter(|lost| lost.is_fresh(now)).is_some_and(|lost| {
            let mut leases = world.hosts.values().filter_map(|host| host.leases.as_ref());
            leases.any(|leases| leases.held.iter().any(|lease| lease.run.as_ref() == Some(&lost.run)))
        })
    }
}

/// `a:0, a:1, b:3 and 5 more`.
fn named(places: &[Placement]) -> String {
    let words: Vec<String> = places.iter().take(NAMED).map(ToString::to_string).collect();
    match places.len().saturating_sub(NAMED) {
        0 => words.join(", "),
        more => format!("{} and {more} more", words.join(", ")),
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
    use crate::domain::fixtures::{host_run, placement};
    use crate::domain::ids::Rank;
    use crate::domain::lease::{Lease, LeasePlan, Leases};
    use crate::launch::request::{Pick, PlacementSpec, SlotName};
    use crate::launcher::fixtures::request;

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

    fn launch(place: PlacementSpec) -> PendingLaunch {
        PendingLaunch::new(request("true", place))
    }

    #[test]
    fn a_launch_that_lost_is_placed_again_three_times_at_most_and_never_off_the_slots_it_names() {
        let mut counted = launch(PlacementSpec::Count(Some(1)));
        for (slot, is_placed_again) in [(0, true), (1, true), (2, false)] {
            counted.try_on(&[placement(0, "a", slot)]);
            assert_eq!(counted.is_placed_again(), is_placed_again, "try {slot}");
        }
        let slot = SlotName::Index(0);
        let mut picked = launch(PlacementSpec::Picks(vec![Pick { host: "a".into(), slot }]));
        picked.try_on(&[placement(0, "a", 0)]);
        assert!(!picked.is_placed_again(), "the user has named it");
        let mut masked = launch(PlacementSpec::Count(Some(1)));
        masked.request.gpu_mask = Some("2".to_owned());
        assert!(!masked.is_placed_again(), "the line names it");
    }

    #[test]
    fn the_slots_that_were_refused_are_left_alone_until_their_host_can_have_told_who_has_them() {
        let (old, new) = ([placement(0, "a", 0)], [placement(0, "a", 1)]);
        let run = RunId::new(1, 1);
        let mut counted = launch(PlacementSpec::Count(Some(1)));
        assert_eq!(counted.try_on(&old), None);
        assert!(!counted.is_too_early(&old, Stamp(0)), "nothing was refused");
        counted.lose(&run, "a: GPU 0 is busy: leased by li", Stamp(0));
        assert!(counted.is_too_early(&old, Stamp(FRESH_US - 1)));
        assert!(!counted.is_too_early(&old, Stamp(FRESH_US)));
        assert!(!counted.is_too_early(&new, Stamp(0)));
        let told = counted.try_on(&new);
        let words = "a: GPU 0 is busy: leased by li: taken in the meantime, placed again on a:1";
        assert_eq!(told.as_deref(), Some(words));
        assert!(!counted.is_too_early(&new, Stamp(0)), "this try was not refused");
        // the same slots once more, and those of a launch that has waited in between
        counted.lose(&run, "a: GPU 1 is busy: leased by li", Stamp(9));
        assert_eq!(counted.try_on(&new), None);
        counted.lose(&run, "a: GPU 1 is busy: leased by li", Stamp(9));
        counted.forget_loss();
        assert_eq!(counted.try_on(&old), None);
        let many: Vec<Placement> = (0..6).map(|slot| placement(slot, "a", slot)).collect();
        assert_eq!(named(&many), "a:0, a:1, a:2, a:3 and 2 more");
        assert_eq!(named(&many[..4]), "a:0, a:1, a:2, a:3");
    }

    #[test]
    fn what_a_lost_try_holds_on_other_hosts_is_given_back_before_the_next_one() {
        let holds = |run: &RunId| {
            let mut world = world(Vec::new());
            let host = world.hosts.entry(HostId::from("b")).or_default();
            let held = vec![Lease { run: Some(run.clone()), ..Lease::unknown("G0") }];
            host.leases = Some(Leases { held, ..Leases::default() });
            world
        };
        let (run, other) = (RunId::new(1, 1), RunId::new(2, 2));
        let mut counted = launch(PlacementSpec::Count(Some(2)));
        counted.try_on(&[placement(0, "a", 0), placement(1, "b", 0)]);
        assert!(!counted.still_holds(&holds(&run), Stamp(0)), "nothing was refused");
        let mut ticket = QueueTicket::new(RunId::new(1, 0), Stamp(0));
        assert!(ticket.tell("x".to_owned(), Stamp(0)).is_some());
        counted.queue_ticket = Some(ticket);
        counted.lose(&run, "a: GPU 0 is busy", Stamp(0));
        let told = counted.queue_ticket.as_mut().and_then(|ticket| ticket.tell("x".to_owned(), Stamp(0)));
        assert_eq!(told.as_deref(), Some("x"), "it seemed to have started");
        assert!(counted.still_holds(&holds(&run), Stamp(FRESH_US - 1)));
        assert!(!counted.still_holds(&holds(&run), Stamp(FRESH_US)), "not without end");
        assert!(!counted.still_holds(&holds(&other), Stamp(0)));
        assert!(!counted.still_holds(&world(Vec::new()), Stamp(0)));
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
