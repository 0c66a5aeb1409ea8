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
    /// By what an authority may have signed the host's certificate; `None`: by everything that is not broken.
    pub ca_signatures: Option<Allowed>,
    /// How many bits an RSA key must have, and where that is said; `None`: 1024, as in OpenSSH.
    pub rsa_bits: Option<(u32, String)>,
}

/// The fewest bits of an RSA key where nothing else is said, as in OpenSSH.
pub(in crate::ssh) const RSA_BITS: u32 = 1024;

/// A list of algorithms that a person allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The names, the preferred one first.
    pub names: Vec<String>,
    /// Who says so, for messages: `KexAlgorithms (FILE:LINE)`.
    pub said: String,
}

impl Allowed {
    /// Whether this one is among them.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|there| there == name)
    }
}

impl Server {
    /// A server of which no key is known.
    pub fn new(host: HostId, address: impl Into<String>, port: u16) -> Self {
        let (alias, pin, ca_signatures, rsa_bits) = (None, None, None, None);
        let address = address.into();
        Self { host, address, port, alias, pin, files: Vec::new(), ca_signatures, rsa_bits }
    }

    /// The name that a host certificate must hold.
    pub fn principal(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.address)
    }

    /// How many bits an RSA key must have.
    pub(super) fn rsa_bits(&self) -> u32 {
        self.rsa_bits.as_ref().map_or(RSA_BITS, |(bits, _)| *bits)
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
