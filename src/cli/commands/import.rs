//! `hvtui import`: another program's trace as a recording, and what there is to say of it.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::args::ImportArgs;
use crate::cli::errors::{Failure, note, to_person, to_stdout};
use crate::cli::json::{VERSION, line};
use crate::cli::paths::Paths;
use crate::cli::recording;
use crate::clock;
use crate::domain::ids::RunId;
use crate::domain::run::{RunSpec, RunSummary};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units::{bytes, counted, duration_us};
use crate::record::Store;
use crate::record::import::{Imported, Place};
use crate::report::{waits_table, wrapped};

/// Ranks of the table, the latest; `--json` has all.
const ROWS: usize = 32;

/// The object of `--json`.
#[derive(Debug, Serialize)]
struct Told<'a> {
    version: u32,
    #[serde(flatten)]
    imported: &'a Imported,
}

/// Imports, and says what was read.
pub fn run(args: &ImportArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let store = Store::new(&paths.state);
    let place = args.output.as_deref().map_or(Place::Store(&store), Place::File);
    let began = clock::now();
    let imported = recording::read(&args.files, args.name.as_deref(), args.step.as_deref(), place)?;
    if args.output.is_none()
        && let Some(before) = before(&store, &imported, began)?
    {
        store.delete(&imported.run)?;
        let name = before.short();
        note(&format!("this is there already as run {name}, and is not kept twice: hvtui report {name}"));
        if args.json {
            let imported = Imported { run: before.clone(), recording: store.path_of(&before), ..imported };
            to_stdout(&line(&Told { version: VERSION, imported: &imported })?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        to_stdout(&line(&Told { version: VERSION, imported: &imported })?)?;
    } else {
        to_person(&words(&imported, args.output.is_some()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The run that was made of the same before, if there is one: of the same beginning and length, command, places and steps, and with
/// the same name. Where the moment of this import, which began at `began`, stands for a beginning that is not told, of any beginning.
fn before(store: &Store, imported: &Imported, began: Stamp) -> Result<Option<RunId>, Failure> {
    let runs = store.list()?.runs;
    let Some(new) = runs.iter().find(|run| run.spec.id == imported.run) else { return Ok(None) };
    let is_untold = imported.created >= began;
    let length_us = |run: &RunSummary| run.last_at.micros_since(run.spec.created);
    let is_same = |run: &&RunSummary| {
        let created = if is_untold { new.spec.created } else { run.spec.created };
        let spec = RunSpec { id: new.spec.id.clone(), created, ..run.spec.clone() };
        run.spec.id != new.spec.id
            && run.spec.is_imported()
            && (spec == new.spec && length_us(run) == length_us(new) && run.trained == new.trained)
    };
    Ok(runs.iter().find(is_same).map(|run| run.spec.id.clone()))
}

/// The summary.
fn words(imported: &Imported, to_file: bool) -> String {
    let label =
        if to_file { imported.recording.display().to_string() } else { imported.run.short().to_owned() };
    let mut out = format!("Imported as run {}  {}\n", imported.run.short(), sanitize(&imported.name));
    let size: u64 = imported.files.iter().map(|file| file.bytes).sum();
    let events: u64 = imported.files.iter().map(|file| file.events).sum();
    let format = imported.format;
    let read = format!(
        "{format}: {} of {}, {} of text; {}",
        counted(events, "event"),
        counted(imported.files.len(), "file"),
        bytes(size),
        imported.clock
    );
    let steps = match (imported.steps.first, imported.steps.last) {
        (Some(first), Some(last)) if first == last => {
            format!("{}, number {last}", counted(imported.steps.count, "step"))
        }
        (Some(first), Some(last)) => {
            format!("{}, number {first} to {last}", counted(imported.steps.count, "step"))
        }
        _ => "no steps".to_owned(),
    };
    let told = match imported.told_ranks {
        told if told == imported.ranks => String::new(),
        told => format!(", {told} of them told"),
    };
    let ranks = counted(imported.ranks, "rank");
    let facts = format!("{ranks}{told}; {steps}; {}", duration_us(imported.duration_us));
    for fact in [read, facts] {
        let _ = writeln!(out, "{}", wrapped(&sanitize(&fact), 2));
    }
    for file in &imported.files {
        if let Some(cut) = &file.cut {
            let words = format!("{}: read up to byte {}: {}", file.path.display(), cut.byte, cut.reason);
            let _ = writeln!(out, "{}", wrapped(&sanitize(&words), 2));
        }
    }
    if !imported.left_out.is_empty() {
        out.push_str("\nLeft out or unknown\n");
    }
    for left_out in &imported.left_out {
        let words = format!("{}: {}; {}", left_out.what, left_out.count, left_out.why);
        let _ = writeln!(out, "{}", wrapped(&sanitize(&words), 2));
    }
    if let Some(waits) = &imported.waits {
        out.push_str(&waits_table(waits, ROWS));
    }
    let _ = writeln!(out, "\nNext: hvtui report {label}\n      hvtui replay {label}");
    out
}
