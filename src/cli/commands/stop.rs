//! `hvtui stop`: ends a run that some client launched, and waits until nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::args::StopArgs;
use crate::cli::ask;
use crate::cli::complete::complete;
use crate::cli::errors::{Code, Failure, to_stdout};
use crate::cli::find::find;
use crate::cli::paths::Paths;
use crate::cli::runtime;
use crate::config::HostsFile;
use crate::domain::event::{Event, Origin};
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::note::{Note, what};
use crate::domain::run::RunSpec;
use crate::domain::text::{about, sanitize};
use crate::launcher::session::{Output, Session};

/// Grace, kill and some time for the links.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long its end may take to be read from the hosts.
const COMPLETION: Duration = Duration::from_secs(10);

/// Stops a run.
pub fn run(args: &StopArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let asker = ask::person();
        let mut found = find(&args.run, file, paths, None, &asker).await?;
        let spec = found.spec.clone();
        if let Some(outcome) = found.recording.as_ref().and_then(|reader| reader.outcome()) {
            to_stdout(&format!("run {} has ended already: {}\n", spec.id.short(), outcome.summary))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut session = found.session(file, paths, None, &asker).await?;
        let stopped =
            asker.timeout(DEADLINE, stop(&mut session, &spec, args.now)).await.unwrap_or_else(|| {
                let text = format!("run {} is not gone after {} s", spec.id.short(), DEADLINE.as_secs());
                Err(Failure::new(Code::Unreachable, format!("{text}; try: hvtui stop {} --now", args.run)))
            })?;
        if found.recording.take().is_some() {
            // its end is known now: the next command need not ask the hosts
            for trouble in complete(session, vec![spec], &paths.state, COMPLETION).await {
                tracing::warn!(trouble, "the end of a stopped run could not be recorded");
            }
        }
        Ok(stopped)
    })
}

async fn stop(session: &mut Session, spec: &RunSpec, now: bool) -> Result<ExitCode, Failure> {
    let mut due: BTreeSet<HostId> = spec.hosts().into_iter().collect();
    let mut failures: Vec<(Code, String)> = Vec::new();
    let mut notes: BTreeMap<HostId, Vec<Note>> = BTreeMap::new();
    session.stop_foreign(spec, now);
    while !due.is_empty() {
        match session.next().await {
            Output::Gone(run, host) if run == spec.id && due.remove(&host) => {
                let said = notes.remove(&host).unwrap_or_default();
                let left: Vec<&Note> = said.iter().filter(|note| note.what == what::UNKILLABLE).collect();
                failures
                    .extend(left.iter().map(|note| (Code::Unreachable, about(&host, &sanitize(&note.text)))));
                if left.is_empty() {
                    let ended =
                        said.iter().rfind(|note| note.what == what::GONE).map_or(0, |note| note.count);
                    let processes = if ended == 1 { "process" } else { "processes" };
                    let count =
                        if ended > 0 { format!(" ({ended} {processes} ended)") } else { String::new() };
                    to_stdout(&format!("{host}: nothing of run {} is left{count}\n", spec.id.short()))?;
                }
            }
            Output::Refused(run, host, reason) if run == spec.id && due.remove(&host) => {
                failures.push((Code::Unreachable, about(&host, &reason)));
            }
            Output::Event(envelope) => {
                if let Event::RunNoted { host, note } = &envelope.event {
                    notes.entry(host.clone()).or_default().push(note.clone());
                }
                if let (Origin::Host(host), Event::LinkChanged { state }) =
                    (&envelope.origin, &envelope.event)
                    && let Some((code, reason)) = fault(state)
                    && due.remove(host)
                {
                    failures.push((code, about(host, &reason)));
                }
            }
            _ => {}
        }
    }
    let Some((code, _)) = failures.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    let all: Vec<&str> = failures.iter().map(|(_, text)| text.as_str()).collect();
    Err(Failure::new(*code, all.join("\n")))
}

/// What is wrong with a link, if something is, and the exit code that tells it.
pub(crate) fn fault(state: &LinkState) -> Option<(Code, String)> {
    match state {
        LinkState::Down { reason, .. } | LinkState::Limited { reason } => {
            Some((Code::Unreachable, reason.clone()))
        }
        LinkState::Refused { reason, kind } => Some(((*kind).into(), reason.clone())),
        _ => None,
    }
}
