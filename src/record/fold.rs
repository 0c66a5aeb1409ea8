//! The player's own fold of a recording, with checkpoints to go back to.

use std::sync::Arc;

use super::checkpoints::{Checkpoint, Checkpoints, Place};
use super::reader::Timed;
use crate::domain::alerts::AlertRules;
use crate::domain::time::Stamp;
use crate::domain::world::World;

/// Folding on through fewer chunks than this is as quick as a jump, and lets the screen keep its world.
const WORTH_A_JUMP: usize = 12;

/// The end of the recording.
pub(super) const ALL: Until = Until::Moment(Stamp(i64::MAX));

/// A world, the place in the recording up to which it is folded, and earlier worlds.
#[derive(Debug, Default)]
pub(super) struct Fold {
    world: World,
    /// The next envelope: its chunk, and its place there.
    chunk: usize,
    index: usize,
    /// Recording time of the last envelope folded.
    last: Option<Stamp>,
    checkpoints: Checkpoints,
}

/// Where a way through a recording ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// All up to this moment, and including it.
    Moment(Stamp),
    /// Where the run has so many lines, the last of which was printed by this moment: a rank may print more at one moment than a log
    /// keeps.
    Line(Stamp, u64),
}

impl Until {
    pub(super) fn at(self) -> Stamp {
        match self {
            Self::Moment(at) | Self::Line(at, _) => at,
        }
    }

    /// Whether a state that was left after this moment lies on the way.
    pub(super) fn is_after(self, last: Stamp) -> bool {
        match self {
            Self::Moment(at) => last <= at,
            Self::Line(at, _) => last < at,
        }
    }
}

impl Fold {
    /// A fold from the start of a recording that tells alerts by these rules.
    pub(super) fn new(rules: Arc<AlertRules>) -> Self {
        let mut fold = Self::default();
        fold.world.alerts.rules = rules;
        fold
    }

    /// A second fold, which goes on from here.
    pub(super) fn branch(&self) -> Self {
        let (world, checkpoints) = (self.world.clone(), Checkpoints::default());
        Self { world, chunk: self.chunk, index: self.index, last: self.last, checkpoints }
    }

    /// The world that it has come to.
    pub(super) fn into_world(self) -> World {
        self.world
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// The chunk that is to be given to [`Fold::take`] next.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Takes the nearest way that is not simply folding on: back to a checkpoint when something behind its end is folded already,
    /// ahead to one when it saves much. Says whether the world jumped.
    pub(super) fn jump_towards(&mut self, until: Until) -> bool {
        let Some((chunk, found)) = self.jump(until) else { return false };
        let origin = found.map(Checkpoint::origin);
        let (world, last) =
            found.map(|checkpoint| (checkpoint.world.clone(), checkpoint.last)).unwrap_or_default();
        self.jump_to(chunk, last, world);
        if let Some(origin) = origin {
            self.checkpoints.go_on_from(origin);
        }
        true
    }

    /// The chunk from which on is folded what leads there, by that way.
    pub(super) fn nearest(&self, until: Until) -> usize {
        self.jump(until).map_or(self.chunk, |(chunk, _)| chunk)
    }

    /// How many lines the run has.
    fn lines(&self) -> u64 {
        self.world.runs.values().map(|run| run.log.count()).sum()
    }

    /// The place of the next envelope in its chunk.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Whether it has come there, where what comes next is of this time.
    pub(super) fn is_there(&self, until: Until, next: Stamp) -> bool {
        match until {
            Until::Moment(at) => next > at,
            Until::Line(_, lines) => self.lines() >= lines,
        }
    }

    /// The chunk at which the way begins, if not here: that of a checkpoint, or the first where there is none.
    fn jump(&self, until: Until) -> Option<(usize, Option<&Checkpoint>)> {
        let is_behind_moment = self.last.is_some_and(|last| last > until.at());
        let is_ahead = match until {
            Until::Moment(_) => is_behind_moment,
            // a line's own time may lie before that at which it was told
            Until::Line(_, lines) => self.lines() > lines || self.lines() == lines && is_behind_moment,
        };
        let found = self.checkpoints.nearest(until);
        let saves = found.is_some_and(|checkpoint| checkpoint.chunk >= self.chunk + WORTH_A_JUMP);
        (is_ahead || saves).then(|| (found.map_or(0, |checkpoint| checkpoint.chunk), found))
    }

    /// Goes to a state that is known from elsewhere: that before the first envelope of `chunk`.
    pub(super) fn jump_to(&mut self, chunk: usize, last: Option<Stamp>, world: World) {
        let rules = Arc::clone(&self.world.alerts.rules);
        (self.world, self.chunk, self.last) = (world, chunk, last);
        self.index = 0;
        self.world.alerts.rules = rules;
        self.checkpoints.begin_anew();
    }

    /// Leaves what it has come to for a state that is to be read, and the checkpoints that take the room of that: all of it at once is the
    /// most that a replay takes. `place` is that of the state.
    pub(super) fn leave(&mut self, place: Place) {
        self.checkpoints.make_room(place, &self.world);
        self.jump_to(0, None, World::default());
    }

    /// Recording time of the last envelope folded.
    pub(super) fn last(&self) -> Option<Stamp> {
        self.last
    }

    /// Keeps what it has come to, where it stands before the first envelope of a chunk and that is worth a checkpoint.
    pub(super) fn keep_checkpoint(&mut self, place: Place) {
        if self.index == 0 && place.chunk == self.chunk {
            self.checkpoints.keep(place, self.last, &self.world);
        }
    }

    /// Folds what is left of the present chunk up to `until`; gives what was folded. When the chunk is done, the next one is the
    /// present one.
    pub(super) fn take<'a>(&mut self, chunk: &'a [Timed], until: Until) -> &'a [Timed] {
        let rest = chunk.get(self.index..).unwrap_or_default();
        let mut count = 0;
        while let Some(timed) = rest.get(count).filter(|timed| !self.is_there(until, timed.time)) {
            self.world.apply(&timed.envelope);
            count += 1;
        }
        let folded = &rest[..count];
        self.last = folded.last().map(|timed| timed.time).or(self.last);
        self.index += folded.len();
        if folded.len() == rest.len() {
            self.chunk += 1;
            self.index = 0;
        }
        folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::analysis::fixtures::{START, spec, timing};
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::gpu::{GpuSample, Reading};
    use crate::domain::host::HostSample;
    use crate::domain::ids::{HostId, Rank, RunId};
    use crate::domain::log::{LogLine, Stream};
    use crate::domain::run::RunSpec;
    use crate::domain::time::HostTime;
    use crate::domain::world::RunState;

