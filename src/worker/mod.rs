//! One rank of hvtui's own training jobs: real data, real gradients, data-parallel over any number of ranks.
//!
//! Layer 3. Knows its environment, the collective and the report file; knows nothing of hosts, ssh, runs or screens.
//!
//! The rooms: `train` is the loop, `schedule` says when what is done, `checkpointer` and `checkpoint` keep what it has come to.
//! A `task` is a job: `diabetes`, `synthetic`, and those that classify `images` (`classifier`): `digits`, `mnist`. A `replica`
//! is a rank's model where it is computed, `cpu` or `gpu`; `device` chooses. `session`, `step` and `gradients` are what a job
//! of one's own uses as well; `model` has the layers, `bench` measures the collective.

pub mod bench;
mod checkpoint;
mod checkpointer;
mod classifier;
mod cpu;
mod data;
mod device;
mod diabetes;
mod digits;
mod env;
mod error;
mod flight;
pub mod gpu;
mod gradients;
mod group;
mod images;
pub mod mnist;
pub mod model;
mod replica;
mod report;
mod sampler;
mod schedule;
mod session;
mod step;
mod stopwatch;
mod synthetic;
mod task;
mod train;

use std::io::Write;
use std::path::PathBuf;

pub use device::Device;
pub use env::RankEnv;
pub use error::WorkerError;
pub use gradients::{BucketOptions, Gradients};
pub use session::Session;
pub use step::{Step, Together};
pub use synthetic::SyntheticOptions;
pub use task::JOBS;

/// What `hvtui train` is asked to do. `None`: the job's own default.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct TrainOptions {
    /// One of [`JOBS`].
    pub job: String,
    /// Passes over the training data.
    pub epochs: Option<u32>,
    /// Samples a step, over all ranks together.
    pub batch: Option<usize>,
    /// Samples a step of each rank, instead of `batch`.
    pub batch_per_rank: Option<usize>,
    /// Learning rate.
    pub lr: Option<f32>,
    /// Whether the learning rate is multiplied by the number of ranks.
    pub scale_lr: bool,
    /// Epochs in which the learning rate rises from `1 / ranks` of what it comes to.
    pub warmup: f32,
    /// Seed of everything random: initial weights, order of samples, dropout.
    pub seed: u64,
    /// Threads of this rank; `None`: one.
    pub threads: Option<usize>,
    /// Where the ranks train.
    pub device: Device,
    /// Gradients travel as 16-bit floating point.
    pub half: bool,
    /// Bytes of a bucket of gradients; `None`: 1 MiB for the first, 25 MiB for the others.
    pub bucket: Option<usize>,
    /// Gradients leave when all of them are there, not while others are being computed.
    pub no_overlap: bool,
    /// Where rank 0 keeps what training has come to.
    pub checkpoint: Option<PathBuf>,
    /// After how many steps it is written besides the end of each epoch.
    pub checkpoint_every: Option<u64>,
    /// Training goes on from the checkpoint, if there is one.
    pub resume: bool,
    /// Where the data set of `mnist` is; `None`: where `HVTUI_DATA` says, else the usual places.
    pub data: Option<PathBuf>,
    /// What `synthetic` does.
    pub synthetic: SyntheticOptions,
}

/// Trains as the rank that the environment names (without one: as a run of its own). Lines for people go to `out`,
/// reports to the file that `HVTUI_REPORT` names. Returns when training is over on this rank.
pub fn run(options: &TrainOptions, out: &mut dyn Write) -> Result<(), WorkerError> {
    run_as(options, &RankEnv::from_process()?, out)
}

/// Trains as the given rank.
pub fn run_as(options: &TrainOptions, env: &RankEnv, out: &mut dyn Write) -> Result<(), WorkerError> {
    let task = task::named(options, env.world)?;
    train::train(options, task, env, out)
}
