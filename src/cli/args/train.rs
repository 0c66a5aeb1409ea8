//! `train`: what one rank of hvtui's own jobs is told.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::domain::units::parse_duration;
use crate::worker::{Device, SyntheticOptions, TrainOptions, bench};

/// `train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The job
    #[arg(value_enum)]
    pub job: TrainJob,
    /// Passes over the training data [default: the job's own]
    #[arg(long, value_name = "N")]
    pub epochs: Option<u32>,
    /// Samples a step, over all ranks together [default: the job's own]
    #[arg(long, value_name = "N", conflicts_with = "batch_per_rank")]
    pub batch: Option<usize>,
    /// Samples a step of each rank: the step grows with the ranks, as in Horovod's examples
    #[arg(long, value_name = "N")]
    pub batch_per_rank: Option<usize>,
    /// Learning rate [default: the job's own]
    #[arg(long, value_name = "RATE")]
    pub lr: Option<f32>,
    /// Multiply the learning rate by the number of ranks
    #[arg(long)]
    pub scale_lr: bool,
    /// Epochs in which the learning rate rises from 1/ranks of what it comes to
    #[arg(long, value_name = "EPOCHS", default_value_t = 0.0)]
    pub warmup: f32,
    /// Seed of everything random: first weights, order of samples, dropout
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Threads of each rank
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Where to train: on GPUs where every rank has one, on the CPU, or on GPUs or not at all
    #[arg(long, value_enum, value_name = "WHERE", default_value = "auto")]
    pub device: DeviceArg,
    /// Where MNIST is: its .npz file, or the folder with this or the IDX files [default: see below]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// What synthetic does
    #[command(flatten, next_help_heading = "Synthetic")]
    pub synthetic: SyntheticArgs,
    /// How gradients travel
    #[command(flatten, next_help_heading = "Gradients")]
    pub gradients: GradientArgs,
    /// What is kept
    #[command(flatten, next_help_heading = "Checkpoint")]
    pub checkpoint: CheckpointArgs,
}

/// What `synthetic` does.
#[derive(Debug, Args)]
pub struct SyntheticArgs {
    /// Bytes of gradient that the ranks sum up each step [default: 100M]
    #[arg(long, value_name = "SIZE", value_parser = bench::bytes)]
    pub gradient: Option<usize>,
    /// Computing of each step, measured where nothing else is done [default: 20ms]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub compute: Option<Duration>,
    /// Steps of an epoch [default: 100]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| format!("'{text}' is no length of time; write 20ms or 1.5s"))
}

/// How gradients travel.
#[derive(Debug, Args)]
pub struct GradientArgs {
    /// Gradients travel as 16-bit floating point: half the bytes, about three digits
    #[arg(long)]
    pub fp16_allreduce: bool,
    /// Bytes from which on a bucket of gradients leaves [default: 1M for the first, 25M for the others]
    #[arg(long, value_name = "SIZE", value_parser = bench::bytes)]
    pub bucket: Option<usize>,
    /// Let gradients leave when all are there, not while others are being computed
    #[arg(long)]
    pub no_overlap: bool,
}

/// What is kept of a training.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// Where rank 0 keeps parameters and optimizer, written at the end of each epoch
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Write it after each N steps too
    #[arg(long, value_name = "N")]
    pub checkpoint_every: Option<u64>,
    /// Go on from the checkpoint, if there is one: bit for bit as if nothing had happened
    #[arg(long)]
    pub resume: bool,
}

impl TrainArgs {
    /// As the worker takes it.
    pub fn options(&self) -> TrainOptions {
        TrainOptions {
            job: self.job.name().to_owned(),
            epochs: self.epochs,
            batch: self.batch,
            batch_per_rank: self.batch_per_rank,
            lr: self.lr,
            scale_lr: self.scale_lr,
            warmup: self.warmup,
            seed: self.seed,
            threads: Some(self.threads),
            device: match self.device {
                DeviceArg::Auto => Device::Auto,
                DeviceArg::Cpu => Device::Cpu,
                DeviceArg::Gpu => Device::Gpu,
            },
            half: self.gradients.fp16_allreduce,
            bucket: self.gradients.bucket,
            no_overlap: self.gradients.no_overlap,
            checkpoint: self.checkpoint.checkpoint.clone(),
            checkpoint_every: self.checkpoint.checkpoint_every,
            resume: self.checkpoint.resume,
            data: self.data.clone(),
            synthetic: SyntheticOptions {
                gradient: self.synthetic.gradient,
                compute: self.synthetic.compute,
                steps: self.synthetic.steps,
            },
        }
    }
}

/// Where a rank trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceArg {
    /// On a GPU where every rank has one and the job knows how; else on the CPU
    Auto,
    /// On the CPU
    Cpu,
    /// On a GPU, or not at all
    Gpu,
}

/// hvtui's own training jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrainJob {
    /// A small convolutional network on 1,797 handwritten digits
    Digits,
    /// Linear regression on 442 diabetes patients
    Diabetes,
    /// Horovod's network on the 60,000 images of MNIST, from files that you have
    Mnist,
    /// A gradient of any size and computing of any length, without data
    Synthetic,
}

impl TrainJob {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Digits => "digits",
            Self::Diabetes => "diabetes",
            Self::Mnist => "mnist",
            Self::Synthetic => "synthetic",
        }
    }
}
