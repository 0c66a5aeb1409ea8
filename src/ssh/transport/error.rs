//! Everything that can keep a host from being reached, in words that name the host and the remedy.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::host::RefusalKind;
use crate::domain::ids::HostId;
use crate::ssh::trust::TrustError;

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

/// A failure to reach a host.
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
    #[error("{host}: no address for `{address}`: {detail}; check its spelling, DNS and /etc/hosts")]
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
    /// The host's key is not trusted, or can't be written down.
    #[error(transparent)]
    HostKey(TrustError),
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
    NoTransport {
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
    /// The host allows no further session on the connection.
    #[error(
        "{host}: the host opens no session on the connection ({detail}): raise MaxSessions, or allow sessions, in its \
         sshd_config"
    )]
    NoSession {
        /// The host.
        host: HostId,
        /// The host's words.
        detail: String,
    },
    /// The system gives no random bytes.
    #[error("the system's random number generator failed")]
    Random,
}

/// What was tried to get in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempts {
    /// The keys that the host saw and did not take.
    pub offered: Vec<String>,
    /// What could not be offered or was not enough, and why.
    pub notes: Vec<String>,
    /// The methods that the host accepts.
    pub accepts: Vec<String>,
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offered.is_empty() {
            f.write_str("there was no key to offer")?;
        } else {
            write!(f, "offered {}", self.offered.join(", "))?;
        }
        for note in &self.notes {
            write!(f, "; {note}")?;
        }
        if !self.accepts.is_empty() {
            write!(f, "; the host accepts {}", self.accepts.join(", "))?;
        }
        f.write_str(
            "; check the login name (user in the hosts file), name a key (identity), or put its public half into \
             ~/.ssh/authorized_keys there",
        )
    }
}

/// An error's words without the host's name, which stands in front already.
fn without_host(error: &SshError, host: &HostId) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{host}: ")).map_or_else(|| text.clone(), str::to_owned)
}

impl ErrorKind {
    /// What sort of refusal it is: trying again makes no sense before a person acts. `None`: a retry may help.
    pub(in crate::ssh) fn refusal(self) -> Option<RefusalKind> {
        match self {
            Self::Unreachable => None,
            Self::HostKey => Some(RefusalKind::HostKey),
            Self::Authentication => Some(RefusalKind::Authentication),
            Self::Agent => Some(RefusalKind::Agent),
        }
    }
}

impl From<TrustError> for SshError {
    fn from(error: TrustError) -> Self {
        match error {
            TrustError::BadName { host, what, value } => Self::BadTarget { host, what, value },
            error => Self::HostKey(error),
        }
    }
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
            Self::HostKey(_) => ErrorKind::HostKey,
            Self::Authentication { .. } => ErrorKind::Authentication,
            Self::NoSession { .. }
            | Self::Config { .. }
            | Self::JumpLoop { .. }
            | Self::BadJump { .. }
            | Self::NoUser { .. }
            | Self::NoTransport { .. } => ErrorKind::Agent,
        }
    }

    /// What went wrong at a host on the way, said of another host that is reached through it.
    pub(super) fn for_host(&self, host: &HostId) -> Option<Self> {
        let Self::Hop { hop, by, error, .. } = self else { return None };
        Some(Self::Hop { host: host.clone(), hop: hop.clone(), by: by.clone(), error: Arc::clone(error) })
    }

    /// What sort of refusal it is: trying again makes no sense before a person acts. `None`: a retry may help.
    pub fn refusal(&self) -> Option<RefusalKind> {
        self.kind().refusal()
    }

    /// Whether trying again makes no sense before a person acts.
    pub fn is_refusal(&self) -> bool {
        self.refusal().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_host_the_fact_and_the_remedy() {
        let host = || HostId::from("gpu-a");
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
        insta::assert_snapshot!(refused, @"gpu-a: li@a:22 accepts no credential: offered /home/li/.ssh/id_rsa; id not offered: it has a passphrase: run ssh-add id; the host accepts publickey; check the login name (user in the hosts file), name a key (identity), or put its public half into ~/.ssh/authorized_keys there");
    }

    #[test]
    fn only_what_time_may_heal_is_no_refusal() {
        let host = HostId::from("a");
        let refused = SshError::Refused { host: host.clone(), at: "a:22".into() };
        assert_eq!((refused.kind(), refused.refusal()), (ErrorKind::Unreachable, None));
        let file = "known_hosts".into();
        let unreadable = SshError::from(TrustError::KnownHosts { file, detail: "denied".into() });
        assert_eq!(unreadable.refusal(), Some(RefusalKind::HostKey));
        let name = TrustError::BadName { host, what: "address", value: "-x".into() };
        assert!(matches!(SshError::from(name), SshError::BadTarget { .. }));
    }
}
