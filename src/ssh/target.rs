//! Where to connect and what may be used to get in. Knows nothing of files' contents or of the network.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::asker::Asker;
use super::error::SshError;
use crate::domain::ids::HostId;
use crate::domain::question::HostKeyPolicy;

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
    /// User certificates to offer beside those that lie next to their keys (`id-cert.pub`).
    pub certificates: Vec<PathBuf>,
    /// Whether the ssh-agent's other keys are left out: only those of `identities` are offered.
    pub identities_only: bool,
    /// Files of known host keys, all read; `hosts trust` appends to the first.
    pub known_hosts: Vec<PathBuf>,
    /// The only acceptable host key, as `SHA256:…`; `None`: whatever `known_hosts` says.
    pub fingerprint: Option<String>,
    /// What is done with an unknown host key.
    pub host_keys: HostKeyPolicy,
    /// The name under which the host's key is known, in place of its address and port.
    pub host_key_alias: Option<String>,
    /// How long a TCP connection may take. Key exchange and authentication together get three times as long.
    pub connect_timeout: Duration,
    /// Whether keys of the running ssh-agent are offered.
    pub auth_agent: bool,
    /// Who is asked for passphrases, passwords and about unknown host keys.
    pub asker: Asker,
}

/// The files in which OpenSSH looks for host keys: the user's, then the machine's.
pub fn default_known_hosts(home: &Path) -> Vec<PathBuf> {
    vec![home.join(".ssh/known_hosts"), PathBuf::from("/etc/ssh/ssh_known_hosts")]
}

impl Target {
    /// A host without keys and known hosts, and with nobody to ask.
    pub fn new(host: impl Into<HostId>, address: &str, port: u16, user: &str) -> Self {
        Self {
            host: host.into(),
            address: address.to_owned(),
            port,
            user: user.to_owned(),
            identities: Vec::new(),
            certificates: Vec::new(),
            identities_only: false,
            known_hosts: Vec::new(),
            fingerprint: None,
            host_keys: HostKeyPolicy::Ask,
            host_key_alias: None,
            connect_timeout: Duration::from_secs(10),
            auth_agent: false,
            asker: Asker::default(),
        }
    }

    /// The name that a host certificate must hold.
    pub(super) fn principal(&self) -> &str {
        self.host_key_alias.as_deref().unwrap_or(&self.address)
    }

    /// `user@address:port`, for people.
    pub fn shown(&self) -> String {
        format!("{}@{}", self.user, self.endpoint())
    }

    /// `address:port`, an IPv6 address in brackets.
    pub fn endpoint(&self) -> String {
        if self.address.contains(':') {
            format!("[{}]:{}", self.address, self.port)
        } else {
            format!("{}:{}", self.address, self.port)
        }
    }

    /// How long key exchange and authentication may take together, and how long a started command may be
    /// silent before its first answer.
    pub(super) fn patience(&self) -> Duration {
        self.connect_timeout.saturating_mul(3)
    }

    /// Refuses names that could be taken for an option or a command by anything they are handed to.
    pub fn check(&self) -> Result<(), SshError> {
        let refuse = |what: &'static str, value: &str| SshError::BadTarget {
            host: self.host.clone(),
            what,
            value: crate::domain::text::sanitize(value).into_owned(),
        };
        if !name_is_safe(&self.user, "._-@+\\$") {
            return Err(refuse("user", &self.user));
        }
        if !name_is_safe(&self.address, "._-:%") {
            return Err(refuse("address", &self.address));
        }
        match &self.fingerprint {
            Some(pin) if !pin.starts_with("SHA256:") => Err(refuse("fingerprint", pin)),
            _ => Ok(()),
        }
    }
}

fn name_is_safe(name: &str, also: &str) -> bool {
    (1..=255).contains(&name.len())
        && !name.starts_with('-')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(user: &str, address: &str) -> Target {
        Target::new("a", address, 22, user)
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
