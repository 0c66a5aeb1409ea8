//! Owns the processes of a run on a host, apart from any client or link. Layer 3.
//!
//! An agent [starts](start) a supervisor and then knows it by files and signals alone: the supervisor shares
//! no descriptor, session or parent with it. The supervisor starts one [`rank_wrap`] per rank, which writes
//! the rank's exit to disk, so that the truth survives the supervisor's death too. Everything that belongs
//! to a run on a host lies in its [run directory](rundir).

pub mod adopt;
mod adopted;
pub mod attempts;
mod background;
mod beside;
mod contained;
pub mod container;
pub mod daemon;
pub mod discarded;
pub mod disk_space;
pub mod engine;
pub mod environment;
mod error_file;
pub mod flight;
mod invocation;
pub mod kineto;
pub mod lease;
pub mod logout;
pub mod machine;
mod nccl_timings;
pub mod notes;
pub mod numbering;
mod oom;
mod process_set;
mod python_hooks;
pub mod rank_wrap;
mod rendezvous;
pub mod rundir;
pub mod samples;
pub mod secrets;
mod shipped;
pub mod silence;
pub mod spool;
pub mod spool_trimmer;
pub mod stacks;
pub mod start;
pub mod state;
pub mod stop;
mod stop_mark;
pub mod supervisor;
pub mod times;
pub mod unwanted;
mod variables;
mod watchdog;

use std::io;
use std::path::{Path, PathBuf};

use crate::domain::run::RefusalClass;
use crate::domain::text::os_text;
use crate::program::ProgramError;

/// What can go wrong with a run's processes or files on this host.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// A host's name that can't be part of a path.
    #[error(
        "host name '{0}' can't be part of a file name: at most 100 characters, no '/' and no control character"
    )]
    HostName(String),
    /// A directory that someone else could write to, or that is not a directory.
    #[error("{path} is not safe for a run's files: {detail}", path = path.display())]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong and the remedy.
        detail: String,
    },
    /// The folder of all runs can't be made.
    #[error(
        "create {path}: {text}: runs keep their logs there; XDG_STATE_HOME, set for logins to that host, names another folder",
        path = path.display(), text = os_text(source)
    )]
    StateFolder {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{doing} {path}: {text}", path = path.display(), text = os_text(source))]
    Io {
        /// What was being done: `open`, `write`.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file of ours that does not hold what it should.
    #[error("{path} is damaged: {detail}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        detail: String,
    },
    /// A file of a run whose supervisor is of another hvtui, which says in it what this one does not know.
    #[error(
        "{path} was written by hvtui {version} and can't be read by this one, {own} ({detail}): use hvtui {version} for this run",
        path = path.display(),
        own = state::VERSION
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        version: String,
        /// The parser's words.
        detail: String,
    },
    /// A rank's program or working directory is not there.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The run's GPUs can't be held.
    #[error(transparent)]
    Lease(#[from] lease::LeaseError),
    /// The ranks' rendezvous can't be served.
    #[error("{0}")]
    Rendezvous(String),
    /// The supervisor could not be started; its own words.
    #[error("supervisor did not start: {0}")]
    NotStarted(String),
}

impl SuperviseError {
    /// What kind of reason it is to refuse a run.
    pub fn class(&self) -> RefusalClass {
        match self {
            Self::Lease(lease::LeaseError::Busy(_)) => RefusalClass::Busy,
            Self::HostName(_) | Self::Unsafe { .. } | Self::Lease(_) => RefusalClass::Permission,
            Self::Io { source, .. } | Self::StateFolder { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                RefusalClass::Permission
            }
            Self::Io { .. } | Self::StateFolder { .. } => RefusalClass::Io,
            Self::Rendezvous(_) | Self::OtherVersion { .. } => RefusalClass::Unavailable,
            Self::Program(_) => RefusalClass::Command,
            Self::Damaged { .. } | Self::NotStarted(_) => RefusalClass::Fault,
        }
    }

    fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, path: path.to_owned(), source: source.into() }
    }
}
