//! What `runs`, `runs prune`, `runs check` and `runs mark` take.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use super::{help, moment};
use crate::cli::candidates;
use crate::domain::run_list::{RunFilter, RunOrder};
use crate::domain::units::{parse_age, parse_bytes};

/// `runs`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RunsArgs {
    /// What to do with them; list them when absent
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    /// Print one JSON array of objects
    #[arg(long)]
    pub json: bool,
    /// Also the commit and the command of each
    #[arg(long, conflicts_with = "json")]
    pub long: bool,
    /// Only what is recorded here; ask no host
    #[arg(long)]
    pub local: bool,
    /// Only runs that pass this filter, such as 'failed age<2d' or 'git~4f2a loss<0.5'
    #[arg(long, value_name = "FILTER", value_parser = RunFilter::parse)]
    pub filter: Option<RunFilter>,
    /// In which order
    #[arg(long, value_name = "ORDER", default_value = RunOrder::default().name(), value_parser = run_orders())]
    pub sort: RunOrder,
}

/// The values of `--sort`.
fn run_orders() -> impl TypedValueParser<Value = RunOrder> {
    let values = RunOrder::ALL.map(|order| PossibleValue::new(order.name()).help(order.words()));
    PossibleValuesParser::new(values)
        .try_map(|name| RunOrder::named(&name).ok_or("it is the name of no order"))
}

/// What to do with the runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Delete old recordings, and what hosts keep of the same runs
    #[command(after_help = help::PRUNE)]
    Prune(PruneArgs),
    /// Check recordings: what is whole, what is missing; close and repair them
    #[command(after_help = help::CHECK_RUNS)]
    Check(CheckRunsArgs),
    /// Set a mark with a note on a recorded run; list its marks, delete one
    #[command(after_help = help::MARK)]
    Mark(MarkArgs),
}

/// `runs mark`.
#[derive(Debug, Args)]
pub struct MarkArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; or `last`
    #[arg(value_parser = super::run_name, add = ArgValueCompleter::new(candidates::runs))]
    pub run: String,
    /// What the mark says; without it the marks are listed
    #[arg(value_parser = note)]
    pub note: Option<String>,
    /// The moment, in seconds from the run's start [default: the end of what is recorded]
    #[arg(long, value_name = "S", value_parser = moment, requires = "note")]
    pub at: Option<f64>,
    /// The rank that it is about
    #[arg(long, value_name = "R", requires = "note")]
    pub rank: Option<u32>,
    /// Delete the mark of this number instead
    #[arg(long, value_name = "N", conflicts_with = "note")]
    pub delete: Option<u32>,
    /// Print one JSON object with the marks
    #[arg(long)]
    pub json: bool,
}

/// What a mark says.
fn note(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the note is empty; without one the marks are listed".to_owned());
    }
    Ok(text.to_owned())
}

/// `runs check`.
#[derive(Debug, Args)]
pub struct CheckRunsArgs {
    /// Runs by id, part of it, name or `last`, or files [default: all recordings]
    #[arg(value_name = "RUN", value_parser = super::run_name, add = ArgValueCompleter::new(candidates::runs))]
    pub runs: Vec<String>,
    /// Close what was not closed or is cut, and leave out what is damaged; the damaged file is kept as run.mcap.damaged
    #[arg(long)]
    pub repair: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `runs prune`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch of the command line")]
pub struct PruneArgs {
    /// Delete runs whose last event is older: 30d, 12h
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Keep the newest N runs and the newest N imports, delete the others
    #[arg(long, value_name = "N")]
    pub keep: Option<u64>,
    /// Keep the newest runs that take no more than this together: 5G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// Show what would be deleted, and delete nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Ask nothing
    #[arg(short, long)]
    pub yes: bool,
    /// Print one JSON object; with --dry-run or --yes
    #[arg(long)]
    pub json: bool,
    /// Delete recordings here only; ask no host
    #[arg(long)]
    pub local: bool,
}

fn age(text: &str) -> Result<Duration, String> {
    parse_age(text).ok_or_else(|| "not a length of time with its unit: write 30d, 12h or 90m".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "not a size: write 5G or 500M".to_owned())
}
