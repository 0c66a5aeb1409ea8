//! `hvtui runs`: past and present runs, from their recordings.

use std::process::ExitCode;

use chrono::{DateTime, Local};

use crate::cli::args::RunsArgs;
use crate::cli::errors::{Failure, note, to_stdout};
use crate::cli::paths::Paths;
use crate::domain::run::RunSummary;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units::{bytes, duration_us, middle_cut};
use crate::record::Store;

/// Lists them, newest first.
pub fn run(args: &RunsArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let listing = Store::new(&paths.state).list()?;
    for unreadable in &listing.unreadable {
        note(&format!("run {}: {}", unreadable.run.short(), unreadable.reason));
    }
    if args.json {
        let text = serde_json::to_string_pretty(&listing.runs)
            .map_err(|error| Failure::bug(format!("write the runs as JSON: {error}")))?;
        to_stdout(&format!("{text}\n"))?;
    } else if listing.runs.is_empty() {
        to_stdout("no runs yet; start one: hvtui run -np 2 -- hvtui train digits\n")?;
    } else {
        let mut text = format!(
            "{:<5} {:<16}  {:<18} {:>5}  {:<20}  {:>8}  {:>8}  END\n",
            "RUN", "STARTED", "NAME", "RANKS", "HOSTS", "TOOK", "SIZE"
        );
        text.extend(listing.runs.iter().map(row));
        to_stdout(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(run: &RunSummary) -> String {
    let hosts: Vec<String> = run.spec.hosts().iter().map(ToString::to_string).collect();
    let took = duration_us(run.last_at.micros_since(run.spec.created).max(0).unsigned_abs());
    let end = match (&run.outcome, run.stage) {
        (Some(outcome), _) => format!("exit {}: {}", outcome.code, outcome.summary),
        (None, Some(stage)) => format!("no end recorded; last seen in {}", stage.name()),
        (None, None) => "no end recorded".to_owned(),
    };
    let damage = run.damage.as_ref().map(|damage| format!(" ({damage})")).unwrap_or_default();
    format!(
        "{:<5} {:<16}  {:<18} {:>5}  {:<20}  {took:>8}  {:>8}  {}\n",
        run.spec.id.short(),
        local_time(run.spec.created),
        middle_cut(&sanitize(&run.spec.name), 18),
        run.spec.world(),
        middle_cut(&hosts.join(" "), 20),
        bytes(run.bytes),
        sanitize(&format!("{end}{damage}")),
    )
}

fn local_time(at: Stamp) -> String {
    match DateTime::from_timestamp_micros(at.0) {
        Some(time) => time.with_timezone(&Local).format("%Y-%m-%d %H:%M").to_string(),
        None => "–".to_owned(),
    }
}
