//! The newest steps of a rank.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::blocks::Blocks;
use super::time::{HostTime, Stamp};
use super::timing::{Phase, PhaseSpan, Spans, StepTiming};

/// How many steps of a rank stay in memory for the phase bars.
const EACH: usize = 512;
/// How many steps of all ranks of a run do; so of many ranks fewer each.
const ALL: usize = 1 << 16;
/// Of however many ranks, so many each.
const LEAST: usize = 64;
/// How many phases of the steps of a rank are kept.
const SPANS: usize = 16 * EACH;

/// How many steps of each of so many ranks stay in memory.
pub(super) fn kept(ranks: usize) -> usize {
    (ALL / ranks.max(1)).clamp(LEAST, EACH)
}

/// A step with the time of its arrival.
pub type Arrived = (Stamp, StepTiming);

/// Steps, oldest first. They lie beside each other in their blocks: a screen of hundreds of ranks sums up tens of thousands of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Row>", into = "Vec<Row>")]
pub struct RecentSteps(Blocks<Arrived>);

impl RecentSteps {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The oldest.
    pub fn front(&self) -> Option<&Arrived> {
        self.0.front()
    }

    /// The newest.
    pub fn back(&self) -> Option<&Arrived> {
        self.0.back()
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arrived> + Clone {
        self.0.iter()
    }

    /// So many of the newest ones, newest first.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = &Arrived> {
        self.0.newest(count)
    }

    /// Those that arrived after a moment.
    pub fn after(&self, moment: Stamp) -> impl Iterator<Item = &Arrived> + Clone {
        self.0.after(&|(arrived, _)| *arrived <= moment)
    }

    /// Takes the next step in; `keep` of them stay, and fewer where they have very many phases.
    pub(super) fn take(&mut self, step: Arrived, keep: usize) {
        let is_crowded = step.1.spans.len() > SPANS / EACH;
        self.0.push(step);
        self.0.keep(keep);
        if is_crowded {
            let spans = |steps: &Self| steps.iter().map(|(_, step)| step.spans.len()).sum::<usize>();
            while self.len() > 1 && spans(self) > SPANS {
                self.0.keep(self.len() - 1);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// A step by its number, to be changed; steps come in rising order.
    pub(super) fn step_mut(&mut self, number: u64) -> Option<&mut StepTiming> {
        let (_, step) = self.0.last_mut(|(_, step)| step.step <= number)?;
        (step.step == number).then_some(step)
    }
}

/// A step as it is written where a state of a run is kept, without names and in small numbers: there are tens of thousands. When it
/// arrived, its number and when it began are differences to the step before, and its length is one to the end of its last phase.
#[derive(Serialize, Deserialize)]
struct Row(i64, i64, i64, i64, Option<f32>, u32, u32, RowSpans);

/// The phases of a step as they are written: the start of each is a difference to the end of the phase before.
struct RowSpans(Spans);

type RowSpan = (u8, i64, u32);

/// Where a phase ends, microseconds from the step's start.
fn end_of(span: Option<&PhaseSpan>) -> i64 {
    span.map_or(0, |span| i64::from(span.start_us) + i64::from(span.dur_us))
}

impl Serialize for RowSpans {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut before = None;
        serializer.collect_seq(self.0.iter().map(|span| -> RowSpan {
            let gap = i64::from(span.start_us) - end_of(before.replace(span));
            (span.phase.index() as u8, gap, span.dur_us)
        }))
    }
}

impl<'de> Deserialize<'de> for RowSpans {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ReadSpans)
    }
}

/// Reads them to where they stay, without a list of their own: a state has tens of thousands of steps.
struct ReadSpans;

impl<'de> Visitor<'de> for ReadSpans {
    type Value = RowSpans;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of phases")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut told: A) -> Result<RowSpans, A::Error> {
        let mut spans = Spans::default();
        while let Some((phase, gap, dur_us)) = told.next_element::<RowSpan>()? {
            let phase = Phase::ALL.get(usize::from(phase)).copied().unwrap_or(Phase::Other);
            let start_us = end_of(spans.last()).wrapping_add(gap) as u32;
            spans.push(PhaseSpan { phase, start_us, dur_us });
        }
        Ok(RowSpans(spans))
    }
}

/// What of a step the next one is told by.
#[derive(Default)]
struct Before {
    at: i64,
    step: u64,
    end: u64,
}

impl Before {
    fn of((at, step): &Arrived) -> Self {
        Self { at: at.0, step: step.step, end: step.start.0.wrapping_add(step.dur_us.into()) }
    }
}

impl From<RecentSteps> for Vec<Row> {
    fn from(steps: RecentSteps) -> Self {
        let mut before = Before::default();
        let row = |arrived: &Arrived| {
            let (at, step) = arrived;
            let row = Row(
                at.0.wrapping_sub(before.at),
                step.step.wrapping_sub(before.step) as i64,
                step.start.0.wrapping_sub(before.end) as i64,
                i64::from(step.dur_us) - end_of(step.spans.last()),
                step.loss,
                step.samples,
                step.hidden_us,
                RowSpans(step.spans.clone()),
            );
            before = Before::of(arrived);
            row
        };
        steps.iter().map(row).collect()
    }
}

