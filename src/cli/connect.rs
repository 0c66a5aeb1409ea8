//! From the hosts file to links: who is reached how.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::errors::Failure;
use crate::cluster::link::LinkTarget;
use crate::cluster::pool::HostEntry;
use crate::config::{Address, HostConfig};
use crate::domain::question::HostKeyPolicy;
use crate::launcher::session::Session;
use crate::ssh::{self, Asker};

/// The port of ssh where nothing else is said.
const SSH_PORT: u16 = 22;
/// How long a TCP connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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
    let binary = if any_ssh { Some(Arc::new(ssh::AgentBinary::of_current_exe()?)) } else { None };
    let mut entries = Vec::new();
    for host in hosts {
        let target = match (&host.address, &binary) {
            (Address::Ssh(address), Some(binary)) => {
                let target = target(host, address, home, asker)?;
                LinkTarget::Ssh { target, binary: Arc::clone(binary) }
            }
            _ => LinkTarget::Local { exe: exe.clone() },
        };
        entries.push(HostEntry { id: host.id.clone(), target, interval });
    }
    let here = std::env::current_dir().map_or_else(|_| "/".to_owned(), |dir| dir.display().to_string());
    Ok(Session::new(hosts.to_vec(), entries, here))
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
        host_keys: host.host_keys.unwrap_or(unpinned),
        connect_timeout: CONNECT_TIMEOUT,
        auth_agent: true,
        asker: asker.clone(),
        ..ssh::Target::new(host.id.clone(), address, host.port.unwrap_or(SSH_PORT), &user)
    };
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
