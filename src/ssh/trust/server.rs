//! The host whose key is judged: by which names it is known, what vouches for it, and which keys it must not have. Knows
//! nothing of connections.

use std::path::PathBuf;

use super::error::{ShownKey, TrustError};
use super::host_key::HostKey;
use super::verdict::Verdict;
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

/// The error for a key that must not be accepted.
pub(in crate::ssh) fn refusal(server: &Server, key: &HostKey, verdict: Verdict) -> Option<TrustError> {
    let (host, shown) = (server.host.clone(), Box::new(ShownKey::new(server.endpoint(), key)));
    let pinned = server.pin.as_deref();
    Some(match verdict {
        Verdict::Revoked { place } => TrustError::RevokedKey { host, key: shown, place },
        Verdict::Changed { known } => TrustError::ChangedKey { host, key: shown, known },
        _ if key.rsa_bits().is_some_and(|bits| bits < server.rsa_bits()) => {
            let said = server.rsa_bits.as_ref().map_or("RequiredRSASize", |(_, said)| said).to_owned();
            let bits = key.rsa_bits().unwrap_or_default();
            TrustError::ShortKey { host, key: shown, bits, wanted: server.rsa_bits(), said }
        }
        _ if pinned.is_some_and(|pin| pin != shown.fingerprint) => {
            TrustError::OtherFingerprint { host, key: shown, wanted: pinned.unwrap_or_default().to_owned() }
        }
        Verdict::Known => return None,
        _ if pinned.is_some() => return None,
        Verdict::OtherType { known } => TrustError::OtherKeyType { host, key: shown, known },
        Verdict::Unknown { also, authority } => TrustError::UnknownKey { host, key: shown, also, authority },
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::trust::verdict::{Forget, KnownKey, Place};

    const ED25519: &str = include_str!("../../../tests/fixtures/ssh/ed25519-a.pub");
    const RSA: &str = include_str!("../../../tests/fixtures/ssh/rsa.pub");

    fn server() -> Server {
        Server::new("gpu-a".into(), "10.0.0.7", 22)
    }

    fn known() -> Vec<KnownKey> {
        let place = Place { file: "kh".into(), line: 4 };
        let forget = Forget::Line;
        vec![KnownKey { place, algorithm: "ssh-rsa".into(), fingerprint: "SHA256:old".into(), forget }]
    }

    #[test]
    fn a_known_rsa_key_is_refused_where_it_has_a_bit_too_few() {
        let key = HostKey::from_openssh(RSA.trim()).unwrap();
        let bits = key.rsa_bits().unwrap();
        let refused = |least| {
            let server = Server { rsa_bits: Some((least, "config:3".to_owned())), ..server() };
            refusal(&server, &key, Verdict::Known).map(|error| error.to_string())
        };
        assert_eq!((refused(bits - 1), refused(bits)), (None, None));
        let error = refused(bits + 1).unwrap();
        let wanted = format!("has {bits} bits, at least {} are wanted (config:3); give", bits + 1);
        assert!(error.contains(&wanted), "{error}");
    }

    #[test]
    fn a_pin_decides_alone_but_never_for_a_changed_key() {
        let key = HostKey::from_openssh(ED25519.trim()).unwrap();
        let judge = |pin: Option<String>, verdict| refusal(&Server { pin, ..server() }, &key, verdict);
        let unknown = || Verdict::Unknown { also: Vec::new(), authority: None };
        let (own, other) = (|| Some(key.fingerprint()), || Some("SHA256:other".to_owned()));
        for verdict in [Verdict::Known, unknown(), Verdict::OtherType { known: known() }] {
            assert!(judge(own(), verdict.clone()).is_none(), "{verdict:?}");
            let refused = judge(other(), verdict);
            assert!(matches!(refused, Some(TrustError::OtherFingerprint { .. })), "{refused:?}");
        }
        let changed = judge(own(), Verdict::Changed { known: known() });
        assert!(matches!(changed, Some(TrustError::ChangedKey { .. })), "{changed:?}");
        assert!(matches!(judge(None, unknown()), Some(TrustError::UnknownKey { .. })));
    }
}
