//! Launches that wait until their GPUs are free: whom they wait for, and whose turn it is; and those that are placed again because
//! another launch was faster. Pure.

use std::collections::BTreeMap;

use super::cpu_slots::CpuSlots;
use super::inventory::HostFacts;
use super::place;
use super::spreading::spread;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::lease::Ticket;
use crate::domain::run::{HostRun, Placement, Slot};
use crate::domain::time::Stamp;
use crate::domain::units::{counted, ranges_joined};
use crate::domain::world::World;
use crate::launch::error::LaunchError;
use crate::launch::request::{LaunchRequest, Patience};

/// How long the words that tell why a launch waits stand before others are told, microseconds.
const TELL_AFTER_US: i64 = 5_000_000;

/// How often a launch that does not wait is tried on slots that are chosen for it.
const MOST_TRIES: u32 = 8;

/// For how long it is, once another launch was faster, microseconds.
const RETRY_US: i64 = 10_000_000;

/// How long a launch whose slots were taken first waits for its hosts to tell of that, microseconds: until then the same slots
/// look free.
const FRESH_US: i64 = 3_000_000;

/// So many hosts are named.
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
    /// When that was so first, since it last waited.
    first_lost: Option<Stamp>,
    /// The places of tries that were refused, and when: of those of a moment ago it is not known yet who has them.
    refused: Vec<(Vec<Placement>, Stamp)>,
    /// Since when it waits for its GPUs: since it found them held, or since a host refused it first.
    waits_since: Option<Stamp>,
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

