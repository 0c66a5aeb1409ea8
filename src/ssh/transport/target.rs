//! Where to connect, by which way, whose ssh speaks, and what may be used to get in. Knows nothing of files' contents or
//! of the network, and nothing of how all that is carried out.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::algorithms::Algorithms;
use super::error::SshError;
use super::prompter::Prompter;
use crate::domain::ids::HostId;
use crate::domain::question::HostKeyPolicy;
use crate::ssh::trust::{Server, endpoint, name_is_safe};

/// One host as ssh sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host's name in hvtui, for messages.
    pub host: HostId,
    /// A host name or an IP address, without brackets.
    pub address: String,
    /// TCP port of its sshd.
    pub port: u16,
    /// Login name.
    pub user: String,
    /// Private key files to offer; empty: those of [`super::default_identities`].
    pub identities: Vec<PathBuf>,
    /// Files of known host keys, all read; `hosts trust` appends to the first.
    pub known_hosts: Vec<PathBuf>,
    /// The only acceptable host key, as `SHA256:…`; `None`: whatever `known_hosts` says.
    pub fingerprint: Option<String>,
    /// How long a TCP connection may take. Key exchange and authentication together get three times as long.
    pub connect_timeout: Duration,
    /// Whether keys of the running ssh-agent are offered.
    pub auth_agent: bool,
    /// The ssh-agent's socket; `None`: `$SSH_AUTH_SOCK`.
    pub agent_socket: Option<PathBuf>,
    /// Only the named identities are offered, also where the agent has more keys.
    pub identities_only: bool,
    /// Files of user certificates, beside those that lie next to their keys.
    pub certificates: Vec<PathBuf>,
    /// What becomes of a key that is not known.
    pub host_key_policy: HostKeyPolicy,
    /// The name under which the host's key is known, instead of its address and port.
    pub host_key_alias: Option<String>,
    /// How bytes get to its sshd.
    pub route: Route,
    /// The local address to connect from.
    pub bind_address: Option<IpAddr>,
    /// Which addresses of its name are tried.
    pub family: Family,
    /// Whose ssh speaks with it.
    pub transport: TransportKind,
    /// What may be used to speak with it.
    pub algorithms: Algorithms,
    /// What a person should know about how this came about: a setting of theirs that is not acted upon, say.
    pub notes: Vec<String>,
    /// Who is asked for passphrases, passwords and about unknown host keys.
    pub prompter: Prompter,
}

/// How bytes get to a host's sshd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Route {
    /// By a TCP connection of our own.
    #[default]
    Direct,
    /// Through the sshd of another host, which may have a route of its own.
    Jump(Box<Target>),
    /// Through the standard streams of a command line, run by `/bin/sh`; its tokens are expanded already.
    Command(String),
}

/// Whose ssh speaks with a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TransportKind {
    /// hvtui's own, by russh.
    #[default]
    Russh,
    /// The system's `ssh`, once a command.
    OpenSsh(OpenSsh),
}

/// How the system's `ssh` is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSsh {
    /// The program.
    pub program: PathBuf,
    /// The name to give it: an alias of the person's own configuration, or the address.
    pub alias: String,
    /// The configuration file to name to it; `None`: its own rules.
    pub config: Option<PathBuf>,
    /// What the configuration says may be unknown in it (`IgnoreUnknown`), as written.
    pub ignore_unknown: Option<String>,
}

/// Which addresses of a name are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// All, in the resolver's order.
    #[default]
    Any,
    /// IPv4 alone.
    Inet,
    /// IPv6 alone.
    Inet6,
}

/// How long a TCP connection may take where nothing else is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The files in which OpenSSH looks for host keys: the user's, then the machine's.
pub fn default_known_hosts(home: &Path) -> Vec<PathBuf> {
    vec![home.join(".ssh/known_hosts"), PathBuf::from("/etc/ssh/ssh_known_hosts")]
}

impl Target {
    /// A target that knows no host key and has no credential of its own but the ssh-agent's.
    pub fn new(host: HostId, address: impl Into<String>, port: u16, user: impl Into<String>) -> Self {
        Self {
            host,
            address: address.into(),
            port,
            user: user.into(),
            identities: Vec::new(),
            known_hosts: Vec::new(),
            fingerprint: None,
            connect_timeout: CONNECT_TIMEOUT,
            auth_agent: true,
            agent_socket: None,
            identities_only: false,
            certificates: Vec::new(),
            host_key_policy: HostKeyPolicy::default(),
            host_key_alias: None,
            route: Route::Direct,
            bind_address: None,
            family: Family::default(),
            transport: TransportKind::default(),
            algorithms: Algorithms::default(),
            notes: Vec::new(),
            prompter: Prompter::default(),
        }
    }

