//! Everything that can stop a worker.

use super::gpu::GpuError;
use super::mnist::MnistError;
use crate::collective::CollectiveError;

/// Why training did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No such job.
    #[error("there is no job '{name}'; there are: {jobs}")]
    UnknownJob {
        /// What was asked for.
        name: String,
        /// What there is.
        jobs: String,
    },
    /// An option that can't be.
    #[error("{option} must be {must_be}")]
    Option {
        /// The flag.
        option: &'static str,
        /// What it must be.
        must_be: &'static str,
    },
    /// A variable of the rank's environment is absent though others of its group are there.
    #[error("{missing} is not set, though {present} is: start ranks with `hvtui run`, or set both")]
    Missing {
        /// What is absent.
        missing: &'static str,
        /// What made it necessary.
        present: &'static str,
    },
    /// A variable of the rank's environment makes no sense.
    #[error("{name}={value}: must be {must_be}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value; `…` for a secret.
        value: String,
        /// What it must be.
        must_be: String,
    },
    /// Embedded data are damaged.
    #[error("the embedded data of '{job}' are damaged: {reason}")]
    Data {
        /// The job.
        job: &'static str,
        /// What is wrong with them.
        reason: String,
    },
    /// The data set of `mnist` is not there, or damaged.
    #[error(transparent)]
    Mnist(#[from] MnistError),
    /// The report file could not be written.
    #[error("report file {path}: {source}")]
    Report {
        /// `HVTUI_REPORT`.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Output(#[source] std::io::Error),
    /// Training has run away.
    #[error("the loss {} is {loss} at step {step}; a smaller --lr may help", of_ranks(.ranks))]
    Diverged {
        /// Whose loss it is; `None` where only the sum is too great.
        ranks: Vec<u32>,
        /// The loss.
        loss: f32,
        /// Where.
        step: u64,
    },
    /// A parameter, or what the optimizer remembers of one, is not a number.
    #[error(
        "a parameter is not a number after step {step}, though the loss is one; a smaller --lr may help, and without --fp16-allreduce gradients may be greater"
    )]
    NotFinite {
        /// Where.
        step: u64,
    },
    /// Ranks were told different things, or have different data.
    #[error(
        "rank {rank} has {what} {own}, and rank 0 has {theirs}: give all ranks the same, and the same data"
    )]
    Differs {
        /// This rank.
        rank: u32,
        /// `--batch`, `samples to train on`.
        what: &'static str,
        /// This rank's.
        own: String,
        /// Rank 0's.
        theirs: String,
    },
    /// A checkpoint could not be written.
    #[error("checkpoint {path}: can't {what}: {source}; what was there before is kept")]
    CheckpointWrite {
        /// The file.
        path: String,
        /// `write`, `put in place`.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A checkpoint could not be read.
    #[error("checkpoint {path}: can't read it: {source}")]
    CheckpointRead {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A checkpoint can't be believed.
    #[error("checkpoint {path}: {reason}; it is left as it is: train without --resume, into another file")]
    CheckpointDamaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint is of another training.
    #[error(
        "checkpoint {path} is of {theirs}, and this is {ours}: give the same again, or another --checkpoint"
    )]
    CheckpointOther {
        /// The file.
        path: String,
        /// What it is of: `--seed 3`.
        theirs: String,
        /// What was asked for.
        ours: String,
    },
    /// A checkpoint is there, and nothing said that it may go.
    #[error(
        "checkpoint {path} is there already: --resume goes on from it; else move it away, or name another"
    )]
    CheckpointExists {
        /// The file.
        path: String,
    },
    /// No bytes go to another rank, or come from it.
    #[error("no bytes go between this rank and rank {rank} on {host}: {source}")]
    Link {
        /// The other rank.
        rank: u32,
        /// Its host.
        host: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Ranks could not be started or watched.
    #[error("can't {what}: {source}")]
    Start {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A rank that was started ended badly. It has said why.
    #[error("rank {rank} ended with {status}")]
    RankFailed {
        /// Which.
        rank: u32,
        /// How.
        status: std::process::ExitStatus,
    },
    /// Shared memory was asked for and can't be had.
    #[error(
        "--transport shm: the ranks reach each other by {transport}; they must be two or more on one host whose kernel gives them shared memory"
    )]
    NotShared {
        /// What they have instead.
        transport: &'static str,
    },
    /// NCCL was asked for, and a rank lacks what it needs.
    #[error("--transport nccl: rank {rank} can't: {reason}; without it use --transport auto")]
    NoNccl {
        /// Which; every rank names the same.
        rank: u32,
        /// What it lacks, and the remedy.
        reason: String,
    },
    /// A check found wrong results.
    #[error("{values} values are wrong: this is a fault of hvtui or of the machine's memory")]
    Wrong {
        /// How many, over all ranks and sizes.
        values: u64,
    },
    /// A rank was to train on a GPU and can't.
    #[error("rank {rank}: --device gpu: {why}")]
    NoGpu {
        /// Which.
        rank: u32,
        /// What is missing.
        why: String,
    },
    /// The GPU can't go on.
    #[error("{0}")]
    Gpu(GpuError),
    /// The ranks could not work together.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// What the ranks failed at together is the same failure wherever they compute.
impl From<GpuError> for WorkerError {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Collective(error) => Self::Collective(error),
            error => Self::Gpu(error),
        }
    }
}

/// `of rank 1`, `of ranks 0, 3`, `of all ranks together`.
fn of_ranks(ranks: &[u32]) -> String {
    let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
    match ranks {
        [] => "of all ranks together".to_owned(),
        [rank] => format!("of rank {rank}"),
        _ => format!("of ranks {}", names.join(", ")),
    }
}
