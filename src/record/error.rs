//! What can go wrong with a recording, in words that name the file and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use super::format::FORMAT;
use crate::domain::marks::MarkError;

/// Why a recording could not be written, read or found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Its words.
        source: io::Error,
    },
    /// The bytes could not be written on.
    #[error("write of the recording: {0}")]
    Write(#[source] io::Error),
    /// A kernel trace is none.
    #[error("kernel trace of {name}: {reason}")]
    Trace {
        /// Whose it is.
        name: String,
        /// The parser's words.
        reason: String,
    },
    /// A file of another program is none that can be imported.
    #[error("{}: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// The file of marks beside a recording can't be read.
    #[error("{}: {reason}", path.display())]
    Marks {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what helps.
        reason: String,
    },
    /// Marks can't be changed so.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// The MCAP library refused.
    #[error("recording: {0}")]
    Mcap(#[source] mcap::McapError),
    /// A recording is there already; it is never overwritten.
    #[error("{} is there already: a recording is never overwritten, move it away", .0.display())]
    Exists(PathBuf),
    /// Another process writes it now.
    #[error("{} is being recorded by another hvtui", .0.display())]
    Busy(PathBuf),
    /// Nothing tells whether another process writes it now.
    #[error("{}: the file system has no locks, so another hvtui may be writing it: copy it elsewhere first", .0.display())]
    NoLock(PathBuf),
    /// The file is something else.
    #[error("{} is not a recording of hvtui", .0.display())]
    NotARecording(PathBuf),
    /// The file is an MCAP file of another kind.
    #[error("{} is an MCAP file, but no recording of hvtui: what `hvtui export --to mcap` writes is for Foxglove and other viewers, and can't be read back; keep the recording itself, run.mcap", .0.display())]
    OtherMcap(PathBuf),
    /// Nothing of the recording is in the part that was asked for: the run, why, and what the recording has.
    #[error("{0}")]
    NothingSelected(String),
    /// The chunk that tells the run is lost.
    #[error("{}: the beginning is missing, and with it which run it is of", .0.display())]
    Nameless(PathBuf),
    /// A later version wrote it.
    #[error("{} has recording format {found}, this hvtui reads up to {FORMAT}: update hvtui", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// One chunk can't be decoded; the others can.
    #[error("{}: chunk at byte {offset}: {reason}", path.display())]
    Chunk {
        /// The file.
        path: PathBuf,
        /// Where the chunk begins in the file.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// An event is larger than a reader would accept.
    #[error("event {seq} of {bytes} bytes is too large for a recording")]
    TooLarge {
        /// Its sequence number.
        seq: u64,
        /// Its size when encoded.
        bytes: usize,
    },
    /// An event came after later ones had been written; chunks hold rising sequence numbers.
    #[error("event {seq} came after event {last} was written")]
    Late {
        /// Its sequence number.
        seq: u64,
        /// The last one written.
        last: u64,
    },
    /// The recorder's thread could not be started.
    #[error("start of the recorder's thread: {0}")]
    Thread(#[source] io::Error),
    /// There is no file.
    #[error("{0}")]
    NotStarted(String),
    /// The recorder's thread is gone.
    #[error("the recorder stopped early: this is a fault in hvtui")]
    RecorderGone,
    /// Nothing was ever recorded.
    #[error("no run is recorded in {}", .0.display())]
    NoRuns(PathBuf),
    /// No recording answers to the text.
    #[error("no recorded run is called '{text}'{}", newest(candidates))]
    NoSuchRun {
        /// What was typed.
        text: String,
        /// The newest runs, for the message.
        candidates: Vec<String>,
    },
    /// Several recordings answer to the text.
    #[error("'{text}' may be any of {}: write more of the id", candidates.join(", "))]
    Ambiguous {
        /// What was typed.
        text: String,
        /// The runs it may be.
        candidates: Vec<String>,
    },
}

fn newest(candidates: &[String]) -> String {
    if candidates.is_empty() { String::new() } else { format!("; the newest are {}", candidates.join(", ")) }
}

impl Error {
    pub(super) fn foreign(path: &Path, reason: &str) -> Self {
        Self::Foreign { path: path.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

impl From<mcap::McapError> for Error {
    fn from(error: mcap::McapError) -> Self {
        match error {
            mcap::McapError::Io(source) => Self::Write(source),
            other => Self::Mcap(other),
        }
    }
}
