//! Where the time of all that train went in a part of a run, in shorter points than its history has: a timeline that shows that part
//! has about a point or two a column. Of a whole run with hundreds of ranks they would take too much, so they are read for the part
//! that is shown.

use std::collections::BTreeMap;

use super::event::Envelope;
use super::history::{PhasePoint, phase_width_us};
use super::phase_buckets::{PhaseBuckets, of_gap, of_step};
use super::series::{Merge, Series};
use super::time::Stamp;
use super::trainer_keys::TrainerId;
use super::world::{RankState, RunState};

/// How many points all that train have together, and those of one at least and at most.
const POINTS: usize = 3 << 16;
const LEAST_POINTS: usize = 128;
const MOST_POINTS: usize = 512;
/// No point lasts shorter, microseconds.
const LEAST_US: i64 = 50_000;
/// Beside the window so much of it is read at either end: it moves on.
const MARGIN: i64 = 8;

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhasePart {
    /// From when.
    pub from: Stamp,
    /// Until when.
    pub until: Stamp,
    /// How long a point of it lasts, microseconds.
    pub width_us: i64,
}

impl PhasePart {
    /// The part between two moments of a run in which so many train; `None` where that are too many for points that are worth it.
    pub fn new(from: Stamp, until: Stamp, trainers: usize) -> Option<Self> {
        let points = (POINTS / trainers.max(1)).min(MOST_POINTS);
        let width_us = until.micros_since(from).max(0) / points.max(1) as i64 + 1;
        (points >= LEAST_POINTS).then(|| Self { from, until, width_us: width_us.max(LEAST_US) })
    }

    /// Whether it has all of the time between two moments.
    pub fn covers(&self, from: Stamp, to: Stamp) -> bool {
        self.from <= from && to <= self.until
    }

    /// The same of buckets of this length, microseconds: it begins with one, and a point of it has whole ones.
    #[must_use]
    pub fn of_buckets(self, bucket_us: i64) -> Self {
        let bucket_us = bucket_us.max(1);
        let from = Stamp(self.from.0.div_euclid(bucket_us).saturating_mul(bucket_us));
        let in_a_point = (self.width_us.max(1) - 1) / bucket_us + 1;
        Self { from, width_us: in_a_point.saturating_mul(bucket_us), ..self }
    }

    fn points(&self) -> usize {
        usize::try_from(self.until.micros_since(self.from) / self.width_us + 1).unwrap_or(0)
    }
}

/// What of a run is to be known for a timeline of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedPart {
    /// From when.
    pub from: Stamp,
    /// Until when at least.
    pub to: Stamp,
    /// What is read for it.
    pub part: PhasePart,
}

impl WantedPart {
    /// What a timeline of this length, microseconds, wants of the time between two moments, for which `read` is read; `of` is what
    /// is known of the run, in which so many train. `None` where its history is about as close, or too many train.
    pub fn new(
        (from, to): (Stamp, Stamp),
        window: i64,
        read: (Stamp, Stamp),
        of: (Stamp, Stamp),
        trainers: usize,
    ) -> Option<Self> {
        let part = PhasePart::new(read.0, read.1, trainers)?;
        // as short as the whole window needs them, whatever part of it is known
        let whole = PhasePart::new(from, from.plus_micros(window + 2 * margin_us(window)), trainers)?;
        let part = PhasePart { width_us: part.width_us.max(whole.width_us), ..part };
        let of_history = phase_width_us(of.1.micros_since(of.0), trainers);
        (to > from && of_history > 2 * part.width_us).then_some(Self { from, to, part })
    }

    /// Whether a part has it, in points that are short enough.
    pub fn is_in(&self, part: PhasePart) -> bool {
        part.covers(self.from, self.to) && part.width_us <= 2 * self.part.width_us
    }
}

/// How much is read at either end of a window of this length, both in microseconds.
pub fn margin_us(window: i64) -> i64 {
    window / MARGIN
}

/// Where the time went there.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseWindow {
    part: PhasePart,
    phases: BTreeMap<TrainerId, Series<PhasePoint>>,
    /// From when to when steps of one that trains are not recorded: from the first that was left out to the next that was not.
    left_out: BTreeMap<TrainerId, Vec<(Stamp, Stamp)>>,
}

impl PhaseWindow {
    /// Of a part of which nothing is known yet.
    pub fn new(part: PhasePart) -> Self {
        Self { part, phases: BTreeMap::new(), left_out: BTreeMap::new() }
    }

    /// The part.
    pub fn part(&self) -> PhasePart {
        self.part
    }

    /// Takes a step in that was told then, or that steps were left out of the recording; in the order of the recording, also what comes
    /// shortly before the part.
    pub fn take(&mut self, envelope: &Envelope) {
        if let Some((id, point)) = of_step(envelope) {
            self.put(id, envelope.at, &point);
        } else if let Some(id) = of_gap(envelope) {
            self.leave_out(id, envelope.at);
        }
    }

