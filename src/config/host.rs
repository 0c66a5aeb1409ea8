//! What a hosts file says, checked and merged. Must not know TOML.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::alerts::AlertsConfig;
use crate::domain::container::ContainerOptions;
use crate::domain::environment::EnvironmentPlan;
use crate::domain::filter::View;
use crate::domain::ids::HostId;
use crate::domain::occupancy::FreeMemory;
use crate::domain::question::HostKeyPolicy;
use crate::domain::retention::Retention;
use crate::domain::run::{JobKind, Spool};
use crate::launch::by_hand::Reach;
use crate::launch::names::jump_name;
use crate::launch::request::Pick;

/// The hosts and recipes to work with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostsFile {
    /// The file they come from; `None` for this machine alone.
    pub path: Option<PathBuf>,
    /// At least one, in file order, names unique.
    pub hosts: Vec<HostConfig>,
    /// Saved launches in file order, names unique.
    pub recipes: Vec<Recipe>,
    /// What is told by itself.
    pub alerts: AlertsConfig,
    /// How long recordings are kept.
    pub retention: Retention,
    /// What one recording may take, bytes, where it is said.
    pub max_recording: Option<u64>,
    /// Saved filters in file order, names unique.
    pub views: Vec<View>,
}

impl HostsFile {
    /// This machine alone, where there is no hosts file.
    pub fn this_machine() -> Self {
        Self {
            path: None,
            hosts: vec![HostConfig::this_machine()],
            recipes: Vec::new(),
            alerts: AlertsConfig::default(),
            retention: Retention::default(),
            max_recording: None,
            views: Vec::new(),
        }
    }
}

/// One host as a person described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// What hvtui calls it.
    pub id: HostId,
    /// Where it is.
    pub address: Address,
    /// Login name; the client's own when absent.
    pub user: Option<String>,
    /// ssh port; ssh's own rules when absent.
    pub port: Option<u16>,
    /// Private key file on the client; it exists.
    pub identity: Option<PathBuf>,
    /// The accepted host key, `SHA256:` and 43 characters of unpadded base64.
    pub fingerprint: Option<String>,
    /// What is done with an unknown host key; strict where a fingerprint is pinned, else ask, when absent.
    pub host_keys: Option<HostKeyPolicy>,
    /// Hosts to go through, `user@host:port,…`, the first one in front; `none`: go directly. The ssh configuration
    /// says when absent.
    pub jump: Option<String>,
    /// Those hosts of the file that `jump` names, and those that they name; none of them has `jump_hosts`.
    pub jump_hosts: Vec<HostConfig>,
    /// Whose ssh reaches it.
    pub transport: Transport,
    /// The network interface by which ranks reach each other.
    pub interface: Option<String>,
    /// How many ranks it takes.
    pub slots: SlotCount,
    /// Words for people.
    pub labels: Vec<String>,
    /// Variables for every rank on it.
    pub env: BTreeMap<String, String>,
    /// Where ranks start: absolute, or `~` and `~/…` for the home folder on that host.
    pub workdir: Option<String>,
    /// How much of what its ranks print is kept.
    pub spool: Spool,
    /// How much memory may be in use on a GPU of it that is free.
    pub free_memory: FreeMemory,
    /// After how many milliseconds in which no client is attached and nothing is written its ranks are ended, if ever.
    pub max_silence_ms: Option<u64>,
    /// Whether hvtui's hooks are put into the Pythons of its ranks.
    pub python_hooks: bool,
    /// A hvtui that is installed there, to be started as it is: absolute, or from `~/` on.
    pub agent_path: Option<String>,
    /// A folder there that may hold the agent, tried after the usual ones: absolute, or from `~/` on.
    pub cache_dir: Option<String>,
    /// Whether hvtui may be put on it.
    pub install: bool,
    /// The directory there in which GPU leases lie; absolute. The host's own choice when absent.
    pub lease_dir: Option<String>,
    /// The container engine there: a program on the search path, or the whole path of one. The host's docker, or else
    /// its podman, when absent.
    pub container: Option<String>,
    /// What is activated there before ranks start.
    pub environment: EnvironmentPlan,
}

impl HostConfig {
    /// This machine, as it is when no hosts file says more.
    pub fn this_machine() -> Self {
        Self {
            id: HostId::from("local"),
            address: Address::Local,
            user: None,
            port: None,
            identity: None,
            fingerprint: None,
            host_keys: None,
            jump: None,
            jump_hosts: Vec::new(),
            transport: Transport::default(),
            interface: None,
            slots: SlotCount::Auto,
            labels: Vec::new(),
            env: BTreeMap::new(),
            workdir: None,
            spool: Spool::default(),
            free_memory: FreeMemory::default(),
            max_silence_ms: None,
            python_hooks: true,
            agent_path: None,
            cache_dir: None,
            install: true,
            lease_dir: None,
            container: None,
            environment: EnvironmentPlan::default(),
        }
    }

