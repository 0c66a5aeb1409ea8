//! Everything that can keep a host from being reached, in words that name the host and the remedy.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::auth::Attempts;
use super::host_cert::CertificateFault;
use super::host_key::HostKey;
use super::known_hosts::{KnownKey, Place};
use super::target::Target;
use crate::domain::host::RefusalKind;
use crate::domain::ids::HostId;

/// What sort of failure: the exit code follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The host can't be reached now; trying again later makes sense (exit 69).
    Unreachable,
    /// The host's key is not trusted; a person must act (exit 77).
    HostKey,
    /// No credential was accepted; a person must act (exit 77).
    Authentication,
    /// The binary can't be put on the host or can't run there; a person must act (exit 69).
    Agent,
}

/// A failure to reach a host or to start the agent on it.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// A name that must not be handed on.
    #[error("{host}: {what} `{value}` is empty, begins with `-` or holds a character that is not allowed")]
    BadTarget {
        /// The host.
        host: HostId,
        /// `user`, `address` or `fingerprint`.
        what: &'static str,
        /// Its value, sanitised.
        value: String,
    },
    /// The name has no address.
    #[error(
        "{host}: no address for `{address}`: {detail}; check the name in the hosts file, DNS and /etc/hosts"
    )]
    Resolve {
        /// The host.
        host: HostId,
        /// The name that was looked up.
        address: String,
        /// The resolver's words.
        detail: String,
    },
    /// Nothing listens.
    #[error("{host}: connection refused by {at}: start sshd there, or check the port")]
    Refused {
        /// The host.
        host: HostId,
        /// `address:port`.
        at: String,
    },
    /// No answer in time.
    #[error("{host}: {at} {what} within {} s: {remedy}", after.as_secs_f32())]
    TimedOut {
        /// The host.
        host: HostId,
        /// `address:port`.
        at: String,
        /// What did not happen.
        what: &'static str,
        /// How long it was waited for.
        after: Duration,
        /// What to look at.
        remedy: &'static str,
    },
    /// The network failed, or the other side hung up early.
    #[error("{host}: no ssh connection with {at}: {detail}")]
    Network {
        /// The host.
        host: HostId,
        /// `address:port`.
        at: String,
        /// What happened, with the remedy where there is one.
        detail: String,
    },
    /// The two sides have no common language.
    #[error("{host}: ssh handshake with {at} failed: {detail}")]
    Handshake {
        /// The host.
        host: HostId,
        /// `address:port`.
        at: String,
        /// What failed.
        detail: String,
    },
    /// A link that worked is gone.
    #[error("{host}: link lost: {detail}")]
    Lost {
        /// The host.
        host: HostId,
        /// Why.
        detail: String,
    },
    /// A file of host keys can't be read.
    #[error("can't read host keys from {}: {detail}; without them no host key can be checked", file.display())]
    KnownHosts {
        /// The file.
        file: PathBuf,
        /// Why.
        detail: String,
    },
    /// Nobody vouched for this key yet.
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
         hard stop; if the host was set up anew, remove the line by hand",
        key.at, list(known)
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
    /// It went wrong at a host on the way.
    #[error("{host}: at jump host {hop}: {}", without_host(error, by))]
    Hop {
        /// The host that was to be reached.
        host: HostId,
        /// `user@address:port` of the host on the way.
        hop: String,
        /// The host for which the way there was tried: others wait for it.
        by: HostId,
        /// What went wrong.
        error: Arc<SshError>,
    },
    /// A chain of jump hosts that has no end.
    #[error("{host}: its jump hosts go round in a circle: {hops}; correct ProxyJump or `jump`")]
    JumpLoop {
        /// The host that was to be reached.
        host: HostId,
        /// The names on the way.
        hops: String,
    },
    /// What is written about the way to a host can't be followed.
    #[error("{host}: {detail}")]
    BadJump {
        /// The host.
        host: HostId,
        /// What is wrong, with the remedy.
        detail: String,
    },
    /// The login name here is not known.
    #[error("{host}: your login name is not known ($USER is not set): write `user` in the hosts file")]
    NoUser {
        /// The host.
        host: HostId,
    },
    /// The ssh that is needed can't be used.
    #[error("{host}: {detail}")]
    NoCarrier {
        /// The host.
        host: HostId,
        /// Why.
        detail: String,
    },
    /// The system's `ssh` did not get in.
    #[error("{host}: the system's ssh says: {said}")]
    System {
        /// The host.
        host: HostId,
        /// What sort of failure it is.
        kind: ErrorKind,
        /// Its words, sanitised.
        said: String,
    },
    /// The person's ssh configuration is refused.
    #[error("the ssh configuration {} can't be used: {detail}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// Why.
        detail: String,
    },
    /// A trusted key can't be written down.
    #[error("can't add a host key to {}: {detail}", file.display())]
    Trust {
        /// The file.
        file: PathBuf,
        /// Why, with the remedy.
        detail: String,
    },
    /// Nothing that was offered is accepted.
    #[error("{host}: {to} accepts no credential: {attempts}")]
    Authentication {
        /// The host.
        host: HostId,
        /// `user@address:port`.
        to: String,
        /// What was offered and what was not, and why.
        attempts: Attempts,
    },
    /// The binary can't be put on the host or started there.
    #[error("{host}: {problem}")]
    Deploy {
        /// The host.
        host: HostId,
        /// What failed.
        problem: DeployError,
    },
    /// hvtui's own binary can't be read.
    #[error("can't read hvtui's own binary {}: {detail}", path.display())]
    Binary {
        /// Its path.
        path: PathBuf,
        /// Why.
        detail: String,
    },
    /// The system gives no random bytes.
    #[error("the system's random number generator failed")]
    Random,
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
    pub(super) fn new(at: String, key: &HostKey) -> Self {
        Self { at, algorithm: key.algorithm(), fingerprint: key.fingerprint() }
    }
}

