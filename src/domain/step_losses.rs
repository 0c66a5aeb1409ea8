//! The first and the least loss of a run, step by step: a step's loss is the mean of those that its ranks tell. The report has the
//! same from all of a recording; here it is kept as the run goes on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// So many steps wait for the losses of more ranks; then the oldest counts with those that it has.
const OPEN: usize = 64;

/// What is known of the losses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepLosses {
    /// Steps of which more may be told.
    open: BTreeMap<u64, Told>,
    /// The earliest step that is whole, and its loss.
    first: Option<(u64, f32)>,
    least: Option<f32>,
    /// How many ranks told the loss of the last step that counts.
    usual: u32,
}

/// The losses that were told of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Told {
    sum: f64,
    count: u32,
}

impl Told {
    fn mean(self) -> f32 {
        (self.sum / f64::from(self.count.max(1))) as f32
    }
}

impl StepLosses {
    /// One of so many ranks tells its loss of a step, which is a number.
    pub(super) fn take(&mut self, step: u64, loss: f32, ranks: usize) {
        let told = self.open.entry(step).or_default();
        told.sum += f64::from(loss);
        told.count = told.count.saturating_add(1);
        if told.count as usize >= ranks {
            self.close(step);
        }
        while self.open.len() > OPEN
            && let Some(oldest) = self.open.keys().next().copied()
        {
            self.close(oldest);
        }
    }

    fn close(&mut self, step: u64) {
        let Some(told) = self.open.remove(&step) else { return };
        let loss = told.mean();
        self.usual = told.count;
        if self.first.is_none_or(|(first, _)| step < first) {
            self.first = Some((step, loss));
        }
        self.least = Some(self.least.map_or(loss, |least| least.min(loss)));
    }

    /// The loss of the first step.
    pub(super) fn first(&self) -> Option<f32> {
        let of_open = || self.open.values().next().map(|told| told.mean());
        self.first.map(|(_, loss)| loss).or_else(of_open)
    }

    /// The least loss of a step, also of one of which as many have told theirs as usual.
    pub(super) fn least(&self) -> Option<f32> {
        let as_usual = self.open.values().filter(|told| told.count >= self.usual).map(|told| told.mean());
        as_usual.chain(self.least).reduce(f32::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_with_the_mean_of_its_ranks_in_whatever_order_they_tell_it() {
        let mut losses = StepLosses::default();
        assert_eq!((losses.first(), losses.least()), (None, None));
        // one host tells ten steps before the other one does
        for rank in 0..4_u32 {
            for step in 1..=10_u64 {
                losses.take(step, 3.0 - step as f32 / 10.0 + rank as f32, 4);
            }
        }
        assert_eq!((losses.first(), losses.least()), (Some(4.4), Some(3.5)));
        losses.take(11, 0.1, 4);
        assert_eq!(losses.least(), Some(3.5), "the loss of one rank is not that of the step");
    }

    #[test]
    fn where_one_rank_alone_tells_it_that_counts() {
        let mut losses = StepLosses::default();
        for step in 1..=500_u64 {
            losses.take(step, 500.0 - step as f32, 4);
        }
        assert!(losses.open.len() <= OPEN);
        assert_eq!((losses.first(), losses.least()), (Some(499.0), Some(0.0)));
    }
}
