//! The newest steps of a rank, in blocks that copies share: a replay keeps tens of copies of what is known, of runs of hundreds
//! of ranks.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::time::{HostTime, Stamp};
use super::timing::{Phase, PhaseSpan, StepTiming};

/// How many steps of a rank stay in memory for the phase bars.
const EACH: usize = 512;
/// How many steps of all ranks of a run do; so of many ranks fewer each.
const ALL: usize = 1 << 16;
/// Of however many ranks, so many each.
const LEAST: usize = 64;
/// How many phases of the steps of a rank are kept.
const SPANS: usize = 16 * EACH;
/// Steps of a block.
const BLOCK: usize = 32;

/// How many steps of each of so many ranks stay in memory.
pub(super) fn kept(ranks: usize) -> usize {
    (ALL / ranks.max(1)).clamp(LEAST, EACH)
}

/// A step with the time of its arrival.
pub type Arrived = (Stamp, Arc<StepTiming>);

/// Steps, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Row>", into = "Vec<Row>")]
pub struct RecentSteps {
    /// All but the last are full.
    blocks: VecDeque<Arc<Vec<Arrived>>>,
    /// How many of the first block are gone.
    gone: usize,
    count: usize,
}

impl RecentSteps {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn get(&self, at: usize) -> Option<&Arrived> {
        let at = self.gone + at;
        self.blocks.get(at / BLOCK)?.get(at % BLOCK)
    }

    /// The oldest.
    pub fn front(&self) -> Option<&Arrived> {
        self.get(0)
    }

