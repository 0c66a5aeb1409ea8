//! `synthetic`: a gradient of any size and computing of any length, without data: what sums over ranks cost a training
//! of that shape, and how much of it hides behind the computing.
//!
//! The computing is matrix products, as many as take the time asked for when nothing else is done: a rank whose core
//! is shared with the allreduce takes longer, as in a real training. One third is the forward pass. Gradients are such
//! that all parameters must move in known proportions, so every run also checks its sums for values that came to a wrong
//! place or from a wrong step.

use std::hint::black_box;
use std::time::Duration;

use super::TrainOptions;
use super::error::WorkerError;
use super::model::matmul::{Store, View, multiply};
use super::model::optimizer::Rule;
use super::model::sink::Sink;
use super::task::{Batch, Busy, Defaults, Score, Task, own_part};
use crate::clock::host_nanos;

/// What the job `synthetic` is asked for. `None`: its own default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyntheticOptions {
    /// Bytes of gradient, as 32-bit floating point.
    pub gradient: Option<usize>,
    /// Computing of a step, forward and backward together.
    pub compute: Option<Duration>,
    /// Steps of an epoch.
    pub steps: Option<u64>,
}

/// 100 MB is the gradient of a `ResNet`-50.
const GRADIENT: usize = 100 << 20;
const COMPUTE: Duration = Duration::from_millis(20);
const STEPS: u64 = 100;
/// Layers that the gradient is divided into, all as great: so many, that computing and sending can interleave.
const LAYERS: usize = 64;
/// Rows and columns of the matrices.
const SIDE: usize = 64;
/// A layer's value has one of so many gradients in turn, so that a value in a wrong place is seen.
const PERIOD: usize = 7;
/// The shortest time that is measured, ns.
const SHORTEST: u64 = 2_000_000;
/// Exact in binary, like its multiples.
const RATE: f32 = 1.0 / 1024.0;

/// The job: sizes, and the matrices of one product.
pub(super) struct Synthetic {
    layers: Vec<usize>,
    /// Computing of a step, and the products that take as long.
    compute: Duration,
    products: u64,
    steps: u64,
    /// Samples of a step over all ranks.
    batch: usize,
    /// Of the loaded batch, on this rank.
    samples: usize,
    left: Vec<f32>,
    right: Vec<f32>,
    product: Vec<f32>,
}

impl Synthetic {
    /// For `world` ranks. Measures how long a product takes.
    pub(super) fn new(options: &TrainOptions, world: u32) -> Result<Self, WorkerError> {
        let must = |option, must_be| Err(WorkerError::Option { option, must_be });
        let asked = options.synthetic;
        let params = asked.gradient.unwrap_or(GRADIENT) / size_of::<f32>();
        let (steps, compute) = (asked.steps.unwrap_or(STEPS), asked.compute.unwrap_or(COMPUTE));
        if params == 0 {
            return must("--gradient", "at least 4 bytes, which are one value");
        }
        if steps == 0 {
            return must("--steps", "at least 1");
        }
        if options.threads.is_some_and(|threads| threads > 1) {
            return must("--threads", "1 for synthetic, which computes on one");
        }
        // Without another word each rank has one sample.
        let each = options.batch_per_rank.unwrap_or(1).saturating_mul(world as usize);
        let batch = options.batch.unwrap_or(each);
        if (batch as u64).checked_mul(steps).is_none_or(|samples| samples > 1 << 26) {
            return must(
                "--steps",
                "so few, and --batch so small, that all steps have at most 67,108,864 samples",
            );
        }
        let matrix = |seed: usize| (0..SIDE * SIDE).map(|at| ((at * seed) % 13) as f32 / 13.0).collect();
        let layers = LAYERS.min(params);
        let mut synthetic = Self {
            layers: (0..layers).map(|at| cut(params as u64, at, layers) as usize).collect(),
            compute,
            products: 0,
            steps,
            batch,
            samples: 0,
            left: matrix(5),
            right: matrix(7),
            product: vec![0.0; SIDE * SIDE],
        };
        synthetic.products = synthetic.calibrated(compute);
        Ok(synthetic)
    }

    /// How many products take this long: by the fastest of a few measurements, as others may be at work meanwhile.
    fn calibrated(&mut self, compute: Duration) -> u64 {
        if compute.is_zero() {
            return 0;
        }
        let mut count = 1;
        let mut best = f64::INFINITY;
        let mut measured = 0;
        while measured < 8 {
            let began = host_nanos();
            self.compute(count);
            let took = host_nanos().saturating_sub(began).max(1);
            if took < SHORTEST {
                count *= 2;
                continue;
            }
            best = best.min(took as f64 / count as f64);
            measured += 1;
        }
        ((compute.as_nanos() as f64 / best).round() as u64).max(1)
    }

    fn compute(&mut self, products: u64) {
        for _ in 0..products {
            let (left, right) =
                (View::rows(&self.left, SIDE, SIDE, SIDE), View::rows(&self.right, SIDE, SIDE, SIDE));
            multiply(&mut self.product, SIDE, Store::Replace, black_box(left), right);
            black_box(&mut self.product);
        }
    }
}

/// The `at`-th of `parts` parts of `whole`, which differ by one at most.
fn cut(whole: u64, at: usize, parts: usize) -> u64 {
    let until = |at: usize| (u128::from(whole) * at as u128 / parts as u128) as u64;
    until(at + 1) - until(at)
}