    /// One event each 20 s.
    fn chunk(number: i64) -> Vec<Timed> {
        let time = Stamp(number * 20_000_000);
        let (origin, event) = (Origin::Run(RunId::new(1, 1)), Event::JobDone { weights: None });
        vec![Timed { time, envelope: Envelope { seq: number as u64 + 1, at: time, origin, event } }]
    }

    /// The end of a way, before which so many envelopes lie.
    fn place(fold: &Fold, before: u64) -> Place {
        Place { chunk: fold.chunk(), before, left: 0, plays: false, state: None }
    }

    #[test]
    fn a_jump_back_leads_to_the_last_checkpoint_before_its_moment() {
        let mut fold = Fold::new(Arc::default());
        for number in 0..6 {
            let chunk = chunk(number);
            fold.keep_checkpoint(place(&fold, number as u64 * 5_000));
            assert_eq!(fold.take(&chunk, Until::Moment(chunk[0].time)).len(), 1);
        }
        assert_eq!(fold.chunk(), 6);
        assert!(fold.jump_towards(Until::Moment(Stamp(50_000_000))));
        assert_eq!(fold.chunk(), 3, "40 s are folded, 60 s are not");
        assert!(fold.jump_towards(Until::Moment(Stamp(0))));
        assert_eq!(fold.chunk(), 1);
        assert!(!fold.jump_towards(Until::Moment(Stamp(10_000_000))), "nothing behind it is folded");
    }

    #[test]
    fn checkpoints_behind_a_state_have_an_origin_of_their_own() {
        let mut fold = Fold::new(Arc::default());
        let go = |fold: &mut Fold, numbers: std::ops::Range<i64>| {
            for number in numbers {
                fold.keep_checkpoint(place(fold, number as u64 * 5_000));
                fold.take(&chunk(number), ALL);
            }
        };
        let origins =
            |fold: &Fold| fold.checkpoints.kept().iter().map(Checkpoint::origin).collect::<Vec<_>>();
        go(&mut fold, 0..3);
        assert_eq!(origins(&fold), [0, 0], "the start is none");
        fold.jump_to(10, Some(Stamp(9 * 20_000_000)), World::default());
        go(&mut fold, 10..12);
        assert_eq!(origins(&fold), [0, 0, 1, 1]);
        assert!(fold.jump_towards(Until::Moment(Stamp(30_000_000))));
        assert_eq!(fold.chunk(), 2);
        go(&mut fold, 2..4);
        assert_eq!(origins(&fold), [0, 0, 0, 1, 1], "those behind a checkpoint go on from it");
    }

