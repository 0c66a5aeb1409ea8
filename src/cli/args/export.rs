//! `export`: what is exported, to which format, where to.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap_complete::engine::ArgValueCompleter;

use super::moment;
use crate::cli::candidates;
use crate::record::export::{FORMATS, Format, StepRange};

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; `last`; or a file: a recording, or what `hvtui import` reads
    #[arg(default_value = "last", value_parser = super::run_name, add = ArgValueCompleter::new(candidates::runs_and_files))]
    pub run: String,
    /// The format
    #[arg(long, value_parser = formats())]
    pub to: &'static Format,
    /// File to write, or folder for tensorboard [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// For asciicast: the Replay screen as it plays, in so many columns and rows, instead of the ranks' lines; with one rank, its log
    #[arg(long, value_name = "COLSxROWS", num_args = 0..=1, require_equals = true, default_missing_value = "120x36", value_parser = screen)]
    pub screens: Option<(u16, u16)>,
    /// What of the run
    #[command(flatten)]
    pub selection: SelectionArgs,
}

/// `120x36`: a terminal that the UI has room on.
pub(super) fn screen(text: &str) -> Result<(u16, u16), String> {
    let size =
        text.split_once('x').and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    let fits = |(columns, rows): &(u16, u16)| (60..=500).contains(columns) && (15..=200).contains(rows);
    size.filter(fits).ok_or_else(|| "write columns and rows as 120x36, from 60x15 to 500x200".to_owned())
}

/// Whether a word behind `--screens` is its size, be it a right one, and no run's name.
pub(super) fn is_meant_as_screen(text: &str) -> bool {
    let Some((columns, rows)) = text.split_once('x') else { return false };
    let is_number = columns.len() > 1 && columns.bytes().all(|byte| byte.is_ascii_digit());
    is_number && rows.bytes().next().is_none_or(|byte| byte.is_ascii_digit())
}

/// What of a run is exported.
#[derive(Debug, Args)]
pub struct SelectionArgs {
    /// Leave out what is earlier, in seconds from the run's start
    #[arg(long, value_name = "S", value_parser = moment)]
    pub from: Option<f64>,
    /// Leave out what is later, in seconds from the run's start
    #[arg(long, value_name = "S", value_parser = moment)]
    pub to_time: Option<f64>,
    /// Only these ranks: 0,3 or 0-2,5
    #[arg(long, value_name = "R,..", value_delimiter = ',', value_parser = ranks)]
    pub ranks: Vec<RangeInclusive<u32>>,
    /// Only these steps and what happened during them: 5-10, 5-, -10 or 7
    #[arg(long, value_name = "A-B", allow_hyphen_values = true)]
    pub steps: Option<StepRange>,
    /// At most so many events: lines, rows or samples where the format has those
    #[arg(long, value_name = "N")]
    pub max_events: Option<u64>,
}

/// Ranks that no run has.
const TOO_MANY_RANKS: u32 = 1 << 20;

/// `3` or `0-2`.
pub(super) fn ranks(text: &str) -> Result<RangeInclusive<u32>, String> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let rank = text.parse().ok().filter(|rank| is_number && *rank < TOO_MANY_RANKS);
        rank.ok_or_else(|| "write ranks as 0,3 or 0-2,5".to_owned())
    };
    let (first, last) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("rank {first} comes after rank {last}: the first rank goes first"));
    }
    Ok(first..=last)
}

/// The values of `--to`.
fn formats() -> impl TypedValueParser<Value = &'static Format> {
    let values = FORMATS.map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(values)
        .try_map(|name| Format::named(&name).ok_or("it is the name of no format"))
}