fn is_fresh(at: Stamp, now: Stamp) -> bool {
    now.micros_since(at) < FRESH_US
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
            first_lost: None,
            refused: Vec::new(),
            waits_since: None,
        }
    }

    /// It waits for its GPUs from `now` on, unless it does already.
    pub(super) fn begin_to_wait(&mut self, now: Stamp) {
        self.waits_since.get_or_insert(now);
    }

    /// Whether it has waited as long as it was to.
    pub(super) fn timed_out(&self, now: Stamp) -> bool {
        match (self.request.on_busy.wait, self.waits_since) {
            (Some(Patience::Seconds(seconds)), Some(since)) => {
                now.micros_since(since) >= i64::from(seconds) * 1_000_000
            }
            _ => false,
        }
    }

    /// The refusal of its last try, where it has waited as long as it was to and one that does not wait is not tried again either.
    pub(super) fn refused_too_long(&self, now: Stamp) -> Option<&str> {
        let is_over = self.timed_out(now) && !self.is_placed_again(now);
        self.lost.as_ref().filter(|_| is_over).map(|lost| lost.why.as_str())
    }

    /// Whether its last try was to be this run, which another launch was faster than.
    pub(super) fn has_lost(&self, run: &RunId) -> bool {
        self.lost.as_ref().is_some_and(|lost| lost.run == *run)
    }

    /// It is tried on these places. What there is to say of that where others than the last ones are taken because another launch
    /// was faster there.
    pub(super) fn try_on(&mut self, places: &[Placement]) -> Option<String> {
        self.tries += 1;
        let before = std::mem::replace(&mut self.tried, places.to_vec());
        let Lost { why, .. } = self.lost.take().filter(|_| before != places)?;
        Some(format!("placed again on {}: {}", named(places), taken(&why)))
    }

    /// Whether it is placed again where another launch is faster than its last try, as is told at `now`.
    pub(super) fn is_placed_again(&self, now: Stamp) -> bool {
        let is_in_time = self.first_lost.is_none_or(|first| now.micros_since(first) < RETRY_US);
        self.tries < MOST_TRIES && is_in_time && place::chooses_slots(&self.request)
    }

    /// How often other launches were faster; `None` of one that names its slots.
    pub(super) fn lost_words(&self) -> Option<String> {
        place::chooses_slots(&self.request).then(|| match self.tries {
            0 | 1 => "another launch was faster".to_owned(),
            times => format!("other launches were faster {times} times"),
        })
    }

    /// The error of a launch that finds no slots, which tells of the tries that came too late.
    pub(super) fn given_up(&self, error: LaunchError) -> LaunchError {
        match self.lost_words().filter(|_| self.lost.is_some() && error.busy().is_some()) {
            Some(words) => LaunchError { reason: format!("{words}; {}", error.reason), ..error },
            None => error,
        }
    }

    /// The facts on which it is planned as `run`, where its last try came too late and not all of them are: see [`spread`].
    pub(super) fn spread(&self, facts: &[HostFacts], run: &RunId, now: Stamp) -> Option<Vec<HostFacts>> {
        self.lost.as_ref()?;
        let fresh = self.refused.iter().filter(|(_, at)| is_fresh(*at, now));
        let refused: Vec<&Placement> = fresh.flat_map(|(places, _)| places).collect();
        spread(&self.request, facts, &refused, run)
    }

    /// Another launch was faster than its last try, which was to be this run, as a host has said at `now`.
    pub(super) fn lose(&mut self, run: &RunId, why: &str, now: Stamp) {
        self.lost = Some(Lost { run: run.clone(), why: why.to_owned(), at: now });
        self.first_lost.get_or_insert(now);
        self.begin_to_wait(now);
        self.refused.retain(|(_, at)| is_fresh(*at, now));
        self.refused.push((self.tried.clone(), now));
        // it seemed to have started: why it waits is said anew
        if let Some(queue_ticket) = &mut self.queue_ticket {
            queue_ticket.told = None;
        }
    }

    /// It waits for its turn: what took its slots first is no news when that comes.
    pub(super) fn forget_loss(&mut self) {
        (self.lost, self.first_lost) = (None, None);
        self.refused.clear();
    }

    /// Whether a try on these places comes too early: they were refused a moment ago, and their hosts have not told yet who has them.
    pub(super) fn is_too_early(&self, places: &[Placement], now: Stamp) -> bool {
        let mut refused = self.refused.iter().filter(|(_, at)| is_fresh(*at, now));
        self.lost.is_some() && refused.any(|(refused, _)| refused == places)
    }

    /// Whether hosts still tell that its last try, which was refused elsewhere a moment ago, holds GPUs there: they are about to be
    /// given back.
    pub(super) fn still_holds(&self, world: &World, now: Stamp) -> bool {
        self.lost.as_ref().filter(|lost| is_fresh(lost.at, now)).is_some_and(|lost| {
            let mut leases = world.hosts.values().filter_map(|host| host.leases.as_ref());
            leases.any(|leases| leases.held.iter().any(|lease| lease.run.as_ref() == Some(&lost.run)))
        })
    }
}

/// `a:0-3, b:1 and 5 hosts more`.
fn named(places: &[Placement]) -> String {
    let hosts: Vec<&[Placement]> = places.chunk_by(|a, b| a.host == b.host).collect();
    let words = |places: &&[Placement]| {
        let mut slots: Vec<u32> = places.iter().flat_map(Placement::slots).map(Slot::index).collect();
        slots.sort_unstable();
        let host = places.first().map_or("", |place| place.host.as_str());
        format!("{host}:{}", ranges_joined(slots.iter().copied(), ","))
    };
    let words: Vec<String> = hosts.iter().take(NAMED).map(words).collect();
    match hosts.len().saturating_sub(NAMED) {
        0 => words.join(", "),
        more => format!("{} and {} more", words.join(", "), counted(more, "host")),
    }
}

/// Who was faster, by the refusal of a host: `a:0-3 were taken by li for run 7QK2 (mnist)`; the refusal where that names others
/// than leases.
fn taken(why: &str) -> String {
    taken_by(why).unwrap_or_else(|| why.to_owned())
}

