//! What a client catches up with when it takes a run up comes rank by rank, in a moment. Here it waits until it can be recorded in the
//! order in which it happened, and at the time at which it did: by its host's time, which pings place on the client's clock.
//!
//! Steps, starts and ends of ranks have such a time; what else stands in a rank's report happened between them. Lines that were printed
//! while no client followed have none, and stay at the moment of their arrival, as does what hosts say. Pure: it knows no clock but that of
//! the envelopes.

use std::collections::BTreeMap;

use crate::domain::clock_fit::ClockFit;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, Rank};
use crate::domain::log::Stream;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::RunSpec;
use crate::domain::time::{HostTime, Stamp};
use crate::record::weight;

/// What is told so long after it happened is caught up with, microseconds.
const PAST_US: i64 = 2_000_000;
/// When nothing of that kind has come for so long, the present has begun.
const PRESENT_US: i64 = 1_500_000;
/// No more than so many bytes wait, as a recorder counts them; then the older half of what has its time goes. The files of a host's
/// ranks are told in turns of some thousand steps.
const MOST_BYTES: usize = 24 << 20;

/// The envelopes of one run that wait to be recorded.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// Nothing of the run is earlier.
    floor: Stamp,
    host_of: BTreeMap<Rank, HostId>,
    clocks: BTreeMap<HostId, ClockFit>,
    held: Vec<Held>,
    bytes: usize,
    ranks: BTreeMap<Rank, Told>,
    /// When the last stage that has gone was entered.
    staged: Stamp,
    /// When the last envelope came that tells of the past, or the first one.
    past_at: Option<Stamp>,
    /// The number of the next envelope that goes.
    next: Option<u64>,
}

/// An envelope that waits.
#[derive(Debug)]
struct Held {
    /// When it happened, where that is known and not when it came.
    happened: Option<Stamp>,
    envelope: Envelope,
}

impl Held {
    fn at(&self) -> Stamp {
        self.happened.unwrap_or(self.envelope.at)
    }

    fn is_stage(&self) -> bool {
        matches!(self.envelope.event, Event::StageEntered { .. })
    }
}

/// What a rank has told.
#[derive(Debug, Default)]
struct Told {
    /// When the last of it happened that has a time.
    at: Option<Stamp>,
    /// Where what it has reported since waits.
    since: Vec<usize>,
}

impl CatchUp {
    /// Of a run that was known up to `since`.
    pub(super) fn new(spec: &RunSpec, since: Option<Stamp>) -> Self {
        let host_of = spec.placements.iter().map(|placement| (placement.rank, placement.host.clone()));
        let floor = since.unwrap_or(spec.created);
        Self {
            floor,
            host_of: host_of.collect(),
            clocks: BTreeMap::new(),
            held: Vec::new(),
            bytes: 0,
            ranks: BTreeMap::new(),
            staged: floor,
            past_at: None,
            next: None,
        }
    }

    /// Takes an envelope in; gives those that can be recorded now, in the order in which they happened, and whether the present
    /// has begun: nothing waits then.
    pub(super) fn take(&mut self, mut envelope: Envelope) -> (Vec<Envelope>, bool) {
        let now = envelope.at;
        self.next = self.next.or(Some(envelope.seq));
        if let Event::Attached { since: Some(_), until } = &mut envelope.event {
            *until = Some(now);
        }
        if let Event::RunEnded { outcome: RunOutcome { at: Some(end), .. } } = &envelope.event {
            self.is_over(*end);
        }
        if let (Origin::Host(host), Event::ClockSampled { sample }) = (&envelope.origin, &envelope.event) {
            self.clocks.entry(host.clone()).or_default().add(*sample);
        }
        self.bytes += weight(&envelope);
        let is_past = self.hold(envelope);
        let past_at = *self.past_at.get_or_insert(now);
        if is_past || now < past_at {
            self.past_at = Some(now);
        }
        if self.past_at.is_some_and(|past| now.micros_since(past) > PRESENT_US) {
            return (self.rest(), true);
        }
        (if self.bytes > MOST_BYTES { self.older_half() } else { Vec::new() }, false)
    }

    /// The run has ended then: so has the time in which it was not followed, however late it was taken up.
    fn is_over(&mut self, end: Stamp) {
        for held in &mut self.held {
            if let Event::Attached { since: Some(since), until: Some(until) } = &mut held.envelope.event {
                *until = end.max(*since).min(*until);
            }
        }
    }

    /// All that waits.
    pub(super) fn rest(&mut self) -> Vec<Envelope> {
        self.order();
        self.go(self.held.len())
    }

    /// Puts an envelope to those that wait. Whether it tells by itself of the past.
    fn hold(&mut self, envelope: Envelope) -> bool {
        let (now, at) = (envelope.at, self.held.len());
        let (happened, is_timed) = match &envelope.origin {
            Origin::Rank(_, rank) | Origin::Worker(_, rank, _) => {
                let rank = *rank;
                let timed = self.timed(rank, &envelope.event);
                if let Some((from, to)) = timed {
                    self.came_before(rank, from);
                    let to = to.max(self.ranks.get(&rank).and_then(|told| told.at).unwrap_or(to));
                    self.ranks.entry(rank).or_default().at = Some(to.min(now));
                    (Some(to.min(now)), true)
                } else {
                    if is_report(&envelope.event) {
                        self.ranks.entry(rank).or_default().since.push(at);
                    }
                    (None, false)
                }
            }
            Origin::Run(_) => match &envelope.event {
                // what follows it happened in the time of which it tells
                Event::RunCreated { .. } | Event::Attached { .. } => (Some(self.floor), false),
                // it follows from what came last; the first one was so before
                Event::StageEntered { .. } => {
                    let last =
                        self.held.iter().rfind(|held| !matches!(held.envelope.origin, Origin::Host(_)));
                    (last.map_or(Some(self.floor), |last| last.happened), false)
                }
                _ => (None, false),
            },
            Origin::Host(_) => (None, false),
        };
        let happened = happened.map(|happened| happened.min(now));
        self.held.push(Held { happened, envelope });
        is_timed && happened.is_some_and(|happened| now.micros_since(happened) > PAST_US)
    }

