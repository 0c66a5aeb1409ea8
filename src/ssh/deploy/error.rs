//! Everything that can keep an agent from running on a host, in words that name the host and the remedy.

use std::path::PathBuf;

use crate::domain::host::RefusalKind;
use crate::domain::ids::HostId;
use crate::ssh::transport::{ErrorKind, SshError};

/// A failure to reach a host or to start the agent on it.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no connection, or it is gone.
    #[error(transparent)]
    Ssh(#[from] SshError),
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
}

impl AgentError {
    /// What sort of failure it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Ssh(error) => error.kind(),
            Self::Deploy { problem: DeployError::PasswordExpired { .. }, .. } => ErrorKind::Authentication,
            Self::Deploy { .. } | Self::Binary { .. } => ErrorKind::Agent,
        }
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

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", text.replace('\n', " | ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_host_the_fact_and_the_remedy() {
        let host = || HostId::from("gpu-a");
        let deploy = |problem| AgentError::Deploy { host: host(), problem };
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
    fn what_is_missing_on_a_host_is_a_refusal() {
        let deploy = AgentError::Deploy { host: HostId::from("a"), problem: DeployError::NoHashTool };
        assert_eq!(deploy.refusal(), Some(RefusalKind::Agent));
        let refused = SshError::Refused { host: HostId::from("a"), at: "a:22".into() };
        assert_eq!(AgentError::from(refused).refusal(), None);
    }
}
