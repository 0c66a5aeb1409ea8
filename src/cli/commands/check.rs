//! `hvtui hosts check`: connects to every host at once and says of each what came of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::trust::find;
use crate::cli::again::with_hosts;
use crate::cli::errors::fault;
use crate::cli::errors::{Code, Failure, to_person, to_stdout};
use crate::cli::json::{self, VERSION};
use crate::cli::paths::Paths;
use crate::cli::{ask, connect, runtime};
use crate::clock;
use crate::config::{HostConfig, HostsFile};
use crate::domain::event::{Event, Origin};
use crate::domain::gpu::mig;
use crate::domain::host::{HostInfo, LinkState};
use crate::domain::ids::HostId;
use crate::domain::text::sanitize;
use crate::launcher::session::Output;

/// No host may take longer, the time at questions not counted.
const DEADLINE: Duration = Duration::from_secs(45);

/// What came of a host.
type Verdict = Result<Arc<HostInfo>, (Code, String)>;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Json<'a> {
    version: u32,
    at: String,
    hosts: Vec<Checked<'a>>,
}

#[derive(Debug, Serialize)]
struct Checked<'a> {
    name: &'a str,
    address: String,
    ok: bool,
    /// The exit code that tells what is wrong; 0 where nothing is.
    code: u8,
    error: Option<&'a str>,
    info: Option<&'a HostInfo>,
    notes: &'a [String],
}

/// Tries every host, or `only` these; exits with the worst fault.
pub fn run(
    only: &[String],
    verbose: bool,
    json: bool,
    file: &HostsFile,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    let file = &narrowed(only, file)?;
    let mut told: BTreeMap<HostId, Verdict> = BTreeMap::new();
    let mut notes: BTreeMap<HostId, Vec<String>> = BTreeMap::new();
    runtime::block_on(async {
        let prompter = ask::person();
        let mut targets = connect::targets(&file.hosts, &paths.home).await;
        for (host, target) in &mut targets {
            if let Ok(target) = target {
                notes.insert(host.clone(), target.all_notes());
                *target = target.clone().with_prompter(&prompter);
            }
        }
        let mut session = connect::session_by(&file.hosts, targets, Some(Duration::from_secs(1)))?;
        let all = async {
            while told.len() < file.hosts.len() {
                if let Output::Event(envelope) = session.next().await
                    && let Origin::Host(host) = &envelope.origin
                    && let Some(result) = verdict(&envelope.event)
                {
                    told.entry(host.clone()).or_insert(result);
                }
            }
        };
        // a host that has not told by then is listed as such below
        let _ = prompter.timeout(DEADLINE, all).await;
        Ok(())
    })?;
    for host in &file.hosts {
        let silent = || Err((Code::Unreachable, format!("no answer within {} s", DEADLINE.as_secs())));
        told.entry(host.id.clone()).or_insert_with(silent);
    }
    let worst = told.values().filter_map(|told| told.as_ref().err()).map(|(code, _)| *code);
    let worst = worst.max_by_key(|code| code.number());
    if json {
        to_stdout(&as_json(file, &told, &notes)?)?;
    } else {
        to_person(&with_hosts(&as_text(verbose, file, &told, &notes)))?;
    }
    Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// The file with these hosts alone, or with all where none is named.
fn narrowed(only: &[String], file: &HostsFile) -> Result<HostsFile, Failure> {
    let mut file = file.clone();
    if !only.is_empty() {
        let named = only.iter().map(|name| find(name, &file).map(|host| host.id.clone()));
        let named: Vec<HostId> = named.collect::<Result<_, Failure>>()?;
        file.hosts.retain(|host| named.contains(&host.id));
    }
    Ok(file)
}

fn as_json(
    file: &HostsFile,
    told: &BTreeMap<HostId, Verdict>,
    notes: &BTreeMap<HostId, Vec<String>>,
) -> Result<String, Failure> {
    let notes = |host: &HostId| notes.get(host).map_or(&[][..], Vec::as_slice);
    let hosts = file.hosts.iter().map(|host| checked(host, told.get(&host.id), notes(&host.id))).collect();
    json::line(&Json { version: VERSION, at: json::moment(clock::now()), hosts })
}

fn checked<'a>(host: &'a HostConfig, verdict: Option<&'a Verdict>, notes: &'a [String]) -> Checked<'a> {
    let fault = verdict.and_then(|told| told.as_ref().err());
    Checked {
        name: host.id.as_str(),
        address: host.address.to_string(),
        ok: fault.is_none(),
        code: fault.map_or(0, |(code, _)| code.number()),
        error: fault.map(|(_, text)| text.as_str()),
        info: verdict.and_then(|told| told.as_ref().ok()).map(AsRef::as_ref),
        notes,
    }
}

