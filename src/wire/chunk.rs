//! A piece of a rank's file, binary, for there are many; and a part that is missing.

use bytes::{Buf, BufMut, Bytes};
use serde::{Deserialize, Serialize};

use super::frame::Frame;
use super::message::MessageError;
use crate::domain::ids::{Rank, RunId};
use crate::domain::log::{LogGap, Stream};
use crate::domain::time::HostTime;

/// The most bytes of a file in one [`Chunk`].
pub const CHUNK_BYTES: usize = 16 * 1024;

/// A piece of one of a rank's append-only files. Pieces of one file arrive in order: each begins where the
/// last one ended, so a repeated or a lost byte shows in the offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The run.
    pub run: RunId,
    /// The rank.
    pub rank: Rank,
    /// Which file.
    pub stream: Stream,
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes, at most [`CHUNK_BYTES`].
    pub data: Bytes,
}

/// So many moments are told together, the first one with them: a message that comes often is small.
const MOMENTS: usize = 13;

/// A file has grown: when, on the host's clock. Sent before the piece, which a client that knows no such message takes in as
/// ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The run.
    pub run: RunId,
    /// The rank.
    pub rank: Rank,
    /// Which file.
    pub stream: Stream,
    /// How long the file was then, bytes.
    pub until: u64,
    /// When that was seen. 0 where it is not known when what ends there was printed.
    pub t: HostTime,
    /// The same of later moments, of bytes that are read later than they were printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<(u64, HostTime)>,
}

impl Written {
    /// Tells many moments of a file, each with how long it was.
    pub fn each(run: &RunId, (rank, stream): (Rank, Stream), moments: &[(u64, HostTime)]) -> Vec<Self> {
        let told = |moments: &[(u64, HostTime)]| {
            let ((until, t), then) = moments.split_first()?;
            Some(Self { run: run.clone(), rank, stream, until: *until, t: *t, then: then.to_vec() })
        };
        moments.chunks(MOMENTS).filter_map(told).collect()
    }
}

/// A part of one of a rank's files that is missing. The next piece of the file begins where it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The run.
    pub run: RunId,
    /// Which part, and why.
    #[serde(flatten)]
    pub gap: LogGap,
}

impl Chunk {
    /// Run id (26 bytes), rank `u32`, stream `u8`, offset `u64`, data; little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(39 + self.data.len());
        out.put_slice(self.run.as_str().as_bytes());
        out.put_u32_le(self.rank.0);
        out.put_u8(Stream::ALL.iter().position(|s| *s == self.stream).unwrap_or(0) as u8);
        out.put_u64_le(self.offset);
        out.put_slice(&self.data);
        out
    }

    pub(super) fn from_bytes(frame: &Frame) -> Result<Self, MessageError> {
        let malformed =
            |detail: &str| MessageError::Malformed { kind: frame.kind, detail: detail.to_owned() };
        let mut payload = frame.payload.clone();
        if payload.len() < 39 {
            return Err(malformed("shorter than its head"));
        }
        let run = payload.split_to(26);
        let run = std::str::from_utf8(&run)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| malformed("bad run id"))?;
        let rank = Rank(payload.get_u32_le());
        let stream = Stream::ALL.get(usize::from(payload.get_u8())).copied();
        let stream = stream.ok_or_else(|| malformed("unknown stream"))?;
        let offset = payload.get_u64_le();
        if payload.len() > CHUNK_BYTES {
            return Err(malformed("longer than a piece"));
        }
        Ok(Self { run, rank, stream, offset, data: payload })
    }
}