    /// From when to when lasted what has a time of its own.
    fn timed(&self, rank: Rank, event: &Event) -> Option<(Stamp, Stamp)> {
        let clock = self.clocks.get(self.host_of.get(&rank)?)?;
        let at = |t: HostTime| Some(clock.stamp(t).filter(|_| t.0 > 0)?.max(self.floor));
        match event {
            Event::StepDone { timing } => {
                let from = at(timing.start)?;
                Some((from, from.plus_micros(timing.dur_us.into())))
            }
            Event::RankStarted { t, .. } => at(*t).map(|at| (at, at)),
            Event::RankExited { exit } => at(exit.t).map(|at| (at, at)),
            _ => None,
        }
    }

    /// What a rank has reported before something that began then, and since what has a time before it, happened between the two; what
    /// the client concluded from that too.
    fn came_before(&mut self, rank: Rank, begun: Stamp) {
        let Some(told) = self.ranks.get_mut(&rank) else { return };
        let happened = told.at.unwrap_or(begun).min(begun);
        for at in std::mem::take(&mut told.since) {
            let mut rest = self.held.iter_mut().skip(at);
            let Some(held) = rest.next() else { continue };
            held.happened = Some(happened.min(held.envelope.at));
            rest.take_while(|held| held.is_stage()).for_each(|stage| stage.happened = Some(happened));
        }
    }

    /// Puts what waits in the order in which it happened.
    fn order(&mut self) {
        // one stage follows the other, by whichever host it was heard of first
        let mut staged = self.staged;
        for held in self.held.iter_mut().filter(|held| held.is_stage()) {
            staged = held.at().max(staged);
            held.happened = Some(staged);
        }
        self.held.sort_by_key(Held::at);
        for told in self.ranks.values_mut() {
            told.since.clear();
        }
        for (at, held) in self.held.iter().enumerate().filter(|(_, held)| held.happened.is_none()) {
            if let Origin::Rank(_, rank) | Origin::Worker(_, rank, _) = held.envelope.origin
                && is_report(&held.envelope.event)
            {
                self.ranks.entry(rank).or_default().since.push(at);
            }
        }
    }

    /// The older half of what has its time, and all lines behind it: what comes later may have happened earlier than they came.
    fn older_half(&mut self) -> Vec<Envelope> {
        self.order();
        let of_lines =
            |held: &Held| held.happened.is_none() && matches!(held.envelope.event, Event::LogPrinted { .. });
        let known = self.held.iter().filter(|held| held.happened.is_some()).count();
        let half = self.held.iter().enumerate().filter(|(_, held)| held.happened.is_some()).nth(known / 2);
        let Some((half, newest)) = half.map(|(at, held)| (at + 1, held.at())) else {
            return self.go(self.held.len());
        };
        let (mut goes, mut stays): (Vec<Held>, Vec<Held>) = (Vec::new(), Vec::new());
        for (at, mut held) in std::mem::take(&mut self.held).into_iter().enumerate() {
            if of_lines(&held) {
                held.happened = Some(newest);
                goes.push(held);
            } else if at < half && held.happened.is_some() {
                goes.push(held);
            } else {
                stays.push(held);
            }
        }
        goes.sort_by_key(Held::at);
        let count = goes.len();
        goes.append(&mut stays);
        self.held = goes;
        // where it frees little, all of it goes
        let count = if count * 8 < self.held.len() { self.held.len() } else { count };
        let gone = self.go(count);
        self.order();
        gone
    }

    /// The first so many, numbered anew.
    fn go(&mut self, count: usize) -> Vec<Envelope> {
        let mut next = self.next.unwrap_or_default();
        let staged = &mut self.staged;
        let number = |held: Held| {
            let (seq, at) = (next, held.at());
            if held.is_stage() {
                *staged = at;
            }
            next += 1;
            Envelope { seq, at, ..held.envelope }
        };
        let gone: Vec<Envelope> = self.held.drain(..count).map(number).collect();
        self.bytes -= gone.iter().map(weight).sum::<usize>().min(self.bytes);
        self.next = Some(next);
        gone
    }
}

/// Whether it stands in a rank's report, and has no time of its own.
fn is_report(event: &Event) -> bool {
    match event {
        Event::JobDescribed { .. }
        | Event::StepsBy { .. }
        | Event::RankWaits { .. }
        | Event::RankMet
        | Event::StepDone { .. }
        | Event::MetricReported { .. }
        | Event::CollectiveDone { .. }
        | Event::ReportsRead { .. }
        | Event::JobDone { .. }
        | Event::Gap { .. } => true,
        Event::LogGap { gap } => gap.stream == Stream::Report,
        _ => false,
    }
}

#[cfg(test)]
#[path = "catch_up_tests.rs"]
mod tests;