fn as_text(
    verbose: bool,
    file: &HostsFile,
    told: &BTreeMap<HostId, Verdict>,
    notes: &BTreeMap<HostId, Vec<String>>,
) -> String {
    let mut out = String::new();
    let width = file.hosts.iter().map(|host| host.id.as_str().len()).max().unwrap_or(0);
    for host in &file.hosts {
        match told.get(&host.id) {
            Some(Ok(info)) => {
                let text = facts(info) + &more(info, verbose);
                let mut lines = text.lines().map(sanitize);
                let first = lines.next().unwrap_or_default();
                let _ = writeln!(out, "✔ {:width$}  {first}", host.id);
                for line in lines {
                    let _ = writeln!(out, "    {line}");
                }
            }
            Some(Err((_, text))) => {
                // the line begins with the host: most faults do too
                let text = text.strip_prefix(&format!("{}: ", host.id)).unwrap_or(text);
                let _ = writeln!(out, "✖ {:width$}  {}", host.id, sanitize(text));
            }
            None => {}
        }
        for note in notes.get(&host.id).into_iter().flatten() {
            let _ = writeln!(out, "  {:width$}  note: {}", "", sanitize(note));
        }
    }
    out
}

fn verdict(event: &Event) -> Option<Verdict> {
    match event {
        Event::HostDescribed { info } => Some(Ok(info.clone())),
        Event::LinkChanged { state: LinkState::Up } => None,
        Event::LinkChanged { state } => fault(state).map(Err),
        _ => None,
    }
}

/// What let us in, which binary answers, and what the host printed, each on lines of its own.
fn more(info: &HostInfo, verbose: bool) -> String {
    let build = info.agent_build.iter().map(|build| format!("\nsha256 {build}"));
    let banner = info.banner.iter().flat_map(|banner| banner.lines()).map(|line| format!("\n│ {line}"));
    let login = info.login.iter().map(|login| format!("\nlogged in by {login}"));
    if verbose { login.chain(build).chain(banner).collect() } else { String::new() }
}

fn facts(info: &HostInfo) -> String {
    let gpus = match (&info.gpus[..], &info.gpu_absence) {
        ([], Some(absence)) => format!("no GPU: {}", absence.reason.explain()),
        ([], None) => "no GPU".to_owned(),
        ([first, ..], _) => {
            format!("{} × {}{}", mig::whole(&info.gpus).count(), first.name, mig::and_slices(&info.gpus))
        }
    };
    format!("{}@{}, {} CPUs, {gpus}, hvtui {}", info.user, info.hostname, info.cpus, info.agent_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_that_are_named_are_checked() {
        let mut file = HostsFile::this_machine();
        for name in ["n1", "n2"] {
            file.hosts.push(HostConfig { id: name.into(), ..HostConfig::this_machine() });
        }
        let names = |only: &[&str]| -> Result<Vec<String>, Failure> {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            let hosts = narrowed(&only, &file)?.hosts;
            Ok(hosts.into_iter().map(|host| host.id.to_string()).collect())
        };
        assert_eq!(names(&["n2", "n1"]).unwrap(), ["n1", "n2"], "in the order of the file");
        assert_eq!(names(&[]).unwrap().len(), 3);
        let unknown = names(&["n3"]).unwrap_err();
        assert!(unknown.message.starts_with("unknown host n3: "), "{}", unknown.message);
    }
}
