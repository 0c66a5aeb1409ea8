//! Control lines: the small messages between rank 0 and every other rank, on connections of their own.
//!
//! They carry no data, so they are always at a message boundary: a failure can be told even when a data connection
//! broke in the middle of a segment. Messages have one fixed size; the codec is pure.

use std::net::TcpStream;

use super::op::{OpId, OpKind};
use super::socket::{self, Moved};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its connection closed.
    Lost,
    /// It does not take part.
    Stuck,
    /// It sent what makes no sense.
    Garbled,
    /// It does another operation.
    Diverged,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// To rank 0: this rank can't go on because of `rank`; it had moved `progress` segments.
    FailureReport,
    /// From rank 0: it is over because of `rank`.
    Verdict,
    /// The last message of a rank that closes its group in good order: it has done all operations up to `op`.
    Finalized,
}

/// A few ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ranks([Option<u32>; Self::MOST]);

impl Ranks {
    /// As many as a message names beside the first.
    pub(super) const MOST: usize = 7;

    /// The first of `ranks`.
    pub(super) fn of(ranks: impl IntoIterator<Item = u32>) -> Self {
        let mut all = [None; Self::MOST];
        for (slot, rank) in all.iter_mut().zip(ranks) {
            *slot = Some(rank);
        }
        Self(all)
    }

    /// All of them.
    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        self.0.into_iter().flatten()
    }
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) cause: Cause,
    /// The rank reported.
    pub(super) rank: u32,
    /// Others of which the same is true.
    pub(super) more: Ranks,
    /// The rank that it differs from, or that saw it.
    pub(super) other: u32,
    pub(super) progress: u64,
    pub(super) op: OpId,
    /// What the rank reported does, when it has diverged.
    pub(super) theirs: OpId,
}

impl Message {
    /// A message that blames no rank.
    pub(super) fn plain(kind: Kind, op: OpId) -> Self {
        Self {
            kind,
            cause: Cause::Lost,
            rank: 0,
            more: Ranks::default(),
            other: 0,
            progress: 0,
            op,
            theirs: op,
        }
    }
}

/// Bytes of a message.
pub(super) const SIZE: usize = 66 + 4 * Ranks::MOST;
/// Bytes of an operation's name.
pub(super) const OP: usize = 24;

