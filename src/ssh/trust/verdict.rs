//! What files of known hosts say about a key that a host shows, and what is wrong with its certificate: the words for it
//! alone, judged is elsewhere.

use std::fmt;
use std::path::PathBuf;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A key that a file has for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// Where it stands.
    pub place: Place,
    /// `ssh-ed25519`, …
    pub algorithm: String,
    /// `SHA256:…`
    pub fingerprint: String,
    /// How the file stops having it for the host.
    pub forget: Forget,
}

/// How a file stops having a key for a host, with nothing lost for other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forget {
    /// All of the file's lines for this name name it alone: `ssh-keygen -R`.
    Name(String),
    /// This line does, others don't.
    Line,
    /// The line names other hosts as well, or has a pattern: this name is excepted from it.
    Except(String),
}

impl fmt::Display for KnownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.algorithm, self.fingerprint, self.place)
    }
}

/// What the files say about a key that a host shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the host's key.
    Known,
    /// Nothing is known of the host.
    Unknown {
        /// Other names under which the files have this very key; `(hashed name)` for those that are hidden.
        also: Vec<String>,
        /// A certificate authority that stands for the host, which showed no certificate of it.
        authority: Option<Place>,
    },
    /// The files have another key of this type.
    Changed {
        /// The keys of this type that the files have.
        known: Vec<KnownKey>,
    },
    /// Someone marked the key as stolen or retired.
    Revoked {
        /// The line that says so.
        place: Place,
    },
    /// The files have keys of other types only.
    OtherType {
        /// Those keys.
        known: Vec<KnownKey>,
    },
}

/// What is wrong with a certificate whose authority is trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// It certifies a user.
    #[error("it is a user's certificate, not a host's")]
    UserType,
    /// It names other hosts, or none.
    #[error("it does not name {wanted}{}", list(.names))]
    Principal {
        /// The name by which the host is reached.
        wanted: String,
        /// The names that it has.
        names: Vec<String>,
    },
    /// Its time is over.
    #[error("it expired {0}")]
    Expired(String),
    /// Its time has not come.
    #[error("it is not valid before {0}")]
    NotYet(String),
    /// It holds a condition that is not understood.
    #[error("it holds the critical option `{0}`, which is not understood")]
    Critical(String),
    /// The authority signed with an algorithm that is broken.
    #[error("its authority signed it with {0}")]
    Algorithm(String),
    /// The signature is not the authority's.
    #[error("its signature is wrong")]
    Signature,
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        ": it names no host".to_owned()
    } else {
        format!(": it names {}", names.join(", "))
    }
}
