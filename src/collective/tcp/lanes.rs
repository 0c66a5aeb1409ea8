//! The two data connections of a rank: out to the next, in from the one before.
//!
//! Both are served at once and neither is ever waited for alone, so full socket buffers can't lock the ring: a
//! rank that can't send still receives. Each segment has a header that must be exactly the expected one.

use std::net::TcpStream;

use rustix::event::{PollFd, PollFlags};

use super::communicator::OpId;
use super::control::{decode_op, encode_op};
use super::plan::{Action, Plan};
use super::socket::{self, Moved};

/// Bytes before a segment's values: operation, number of the segment, number of values.
const HEADER: usize = 21 + 4 + 4;

/// Why the data can't flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LaneFault {
    /// The next rank's connection closed.
    NextGone,
    /// The connection of the rank before closed.
    PreviousGone,
    /// The rank before sent this.
    Garbled(String),
}

/// How far an operation has come, in segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) sent: usize,
    pub(super) received: usize,
}

impl Progress {
    pub(super) fn is_done(self, plan: &Plan) -> bool {
        self.sent == plan.sends.len() && self.received == plan.receives.len()
    }
}

/// The connections and their staging buffers.
pub(super) struct Lanes {
    pub(super) next: TcpStream,
    previous: TcpStream,
    outgoing: Vec<u8>,
    out_at: usize,
    incoming: Vec<u8>,
    filled: usize,
}

impl Lanes {
    pub(super) fn new(next: TcpStream, previous: TcpStream) -> Self {
        Self { next, previous, outgoing: Vec::new(), out_at: 0, incoming: Vec::new(), filled: 0 }
    }

    /// Closes both connections, so that the neighbours notice at once.
    pub(super) fn close(&self) {
        // They may be closed already.
        let _ = self.next.shutdown(std::net::Shutdown::Both);
        let _ = self.previous.shutdown(std::net::Shutdown::Both);
    }

    /// Adds what can become ready and is of use.
    pub(super) fn watch<'a>(&'a self, plan: &Plan, progress: Progress, fds: &mut Vec<PollFd<'a>>) {
        if self.out_at < self.outgoing.len() {
            fds.push(PollFd::new(&self.next, PollFlags::OUT));
        }
        if progress.received < plan.receives.len() {
            fds.push(PollFd::new(&self.previous, PollFlags::IN));
        }
    }

    /// Moves everything that can move without waiting.
    pub(super) fn advance(
        &mut self,
        op: OpId,
        plan: &Plan,
        data: &mut [f32],
        progress: &mut Progress,
    ) -> Result<(), LaneFault> {
        while self.send(op, plan, data, progress)? | self.receive(op, plan, data, progress)? {}
        Ok(())
    }

    /// Whether anything moved.
    fn send(
        &mut self,
        op: OpId,
        plan: &Plan,
        data: &[f32],
        progress: &mut Progress,
    ) -> Result<bool, LaneFault> {
        if self.out_at == self.outgoing.len() {
            let Some(send) = plan.sends.get(progress.sent).filter(|send| send.needs <= progress.received)
            else {
                return Ok(false);
            };
            let values = &data[send.range.clone()];
            self.out_at = 0;
            self.outgoing.resize(HEADER + 4 * values.len(), 0);
            self.outgoing[..HEADER].copy_from_slice(&header(op, progress.sent, values.len()));
            for (slot, value) in self.outgoing[HEADER..].chunks_exact_mut(4).zip(values) {
                slot.copy_from_slice(&value.to_le_bytes());
            }
        }
        match socket::write_some(&self.next, &self.outgoing[self.out_at..]) {
            Moved::Nothing => return Ok(false),
            Moved::Closed => return Err(LaneFault::NextGone),
            Moved::Bytes(count) => self.out_at += count,
        }
        if self.out_at == self.outgoing.len() {
            progress.sent += 1;
        }
        Ok(true)
    }

    /// Whether anything moved.
    fn receive(
        &mut self,
        op: OpId,
        plan: &Plan,
        data: &mut [f32],
        progress: &mut Progress,
    ) -> Result<bool, LaneFault> {
        let Some(receive) = plan.receives.get(progress.received) else { return Ok(false) };
        let whole = HEADER + 4 * receive.range.len();
        self.incoming.resize(whole.max(self.incoming.len()), 0);
        match socket::read_some(&self.previous, &mut self.incoming[self.filled..whole]) {
            Moved::Nothing => return Ok(false),
            Moved::Closed => return Err(LaneFault::PreviousGone),
            Moved::Bytes(count) => self.filled += count,
        }
        // Checked as soon as it is there: the rest may never come.
        if self.filled >= HEADER
            && self.incoming[..HEADER] != header(op, progress.received, receive.range.len())
        {
            return Err(LaneFault::Garbled(describe(&self.incoming[..HEADER])));
        }
        if self.filled == whole {
            let arrived = self.incoming[HEADER..whole]
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let values = data[receive.range.clone()].iter_mut().zip(arrived);
            match receive.action {
                Action::Add => values.for_each(|(value, theirs)| *value += theirs),
                Action::Replace => values.for_each(|(value, theirs)| *value = theirs),
            }
            self.filled = 0;
            progress.received += 1;
        }
        Ok(true)
    }
}

fn header(op: OpId, segment: usize, values: usize) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..21].copy_from_slice(&encode_op(op));
    bytes[21..25].copy_from_slice(&(segment as u32).to_le_bytes());
    bytes[25..].copy_from_slice(&(values as u32).to_le_bytes());
    bytes
}

fn describe(bytes: &[u8]) -> String {
    let number = |range: std::ops::Range<usize>| {
        bytes[range].iter().rev().fold(0_u64, |all, b| (all << 8) | u64::from(*b))
    };
    match bytes[..21].try_into().ok().as_ref().and_then(decode_op) {
        Some(op) => format!("segment {} with {} values of {op}", number(21..25), number(25..29)),
        None => format!("{:02x?}… where a segment should begin", &bytes[..8]),
    }
}
