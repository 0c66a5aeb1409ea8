//! How fast steps go, and how much of their allreduce ran behind the computing.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::timing::{Phase, StepTiming};

/// Sums over steps of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepTotals {
    /// Steps.
    pub steps: u64,
    /// How long they took, microseconds; what lies between steps is not in it.
    pub step_us: u64,
    /// Samples worked through.
    pub samples: u64,
    /// Allreduce that passed behind the computing, microseconds.
    pub hidden_us: u64,
    /// Allreduce that the rank stood still for, microseconds.
    pub exposed_us: u64,
}

impl StepTotals {
    /// Over these steps.
    pub fn of<'a>(steps: impl IntoIterator<Item = &'a StepTiming>) -> Self {
        let mut totals = Self::default();
        for step in steps {
            totals.add(step);
        }
        totals
    }

    /// Takes a step in.
    pub fn add(&mut self, step: &StepTiming) {
        let totals = step.phase_totals();
        self.steps += 1;
        self.step_us += u64::from(step.dur_us);
        self.samples += u64::from(step.samples);
        self.hidden_us += u64::from(step.hidden_us);
        self.exposed_us += totals[Phase::Wait.index()] + totals[Phase::Transfer.index()];
    }

    /// Samples a second; `None` where steps tell no samples or no length.
    pub fn samples_per_second(&self) -> Option<f64> {
        (self.samples > 0 && self.step_us > 0).then(|| self.samples as f64 * 1e6 / self.step_us as f64)
    }

    /// Whether they tell of an allreduce.
    pub fn meets(&self) -> bool {
        self.hidden_us + self.exposed_us > 0
    }

    /// The share of the allreduce that was hidden, 0 to 1; `None` without an allreduce.
    pub fn overlap(&self) -> Option<f64> {
        let all = self.hidden_us + self.exposed_us;
        (all > 0).then(|| self.hidden_us as f64 / all as f64)
    }

    /// What a step stood still for its allreduce on the average, microseconds; `None` without a step.
    pub fn mean_exposed_us(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.exposed_us as f64 / self.steps as f64)
    }
}

impl AddAssign for StepTotals {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.step_us += other.step_us;
        self.samples += other.samples;
        self.hidden_us += other.hidden_us;
        self.exposed_us += other.exposed_us;
    }
}

/// What one of several that train has worked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worked {
    /// Steps.
    pub steps: u64,
    /// Samples of them.
    pub samples: u64,
    /// How long they took, microseconds.
    pub us: u64,
    /// Whether they tell of an allreduce.
    pub meets: bool,
}

/// The samples a second of each, in order; 0 where it tells none. Of those that meet in an allreduce none is quicker than the one
/// whose steps take the longest: outside of its own steps each waits for that one.
pub fn rates(each: &[Worked]) -> Vec<f64> {
    let tells = |one: &&Worked| one.samples > 0 && one.us > 0;
    let telling = || each.iter().filter(tells);
    let do_meet = telling().all(|one| one.meets && one.steps > 0);
    let longest = telling().map(|one| one.us as f64 / one.steps.max(1) as f64).reduce(f64::max);
    let rate = |one: &Worked| match longest.filter(|_| do_meet) {
        Some(step_us) => one.samples as f64 * 1e6 / (step_us * one.steps as f64),
        None => one.samples as f64 * 1e6 / one.us as f64,
    };
    each.iter().map(|one| if tells(&one) { rate(one) } else { 0.0 }).collect()
}

/// The same of all together; `None` where none of them tells samples.
pub fn rate_of_all(each: &[Worked]) -> Option<f64> {
    let sum: f64 = rates(each).iter().sum();
    (sum > 0.0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;
    use crate::domain::timing::PhaseSpan;

    fn step(spans: &[(Phase, u32)], hidden_us: u32) -> StepTiming {
        let spans =
            spans.iter().map(|(phase, dur_us)| PhaseSpan { phase: *phase, start_us: 0, dur_us: *dur_us });
        let (start, spans) = (HostTime(0), spans.collect());
        StepTiming { step: 1, start, dur_us: 20_000, loss: None, samples: 32, spans, hidden_us }
    }

    #[test]
    fn what_is_hidden_is_a_share_of_the_whole_allreduce() {
        let steps = [
            step(&[(Phase::Backward, 900), (Phase::Wait, 100), (Phase::Transfer, 200)], 500),
            step(&[(Phase::Wait, 0), (Phase::Transfer, 0)], 200),
        ];
        let totals = StepTotals::of(&steps);
        assert_eq!((totals.overlap(), totals.samples_per_second()), (Some(0.7), Some(1_600.0)));
        assert_eq!((totals.mean_exposed_us(), StepTotals::of(&[]).mean_exposed_us()), (Some(150.0), None));
        assert_eq!(StepTotals::of(&[step(&[(Phase::Wait, 4)], 0)]).overlap(), Some(0.0));
        assert_eq!(StepTotals::of(&[step(&[(Phase::Backward, 4)], 0)]).overlap(), None);
        assert_eq!(StepTotals::of(&[]).samples_per_second(), None);
    }

    #[test]
    fn those_that_meet_are_as_quick_as_the_one_that_takes_the_longest() {
        let worked = |samples, us, meets| Worked { steps: 10, samples, us, meets };
        // rank 0 saves between its steps for as long as rank 1 waits within its own
        assert_eq!(rates(&[worked(100, 500_000, true), worked(100, 1_000_000, true)]), [100.0, 100.0]);
        assert_eq!(rate_of_all(&[worked(100, 500_000, false), worked(100, 1_000_000, false)]), Some(300.0));
        assert_eq!(rate_of_all(&[worked(0, 500_000, true), worked(100, 1_000_000, true)]), Some(100.0));
        assert_eq!(rate_of_all(&[worked(0, 5, true)]), None);
        // one that left early did its steps as quickly as the others
        let left = Worked { steps: 5, ..worked(50, 250_000, true) };
        assert_eq!(rates(&[left, worked(100, 1_000_000, true)]), [100.0, 100.0]);
    }
}
