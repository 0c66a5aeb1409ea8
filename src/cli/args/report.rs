//! What `report` and `diff` take.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::cli::candidates;

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
}
