//! What stands in a frame: a message as JSON, or bytes of a form of their own.

use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{self, Frame, FrameError};
use super::limits;

/// A message that can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The frame is out of bounds.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The payload is no message of its kind.
    #[error("malformed message of kind {kind}: {detail}")]
    Malformed {
        /// The frame's kind.
        kind: u16,
        /// What is wrong.
        detail: String,
    },
}

/// Appends a message as a frame of this kind.
pub(super) fn json<T: Serialize>(kind: u16, value: &T, out: &mut BytesMut) -> Result<(), MessageError> {
    let payload = serde_json::to_vec(value)
        .map_err(|error| MessageError::Malformed { kind, detail: error.to_string() })?;
    Ok(frame::encode(kind, &payload, out)?)
}

/// Reads a message.
pub(super) fn parse<T: DeserializeOwned>(frame: &Frame) -> Result<T, MessageError> {
    serde_json::from_slice(&frame.payload)
        .map_err(|error| MessageError::Malformed { kind: frame.kind, detail: error.to_string() })
}

/// The same of a peer that is not trusted.
pub(super) fn bounded<T: DeserializeOwned>(frame: &Frame) -> Result<T, MessageError> {
    limits::check(&frame.payload).map_err(|detail| MessageError::Malformed { kind: frame.kind, detail })?;
    parse(frame)
}

/// What was read of a frame that is no JSON.
pub(super) fn whole<T>(read: Option<T>, frame: &Frame, fault: &str) -> Result<T, MessageError> {
    read.ok_or_else(|| MessageError::Malformed { kind: frame.kind, detail: fault.to_owned() })
}
