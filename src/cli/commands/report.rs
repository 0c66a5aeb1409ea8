//! `hvtui report`: how a run went, from its recording.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::cli::args::ReportArgs;
use crate::cli::ask::person;
use crate::cli::complete::complete;
use crate::cli::errors::{Code, Failure, note, to_person, to_stdout};
use crate::cli::find::hosts_of;
use crate::cli::json::{VERSION, line};
use crate::cli::paths::Paths;
use crate::cli::progress_line::ReadingLine;
use crate::cli::runs_of_hosts::ask;
use crate::cli::selection::Wanted;
use crate::cli::{connect, recording, runtime, whole_file};
use crate::config::HostsFile;
use crate::domain::analysis::{Finding, RunAnalysis, findings};
use crate::domain::marks::RunMarks;
use crate::domain::run::RunSpec;
use crate::domain::run_status::RunStatus;
use crate::record::{Lock, Reader, far_steps, figures, marks};
use crate::report::{page, text};

/// The object of `--json`.
#[derive(Debug, Serialize)]
struct Told<'a> {
    version: u32,
    findings: &'a [Finding],
    #[serde(flatten)]
    run: &'a RunAnalysis,
}

/// How long hosts may take to say whether a run goes on of which no end is recorded.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the end of one that has ended may take to be read from them.
const COMPLETION: Duration = Duration::from_secs(10);

/// Prints the report, or writes it as a page.
pub fn run(
    args: &ReportArgs,
    hosts: impl Fn() -> Result<HostsFile, Failure>,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    let wanted = Wanted::from(&args.part);
    wanted.check()?;
    let meant = recording::meant(&args.run, paths)?;
    let mut reader = figures::open(&meant.path)?;
    // that its ranks are known, before any host is asked
    wanted.selection(&reader)?;
    let is_here = meant.path.starts_with(&paths.state);
    let is_open = is_here && reader.outcome().is_none() && !Lock::is_held(reader.path());
    let told = reader.spec().filter(|_| is_open).cloned().and_then(|spec| status(&spec, hosts, paths));
    if told == Some(RunStatus::Ended) {
        // what its hosts keep of it has been recorded, and may be the part that is asked for
        reader = figures::open(&meant.path)?;
    }
    let mut run = with_kept(&reader, analyze(&reader, &wanted)?);
    run.live |= told == Some(RunStatus::Running);
    say_far_steps(&reader);
    let findings = findings(&run);
    if let Some(path) = &args.html {
        write(path, &page(&run, &findings))?;
    }
    if args.json {
        to_stdout(&line(&Told { version: VERSION, findings: &findings, run: &run })?)?;
    } else if args.html.is_none() {
        to_person(&text::render(&run, &findings))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which steps a wrong clock puts outside of the run; of a large recording those of a part of it, `hvtui runs check` tells all.
fn say_far_steps(reader: &Reader) {
    let is_imported = reader.spec().is_some_and(RunSpec::is_imported);
    if let Some(words) = far_steps::of(reader).words(is_imported) {
        note(&words);
    }
}

/// How a run stands of which no end is recorded, by its hosts: where it has ended, its end is recorded now. Says what there is to do
/// with one that may go on.
fn status(
    spec: &RunSpec,
    hosts: impl Fn() -> Result<HostsFile, Failure>,
    paths: &Paths,
) -> Option<RunStatus> {
    let name = spec.id.short();
    let heard = hosts().and_then(|file| hosts_of(spec, &file)).and_then(|hosts| {
        runtime::block_on(async {
            let prompter = person();
            let mut session = connect::session(&hosts, &paths.home, None, &prompter).await?;
            let told = ask(&mut session, PATIENCE, &prompter, |known| known.is_live(&spec.id)).await;
            let status = told.inventory.status(spec, None);
            let is_kept = told.inventory.shares.contains_key(&spec.id);
            if status == RunStatus::Ended && !is_kept {
                note(&format!(
                    "run {name} has ended, and its hosts keep nothing of it: its end is not known"
                ));
            } else if status == RunStatus::Ended {
                for trouble in complete(session, vec![spec.clone()], &paths.state, COMPLETION).await {
                    note(&trouble);
                }
            }
            Ok(status)
        })
    });
    match heard {
        Ok(RunStatus::Ended) => {}
        Ok(RunStatus::Running) => {
            note(&format!("run {name} goes on, its hosts say; hvtui attach {name} follows and records it"));
        }
        _ => {
            note(&format!(
                "run {name} may go on, its hosts did not say; hvtui attach {name} follows it then"
            ));
        }
    }
    heard.ok()
}

fn analyze(reader: &Reader, wanted: &Wanted<'_>) -> Result<RunAnalysis, Failure> {
    let mut line = ReadingLine::begin();
    let run = figures::part(reader, &wanted.selection(reader)?, &mut |share| {
        line.show(share);
        true
    })?;
    run.ok_or_else(|| Failure::usage("the recording was not read to its end"))
}

/// With what lies beside the recording: what a person has noted. Figures are right without it.
fn with_kept(reader: &Reader, run: RunAnalysis) -> RunAnalysis {
    let marks = marks::read(reader.path()).unwrap_or_else(|error| {
        note(&error.to_string());
        RunMarks::default()
    });
    run.with_marks(marks.all())
}

/// Into a file; `-` is standard output.
fn write(path: &Path, page: &str) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Code::from(&error), format!("{}: {error}", path.display()));
    if path == Path::new("-") {
        return to_stdout(page);
    }
    whole_file::write(path, 0o666, |file| file.write_all(page.as_bytes())).map_err(failed)
}
