//! From the hosts file to links: who is reached how.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcetera::base_strategy::{BaseStrategy, Xdg};

use super::errors::Failure;
use crate::cluster::link::LinkTarget;
use crate::cluster::pool::HostEntry;
use crate::config::{Address, HostConfig};
use crate::domain::question::HostKeyPolicy;
use crate::launcher::session::Session;
use crate::ssh::Asker;
use crate::{ssh, telemetry};

/// The port of ssh where nothing else is said.
const SSH_PORT: u16 = 22;

/// A session with these hosts. `interval` is the time between telemetry samples, `None` for none; `asker` is who can be
/// asked for what ssh needs.
pub(crate) fn session(
    hosts: &[HostConfig],
    home: &Path,
    interval: Option<Duration>,
    asker: &Asker,
) -> Result<Session, Failure> {
    let exe = std::env::current_exe().map_err(|error| Failure::bug(format!("find this program: {error}")))?;
    let any_ssh = hosts.iter().any(|host| !host.is_local());
    let agents = if any_ssh { Some(Arc::new(ssh::Agents::find(&folders_of_agents(&exe))?)) } else { None };
    let mut entries = Vec::new();
    for host in hosts {
        let target = match (&host.address, &agents) {
            (Address::Ssh(address), Some(agents)) => {
                let target = target(host, address, home, asker)?;
                LinkTarget::Ssh { target, deployment: deployment(host, agents, interval) }
            }
            _ => LinkTarget::Local { exe: exe.clone() },
        };
        let lease_dir = host.lease_dir.clone();
        entries.push(HostEntry { id: host.id.clone(), target, interval, lease_dir });
    }
    let here = std::env::current_dir().map_or_else(|_| "/".to_owned(), |dir| dir.display().to_string());
    Ok(Session::new(hosts.to_vec(), entries, here))
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

/// How ssh reaches a host.
pub(crate) fn target(
    host: &HostConfig,
    address: &str,
    home: &Path,
    asker: &Asker,
) -> Result<ssh::Target, Failure> {
    let user = host.user.clone().map_or_else(own_user, Ok)?;
    let unpinned = if host.fingerprint.is_some() { HostKeyPolicy::Strict } else { HostKeyPolicy::Ask };
    let target = ssh::Target {
        identities: host.identity.iter().cloned().collect(),
        known_hosts: ssh::default_known_hosts(home),
        fingerprint: host.fingerprint.clone(),
        host_key_policy: host.host_keys.unwrap_or(unpinned),
        ..ssh::Target::new(host.id.clone(), address, host.port.unwrap_or(SSH_PORT), user)
    };
    let target = target.with_asker(asker);
    target.check()?;
    Ok(target)
}

/// The login name here, for hosts that name no other.
fn own_user() -> Result<String, Failure> {
    let from_env =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok().filter(|name| !name.is_empty());
    from_env.or_else(user_of_passwd).ok_or_else(|| {
        Failure::usage("your login name is not known ($USER is not set): write `user` in the hosts file")
    })
}

fn user_of_passwd() -> Option<String> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
    line.split(':').next().map(str::to_owned)
}
