//! From the hosts file to links: who is reached how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcetera::base_strategy::{BaseStrategy, Xdg};
use futures_util::StreamExt;

use super::descriptors;
use super::errors::Failure;
use crate::cluster::link::LinkTarget;
use crate::cluster::messages::HostEntry;
use crate::config::{Address, HostConfig, Transport};
use crate::domain::ids::HostId;
use crate::launcher::session::Session;
use crate::ssh::{self, Prompter, SshError};
use crate::telemetry;

/// How many hosts' ssh configurations are asked for at a time.
const AT_ONCE: usize = 16;

/// A host of another machine, and how it is reached, or why that can't be said.
pub(crate) type Reached = (HostId, Result<ssh::Target, SshError>);

/// A session with these hosts. `interval` is the time between telemetry samples, `None` for none; `prompter` is who can be
/// asked for what ssh needs.
pub(crate) async fn session(
    hosts: &[HostConfig],
    home: &Path,
    interval: Option<Duration>,
    prompter: &Prompter,
) -> Result<Session, Failure> {
    let targets = targets(hosts, home).await.into_iter();
    let targets = targets.map(|(host, target)| (host, target.map(|target| target.with_prompter(prompter))));
    session_by(hosts, targets.collect(), interval)
}

/// A session with these hosts over ways that are known already.
pub(crate) fn session_by(
    hosts: &[HostConfig],
    targets: Vec<Reached>,
    interval: Option<Duration>,
) -> Result<Session, Failure> {
    let entries = entries(hosts, targets, interval)?;
    let here = std::env::current_dir().map_or_else(|_| "/".to_owned(), |dir| dir.display().to_string());
    let mut session = Session::new(hosts.to_vec(), entries, here);
    session.take_secrets_from(|name| std::env::var(name).ok());
    Ok(session)
}

/// The hosts with the ways to them and what is put there. This process may have files open for all of them from then on.
pub(crate) fn entries(
    hosts: &[HostConfig],
    targets: Vec<Reached>,
    interval: Option<Duration>,
) -> Result<Vec<HostEntry>, Failure> {
    descriptors::have_room_for(hosts.len());
    let exe = std::env::current_exe().map_err(|error| Failure::bug(format!("find this program: {error}")))?;
    let agents =
        if targets.is_empty() { None } else { Some(Arc::new(ssh::Agents::find(&folders_of_agents(&exe))?)) };
    let mut targets: BTreeMap<HostId, Result<ssh::Target, SshError>> = targets.into_iter().collect();
    let mut entries = Vec::new();
    for host in hosts {
        let target = match (targets.remove(&host.id), &agents) {
            (Some(Ok(target)), Some(agents)) => {
                for note in target.all_notes() {
                    tracing::info!(host = %host.id, "{note}");
                }
                LinkTarget::Ssh { target: Box::new(target), deployment: deployment(host, agents, interval) }
            }
            (Some(Err(error)), _) => {
                LinkTarget::Unusable { to: host.address.to_string(), reason: error.to_string() }
            }
            _ => LinkTarget::Local { exe: exe.clone() },
        };
        let lease_dir = host.lease_dir.clone();
        entries.push(HostEntry { id: host.id.clone(), target, interval, lease_dir });
    }
    Ok(entries)
}

/// How each host is reached that is not this machine: the hosts file first, then the person's ssh configuration.
pub(crate) async fn targets(hosts: &[HostConfig], home: &Path) -> Vec<Reached> {
    let reader = ssh::config::Reader::new(home, program("ssh"));
    let local_user = own_user();
    let (reader, local_user) = (&reader, local_user.as_deref());
    let there = hosts.iter().filter_map(|host| Some((host, wanted(host)?)));
    let asked = there.map(|(host, wanted)| async move {
        let find = |name: &str| {
            host.jump_hosts.iter().find(|known| known.id.as_str() == name).and_then(self::wanted)
        };
        let resolver = ssh::Resolver { reader, home, local_user, find: &find };
        (host.id.clone(), resolver.target(&wanted).await)
    });
    futures_util::stream::iter(asked).buffered(AT_ONCE).collect().await
}

/// How ssh reaches one host.
pub(crate) async fn target(host: &HostConfig, home: &Path) -> Result<ssh::Target, Failure> {
    match targets(std::slice::from_ref(host), home).await.pop() {
        Some((_, target)) => Ok(target?),
        None => Err(Failure::usage(format!("host {} is this machine: no ssh, no host key", host.id))),
    }
}

/// What the hosts file says of a host; `None` for this machine.
fn wanted(host: &HostConfig) -> Option<ssh::Wanted> {
    let Address::Ssh(address) = &host.address else { return None };
    Some(ssh::Wanted {
        user: host.user.clone(),
        port: host.port,
        identity: host.identity.clone(),
        fingerprint: host.fingerprint.clone(),
        policy: host.host_keys,
        jump: host.jump.clone(),
        choice: match host.transport {
            Transport::Auto => ssh::Choice::Auto,
            Transport::Russh => ssh::Choice::Russh,
            Transport::OpenSsh => ssh::Choice::OpenSsh,
        },
        ..ssh::Wanted::new(host.id.clone(), address)
    })
}

/// Where a program is.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Where `agents/<target>/hvtui` is looked for: beside this program, then in the data folder.
fn folders_of_agents(exe: &Path) -> Vec<PathBuf> {
    let beside = exe.parent().map(Path::to_owned);
    let data = Xdg::new().ok().map(|xdg| xdg.data_dir().join("hvtui"));
    beside.into_iter().chain(data).collect()
}

fn deployment(host: &HostConfig, agents: &Arc<ssh::Agents>, interval: Option<Duration>) -> ssh::Deployment {
    ssh::Deployment {
        agents: Arc::clone(agents),
        agent_path: host.agent_path.clone(),
        cache_dir: host.cache_dir.clone(),
        install: host.install,
        telemetry: interval.map(|every| ssh::TelemetryAsk {
            every,
            gpu_fields: telemetry::GPU_FIELDS,
            app_fields: telemetry::APP_FIELDS,
        }),
    }
}

/// The login name here, for hosts that name no other.
fn own_user() -> Option<String> {
    let from_env =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok().filter(|name| !name.is_empty());
    from_env.or_else(user_of_passwd)
}

fn user_of_passwd() -> Option<String> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
    line.split(':').next().map(str::to_owned)
}