fn taken_by(why: &str) -> Option<String> {
    let (place, held) = why.split_once(": ")?;
    let host = place.split(':').next()?;
    let mut groups: Vec<(&str, Vec<u32>)> = Vec::new();
    for one in held.split("; ") {
        let (gpu, holder) = one.strip_prefix("GPU ")?.split_once(" is busy: leased by ")?;
        let gpu = gpu.parse().ok()?;
        match groups.iter_mut().find(|(known, _)| *known == holder) {
            Some((_, gpus)) => gpus.push(gpu),
            None => groups.push((holder, vec![gpu])),
        }
    }
    let words = |(holder, gpus): &mut (&str, Vec<u32>)| {
        gpus.sort_unstable();
        let are = if gpus.len() == 1 { "was" } else { "were" };
        format!("{host}:{} {are} taken by {holder}", ranges_joined(gpus.iter().copied(), ","))
    };
    Some(groups.iter_mut().map(words).collect::<Vec<_>>().join("; "))
}

/// A place in the hosts' queues.
#[derive(Debug)]
pub(super) struct QueueTicket {
    /// Smaller ones come first.
    pub(super) id: RunId,
    /// Why it waits, and which of that was told when.
    why: String,
    told: Option<(String, Stamp)>,
    /// Where it queues, and for which GPUs.
    pub(super) asked: BTreeMap<HostId, Vec<GpuUuid>>,
}

