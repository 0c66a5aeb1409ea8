//! Which algorithms a host is offered: hvtui's own lists, cut down and put in order by a person's ssh configuration. What
//! russh has not, or has and is broken, is on no list. Pure.

use std::borrow::Cow;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use russh::{AlgorithmKind, Preferred, cipher, compression, kex, mac};

use crate::ssh::trust::{Allowed, pattern};

/// The names that are known, in OpenSSH's order of preference.
const KEX: &[&str] = &[
    "mlkem768x25519-sha256",
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
    "diffie-hellman-group-exchange-sha256",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group18-sha512",
    "diffie-hellman-group14-sha256",
];
const CIPHERS: &[&str] = &[
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
];
const MACS: &[&str] =
    &["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512"];
const KEYS: &[&str] = &[
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];
const SIGNATURES: &[&str] = &[
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

/// The types of key in the order in which OpenSSH goes through them for a pattern (`ssh -Q`).
const LISTED: &[&str] = &[
    "ssh-ed25519",
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-256",
    "rsa-sha2-256-cert-v01@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-512-cert-v01@openssh.com",
];

/// The ciphers that are offered where nothing else is said, best first.
const OWN_CIPHERS: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

/// Host key types, best first; RSA signed by SHA-1 is not among them.
const HOST_KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// What the configuration says about algorithms; `None`: nothing, hvtui's own list counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Algorithms {
    /// `KexAlgorithms`
    pub kex: Option<Allowed>,
    /// `HostKeyAlgorithms`
    pub host_keys: Option<Allowed>,
    /// The types of host key stand in the order that is wanted, whatever keys are known.
    pub keep_order: bool,
    /// `Ciphers`
    pub ciphers: Option<Allowed>,
    /// `MACs`
    pub macs: Option<Allowed>,
    /// `CASignatureAlgorithms`
    pub ca_signatures: Option<Allowed>,
    /// `PubkeyAcceptedAlgorithms`
    pub pubkeys: Option<Allowed>,
    /// `RequiredRSASize`, in bits, and where that is said.
    pub rsa_bits: Option<(u32, String)>,
}

/// The keywords of an ssh configuration that are lists of algorithms.
pub(super) const LISTS: [&str; 6] = [
    "kexalgorithms",
    "hostkeyalgorithms",
    "ciphers",
    "macs",
    "casignaturealgorithms",
    "pubkeyacceptedalgorithms",
];

/// The names that a list of the configuration leaves of those that are known for a keyword, in its order.
///
/// As OpenSSH reads it: `+` appends to what is usual, `-` takes away, `^` puts in front, and names may be patterns.
pub(super) fn expand(key: &str, text: &str) -> Vec<String> {
    let (known, listed) = match key {
        "kexalgorithms" => (KEX, KEX),
        "ciphers" => (CIPHERS, CIPHERS),
        "macs" => (MACS, MACS),
        "casignaturealgorithms" => (SIGNATURES, LISTED),
        _ => (KEYS, LISTED),
    };
    let sign = text.chars().next().filter(|sign| "+-^".contains(*sign));
    let list = sign.map_or(text, |_| text.get(1..).unwrap_or_default());
    let fitting = list.split(',').map(str::trim);
    let listed = || listed.iter().filter(|name| known.contains(name));
    let fitting = fitting.flat_map(|name| listed().filter(move |known| pattern::matches(name, known)));
    let all: Vec<&&str> = match sign {
        Some('+') => known.iter().chain(fitting).collect(),
        Some('^') => fitting.chain(known).collect(),
        Some(_) => known.iter().filter(|name| !pattern::any(list.split(','), name)).collect(),
        None => fitting.collect(),
    };
    let mut names: Vec<String> = Vec::new();
    for name in all {
        if !names.iter().any(|there| there == name) {
            names.push((*name).to_owned());
        }
    }
    names
}

impl Algorithms {
    /// The list of a keyword.
    pub(super) fn list(&mut self, key: &str) -> Option<&mut Option<Allowed>> {
        Some(match key {
            "kexalgorithms" => &mut self.kex,
            "hostkeyalgorithms" => &mut self.host_keys,
            "ciphers" => &mut self.ciphers,
            "macs" => &mut self.macs,
            "casignaturealgorithms" => &mut self.ca_signatures,
            "pubkeyacceptedalgorithms" => &mut self.pubkeys,
            _ => return None,
        })
    }

