//! How much shorter the run would be without what one rank loses in one phase: the critical path over the steps.
//!
//! A step ends when the last rank has come to its allreduce. Without the last rank's excess in a phase (what it took longer
//! there than a typical other rank) it comes so much earlier, but the step ends no earlier than the second last comes.

use serde::{Deserialize, Serialize};

use super::figures::WhatIf;
use super::gains::Gains;
use crate::domain::ids::Rank;
use crate::domain::straggler::{LEAST_US, Lost};

/// What lies before the allreduce of a step, since the one before.
pub(super) const BEFORE: [Lost; 6] =
    [Lost::Data, Lost::Forward, Lost::Backward, Lost::Transfer, Lost::Optimizer, Lost::BetweenSteps];

/// From this share of the run's time on it is told.
const NAMED_FROM: f64 = 0.01;
/// What is less a step is told all the same from this share of the run's time on, and so many microseconds of it.
const SHORT_STEPS_FROM: f64 = 0.05;
const SHORT_STEPS_US: u64 = 1_000_000;

/// Sums of one rank, as [`BEFORE`].
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(super) struct WhatIfSums {
    /// What the steps in which it came last would be shorter, microseconds.
    gains: [Gains; BEFORE.len()],
    /// What it took longer than a typical other rank in all steps: about 0 where it is late by chance.
    excess_us: [i64; BEFORE.len()],
}

impl WhatIfSums {
    /// A step, whichever rank came last in it.
    pub(super) fn typical(&mut self, excess: &[i64; BEFORE.len()]) {
        self.excess_us.iter_mut().zip(excess).for_each(|(own, more)| *own = own.saturating_add(*more));
    }

    /// A step in which it came last, and the second last waited so long for it.
    pub(super) fn last(&mut self, excess: &[i64; BEFORE.len()], caused_us: u32) {
        for (gains, excess) in self.gains.iter_mut().zip(excess) {
            gains.add(
                u32::try_from(excess.clamp(&0, &i64::from(caused_us)).unsigned_abs()).unwrap_or(u32::MAX),
            );
        }
    }

    /// What is worth a word, of a run of so many steps that took so long together.
    pub(super) fn told(&self, rank: Rank, steps: u64, step_us: u64) -> impl Iterator<Item = WhatIf> + '_ {
        BEFORE.into_iter().zip(&self.gains).zip(self.excess_us).filter_map(
            move |((phase, gains), excess_us)| {
                // what comes by chance costs time in some steps and saves it in others
                let gain_us = gains.recurring(steps)?.min(excess_us.max(0).unsigned_abs());
                let share = gain_us as f64 / step_us.max(1) as f64;
                (matters(gain_us, steps, step_us) && share >= NAMED_FROM).then_some(WhatIf {
                    rank,
                    phase,
                    gain_us,
                    share,
                    in_steps: gains.steps,
                    of_steps: steps,
                })
            },
        )
    }
}

/// Whether what is lost in so many steps, which took so long together, is worth a word. As live: ranks that are apart by less than a
/// message takes are even, unless that is much of a long run of short steps.
pub(super) fn matters(us: u64, steps: u64, step_us: u64) -> bool {
    let is_much = us as f64 >= SHORT_STEPS_FROM * step_us as f64 && us >= SHORT_STEPS_US;
    us > steps.saturating_mul(LEAST_US) || is_much
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_last_bounds_what_is_gained() {
        let mut sums = WhatIfSums::default();
        for step in 0..100 {
            let late = step % 2 == 0;
            let excess = if late { [30_000, 0, 0, 0, 0, 0] } else { [0; 6] };
            sums.typical(&excess);
            if late {
                sums.last(&excess, 20_000);
            }
        }
        let told: Vec<WhatIf> = sums.told(Rank(3), 100, 10_000_000).collect();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].rank, told[0].phase, told[0].gain_us), (Rank(3), Lost::Data, 1_000_000));
        assert!((told[0].share - 0.1).abs() < 1e-12 && (told[0].in_steps, told[0].of_steps) == (50, 100));
    }

    #[test]
    fn what_is_shorter_than_a_message_takes_is_not_told() {
        let told = |us: u32| {
            let mut sums = WhatIfSums::default();
            for _ in 0..100 {
                let excess = [0, us.into(), 0, 0, 0, 0];
                sums.typical(&excess);
                sums.last(&excess, us);
            }
            sums.told(Rank(1), 100, 100 * 400).count()
        };
        assert_eq!([10, 100, 101].map(told), [0, 0, 1], "of steps of 400 µs");
        let much = |us, steps| matters(us * steps, steps, 300 * steps);
        assert!(much(69, 100_000) && !much(10, 100_000), "23 % of 30 s, 3 %");
        assert!(!much(69, 1000), "23 % of 0.3 s");
    }

    #[test]
    fn chance_and_single_steps_are_not_told() {
        let mut chance = WhatIfSums::default();
        let mut once = WhatIfSums::default();
        for step in 0..100 {
            let excess = if step % 2 == 0 { [0, 20_000, 0, 0, 0, 0] } else { [0, -20_000, 0, 0, 0, 0] };
            chance.typical(&excess);
            if step % 2 == 0 {
                chance.last(&excess, 20_000);
            }
            let excess = if step == 7 { [0, 0, 0, 0, 0, 5_000_000] } else { [0; 6] };
            once.typical(&excess);
            if step == 7 {
                once.last(&excess, 5_000_000);
            }
        }
        assert_eq!(chance.told(Rank(0), 100, 10_000_000).count(), 0);
        assert_eq!(once.told(Rank(0), 100, 10_000_000).count(), 0, "one step is no habit");
    }
}