impl fmt::Display for ShownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.fingerprint)
    }
}

/// Why the agent does not run on a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeployError {
    /// The login shell did not run the line.
    #[error(
        "the login shell did not start /bin/sh ({end}){}; check the account's shell and start files",
        said(said_text)
    )]
    NoShell {
        /// How the command ended.
        end: String,
        /// What the host printed instead, sanitised.
        said_text: String,
    },
    /// The account's password must be changed first; until then the host runs nothing.
    #[error(
        "the account's password has expired, and the host runs nothing before it is changed{}; log in there once from \
         a terminal (ssh -t) and change it",
        said(said_text)
    )]
    PasswordExpired {
        /// What the host printed, sanitised.
        said_text: String,
    },
    /// The host has another system or processor, and there is no binary for it.
    #[error("no agent for {theirs}: {}, or name an installed hvtui by agent_path in the hosts file", put_there(place.as_ref()))]
    OtherPlatform {
        /// `uname -sm` there, sanitised.
        theirs: String,
        /// Where on the client a binary for it would have to lie; `None` where none can be built.
        place: Option<String>,
    },
    /// The agent is not there and must not be put there.
    #[error(
        "the agent is not on the host and must not be put there (--no-install, or install = false): connect once \
         without it, or install hvtui there and name it by agent_path in the hosts file"
    )]
    NotInstalled,
    /// The hosts file names a binary that is not there.
    #[error(
        "the host has no program {path}: correct agent_path in the hosts file, or remove it to have hvtui put there"
    )]
    NotAtPath {
        /// As the hosts file says it.
        path: String,
    },
    /// No folder can take the binary.
    #[error(
        "no folder of {} can hold and run the agent: {}; make one of them usable, or name one by cache_dir in the hosts file",
        "$XDG_CACHE_HOME, $HOME/.cache, $XDG_RUNTIME_DIR and cache_dir", tried.join("; ")
    )]
    NoFolder {
        /// Each folder and what is wrong with it.
        tried: Vec<String>,
    },
    /// Nothing there can check the upload.
    #[error("the host has none of sha256sum, shasum and openssl to check the upload with: install coreutils")]
    NoHashTool,
    /// Another content arrived than was sent.
    #[error(
        "the upload arrived damaged (sha256 {got}, sent {sent}): the file was removed, nothing was started"
    )]
    Damaged {
        /// Hash of what arrived.
        got: String,
        /// Hash of what was sent.
        sent: String,
    },
    /// The upload could not be written.
    #[error("the upload could not be stored in {folder}: {detail}; check free space, quota and permissions")]
    Store {
        /// The folder.
        folder: String,
        /// The host's words.
        detail: String,
    },
    /// The agent does not start.
    #[error("the agent {path} did not start ({end}){}", said(said_text))]
    NoAgent {
        /// Its path on the host.
        path: String,
        /// How the command ended.
        end: String,
        /// What it printed, sanitised.
        said_text: String,
        /// The exit status, where there was one.
        status: Option<u32>,
    },
    /// Too much text before the marker.
    #[error("more than 4 MiB of text came before the agent's first word{}", said(said_text))]
    Noise {
        /// How it begins, sanitised.
        said_text: String,
    },
    /// The host allows no further session on the connection.
    #[error(
        "the host opens no session on the connection ({0}): raise MaxSessions, or allow sessions, in its sshd_config"
    )]
    NoSession(String),
}

