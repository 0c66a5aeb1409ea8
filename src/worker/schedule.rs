//! When training does what: epochs, batches, learning rate. Pure, but for the ranks' agreement on it.

use super::TrainOptions;
use super::error::WorkerError;
use super::task::Defaults;
use crate::collective::{Collective, Communicator};

/// The plan of a run: options with the job's defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    pub(super) epochs: u32,
    /// Samples a step over all ranks.
    pub(super) batch: usize,
    pub(super) seed: u64,
    /// Samples of an epoch.
    pub(super) samples: usize,
    rate: f32,
    /// Steps in which the rate rises.
    warmup: u64,
    /// What the rate is divided by before it rises.
    warmup_from: f32,
}

impl Schedule {
    /// Of `world` ranks that train on `samples` samples.
    pub(super) fn new(
        options: &TrainOptions,
        defaults: Defaults,
        samples: usize,
        world: u32,
    ) -> Result<Self, WorkerError> {
        let batch = match (options.batch, options.batch_per_rank) {
            (_, Some(0)) => return Err(must("--batch-per-rank", "at least 1")),
            (_, Some(each)) => each.saturating_mul(world as usize),
            (batch, None) => batch.unwrap_or(defaults.batch),
        };
        let mut rate = options.lr.unwrap_or(defaults.rate);
        let epochs = options.epochs.unwrap_or(defaults.epochs);
        if epochs == 0 {
            return Err(must("--epochs", "at least 1"));
        }
        if batch == 0 {
            return Err(must("--batch", "at least 1"));
        }
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(must("--lr", "a number above 0"));
        }
        if !(options.warmup >= 0.0 && options.warmup.is_finite()) {
            return Err(must("--warmup", "a number of epochs, 0 or more"));
        }
        if options.scale_lr {
            rate *= world as f32;
        }
        if !rate.is_finite() {
            return Err(must("--lr", "a number that --scale-lr doesn't make infinite"));
        }
        let mut schedule =
            Self { epochs, batch, seed: options.seed, samples, rate, warmup: 0, warmup_from: world as f32 };
        schedule.warmup = (f64::from(options.warmup) * schedule.steps_an_epoch() as f64) as u64;
        Ok(schedule)
    }

    /// All ranks must follow rank 0's plan: each compares, and says what differs.
    pub(super) fn agree(&self, ranks: &mut dyn Communicator) -> Result<(), WorkerError> {
        let plan = [
            ("samples to train on:", self.samples as u64),
            ("--batch", self.batch as u64),
            ("--epochs", u64::from(self.epochs)),
            ("--seed", self.seed),
            ("a learning rate of", u64::from(self.rate.to_bits())),
            ("steps of warm-up:", self.warmup),
        ];
        let mut root = plan.map(|(_, value)| value as i64);
        ranks.broadcast(0, &mut root)?;
        let differs = plan.into_iter().zip(root).find(|((_, own), theirs)| *own != *theirs as u64);
        let Some(((what, own), theirs)) = differs else { return Ok(()) };
        let words = |value: u64| match what {
            "a learning rate of" => f32::from_bits(value as u32).to_string(),
            _ => value.to_string(),
        };
        Err(WorkerError::Differs { rank: ranks.rank(), what, own: words(own), theirs: words(theirs as u64) })
    }

    /// Steps of an epoch.
    pub(super) fn steps_an_epoch(&self) -> u64 {
        self.samples.div_ceil(self.batch) as u64
    }

    /// Steps in all.
    pub(super) fn total_steps(&self) -> u64 {
        u64::from(self.epochs) * self.steps_an_epoch()
    }

    /// The learning rate of a step, the first being 1: it rises in a line from `rate / ranks` (Goyal et al., 2017).
    pub(super) fn rate(&self, step: u64) -> f32 {
        if step > self.warmup {
            return self.rate;
        }
        let (least, risen) = (self.rate / self.warmup_from, step as f32 / (self.warmup as f32 + 1.0));
        least + (self.rate - least) * risen
    }
}

fn must(option: &'static str, be: &'static str) -> WorkerError {
    WorkerError::Option { option, must_be: be }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults = Defaults { epochs: 3, batch: 32, rate: 0.1 };

    fn of(options: &TrainOptions, world: u32) -> Schedule {
        Schedule::new(options, DEFAULTS, 100, world).unwrap()
    }

    #[test]
    fn batches_are_of_all_ranks_or_of_each() {
        let plain = TrainOptions::default();
        assert_eq!((of(&plain, 4).batch, of(&plain, 4).total_steps()), (32, 12));
        let each = TrainOptions { batch_per_rank: Some(5), epochs: Some(1), ..plain };
        assert_eq!((of(&each, 4).batch, of(&each, 4).total_steps()), (20, 5));
    }

    #[test]
    fn the_rate_is_scaled_by_the_ranks_and_rises() {
        let rates = |options: &TrainOptions| {
            let schedule = of(options, 4);
            (1..=10).map(|step| schedule.rate(step)).collect::<Vec<_>>()
        };
        let flat = |rate: f32, rates: Vec<f32>| rates.iter().all(|own| own.to_bits() == rate.to_bits());
        assert!(flat(0.1, rates(&TrainOptions::default())));
        assert!(flat(0.4, rates(&TrainOptions { scale_lr: true, ..Default::default() })));
        // Two epochs of four steps: from 0.1 on to 0.4, which the ninth step has.
        let rising = rates(&TrainOptions { scale_lr: true, warmup: 2.0, ..Default::default() });
        assert!(rising.windows(2).take(8).all(|pair| pair[0] < pair[1]), "{rising:?}");
        assert!(rising[0] > 0.1 && rising[0] < 0.15, "{rising:?}");
        assert!(rising[8..].iter().all(|rate| rate.to_bits() == 0.4_f32.to_bits()), "{rising:?}");
    }
}
