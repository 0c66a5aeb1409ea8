//! One rank of hvtui's own training jobs: real data, real gradients, data-parallel over any number of ranks.
//!
//! Layer 3. Knows its environment, the collective and the report file; knows nothing of hosts, ssh, runs or screens.

pub mod bench;
mod data;
mod diabetes;
mod digits;
mod env;
mod error;
mod flight;
mod group;
mod images;
pub mod mnist;
pub mod model;
mod report;
mod sampler;
mod stopwatch;
mod task;
mod train;

use std::io::Write;

pub use env::RankEnv;
pub use error::WorkerError;
pub use task::JOBS;

/// What `hvtui train` is asked to do. `None`: the job's own default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainOptions {
    /// One of [`JOBS`].
    pub job: String,
    /// Passes over the training data.
    pub epochs: Option<u32>,
    /// Samples a step, over all ranks together.
    pub batch: Option<usize>,
    /// Learning rate.
    pub lr: Option<f32>,
    /// Seed of everything random: initial weights, order of samples, dropout.
    pub seed: u64,
    /// Threads of this rank; `None`: one.
    pub threads: Option<usize>,
}

/// Trains as the rank that the environment names (without one: as a run of its own). Lines for people go to `out`,
/// reports to the file that `HVTUI_REPORT` names. Returns when training is over on this rank.
pub fn run(options: &TrainOptions, out: &mut dyn Write) -> Result<(), WorkerError> {
    run_as(options, &RankEnv::from_process()?, out)
}

/// Trains as the given rank.
pub fn run_as(options: &TrainOptions, env: &RankEnv, out: &mut dyn Write) -> Result<(), WorkerError> {
    let task = task::named(options)?;
    train::train(options, task, env, out)
}
