//! The leaders' mesh: one stream to the leader of every other host, for what is small.

use std::io::IoSlice;
use std::net::TcpStream;

use rustix::event::{PollFd, PollFlags};

use super::super::buffer::{Buffer, heap};
use super::super::error::CollectiveError;
use super::super::op::OpId;
use super::super::socket::Moved;
use super::duplex;
use super::frame::{Frame, HEADER};
use super::patience::{Next, Patience, Wait, sleep};
use super::peer_fault::{Broken, PeerFault, PeerFaultKind};
use super::rounds::{self, FEW, Round, Then};
use super::slice_handler::{DeadlineState, Fold};

/// The most bytes of an exchange.
pub(in crate::collective) const MOST: usize = 64 << 10;

/// What looks at verdicts and deadlines, at least every 20 ms.
pub(in crate::collective) type Tick<'a> = &'a mut dyn FnMut() -> Result<DeadlineState, CollectiveError>;

/// The connections of one leader.
pub(in crate::collective) struct Mesh {
    /// By host; none for this one.
    peers: Vec<Option<Peer>>,
    rounds: Vec<Round>,
    patience: Patience,
}

/// The leader of another host.
struct Peer {
    rank: u32,
    stream: TcpStream,
    /// A header, and a payload behind it.
    inbox: Buffer<u8>,
    /// Bytes still to be sent in this round, and sent; to be received, and received.
    send: usize,
    sent: usize,
    receive: usize,
    received: usize,
}

impl Mesh {
    /// Of authenticated, non-blocking connections: rank number and stream of each host's leader, none for `host` itself.
    pub(in crate::collective) fn new(
        host: usize,
        peers: Vec<Option<(u32, TcpStream)>>,
        patience: Patience,
    ) -> Self {
        let rounds = rounds::doubling(host, peers.len());
        // An inbox grows at its first use: most hosts exchange with few.
        let peer = |(rank, stream)| Peer {
            rank,
            stream,
            inbox: heap(HEADER),
            send: 0,
            sent: 0,
            receive: 0,
            received: 0,
        };
        Self { peers: peers.into_iter().map(|one| one.map(peer)).collect(), rounds, patience }
    }

    /// Replaces `payload`, at most [`MOST`] bytes and aligned to its values, by its reduction over the hosts. Of an empty one
    /// nothing comes but that all have entered the barrier. With one host alone nothing is done.
    pub(in crate::collective) fn exchange(
        &mut self,
        op: OpId,
        fold: Fold,
        payload: &mut [u8],
        tick: Tick<'_>,
    ) -> Result<(), Broken> {
        debug_assert!(payload.len() <= MOST);
        let mut wait = Wait::new(self.patience);
        if rounds::all_at_once(self.peers.len(), payload.len()) {
            return self.at_once(op, fold, payload, &mut wait, tick);
        }
        for at in 0..self.rounds.len() {
            let round = self.rounds[at];
            let receives = round.then != Then::Nothing;
            let frame = Frame { op, number: round.number, offset: 0, len: payload.len() as u64 };
            self.begin(round.peer, payload.len(), round.sends, receives);
            self.talk(round.peer..round.peer + 1, &frame, payload, &mut wait, tick)?;
            if receives && !payload.is_empty() {
                self.reduce(round, fold, payload);
            }
        }
        Ok(())
    }

