//! `hvtui export`: a run in another program's format.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::cli::args::{ExportArgs, SelectionArgs};
use crate::cli::errors::{Code, Failure, note};
use crate::cli::paths::Paths;
use crate::domain::ids::Rank;
use crate::domain::time::Stamp;
use crate::record::export::{Exported, Selection};
use crate::record::{Reader, Store};

/// Writes the export.
pub fn run(args: &ExportArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let reader = Reader::open(&Store::new(&paths.state).find(&args.run)?)?;
    let start = reader.range().map_or(Stamp(0), |(start, _)| start);
    let selection = selection(&args.selection, start);
    if let Some(damage) = reader.integrity().damage() {
        note(&format!("run {}: {damage}", args.run));
    }
    let exported = match &args.output {
        Some(path) => write(args, &reader, path, &selection)?,
        None => args.to.export(&reader, &mut BufWriter::new(std::io::stdout().lock()), &selection)?,
    };
    if exported.truncated {
        note(&format!("cut after {} events by --max-events", exported.events));
    }
    if exported.missing_chunks > 0 {
        note(&format!("{} damaged chunks of the recording are left out", exported.missing_chunks));
    }
    if exported.unaligned_steps > 0 {
        let text = "steps are placed by their arrival: their hosts' clocks were never compared";
        note(&format!("{} {text}", exported.unaligned_steps));
    }
    Ok(ExitCode::SUCCESS)
}

/// The selection that the options name, of a recording that begins at `start`.
fn selection(args: &SelectionArgs, start: Stamp) -> Selection {
    let moment = |seconds: f64| start.plus_micros((seconds * 1e6) as i64);
    Selection {
        from: args.from.map(moment),
        to: args.to_time.map(moment),
        ranks: (!args.ranks.is_empty()).then(|| args.ranks.iter().copied().map(Rank).collect()),
        steps: args.steps,
        max_events: args.max_events,
    }
}

/// Into a file beside the target first: an export that fails leaves what was there.
fn write(
    args: &ExportArgs,
    reader: &Reader,
    path: &Path,
    selection: &Selection,
) -> Result<Exported, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Code::from(&error), format!("{}: {error}", path.display()));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let mut file = BufWriter::new(File::create(&part).map_err(failed)?);
    let exported = args.to.export(reader, &mut file, selection)?;
    file.flush().map_err(failed)?;
    std::fs::rename(&part, path).map_err(failed)?;
    Ok(exported)
}
