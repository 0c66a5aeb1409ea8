//! What client and agent say to copy a container image: kinds 23 to 25, and 127 back. Contents go in an
//! [upload](super::upload).

use serde::{Deserialize, Serialize};

use super::upload::UploadRef;
use crate::domain::container::ImageId;
use crate::domain::run::RefusalClass;
use crate::domain::sync::Digest;

/// Client to agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageAsk {
    /// Is this image there already? Answered by [`ImageState::Waiting`], then [`ImageState::Present`] or
    /// [`ImageState::Wanted`].
    Open(Box<ImageOpen>),
    /// Every missing content was sent: answered by [`ImageState::Present`].
    Load(ImageLoad),
    /// Forget the upload.
    Close(UploadRef),
}

/// See [`ImageAsk::Open`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageOpen {
    /// The upload's number, never used before on this link.
    pub upload: u32,
    /// The name that it gets: `mnist:latest`; none where it was called by its id.
    pub name: Option<String>,
    /// What it is where it comes from.
    pub id: ImageId,
    /// Its layers from the bottom up, each the hash of its uncompressed content.
    pub layers: Vec<Digest>,
    /// For which machines it is: `linux/amd64`.
    pub platform: String,
    /// The engine's program; the host's own choice when absent.
    #[serde(default)]
    pub engine: Option<String>,
    /// Write nothing: say only what is there.
    #[serde(default)]
    pub dry: bool,
}

/// See [`ImageAsk::Load`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLoad {
    /// The upload.
    pub upload: u32,
    /// The hash of the image's configuration.
    pub config: Digest,
    /// The hash of each layer as it was sent, from the bottom up; none for one that the engine has.
    pub layers: Vec<Option<Digest>>,
}

/// How far a host is with an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageTold {
    /// The upload.
    pub upload: u32,
    /// How far.
    #[serde(flatten)]
    pub state: ImageState,
}

/// See [`ImageTold`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ImageState {
    /// Another copy of the image is under way; the answer comes behind it.
    Waiting,
    /// The image is not there.
    Wanted {
        /// Its engine: `docker`.
        engine: String,
        /// How many of the layers, from the bottom up, need not be sent.
        there: usize,
        /// Contents that an earlier copy has brought, and how many bytes of each.
        held: Vec<(Digest, u64)>,
    },
    /// The image is there.
    Present {
        /// What the host's engine says that it is.
        id: ImageId,
        /// Whether anything was changed.
        changed: bool,
    },
    /// It can't be done.
    Refused {
        /// Why, with the remedy.
        reason: String,
        /// What kind of reason.
        class: RefusalClass,
    },
}