    /// Closes all connections, so that the other leaders notice at once.
    pub(in crate::collective) fn close(&self) {
        for peer in self.peers.iter().flatten() {
            // It may be closed already.
            let _ = peer.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Everyone tells everyone, and adds in the order of hosts.
    fn at_once(
        &mut self,
        op: OpId,
        fold: Fold,
        payload: &mut [u8],
        wait: &mut Wait,
        tick: Tick<'_>,
    ) -> Result<(), Broken> {
        let (hosts, len) = (self.peers.len(), payload.len());
        debug_assert!(hosts <= FEW);
        (0..hosts).for_each(|host| self.begin(host, len, true, true));
        self.talk(0..hosts, &Frame { op, number: 0, offset: 0, len: len as u64 }, payload, wait, tick)?;
        if len == 0 {
            return Ok(());
        }
        let mut all: Vec<&mut [u8]> = Vec::with_capacity(hosts);
        let mut own = Some(&mut *payload);
        for peer in &mut self.peers {
            match peer {
                Some(peer) => all.push(&mut peer.inbox[HEADER..HEADER + len]),
                None => all.extend(own.take()),
            }
        }
        for host in 1..hosts {
            let (earlier, later) = all.split_at_mut(host);
            fold.combine(later[0], earlier[host - 1], host + 1 == hosts);
        }
        if let Some(Some(last)) = self.peers.last() {
            payload.copy_from_slice(&last.inbox[HEADER..HEADER + len]);
        }
        Ok(())
    }

    /// Makes a peer ready for a round.
    fn begin(&mut self, host: usize, len: usize, sends: bool, receives: bool) {
        let Some(peer) = &mut self.peers[host] else { return };
        let whole = HEADER + len;
        if peer.inbox.len() < whole {
            peer.inbox = heap(whole.next_power_of_two());
        }
        (peer.send, peer.sent) = (if sends { whole } else { 0 }, 0);
        (peer.receive, peer.received) = (if receives { whole } else { 0 }, 0);
    }

    /// Exchanges with some hosts until their rounds are over.
    fn talk(
        &mut self,
        hosts: std::ops::Range<usize>,
        frame: &Frame,
        payload: &[u8],
        wait: &mut Wait,
        tick: Tick<'_>,
    ) -> Result<(), Broken> {
        let header = frame.encode();
        let peers = &mut self.peers[hosts];
        loop {
            let (mut moved, mut done) = (false, true);
            for peer in peers.iter_mut().flatten() {
                let any = peer.advance(frame, &header, payload);
                moved |= any.map_err(|kind| PeerFault::broken(peer.rank, kind, u64::from(frame.number)))?;
                done &= peer.is_done();
            }
            if done {
                return Ok(());
            }
            let look = if moved {
                wait.moved()
            } else {
                let (next, look) = wait.idle();
                if next == Next::Sleep {
                    let mut fds: Vec<PollFd<'_>> = peers.iter().flatten().filter_map(Peer::watch).collect();
                    sleep(&mut fds);
                }
                look
            };
            if !look {
                continue;
            }
            if tick()? == DeadlineState::Passed {
                let late = peers.iter().flatten().find(|peer| !peer.is_done());
                let about = late.map_or(0, |peer| peer.rank);
                return Err(PeerFault::broken(about, PeerFaultKind::Stuck, u64::from(frame.number)));
            }
        }
    }

    /// What has come from a round's partner becomes part of `payload`.
    fn reduce(&mut self, round: Round, fold: Fold, payload: &mut [u8]) {
        let Some(peer) = &mut self.peers[round.peer] else { return };
        let theirs = &mut peer.inbox[HEADER..HEADER + payload.len()];
        match round.then {
            Then::Nothing => {}
            Then::TheirsFirst { last } => fold.combine(payload, theirs, last),
            Then::Take => payload.copy_from_slice(theirs),
            Then::OursFirst { last } => {
                fold.combine(theirs, payload, last);
                payload.copy_from_slice(theirs);
            }
        }
    }
}

impl Peer {
    fn is_done(&self) -> bool {
        self.sent == self.send && self.received == self.receive
    }

    fn watch(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, self.sent < self.send);
        flags.set(PollFlags::IN, self.received < self.receive);
        (!flags.is_empty()).then(|| PollFd::new(&self.stream, flags))
    }

    /// Moves what can move without waiting. Whether anything moved.
    fn advance(
        &mut self,
        frame: &Frame,
        header: &[u8; HEADER],
        payload: &[u8],
    ) -> Result<bool, PeerFaultKind> {
        let mut moved = false;
        if self.sent < self.send {
            let mut parts = [IoSlice::new(header), IoSlice::new(payload)];
            match duplex::write(&self.stream, &mut parts, self.sent) {
                Moved::Nothing => {}
                Moved::Closed => return Err(PeerFaultKind::Lost),
                Moved::Bytes(count) => {
                    self.sent += count;
                    moved = true;
                }
            }
        }
        if self.received < self.receive {
            // Header and payload lie behind each other: one read for both. Never more than this round's, for the next
            // round's may be behind it.
            let (had, inbox) = (self.received, &mut self.inbox[..self.receive]);
            match duplex::read(&self.stream, inbox, &mut [], had) {
                Moved::Nothing => {}
                Moved::Closed => return Err(PeerFaultKind::Lost),
                Moved::Bytes(count) => {
                    self.received += count;
                    moved = true;
                }
            }
            if had < HEADER && self.received >= HEADER {
                let seen = self.inbox[..HEADER].try_into().unwrap_or(&[0; HEADER]);
                frame.check(seen)?;
            }
        }
        Ok(moved)
    }
}
