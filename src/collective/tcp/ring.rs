//! The hosts' ring of one slice.

use std::net::TcpStream;
use std::ops::Range;

use rustix::event::PollFd;

use super::super::op::OpId;
use super::channel::{Channel, Job, Side};
use super::patience::{Next, Patience, Wait, sleep};
use super::peer_fault::{Broken, PeerFault, PeerFaultKind};
use super::plan::{self, LONGEST, Place, Plan, Stream};
use super::slice_handler::{DeadlineState, Fold, SliceHandler};

/// What one rank drives: one or more parallel streams to the rank that drives the same slice on the next host, and as
/// many from the one on the host before. There are at least two hosts.
pub(in crate::collective) struct HostRing {
    place: Place,
    next: u32,
    before: u32,
    channels: Vec<Channel>,
    patience: Patience,
}

impl HostRing {
    /// Of authenticated, non-blocking connections; `next` and `before` are the neighbours' rank numbers. The order of the
    /// streams is the same at both ends.
    pub(in crate::collective) fn new(
        (host, hosts): (usize, usize),
        (next, to_next): (u32, Vec<TcpStream>),
        (before, from_before): (u32, Vec<TcpStream>),
        patience: Patience,
    ) -> Self {
        debug_assert!(
            hosts >= 2 && host < hosts && to_next.len() == from_before.len() && !to_next.is_empty()
        );
        let channels =
            to_next.into_iter().zip(from_before).map(|(to, from)| Channel::new(to, from)).collect();
        Self { place: Place { host, hosts }, next, before, channels, patience }
    }

    /// Replaces the slice by its reduction over the hosts.
    pub(in crate::collective) fn allreduce(
        &mut self,
        op: OpId,
        fold: Fold,
        handler: &mut dyn SliceHandler,
    ) -> Result<(), Broken> {
        let (place, len) = (self.place, handler.memory().len());
        self.run(op, Some(fold), handler, |stream| plan::allreduce(place, stream, len, LONGEST))
    }

    /// Gives each host's blocks of the slice to all: `blocks` by host, in bytes, apart from each other, the same on all.
    pub(in crate::collective) fn allgather(
        &mut self,
        op: OpId,
        blocks: &[Vec<Range<usize>>],
        handler: &mut dyn SliceHandler,
    ) -> Result<(), Broken> {
        let place = self.place;
        self.run(op, None, handler, |stream| plan::allgather(place, stream, blocks, LONGEST))
    }

    /// Replaces the slice by that of host `root`.
    pub(in crate::collective) fn broadcast(
        &mut self,
        op: OpId,
        root: usize,
        handler: &mut dyn SliceHandler,
    ) -> Result<(), Broken> {
        let (place, len) = (self.place, handler.memory().len());
        self.run(op, None, handler, |stream| plan::broadcast(place, stream, root, len, LONGEST))
    }

    /// Closes all connections, so that the neighbours notice at once.
    pub(in crate::collective) fn close(&self) {
        self.channels.iter().for_each(Channel::close);
    }

    fn run(
        &mut self,
        op: OpId,
        fold: Option<Fold>,
        handler: &mut dyn SliceHandler,
        plan: impl Fn(Stream) -> Plan,
    ) -> Result<(), Broken> {
        let of = self.channels.len();
        for (number, channel) in self.channels.iter_mut().enumerate() {
            channel.start(plan(Stream { number, of }));
        }
        let (job, mut wait) = (Job { op, fold }, Wait::new(self.patience));
        while !self.channels.iter().all(Channel::is_done) {
            let look = if self.advance(&job, handler)? {
                wait.moved()
            } else if self.channels.iter_mut().any(|channel| channel.prepare_ahead(handler)) {
                false
            } else {
                let (next, look) = wait.idle();
                if next == Next::Sleep {
                    self.channels.iter_mut().for_each(Channel::widen);
                    self.sleep()?;
                }
                look
            };
            if look && handler.tick()? == DeadlineState::Passed {
                return Err(self.blame(self.awaited(), PeerFaultKind::Stuck));
            }
        }
        Ok(())
    }

    /// Whether anything moved.
    fn advance(&mut self, job: &Job, handler: &mut dyn SliceHandler) -> Result<bool, Broken> {
        let mut moved = false;
        for at in 0..self.channels.len() {
            match self.channels[at].advance(job, handler) {
                Ok(any) => moved |= any,
                Err((side, kind)) => return Err(self.blame(side, kind)),
            }
        }
        Ok(moved)
    }

    /// Sleeps until something can move, or it is time to look up.
    fn sleep(&self) -> Result<(), Broken> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(2 * self.channels.len());
        self.channels.iter().for_each(|channel| channel.watch(&mut fds));
        sleep(&mut fds);
        if self.channels.iter().any(Channel::next_has_left) {
            return Err(self.blame(Side::Next, PeerFaultKind::Lost));
        }
        Ok(())
    }

    /// Whom this rank waits for.
    fn awaited(&self) -> Side {
        if self.channels.iter().all(Channel::all_received) { Side::Next } else { Side::Before }
    }

    fn rank_at(&self, side: Side) -> u32 {
        if side == Side::Next { self.next } else { self.before }
    }

    fn blame(&self, side: Side, kind: PeerFaultKind) -> Broken {
        PeerFault::broken(
            self.rank_at(side),
            kind,
            self.channels.iter().map(Channel::progress).sum::<usize>() as u64,
        )
    }
}
