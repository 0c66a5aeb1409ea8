//! `bench`: options like those of nccl-tests.

use clap::{Args, Subcommand, ValueEnum};

use crate::collective::{DType, Reduce};
use crate::worker::bench::{self, BenchOptions, LinkOptions, Via};

/// `bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// What an allreduce costs, by size, in nccl-tests' columns
    #[command(after_help = super::help::BENCH_ALLREDUCE)]
    Allreduce(AllreduceArgs),
    /// How fast bytes go from each rank to the next, by TCP alone: what an allreduce between hosts can't exceed
    #[command(after_help = super::help::BENCH_LINK)]
    Link(LinkArgs),
}

/// `bench link`.
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// Ranks to start on this machine, where this is no rank of a run yet; also written -np N
    #[arg(long = "np", value_name = "N", default_value_t = 2)]
    pub np: u32,
    /// Connections from each rank to the next
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: u32,
    /// For how long bytes are sent
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub millis: u64,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

impl LinkArgs {
    /// What they ask for.
    pub fn options(&self) -> LinkOptions {
        let Self { np, streams, millis, json } = *self;
        LinkOptions { np, streams, millis, json }
    }
}

/// `bench allreduce`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct AllreduceArgs {
    /// Ranks to start on this machine, where this is no rank of a run yet; also written -np N
    #[arg(long = "np", value_name = "N", default_value_t = 2)]
    pub np: u32,
    /// Smallest size
    #[arg(short, long, value_name = "SIZE", default_value = "8", value_parser = bench::bytes)]
    pub begin: usize,
    /// Largest size
    #[arg(short, long, value_name = "SIZE", default_value = "64M", value_parser = bench::bytes)]
    pub end: usize,
    /// From one size to the next
    #[arg(short, long, value_name = "FACTOR", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    pub factor: u32,
    /// Exactly these sizes, joined by commas: 4,1K,64M
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = bench::bytes, conflicts_with_all = ["begin", "end", "factor"])]
    pub sizes: Vec<usize>,
    /// Timed calls a size [default: as many as fit --budget-ms, 7 to 2000]
    #[arg(short = 'n', long, value_name = "N")]
    pub iters: Option<u64>,
    /// Calls before them, not timed [default: half as many]
    #[arg(short, long, value_name = "N")]
    pub warmup: Option<u64>,
    /// Time for a size's timed calls, where --iters does not say how many
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub budget_ms: u64,
    /// Kind of number
    #[arg(short, long, value_enum, default_value_t = BenchType::Float)]
    pub dtype: BenchType,
    /// How ranks' values become one
    #[arg(short = 'o', long, value_enum, default_value_t = BenchOp::Sum)]
    pub op: BenchOp,
    /// Which way bytes have to go
    #[arg(long, value_enum, default_value_t = BenchTransport::Auto)]
    pub transport: BenchTransport,
    /// Only buffers in the group's own memory, which need no copy
    #[arg(long)]
    pub registered: bool,
    /// Only buffers in the process's own memory
    #[arg(long)]
    pub private: bool,
    /// Each rank rewrites its buffer before each call, as training does
    #[arg(long)]
    pub fresh: bool,
    /// Calls a size whose results are checked; 0 checks none
    #[arg(short, long, value_name = "N", default_value_t = 1, num_args = 0..=1, default_missing_value = "1")]
    pub check: u32,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `--dtype`, by nccl-tests' names and hvtui's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchType {
    /// 32-bit floating point
    #[value(alias = "f32")]
    Float,
    /// 64-bit floating point
    #[value(alias = "f64")]
    Double,
    /// 16-bit floating point, added in 32 bits
    #[value(alias = "f16")]
    Half,
    /// bfloat16, added in 32 bits
    #[value(alias = "bf16")]
    Bfloat16,
    /// 32-bit integer
    #[value(alias = "i32")]
    Int32,
    /// 64-bit integer
    #[value(alias = "i64")]
    Int64,
}

/// `--op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchOp {
    /// The sum
    Sum,
    /// The sum, divided by the number of ranks
    #[value(alias = "mean")]
    Avg,
    /// The least
    Min,
    /// The greatest
    Max,
}

/// `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchTransport {
    /// The best there is
    Auto,
    /// Shared memory; all ranks are on one host
    Shm,
    /// TCP, within a host too
    Tcp,
    /// NCCL between GPUs, one a rank; staged by the hosts' memory where ranks share a GPU
    Nccl,
}

impl AllreduceArgs {
    /// What they ask for.
    pub fn options(&self) -> BenchOptions {
        let sizes = if self.sizes.is_empty() {
            bench::steps(self.begin, self.end, self.factor as usize)
        } else {
            self.sizes.clone()
        };
        BenchOptions {
            np: self.np,
            sizes,
            iterations: self.iters,
            warmup: self.warmup,
            budget_ms: self.budget_ms,
            dtype: match self.dtype {
                BenchType::Float => DType::F32,
                BenchType::Double => DType::F64,
                BenchType::Half => DType::F16,
                BenchType::Bfloat16 => DType::Bf16,
                BenchType::Int32 => DType::I32,
                BenchType::Int64 => DType::I64,
            },
            how: match self.op {
                BenchOp::Sum => Reduce::Sum,
                BenchOp::Avg => Reduce::Mean,
                BenchOp::Min => Reduce::Min,
                BenchOp::Max => Reduce::Max,
            },
            via: match self.transport {
                BenchTransport::Auto => Via::Auto,
                BenchTransport::Shm => Via::Shm,
                BenchTransport::Tcp => Via::Tcp,
                BenchTransport::Nccl => Via::Nccl,
            },
            // naming neither means both
            registered: self.registered || !self.private,
            private: self.private || !self.registered,
            fresh: self.fresh,
            checks: self.check,
            json: self.json,
        }
    }
}
