//! `hvtui export`: a run in another program's format.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::cli::args::{ExportArgs, ExportFormat};
use crate::cli::errors::{Code, Failure, note};
use crate::cli::paths::Paths;
use crate::domain::ids::Rank;
use crate::domain::time::Stamp;
use crate::record::export::chrome;
use crate::record::{Reader, Store};

/// Writes the export.
pub fn run(args: &ExportArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let reader = Reader::open(&Store::new(&paths.state).find(&args.run)?)?;
    let start = reader.range().map_or(Stamp(0), |(start, _)| start);
    let moment = |seconds: f64| start.plus_micros((seconds * 1e6) as i64);
    let options = chrome::Options {
        from: args.from.map(moment),
        to: args.to_time.map(moment),
        ranks: (!args.ranks.is_empty()).then(|| args.ranks.iter().copied().map(Rank).collect()),
        max_events: args.max_events,
    };
    if let Some(damage) = reader.integrity().damage() {
        note(&format!("run {}: {damage}", args.run));
    }
    let ExportFormat::Chrome = args.to;
    let exported = match &args.output {
        Some(path) => write(&reader, path, &options)?,
        None => chrome::export(&reader, BufWriter::new(std::io::stdout().lock()), &options)?,
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

/// Into a file beside the target first: an export that fails leaves what was there.
fn write(reader: &Reader, path: &Path, options: &chrome::Options) -> Result<chrome::Exported, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Code::from(&error), format!("{}: {error}", path.display()));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let mut file = BufWriter::new(File::create(&part).map_err(failed)?);
    let exported = chrome::export(reader, &mut file, options)?;
    file.flush().map_err(failed)?;
    std::fs::rename(&part, path).map_err(failed)?;
    Ok(exported)
}
