//! Why a host's key must not be accepted, or can't be written down, in words that name the host and the remedy.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::host_key::HostKey;
use super::verdict::{CertificateFault, Forget, KnownKey, Place};
use crate::domain::ids::HostId;

/// A host's key that is not to be trusted, or a file that can't say or keep it.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A name that must not be written down.
    #[error("{host}: {what} `{value}` is empty, begins with `-` or holds a character that is not allowed")]
    BadName {
        /// The host.
        host: HostId,
        /// `address`, `fingerprint` or `host key alias`.
        what: &'static str,
        /// Its value, sanitised.
        value: String,
    },
    /// A file of host keys can't be read.
    #[error("can't read host keys from {}: {detail}; without them no host key can be checked", file.display())]
    KnownHosts {
        /// The file.
        file: PathBuf,
        /// Why.
        detail: String,
    },
    /// This key is not trusted yet.
    #[error(
        "{host}: host key of {} is not known: {key}{}{}; compare it with the host's own and run: hvtui hosts trust {host}",
        key.at, also_known(also), by_authority(authority.as_ref())
    )]
    UnknownKey {
        /// The host.
        host: HostId,
        /// The key that it shows.
        key: Box<ShownKey>,
        /// Other names that have the same key.
        also: Vec<String>,
        /// A certificate authority that stands for the host.
        authority: Option<Place>,
    },
    /// The host shows another key than it did.
    #[error(
        "{host}: HOST KEY OF {} HAS CHANGED: it shows {key}, known is {}; someone may be in between, so this is a \
         hard stop; if the host was set up anew: {} && hvtui hosts trust {host}",
        key.at, list(known), forget(known)
    )]
    ChangedKey {
        /// The host.
        host: HostId,
        /// The key that it shows.
        key: Box<ShownKey>,
        /// The keys that the files have.
        known: Vec<KnownKey>,
    },
    /// The host shows a key that is marked as revoked.
    #[error("{host}: host key of {} is revoked by {place}: {key}; this is a hard stop", key.at)]
    RevokedKey {
        /// The host.
        host: HostId,
        /// The key that it shows.
        key: Box<ShownKey>,
        /// The line that revokes it.
        place: Place,
    },
    /// The host shows a certificate of a trusted authority that can't be accepted.
    #[error(
        "{host}: host certificate of {} is refused: {fault} (its authority stands in {authority}); its key is {key}; \
         renew the certificate on the host",
        key.at
    )]
    BadCertificate {
        /// The host.
        host: HostId,
        /// The key in the certificate.
        key: Box<ShownKey>,
        /// The line that names the authority.
        authority: Place,
        /// What is wrong with it.
        fault: CertificateFault,
    },
    /// The host does not show the type of key by which it is known.
    #[error(
        "{host}: {} shows {key}, but is known by another type of key: {}; compare it with the host's own and run: \
         hvtui hosts trust {host} --fingerprint {}",
        key.at, list(known), key.fingerprint
    )]
    OtherKeyType {
        /// The host.
        host: HostId,
        /// The key that it shows.
        key: Box<ShownKey>,
        /// The keys that the files have.
        known: Vec<KnownKey>,
    },
    /// The key is not the one that was asked for.
    #[error(
        "{host}: {} shows {key}, wanted is {wanted}: this is a hard stop; correct the fingerprint if the host was \
         set up anew",
        key.at
    )]
    OtherFingerprint {
        /// The host.
        host: HostId,
        /// The key that it shows.
        key: Box<ShownKey>,
        /// The fingerprint that was wanted.
        wanted: String,
    },
    /// The host's RSA key is too short.
    #[error(
        "{host}: host key of {} is too short: {key} has {bits} bits, at least {wanted} are wanted ({said}); give the host \
         another key",
        key.at
    )]
    ShortKey {
        /// The host.
        host: HostId,
        /// The key that it shows.
        key: Box<ShownKey>,
        /// Its length.
        bits: u32,
        /// How long it must be.
        wanted: u32,
        /// Who wants it.
        said: String,
    },
    /// A trusted key can't be written down.
    #[error("can't add a host key to {}: {detail}", file.display())]
    NotWritten {
        /// The file.
        file: PathBuf,
        /// Why, with the remedy.
        detail: String,
    },
}

/// The key that a host shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownKey {
    /// `address:port` of the host.
    pub at: String,
    /// The key's type, `ssh-ed25519`.
    pub algorithm: String,
    /// The key's fingerprint, `SHA256:…`.
    pub fingerprint: String,
}

impl ShownKey {
    pub(in crate::ssh) fn new(at: String, key: &HostKey) -> Self {
        Self { at, algorithm: key.algorithm(), fingerprint: key.fingerprint() }
    }
}

impl fmt::Display for ShownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.fingerprint)
    }
}

fn also_known(also: &[String]) -> String {
    if also.is_empty() { String::new() } else { format!(" (the same key is known for {})", also.join(", ")) }
}

fn by_authority(place: Option<&Place>) -> String {
    place.map_or_else(String::new, |place| {
        format!(" ({place} names a certificate authority for it, but it shows no certificate of that)")
    })
}

