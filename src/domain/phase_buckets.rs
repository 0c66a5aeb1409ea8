//! Where the time of all that train went, in buckets of one length on a grid of time that is the same for all of them: what is kept
//! beside a long recording, so that a timeline of a part of it need not read each step.
//!
//! Each step counts when it was told, as in a [`super::phase_window::PhaseWindow`]. So the buckets of two parts of a recording add up
//! to those of both, in any order, and short ones to longer ones.

use std::collections::BTreeMap;

use super::event::{Envelope, Event, Origin};
use super::history::PhasePoint;
use super::series::Merge;
use super::time::Stamp;
use super::trainer_keys::TrainerId;

/// So many points are kept at most.
pub const MOST_POINTS: usize = 1 << 17;
/// What a gap of steps names.
const STEP: &str = "step";

/// Where the time of all that train went, in buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseBuckets {
    width_us: i64,
    /// By their places on the grid, rising: the first begins at 0.
    points: BTreeMap<TrainerId, Vec<(i64, PhasePoint)>>,
    count: usize,
    steps: u64,
    is_cut: bool,
}

impl PhaseBuckets {
    /// None yet, of this length, microseconds.
    pub fn new(width_us: i64) -> Self {
        Self { width_us: width_us.max(1), points: BTreeMap::new(), count: 0, steps: 0, is_cut: false }
    }

    /// Takes a step in, or that the recording lacks some; whatever else was told is passed over.
    pub fn take(&mut self, envelope: &Envelope) {
        if let Some((id, point)) = of_step(envelope) {
            self.steps += 1;
            self.put(id, envelope.at.0.div_euclid(self.width_us), &point);
        } else if of_gap(envelope).is_some() {
            self.is_cut = true;
        }
    }

    /// Adds to the bucket of one that trains at a place on the grid.
    pub fn put(&mut self, id: TrainerId, place: i64, point: &PhasePoint) {
        let row = self.points.entry(id).or_default();
        match row.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(at) => row[at].1.merge(point),
            Err(_) if self.count >= MOST_POINTS => self.is_cut = true,
            Err(at) => {
                row.insert(at, (place, *point));
                self.count += 1;
            }
        }
    }

    /// Takes buckets in that are as long or a whole part as long.
    pub fn merge(&mut self, shorter: &Self) {
        for (id, place, point) in shorter.points() {
            let begin = place.saturating_mul(shorter.width_us);
            self.put(id, begin.div_euclid(self.width_us), point);
        }
        self.steps += shorter.steps;
        self.is_cut |= shorter.is_cut;
    }

    /// The buckets of each that trains in order: whose each is, its place on the grid, and what it tells.
    pub fn points(&self) -> impl Iterator<Item = (TrainerId, i64, &PhasePoint)> {
        self.points.iter().flat_map(|(id, row)| row.iter().map(|(place, point)| (*id, *place, point)))
    }

    /// The same with when each begins.
    pub fn timed(&self) -> impl Iterator<Item = (TrainerId, Stamp, &PhasePoint)> {
        self.points().map(|(id, place, point)| (id, Stamp(place.saturating_mul(self.width_us)), point))
    }

    /// How many points there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many steps were taken in.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether there were more points than are kept, or the recording lacks steps: then it is not all of what it is of.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// Whose step it is and what a point of it alone tells; `None` for anything but a step.
pub(super) fn of_step(envelope: &Envelope) -> Option<(TrainerId, PhasePoint)> {
    let Event::StepDone { timing } = &envelope.event else { return None };
    Some((trainer(&envelope.origin)?, PhasePoint::of(timing, timing.phase_totals())))
}

/// Of whose steps the recording lacks some; `None` for anything but a gap of steps.
pub(super) fn of_gap(envelope: &Envelope) -> Option<TrainerId> {
    let Event::Gap { what, .. } = &envelope.event else { return None };
    if what == STEP { trainer(&envelope.origin) } else { None }
}