    /// Takes in the buckets that begin in it, each as a whole: it is a part [`PhasePart::of_buckets`] that are as long or a whole
    /// number of times as long.
    pub fn merge(&mut self, buckets: &PhaseBuckets) {
        for (id, begin, point) in buckets.timed() {
            self.put(id, begin, point);
        }
    }

    fn put(&mut self, id: TrainerId, at: Stamp, point: &PhasePoint) {
        let PhasePart { from, until, width_us } = self.part;
        if let Some((_, end)) = self.left_out.get_mut(&id).and_then(|spans| spans.last_mut()) {
            *end = at.min(*end);
        }
        if !(from..=until).contains(&at) {
            return;
        }
        let most = self.part.points();
        // there may be more than are known when it is begun
        if self.phases.len() * most > 2 * POINTS && !self.phases.contains_key(&id) {
            return;
        }
        let series = self.phases.entry(id).or_insert_with(|| Series::of_width(from, width_us, most));
        series.at(at).merge(point);
    }

    /// Steps of one that trains are left out from this moment on, until the next is told.
    fn leave_out(&mut self, id: TrainerId, at: Stamp) {
        let PhasePart { until, width_us, .. } = self.part;
        let spans = self.left_out.entry(id).or_default();
        match spans.last_mut() {
            // a recorder that leaves steps out says so each second
            Some((_, end)) if at <= end.plus_micros(width_us) => *end = until,
            _ => spans.extend((at < until).then_some((at, until))),
        }
    }

    /// Whether the recording says that it lacks steps of one that trains between two moments.
    pub fn is_left_out(&self, id: TrainerId, from: Stamp, to: Stamp) -> bool {
        let mut spans = self.left_out.get(&id).into_iter().flatten();
        spans.any(|(since, until)| *since < to && from < *until)
    }

    /// Whether something is known of one that trains.
    pub fn has(&self, id: TrainerId) -> bool {
        self.phases.contains_key(&id)
    }

    /// Where the time of one that trains went in each of these times, which come in rising order; nothing of one that is not known.
    pub fn phases_in_each(
        &self,
        id: TrainerId,
        times: impl Iterator<Item = (Stamp, Stamp)>,
    ) -> impl Iterator<Item = Option<PhasePoint>> {
        let phases = self.phases.get(&id);
        let told = phases.map(|phases| phases.each_between(times, |point| i64::from(point.longest_us)));
        told.into_iter().flatten()
    }
}

impl RunState {
    /// Since when all steps of all that train are in memory; `None` where no older one was told.
    pub fn steps_held_since(&self) -> Option<Stamp> {
        let is_cut = |state: &RankState| state.step_count > state.steps.len() as u64;
        let cut = self.trainers().filter(|one| is_cut(one.state));
        cut.filter_map(|one| one.state.steps.front().map(|(arrived, _)| *arrived)).max()
    }

