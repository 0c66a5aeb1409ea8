//! Streams a run to the terminal until it ends or the person leaves: what `run` and `attach` both do.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time;

use super::errors::{Code, Failure, outcome_code, to_stdout};
use super::rank_files::RankFiles;
use super::run_printer::{Line, RunPrinter};
use super::signals::{Ask, Signals};
use crate::clock;
use crate::domain::event::{Envelope, Event};
use crate::domain::ids::RunId;
use crate::domain::run::RunStage;
use crate::domain::text::sanitize;
use crate::domain::world::RunState;
use crate::launcher::session::Output;
use crate::ssh::Asker;
use crate::tui::source::recorded::Recorded;

/// A launch whose hosts say nothing for so long tells whom it waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Exit code when the terminal goes away: 128 + SIGHUP.
const HANGUP: u8 = 129;

/// What this client is to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It launches the run: a wish to end ends the run.
    Owner,
    /// It launches the run and leaves as soon as all ranks run.
    Launcher,
    /// It came later: a wish to end ends only the watching.
    Guest,
}

/// Streams until the end. `run` is known for one that is taken up.
pub(crate) async fn follow(
    mut recorded: Recorded,
    mut screen: Screen,
    mut run: Option<RunId>,
    part: Part,
    asker: &Asker,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let mut tick = time::interval(PATIENCE / 2);
    tick.tick().await;
    loop {
        tokio::select! {
            biased;
            ask = signals.next() => {
                let Some(run) = &run else {
                    return Ok(ExitCode::from(ask.code()));
                };
                if let Some(code) = asked(ask, part, run, &mut recorded, &mut screen) {
                    return Ok(ExitCode::from(code));
                }
            }
            output = recorded.next() => match output {
                Output::Event(envelope) => {
                    screen.event(&envelope);
                    let is_end = matches!(&envelope.event, Event::RunEnded { .. });
                    if is_end && run.is_some() && envelope.origin.run() == run.as_ref() {
                        if !recorded.session().has_waiting_launch() {
                            break;
                        }
                        // somebody else was faster: it waits again
                        run = None;
                        continue;
                    }
                    if part == Part::Launcher && screen.printer.state().is_some_and(all_run) {
                        return left(&mut screen, &mut recorded);
                    }
                }
                Output::Launched(id) => run = Some(id),
                Output::Waiting(why) => screen.own(&format!("waiting: {why}")),
                Output::LaunchFailed(error) => return Err(error.into()),
                Output::Gone(..) | Output::Refused(..) | Output::Found { .. } => {}
            },
            _ = tick.tick() => {
                screen.troubles(&mut recorded);
                if run.is_some() {
                    screen.print(|printer| printer.tick(clock::now()));
                } else if !asker.is_asking() {
                    let hosts = recorded.session().launches_wait_for();
                    if hosts.is_empty() {
                        continue;
                    }
                    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                    screen.own(&format!("connecting: waiting for {}", hosts.join(", ")));
                }
            }
        }
    }
    screen.troubles(&mut recorded);
    let is_recorded = run.as_ref().is_some_and(|run| recorded.is_recorded(run));
    screen.print(|printer| printer.end(is_recorded));
    let outcome = screen.printer.state().and_then(|state| state.outcome.as_ref());
    Ok(outcome.map_or_else(|| Code::Bug.into(), outcome_code))
}

/// A signal came; gives the exit code for leaving, if the client leaves.
fn asked(ask: Ask, part: Part, run: &RunId, recorded: &mut Recorded, screen: &mut Screen) -> Option<u8> {
    let short = run.short();
    match ask {
        _ if part == Part::Guest => {
            screen.own(&format!("detached; the run goes on. {}", how_to_go_on(run)));
            return Some(ask.code());
        }
        Ask::Leave => {
            screen.own(&format!("leaving; the run goes on. {}", how_to_go_on(run)));
            return Some(HANGUP);
        }
        Ask::Stop { times: 1, .. } => {
            screen.own("stopping; once more kills");
            recorded.session().stop(run, false);
        }
        Ask::Stop { times: 2, .. } => {
            screen.own("killing; once more leaves at once");
            recorded.session().stop(run, true);
        }
        Ask::Stop { code, .. } => {
            screen.own(&format!("leaving; to end the run: hvtui stop {short} --now"));
            return Some(code);
        }
    }
    None
}

/// Whether every rank of the run was started.
fn all_run(run: &RunState) -> bool {
    matches!(run.stage(), Some(RunStage::Meet | RunStage::FirstStep | RunStage::Training))
}

fn left(screen: &mut Screen, recorded: &mut Recorded) -> Result<ExitCode, Failure> {
    screen.troubles(recorded);
    if let Some(run) = screen.printer.state().map(|state| state.spec.id.clone()) {
        screen.own(&format!("all ranks run. {}", how_to_go_on(&run)));
        to_stdout(&format!("{run}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `To come back: …; to end it: …`.
pub(crate) fn how_to_go_on(run: &RunId) -> String {
    let short = run.short();
    format!("To come back: hvtui attach {short}; to end it: hvtui stop {short}")
}

/// Prints what the printer says. When a reader has gone away (`| head`), the run goes on in silence.
pub(crate) struct Screen {
    pub(crate) printer: RunPrinter,
    deaf: bool,
    /// `--output-filename`.
    files: Option<RankFiles>,
}

impl Screen {
    /// Shows what `printer` says; with `own_words` nothing of what the ranks print.
    pub(crate) fn new(printer: RunPrinter, own_words: bool) -> Self {
        Self { printer, deaf: own_words, files: None }
    }

    /// Writes what ranks print into these files, too.
    pub(crate) fn with_files(self, files: Option<RankFiles>) -> Self {
        Self { files, ..self }
    }

    /// Shows and writes down what an event says.
    pub(crate) fn event(&mut self, envelope: &Envelope) {
        self.print(|printer| printer.event(envelope));
        if let Some(trouble) = self.files.as_mut().and_then(|files| files.take(envelope)) {
            self.own(&trouble);
        }
    }

    pub(crate) fn print(&mut self, lines: impl FnOnce(&mut RunPrinter) -> Vec<Line>) {
        for line in lines(&mut self.printer) {
            let written = match line {
                Line::Out(_) if self.deaf => Ok(()),
                Line::Out(text) => {
                    writeln!(std::io::stdout().lock(), "{text}").inspect_err(|_| self.deaf = true)
                }
                Line::Err(text) => writeln!(std::io::stderr().lock(), "{text}"),
            };
            if let Err(error) = written {
                tracing::warn!(%error, "output could not be written");
            }
        }
    }

    pub(crate) fn troubles(&mut self, recorded: &mut Recorded) {
        while let Some(trouble) = recorded.trouble() {
            self.own(&trouble);
        }
    }

    pub(crate) fn own(&mut self, text: &str) {
        let text = Line::Err(format!("hvtui: {}", sanitize(text)));
        self.print(|_| vec![text]);
    }
}