    /// How a person's ssh reaches it; `None` for this machine.
    pub fn reach(&self) -> Option<Reach> {
        let Address::Ssh(address) = &self.address else { return None };
        let mut options = Vec::new();
        if let Some(identity) = &self.identity {
            options.extend(["-i".to_owned(), identity.display().to_string()]);
        }
        if let Some(jump) = &self.jump {
            let hops: Vec<String> = jump.split(',').map(|hop| self.hop(hop)).collect();
            options.extend(["-J".to_owned(), hops.join(",")]);
        }
        Some(Reach { host: address.clone(), user: self.user.clone(), port: self.port, options })
    }

    /// A host to go through as `ssh -J` takes it: the names of the file mean nothing to ssh. A user and a port that stand beside
    /// the name count before those of the file.
    fn hop(&self, hop: &str) -> String {
        let hop = hop.trim();
        let name = jump_name(hop);
        let known = self.jump_hosts.iter().find(|host| host.id.as_str() == name);
        let Some((host, Address::Ssh(address))) = known.map(|host| (host, &host.address)) else {
            return hop.to_owned();
        };
        let (user, place) = hop.rsplit_once('@').map_or((None, hop), |(user, place)| (Some(user), place));
        let user = user.or(host.user.as_deref()).map_or_else(String::new, |user| format!("{user}@"));
        let port = place.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')).map(str::to_owned);
        let port = port.or_else(|| host.port.map(|port| port.to_string()));
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        if address.contains(':') {
            format!("{user}[{address}]{port}")
        } else {
            format!("{user}{address}{port}")
        }
    }

    /// Whether it is this machine, reached without ssh.
    pub fn is_local(&self) -> bool {
        self.address == Address::Local
    }
}

/// Whose ssh reaches a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// hvtui's own; the system's where the ssh configuration asks for what only that can do.
    #[default]
    Auto,
    /// hvtui's own.
    Russh,
    /// The system's.
    OpenSsh,
}

/// Where a host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// This machine: no ssh.
    Local,
    /// A name or an IP address without brackets, for ssh.
    Ssh(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Local => "local",
            Self::Ssh(address) => address,
        })
    }
}

/// How many ranks a host takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotCount {
    /// One per GPU; one per CPU where there is no GPU.
    #[default]
    Auto,
    /// So many CPU slots; the host's GPUs are left alone.
    Cpus(u32),
}

impl fmt::Display for SlotCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Cpus(count) => f.pad(&count.to_string()),
        }
    }
}

/// A saved launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// How the command is started; guessed from it when absent.
    pub kind: Option<JobKind>,
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Where its ranks go.
    pub place: RecipeWhere,
    /// Variables for every rank.
    pub env: BTreeMap<String, String>,
    /// The containers in which its ranks are started.
    pub container: Option<ContainerOptions>,
    /// What is activated on each host.
    pub environment: EnvironmentPlan,
    /// The folder that is copied to the hosts: `DIR[:REMOTE]`, from the current folder on.
    pub sync: Option<String>,
    /// The folder on the hosts in which its ranks start.
    pub workdir: Option<String>,
}

/// Where a recipe's ranks go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecipeWhere {
    /// On so many slots, or on every slot when `None`.
    Count(Option<u32>),
    /// On these slots; their hosts are in the file.
    Picks(Vec<Pick>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_persons_ssh_is_told_is_what_the_file_says() {
        let host = |name: &str, address: &str| HostConfig {
            id: HostId::from(name),
            address: Address::Ssh(address.to_owned()),
            ..HostConfig::this_machine()
        };
        let gate = HostConfig { user: Some("li".to_owned()), port: Some(2200), ..host("gate", "fd00::1") };
        let behind = HostConfig {
            user: Some("ml".to_owned()),
            port: Some(2222),
            identity: Some("/home/li/key".into()),
            jump: Some("gate, other:22".to_owned()),
            jump_hosts: vec![gate],
            ..host("a", "10.0.0.1")
        };
        let words = behind.reach().unwrap().words().join(" ");
        assert_eq!(words, "-p 2222 -i /home/li/key -J li@[fd00::1]:2200,other:22 ml@10.0.0.1");
        let words = |jump: &str| {
            let host = HostConfig { jump: Some(jump.to_owned()), ..behind.clone() };
            host.reach().unwrap().options[3].clone()
        };
        assert_eq!(words("ml@gate:22"), "ml@[fd00::1]:22");
        assert_eq!(words("ml@gate"), "ml@[fd00::1]:2200");
        assert!(HostConfig::this_machine().reach().is_none());
    }
}