    /// The same with a user to ask, also at each hop on the way.
    #[must_use]
    pub fn with_prompter(mut self, prompter: &Prompter) -> Self {
        if let Route::Jump(hop) = self.route {
            self.route = Route::Jump(Box::new(hop.with_prompter(prompter)));
        }
        self.prompter = prompter.clone();
        self
    }

    /// What of it vouches for its host key.
    pub fn server(&self) -> Server {
        Server {
            host: self.host.clone(),
            address: self.address.clone(),
            port: self.port,
            alias: self.host_key_alias.clone(),
            pin: self.fingerprint.clone(),
            files: self.known_hosts.clone(),
            ca_signatures: self.algorithms.ca_signatures.clone(),
            rsa_bits: self.algorithms.rsa_bits.clone(),
        }
    }

    /// `user@address:port`, for people.
    pub fn shown(&self) -> String {
        format!("{}@{}", self.user, self.endpoint())
    }

    /// The whole way in one line, for people, and how many [notes](Self::notes) there are on it.
    pub fn way(&self) -> String {
        let mut text = self.shown();
        let hops = self.hops();
        if !hops.is_empty() {
            let hops: Vec<String> = hops.into_iter().map(Self::shown).collect();
            text = format!("{text} through {}", hops.join(", "));
        } else if let Route::Command(_) = self.route {
            text.push_str(" through a proxy command");
        }
        if let TransportKind::OpenSsh(_) = self.transport {
            text.push_str(" by the system's ssh");
        }
        match self.all_notes().len() {
            0 => text,
            1 => format!("{text} (a note: hvtui hosts check)"),
            count => format!("{text} ({count} notes: hvtui hosts check)"),
        }
    }

    /// The hosts on the way, the first one in front.
    pub fn hops(&self) -> Vec<&Self> {
        match &self.route {
            Route::Jump(hop) => {
                let mut hops = hop.hops();
                hops.push(hop);
                hops
            }
            Route::Direct | Route::Command(_) => Vec::new(),
        }
    }

    /// Its own notes and those of the hosts on the way.
    pub fn all_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for note in self.hops().into_iter().chain([self]).flat_map(|target| &target.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }

    /// `address:port`, an IPv6 address in brackets.
    pub fn endpoint(&self) -> String {
        endpoint(&self.address, self.port)
    }

    /// How long key exchange and authentication may take together, and how long a started command may be
    /// silent before its first answer.
    pub(in crate::ssh) fn patience(&self) -> Duration {
        self.connect_timeout.saturating_mul(3)
    }

    /// Refuses names that could be taken for an option or a command by anything they are handed to.
    pub fn check(&self) -> Result<(), SshError> {
        if !name_is_safe(&self.user, "._-@+\\$") {
            return Err(SshError::BadTarget {
                host: self.host.clone(),
                what: "user",
                value: crate::domain::text::sanitize(&self.user).into_owned(),
            });
        }
        self.server().check()?;
        if let Route::Jump(hop) = &self.route { hop.check() } else { Ok(()) }
    }
}

impl SshError {
    /// The same, said of a host on the way to `host`.
    #[must_use]
    pub fn at_hop(self, host: &HostId, hop: &Target) -> Self {
        match self {
            Self::Hop { .. } => self,
            error => Self::Hop {
                host: host.clone(),
                hop: hop.shown(),
                by: hop.host.clone(),
                error: Arc::new(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(user: &str, address: &str) -> Target {
        Target::new(HostId::from("a"), address, 22, user)
    }

    #[test]
    fn names_that_could_be_options_or_commands_are_refused() {
        for address in ["a", "gpu-1.example.org", "10.0.0.1", "fe80::1%eth0", "node_7"] {
            assert!(target("li", address).check().is_ok(), "{address}");
        }
        for address in ["", "-oProxyCommand=x", "a b", "a;b", "$(x)", "a\nb", "a\u{1b}", "[::1]", "ä"] {
            assert!(target("li", address).check().is_err(), "{address}");
        }
        for user in ["", "-l", "a b", "`x`", "a'b", "\u{202e}"] {
            assert!(target(user, "a").check().is_err(), "{user}");
        }
        assert!(target("DOM\\li@site", "a").check().is_ok());
        assert!(Target { fingerprint: Some("MD5:00".into()), ..target("li", "a") }.check().is_err());
    }

    #[test]
    fn endpoints_are_unambiguous() {
        assert_eq!(target("li", "::1").endpoint(), "[::1]:22");
        assert_eq!(target("li", "a").shown(), "li@a:22");
    }
}
