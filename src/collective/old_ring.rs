//! The TCP ring: a [`Communicator`] over sockets of our own.

use rustix::event::{PollFd, PollFlags};

use super::communicator::{Communicator, OpId, OpKind, OpTiming};
use super::control::{Cause, Heard, Kind, Line, Message};
use super::court::{Complaint, judge};
use super::deadline::Deadline;
use super::error::CollectiveError;
use super::lanes::{LaneFault, Lanes, Progress};
use super::plan::{self, Plan};
use super::rendezvous::{self, MeetingEvent, RingConfig};
use super::socket;

/// How long rank 0 collects complaints of a standstill before it judges, µs: all ranks' deadlines end together, give
/// or take how fast they are woken.
const HEARING: u64 = 1_000_000;
/// How long a rank waits for rank 0's verdict on a standstill, µs. Rank 0 had the whole deadline already.
const GRACE: u64 = 5_000_000;

/// One rank's end of the ring.
pub struct TcpRing {
    config: RingConfig,
    pub(super) lanes: Lanes,
    /// Rank 0: one a rank, from rank 1. Others: one, to rank 0.
    pub(super) lines: Vec<Line>,
    /// Rank 0: the operation for which each other rank has arrived.
    arrived: Vec<Option<OpId>>,
    /// Others: a verdict on the next operation, heard while this rank's part of the last one was still in flight.
    verdict: Option<Message>,
    seq: u64,
    broken: Option<CollectiveError>,
}

impl TcpRing {
    /// Meets the other ranks and closes the ring. Blocks until all are connected or the deadline has passed; `on`
    /// hears who is missing.
    pub fn connect(config: RingConfig, on: &mut dyn FnMut(MeetingEvent)) -> Result<Self, CollectiveError> {
        if config.world < 2 || config.rank >= config.world {
            return Err(CollectiveError::NoSuchRank { rank: config.rank, world: config.world });
        }
        let met = rendezvous::meet(&config, on)?;
        let lines: Vec<Line> = met.lines.into_iter().map(Line::new).collect();
        let arrived = vec![None; if config.rank == 0 { lines.len() } else { 0 }];
        Ok(Self {
            config,
            lanes: Lanes::new(met.next, met.previous),
            lines,
            arrived,
            verdict: None,
            seq: 0,
            broken: None,
        })
    }

