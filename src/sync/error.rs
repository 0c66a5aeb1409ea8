//! Why a folder can't be copied. Texts name the path and the remedy; a caller that knows the host names it first.

use std::path::{Path, PathBuf};

use crate::domain::sync::Digest;
use crate::domain::text::os_text;
use crate::domain::units::bytes;
use crate::sha256::ReadError;

/// Why a folder can't be copied.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The system refused something.
    #[error("{what} {}: {}", .path.display(), os_text(.source))]
    Io {
        /// What was tried: `read`.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A name that is not copied.
    #[error("{path:?} {fault}: rename it, or name it in .hvtuiignore")]
    Name {
        /// From the folder on, as far as it can be shown.
        path: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A symlink that is not copied.
    #[error(
        "the symlink {path:?} -> {target:?} {fault}: name it in .hvtuiignore, or point it into the folder"
    )]
    Link {
        /// From the folder on.
        path: String,
        /// Where it points.
        target: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// What is neither file, folder nor symlink.
    #[error("{path:?} is a {what}, which is not copied: name it in .hvtuiignore")]
    Special {
        /// From the folder on.
        path: String,
        /// Which: `socket`.
        what: &'static str,
    },
    /// A list of files that is none.
    #[error("malformed list of files, line {line}: {fault}")]
    Manifest {
        /// From 1; 0 for the whole.
        line: usize,
        /// What is wrong.
        fault: String,
    },
    /// A folder that can't be replaced as a whole.
    #[error("{}: {fault}", .path.display())]
    Target {
        /// The folder on the host.
        path: PathBuf,
        /// What is wrong, with the remedy.
        fault: String,
    },
    /// Something there belongs to another user, or others may write to it.
    #[error("{}: {fault}", .path.display())]
    NotOurs {
        /// On the host.
        path: PathBuf,
        /// What is wrong, with the remedy.
        fault: &'static str,
    },
    /// Something that no sync brought stands where the copy has something else.
    #[error("{}: {fault}: move it away there, or rename it here", .path.display())]
    InTheWay {
        /// On the host.
        path: PathBuf,
        /// What stands there, and what belongs there.
        fault: &'static str,
    },
    /// A process works in what the switch would move away under it.
    #[error(
        "{}: would move away under process {pid}, which works here in a container: wait for its run or stop it, or sync to \
         another folder (--sync DIR:PATH)",
        .path.display()
    )]
    InUse {
        /// On the host.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// The disk is full.
    #[error("{} needs {} and {} are free: make room there; the old tree is untouched{kept}", .path.display(), bytes(*.needed), bytes(*.free))]
    NoSpace {
        /// The folder on the host.
        path: PathBuf,
        /// Bytes.
        needed: u64,
        /// Bytes.
        free: u64,
        /// What became of what was copied so far.
        kept: &'static str,
    },
    /// Content that is not what its name says.
    #[error(
        "what came is not the content of hash {name}: the file was changed while it was copied, launch again"
    )]
    Changed {
        /// The hash.
        name: Digest,
    },
    /// A piece that does not continue what is there.
    #[error("a piece of {name} begins at {offset}, {held} are there")]
    Hole {
        /// The content's hash.
        name: Digest,
        /// Where it begins.
        offset: u64,
        /// What is there.
        held: u64,
    },
    /// After the copy a host has something else.
    #[error("{}: {path:?} is not what was copied: {fault}", .target.display())]
    Differs {
        /// The folder on the host.
        target: PathBuf,
        /// From the folder on.
        path: String,
        /// How it differs.
        fault: &'static str,
    },
    /// It was called off.
    #[error("stopped before the switch; the old tree is untouched")]
    Stopped,
}

impl From<ReadError> for SyncError {
    fn from(ReadError { path, source }: ReadError) -> Self {
        Self::Io { what: "read", path, source }
    }
}

impl SyncError {
    /// Something the system refused, for `map_err`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    /// Whether the disk or the quota is full.
    pub(crate) fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            Self::NoSpace { .. } => true,
            _ => false,
        }
    }
}
