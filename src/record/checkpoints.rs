//! Earlier worlds of a fold, to go back to. Many lie near where it stands and few far away: most moves of a playhead are short ones.

use super::fold::Until;
use crate::domain::time::Stamp;
use crate::domain::world::{RunState, World};

/// Envelopes between two of them at least: to copy a world takes about as long as to fold so many, which are taken apart meanwhile.
const LEAST_APART: u64 = 4_000;
/// The same while a recording plays, where a copy would come with each move.
const APART_PLAYING: u64 = 20_000;
/// On a long way one is kept after so many at the latest.
const MOST_APART: u64 = 60_000;
/// The most that are kept, and how many are kept whatever they take.
const MOST: usize = 64;
const LEAST: usize = 2;
/// This part of the way is far.
const FAR: u64 = 8;
/// What all of them take at most, in steps: about 146 bytes each, with what a block of them leaves free.
const MOST_STEPS: u64 = 3 << 16;

/// Where in a recording a chunk begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The number of the chunk.
    pub(super) chunk: usize,
    /// How many envelopes lie before it.
    pub(super) before: u64,
    /// How many lie between it and the end of the way.
    pub(super) left: u64,
    /// Whether the way is that of a recording that plays.
    pub(super) plays: bool,
    /// How many lie before the last state on the way that is kept beside the recording: up to it there are some all along.
    pub(super) state: Option<u64>,
}

/// The world before the first envelope of a chunk.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) chunk: usize,
    size: Size,
    /// Recording time of the last envelope in it.
    pub(super) last: Option<Stamp>,
    pub(super) world: World,
}

impl Checkpoint {
    /// The number of the world from elsewhere that it has grown from.
    pub(super) fn origin(&self) -> u64 {
        self.size.origin
    }
}

/// Where one lies and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    /// How many envelopes lie before it.
    before: u64,
    /// What its world holds, in steps.
    weight: u64,
    /// Those of one origin share what they hold, others nothing.
    origin: u64,
}

/// What is kept of one recording, by chunk.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    kept: Vec<Checkpoint>,
    /// The origin of the worlds that come, and how many there have been.
    origin: u64,
    origins: u64,
}

impl Checkpoints {
    /// The worlds that come grow from one that shares nothing with those that are kept.
    pub(super) fn begin_anew(&mut self) {
        self.origins += 1;
        self.origin = self.origins;
    }

    /// The worlds that come grow from one that is kept, of this origin.
    pub(super) fn go_on_from(&mut self, origin: u64) {
        self.origin = origin;
    }

