//! `hvtui hosts check`: connects to every host at once and says of each what came of it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use super::stop::fault;
use crate::cli::errors::{Code, Failure, to_stdout};
use crate::cli::paths::Paths;
use crate::cli::{ask, connect, runtime};
use crate::config::HostsFile;
use crate::domain::event::{Event, Origin};
use crate::domain::host::{HostInfo, LinkState};
use crate::domain::ids::HostId;
use crate::domain::text::sanitize;
use crate::launcher::session::Output;

/// No host may take longer, the time at questions not counted.
const DEADLINE: Duration = Duration::from_secs(45);

/// Tries every host; exits with the worst fault.
pub fn run(verbose: bool, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let mut told: BTreeMap<HostId, Result<String, (Code, String)>> = BTreeMap::new();
    let mut notes: BTreeMap<HostId, Vec<String>> = BTreeMap::new();
    runtime::block_on(async {
        let asker = ask::person();
        let mut targets = connect::targets(&file.hosts, &paths.home).await;
        for (host, target) in &mut targets {
            if let Ok(target) = target {
                notes.insert(host.clone(), target.all_notes());
                *target = target.clone().with_asker(&asker);
            }
        }
        let mut session = connect::session_by(&file.hosts, targets, Some(Duration::from_secs(1)))?;
        let all = async {
            while told.len() < file.hosts.len() {
                if let Output::Event(envelope) = session.next().await
                    && let Origin::Host(host) = &envelope.origin
                    && let Some(result) = verdict(&envelope.event, verbose)
                {
                    told.entry(host.clone()).or_insert(result);
                }
            }
        };
        // a host that has not told by then is listed as such below
        let _ = asker.timeout(DEADLINE, all).await;
        Ok(())
    })?;
    let mut worst: Option<Code> = None;
    let width = file.hosts.iter().map(|host| host.id.as_str().len()).max().unwrap_or(0);
    for host in &file.hosts {
        let silent = || Err((Code::Unreachable, format!("no answer within {} s", DEADLINE.as_secs())));
        let line = match told.remove(&host.id).unwrap_or_else(silent) {
            Ok(text) => {
                let mut lines = text.lines().map(sanitize);
                let first = lines.next().unwrap_or_default();
                let rest = lines.map(|line| format!("    {line}\n"));
                format!("✔ {:width$}  {first}\n{}", host.id, rest.collect::<String>())
            }
            Err((code, text)) => {
                worst = worst.into_iter().chain([code]).max_by_key(|code| code.number());
                // the line begins with the host: most faults do too
                let text = text.strip_prefix(&format!("{}: ", host.id)).unwrap_or(&text);
                format!("✖ {:width$}  {}\n", host.id, sanitize(text))
            }
        };
        to_stdout(&line)?;
        for note in notes.remove(&host.id).unwrap_or_default() {
            to_stdout(&format!("  {:width$}  note: {}\n", "", sanitize(&note)))?;
        }
    }
    Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn verdict(event: &Event, verbose: bool) -> Option<Result<String, (Code, String)>> {
    match event {
        Event::HostDescribed { info } => Some(Ok(facts(info) + &more(info, verbose))),
        Event::LinkChanged { state: LinkState::Up } => None,
        Event::LinkChanged { state } => fault(state).map(Err),
        _ => None,
    }
}

/// Which binary answers, and what the host printed, each on lines of its own.
fn more(info: &HostInfo, verbose: bool) -> String {
    let build = info.agent_build.iter().map(|build| format!("\nsha256 {build}"));
    let banner = info.banner.iter().flat_map(|banner| banner.lines()).map(|line| format!("\n│ {line}"));
    if verbose { build.chain(banner).collect() } else { String::new() }
}

fn facts(info: &HostInfo) -> String {
    let gpus = match (&info.gpus[..], &info.gpu_absence) {
        ([], Some(absence)) => format!("no GPU: {}", absence.reason.explain()),
        ([], None) => "no GPU".to_owned(),
        ([first, ..], _) => format!("{} × {}", info.gpus.len(), first.name),
    };
    format!("{}@{}, {} CPUs, {gpus}, hvtui {}", info.user, info.hostname, info.cpus, info.agent_version)
}
