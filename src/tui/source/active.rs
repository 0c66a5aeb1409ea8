//! A recording that is being written: what waits for it, and in which order it gets its numbers. A disk that stands still is not waited
//! for.

use std::collections::{BTreeSet, VecDeque};

use crate::domain::event::{Envelope, Event};
use crate::domain::ids::{HostId, RunId};
use crate::domain::time::{HostTime, Stamp};
use crate::record::{Recorder, weight};
use crate::tui::source::ended::{Ended, Troubles};

/// A recording that has taken nothing for so long stands still.
const STANDS_STILL_US: u64 = 1_000_000;
/// No more bytes than these wait for a disk that stands still, as a recorder counts them.
const MOST_WAITING: usize = 24 << 20;
/// No more bytes of what hosts tell of themselves wait for a run's late events.
const MOST_HELD: usize = 8 << 20;

/// A recording that is written.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) recorder: Recorder,
    /// The number of the next envelope: a recording may hold what earlier clients wrote.
    next: u64,
    /// How far it had come when it was first seen there, while it is behind.
    stood: Option<(u64, HostTime)>,
    pub(super) told: Troubles,
    pub(super) hosts: BTreeSet<HostId>,
    /// What hosts have told of themselves while the run's events come late.
    held: Waiting,
    waiting: Waiting,
}

/// Envelopes that a recorder has no room for yet.
#[derive(Debug, Default)]
struct Waiting {
    all: VecDeque<Envelope>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, envelope: Envelope) {
        self.bytes += weight(&envelope);
        self.all.push_back(envelope);
    }

    fn pop(&mut self) -> Option<Envelope> {
        let envelope = self.all.pop_front()?;
        self.bytes -= weight(&envelope).min(self.bytes);
        Some(envelope)
    }
}

impl Active {
    /// Of a run on these hosts, whose next envelope has the number `next`.
    pub(super) fn new(recorder: Recorder, next: u64, hosts: BTreeSet<HostId>) -> Self {
        let (told, held, waiting) = (Troubles::default(), Waiting::default(), Waiting::default());
        Self { recorder, next, stood: None, told, hosts, held, waiting }
    }

    /// What is left of it when nothing more is recorded.
    pub(super) fn ended(self, run: RunId) -> Ended {
        Ended::new(run, self.recorder, self.waiting.all, self.told)
    }

    /// Whether it is to be waited for at `now`.
    pub(super) fn is_awaited(&mut self, now: HostTime) -> bool {
        self.pass_on();
        let Some(taken) = self.recorder.backlog() else {
            self.stood = None;
            return false;
        };
        match self.stood {
            Some((before, since)) if before == taken => now.0.saturating_sub(since.0) < STANDS_STILL_US,
            _ => {
                self.stood = Some((taken, now));
                true
            }
        }
    }

    /// Records an envelope, in its turn.
    pub(super) fn send(&mut self, envelope: Envelope) {
        if self.waiting.all.is_empty() {
            // it never waits; where there is no room it drops and counts
            let numbered = self.number(envelope);
            self.recorder.send(numbered);
        } else {
            self.queue([envelope]);
            self.leave_room();
        }
    }

    fn number(&mut self, envelope: Envelope) -> Envelope {
        let seq = self.next;
        self.next += 1;
        Envelope { seq, ..envelope }
    }

    /// Keeps what a host has told of itself until the run's events are recorded that happened before it.
    pub(super) fn hold(&mut self, envelope: Envelope) {
        self.held.push(envelope);
        while self.held.bytes > MOST_HELD
            && let Some(envelope) = self.held.pop()
        {
            self.send(envelope);
        }
    }

    /// Records what was held of the time up to `until`, all of it where that is `None`.
    pub(super) fn release(&mut self, until: Option<Stamp>) {
        while self.held.all.front().is_some_and(|held| until.is_none_or(|until| held.at <= until))
            && let Some(held) = self.held.pop()
        {
            self.send(held);
        }
    }

    /// Records what was held of a run that ended at `end`: what its hosts have measured since is no part of it.
    pub(super) fn release_at_end(&mut self, end: Stamp) {
        while let Some(held) = self.held.pop() {
            if held.at <= end || !matches!(held.event, Event::HostSampled { .. }) {
                self.send(Envelope { at: held.at.min(end), ..held });
            }
        }
    }

    /// Envelopes that are recorded as soon as there is room for them.
    pub(super) fn queue(&mut self, envelopes: impl IntoIterator<Item = Envelope>) {
        for envelope in envelopes {
            let numbered = self.number(envelope);
            self.waiting.push(numbered);
        }
        self.pass_on();
    }

    /// No more waits than there is memory for.
    pub(super) fn leave_room(&mut self) {
        while self.waiting.bytes > MOST_WAITING
            && let Some(envelope) = self.waiting.pop()
        {
            self.recorder.send(envelope);
        }
    }

    /// Gives the recorder what it can take.
    fn pass_on(&mut self) {
        while self.recorder.backlog().is_none()
            && let Some(envelope) = self.waiting.pop()
        {
            self.recorder.send(envelope);
        }
    }
}