    /// The last one that lies on a way.
    pub(super) fn nearest(&self, until: Until) -> Option<&Checkpoint> {
        // the moments rise from one to the next
        let before = self.kept.partition_point(|one| one.last.is_none_or(|last| until.is_after(last)));
        self.kept.get(before.checked_sub(1)?)
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn kept(&self) -> &[Checkpoint] {
        &self.kept
    }

    /// Keeps a world that a fold has come to, where the way from the one before it is as long as what is left of the way: so their
    /// distances double from the end of the way on.
    pub(super) fn keep(&mut self, place: Place, last: Option<Stamp>, world: &World) {
        let at = self.kept.partition_point(|one| one.chunk < place.chunk);
        let from = at.checked_sub(1).map_or(0, |at| self.kept[at].size.before);
        let to = self.kept.get(at).map_or(u64::MAX, |next| next.size.before);
        let closest = if place.plays { APART_PLAYING } else { LEAST_APART };
        let apart = place.left.clamp(closest, MOST_APART);
        if place.before.saturating_sub(from) < apart || to.saturating_sub(place.before) < closest {
            return;
        }
        let new = Size { before: place.before, weight: weight(world), origin: self.origin };
        let mut sizes = self.sizes();
        sizes.insert(at, new);
        while is_too_much(&sizes) {
            sizes.remove(least_needed(&sizes, place));
        }
        // what would be left out at once is not copied, and what is left out goes before the copy takes its memory
        if sizes.contains(&new) {
            self.kept.retain(|one| sizes.contains(&one.size));
            let at = self.kept.partition_point(|one| one.chunk < place.chunk);
            self.kept.insert(at, Checkpoint { chunk: place.chunk, size: new, last, world: world.clone() });
        }
    }

    /// Leaves out so many that there is room for one more world like this or like the largest of them, for this may be that of the start.
    /// It comes from elsewhere and shares nothing with them; `place` is where it comes to.
    pub(super) fn make_room(&mut self, place: Place, world: &World) {
        let mut sizes = self.sizes();
        let largest = sizes.iter().map(|one| one.weight).fold(weight(world), u64::max);
        let room = MOST_STEPS.saturating_sub(whole(largest));
        while !sizes.is_empty() && taken(&sizes) > room {
            sizes.remove(least_needed(&sizes, place));
        }
        self.kept.retain(|one| sizes.contains(&one.size));
    }

    fn sizes(&self) -> Vec<Size> {
        self.kept.iter().map(|one| one.size).collect()
    }
}

/// The steps that a world holds, and the samples of its hosts, two of which take about as much as a step.
fn weight(world: &World) -> u64 {
    let steps: usize = world.runs.values().map(RunState::steps_held).sum();
    let samples: usize = world.hosts.values().map(|host| host.past.len()).sum();
    (steps + samples / 2) as u64
}

/// How many envelopes lie before the one before this.
fn before(sizes: &[Size], at: usize) -> u64 {
    at.checked_sub(1).map_or(0, |at| sizes[at].before)
}

/// What a world takes by itself: its steps and samples, and about a quarter of what those take for all else, such as where the time of
/// each rank went and the steps of its last block.
fn whole(weight: u64) -> u64 {
    weight + weight / 4
}

/// The last one before this with which it shares what it holds.
fn kin(sizes: &[Size], at: usize) -> Option<&Size> {
    sizes[..at].iter().rfind(|one| one.origin == sizes[at].origin)
}

/// The steps and samples of one that do not lie in the one before of its origin too: at most as many as the envelopes between them.
fn unshared(one: Size, kin: Option<&Size>) -> u64 {
    kin.map_or(one.weight, |kin| one.weight.min(one.before - kin.before))
}

/// What one takes for itself: two of one origin that lie near each other hold the same steps and samples, and all else each for itself.
fn own(sizes: &[Size], at: usize) -> u64 {
    unshared(sizes[at], kin(sizes, at)) + sizes[at].weight / 4
}

/// What all of them take.
fn taken(sizes: &[Size]) -> u64 {
    (0..sizes.len()).map(|at| own(sizes, at)).sum()
}

/// What is taken less without one: what it shares with the next one of its origin is that one's own then.
fn spared(sizes: &[Size], at: usize) -> u64 {
    let next = sizes[at + 1..].iter().find(|next| next.origin == sizes[at].origin);
    let more = next.map_or(0, |next| unshared(*next, kin(sizes, at)) - unshared(*next, Some(&sizes[at])));
    own(sizes, at).saturating_sub(more)
}

/// Whether they take too much.
fn is_too_much(sizes: &[Size]) -> bool {
    sizes.len() > MOST || sizes.len() > LEAST && taken(sizes) > MOST_STEPS
}

/// The one without which ways get the least longer for what it takes, and for how far they are from the end of this way: so near it
/// each is about as many times as far as the one after it. Far away they lie as far from each other, except where a state beside the
/// recording is nearer than the one before.
fn least_needed(sizes: &[Size], place: Place) -> usize {
    let here = place.before.saturating_add(place.left);
    let harm = |at: usize| {
        let to = sizes.get(at + 1).map_or(here.max(sizes[at].before), |next| next.before);
        let is_near_state = place.state.is_some_and(|state| state > before(sizes, at));
        let most = if is_near_state { u64::MAX } else { here / FAR };
        let far = sizes[at].before.abs_diff(here).min(most).max(LEAST_APART);
        // where there are too many of them it is no matter what they take
        let takes = if sizes.len() > MOST { 1 } else { spared(sizes, at).max(1) };
        (to - before(sizes, at)) as f64 / far as f64 / takes as f64
    };
    (0..sizes.len()).min_by(|one, other| harm(*one).total_cmp(&harm(*other))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::HostId;
    use crate::domain::past::{PastGpus, PastNet, PastSample};

    /// Chunks of so many envelopes.
    const CHUNK: u64 = 500;

    /// Goes from one chunk to another, as a fold does.
    fn go(checkpoints: &mut Checkpoints, from: usize, to: usize) {
        for chunk in from..=to {
            let (before, left) = (chunk as u64 * CHUNK, (to - chunk) as u64 * CHUNK);
            let last = chunk.checked_sub(1).map(|before| Stamp(before as i64));
            checkpoints.keep(
                Place { chunk, before, left, plays: false, state: None },
                last,
                &World::default(),
            );
        }
    }

    /// How many envelopes are folded to come from the nearest one to a chunk.
    fn way(checkpoints: &Checkpoints, to: usize) -> u64 {
        let from = checkpoints.nearest(Until::Moment(Stamp(to as i64 - 1))).map_or(0, |one| one.size.before);
        to as u64 * CHUNK - from
    }

    #[test]
    fn the_way_back_is_short_where_it_goes_near_and_not_long_anywhere() {
        let mut checkpoints = Checkpoints::default();
        go(&mut checkpoints, 0, 10_000);
        assert!(checkpoints.kept.len() > 32 && checkpoints.kept.len() <= MOST);
        assert!((1..8).all(|back| way(&checkpoints, 10_000 - back) <= 2 * LEAST_APART + 8 * CHUNK));
        assert!((1..100).all(|back| way(&checkpoints, 10_000 - back) <= 100 * CHUNK));
        assert!((0..10_000).all(|chunk| way(&checkpoints, chunk) <= 10_000 * CHUNK / 8));
        let sorted =
            |two: &[Checkpoint]| two[0].chunk < two[1].chunk && two[0].size.before < two[1].size.before;
        assert!(checkpoints.kept.windows(2).all(sorted));
    }

    #[test]
    fn where_one_has_gone_back_to_there_are_some_too() {
        let mut checkpoints = Checkpoints::default();
        // a replay opens at its end and goes to the middle, where a state lies some way before
        go(&mut checkpoints, 9_800, 10_000);
        go(&mut checkpoints, 4_000, 5_000);
        assert!((1..8).all(|back| way(&checkpoints, 5_000 - back) <= 2 * LEAST_APART + 8 * CHUNK));
        assert!(way(&checkpoints, 9_990) <= MOST_APART);
        let kept = checkpoints.kept.len();
        go(&mut checkpoints, 4_990, 5_000);
        assert_eq!(checkpoints.kept.len(), kept, "not twice");
    }

    #[test]
    fn up_to_the_last_state_few_lie_far_away_and_beyond_it_they_are_spread() {
        let sizes = |of: &[u64]| -> Vec<Size> {
            of.iter().map(|before| Size { before: *before, weight: 0, origin: 0 }).collect()
        };
        let all = sizes(&[600_000, 610_000, 920_000, 940_000]);
        let place = |state| Place { chunk: 0, before: 1_000_000, left: 0, plays: false, state };
        assert_eq!(least_needed(&all, place(None)), 3);
        assert_eq!(least_needed(&all, place(Some(500_000))), 3, "to most of them the one before is nearer");
        assert_eq!(least_needed(&all, place(Some(960_000))), 1);
    }

    #[test]
    fn of_those_that_are_missed_as_little_the_one_goes_that_takes_more() {
        let of = |weight: u64| -> Vec<Size> {
            let all = [500_000, 600_000, 700_000, 985_000, 990_000];
            all.into_iter().map(|before| Size { before, weight, origin: 0 }).collect()
        };
        let place = Place { chunk: 0, before: 1_000_000, left: 0, plays: false, state: None };
        assert_eq!(least_needed(&of(0), place), 4);
        let many = of(75_000);
        // the last one shares its steps with the one before, and each of those far away has all for itself
        assert_eq!((spared(&many, 1), spared(&many, 4)), (93_750, 23_750));
        assert_eq!(least_needed(&many, place), 1);
        // without the one before, the last one has all for itself
        assert_eq!(spared(&many, 3), 23_750);
    }

    #[test]
    fn those_that_have_grown_from_different_worlds_share_nothing() {
        let size = |before, origin| Size { before, weight: 40_000, origin };
        // one that was read of a state lies between two that were folded
        let sizes = [size(100_000, 0), size(104_000, 1), size(108_000, 0)];
        assert_eq!([0, 1, 2].map(|at| own(&sizes, at)), [50_000, 50_000, 18_000]);
        assert_eq!(taken(&sizes), 118_000);
        assert_eq!([0, 1, 2].map(|at| spared(&sizes, at)), [18_000, 50_000, 18_000]);
    }

    /// A world of so many hosts, each with as many samples as are kept.
    fn sampled(hosts: usize) -> World {
        let (at, net) = (Stamp(0), PastNet::from(0_u32));
        let sample = PastSample { at, cpu: None, memory: None, net, gpus: PastGpus::default() };
        let mut world = World::default();
        for host in 0..hosts {
            let state = world.hosts.entry(HostId::from(format!("gpu-{host}"))).or_default();
            state.past = std::iter::repeat_n(sample.clone(), 300).collect();
        }
        world
    }

    #[test]
    fn where_a_world_comes_from_elsewhere_there_is_room_for_it() {
        // 60,000 as steps, and a quarter more
        let world = sampled(400);
        let mut checkpoints = Checkpoints::default();
        for chunk in 1..=2 {
            let before = chunk as u64 * 1_000_000;
            let place = Place { chunk, before, left: 0, plays: false, state: None };
            checkpoints.keep(place, Some(Stamp(chunk as i64)), &world);
        }
        assert_eq!(taken(&checkpoints.sizes()), 150_000);
        let place = Place { chunk: 3, before: 3_000_000, left: 10_000, plays: false, state: Some(3_000_000) };
        checkpoints.make_room(place, &World::default());
        assert_eq!(checkpoints.kept.len(), 1, "a fold that is at the start comes to as much as they hold");
        checkpoints.make_room(place, &world);
        assert_eq!(checkpoints.kept.len(), 1, "there is room already");
        checkpoints.make_room(place, &sampled(2_000));
        assert!(checkpoints.kept.is_empty(), "one that is larger than all room comes alone");
    }

    #[test]
    fn the_samples_of_hosts_weigh_as_steps_do() {
        let world = sampled(2_000);
        assert_eq!(weight(&world), 300_000);
        let mut checkpoints = Checkpoints::default();
        for chunk in 0..1_000 {
            let before = chunk as u64 * 1_000_000;
            checkpoints.keep(
                Place { chunk, before, left: 0, plays: false, state: None },
                Some(Stamp(chunk as i64)),
                &world,
            );
        }
        assert_eq!(checkpoints.kept.len(), LEAST);
    }

    #[test]
    fn while_it_plays_a_copy_is_rare() {
        let mut checkpoints = Checkpoints::default();
        for chunk in 0..1_000 {
            let place = Place { chunk, before: chunk as u64 * CHUNK, left: 0, plays: true, state: None };
            checkpoints.keep(place, Some(Stamp(chunk as i64)), &World::default());
        }
        assert_eq!(checkpoints.kept.len() as u64, 999 * CHUNK / APART_PLAYING);
    }
}
