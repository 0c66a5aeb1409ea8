//! `hvtui logs`: the lines that a run's ranks printed, from its recording.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use crate::cli::args::LogsArgs;
use crate::cli::errors::{Failure, note, written};
use crate::cli::paths::Paths;
use crate::domain::ids::Rank;
use crate::domain::log::LogLine;
use crate::domain::text::sanitize;
use crate::domain::world::LoggedLine;
use crate::record::{Reader, Store};

/// Prints the lines of all ranks in the order in which they arrived, each with its rank; of one rank without.
pub fn run(args: &LogsArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let reader = Reader::open(&Store::new(&paths.state).find(&args.run)?)?;
    let world = reader.spec().map_or(0, crate::domain::run::RunSpec::world);
    if let Some(rank) = args.rank.filter(|rank| *rank >= world) {
        return Err(Failure::usage(format!("--rank {rank}: the run has {world} ranks, from 0 on")));
    }
    if let Some(damage) = reader.integrity().damage() {
        note(&format!("run {}: {damage}", args.run));
    }
    let terminal = io::stdout().is_terminal();
    let mut out = BufWriter::new(io::stdout().lock());
    for logged in reader.log(args.rank.map(Rank)) {
        let LoggedLine { line, gap, .. } = logged?;
        if gap && args.rank.is_none_or(|rank| line.rank == Rank(rank)) {
            // not among what the ranks printed: beside it
            written(out.flush())?;
            note(&format!("rank {}: {}", line.rank, line.text));
            continue;
        }
        if args.rank.is_none_or(|rank| line.rank == Rank(rank))
            && !written(print(&mut out, &line, args, terminal))?
        {
            return Ok(ExitCode::SUCCESS);
        }
    }
    written(out.flush())?;
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, line: &LogLine, args: &LogsArgs, terminal: bool) -> io::Result<()> {
    let text = if terminal { sanitize(&line.text) } else { line.text.as_str().into() };
    match args.rank {
        Some(_) => writeln!(out, "{text}"),
        None => writeln!(out, "[{}] {text}", line.rank),
    }
}
