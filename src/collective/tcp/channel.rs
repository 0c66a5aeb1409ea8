//! One stream of the hosts' ring: a connection to the next host, one from the host before.
//!
//! Both are served at once and neither is ever waited for alone, so full socket buffers can't lock the ring: a
//! rank that can't send still receives. Payloads are sent straight from the slice. What replaces values is received
//! straight into the slice; what is added, into a scratch that stays in the cache.

use std::io::IoSlice;
use std::net::TcpStream;

use rustix::event::{PollFd, PollFlags};

use super::super::buffer::{Buffer, heap};
use super::super::op::OpId;
use super::super::socket::Moved;
use super::duplex;
use super::frame::{Frame, HEADER};
use super::peer_fault::PeerFaultKind;
use super::plan::{Action, LONGEST, Plan};
use super::slice_handler::{Fold, SliceHandler};

/// Segments that are prepared ahead while the sockets have nothing to do.
const AHEAD: usize = 2;

/// Segments that may be sent for others than have been received, at first. The sides of a ring move alike, so what one sends
/// ahead only fills the other's socket, and a socket that holds many megabytes holds them outside the caches.
const WINDOW: usize = 4;

/// The most segments, and the most bytes unless one segment has more, that are handed to the kernel at once: fewer calls,
/// and fewer packets that are not full.
const BATCH: usize = 4;
const BATCH_BYTES: usize = 512 << 10;

/// Which neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The host that this one sends to.
    Next,
    /// The host that this one receives from.
    Before,
}

/// What an operation is, for all channels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) op: OpId,
    /// How values are added, where they are.
    pub(super) fold: Option<Fold>,
}

/// The connections, and how far the operation has come on them.
pub(super) struct Channel {
    next: TcpStream,
    before: TcpStream,
    plan: Plan,
    sent: usize,
    received: usize,
    /// Receives for which this host's own values are there.
    prepared: usize,
    /// See [`WINDOW`].
    window: usize,
    /// Sends for which this host's own values are there.
    begun: usize,
    /// Bytes that are gone of the segment that is being sent, its header included.
    out_at: usize,
    /// The header that is being received; bytes of it and its payload that have come.
    header: [u8; HEADER],
    in_at: usize,
    scratch: Buffer<u8>,
}

impl Channel {
    pub(super) fn new(next: TcpStream, before: TcpStream) -> Self {
        Self {
            next,
            before,
            plan: Plan::default(),
            sent: 0,
            received: 0,
            prepared: 0,
            window: WINDOW,
            begun: 0,
            out_at: 0,
            header: [0; HEADER],
            in_at: 0,
            scratch: heap(LONGEST),
        }
    }

    /// Begins an operation.
    pub(super) fn start(&mut self, plan: Plan) {
        self.plan = plan;
        (self.sent, self.received, self.prepared) = (0, 0, 0);
        (self.begun, self.out_at, self.in_at) = (0, 0, 0);
        self.window = WINDOW;
    }

    /// Frames that were moved.
    pub(super) fn progress(&self) -> usize {
        self.sent + self.received
    }

    pub(super) fn is_done(&self) -> bool {
        self.all_sent() && self.all_received()
    }

    pub(super) fn all_received(&self) -> bool {
        self.received == self.plan.receives.len()
    }

    fn all_sent(&self) -> bool {
        self.sent == self.plan.sends.len()
    }

    /// Closes both connections, so that the neighbours notice at once.
    pub(super) fn close(&self) {
        // They may be closed already.
        let _ = self.next.shutdown(std::net::Shutdown::Both);
        let _ = self.before.shutdown(std::net::Shutdown::Both);
    }

