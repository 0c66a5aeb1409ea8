//! What an import comes to.

use std::path::PathBuf;

use serde::Serialize;

use super::target::Target;
use crate::domain::ids::RunId;
use crate::domain::time::Stamp;
use crate::domain::wait_table::WaitTable;

/// What a fold over the events comes to.
pub(super) struct Folded {
    pub(super) target: Target,
    /// Ranks of which something was read.
    pub(super) told_ranks: u32,
    pub(super) steps: StepsRead,
    pub(super) waits: Option<WaitTable>,
    pub(super) left_out: Vec<LeftOut>,
}

/// What was imported.
#[derive(Debug, Clone, Serialize)]
pub struct Imported {
    /// The run that was made of it.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// Its recording.
    pub recording: PathBuf,
    /// What was read: `horovod`, `chrome`, `kineto`, `tensorboard`, `nccl-inspector`.
    pub format: &'static str,
    /// By whose clock its times are, and how far they can be compared.
    pub clock: String,
    /// The files that were read.
    pub files: Vec<FileRead>,
    /// When it begins.
    #[serde(serialize_with = "moment")]
    pub created: Stamp,
    /// From its beginning to its last event, microseconds.
    pub duration_us: u64,
    /// How many ranks it has.
    pub ranks: u32,
    /// Those of which something was read.
    pub told_ranks: u32,
    /// Steps by their number.
    pub steps: StepsRead,
    /// What is not in the recording, or not as it was told.
    pub left_out: Vec<LeftOut>,
    /// How long ranks waited for each other, where the trace tells it collective by collective.
    pub waits: Option<WaitTable>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileRead {
    /// Its name as it was given.
    pub path: PathBuf,
    /// Bytes of its text, unpacked.
    pub bytes: u64,
    /// Whether it is packed.
    pub packed: bool,
    /// Events in it.
    pub events: u64,
    /// Events that can't be read: no JSON, too large or nested too deep.
    pub unread: u64,
    /// Its rank, where a file has one.
    pub rank: Option<u32>,
    /// Where it was cut, and why it is known to be: it was read up to there.
    pub cut: Option<Cut>,
}

/// A place at which a text ends before its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Byte of the text, unpacked.
    pub byte: u64,
    /// In words.
    pub reason: String,
}

/// The steps of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StepsRead {
    /// The first.
    pub first: Option<u64>,
    /// The last.
    pub last: Option<u64>,
    /// How many there are, each once however many ranks told it.
    pub count: u64,
    /// Of how many all ranks tell how long they waited.
    pub with_waits: u64,
}

impl StepsRead {
    /// One more step by its number, told by some rank.
    pub(super) fn add(&mut self, step: u64) {
        // ranks tell a step one after the other
        if self.last.is_none_or(|last| step > last) {
            self.count += 1;
        }
        self.first = Some(self.first.map_or(step, |first| first.min(step)));
        self.last = Some(self.last.map_or(step, |last| last.max(step)));
    }
}

/// Something that is left out, or was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// How many.
    pub count: u64,
    /// Why, and what became of it.
    pub why: String,
}

impl LeftOut {
    pub(super) fn new(what: impl Into<String>, count: u64, why: impl Into<String>) -> Self {
        Self { what: what.into(), count, why: why.into() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn moment<S: serde::Serializer>(at: &Stamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&at.rfc3339())
}
