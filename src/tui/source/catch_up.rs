//! What a client catches up with when it takes a run up comes rank by rank, in a moment. Here it waits until it can be recorded in the
//! order in which it happened, and at the time at which it did: by its host's time, which pings place on the client's clock.
//!
//! What a rank tells of its steps has such a time. Lines that were printed while no client followed have none, and stay at
//! the moment of their arrival, as does what the client itself finds out. Pure: it knows no clock but that of the envelopes.

use std::collections::BTreeMap;

use crate::domain::clock_fit::ClockFit;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, Rank};
use crate::domain::run::RunSpec;
use crate::domain::time::{HostTime, Stamp};

/// What is told so long after it happened is caught up with, microseconds.
const PAST_US: i64 = 2_000_000;
/// When nothing of that kind has come for so long, the present has begun.
const PRESENT_US: i64 = 1_500_000;
/// No more than so many envelopes wait; then the older half of them goes. The files of a host's ranks are told in turns of some
/// thousand steps.
const MOST: usize = 200_000;

/// The envelopes of one run that wait to be recorded.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// Nothing of the run is earlier.
    floor: Stamp,
    host_of: BTreeMap<Rank, HostId>,
    clocks: BTreeMap<HostId, ClockFit>,
    /// As they came, with the time at which each happened where that is not when it came.
    held: Vec<(Option<Stamp>, Envelope)>,
    /// When the last thing happened that each rank told of.
    told: BTreeMap<Rank, Stamp>,
    /// When what was placed last happened: what the client concludes from it is told behind it.
    newest: Option<Stamp>,
    /// When the last envelope came that tells of the past, or the first one.
    past_at: Option<Stamp>,
    /// The number of the next envelope that goes.
    next: Option<u64>,
}

impl CatchUp {
    /// Of a run that was known up to `since`.
    pub(super) fn new(spec: &RunSpec, since: Option<Stamp>) -> Self {
        let host_of = spec.placements.iter().map(|placement| (placement.rank, placement.host.clone()));
        Self {
            floor: since.unwrap_or(spec.created),
            host_of: host_of.collect(),
            clocks: BTreeMap::new(),
            held: Vec::new(),
            told: BTreeMap::new(),
            newest: None,
            past_at: None,
            next: None,
        }
    }

    /// Takes an envelope in; gives those that can be recorded now, in the order in which they happened, and whether the present
    /// has begun: nothing waits then.
    pub(super) fn take(&mut self, mut envelope: Envelope) -> (Vec<Envelope>, bool) {
        let now = envelope.at;
        if let Event::Attached { since: Some(_), until } = &mut envelope.event {
            *until = Some(now);
        }
        self.next = self.next.or(Some(envelope.seq));
        if let (Origin::Host(host), Event::ClockSampled { sample }) = (&envelope.origin, &envelope.event) {
            self.clocks.entry(host.clone()).or_default().add(*sample);
        }
        let happened = self.happened(&envelope);
        let is_past = happened.is_some_and(|happened| now.micros_since(happened) > PAST_US);
        self.held.push((happened, envelope));
        let past_at = *self.past_at.get_or_insert(now);
        if is_past || now < past_at {
            self.past_at = Some(now);
        }
        if self.past_at.is_some_and(|past| now.micros_since(past) > PRESENT_US) {
            return (self.rest(), true);
        }
        let older = if self.held.len() >= MOST { self.oldest(MOST / 2) } else { Vec::new() };
        (older, false)
    }

    /// All that waits.
    pub(super) fn rest(&mut self) -> Vec<Envelope> {
        self.oldest(self.held.len())
    }

    /// When it happened, where that is not when it came.
    fn happened(&mut self, envelope: &Envelope) -> Option<Stamp> {
        let (Origin::Rank(_, rank) | Origin::Worker(_, rank, _)) = envelope.origin else {
            return match &envelope.event {
                // what follows it happened in the time of which it tells
                Event::RunCreated { .. } | Event::Attached { since: Some(_), .. } => Some(self.floor),
                Event::StageEntered { .. } => self.newest,
                _ => None,
            };
        };
        let told = self.told.get(&rank).copied();
        let happened = match &envelope.event {
            Event::RankStarted { t, .. } => self.by_host(rank, *t),
            Event::RankExited { exit } if exit.t.0 > 0 => self.by_host(rank, exit.t),
            Event::StepDone { timing } if timing.start.0 > 0 => {
                let begun = self.by_host(rank, timing.start);
                if let (None, Some(begun)) = (told, begun) {
                    self.came_before(rank, begun);
                }
                begun.map(|begun| begun.plus_micros(timing.dur_us.into()))
            }
            event if is_report(event) => told,
            _ => None,
        }?;
        let happened = happened.max(told.unwrap_or(happened)).min(envelope.at);
        self.told.insert(rank, happened);
        if self.newest.is_none() {
            self.came_before_all(happened);
        }
        self.newest = Some(happened);
        Some(happened)
    }

    fn by_host(&self, rank: Rank, t: HostTime) -> Option<Stamp> {
        let clock = self.clocks.get(self.host_of.get(&rank)?)?;
        Some(clock.stamp(t)?.max(self.floor))
    }

    /// What a rank has reported before its first step happened before that.
    fn came_before(&mut self, rank: Rank, begun: Stamp) {
        for (happened, envelope) in &mut self.held {
            if happened.is_none() && is_report(&envelope.event) && is_of(&envelope.origin, rank) {
                *happened = Some(begun.min(envelope.at));
            }
        }
    }

    /// What the client concluded before the first thing of which it is known when it happened was so by then.
    fn came_before_all(&mut self, first: Stamp) {
        for (happened, envelope) in &mut self.held {
            if matches!(envelope.event, Event::StageEntered { .. }) {
                *happened = happened.or(Some(first.min(envelope.at)));
            }
        }
    }

    /// The oldest so many, numbered anew in their order.
    fn oldest(&mut self, count: usize) -> Vec<Envelope> {
        self.held.sort_by_key(|(happened, envelope)| happened.unwrap_or(envelope.at));
        let mut next = self.next.unwrap_or_default();
        let number = |(happened, envelope): (Option<Stamp>, Envelope)| {
            let seq = next;
            next += 1;
            Envelope { seq, at: happened.unwrap_or(envelope.at), ..envelope }
        };
        let oldest = self.held.drain(..count).map(number).collect();
        self.next = Some(next);
        oldest
    }
}

/// Whether it stands in a rank's report, beside its steps.
fn is_report(event: &Event) -> bool {
    matches!(
        event,
        Event::JobDescribed { .. }
            | Event::StepsBy { .. }
            | Event::RankWaits { .. }
            | Event::RankMet
            | Event::StepDone { .. }
            | Event::MetricReported { .. }
            | Event::CollectiveDone { .. }
            | Event::ReportsRead { .. }
            | Event::JobDone { .. }
    )
}

fn is_of(origin: &Origin, rank: Rank) -> bool {
    matches!(origin, Origin::Rank(_, of) | Origin::Worker(_, of, _) if *of == rank)
}

#[cfg(test)]
#[path = "catch_up_tests.rs"]
mod tests;
