//! What came of runs and waits until the reader of the events has room for it, so that the link is always read:
//! pongs and telemetry behind a flood of lines reach their reader at once.
//!
//! Its size is bounded by the host's credit. A host that sends more than it may is not read on until some of it was
//! taken in.

use std::collections::VecDeque;

use super::flow_control::FlowControl;
use super::followed::Followed;
use super::lines::Told;
use super::messages::{Incoming, Reply};
use crate::domain::event::{Event, Origin};
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::time::Stamp;
use crate::wire::message::{FromAgent, Noted};

/// Messages and bytes that may wait: more than any credit.
const BYTES: u64 = 8 << 20;
const MESSAGES: usize = 16 << 10;

/// The waiting messages of one link.
pub(super) struct ReceiveQueue {
    waiting: VecDeque<FromAgent>,
    /// Bytes of files in `waiting`, and in the message that was decoded last.
    bytes: u64,
    /// What the messages came to that were taken out of `waiting`.
    parts: VecDeque<Incoming>,
    /// Bytes of files in the message whose parts these are.
    decoded: u64,
    host: HostId,
    pub(super) flow: FlowControl,
}

impl ReceiveQueue {
    pub(super) fn new(host: HostId) -> Self {
        let (waiting, parts) = (VecDeque::new(), VecDeque::new());
        Self { waiting, bytes: 0, parts, decoded: 0, host, flow: FlowControl::new() }
    }

    /// Whether a message belongs here: what it tells must keep its place among the bytes of its run.
    pub(super) fn takes(message: &FromAgent) -> bool {
        matches!(
            message,
            FromAgent::RankStarted(_)
                | FromAgent::Written(_)
                | FromAgent::Chunk(_)
                | FromAgent::Gap(_)
                | FromAgent::RankExited(_)
                | FromAgent::Noted(_)
                | FromAgent::Stands(_)
                | FromAgent::Collectives(_)
                | FromAgent::Finished(_)
                | FromAgent::Traces(_)
                | FromAgent::TracePiece(_)
                | FromAgent::PastSamples(_)
        )
    }

    /// Queues a message.
    pub(super) fn push(&mut self, message: FromAgent) {
        self.bytes += bytes(&message);
        self.waiting.push_back(message);
    }

    /// Whether there is room for what the link brings.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < BYTES && self.waiting.len() < MESSAGES
    }

    /// Bytes of files that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many parts can be taken out now; decodes messages where there are none. Unfinished lines that are due go
    /// first: they must not wait for the end of a flood.
    pub(super) fn ready(&mut self, followed: &mut Followed, now: Stamp) -> usize {
        if self.parts.is_empty() {
            for (run, rank, told) in followed.due(now, self.waiting.is_empty()) {
                self.parts.push_back(part(followed, &run, rank, told));
            }
        }
        while self.parts.is_empty() {
            self.bytes -= self.decoded;
            self.flow.took(std::mem::take(&mut self.decoded));
            let Some(message) = self.waiting.pop_front() else { break };
            self.decoded = bytes(&message);
            decode(message, &self.host, followed, &mut self.parts);
        }
        self.parts.len()
    }

    /// The next part.
    pub(super) fn pop(&mut self) -> Option<Incoming> {
        self.parts.pop_front()
    }
}

fn bytes(message: &FromAgent) -> u64 {
    match message {
        FromAgent::Chunk(chunk) => chunk.data.len() as u64,
        FromAgent::TracePiece(piece) => piece.data.len() as u64,
        FromAgent::PastSamples(samples) => samples.data.len() as u64,
        _ => 0,
    }
}

/// What a message about a followed run comes to.
fn decode(message: FromAgent, host: &HostId, followed: &mut Followed, parts: &mut VecDeque<Incoming>) {
    let (run, rank, events): (_, _, Vec<Told>) = match message {
        FromAgent::RankStarted(m) => {
            let event = followed.started(&m.run, m.rank, m.pid, m.t);
            (m.run, m.rank, event.into_iter().map(Told::from).collect())
        }
        FromAgent::Written(m) => return followed.written(&m),
        FromAgent::Chunk(m) => {
            let events = followed.chunk(&m);
            (m.run, m.rank, events)
        }
        FromAgent::Gap(m) => {
            let events = followed.gap(&m);
            (m.run, m.gap.rank, events)
        }
        FromAgent::Stands(m) => {
            let told = Told { worker: m.worker, event: Event::RankStands { standing: m.standing } };
            let known = followed.knows(&m.run, m.rank);
            (m.run, m.rank, known.then_some(told).into_iter().collect())
        }
        FromAgent::RankExited(m) => {
            let events = followed.exited(&m.run, m.rank, m.exit);
            (m.run, m.rank, events)
        }
        FromAgent::Noted(m) => {
            // an agent speaks for the host of its link, whatever name it gives
            let noted = Noted { host: host.clone(), ..m };
            let run = noted.run.clone();
            if let Some(event) = followed.noted(noted) {
                let event = followed.masked(&run, event);
                parts.push_back(Incoming::Event(Origin::Run(run), event));
            }
            return;
        }
        FromAgent::Collectives(m) => {
            let mut told = m.told;
            told.processes.retain(|process| followed.has(&m.run, process.rank));
            if followed.follows(&m.run) && !told.is_empty() {
                // an agent speaks for the host of its link, whatever name it gives
                let event = Event::CollectivesTold { host: host.clone(), told: Box::new(told) };
                let event = followed.masked(&m.run, event);
                parts.push_back(Incoming::Event(Origin::Run(m.run), event));
            }
            return;
        }
        FromAgent::Finished(m) => {
            for (rank, told) in followed.unfinished(&m.run) {
                parts.push_back(part(followed, &m.run, rank, told));
            }
            if followed.finished(&m.run) {
                parts.push_back(Incoming::Reply(Reply::Finished { run: m.run }));
            }
            return;
        }
        FromAgent::Traces(m) => return parts.push_back(Incoming::Reply(Reply::Traces(m))),
        FromAgent::TracePiece(m) => return parts.push_back(Incoming::Reply(Reply::TracePiece(m))),
        FromAgent::PastSamples(m) => {
            let samples = followed.past_samples(&m);
            if !samples.is_empty() {
                parts.push_back(Incoming::Reply(Reply::PastSamples { run: m.run, samples }));
            }
            return;
        }
        _ => return,
    };
    for told in events {
        parts.push_back(part(followed, &run, rank, told));
    }
}

fn part(followed: &Followed, run: &RunId, rank: Rank, told: Told) -> Incoming {
    let origin = match told.worker {
        None => Origin::Rank(run.clone(), rank),
        Some(worker) => Origin::Worker(run.clone(), rank, worker),
    };
    Incoming::Event(origin, followed.masked(run, told.event))
}