/// The commands after which no file has these keys for the host, as a person would do it by hand: `ssh-keygen -R 'gpu-a' -f
/// 'known_hosts'`; where that would take lines from other hosts, `sed -i '4s/^[[:space:]]*/&!gpu-a,/;9d' 'known_hosts'`.
fn forget(known: &[KnownKey]) -> String {
    let mut files: BTreeMap<&Path, Vec<&KnownKey>> = BTreeMap::new();
    for key in known {
        files.entry(&key.place.file).or_default().push(key);
    }
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let command = |(path, keys): (&Path, Vec<&KnownKey>)| {
        let file = quoted(&path.display().to_string());
        let sudo = if path.starts_with("/etc") { "sudo " } else { "" };
        if let Some(Forget::Name(name)) = keys.first().map(|key| &key.forget) {
            return format!("{sudo}ssh-keygen -R {} -f {file}", quoted(name));
        }
        let edit = |key: &&KnownKey| {
            let line = key.place.line;
            match &key.forget {
                // a name holds nothing that is special to sed
                Forget::Except(name) => (line, format!("{line}s/^[[:space:]]*/&!{name},/")),
                Forget::Name(_) | Forget::Line => (line, format!("{line}d")),
            }
        };
        let edits: BTreeMap<usize, String> = keys.iter().map(edit).collect();
        format!("{sudo}sed -i '{}' {file}", edits.into_values().collect::<Vec<_>>().join(";"))
    };
    files.into_iter().map(command).collect::<Vec<_>>().join(" && ")
}

fn list(known: &[KnownKey]) -> String {
    known.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::text::in_list;

    fn shown() -> ShownKey {
        ShownKey {
            at: "10.0.0.7:22".into(),
            algorithm: "ssh-ed25519".into(),
            fingerprint: "SHA256:new".into(),
        }
    }

    fn known() -> Vec<KnownKey> {
        let place = Place { file: "kh".into(), line: 4 };
        let forget = Forget::Name("10.0.0.7".to_owned());
        vec![KnownKey { place, algorithm: "ssh-rsa".into(), fingerprint: "SHA256:old".into(), forget }]
    }

    #[test]
    fn errors_name_the_host_the_fact_and_the_remedy() {
        let host = || HostId::from("gpu-a");
        let unknown = |also: &[&str], authority| TrustError::UnknownKey {
            host: host(),
            key: shown().into(),
            also: also.iter().map(ToString::to_string).collect(),
            authority,
        };
        insta::assert_snapshot!(unknown(&[], None), @"gpu-a: host key of 10.0.0.7:22 is not known: ssh-ed25519 SHA256:new; compare it with the host's own and run: hvtui hosts trust gpu-a");
        insta::assert_snapshot!(unknown(&["twin"], Some(Place { file: "kh".into(), line: 2 })), @"gpu-a: host key of 10.0.0.7:22 is not known: ssh-ed25519 SHA256:new (the same key is known for twin) (kh:2 names a certificate authority for it, but it shows no certificate of that); compare it with the host's own and run: hvtui hosts trust gpu-a");
        let changed = TrustError::ChangedKey { host: host(), key: shown().into(), known: known() };
        insta::assert_snapshot!(changed, @"gpu-a: HOST KEY OF 10.0.0.7:22 HAS CHANGED: it shows ssh-ed25519 SHA256:new, known is ssh-rsa SHA256:old (kh:4); someone may be in between, so this is a hard stop; if the host was set up anew: ssh-keygen -R '10.0.0.7' -f 'kh' && hvtui hosts trust gpu-a");
        let at = |file: &str, line, forget: &Forget| KnownKey {
            place: Place { file: file.into(), line },
            forget: forget.clone(),
            ..known().remove(0)
        };
        let (name, except) = (Forget::Name("[a]:22".to_owned()), Forget::Except("a".to_owned()));
        let of_several = [at("kh", 9, &Forget::Line), at("kh", 4, &except), at("it's", 1, &Forget::Line)];
        let commands = super::forget(&of_several);
        assert_eq!(commands, r"sed -i '1d' 'it'\''s' && sed -i '4s/^[[:space:]]*/&!a,/;9d' 'kh'");
        let commands = super::forget(&[at("/etc/ssh/ssh_known_hosts", 1, &name), at("kh", 4, &name)]);
        let global = "sudo ssh-keygen -R '[a]:22' -f '/etc/ssh/ssh_known_hosts'";
        assert_eq!(commands, format!("{global} && ssh-keygen -R '[a]:22' -f 'kh'"));
        let short = in_list(&changed.to_string()).into_owned();
        assert_eq!(short, "host key changed (kh:4); hvtui hosts check says more");
        let other = TrustError::OtherKeyType { host: host(), key: shown().into(), known: known() };
        insta::assert_snapshot!(other, @"gpu-a: 10.0.0.7:22 shows ssh-ed25519 SHA256:new, but is known by another type of key: ssh-rsa SHA256:old (kh:4); compare it with the host's own and run: hvtui hosts trust gpu-a --fingerprint SHA256:new");
    }
}
