//! `hvtui attach`: attaches to a run that goes on, or has ended since, and streams it to its end.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::cli::args::AttachArgs;
use crate::cli::errors::{Failure, note, outcome_code};
use crate::cli::find::{Found, find, living};
use crate::cli::follow::{Part, Screen, follow};
use crate::cli::log_line::Paint;
use crate::cli::paths::Paths;
use crate::cli::run_printer::RunPrinter;
use crate::cli::{ask, runtime};
use crate::config::HostsFile;
use crate::domain::resume_point::Backfill;
use crate::domain::run::RunStage;
use crate::record::Store;
use crate::ssh::Prompter;
use crate::tui::source::recorded::Recorded;
use crate::tui::source::resume::Resumed;

/// Between telemetry samples of the hosts of a run.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between looks at a run that is made ready.
const LOOK: Duration = Duration::from_millis(500);

/// Attaches to a run and waits for its end.
pub fn run(args: &AttachArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let prompter = ask::person();
        let run = living(args.run.as_deref(), file, paths, &prompter).await?;
        let mut found = find(&run, file, paths, Some(INTERVAL), &prompter).await?;
        let mut told = false;
        // its hosts have nothing yet that could be followed
        while let Some(stage) = made_ready(&found, paths) {
            if !std::mem::replace(&mut told, true) {
                let run = found.spec.id.short();
                note(&format!(
                    "run {run} is made ready by the client that launched it ({}): waiting for its ranks",
                    stage.name()
                ));
            }
            sleep(LOOK).await;
            found = find(&run, file, paths, Some(INTERVAL), &prompter).await?;
        }
        attach(found, file, paths, args, &prompter).await
    })
}

/// The stage of a run that another client makes ready just now: none of its ranks runs.
fn made_ready(found: &Found, paths: &Paths) -> Option<RunStage> {
    let recording = found.recording.as_ref().filter(|recording| recording.outcome().is_none())?;
    // its first stage may not be on the disk yet
    let stage =
        Some(recording.stage().unwrap_or(RunStage::Prepare)).filter(|stage| *stage <= RunStage::Prepare)?;
    Store::new(&paths.state).is_written(&found.spec.id).then_some(stage)
}

async fn attach(
    mut found: Found,
    file: &HostsFile,
    paths: &Paths,
    args: &AttachArgs,
    prompter: &Prompter,
) -> Result<ExitCode, Failure> {
    let outcome = found.recording.as_ref().and_then(|reader| reader.outcome());
    if let Some(outcome) = outcome {
        note(&format!("run {} has ended: {}", found.spec.id.short(), outcome.summary));
        return Ok(outcome_code(outcome));
    }
    // reading the recording and reaching the hosts take their time together
    let session = found.session(file, paths, Some(INTERVAL), prompter).await?;
    let resumed = Resumed::open(&Store::new(&paths.state), &found.spec.id);
    let run = found.spec.id.clone();
    let mut recorded = Recorded::new(session, &paths.state);
    recorded.limit(file.max_recording);
    recorded.keep_states(Arc::new(file.alerts.rules.clone()));
    let printer = RunPrinter::resumed(args.verbose, &run, resumed.resume_state.world.clone())
        .painted(Paint::of_process());
    let screen = Screen::new(printer, false);
    let backfill = match (args.whole, args.tail) {
        (true, _) => Backfill::Every,
        (_, true) => Backfill::Recent,
        _ => Backfill::after(&resumed.resume_state.resume_point),
    };
    if !std::io::stdout().is_terminal() {
        recorded.session().pass_over_nothing();
    }
    recorded.attach(found.spec, resumed, backfill);
    follow(recorded, screen, Some(run), Part::Guest, prompter, &paths.state).await
}