impl DeployError {
    /// The host ended a line before our first word, `end` says how; why, only its words tell.
    pub(super) fn no_shell(end: String, said_text: String) -> Self {
        // what sshd prints for an account that must change its password, whatever the language
        if said_text.contains("Your password has expired") {
            Self::PasswordExpired { said_text }
        } else {
            Self::NoShell { end, said_text }
        }
    }

    /// Whether the host can still tell of itself, though no agent runs there: its shell works.
    pub(super) fn leaves_telemetry(&self) -> bool {
        matches!(
            self,
            Self::OtherPlatform { .. }
                | Self::NotInstalled
                | Self::NotAtPath { .. }
                | Self::NoFolder { .. }
                | Self::NoHashTool
                | Self::NoAgent { .. }
        )
    }
}

fn put_there(place: Option<&String>) -> String {
    place.map_or_else(
        || "hvtui can't be built for it".to_owned(),
        |place| format!("put hvtui built for it at {place} here (docs/guide/release.md)"),
    )
}

fn also_known(also: &[String]) -> String {
    if also.is_empty() { String::new() } else { format!(" (the same key is known for {})", also.join(", ")) }
}

fn by_authority(place: Option<&Place>) -> String {
    place.map_or_else(String::new, |place| {
        format!(" ({place} names a certificate authority for it, but it shows no certificate of that)")
    })
}

/// An error's words without the host's name, which stands in front already.
fn without_host(error: &SshError, host: &HostId) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{host}: ")).map_or_else(|| text.clone(), str::to_owned)
}

fn list(known: &[KnownKey]) -> String {
    known.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", text.replace('\n', " | ")) }
}