fn trainer(origin: &Origin) -> Option<TrainerId> {
    match origin {
        Origin::Rank(_, rank) => Some(TrainerId::from(*rank)),
        Origin::Worker(_, rank, worker) => Some(TrainerId::new(*rank, Some(*worker))),
        Origin::Host(_) | Origin::Run(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::ids::{HostId, Rank, RunId};
    use crate::domain::phase_window::{PhasePart, PhaseWindow};
    use crate::domain::time::HostTime;
    use crate::domain::timing::{Phase, PhaseSpan, StepTiming};

    /// A step of a rank, or of a process in it: told then, with phases of these lengths, which may be longer than a bucket.
    fn step(at: i64, rank: u32, worker: Option<u32>, lengths: &[u32]) -> Envelope {
        let spans = Phase::ALL.into_iter().zip(lengths);
        let spans = spans.map(|(phase, us)| PhaseSpan { phase, start_us: 0, dur_us: *us }).collect();
        let dur_us = lengths.iter().fold(0_u32, |sum, us| sum.saturating_add(*us));
        let hidden_us = lengths.len() as u32;
        let timing =
            StepTiming { step: 1, start: HostTime(0), dur_us, loss: None, samples: 0, spans, hidden_us };
        let run = RunId::new(1, 1);
        let origin = match worker {
            Some(worker) => Origin::Worker(run, Rank(rank), worker),
            None => Origin::Rank(run, Rank(rank)),
        };
        Envelope { at: Stamp(at), seq: 1, origin, event: Event::StepDone { timing: Arc::new(timing) } }
    }

    prop_compose! {
        /// Told in any order: after a restart, a clock that was set back, and a link that was cut.
        fn steps()(
            told in prop::collection::vec(
                (-3_000_000..90_000_000_i64, 0..3_u32, prop::option::of(5..7_u32),
                    prop::collection::vec(prop_oneof![0..5_000_000_u32, Just(u32::MAX)], 0..8)),
                0..60,
            ),
        ) -> Vec<Envelope> {
            told.iter().map(|(at, rank, worker, lengths)| step(*at, *rank, *worker, lengths)).collect()
        }
    }

    proptest! {
        #[test]
        fn a_window_of_buckets_tells_what_one_of_their_steps_does(
            steps in steps(), from in -9_000_000..50_000_000_i64, seconds in 1..80_i64, width in 1..9_000_000_i64,
        ) {
            let part = PhasePart { from: Stamp(from), until: Stamp(from), width_us: width };
            let part = part.of_buckets(1_000_000);
            let part = PhasePart { until: part.from.plus_micros(seconds * 1_000_000 - 1), ..part };
            let (mut all, mut told) = (PhaseBuckets::new(1_000_000), PhaseWindow::new(part));
            for envelope in &steps {
                all.take(envelope);
                told.take(envelope);
            }
            let mut merged = PhaseWindow::new(part);
            merged.merge(&all);
            prop_assert_eq!(merged, told);
            prop_assert_eq!(all.steps(), steps.len() as u64);
        }

        #[test]
        fn parts_add_up_to_the_whole_and_short_ones_to_longer_ones(steps in steps(), cut in 0..60_usize) {
            let of = |width_us, steps: &[Envelope]| {
                let mut buckets = PhaseBuckets::new(width_us);
                for envelope in steps {
                    buckets.take(envelope);
                }
                buckets
            };
            let (first, rest) = steps.split_at(cut.min(steps.len()));
            for width_us in [1_000_000, 4_000_000, 64_000_000] {
                let mut sum = PhaseBuckets::new(width_us);
                sum.merge(&of(1_000_000, rest));
                sum.merge(&of(width_us, first));
                prop_assert_eq!(&sum, &of(width_us, &steps));
                let counted: usize = sum.points().count();
                prop_assert_eq!(counted, sum.count());
            }
        }
    }

    #[test]
    fn what_lacks_steps_is_not_all() {
        let gap = |what: &str, origin| {
            let event = Event::Gap { what: what.to_owned(), dropped: 1 };
            let mut buckets = PhaseBuckets::new(1_000_000);
            buckets.take(&Envelope { origin, event, ..step(5, 0, None, &[1]) });
            buckets.is_cut()
        };
        let rank = Origin::Rank(RunId::new(1, 1), Rank(0));
        assert!(gap("step", rank.clone()));
        assert!(!gap("log", rank) && !gap("step", Origin::Run(RunId::new(1, 1))));
    }

    #[test]
    fn what_is_no_step_is_no_point_and_of_too_many_points_it_is_said() {
        let mut buckets = PhaseBuckets::new(1_000_000);
        let mut other = step(5, 0, None, &[1]);
        other.origin = Origin::Host(HostId::from("gpu-a"));
        buckets.take(&other);
        assert_eq!(buckets, PhaseBuckets::new(1_000_000));
        for place in 0..=MOST_POINTS as i64 {
            assert!(!buckets.is_cut());
            buckets.take(&step(place * 1_000_000, 0, None, &[1]));
        }
        assert!(buckets.is_cut() && buckets.count() == MOST_POINTS);
        buckets.take(&step(3, 0, None, &[1]));
        let first = buckets.points().next().map(|(_, place, point)| (place, point.phases[0]));
        assert_eq!(first, Some((0, 2)), "what is known is added to");
        let mut longer = PhaseBuckets::new(64_000_000);
        longer.merge(&buckets);
        assert!(longer.is_cut() && longer.count() < MOST_POINTS);
    }
}