    /// What is to be read of a run that is followed for a timeline between two moments: what lies before the steps in memory.
    pub fn wanted_closely(&self, (from, end): (Stamp, Stamp)) -> Option<WantedPart> {
        let (start, window) = (self.history.points.start(), end.micros_since(from));
        let (shown, to) = (from.max(start), self.steps_held_since()?.min(end));
        let margin = margin_us(window);
        let read = (shown.plus_micros(-margin).max(start), to.plus_micros(margin).min(end));
        let trainers = self.step_tellers().max(self.spec.placements.len());
        // the steps that leave the memory meanwhile are read once they are a few columns
        let to = to.plus_micros(-margin / 2);
        WantedPart::new((shown, to), window, read, (start, end), trainers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::event::{Event, Origin};
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::time::HostTime;
    use crate::domain::timing::{Phase, PhaseSpan, StepTiming};

    fn told(origin: Origin, at: i64, dur_us: u32) -> Envelope {
        let spans = [PhaseSpan { phase: Phase::Forward, start_us: 0, dur_us }].into();
        let timing =
            StepTiming { step: 1, start: HostTime(0), dur_us, loss: None, samples: 0, spans, hidden_us: 0 };
        Envelope { at: Stamp(at), seq: 1, origin, event: Event::StepDone { timing: Arc::new(timing) } }
    }

    #[test]
    fn ten_minutes_of_512_ranks_have_a_point_or_two_for_each_of_200_columns() {
        let part = PhasePart::new(Stamp(0), Stamp(600_000_000), 512).unwrap();
        assert!((200..=400).contains(&part.points()), "{part:?}");
        assert!(512 * part.points() <= POINTS + 512);
        // few ranks get no more than a screen has room for, and none shorter than a history has
        assert!(PhasePart::new(Stamp(0), Stamp(600_000_000), 1).unwrap().points() <= MOST_POINTS);
        assert_eq!(PhasePart::new(Stamp(0), Stamp(1_000_000), 1).unwrap().width_us, LEAST_US);
        assert_eq!(PhasePart::new(Stamp(0), Stamp(600_000_000), 4096), None);
        assert!(part.covers(Stamp(0), Stamp(600_000_000)) && !part.covers(Stamp(1), Stamp(600_000_001)));
    }

    #[test]
    fn a_part_is_wanted_where_the_history_is_coarser_until_one_has_it() {
        let s = |seconds: i64| Stamp(seconds * 1_000_000);
        let wanted = |of_s, trainers| {
            let window = 600_000_000;
            WantedPart::new((s(1_000), s(1_400)), window, (s(925), s(1_475)), (s(0), s(of_s)), trainers)
        };
        let close = wanted(36_000, 512).unwrap();
        assert!(close.is_in(close.part));
        let moved = WantedPart { from: s(1_060), to: s(1_470), ..close };
        assert!(moved.is_in(close.part), "there is a margin at either end");
        assert!(!WantedPart { to: s(1_476), ..close }.is_in(close.part));
        let coarse = PhasePart { width_us: 3 * close.part.width_us, ..close.part };
        assert!(!close.is_in(coarse), "zoomed in");
        assert_eq!(wanted(400, 1), None, "the history of a short run is as close");
        assert_eq!(wanted(36_000, 4_096), None, "too many train");
        assert_eq!(WantedPart::new((s(5), s(5)), 600_000_000, (s(0), s(9)), (s(0), s(36_000)), 1), None);
    }

    #[test]
    fn what_was_left_out_lasts_until_the_next_step_of_the_same_rank() {
        let run = RunId::new(1, 1);
        let part = PhasePart { from: Stamp(1_000_000), until: Stamp(9_000_000), width_us: 100_000 };
        let rank = |rank| Origin::Rank(run.clone(), Rank(rank));
        let step = |at| told(rank(1), at, 10_000);
        let gap = |of: Origin, at, what: &str| {
            let event = Event::Gap { what: what.to_owned(), dropped: 3 };
            Envelope { event, ..told(of, at, 0) }
        };
        let mut window = PhaseWindow::new(part);
        // one before the part, one that goes on with the next, one of other events, and one that nothing ends
        let all = [
            gap(rank(1), 900_000, "step"),
            step(1_200_000),
            gap(rank(1), 3_000_000, "step"),
            gap(rank(1), 4_000_000, "step"),
            step(4_500_000),
            gap(rank(1), 5_000_000, "log"),
            step(6_000_000),
            gap(rank(2), 7_000_000, "step"),
            step(8_000_000),
            gap(rank(1), 9_500_000, "step"),
        ];
        for envelope in &all {
            window.take(envelope);
        }
        let left_out = |rank: u32| -> Vec<i64> {
            let tenths = (10..90_i64).filter(|tenth| {
                let from = Stamp(tenth * 100_000);
                window.is_left_out(Rank(rank).into(), from, from.plus_micros(100_000))
            });
            tenths.collect()
        };
        assert_eq!(left_out(1), (10..12).chain(30..45).collect::<Vec<_>>());
        assert_eq!(left_out(2), (70..90).collect::<Vec<_>>());
        assert!(left_out(3).is_empty());
        assert!(!window.has(Rank(2).into()), "none of its steps is told");
    }

    #[test]
    fn a_part_of_buckets_begins_with_one_and_has_whole_ones_in_each_point() {
        let part = PhasePart { from: Stamp(7_300_000), until: Stamp(99_500_000), width_us: 4_000_001 };
        let whole = part.of_buckets(4_000_000);
        assert_eq!(whole, PhasePart { from: Stamp(4_000_000), width_us: 8_000_000, ..part });
        assert_eq!(whole.of_buckets(4_000_000), whole);
        let short = PhasePart { from: Stamp(-1), width_us: 300_000, ..part }.of_buckets(1_000_000);
        assert_eq!((short.from, short.width_us), (Stamp(-1_000_000), 1_000_000));
    }

    #[test]
    fn each_that_trains_has_its_steps_of_the_part_alone() {
        let run = RunId::new(1, 1);
        let part = PhasePart { from: Stamp(1_000_000), until: Stamp(3_000_000), width_us: 100_000 };
        let mut window = PhaseWindow::new(part);
        let rank = |rank| Origin::Rank(run.clone(), Rank(rank));
        for at in [900_000, 1_050_000, 1_080_000, 2_950_000, 3_000_001] {
            window.take(&told(rank(1), at, 10_000));
        }
        window.take(&told(Origin::Worker(run.clone(), Rank(1), 7), 1_050_000, 500));
        let in_each = |id| {
            let times = [(1_000_000, 1_100_000), (1_100_000, 2_000_000), (2_900_000, 3_000_000)];
            let times = times.into_iter().map(|(from, to)| (Stamp(from), Stamp(to)));
            let each = window.phases_in_each(id, times);
            each.map(|point| point.map(|point| point.phases[Phase::Forward.index()])).collect::<Vec<_>>()
        };
        assert_eq!(in_each(Rank(1).into()), [Some(20_000), None, Some(10_000)]);
        assert_eq!(in_each(TrainerId::new(Rank(1), Some(7))), [Some(500), None, None]);
        assert!(window.has(Rank(1).into()) && !window.has(Rank(2).into()));
        assert!(in_each(Rank(2).into()).is_empty());
    }
}
