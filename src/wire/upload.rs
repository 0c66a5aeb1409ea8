//! Contents on their way to a host: kind 22, and 126 back.
//!
//! Contents go in an *upload*, a number that the client gives it: pieces of named contents one way ([`BlobPiece`]), how
//! much was taken the other way ([`BlobsTaken`]). The client sends no more than a window ahead of that. Nothing about
//! an upload says what its contents are for; what opened it does, such as a sync ([`sync`](super::sync)).

use bytes::{Buf, BufMut, Bytes};
use serde::{Deserialize, Serialize};

use crate::domain::sync::Digest;

/// The most bytes of a content in one [`BlobPiece`].
pub const PIECE_BYTES: usize = 32 * 1024;

/// What a piece counts beside its bytes: many small files are no small load.
pub const PIECE_COST: u64 = 256;

/// An upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadRef {
    /// Its number.
    pub upload: u32,
}

/// A piece of a content. Pieces of one content come in order, without holes; one of no bytes is an empty content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPiece {
    /// The upload.
    pub upload: u32,
    /// The content's hash.
    pub name: Digest,
    /// Its whole length.
    pub size: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes, at most [`PIECE_BYTES`].
    pub data: Bytes,
}

/// How much of an upload was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobsTaken {
    /// The upload.
    pub upload: u32,
    /// Bytes of its pieces from its beginning on, and [`PIECE_COST`] for each.
    pub taken: u64,
}

/// Upload `u32`, hash, size `u64`, offset `u64`.
const HEAD: usize = 4 + 32 + 8 + 8;

impl BlobPiece {
    /// What it counts in [`BlobsTaken`].
    pub fn cost(&self) -> u64 {
        self.data.len() as u64 + PIECE_COST
    }

    /// Upload `u32`, hash (32 bytes), size `u64`, offset `u64`, data; little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.data.len());
        out.put_u32_le(self.upload);
        out.put_slice(&self.name.0);
        out.put_u64_le(self.size);
        out.put_u64_le(self.offset);
        out.put_slice(&self.data);
        out
    }

    /// `None` for what is no piece.
    pub(super) fn from_bytes(payload: &Bytes) -> Option<Self> {
        let mut payload = payload.clone();
        if payload.len() < HEAD {
            return None;
        }
        let upload = payload.get_u32_le();
        let mut name = [0; 32];
        payload.copy_to_slice(&mut name);
        let (size, offset) = (payload.get_u64_le(), payload.get_u64_le());
        Some(Self { upload, name: Digest(name), size, offset, data: payload })
    }
}