pub(super) fn encode(message: &Message) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[0] = match message.kind {
        Kind::FailureReport => 3,
        Kind::Verdict => 4,
        Kind::Finalized => 5,
    };
    bytes[1] = match message.cause {
        Cause::Lost => 1,
        Cause::Stuck => 2,
        Cause::Garbled => 3,
        Cause::Diverged => 4,
    };
    bytes[2..6].copy_from_slice(&message.rank.to_le_bytes());
    bytes[6..10].copy_from_slice(&message.other.to_le_bytes());
    bytes[10..18].copy_from_slice(&message.progress.to_le_bytes());
    bytes[18..18 + OP].copy_from_slice(&encode_op(message.op));
    bytes[18 + OP..66].copy_from_slice(&encode_op(message.theirs));
    for (slot, rank) in bytes[66..].chunks_exact_mut(4).zip(message.more.0) {
        slot.copy_from_slice(&rank.unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes
}

/// `None` when the bytes are no message.
pub(super) fn decode(bytes: &[u8; SIZE]) -> Option<Message> {
    let kind = match bytes[0] {
        3 => Kind::FailureReport,
        4 => Kind::Verdict,
        5 => Kind::Finalized,
        _ => return None,
    };
    let cause = match bytes[1] {
        1 => Cause::Lost,
        2 => Cause::Stuck,
        3 => Cause::Garbled,
        4 => Cause::Diverged,
        _ => return None,
    };
    Some(Message {
        kind,
        cause,
        rank: u32::from_le_bytes(bytes[2..6].try_into().ok()?),
        other: u32::from_le_bytes(bytes[6..10].try_into().ok()?),
        progress: u64::from_le_bytes(bytes[10..18].try_into().ok()?),
        op: decode_op(bytes[18..18 + OP].try_into().ok()?)?,
        theirs: decode_op(bytes[18 + OP..66].try_into().ok()?)?,
        more: Ranks::of(
            bytes[66..]
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .filter(|rank| *rank != u32::MAX),
        ),
    })
}

/// An operation in [`OP`] bytes: kind, sequence number, length.
pub(super) fn encode_op(op: OpId) -> [u8; OP] {
    let mut bytes = [0; OP];
    bytes[..8].copy_from_slice(&op.kind.code().to_le_bytes());
    bytes[8..16].copy_from_slice(&op.seq.to_le_bytes());
    bytes[16..].copy_from_slice(&op.len.to_le_bytes());
    bytes
}

/// The operation in [`OP`] bytes, if it is one.
pub(super) fn decode_op(bytes: &[u8; OP]) -> Option<OpId> {
    let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
    Some(OpId { kind: OpKind::from_code(number(0)?)?, seq: number(8)?, len: number(16)? })
}

/// What a read of a control line gave.
pub(super) enum Received {
    /// A message.
    Message(Message),
    /// Nothing more for now.
    Nothing,
    /// The other side is gone.
    Closed,
    /// The other side does not speak this language.
    Malformed,
}

/// One end of a control line.
pub(super) struct Line {
    stream: TcpStream,
    inbox: [u8; SIZE],
    filled: usize,
    /// Nothing more can be read.
    closed: bool,
    /// Nothing more can be sent. What came before can still be read.
    mute: bool,
    /// The last operation of a rank that has closed its group in good order.
    finalized: Option<u64>,
}

impl Line {
    /// Over a prepared stream.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, inbox: [0; SIZE], filled: 0, closed: false, mute: false, finalized: None }
    }

    /// What to poll for input; `None` once it is closed.
    pub(super) fn stream(&self) -> Option<&TcpStream> {
        (!self.closed).then_some(&self.stream)
    }

    /// Whether the other side has gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the other side has done the operation of this number, and then closed its group in good order.
    pub(super) fn has_done(&self, seq: u64) -> bool {
        self.finalized.is_some_and(|last| last >= seq)
    }

    /// Sends without waiting. A line whose buffer is full has not been read for thousands of messages; it and a
    /// closed one are found out when something is awaited from the other side, so a failure here is not reported.
    pub(super) fn send(&mut self, message: &Message) {
        if !self.mute && socket::write_some(&self.stream, &encode(message)) != Moved::Bytes(SIZE) {
            self.mute = true;
        }
    }

    /// The next message, if one is there. What had arrived before the other side went is still delivered.
    pub(super) fn receive(&mut self) -> Received {
        while self.filled < SIZE {
            match socket::read_some(&self.stream, &mut self.inbox[self.filled..]) {
                Moved::Bytes(count) => self.filled += count,
                Moved::Nothing => return Received::Nothing,
                Moved::Closed => {
                    self.closed = true;
                    return Received::Closed;
                }
            }
        }
        self.filled = 0;
        let message = decode(&self.inbox);
        if let Some(Message { kind: Kind::Finalized, op, .. }) = message {
            self.finalized = Some(op.seq);
        }
        message.map_or(Received::Malformed, Received::Message)
    }
}

#[cfg(test)]
mod tests {
    use super::super::element::{DType, Reduce};
    use super::*;
    use proptest::prelude::*;

    fn op() -> impl Strategy<Value = OpId> {
        (0_u8..3, any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(kind, root, seq, len)| {
            let (dtype, how) = (DType::Bf16, Reduce::Max);
            let kinds =
                [OpKind::Allreduce { dtype, how }, OpKind::Broadcast { root, dtype }, OpKind::Barrier];
            OpId { kind: kinds[usize::from(kind)], seq, len }
        })
    }

    proptest! {
        #[test]
        fn messages_survive(op in op(), theirs in op(), rank: u32, more in proptest::collection::vec(0_u32..9999, 0..9), other: u32, progress: u64, k in 0_usize..3, c in 0_usize..4) {
            let kind = [Kind::FailureReport, Kind::Verdict, Kind::Finalized][k];
            let cause = [Cause::Lost, Cause::Stuck, Cause::Garbled, Cause::Diverged][c];
            let more = Ranks::of(more);
            let message = Message { kind, cause, rank, more, other, progress, op, theirs };
            prop_assert_eq!(decode(&encode(&message)), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), SIZE)) {
            let mut all = [0; SIZE];
            all.copy_from_slice(&bytes);
            let _ = decode(&all);
        }
    }
}
