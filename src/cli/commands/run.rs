//! `hvtui run`: launches, streams, records, and ends with the run's exit code.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time;

use crate::cli::args::RunArgs;
use crate::cli::errors::{Code, Failure, to_stdout};
use crate::cli::paths::Paths;
use crate::cli::run_printer::{Line, RunPrinter};
use crate::cli::runtime;
use crate::cli::signals::{Ask, Signals};
use crate::cli::{ask, connect, launch};
use crate::clock;
use crate::config::HostsFile;
use crate::domain::event::Event;
use crate::domain::ids::RunId;
use crate::domain::request::LaunchRequest;
use crate::domain::text::sanitize;
use crate::launcher::preview::preview;
use crate::launcher::session::{Output, Session};
use crate::ssh::Asker;
use crate::tui::source::recorded::Recorded;

/// Between telemetry samples of the hosts of a run.
const INTERVAL: Duration = Duration::from_secs(1);
/// A launch whose hosts say nothing for so long tells whom it waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Exit code when the terminal goes away: 128 + SIGHUP.
const HANGUP: u8 = 129;

/// Launches and waits for the end.
pub fn run(args: &RunArgs, hosts: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let request = launch::request(args)?;
    runtime::block_on(async {
        let asker = ask::person();
        let session = connect::session(&hosts.hosts, &paths.home, Some(INTERVAL), &asker).await?;
        if args.dry_run {
            dry_run(session, &request).await
        } else {
            stream(session, request, paths, args.verbose, &asker).await
        }
    })
}

/// Shows the plan as soon as the hosts are known.
async fn dry_run(mut session: Session, request: &LaunchRequest) -> Result<ExitCode, Failure> {
    loop {
        match session.preview(request) {
            Ok(planned) => {
                let lines = preview(&planned.spec, &planned.hosts).join("\n");
                to_stdout(&format!("{lines}\n"))?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) if error.waiting => drop(session.next().await),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn stream(
    session: Session,
    request: LaunchRequest,
    paths: &Paths,
    verbose: bool,
    asker: &Asker,
) -> Result<ExitCode, Failure> {
    let mut screen = Screen { printer: RunPrinter::new(verbose), deaf: false };
    let mut recorded = Recorded::new(session, &paths.state);
    let mut signals = Signals::listen()?;
    let mut run: Option<RunId> = None;
    let mut tick = time::interval(PATIENCE / 2);
    tick.tick().await;
    recorded.session().launch(request);
    loop {
        tokio::select! {
            biased;
            ask = signals.next() => {
                let Some(run) = &run else {
                    return Ok(ExitCode::from(ask.code()));
                };
                match ask {
                    Ask::Leave => {
                        screen.own(&format!("leaving; the run goes on. To end it: hvtui stop {}", run.short()));
                        return Ok(ExitCode::from(HANGUP));
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
                        screen.own(&format!("leaving; to end the run: hvtui stop {} --now", run.short()));
                        return Ok(ExitCode::from(code));
                    }
                }
            }
            output = recorded.next() => match output {
                Output::Event(envelope) => {
                    screen.print(|printer| printer.event(&envelope));
                    if matches!(&envelope.event, Event::RunEnded { .. }) {
                        if !recorded.session().has_waiting_launch() {
                            break;
                        }
                        // somebody else was faster: it waits again
                        run = None;
                    }
                }
                Output::Launched(id) => run = Some(id),
                Output::Waiting(why) => screen.own(&format!("waiting: {why}")),
                Output::LaunchFailed(error) => return Err(error.into()),
                Output::Gone(..) | Output::Refused(..) => {}
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
    screen.print(|printer| printer.end());
    let outcome = screen.printer.state().and_then(|state| state.outcome.as_ref());
    let code = outcome.map_or(i32::from(Code::Bug.number()), |outcome| outcome.code);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Prints what the printer says. When a reader has gone away (`| head`), the run goes on in silence.
struct Screen {
    printer: RunPrinter,
    deaf: bool,
}

impl Screen {
    fn print(&mut self, lines: impl FnOnce(&mut RunPrinter) -> Vec<Line>) {
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

    fn troubles(&mut self, recorded: &mut Recorded) {
        while let Some(trouble) = recorded.trouble() {
            self.own(&trouble);
        }
    }

    fn own(&mut self, text: &str) {
        let text = Line::Err(format!("hvtui: {}", sanitize(text)));
        self.print(|_| vec![text]);
    }
}