impl SshError {
    /// What sort of failure it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::BadTarget { .. }
            | Self::Resolve { .. }
            | Self::Refused { .. }
            | Self::TimedOut { .. }
            | Self::Network { .. }
            | Self::Handshake { .. }
            | Self::Lost { .. }
            | Self::Random => ErrorKind::Unreachable,
            Self::Hop { error, .. } => error.kind(),
            Self::System { kind, .. } => *kind,
            Self::KnownHosts { .. }
            | Self::UnknownKey { .. }
            | Self::ChangedKey { .. }
            | Self::RevokedKey { .. }
            | Self::BadCertificate { .. }
            | Self::OtherKeyType { .. }
            | Self::OtherFingerprint { .. }
            | Self::Trust { .. } => ErrorKind::HostKey,
            Self::Authentication { .. }
            | Self::Deploy { problem: DeployError::PasswordExpired { .. }, .. } => ErrorKind::Authentication,
            Self::Deploy { .. }
            | Self::Binary { .. }
            | Self::Config { .. }
            | Self::JumpLoop { .. }
            | Self::BadJump { .. }
            | Self::NoUser { .. }
            | Self::NoCarrier { .. } => ErrorKind::Agent,
        }
    }

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

    /// What went wrong at a host on the way, said of another host that is reached through it.
    pub(super) fn for_host(&self, host: &HostId) -> Option<Self> {
        let Self::Hop { hop, by, error, .. } = self else { return None };
        Some(Self::Hop { host: host.clone(), hop: hop.clone(), by: by.clone(), error: Arc::clone(error) })
    }

    /// What sort of refusal it is: trying again makes no sense before a person acts. `None`: a retry may help.
    pub fn refusal(&self) -> Option<RefusalKind> {
        match self.kind() {
            ErrorKind::Unreachable => None,
            ErrorKind::HostKey => Some(RefusalKind::HostKey),
            ErrorKind::Authentication => Some(RefusalKind::Authentication),
            ErrorKind::Agent => Some(RefusalKind::Agent),
        }
    }

    /// Whether trying again makes no sense before a person acts.
    pub fn is_refusal(&self) -> bool {
        self.refusal().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> ShownKey {
        ShownKey {
            at: "10.0.0.7:22".into(),
            algorithm: "ssh-ed25519".into(),
            fingerprint: "SHA256:new".into(),
        }
    }

    fn known() -> Vec<KnownKey> {
        let place = Place { file: "kh".into(), line: 4 };
        vec![KnownKey { place, algorithm: "ssh-rsa".into(), fingerprint: "SHA256:old".into() }]
    }

    #[test]
    fn errors_name_the_host_the_fact_and_the_remedy() {
        let host = || HostId::from("gpu-a");
        let unknown = |also: &[&str], authority| SshError::UnknownKey {
            host: host(),
            key: shown().into(),
            also: also.iter().map(ToString::to_string).collect(),
            authority,
        };
        insta::assert_snapshot!(unknown(&[], None), @"gpu-a: host key of 10.0.0.7:22 is not known: ssh-ed25519 SHA256:new; compare it with the host's own and run: hvtui hosts trust gpu-a");
        insta::assert_snapshot!(unknown(&["twin"], Some(Place { file: "kh".into(), line: 2 })), @"gpu-a: host key of 10.0.0.7:22 is not known: ssh-ed25519 SHA256:new (the same key is known for twin) (kh:2 names a certificate authority for it, but it shows no certificate of that); compare it with the host's own and run: hvtui hosts trust gpu-a");
        let changed = SshError::ChangedKey { host: host(), key: shown().into(), known: known() };
        insta::assert_snapshot!(changed, @"gpu-a: HOST KEY OF 10.0.0.7:22 HAS CHANGED: it shows ssh-ed25519 SHA256:new, known is ssh-rsa SHA256:old (kh:4); someone may be in between, so this is a hard stop; if the host was set up anew, remove the line by hand");
        let other = SshError::OtherKeyType { host: host(), key: shown().into(), known: known() };
        insta::assert_snapshot!(other, @"gpu-a: 10.0.0.7:22 shows ssh-ed25519 SHA256:new, but is known by another type of key: ssh-rsa SHA256:old (kh:4); compare it with the host's own and run: hvtui hosts trust gpu-a --fingerprint SHA256:new");
        let (at, after) = ("10.0.0.7:22".to_owned(), Duration::from_secs(30));
        let silent =
            SshError::TimedOut { host: host(), at, what: "did not answer", after, remedy: "check the host" };
        insta::assert_snapshot!(silent, @"gpu-a: 10.0.0.7:22 did not answer within 30 s: check the host");
        let attempts = Attempts {
            offered: vec!["/home/li/.ssh/id_rsa".into()],
            notes: vec!["id not offered: it has a passphrase: run ssh-add id".into()],
            accepts: vec!["publickey".into()],
        };
        let refused = SshError::Authentication { host: host(), to: "li@a:22".into(), attempts };
        insta::assert_snapshot!(refused, @"gpu-a: li@a:22 accepts no credential: offered /home/li/.ssh/id_rsa; id not offered: it has a passphrase: run ssh-add id; the host accepts publickey; name a key in the hosts file (identity), or put its public half into ~/.ssh/authorized_keys there");
        let deploy = |problem| SshError::Deploy { host: host(), problem };
        let end = || "the command ended with status 1".to_owned();
        let said_text = || "This account is\nnot available.".to_owned();
        insta::assert_snapshot!(deploy(DeployError::NoShell { end: end(), said_text: said_text() }), @"gpu-a: the login shell did not start /bin/sh (the command ended with status 1): This account is | not available.; check the account's shell and start files");
        let expired = "WARNING: Your password has expired.\nPassword change required but no TTY available.";
        let expired = deploy(DeployError::no_shell(end(), expired.to_owned()));
        assert_eq!(expired.refusal(), Some(RefusalKind::Authentication));
        insta::assert_snapshot!(expired, @"gpu-a: the account's password has expired, and the host runs nothing before it is changed: WARNING: Your password has expired. | Password change required but no TTY available.; log in there once from a terminal (ssh -t) and change it");
        let tried = vec!["/c lets no program run (mounted noexec)".to_owned()];
        insta::assert_snapshot!(deploy(DeployError::NoFolder { tried }), @"gpu-a: no folder of $XDG_CACHE_HOME, $HOME/.cache, $XDG_RUNTIME_DIR and cache_dir can hold and run the agent: /c lets no program run (mounted noexec); make one of them usable, or name one by cache_dir in the hosts file");
        let (theirs, place) = ("Linux aarch64".to_owned(), Some("/opt/agents/a/hvtui".to_owned()));
        insta::assert_snapshot!(deploy(DeployError::OtherPlatform { theirs, place }), @"gpu-a: no agent for Linux aarch64: put hvtui built for it at /opt/agents/a/hvtui here (docs/guide/release.md), or name an installed hvtui by agent_path in the hosts file");
        insta::assert_snapshot!(deploy(DeployError::NotInstalled), @"gpu-a: the agent is not on the host and must not be put there (--no-install, or install = false): connect once without it, or install hvtui there and name it by agent_path in the hosts file");
    }

    #[test]
    fn only_what_time_may_heal_is_no_refusal() {
        let host = HostId::from("a");
        let refused = SshError::Refused { host: host.clone(), at: "a:22".into() };
        assert_eq!((refused.kind(), refused.refusal()), (ErrorKind::Unreachable, None));
        let changed = SshError::ChangedKey { host: host.clone(), key: shown().into(), known: known() };
        assert_eq!(changed.refusal(), Some(RefusalKind::HostKey));
        let deploy = SshError::Deploy { host, problem: DeployError::NoHashTool };
        assert_eq!(deploy.refusal(), Some(RefusalKind::Agent));
    }
}
