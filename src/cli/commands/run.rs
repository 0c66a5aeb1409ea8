//! `hvtui run`: launches, streams, records, and ends with the run's exit code.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{doctor, watch};
use crate::cli::again::with_hosts;
use crate::cli::args::{RunArgs, WatchArgs, WatchForm};
use crate::cli::complete::close_recordings;
use crate::cli::errors::{Code, Failure, note, to_person, to_stdout};
use crate::cli::follow::{Part, Screen, follow};
use crate::cli::launch::{Asked, Launch};
use crate::cli::log_line::Paint;
use crate::cli::paths::Paths;
use crate::cli::rank_files::RankFiles;
use crate::cli::run_printer::RunPrinter;
use crate::cli::runtime;
use crate::cli::{ask, connect, launch, secret_file};
use crate::config::{HostConfig, HostsFile};
use crate::domain::doctor::troubles;
use crate::domain::ids::HostId;
use crate::domain::preflight::{Finding, Mark};
use crate::domain::text::about;
use crate::domain::units;
use crate::launch::by_hand::{Reach, by_hand};
use crate::launch::plan::LaunchPlan;
use crate::launch::preview::preview;
use crate::launch::remark::warnings_first;
use crate::launch::request::{LaunchRequest, OnRed};
use crate::launcher::session::looking::red;
use crate::launcher::session::{Output, Session};
use crate::launcher::syncing::HostCounts;
use crate::tui::source::recorded::Recorded;

/// Between telemetry samples of the hosts of a run.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of the one question of a dry run, and how long its hosts may take to answer it: each ends its look after 2 s.
const PREFLIGHT: u64 = 1;
const LOOKING: Duration = Duration::from_secs(3);
/// How long the hosts of a plan may take to tell of their runs.
const TELLING: Duration = Duration::from_secs(2);

/// Launches and waits for the end.
pub fn run(args: &RunArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let secrets = args.secret_file.as_deref().map(secret_file::read).transpose()?.unwrap_or_default();
    let Launch { mut request, hosts, verbose, output } = match launch::asked(args, &secrets, file, paths)? {
        Asked::Launch(launch) => *launch,
        Asked::Watch(interval) => {
            note(&format!("this is `hvtui watch -n {interval}`"));
            return watch::run(
                &WatchArgs { once: false, form: WatchForm::default(), filter: None, interval },
                file,
                paths,
            );
        }
    };
    request.on_red = match (request.query, args.force) {
        (true, _) => OnRed::Unasked,
        (false, true) => OnRed::Ignore,
        (false, false) => OnRed::Refuse,
    };
    runtime::block_on(async {
        let prompter = ask::person();
        let mut session = connect::session(&hosts, &paths.home, Some(INTERVAL), &prompter).await?;
        session.keep_hashes_in(paths.state.join("sync"), paths.home.clone());
        session
            .take_secrets_from(move |name| secrets.get(name).cloned().or_else(|| std::env::var(name).ok()));
        if args.dry_run {
            dry_run(session, &request, &hosts).await
        } else {
            remarks_told(&request);
            if args.detach && request.options.max_restarts > 0 {
                note(
                    "--max-restarts: only the command that launched a run starts it again, so not after --detach has left",
                );
            }
            let part = if args.detach { Part::Launcher } else { Part::Owner };
            let files = output.as_deref().map(|dir| (dir, RankFiles::new(dir)));
            let failed = |dir: &Path, error: std::io::Error| {
                Failure::new(Code::from(&error), format!("--output-filename {}: {error}", dir.display()))
            };
            let files = files.map(|(dir, files)| files.map_err(|error| failed(dir, error))).transpose()?;
            let screen = Screen::new(RunPrinter::new(verbose).painted(Paint::of_process()), args.detach)
                .with_files(files);
            let screen = if request.query { screen } else { screen.telling_others() };
            let mut recorded = Recorded::new(session, &paths.state);
            recorded.limit(file.max_recording);
            recorded.keep_states(Arc::new(file.alerts.rules.clone()));
            close_recordings(&paths.state);
            if output.is_some() || !std::io::stdout().is_terminal() {
                recorded.session().pass_over_nothing();
            }
            recorded.session().launch(request);
            follow(recorded, screen, None, part, &prompter, &paths.state).await
        }
    })
}

/// Tells what is to know of a launch.
fn remarks_told(request: &LaunchRequest) {
    for remark in warnings_first(&request.remarks) {
        note(&remark.shown());
    }
}

/// Shows the plan as soon as the hosts are known.
async fn dry_run(
    mut session: Session,
    request: &LaunchRequest,
    hosts: &[HostConfig],
) -> Result<ExitCode, Failure> {
    let mut asked = false;
    loop {
        match session.preview(request) {
            Ok(planned) if !std::mem::replace(&mut asked, true) => {
                cpu_slots_told(&mut session, request, &planned).await;
            }
            Ok(planned) => {
                let folder = compared(&mut session, &planned).await?;
                to_person(&joined(&preview(&planned)))?;
                // commands for a shell stay what they are
                to_stdout(&joined(&by_hand(&planned, |host| reach(hosts, host))))?;
                to_person(&joined(&folder))?;
                if request.on_red == OnRed::Unasked {
                    return Ok(ExitCode::SUCCESS);
                }
                let found = doctor::examine_plan(&mut session, &planned).await;
                to_person(&with_hosts(&troubles(&found, Mark::Look)))?;
                if let (Some(red), OnRed::Refuse) = (red(&found), request.on_red) {
                    return Err(Failure::new(Code::Unfit, format!("nothing would be started: {red}")));
                }
                to_person(&with_hosts(&troubles(&found, Mark::Bad)))?;
                let lacking = lacking(&preflight(&mut session, &planned).await);
                if !lacking.is_empty() {
                    let lacking = lacking.join("\n");
                    return Err(Failure::new(Code::Command, format!("nothing would be started: {lacking}")));
                }
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) if error.is_waiting() => drop(session.next().await),
            Err(error) => {
                // there is no plan that would show them
                remarks_told(request);
                return Err(error.into());
            }
        }
    }
}

