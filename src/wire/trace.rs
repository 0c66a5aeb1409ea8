//! What client and agent say about a kernel trace: kind 17, and 122 and 123 back.

use bytes::{Buf, BufMut, Bytes};
use serde::{Deserialize, Serialize};

use super::chunk::CHUNK_BYTES;
use crate::domain::ids::{HostId, RunId};
use crate::domain::trace::{StepProgress, TraceSpan, TraceStart, TracedProcess, WallMoment};

/// Asks the ranks of a run on a host for a kernel trace. Without a start it asks only whether that can be and how far the
/// ranks are: answered by [`Traces`] once. With one, as often as something of it changes; it ends with the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// How much.
    pub span: TraceSpan,
    /// When, by the answers of all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<TraceStart>,
}

/// How far the processes of a run on a host have come that are traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// Each process, and each rank that has none which could be asked.
    pub processes: Vec<TracedProcess>,
    /// Why there is nothing to trace there, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// How far the ranks are, where their steps are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<StepProgress>,
    /// By which clock the traces are.
    pub moment: WallMoment,
    /// Nothing more comes: every file was sent.
    pub last: bool,
}

/// A piece of a process's trace. Pieces of one file come in order, without holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracePiece {
    /// The run.
    pub run: RunId,
    /// The process.
    pub pid: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes, at most [`super::chunk::CHUNK_BYTES`].
    pub data: Bytes,
}

/// Run id, pid `u32`, offset `u64`.
const HEAD: usize = 26 + 4 + 8;

impl TracePiece {
    /// Run id (26 bytes), pid `u32`, offset `u64`, data; little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.data.len());
        out.put_slice(self.run.as_str().as_bytes());
        out.put_u32_le(self.pid);
        out.put_u64_le(self.offset);
        out.put_slice(&self.data);
        out
    }

    /// `None` for what is no piece.
    pub(super) fn from_bytes(payload: &Bytes) -> Option<Self> {
        let mut payload = payload.clone();
        if !(HEAD..=HEAD + CHUNK_BYTES).contains(&payload.len()) {
            return None;
        }
        let run = std::str::from_utf8(&payload.split_to(26)).ok()?.parse().ok()?;
        let (pid, offset) = (payload.get_u32_le(), payload.get_u64_le());
        Some(Self { run, pid, offset, data: payload })
    }
}
