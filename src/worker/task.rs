//! What the training loop asks of a job, and the jobs there are.

use std::time::Duration;

use super::classifier::Classifier;
use super::diabetes::Diabetes;
use super::digits::{self, Digits};
use super::error::WorkerError;
use super::images::Painter;
use super::mnist::{self, Mnist};
use super::model::optimizer::Rule;
use super::model::sink::Sink;
use super::synthetic::Synthetic;
use super::{SyntheticOptions, TrainOptions, sampler};

/// The jobs of `hvtui train`, each with what it does.
pub const JOBS: [(&str, &str); 4] = [
    ("digits", "a small CNN on 1,797 real handwritten digits; classifies at least 95 % of 360 held-out ones"),
    ("diabetes", "linear regression on 442 real patients; ends at the least-squares optimum, mse 2859.70"),
    ("mnist", "the CNN of Horovod's example on the 60,000 images of MNIST, read from files that you have"),
    ("synthetic", "a gradient of any size and computing of any length, without data"),
];

/// What a job trains with when nothing else is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Defaults {
    pub(super) epochs: u32,
    /// Samples a step over all ranks.
    pub(super) batch: usize,
    pub(super) rate: f32,
}

/// Computing of a length, and gradients of known values: 1, 2, … `period` for each sample, in turn within a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy {
    /// Of a step: a third of it forward.
    pub(super) compute: Duration,
    pub(super) period: usize,
}

/// How good a model is: a sum over samples, to be divided by their number.
pub(super) struct Score {
    pub(super) sum: f64,
    pub(super) count: usize,
}

/// A batch, as one rank sees it.
pub(super) struct Batch<'a> {
    /// This rank's samples.
    pub(super) samples: &'a [usize],
    /// Place of its first one within the batch of all ranks.
    pub(super) first: usize,
    /// The same on all ranks, another one each step.
    pub(super) seed: u64,
}

/// One job: data and model. Losses and gradients are sums over samples; the loop divides by the samples of all ranks.
pub(super) trait Task {
    fn name(&self) -> &'static str;
    fn defaults(&self) -> Defaults;
    /// What it learns from, where that is not always the same: a line for people.
    fn source(&self) -> Option<String> {
        None
    }
    /// Samples to train on.
    fn samples(&self) -> usize;
    /// Parameters of each layer.
    fn layers(&self) -> Vec<usize>;
    /// Fresh parameters, layer after layer.
    fn initialise(&self, seed: u64) -> Vec<f32>;
    fn rule(&self) -> Rule;
    /// Gathers a batch.
    fn load(&mut self, batch: &Batch<'_>);
    /// The loss of the loaded batch.
    fn forward(&mut self, params: &[f32]) -> f64;
    /// Adds the gradient of that loss to `gradient`, from the last layer to the first.
    fn backward(&mut self, params: &[f32], gradient: &mut dyn Sink<f32>);
    /// The network and its images, where a GPU can train it.
    fn painter(&self) -> Option<&dyn Painter> {
        None
    }
    /// What a GPU does for it, where that is nothing but to be busy.
    fn busy(&self) -> Option<Busy> {
        None
    }
    /// What [`Task::evaluate`] measures: `accuracy`.
    fn metric(&self) -> &'static str;
    /// How well the parameters do on this rank's share of the data that count.
    fn evaluate(&mut self, params: &[f32], rank: u32, world: u32) -> Score;
}

/// The job that `options` name, for so many ranks.
pub(super) fn named(options: &TrainOptions, world: u32) -> Result<Box<dyn Task>, WorkerError> {
    let threads = options.threads.unwrap_or(1);
    if threads == 0 {
        return Err(WorkerError::Option { option: "--threads", must_be: "at least 1" });
    }
    if options.job != "mnist" && options.data.is_some() {
        return Err(WorkerError::Option {
            option: "--data",
            must_be: "left to mnist: no other job reads files",
        });
    }
    if options.job != "synthetic" && options.synthetic != SyntheticOptions::default() {
        let option = "--gradient, --compute and --steps";
        return Err(WorkerError::Option {
            option,
            must_be: "left to synthetic: other jobs have what they have",
        });
    }
    match options.job.as_str() {
        "digits" => Ok(Box::new(Classifier::new(digits::KIND, Digits::new()?, threads))),
        "mnist" => Ok(Box::new(Classifier::new(mnist::KIND, Mnist::load(options.data.as_deref())?, threads))),
        "synthetic" => Ok(Box::new(Synthetic::new(options, world)?)),
        "diabetes" => Ok(Box::new(Diabetes::new()?)),
        name => {
            Err(WorkerError::UnknownJob { name: name.to_owned(), jobs: JOBS.map(|(job, _)| job).join(", ") })
        }
    }
}

/// This rank's part of the samples `from..from + count`.
pub(super) fn own_part(from: usize, count: usize, rank: u32, world: u32) -> std::ops::Range<usize> {
    let share = sampler::share(count, rank, world);
    from + share.start..from + share.end
}