/// What each sample adds to a value's gradient.
fn slope(value: usize) -> f32 {
    (1 + value % PERIOD) as f32
}

impl Task for Synthetic {
    fn name(&self) -> &'static str {
        "synthetic"
    }

    fn defaults(&self) -> Defaults {
        Defaults { epochs: 1, batch: self.batch, rate: RATE }
    }

    fn samples(&self) -> usize {
        self.steps as usize * self.batch
    }

    fn layers(&self) -> Vec<usize> {
        self.layers.clone()
    }

    fn initialise(&self, _seed: u64) -> Vec<f32> {
        vec![0.0; self.layers.iter().sum()]
    }

    fn rule(&self) -> Rule {
        Rule::Sgd { momentum: 0.0 }
    }

    fn load(&mut self, batch: &Batch<'_>) {
        self.samples = batch.samples.len();
    }

    fn forward(&mut self, _params: &[f32]) -> f64 {
        if self.samples > 0 {
            self.compute(self.products / 3);
        }
        0.0
    }

    fn backward(&mut self, _params: &[f32], gradient: &mut dyn Sink<f32>) {
        let products = self.products - self.products / 3;
        let count = self.layers.len();
        for layer in (0..count).rev() {
            if self.samples > 0 {
                self.compute(cut(products, layer, count));
                let one: [f32; PERIOD] = std::array::from_fn(|at| self.samples as f32 * slope(at));
                for values in gradient.at(layer).chunks_mut(PERIOD) {
                    values.iter_mut().zip(one).for_each(|(value, one)| *value += one);
                }
            }
            gradient.ready(layer);
        }
    }

    fn busy(&self) -> Option<Busy> {
        Some(Busy { compute: self.compute, period: PERIOD })
    }

    /// The share of values that don't have what the sums of all steps must have given them.
    fn metric(&self) -> &'static str {
        "wrong"
    }

    fn evaluate(&mut self, params: &[f32], rank: u32, world: u32) -> Score {
        let own = own_part(0, params.len(), rank, world);
        // A value has moved in proportion to its slope; a layer's first by one. Sixteen bits keep three digits.
        let unit = params.first().copied().unwrap_or_default();
        let mut first = 0;
        let mut wrong = 0;
        for len in &self.layers {
            for (at, value) in (0..).zip(&params[first..first + len]) {
                let expected = unit * slope(at);
                let near = (value - expected).abs() <= 0.01 * expected.abs();
                wrong += usize::from(own.contains(&(first + at)) && !(near && unit < 0.0));
            }
            first += len;
        }
        Score { sum: wrong as f64, count: own.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::model::sink::Flat;

    fn made(gradient: usize, micros: u64) -> Synthetic {
        let synthetic = SyntheticOptions {
            gradient: Some(gradient),
            compute: Some(Duration::from_micros(micros)),
            steps: Some(3),
        };
        Synthetic::new(&TrainOptions { synthetic, ..TrainOptions::default() }, 2).unwrap()
    }

    #[test]
    fn the_gradient_is_as_great_as_asked_for_and_any_value_of_it_that_is_wrong_is_seen() {
        for bytes in [4, 12, 4096, 1_000_000] {
            let mut job = made(bytes, 0);
            let layers = job.layers();
            let params: usize = layers.iter().sum();
            assert_eq!(params, bytes / 4);
            assert!(layers.iter().max().unwrap() - layers.iter().min().unwrap() <= 1);
            job.load(&Batch { samples: &[0, 1], first: 0, seed: 0 });
            let mut gradient = vec![0.0; params];
            job.forward(&[]);
            job.backward(&[], &mut Flat::new(&mut gradient, &layers));
            let mut moved: Vec<f32> = gradient.iter().map(|value| -RATE * value).collect();
            let wrong = |job: &mut Synthetic, params: &[f32]| {
                (0..3)
                    .map(|rank| job.evaluate(params, rank, 3))
                    .map(|score| score.sum as usize)
                    .sum::<usize>()
            };
            assert_eq!(wrong(&mut job, &moved), 0);
            assert_eq!(wrong(&mut job, &vec![0.0; params]), params, "nothing has moved");
            if params > 100 {
                moved[77] *= 0.9;
                moved.swap(90, 91);
                assert_eq!(wrong(&mut job, &moved), 3);
            }
        }
    }

    #[test]
    fn computing_is_measured_and_divided_among_layers() {
        assert_eq!(made(4, 0).products, 0);
        assert!(made(4, 1_000).products >= 1);
        let (whole, parts) = (1000, 64);
        assert_eq!((0..parts).map(|at| cut(whole, at, parts)).sum::<u64>(), whole);
    }

    #[test]
    fn what_can_not_be_is_said() {
        let with = |synthetic, threads| {
            let options = TrainOptions { threads, synthetic, ..TrainOptions::default() };
            Synthetic::new(&options, 1).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let asked = SyntheticOptions { compute: Some(Duration::ZERO), ..SyntheticOptions::default() };
        assert!(with(SyntheticOptions { gradient: Some(3), ..asked }, None).starts_with("--gradient"));
        assert!(with(SyntheticOptions { steps: Some(0), ..asked }, None).starts_with("--steps"));
        assert!(with(SyntheticOptions { steps: Some(u64::MAX), ..asked }, None).starts_with("--steps"));
        assert!(with(asked, Some(2)).starts_with("--threads"));
        assert!(with(asked, Some(1)).is_empty());
    }
}