impl From<Vec<Row>> for RecentSteps {
    fn from(rows: Vec<Row>) -> Self {
        let (mut steps, mut before) = (Self::default(), Before::default());
        for Row(at, step, start, more, loss, samples, hidden_us, RowSpans(spans)) in rows {
            let timing = StepTiming {
                step: before.step.wrapping_add_signed(step),
                start: HostTime(before.end.wrapping_add_signed(start)),
                dur_us: end_of(spans.last()).wrapping_add(more) as u32,
                loss,
                samples,
                spans,
                hidden_us,
            };
            let arrived = (Stamp(before.at.wrapping_add(at)), timing);
            before = Before::of(&arrived);
            steps.0.push(arrived);
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::fixtures::step_timing;

    fn step(number: u64) -> Arrived {
        let timing = StepTiming { start: HostTime(number), ..step_timing(number, 1) };
        (Stamp(number as i64), timing)
    }

    fn numbers(steps: &RecentSteps) -> Vec<u64> {
        steps.iter().map(|(_, step)| step.step).collect()
    }

    #[test]
    fn those_after_a_moment_are_found() {
        let mut steps = RecentSteps::default();
        assert_eq!(steps.after(Stamp(0)).count(), 0);
        for number in [3, 5, 5, 9] {
            steps.0.push(step(number));
        }
        for (moment, first) in [(0, 0), (3, 1), (4, 1), (5, 3), (8, 3), (9, 4), (10, 4)] {
            let after: Vec<_> = steps.after(Stamp(moment)).collect();
            assert_eq!(after, steps.iter().skip(first).collect::<Vec<_>>(), "{moment}");
        }
    }

    #[test]
    fn a_copy_is_not_changed_by_what_happens_to_the_other() {
        let mut steps = RecentSteps::default();
        (1..=40).for_each(|number| steps.0.push(step(number)));
        let copy = steps.clone();
        steps.step_mut(35).unwrap().dur_us = 7;
        steps.step_mut(3).unwrap().dur_us = 8;
        steps.0.push(step(41));
        steps.0.keep(40);
        assert_eq!(numbers(&copy), (1..=40).collect::<Vec<_>>());
        assert!(copy.iter().all(|(_, step)| step.dur_us == 1));
        assert_eq!(steps.iter().map(|(_, step)| u64::from(step.dur_us)).sum::<u64>(), 38 + 7 + 8);
        assert!(copy != steps && steps.step_mut(42).is_none() && steps.step_mut(1).is_none());
    }

    #[test]
    fn steps_that_follow_each_other_are_written_in_small_numbers() {
        let (mut steps, mut at) = (RecentSteps::default(), 1_795_000_000_000_000);
        for number in 1_000..1_040 {
            let mut start_us = 0;
            let span = |phase: Phase| {
                let span = PhaseSpan { phase, start_us, dur_us: 40_000 + 1_000 * phase.index() as u32 };
                start_us += span.dur_us;
                span
            };
            let spans = Phase::ALL.into_iter().map(span).collect();
            at += 301_000;
            let start = HostTime(at as u64 - 301_500);
            let (dur_us, loss, samples, hidden_us) = (start_us, Some(0.5), 32, 9_000);
            let timing = StepTiming { step: number, start, dur_us, loss, samples, spans, hidden_us };
            steps.0.push((Stamp(at), timing));
        }
        let written = rmp_serde::to_vec_named(&steps).unwrap();
        assert!(written.len() < 64 * steps.len(), "{}", written.len());
        assert_eq!(rmp_serde::from_slice::<RecentSteps>(&written).unwrap(), steps);
    }

    fn any_span() -> impl Strategy<Value = PhaseSpan> {
        let number = prop_oneof![0..100_000_u32, any::<u32>()];
        (prop::sample::select(Phase::ALL.to_vec()), number.clone(), number)
            .prop_map(|(phase, start_us, dur_us)| PhaseSpan { phase, start_us, dur_us })
    }

    fn any_step() -> impl Strategy<Value = Arrived> {
        let number = prop_oneof![0..1_000_u64, any::<u64>()];
        let loss = prop::option::of(-1e30_f32..1e30);
        let spans = prop::collection::vec(any_span(), 0..9);
        let rest = (any::<u32>(), loss, any::<u32>(), any::<u32>(), spans);
        (any::<i64>(), number.clone(), number, rest).prop_map(|(at, step, start, rest)| {
            let (dur_us, loss, samples, hidden_us, spans) = rest;
            let start = HostTime(start);
            let spans = spans.into();
            (Stamp(at), StepTiming { step, start, dur_us, loss, samples, spans, hidden_us })
        })
    }

    proptest! {
        #[test]
        fn any_steps_come_back_as_they_were_written(
            told in prop::collection::vec(any_step(), 0..100),
            keep in 1..100_usize,
        ) {
            let mut steps = RecentSteps::default();
            for step in told {
                steps.take(step, keep);
            }
            let written = rmp_serde::to_vec_named(&steps).unwrap();
            prop_assert_eq!(rmp_serde::from_slice::<RecentSteps>(&written).unwrap(), steps);
        }

        #[test]
        fn whatever_is_written_is_read_without_harm(
            numbers in prop::collection::vec((any::<[i64; 4]>(), any::<RowSpan>(), 0..12_usize), 0..40),
        ) {
            let row = |([at, step, start, more], span, spans): ([i64; 4], RowSpan, usize)| {
                (at, step, start, more, None::<f32>, 0_u32, 0_u32, vec![span; spans])
            };
            let rows: Vec<_> = numbers.into_iter().map(row).collect();
            let written = rmp_serde::to_vec_named(&rows).unwrap();
            let read: RecentSteps = rmp_serde::from_slice(&written).unwrap();
            let spans = read.iter().map(|(_, step)| step.spans.len());
            prop_assert_eq!(spans.collect::<Vec<_>>(), rows.iter().map(|row| row.7.len()).collect::<Vec<_>>());
        }
    }
}
