//! What `report` and `diff` take.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::export::ranks;
use super::moment;
use crate::cli::candidates;
use crate::record::export::StepRange;

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; `last`; or a file: a recording, or what `hvtui import` reads
    #[arg(value_name = "RUN|FILE", default_value = "last", value_parser = super::run_name, add = ArgValueCompleter::new(candidates::runs_and_files))]
    pub run: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write one self-contained page with charts; without --json nothing is printed then
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What of the run
    #[command(flatten)]
    pub part: PartArgs,
}

/// `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The run to compare with: its id or part of it, its name, or a file likewise
    #[arg(value_name = "RUN_A", value_parser = super::run_name, add = ArgValueCompleter::new(candidates::runs_and_files))]
    pub a: String,
    /// The run that is compared: likewise, or `last` [default: the newest run]
    #[arg(value_name = "RUN_B", value_parser = super::run_name, add = ArgValueCompleter::new(candidates::runs_and_files))]
    pub b: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 if B has changed so much against A, such as 'p95>+5%', 'p50>+5ms', 'samples/s<-3%' or 'loss>+0.01'; may
    /// be given several times
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub fail_if: Vec<String>,
    /// What of both runs
    #[command(flatten)]
    pub part: PartArgs,
}

/// What of a run is told: as `export` takes it, where `--to` is the format.
#[derive(Debug, Args)]
pub struct PartArgs {
    /// Leave out what is earlier, in seconds from the run's start
    #[arg(long, value_name = "S", value_parser = moment)]
    pub from: Option<f64>,
    /// Leave out what is later, in seconds from the run's start
    #[arg(long, alias = "to-time", value_name = "S", value_parser = moment)]
    pub to: Option<f64>,
    /// Only these ranks: 0,3 or 0-2,5
    #[arg(long, value_name = "R,..", value_delimiter = ',', value_parser = ranks)]
    pub ranks: Vec<RangeInclusive<u32>>,
    /// Only these steps and what happened during them: 5-10, 5-, -10 or 7
    #[arg(long, value_name = "A-B", allow_hyphen_values = true)]
    pub steps: Option<StepRange>,
}