/// Waits until the hosts of a plan have told which CPU slots runs have, for a moment at most: a launch takes the others first.
async fn cpu_slots_told(session: &mut Session, request: &LaunchRequest, planned: &LaunchPlan) {
    let mut due = session.ask_cpu_slots(request, planned);
    let all = async {
        while !due.is_empty() {
            if let Output::Found { host, last: true, .. } = session.next().await {
                due.retain(|other| *other != host);
            }
        }
    };
    let _ = timeout(TELLING, all).await;
}

/// What the hosts of a plan find of what their ranks need to start: its folder, its environment, its command and script.
async fn preflight(session: &mut Session, planned: &LaunchPlan) -> Vec<(HostId, Vec<Finding>)> {
    let hosts: Vec<HostId> = planned.hosts.iter().map(|share| share.host.clone()).collect();
    let (mut due, mut told) = (hosts.clone(), Vec::new());
    session.preflight(planned, PREFLIGHT);
    let all = async {
        while !due.is_empty() {
            if let Output::Preflight(PREFLIGHT, host, findings) = session.next().await {
                due.retain(|other| *other != host);
                told.push((host, findings));
            }
        }
    };
    let _ = timeout(LOOKING, all).await;
    for host in &due {
        note(&format!(
            "{host}: it has not told within {} s whether its ranks could start",
            LOOKING.as_secs()
        ));
    }
    told.sort_by_key(|(host, _)| hosts.iter().position(|other| other == host));
    told
}

/// What keeps a launch from starting, with its hosts: what several lack in the same words once.
fn lacking(found: &[(HostId, Vec<Finding>)]) -> Vec<String> {
    let mut lines: Vec<(&str, Vec<&HostId>)> = Vec::new();
    let bad = |finding: &&Finding| finding.mark == Mark::Bad;
    for (host, text) in
        found.iter().flat_map(|(host, all)| all.iter().filter(bad).map(move |one| (host, one.text.as_str())))
    {
        match lines.iter_mut().find(|(told, _)| *told == text) {
            Some((_, hosts)) => hosts.push(host),
            None => lines.push((text, vec![host])),
        }
    }
    let words = |(text, hosts): (&str, Vec<&HostId>)| match hosts.as_slice() {
        [host] => about(host, text),
        several => {
            let names: Vec<&str> = several.iter().map(|host| host.as_str()).collect();
            format!("{}: {text}", names.join(", "))
        }
    };
    lines.into_iter().map(words).collect()
}

fn joined(lines: &[String]) -> String {
    if lines.is_empty() { String::new() } else { lines.join("\n") + "\n" }
}

/// What would be copied to each host; nothing is written there.
async fn compared(session: &mut Session, planned: &LaunchPlan) -> Result<Vec<String>, Failure> {
    let Some(folder) = session.compare(planned)? else { return Ok(Vec::new()) };
    let counts = loop {
        match session.next().await {
            Output::Compared(counts) => break counts,
            Output::LaunchFailed(error) => return Err(error.into()),
            _ => {}
        }
    };
    let (files, whole) = (units::counted(folder.manifest.files(), "file"), units::bytes(folder.bytes()));
    let mut lines = vec![format!("sync {}: {files}, {whole}", folder.dir.display())];
    for id in planned.spec.hosts() {
        let what = match counts.iter().find(|(host, _)| *host == id) {
            None => "has the folder itself: nothing is copied".to_owned(),
            Some((_, counts)) if *counts == HostCounts::default() => "nothing to copy".to_owned(),
            Some((_, counts)) => {
                let HostCounts { changed, deleted, bytes } = *counts;
                let deleted =
                    if deleted > 0 { format!(", {deleted} would be deleted") } else { String::new() };
                let changed = units::counted(changed, "file");
                format!("{changed} would change{deleted}, {} would be sent", units::bytes(bytes))
            }
        };
        lines.push(format!("  {id}: {what}"));
    }
    Ok(lines)
}

/// How a person's ssh reaches a host; `None` for this machine.
pub(super) fn reach(hosts: &[HostConfig], id: &HostId) -> Option<Reach> {
    hosts.iter().find(|host| host.id == *id)?.reach()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_lack_is_told_once_with_their_names() {
        let bad = |text: &str| Finding::new(Mark::Bad, text);
        let found = [
            (
                HostId::from("n1"),
                vec![Finding::new(Mark::Good, "folder /x"), bad("no file a.py in /x: set workdir")],
            ),
            (
                HostId::from("n2"),
                vec![bad("no file a.py in /x: set workdir"), bad("command 'y' not found on n2")],
            ),
            (HostId::from("n3"), vec![Finding::new(Mark::Unknown, "the environment: no answer in 2 s")]),
        ];
        assert_eq!(
            lacking(&found),
            ["n1, n2: no file a.py in /x: set workdir", "n2: command 'y' not found on n2"]
        );
        assert!(lacking(&found[2..]).is_empty());
    }
}
