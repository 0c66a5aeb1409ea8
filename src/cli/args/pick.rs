//! `pick`.

use clap::{Args, ValueEnum};

/// `pick`.
#[derive(Debug, Args)]
pub struct PickArgs {
    /// How many GPUs
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    /// Only GPUs that pass this filter, such as 'model~h200 & temp<60'
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Exactly so many on each host
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub per_host: Option<u32>,
    /// What is printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: PickFormat,
}

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PickFormat {
    /// For `--gpus` of `hvtui run`: gpu-a:0,1;gpu-b:1
    #[default]
    Gpus,
    /// A host a line with its number of GPUs: gpu-a slots=4
    Hostfile,
    /// UUIDs joined by commas, a host a line, for `CUDA_VISIBLE_DEVICES`
    Uuid,
    /// Arguments of horovodrun: -np 5 -H gpu-a:4,gpu-b:1
    Horovodrun,
    /// Arguments of Open MPI's mpirun: -np 5 --host gpu-a:4,gpu-b:1
    Mpirun,
    /// One JSON object
    Json,
}