    /// The same in the words of an ssh configuration.
    pub(super) fn options(&self) -> Vec<String> {
        let lists = [
            ("KexAlgorithms", &self.kex),
            ("HostKeyAlgorithms", &self.host_keys),
            ("Ciphers", &self.ciphers),
            ("MACs", &self.macs),
            ("CASignatureAlgorithms", &self.ca_signatures),
            ("PubkeyAcceptedAlgorithms", &self.pubkeys),
        ];
        let lists = lists.into_iter().filter_map(|(name, list)| Some((name, list.as_ref()?.names.join(","))));
        let rsa = self.rsa_bits.as_ref().map(|(bits, _)| ("RequiredRSASize", bits.to_string()));
        lists.chain(rsa).map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// What decided about the algorithms of this kind, where that was not hvtui.
    pub(super) fn said_of(&self, kind: &AlgorithmKind) -> Option<&str> {
        let list = match kind {
            AlgorithmKind::Kex => &self.kex,
            AlgorithmKind::Key => &self.host_keys,
            AlgorithmKind::Cipher => &self.ciphers,
            AlgorithmKind::Mac => &self.macs,
            AlgorithmKind::Compression => return None,
        };
        list.as_ref().map(|allowed| allowed.said.as_str())
    }

    /// The names by which a host is asked for its key of this type and no other, `ssh-rsa` among them.
    pub(super) fn types_of(&self, kind: &str) -> Vec<String> {
        let names: Vec<String> = match kind {
            "ssh-rsa" => vec!["rsa-sha2-512".to_owned(), "rsa-sha2-256".to_owned()],
            kind => vec![kind.to_owned()],
        };
        let Some(allowed) = &self.host_keys else { return names };
        let left: Vec<String> = names.into_iter().filter(|name| allowed.has(name)).collect();
        // None that is allowed: what is allowed is asked for, and is the wrong key.
        if left.is_empty() { allowed.names.clone() } else { left }
    }

    /// Whether a key of this type may be used to log in; an error says which line is against it.
    pub(super) fn may_log_in(
        &self,
        kind: &Algorithm,
        hash: Option<HashAlg>,
        certificate: bool,
    ) -> Result<(), String> {
        let Some(allowed) = &self.pubkeys else { return Ok(()) };
        let kind = if matches!(kind, Algorithm::Rsa { .. }) { &Algorithm::Rsa { hash } } else { kind };
        let name = if certificate { kind.to_certificate_type() } else { kind.to_string() };
        if allowed.has(&name) { Ok(()) } else { Err(format!("{} leaves {name} out", allowed.said)) }
    }

    /// What russh offers. `known` are the types of key that are known of the host, `pinned` is that of the only key that
    /// will do, and comes first; certificates are offered only where some `authority` is known.
    pub(super) fn preferred(
        &self,
        known: &[Algorithm],
        pinned: Option<&Algorithm>,
        authority: bool,
    ) -> Preferred {
        let (mut keys, mut certificates) = (HOST_KEYS.to_vec(), HOST_KEYS.to_vec());
        if let Some(allowed) = &self.host_keys {
            let of = |name: &String| HOST_KEYS.iter().find(|kind| kind.as_str() == name).cloned();
            let certified =
                |name: &String| HOST_KEYS.iter().find(|kind| kind.to_certificate_type() == *name).cloned();
            keys = allowed.names.iter().filter_map(of).collect();
            // A host that has a certificate has its key: behind that, the certificate is never asked for.
            let before = |kind: &Algorithm| {
                let at = |name: &str| allowed.names.iter().position(|there| there == name);
                at(kind.as_str()).is_none_or(|plain| at(&kind.to_certificate_type()) < Some(plain))
            };
            certificates = allowed.names.iter().filter_map(certified).filter(before).collect();
        }
        let is_known = |kind: &Algorithm| known.iter().any(|known| same_family(known, kind));
        if !self.keep_order {
            keys.sort_by_key(|kind| !is_known(kind));
            certificates.sort_by_key(|kind| !is_known(kind));
        }
        if let Some(pinned) = pinned {
            keys.sort_by_key(|kind| !same_family(pinned, kind));
            certificates.sort_by_key(|kind| !same_family(pinned, kind));
        }
        let kex = self.kex.as_ref().map_or(Preferred::DEFAULT.kex, |allowed| {
            let named = allowed.names.iter().filter_map(|name| kex::Name::try_from(name.as_str()).ok());
            let signals = [kex::EXTENSION_SUPPORT_AS_CLIENT, kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT];
            named.chain(signals).collect()
        });
        let cipher = self.ciphers.as_ref().map_or(Cow::Borrowed(OWN_CIPHERS), |allowed| {
            allowed.names.iter().filter_map(|name| cipher::Name::try_from(name.as_str()).ok()).collect()
        });
        let mac = self.macs.as_ref().map_or(Preferred::DEFAULT.mac, |allowed| {
            allowed.names.iter().filter_map(|name| mac::Name::try_from(name.as_str()).ok()).collect()
        });
        Preferred {
            kex,
            key: Cow::Owned(keys),
            host_key_certificates: Cow::Owned(if authority { certificates } else { Vec::new() }),
            cipher,
            mac,
            compression: Cow::Borrowed(&[compression::NONE]),
        }
    }
}

fn same_family(one: &Algorithm, other: &Algorithm) -> bool {
    one == other || matches!((one, other), (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(key: &str, text: &str) -> Allowed {
        Allowed { names: expand(key, text), said: key.to_owned() }
    }

    #[test]
    fn lists_are_read_as_openssh_reads_them() {
        let kex = |text: &str| expand("kexalgorithms", text).join(",");
        assert_eq!(kex("ecdh-sha2-*"), "ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521");
        assert_eq!(kex("diffie-hellman-group1-sha1"), "", "it is known to be broken");
        assert_eq!(kex("sntrup761x25519-sha512,curve25519-sha256"), "curve25519-sha256");
        assert!(kex("^ecdh-sha2-nistp384").starts_with("ecdh-sha2-nistp384,mlkem768x25519-sha256,curve"));
        assert_eq!(kex("+ecdh-sha2-nistp384"), KEX.join(","));
        assert_eq!(kex("-ecdh*,diffie*,mlkem*"), "curve25519-sha256,curve25519-sha256@libssh.org");
        assert_eq!(kex("-*"), "");
        assert_eq!(expand("ciphers", "aes256-ctr,aes*-ctr").join(","), "aes256-ctr,aes128-ctr,aes192-ctr");
        assert_eq!(expand("casignaturealgorithms", "ssh-rsa,rsa-sha2-512").join(","), "rsa-sha2-512");
    }

    #[test]
    fn every_name_is_one_of_russhs() {
        assert!(KEX.iter().all(|name| kex::Name::try_from(*name).is_ok()));
        assert!(CIPHERS.iter().all(|name| cipher::Name::try_from(*name).is_ok()));
        assert!(MACS.iter().all(|name| mac::Name::try_from(*name).is_ok()));
        let kinds = |name: &&&str| {
            HOST_KEYS.iter().any(|kind| kind.as_str() == **name || kind.to_certificate_type() == **name)
        };
        assert_eq!(KEYS.iter().filter(kinds).count(), KEYS.len());
        assert_eq!(SIGNATURES.iter().filter(kinds).count(), SIGNATURES.len());
    }

    #[test]
    fn host_keys_have_the_order_that_is_said_or_that_of_the_known_ones() {
        let names = |algorithms: &Algorithms, known: &[Algorithm], pinned: Option<&Algorithm>, authority| {
            let preferred = algorithms.preferred(known, pinned, authority);
            let certificates = preferred.host_key_certificates.iter().map(Algorithm::to_certificate_type);
            certificates.chain(preferred.key.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" ")
        };
        let rsa = [Algorithm::Rsa { hash: None }];
        let usual = Algorithms::default();
        assert!(names(&usual, &[], None, false).starts_with("ssh-ed25519 ecdsa-sha2-nistp256 "));
        assert!(names(&usual, &rsa, None, false).starts_with("rsa-sha2-512 rsa-sha2-256 ssh-ed25519 "));
        let list = "ssh-ed25519-cert*,rsa-sha2-512,ssh-ed25519,rsa-sha2-512-cert*";
        let said = Algorithms {
            host_keys: Some(allowed("hostkeyalgorithms", list)),
            keep_order: true,
            ..Algorithms::default()
        };
        assert_eq!(names(&said, &[], None, false), "rsa-sha2-512 ssh-ed25519");
        assert_eq!(
            names(&said, &[Algorithm::Ed25519], None, true),
            "ssh-ed25519-cert-v01@openssh.com rsa-sha2-512 ssh-ed25519"
        );
        assert_eq!(names(&said, &[], Some(&Algorithm::Ed25519), false), "ssh-ed25519 rsa-sha2-512");
    }

    #[test]
    fn strict_key_exchange_is_offered_with_every_list() {
        let said =
            Algorithms { kex: Some(allowed("kexalgorithms", "curve25519-sha256")), ..Algorithms::default() };
        let kex = said.preferred(&[], None, false).kex;
        assert_eq!(kex.len(), 3);
        assert!(kex.contains(&kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT));
    }
}
