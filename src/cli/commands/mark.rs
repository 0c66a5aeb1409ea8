//! `hvtui runs mark`: marks with notes on a recorded run.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::args::MarkArgs;
use crate::cli::errors::{Failure, to_person, to_stdout};
use crate::cli::json::{VERSION, line};
use crate::cli::paths::Paths;
use crate::domain::ids::{Rank, RunId};
use crate::domain::marks::{MarkChange, NewMark, RunMark, RunMarks, as_told};
use crate::domain::run::RunSpec;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::record::{Player, Store, figures, marks};
use crate::report::local_second;

/// The object of `--json`.
#[derive(Debug, Serialize)]
struct Told<'a> {
    version: u32,
    run: Option<&'a RunId>,
    #[serde(serialize_with = "as_told")]
    marks: &'a [RunMark],
}

/// Sets a mark, deletes one, or lists them.
pub fn run(args: &MarkArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let path = Store::new(&paths.state).find(&args.run)?;
    let reader = figures::open(&path)?;
    let change = match (&args.note, args.delete) {
        (Some(note), _) => {
            let (start, end) = reader.range().unwrap_or_default();
            let at = args.at.map_or(end, |seconds| start.plus_micros((seconds * 1e6) as i64));
            if at > end {
                let length = end.seconds_since(start);
                return Err(Failure::usage(format!(
                    "--at is behind the end of the recording, at {length:.1} s"
                )));
            }
            let world = reader.spec().map_or(0, RunSpec::world);
            if let Some(rank) = args.rank.filter(|rank| *rank >= world) {
                return Err(Failure::usage(format!("--rank: there is no rank {rank}, the run has {world}")));
            }
            let (step, rank) = (step_at(&path, at)?, args.rank.map(Rank));
            Some(MarkChange::Add(NewMark { at, step, rank, note: note.clone() }))
        }
        (None, Some(id)) => Some(MarkChange::Delete { id }),
        (None, None) => None,
    };
    let marks = match &change {
        Some(change) => marks::change(&path, change)?,
        None => marks::read(&path)?,
    };
    if args.json {
        let run = reader.spec().map(|spec| &spec.id);
        to_stdout(&line(&Told { version: VERSION, run, marks: marks.all() })?)?;
    } else if change.is_none() {
        to_person(&text(&marks))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The last step that all ranks had finished then.
fn step_at(path: &Path, at: Stamp) -> Result<Option<u64>, Failure> {
    let mut player = Player::open(path)?;
    player.seek(at);
    loop {
        let playback = player.advance(Stamp(0));
        if playback.reading.is_none() {
            let world = playback.reset.unwrap_or_default();
            return Ok(world.runs.values().next().and_then(RunState::step));
        }
    }
}

fn text(marks: &RunMarks) -> String {
    if marks.all().is_empty() {
        return "no marks yet\n".to_owned();
    }
    let mut out = String::new();
    for mark in marks.all() {
        let _ = writeln!(out, "{:>4}  {}  {}", mark.id, local_second(mark.at), sanitize(&mark.words()));
    }
    out
}