impl QueueTicket {
    pub(super) fn new(id: RunId) -> Self {
        Self { id, why: String::new(), told: None, asked: BTreeMap::new() }
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
    use crate::launch::error::LaunchFault;
    use crate::launch::request::{Pick, PlacementSpec, SlotName};
    use crate::launcher::fixtures::{gpu_host, request};

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
    fn a_launch_that_lost_is_placed_again_for_a_while_and_never_off_the_slots_it_names() {
        let mut counted = launch(PlacementSpec::Count(Some(1)));
        for slot in 0..MOST_TRIES {
            counted.try_on(&[placement(0, "a", slot)]);
            assert_eq!(counted.is_placed_again(Stamp(0)), slot + 1 < MOST_TRIES, "try {slot}");
        }
        let mut slow = launch(PlacementSpec::Count(Some(1)));
        slow.try_on(&[placement(0, "a", 0)]);
        assert!(slow.is_placed_again(Stamp(i64::MAX)), "no try was refused before");
        slow.lose(&RunId::new(1, 1), "a: GPU 0 is busy", Stamp(5));
        slow.lose(&RunId::new(1, 2), "a: GPU 0 is busy", Stamp(9));
        assert!(slow.is_placed_again(Stamp(4 + RETRY_US)));
        assert!(!slow.is_placed_again(Stamp(5 + RETRY_US)));
        slow.forget_loss();
        assert!(slow.is_placed_again(Stamp(5 + RETRY_US)), "it has waited for its turn since");
        let pick = Pick { host: "a".into(), slot: SlotName::Index(0) };
        let mut picked = launch(PlacementSpec::Picks(vec![pick]));
        picked.try_on(&[placement(0, "a", 0)]);
        assert!(!picked.is_placed_again(Stamp(0)), "the user has named it");
        assert_eq!(picked.lost_words(), None);
        let mut masked = launch(PlacementSpec::Count(Some(1)));
        masked.request.gpu_mask = Some("2".to_owned());
        assert!(!masked.is_placed_again(Stamp(0)), "the line names it");
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
        assert_eq!(told.as_deref(), Some("placed again on a:1: a:0 was taken by li"));
        assert!(!counted.is_too_early(&new, Stamp(0)), "this try was not refused");
        // the same slots once more, and those of a launch that has waited in between
        counted.lose(&run, "a: GPU 1 is busy: leased by li", Stamp(9));
        assert_eq!(counted.try_on(&new), None);
        counted.lose(&run, "a: GPU 1 is busy: leased by li", Stamp(9));
        counted.forget_loss();
        assert_eq!(counted.try_on(&old), None);
    }

    #[test]
    fn a_try_that_was_refused_before_the_last_one_is_not_repeated_at_once() {
        let (first, second) = ([placement(0, "a", 0)], [placement(0, "a", 1)]);
        let mut counted = launch(PlacementSpec::Count(Some(1)));
        counted.try_on(&first);
        counted.lose(&RunId::new(1, 1), "a: GPU 0 is busy: leased by li", Stamp(0));
        counted.try_on(&second);
        counted.lose(&RunId::new(1, 2), "a: GPU 1 is busy: leased by li", Stamp(9));
        assert!(counted.is_too_early(&first, Stamp(10)));
        assert!(counted.is_too_early(&second, Stamp(10)));
        assert!(!counted.is_too_early(&first, Stamp(FRESH_US)));
    }

    #[test]
    fn only_a_launch_that_lost_is_planned_on_other_facts_than_all_and_not_on_what_was_refused() {
        let facts = [gpu_host("a", 2)];
        let gpu = |index: u32| Placement {
            slot: Slot::Gpu { index, uuid: GpuUuid::from(format!("GPU-a-{index}")) },
            ..placement(0, "a", 0)
        };
        let mut counted = launch(PlacementSpec::Count(Some(1)));
        counted.try_on(&[gpu(0)]);
        let run = RunId::new(1, 1);
        assert_eq!(counted.spread(&facts, &run, Stamp(0)), None);
        counted.lose(&run, "a: GPU 0 is busy: leased by li", Stamp(0));
        for lot in 0..20 {
            let left = counted.spread(&facts, &RunId::new(2, lot), Stamp(1)).unwrap();
            assert_eq!(place::place(&counted.request, &left).unwrap(), [gpu(1)], "lot {lot}");
        }
    }

    #[test]
    fn a_launch_that_hosts_keep_refusing_waits_no_longer_than_it_was_to() {
        let run = RunId::new(1, 1);
        let pick = Pick { host: "a".into(), slot: SlotName::Index(0) };
        let mut waits = launch(PlacementSpec::Picks(vec![pick]));
        waits.request.on_busy.wait = Some(Patience::Seconds(2));
        waits.try_on(&[placement(0, "a", 0)]);
        assert_eq!(waits.refused_too_long(Stamp(i64::MAX)), None, "nothing was refused");
        waits.lose(&run, "a: GPU 0 is busy: leased by li", Stamp(0));
        assert!(waits.has_lost(&run) && !waits.has_lost(&RunId::new(1, 2)));
        assert_eq!(waits.refused_too_long(Stamp(1_999_999)), None);
        // the next try is refused too: the time goes on
        waits.try_on(&[placement(0, "a", 0)]);
        assert_eq!(waits.refused_too_long(Stamp(2_000_000)), None, "this try is not refused");
        waits.lose(&run, "a: GPU 0 is busy: leased by wang", Stamp(1_500_000));
        assert_eq!(waits.refused_too_long(Stamp(2_000_000)), Some("a: GPU 0 is busy: leased by wang"));
        waits.request.on_busy.wait = Some(Patience::Endless);
        assert_eq!(waits.refused_too_long(Stamp(i64::MAX)), None);
    }

    #[test]
    fn a_launch_that_waits_shortly_is_tried_as_often_as_one_that_does_not_wait() {
        let run = RunId::new(1, 1);
        let lost = || {
            let mut waits = launch(PlacementSpec::Count(Some(1)));
            waits.request.on_busy.wait = Some(Patience::Seconds(0));
            waits.try_on(&[placement(0, "a", 0)]);
            waits.lose(&run, "a: GPU 0 is busy", Stamp(0));
            waits
        };
        let mut waits = lost();
        assert!(waits.timed_out(Stamp(0)));
        for slot in 1..MOST_TRIES {
            assert_eq!(waits.refused_too_long(Stamp(0)), None, "before try {slot}");
            waits.try_on(&[placement(0, "a", slot)]);
            waits.lose(&run, "a: GPU 1 is busy", Stamp(0));
        }
        assert_eq!(waits.refused_too_long(Stamp(0)), Some("a: GPU 1 is busy"));
        // nor for longer
        assert_eq!(lost().refused_too_long(Stamp(RETRY_US - 1)), None);
        assert_eq!(lost().refused_too_long(Stamp(RETRY_US)), Some("a: GPU 0 is busy"));
    }

    #[test]
    fn who_was_faster_is_told_by_host_and_holder() {
        let li = "leased by li for run 7QK2 (mnist)";
        let why = format!("n1: GPU 0 is busy: {li}; GPU 1 is busy: {li}; GPU 2 is busy: leased by wang");
        assert_eq!(taken(&why), "n1:0-1 were taken by li for run 7QK2 (mnist); n1:2 was taken by wang");
        assert_eq!(taken(&format!("n1:0: GPU 0 is busy: {li}")), "n1:0 was taken by li for run 7QK2 (mnist)");
        for other in ["n1: GPU-77b0 is busy: leased by li", "n1: something else", "busy"] {
            assert_eq!(taken(other), other);
        }
        let on = |host: &'static str| (0..3).map(move |slot| placement(slot, host, slot));
        assert_eq!(named(&on("a").chain(on("b").skip(2)).collect::<Vec<_>>()), "a:0-2, b:2");
        let many: Vec<Placement> = ["a", "b", "c", "d", "e", "f"].into_iter().flat_map(on).collect();
        assert_eq!(named(&many), "a:0-2, b:0-2, c:0-2, d:0-2 and 2 hosts more");
    }

    #[test]
    fn a_launch_that_finds_no_slots_any_more_tells_how_often_it_lost() {
        let busy = || LaunchError::new(LaunchFault::Busy("x".to_owned()), "no slot: wait");
        let mut counted = launch(PlacementSpec::Count(Some(1)));
        assert_eq!(counted.given_up(busy()).reason, "no slot: wait");
        counted.try_on(&[placement(0, "a", 0)]);
        counted.lose(&RunId::new(1, 1), "x", Stamp(0));
        assert_eq!(counted.given_up(busy()).reason, "another launch was faster; no slot: wait");
        counted.try_on(&[placement(0, "a", 1)]);
        counted.lose(&RunId::new(1, 1), "x", Stamp(0));
        let error = counted.given_up(busy());
        assert_eq!(error.reason, "other launches were faster 2 times; no slot: wait");
        assert_eq!(error.busy(), Some("x"));
        assert_eq!(counted.given_up(LaunchError::usage("y")).reason, "y");
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
        let mut ticket = QueueTicket::new(RunId::new(1, 0));
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
        let waits = |patience: Option<Patience>| {
            let mut waits = launch(PlacementSpec::Count(Some(1)));
            waits.request.on_busy.wait = patience;
            waits.begin_to_wait(Stamp(0));
            waits.begin_to_wait(Stamp(9));
            waits
        };
        assert!(!waits(None).timed_out(Stamp(i64::MAX)));
        assert!(!waits(Some(Patience::Endless)).timed_out(Stamp(i64::MAX)));
        assert!(!waits(Some(Patience::Seconds(2))).timed_out(Stamp(1_999_999)));
        assert!(waits(Some(Patience::Seconds(2))).timed_out(Stamp(2_000_000)));
        let mut queue_ticket = QueueTicket::new(RunId::new(1, 1));
        let mut tell = |why: &str, second: i64| queue_ticket.tell(why.to_owned(), Stamp(second * 1_000_000));
        assert_eq!(tell("x", 0).as_deref(), Some("x"));
        assert_eq!(tell("x", 9), None);
        assert_eq!(tell("y", 10).as_deref(), Some("y"));
        assert_eq!(tell("z", 11), None, "another number each second is not told each second");
        assert_eq!(tell("z", 15).as_deref(), Some("z"));
        assert_eq!(queue_ticket.why(), "z");
    }
}