    #[test]
    fn a_world_that_is_left_for_a_state_is_come_to_again_without_it() {
        let rules = Arc::<AlertRules>::default();
        let mut fold = Fold::new(Arc::clone(&rules));
        for number in 0..30 {
            fold.keep_checkpoint(place(&fold, number as u64 * 5_000));
            fold.take(&chunk(number), ALL);
        }
        let (seq, last) = (fold.world().last_seq, fold.last());
        fold.leave(place(&fold, 150_000));
        assert_eq!((fold.chunk(), fold.index(), fold.last(), fold.world().last_seq), (0, 0, None, None));
        assert!(Arc::ptr_eq(&fold.world().alerts.rules, &rules));
        assert!(fold.jump_towards(Until::Moment(Stamp(29 * 20_000_000))), "what is known on the way stays");
        assert_eq!(fold.chunk(), 29);
        fold.take(&chunk(29), ALL);
        assert_eq!((fold.world().last_seq, fold.last()), (seq, last));
    }

    /// One second of a run of two ranks: a step and a line of each, the host's values, a ping.
    fn second(second: u64, spec: &RunSpec) -> Vec<Timed> {
        let at = START.plus_micros(second as i64 * 1_000_000);
        let host = || Origin::Host(HostId::from("gpu-a"));
        let t = HostTime(second * 1_000_000);
        let clock = ClockSample { host_time: t, offset_us: START.0, rtt_us: 80 + (second % 7) as u32 };
        let sample = HostSample { gpus: vec![GpuSample::unknown(0), GpuSample::unknown(1)], ..host_sample() };
        let of_host =
            [Event::ClockSampled { sample: clock }, Event::HostSampled { sample: Arc::new(sample) }];
        let mut told: Vec<(Origin, Event)> = of_host.into_iter().map(|event| (host(), event)).collect();
        for rank in [0, 1] {
            let origin = Origin::Rank(spec.id.clone(), Rank(rank));
            let mut timing = timing(second + 1, [5, 200, 400, 20 + 3 * rank, 100, 50]);
            timing.start = t;
            let text = format!("epoch {} step {second} loss 0.{second}", second / 100);
            let line = LogLine {
                rank: Rank(rank),
                stream: Stream::Stdout,
                offset: second * 40,
                text,
                elided: 0,
                t: Some(t),
            };
            told.push((origin.clone(), Event::StepDone { timing: Arc::new(timing) }));
            told.push((origin, Event::LogPrinted { line: Arc::new(line) }));
        }
        let timed = |(number, (origin, event)): (usize, (Origin, Event))| {
            let seq = second * 6 + number as u64 + 1;
            Timed { time: at, envelope: Envelope { seq, at, origin, event } }
        };
        told.into_iter().enumerate().map(timed).collect()
    }

    fn host_sample() -> HostSample {
        HostSample {
            cpu_percent: Reading::Value(12.5),
            memory_used: Reading::Value(33 << 30),
            load: Reading::Value([1.5, 1.25, 1.0]),
            net_rx: Reading::Value(1 << 20),
            net_tx: Reading::Value(2 << 20),
            gpus: Vec::new(),
        }
    }

    #[test]
    fn what_is_kept_of_a_long_run_does_not_grow_with_it() {
        let (spec, mut fold) = (spec(2), Fold::new(Arc::default()));
        let created = Event::RunCreated { spec: Arc::new(spec.clone()) };
        let origin = Origin::Run(spec.id.clone());
        let first = Timed { time: START, envelope: Envelope { seq: 0, at: START, origin, event: created } };
        fold.take(&[first], ALL);
        let (mut bytes, mut folded) = (Vec::new(), 0);
        // chunks of ten seconds, as long as a recorder holds events back at most
        for hour in 0..8 {
            for begin in (hour * 3600..(hour + 1) * 3600).step_by(10) {
                let chunk: Vec<Timed> = (begin..begin + 10).flat_map(|at| second(at, &spec)).collect();
                fold.keep_checkpoint(place(&fold, folded));
                folded += fold.take(&chunk, ALL).len() as u64;
            }
            bytes.push(rmp_serde::to_vec_named(fold.world()).unwrap().len());
        }
        assert!(bytes[7] < 8 << 20, "{bytes:?}");
        assert!(bytes[7] <= bytes[3] + bytes[3] / 20, "a state of eight hours is one of four: {bytes:?}");
        let kept = fold.checkpoints.kept();
        let held = |one: &Checkpoint| one.world.runs.values().map(RunState::steps_held).sum::<usize>();
        let (held, first) = (kept.iter().map(held).sum::<usize>(), kept[0].chunk);
        assert!(held <= 1 << 20, "{held}");
        let way = kept.windows(2).map(|two| two[1].chunk - two[0].chunk).max().max(Some(first));
        assert!(way <= Some(2880 / 8), "and they are spread over all of it: {way:?}");
    }
}