    /// The newest.
    pub fn back(&self) -> Option<&Arrived> {
        self.get(self.count.checked_sub(1)?)
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arrived> + Clone {
        (0..self.count).filter_map(|at| self.get(at))
    }

    /// Those that arrived after a moment.
    pub fn after(&self, moment: Stamp) -> impl Iterator<Item = &Arrived> + Clone {
        let (mut first, mut end) = (0, self.count);
        while first < end {
            let middle = usize::midpoint(first, end);
            if self.get(middle).is_some_and(|(arrived, _)| *arrived <= moment) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        (first..self.count).filter_map(|at| self.get(at))
    }

    /// Takes the next step in; `keep` of them stay, and fewer where they have very many phases.
    pub(super) fn take(&mut self, step: Arrived, keep: usize) {
        let is_crowded = step.1.spans.len() > SPANS / EACH;
        self.push(step);
        while self.count > keep {
            self.pop_front();
        }
        if is_crowded {
            let spans = |steps: &Self| steps.iter().map(|(_, step)| step.spans.len()).sum::<usize>();
            while self.count > 1 && spans(self) > SPANS {
                self.pop_front();
            }
        }
    }

    fn push(&mut self, step: Arrived) {
        let last = match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK => Arc::make_mut(last),
            _ => {
                self.blocks.push_back(Arc::default());
                let Some(last) = self.blocks.back_mut() else { return };
                Arc::make_mut(last)
            }
        };
        last.push(step);
        self.count += 1;
    }

    fn pop_front(&mut self) {
        if self.count == 0 {
            return;
        }
        self.count -= 1;
        self.gone += 1;
        if self.gone == BLOCK {
            self.blocks.pop_front();
            self.gone = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A step by its number, to be changed; steps come in rising order.
    pub(super) fn step_mut(&mut self, number: u64) -> Option<&mut StepTiming> {
        let at =
            (0..self.count).rev().find(|at| self.get(*at).is_some_and(|(_, step)| step.step <= number))?;
        let at = self.gone + at;
        let (_, step) = Arc::make_mut(self.blocks.get_mut(at / BLOCK)?).get_mut(at % BLOCK)?;
        (step.step == number).then(|| Arc::make_mut(step))
    }
}

/// A step as it is written where a state of a run is kept, without names: there are tens of thousands.
#[derive(Serialize, Deserialize)]
struct Row(Stamp, u64, HostTime, u32, Option<f32>, u32, u32, Vec<(u8, u32, u32)>);

impl From<RecentSteps> for Vec<Row> {
    fn from(steps: RecentSteps) -> Self {
        let row = |(at, step): &Arrived| {
            let spans = step.spans.iter().map(|span| (span.phase.index() as u8, span.start_us, span.dur_us));
            let spans = spans.collect();
            Row(*at, step.step, step.start, step.dur_us, step.loss, step.samples, step.hidden_us, spans)
        };
        steps.iter().map(row).collect()
    }
}

impl From<Vec<Row>> for RecentSteps {
    fn from(rows: Vec<Row>) -> Self {
        let mut steps = Self::default();
        for Row(at, step, start, dur_us, loss, samples, hidden_us, spans) in rows {
            let span = |(phase, start_us, dur_us): (u8, u32, u32)| {
                let phase = Phase::ALL.get(usize::from(phase)).copied().unwrap_or(Phase::Other);
                PhaseSpan { phase, start_us, dur_us }
            };
            let spans = spans.into_iter().map(span).collect();
            let timing = StepTiming { step, start, dur_us, loss, samples, spans, hidden_us };
            steps.push((at, Arc::new(timing)));
        }
        steps
    }
}

impl PartialEq for RecentSteps {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u64) -> Arrived {
        let (loss, spans) = (None, Vec::new());
        let timing = StepTiming {
            step: number,
            start: HostTime(number),
            dur_us: 1,
            loss,
            samples: 0,
            spans,
            hidden_us: 0,
        };
        (Stamp(number as i64), Arc::new(timing))
    }

    fn numbers(steps: &RecentSteps) -> Vec<u64> {
        steps.iter().map(|(_, step)| step.step).collect()
    }

    #[test]
    fn it_is_a_queue_of_whatever_length() {
        for most in [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 100] {
            let mut steps = RecentSteps::default();
            for number in 1..=300 {
                if steps.len() >= most {
                    steps.pop_front();
                }
                steps.push(step(number));
                let first = number.saturating_sub(most as u64 - 1).max(1);
                assert_eq!(numbers(&steps), (first..=number).collect::<Vec<_>>());
                assert_eq!(steps.iter().rev().count(), steps.len());
                assert_eq!(steps.front().map(|(_, step)| step.step), Some(first));
                assert_eq!(steps.back().map(|(_, step)| step.step), Some(number));
            }
            while !steps.is_empty() {
                steps.pop_front();
            }
            steps.pop_front();
            assert!(steps.back().is_none() && numbers(&steps).is_empty());
            steps.push(step(1));
            assert_eq!(numbers(&steps), [1]);
        }
    }

    #[test]
    fn those_after_a_moment_are_found() {
        let mut steps = RecentSteps::default();
        assert_eq!(steps.after(Stamp(0)).count(), 0);
        for number in [3, 5, 5, 9] {
            steps.push(step(number));
        }
        for (moment, first) in [(0, 0), (3, 1), (4, 1), (5, 3), (8, 3), (9, 4), (10, 4)] {
            let after: Vec<_> = steps.after(Stamp(moment)).collect();
            assert_eq!(after, steps.iter().skip(first).collect::<Vec<_>>(), "{moment}");
        }
    }

    #[test]
    fn a_copy_is_not_changed_by_what_happens_to_the_other() {
        let mut steps = RecentSteps::default();
        (1..=40).for_each(|number| steps.push(step(number)));
        let copy = steps.clone();
        steps.step_mut(35).unwrap().dur_us = 7;
        steps.step_mut(3).unwrap().dur_us = 8;
        steps.push(step(41));
        steps.pop_front();
        assert_eq!(numbers(&copy), (1..=40).collect::<Vec<_>>());
        assert!(copy.iter().all(|(_, step)| step.dur_us == 1));
        assert_eq!(steps.iter().map(|(_, step)| u64::from(step.dur_us)).sum::<u64>(), 38 + 7 + 8);
        assert!(copy != steps && steps.step_mut(42).is_none() && steps.step_mut(1).is_none());
    }
}
