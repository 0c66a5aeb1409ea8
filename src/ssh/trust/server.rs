//! The host whose key is judged: by which names it is known, and what vouches for it. Knows nothing of connections.

use std::path::PathBuf;

use super::error::TrustError;
use crate::domain::ids::HostId;
use crate::domain::text::sanitize;

/// A host as files of known hosts see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The host's name in hvtui, for messages.
    pub host: HostId,
    /// A host name or an IP address, without brackets.
    pub address: String,
    /// TCP port of its sshd.
    pub port: u16,
    /// The name under which its key is known, instead of its address and port.
    pub alias: Option<String>,
    /// The only acceptable key, as `SHA256:…`; `None`: whatever the files say.
    pub pin: Option<String>,
    /// Files of known host keys, all read; a new key goes into the first.
    pub files: Vec<PathBuf>,
}

impl Server {
    /// A server of which no key is known.
    pub fn new(host: HostId, address: impl Into<String>, port: u16) -> Self {
        Self { host, address: address.into(), port, alias: None, pin: None, files: Vec::new() }
    }

    /// The name that a host certificate must hold.
    pub fn principal(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.address)
    }

    /// `address:port`, an IPv6 address in brackets.
    pub fn endpoint(&self) -> String {
        endpoint(&self.address, self.port)
    }

    /// Refuses names that a line of known hosts would hold as something else, and pins that no key has.
    pub fn check(&self) -> Result<(), TrustError> {
        let refuse = |what: &'static str, value: &str| TrustError::BadName {
            host: self.host.clone(),
            what,
            value: sanitize(value).into_owned(),
        };
        if !name_is_safe(&self.address, "._-:%") {
            return Err(refuse("address", &self.address));
        }
        match (&self.pin, &self.alias) {
            (Some(pin), _) if !pin.starts_with("SHA256:") => Err(refuse("fingerprint", pin)),
            (_, Some(alias)) if !name_is_safe(alias, "._-:%@[]") => Err(refuse("host key alias", alias)),
            _ => Ok(()),
        }
    }
}

/// `address:port`, an IPv6 address in brackets.
pub(in crate::ssh) fn endpoint(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Whether a name is no option and holds nothing but letters, digits and `also`.
pub(in crate::ssh) fn name_is_safe(name: &str, also: &str) -> bool {
    (1..=255).contains(&name.len())
        && !name.starts_with('-')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}