    fn operate(&mut self, kind: OpKind, data: &mut [f32]) -> Result<OpTiming, CollectiveError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.seq += 1;
        let op = OpId { kind, seq: self.seq, len: data.len() as u64 };
        let (rank, world) = (self.config.rank as usize, self.config.world as usize);
        let plan = match kind {
            OpKind::Allreduce => plan::allreduce(rank, world, data.len(), self.config.segment),
            OpKind::Broadcast { root } => {
                plan::broadcast(rank, root as usize, world, data.len(), self.config.segment)
            }
            OpKind::Barrier => Plan::default(),
        };
        let entered = (self.config.clock)();
        let outcome = self.meet(op).and_then(|()| {
            let met = (self.config.clock)();
            self.transfer(op, &plan, data)?;
            let left = (self.config.clock)();
            Ok(OpTiming { wait: met.0.saturating_sub(entered.0), transfer: left.0.saturating_sub(met.0) })
        });
        if let Err(error) = &outcome {
            // What is in flight is unknown, so there is no next operation; neighbours learn of it at once.
            self.broken = Some(error.clone());
            self.lanes.close();
        }
        outcome
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.config.clock, self.config.timeout_us())
    }

    /// Waits until all ranks have arrived at `op`.
    pub(super) fn meet(&mut self, op: OpId) -> Result<(), CollectiveError> {
        if self.config.rank == 0 { self.meet_as_root(op) } else { self.meet_as_other(op) }
    }

    fn meet_as_root(&mut self, op: OpId) -> Result<(), CollectiveError> {
        let deadline = self.deadline();
        loop {
            let complaints = self.listen(op)?;
            // Who has arrived can only complain that it waits for too long. Any other complaint is left over from
            // the operation before, in which this rank has done its part.
            let (overdue, others): (Vec<_>, Vec<_>) =
                complaints.into_iter().partition(|one| one.seq == op.seq);
            if !others.is_empty() {
                return Err(self.sentence(op, others));
            }
            for (rank, theirs) in (1..).zip(&self.arrived) {
                if let Some(theirs) = *theirs
                    && theirs != op
                {
                    return Err(self.pronounce(Message {
                        cause: Cause::Diverged,
                        rank,
                        theirs,
                        ..Message::plain(Kind::Verdict, op)
                    }));
                }
            }
            let missing = self.arrived.iter().position(Option::is_none);
            let Some(missing) = missing else { break };
            let gone =
                (0..self.lines.len()).find(|at| self.arrived[*at].is_none() && self.lines[*at].is_closed());
            let (at, cause) = match gone {
                Some(at) => (at, Cause::Lost),
                None if deadline.passed() || !overdue.is_empty() => (missing, Cause::Stuck),
                None => {
                    self.wait_for_lines(None, deadline)?;
                    continue;
                }
            };
            return Err(self.pronounce(Message {
                cause,
                rank: at as u32 + 1,
                ..Message::plain(Kind::Verdict, op)
            }));
        }
        self.arrived.fill(None);
        for line in &mut self.lines {
            line.send(&Message::plain(Kind::Go, op));
        }
        Ok(())
    }

    fn meet_as_other(&mut self, op: OpId) -> Result<(), CollectiveError> {
        if let Some(verdict) = self.verdict {
            return Err(self.error_of(&verdict));
        }
        self.lines[0].send(&Message::plain(Kind::Arrive, op));
        let deadline = self.deadline();
        loop {
            match self.lines[0].receive() {
                Heard::Message(message) if message.kind == Kind::Go && message.op == op => return Ok(()),
                Heard::Message(message) if message.kind == Kind::Verdict => {
                    return Err(self.error_of(&message));
                }
                Heard::Message(_) | Heard::Nonsense => {
                    return Err(CollectiveError::Garbled {
                        op,
                        rank: 0,
                        what: "a control message".to_owned(),
                    });
                }
                Heard::Closed => return Err(CollectiveError::PeerLost { op, rank: 0 }),
                Heard::Nothing if deadline.passed() => {
                    return Err(self.complain(op, 0, Cause::Stuck, Progress::default()));
                }
                Heard::Nothing => self.wait_for_lines(None, deadline)?,
            }
        }
    }

    /// Moves the data of `op`.
    pub(super) fn transfer(
        &mut self,
        op: OpId,
        plan: &Plan,
        data: &mut [f32],
    ) -> Result<(), CollectiveError> {
        let deadline = self.deadline();
        let mut progress = Progress::default();
        let world = self.config.world;
        let (next, before) = ((self.config.rank + 1) % world, (self.config.rank + world - 1) % world);
        loop {
            match self.lanes.advance(op, plan, data, &mut progress) {
                Ok(()) => {}
                Err(LaneFault::NextGone) => return Err(self.complain(op, next, Cause::Lost, progress)),
                Err(LaneFault::PreviousGone) => return Err(self.complain(op, before, Cause::Lost, progress)),
                Err(LaneFault::Garbled(what)) => {
                    let told = self.complain(op, before, Cause::Garbled, progress);
                    // Only this rank has seen it, so its own words are the best.
                    return Err(match told {
                        CollectiveError::Garbled { op, rank, .. } => {
                            CollectiveError::Garbled { op, rank, what }
                        }
                        other => other,
                    });
                }
            }
            if progress.is_done(plan) {
                return Ok(());
            }
            if self.config.rank == 0 {
                let complaints = self.listen(op)?;
                if !complaints.is_empty() {
                    return Err(self.sentence(op, complaints));
                }
            } else if !self.lines[0].is_closed() {
                match self.lines[0].receive() {
                    // The others have done this operation and failed at the next. What they sent before is still
                    // on its way, so this one can be ended in peace.
                    Heard::Message(message) if message.kind == Kind::Verdict && message.op.seq > op.seq => {
                        self.verdict = Some(message);
                    }
                    Heard::Message(message) if message.kind == Kind::Verdict => {
                        return Err(self.error_of(&message));
                    }
                    Heard::Message(_) | Heard::Nonsense => {
                        return Err(CollectiveError::Garbled {
                            op,
                            rank: 0,
                            what: "a control message".to_owned(),
                        });
                    }
                    // Rank 0 may have done its part and left; whether it died shows in the data.
                    Heard::Closed | Heard::Nothing => {}
                }
            }
            if deadline.passed() {
                let about = if progress.received < plan.receives.len() { before } else { next };
                return Err(self.complain(op, about, Cause::Stuck, progress));
            }
            self.wait_for_lines(Some((plan, progress)), deadline)?;
        }
    }

    /// Waits for something to read on a control line, or for data to move.
    pub(super) fn wait_for_lines(
        &self,
        data: Option<(&Plan, Progress)>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let mut fds = Vec::with_capacity(self.lines.len() + 2);
        if let Some((plan, progress)) = data {
            self.lanes.watch(plan, progress, &mut fds);
        }
        fds.extend(
            self.lines.iter().filter_map(Line::stream).map(|stream| PollFd::new(stream, PollFlags::IN)),
        );
        socket::wait(&mut fds, deadline).map_err(|error| CollectiveError::System {
            rank: self.config.rank,
            what: "wait for the other ranks",
            reason: error.to_string(),
        })
    }

    /// Rank 0: takes in what the others say. Arrivals are kept for the next meeting, complaints are returned.
    pub(super) fn listen(&mut self, op: OpId) -> Result<Vec<Complaint>, CollectiveError> {
        let mut complaints = Vec::new();
        for at in 0..self.lines.len() {
            let from = at as u32 + 1;
            while !self.lines[at].is_closed() {
                match self.lines[at].receive() {
                    Heard::Message(message) if message.kind == Kind::Arrive => {
                        self.arrived[at] = Some(message.op);
                    }
                    Heard::Message(Message { kind: Kind::Complaint, rank, cause, progress, op, .. }) => {
                        complaints.push(Complaint { from, about: rank, cause, seq: op.seq, progress });
                    }
                    Heard::Message(_) | Heard::Nonsense => {
                        return Err(self.pronounce(Message {
                            cause: Cause::Garbled,
                            rank: from,
                            ..Message::plain(Kind::Verdict, op)
                        }));
                    }
                    Heard::Nothing | Heard::Closed => break,
                }
            }
        }
        Ok(complaints)
    }

    /// This rank can't go on because of `about`: asks rank 0 who is to blame (or finds out, as rank 0).
    fn complain(&mut self, op: OpId, about: u32, cause: Cause, progress: Progress) -> CollectiveError {
        let progress = (progress.sent + progress.received) as u64;
        if self.config.rank == 0 {
            return self.sentence(op, vec![Complaint { from: 0, about, cause, seq: op.seq, progress }]);
        }
        if let Some(verdict) = self.verdict {
            return self.error_of(&verdict);
        }
        let complaint = Message { cause, rank: about, progress, ..Message::plain(Kind::Complaint, op) };
        self.lines[0].send(&complaint);
        // After a loss rank 0 may be at work outside of any operation, so it gets its time: a rank that gave up
        // before would itself look lost to the next one.
        let patience =
            if cause == Cause::Stuck { Deadline::after(self.config.clock, GRACE) } else { self.deadline() };
        while !self.lines[0].is_closed() {
            match self.lines[0].receive() {
                Heard::Message(message) if message.kind == Kind::Verdict => return self.error_of(&message),
                Heard::Message(_) => {}
                Heard::Nonsense | Heard::Closed => break,
                // Rank 0 is silent in a standstill, so it is rank 0 that stands still.
                Heard::Nothing if patience.passed() && cause == Cause::Stuck => {
                    return self.error_of(&Message { rank: 0, ..complaint });
                }
                Heard::Nothing if patience.passed() => return self.error_of(&complaint),
                Heard::Nothing => {
                    if let Err(error) = self.wait_for_lines(None, patience) {
                        return error;
                    }
                }
            }
        }
        // Rank 0 left in the middle of an operation that then failed: the failure began there.
        let rank = if cause == Cause::Garbled { about } else { 0 };
        let cause = if cause == Cause::Garbled { cause } else { Cause::Lost };
        self.error_of(&Message { cause, rank, ..complaint })
    }

    /// Rank 0: hears everyone, finds the culprit, tells all.
    pub(super) fn sentence(&mut self, op: OpId, mut complaints: Vec<Complaint>) -> CollectiveError {
        // A standstill ends for all ranks at about the same time; whoever says nothing until then is stuck. Ranks
        // that have not even arrived are named by number already.
        if complaints.iter().all(|complaint| complaint.cause == Cause::Stuck) {
            let hearing = Deadline::after(self.config.clock, HEARING);
            while !hearing.passed() {
                match self.listen(op) {
                    Ok(more) => complaints.extend(more),
                    Err(error) => return error,
                }
                if let Err(error) = self.wait_for_lines(None, hearing) {
                    return error;
                }
            }
        }
        match self.listen(op) {
            Ok(more) => complaints.extend(more),
            Err(error) => return error,
        }
        let gone: Vec<u32> =
            (1..).zip(&self.lines).filter(|(_, l)| l.is_closed()).map(|(rank, _)| rank).collect();
        let found = judge(&complaints, &gone);
        let (cause, rank) = found.map_or((Cause::Stuck, 0), |found| (found.cause, found.about));
        self.pronounce(Message { cause, rank, ..Message::plain(Kind::Verdict, op) })
    }

    /// Rank 0: tells all ranks why it is over.
    fn pronounce(&mut self, verdict: Message) -> CollectiveError {
        for line in &mut self.lines {
            line.send(&verdict);
        }
        self.error_of(&verdict)
    }

    fn error_of(&self, message: &Message) -> CollectiveError {
        let (op, rank) = (message.op, message.rank);
        match message.cause {
            Cause::Lost => CollectiveError::PeerLost { op, rank },
            Cause::Stuck => CollectiveError::Stalled { op, rank, seconds: self.config.timeout.as_secs() },
            Cause::Garbled => {
                CollectiveError::Garbled { op, rank, what: "see the log of the rank after it".to_owned() }
            }
            Cause::Diverged => {
                CollectiveError::Diverged { rank, theirs: message.theirs, other: message.other, ours: op }
            }
        }
    }
}

impl Communicator for TcpRing {
    fn rank(&self) -> u32 {
        self.config.rank
    }

    fn world(&self) -> u32 {
        self.config.world
    }

    fn transport(&self) -> &'static str {
        "tcp"
    }

    fn allreduce_sum(&mut self, data: &mut [f32]) -> Result<OpTiming, CollectiveError> {
        self.operate(OpKind::Allreduce, data)
    }

    fn broadcast(&mut self, root: u32, data: &mut [f32]) -> Result<OpTiming, CollectiveError> {
        if root >= self.config.world {
            return Err(CollectiveError::NoSuchRank { rank: root, world: self.config.world });
        }
        self.operate(OpKind::Broadcast { root }, data)
    }

    fn barrier(&mut self) -> Result<OpTiming, CollectiveError> {
        self.operate(OpKind::Barrier, &mut [])
    }
}
