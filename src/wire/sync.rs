//! What client and agent say to copy a folder: kinds 18 to 21, and 125 back. Contents go in an
//! [upload](super::upload).

use serde::{Deserialize, Serialize};

use super::upload::UploadRef;
use crate::domain::ids::RunId;
use crate::domain::run::RefusalClass;
use crate::domain::sync::Digest;

/// Client to agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncAsk {
    /// Is this tree there already? Answered by [`SyncState::Waiting`], then [`SyncState::Present`] or
    /// [`SyncState::Wanted`].
    Open(SyncOpen),
    /// The manifest was sent, as a content of the upload: answered by [`SyncState::Missing`].
    Compare(UploadRef),
    /// Every missing content was sent: answered by [`SyncState::Present`].
    Switch(UploadRef),
    /// Forget the upload.
    Close(UploadRef),
}

/// See [`SyncAsk::Open`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncOpen {
    /// The upload's number, never used before on this link.
    pub upload: u32,
    /// The run that it is for.
    pub run: RunId,
    /// The folder: absolute, or from the home folder (`~/x`).
    pub remote: String,
    /// Name of the manifest.
    pub tree: Digest,
    /// The manifest's length.
    pub size: u64,
    /// Whether what earlier syncs brought and this one doesn't goes.
    #[serde(default)]
    pub delete: bool,
    /// Write nothing: say only what is missing.
    #[serde(default)]
    pub dry: bool,
}

/// How far a host is with a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncTold {
    /// The upload.
    pub upload: u32,
    /// The run that it is for.
    pub run: RunId,
    /// How far.
    #[serde(flatten)]
    pub state: SyncState,
}

/// See [`SyncTold`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SyncState {
    /// Another sync of the folder is under way; the answer comes behind it.
    Waiting,
    /// The tree is not there: send its manifest.
    Wanted,
    /// Some of what is missing.
    Missing {
        /// Entries of the manifest by their number, and how many bytes of each are there.
        entries: Vec<(u32, u64)>,
        /// Whether these were the last.
        last: bool,
        /// Files that are new or change.
        changed: u64,
        /// Files that go.
        deleted: u64,
        /// Bytes of all that is missing.
        bytes: u64,
    },
    /// The tree is there.
    Present {
        /// Name of the manifest of what is there.
        tree: Digest,
        /// Whether anything was changed.
        switched: bool,
        /// What a person should know, a sentence each.
        notes: Vec<String>,
    },
    /// It can't be done; the folder is as it was.
    Refused {
        /// Why, with the remedy.
        reason: String,
        /// What kind of reason.
        class: RefusalClass,
    },
}