    /// Adds what can become ready and is of use.
    pub(super) fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        if !self.all_sent() {
            // While nothing can be sent, its end is still worth knowing.
            let ready = if self.can_send() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(&self.next, ready | PollFlags::RDHUP));
        }
        if !self.all_received() && !self.is_full() {
            fds.push(PollFd::new(&self.before, PollFlags::IN));
        }
    }

    /// Whether the next host has left although it has not had everything, and that would not be seen otherwise.
    pub(super) fn next_has_left(&self) -> bool {
        if self.all_sent() || self.can_send() {
            return false;
        }
        let mut fds = [PollFd::new(&self.next, PollFlags::RDHUP)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted look is made again after the next sleep.
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn can_send(&self) -> bool {
        self.may_go(self.sent)
    }

    /// Whether the segment of this number may be sent, as far as those before it are.
    fn may_go(&self, number: usize) -> bool {
        // No circle of hosts can wait for each other's window: each would have sent more than the one before it.
        let in_window = number < self.received.saturating_add(self.window) || self.all_received();
        in_window && self.plan.sends.get(number).is_some_and(|send| send.needs <= self.received)
    }

    /// A whole segment has come, and waits until this host's own values have gone.
    fn is_full(&self) -> bool {
        let receive = self.plan.receives.get(self.received);
        receive.is_some_and(|receive| self.sent < receive.after && self.in_at == HEADER + receive.range.len())
    }

    /// Nothing has moved for a while: if that is for the window, the link holds more than it.
    pub(super) fn widen(&mut self) {
        if !self.can_send() {
            self.window = self.window.saturating_mul(2);
        }
    }

    /// Moves what can move without waiting, once in each direction. Whether anything moved.
    pub(super) fn advance(
        &mut self,
        job: &Job,
        handler: &mut dyn SliceHandler,
    ) -> Result<bool, (Side, PeerFaultKind)> {
        let sent = self.send(job, handler).map_err(|kind| (Side::Next, kind))?;
        let received = self.receive(job, handler).map_err(|kind| (Side::Before, kind))?;
        Ok(sent | received)
    }

    fn send(&mut self, job: &Job, handler: &mut dyn SliceHandler) -> Result<bool, PeerFaultKind> {
        if !self.can_send() {
            return Ok(false);
        }
        let (mut count, mut bytes) = (0, 0);
        while count < BATCH && self.may_go(self.sent + count) {
            bytes += self.plan.sends[self.sent + count].range.len();
            if count > 0 && bytes > BATCH_BYTES {
                break;
            }
            count += 1;
        }
        let end = self.sent + count;
        while self.begun < end {
            let send = &self.plan.sends[self.begun];
            if send.own {
                handler.prepare(send.range.clone());
            }
            self.begun += 1;
        }
        let mut headers = [[0; HEADER]; BATCH];
        for (number, header) in (self.sent..end).zip(&mut headers) {
            *header = frame(job, number, &self.plan.sends[number].range).encode();
        }
        let (memory, mut parts) = (&*handler.memory(), [IoSlice::new(&[]); 2 * BATCH]);
        for ((send, header), parts) in
            self.plan.sends[self.sent..end].iter().zip(&headers).zip(parts.chunks_exact_mut(2))
        {
            parts[0] = IoSlice::new(header);
            parts[1] = IoSlice::new(&memory[send.range.clone()]);
        }
        match duplex::write(&self.next, &mut parts[..2 * count], self.out_at) {
            Moved::Nothing => return Ok(false),
            Moved::Closed => return Err(PeerFaultKind::Lost),
            Moved::Bytes(count) => self.out_at += count,
        }
        while self.sent < end {
            let send = &self.plan.sends[self.sent];
            let whole = HEADER + send.range.len();
            if self.out_at < whole {
                break;
            }
            self.out_at -= whole;
            self.sent += 1;
            if send.settles {
                handler.finish(send.range.clone());
            }
        }
        Ok(true)
    }

    fn receive(&mut self, job: &Job, handler: &mut dyn SliceHandler) -> Result<bool, PeerFaultKind> {
        let Some(receive) = self.plan.receives.get(self.received) else { return Ok(false) };
        let (range, action, after) = (receive.range.clone(), receive.action, receive.after);
        let whole = HEADER + range.len();
        if self.in_at == whole {
            if self.sent < after {
                return Ok(false);
            }
            self.take(range, action, job, handler);
            return Ok(true);
        }
        let payload = match action {
            Action::Replace => &mut handler.memory()[range.clone()],
            Action::Add | Action::AddLast => &mut self.scratch[..range.len()],
        };
        let had = self.in_at;
        match duplex::read(&self.before, &mut self.header, payload, had) {
            Moved::Nothing => return Ok(false),
            Moved::Closed => return Err(PeerFaultKind::Lost),
            Moved::Bytes(count) => self.in_at += count,
        }
        // Checked as soon as it is there: the rest may never come.
        if had < HEADER && self.in_at >= HEADER {
            frame(job, self.received, &range).check(&self.header)?;
        }
        if self.in_at == whole && self.sent >= after {
            self.take(range, action, job, handler);
        }
        Ok(true)
    }

    /// A whole segment has come.
    fn take(
        &mut self,
        range: std::ops::Range<usize>,
        action: Action,
        job: &Job,
        handler: &mut dyn SliceHandler,
    ) {
        if action != Action::Replace {
            self.prepare(self.received + 1, handler);
            if let Some(fold) = job.fold {
                let theirs = &self.scratch[..range.len()];
                fold.combine(&mut handler.memory()[range.clone()], theirs, action == Action::AddLast);
            }
        }
        self.in_at = 0;
        self.received += 1;
        if action != Action::Add {
            handler.finish(range);
        }
    }

    /// Prepares a segment that will be added to soon. Whether there was one.
    pub(super) fn prepare_ahead(&mut self, handler: &mut dyn SliceHandler) -> bool {
        let next = self.prepared.max(self.received) + 1;
        next <= self.received + AHEAD && self.prepare(next, handler)
    }

    /// Makes sure that this host's own values are there for the first `count` receives. Whether they were not.
    fn prepare(&mut self, count: usize, handler: &mut dyn SliceHandler) -> bool {
        let mut any = false;
        while self.prepared < count {
            let Some(receive) = self.plan.receives.get(self.prepared) else { return any };
            // What is sent before is prepared there.
            if receive.action != Action::Replace && receive.after == 0 {
                handler.prepare(receive.range.clone());
                any = true;
            }
            self.prepared += 1;
        }
        any
    }
}

/// The frame that carries a range of the slice.
fn frame(job: &Job, number: usize, range: &std::ops::Range<usize>) -> Frame {
    Frame { op: job.op, number: number as u32, offset: range.start as u64, len: range.len() as u64 }
}
