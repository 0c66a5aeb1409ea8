//! When a client attaches to a run, past events come rank by rank, in a moment. Here they wait until they can be recorded in
//! the order in which they happened, and at the time at which they did: by its host's time, which pings place on the client's clock.
//!
//! Steps, starts and ends of ranks have such a time; what else stands in a rank's report happened between them. Lines have it where their
//! host has noted when they were printed, a second late as a rule; one without stands before the next one of its stream that has a time,
//! and without such a one at the moment of its arrival, as does what hosts say. What they have noted of themselves has its time.
//! Pure: it knows no clock but that of the envelopes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::clock_fit::ClockFit;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::host::{HostSample, LinkState};
use crate::domain::ids::{HostId, Rank};
use crate::domain::log::Stream;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::RunSpec;
use crate::domain::time::{HostTime, Stamp};
use crate::record::weight;

/// What is told so long after it happened is caught up with, microseconds.
const PAST_US: i64 = 2_000_000;
/// When nothing of that kind has come for so long, the present has begun.
pub(super) const PRESENT_US: i64 = 1_500_000;
/// Between two envelopes no more than that counts: a clock may step, and a client may stand still while the past waits in a queue.
const LONGEST_GAP_US: i64 = 1_000_000;
/// A host that is being reached is awaited so long: a login may ask for a second factor.
pub(super) const REACHED_US: i64 = 15_000_000;
/// A host that is reached and tells nothing of its ranks for so long has nothing to tell.
const ANSWER_US: i64 = 4_000_000;
/// A host may note so much late that a line was printed: one that lies no later than that behind its rank's end was printed before it.
const NOTED_US: i64 = 3_000_000;
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
    /// When the last line of each stream that has gone was printed: nothing behind it is earlier.
    printed: BTreeMap<(Rank, Stream), Stamp>,
    /// When the first envelope came.
    begun: Option<Stamp>,
    /// When the last stage that has gone was entered.
    staged: Stamp,
    /// When the last envelope came.
    last: Option<Stamp>,
    /// When the run ended, once that is told.
    ended: Option<Stamp>,
    /// For how long nothing has come that tells of the past, microseconds.
    quiet_us: i64,
    /// Hosts that may have something to tell and have told nothing of their ranks, and for how long they are still awaited,
    /// microseconds.
    awaited: BTreeMap<HostId, i64>,
    /// The same of hosts that are down, from when they are tried again.
    down: BTreeMap<HostId, i64>,
    /// Hosts that have told something of their ranks.
    heard: BTreeSet<HostId>,
    sampled: BTreeMap<HostId, Sampled>,
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

    /// Whose output it tells of.
    fn stream(&self) -> Option<(Rank, Stream)> {
        let Origin::Rank(_, rank) = self.envelope.origin else { return None };
        printed(&self.envelope.event).map(|(stream, _)| (rank, stream))
    }

    fn is_stage(&self) -> bool {
        matches!(self.envelope.event, Event::StageEntered { .. })
    }
}

/// What a host's samples are known of.
#[derive(Debug, Default)]
struct Sampled {
    /// When the first came that it has sent of now: nothing that it has noted since is wanted.
    live: Option<Stamp>,
    /// When the first of those was taken that it has noted before, and the newest, by its clock.
    noted: Option<(Stamp, HostTime)>,
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
        let awaited = spec.hosts().into_iter().map(|host| (host, REACHED_US)).collect();
        let floor = since.unwrap_or(spec.created);
        Self {
            floor,
            host_of: host_of.collect(),
            clocks: BTreeMap::new(),
            held: Vec::new(),
            bytes: 0,
            ranks: BTreeMap::new(),
            printed: BTreeMap::new(),
            begun: None,
            staged: floor,
            last: None,
            ended: None,
            quiet_us: 0,
            awaited,
            down: BTreeMap::new(),
            heard: BTreeSet::new(),
            sampled: BTreeMap::new(),
            next: None,
        }
    }

    /// Takes an envelope in; gives those that can be recorded now, in the order in which they happened, and whether the present
    /// has begun: nothing waits then.
    pub(super) fn take(&mut self, mut envelope: Envelope) -> (Vec<Envelope>, bool) {
        let now = envelope.at;
        self.next = self.next.or(Some(envelope.seq));
        // a clock may step back
        self.begun = Some(self.begun.map_or(now, |begun| begun.min(now)));
        if let Event::Attached { since: Some(_), until } = &mut envelope.event {
            *until = Some(now);
        }
        if let Event::RunEnded { outcome: RunOutcome { at: Some(end), .. } } = &envelope.event {
            self.is_over(*end);
        }
        if let (Origin::Host(host), Event::ClockSampled { sample }) = (&envelope.origin, &envelope.event) {
            self.clocks.entry(host.clone()).or_default().add(*sample);
        }
        if let (Origin::Host(host), Event::HostSampled { .. }) = (&envelope.origin, &envelope.event) {
            self.sampled.entry(host.clone()).or_default().live.get_or_insert(now);
        }
        self.bytes += weight(&envelope);
        let is_first_word = self.reaches(&envelope);
        let is_past = self.hold(envelope);
        let passed = self.last.replace(now).map_or(0, |last| now.micros_since(last).clamp(0, LONGEST_GAP_US));
        self.quiet_us = if is_past || is_first_word { 0 } else { self.quiet_us + passed };
        self.awaited.retain(|_, left| {
            *left -= passed;
            *left > 0
        });
        if !self.is_awaiting() && self.quiet_us > PRESENT_US {
            return (self.rest(), true);
        }
        (self.what_is_too_much(), false)
    }

    /// Takes in what a host has noted of itself, as it comes at `now`: the samples of the time in which the run was not followed, in
    /// order. Those of the time that is known, and of that from its first sample here on, are there already. Gives what can be recorded now.
    pub(super) fn take_noted(
        &mut self,
        host: &HostId,
        samples: Vec<(HostTime, Arc<HostSample>)>,
        now: Stamp,
    ) -> Vec<Envelope> {
        let (Some(clock), Some(seq)) = (self.clocks.get(host), self.next) else { return Vec::new() };
        let of_host = self.sampled.entry(host.clone()).or_default();
        let until = of_host.live.map_or(now, |live| live.min(now));
        for (t, sample) in samples {
            let is_new = of_host.noted.is_none_or(|(_, newest)| newest < t);
            let at = clock.stamp(t).filter(|at| is_new && *at > self.floor && *at < until);
            let Some(at) = at else { continue };
            of_host.noted = Some((of_host.noted.map_or(at, |(first, _)| first), t));
            let (origin, event) = (Origin::Host(host.clone()), Event::HostSampled { sample });
            let envelope = Envelope { seq, at, origin, event };
            self.bytes += weight(&envelope);
            self.held.push(Held { happened: Some(at), envelope });
            self.quiet_us = 0;
        }
        self.what_is_too_much()
    }

    fn what_is_too_much(&mut self) -> Vec<Envelope> {
        if self.bytes > MOST_BYTES { self.older_half() } else { Vec::new() }
    }

    /// Whether hosts of the run are being reached, or have not answered yet.
    pub(super) fn is_awaiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Whether a host that was awaited tells of its ranks. One that is down is awaited no more until it is tried again.
    fn reaches(&mut self, envelope: &Envelope) -> bool {
        let host = match &envelope.origin {
            Origin::Host(host) => host,
            Origin::Rank(_, rank) | Origin::Worker(_, rank, _) => {
                let Some(host) = self.host_of.get(rank) else { return false };
                self.heard.insert(host.clone());
                return self.awaited.remove(host).is_some();
            }
            Origin::Run(_) => return false,
        };
        match &envelope.event {
            Event::LinkChanged { state: LinkState::Connecting { .. } | LinkState::Installing { .. } } => {
                // after each answer a host has its time anew, so that one that comes and goes ends it all the same
                let left = if self.heard.remove(host) { Some(REACHED_US) } else { self.down.remove(host) };
                if let Some(left) = left {
                    self.awaited.insert(host.clone(), left);
                }
            }
            Event::LinkChanged { state: LinkState::Down { .. } | LinkState::Refused { .. } } => {
                if let Some(left) = self.awaited.remove(host) {
                    self.down.insert(host.clone(), left);
                }
            }
            // it is reached, and will answer
            _ => {
                if let Some(left) = self.awaited.get_mut(host) {
                    *left = ANSWER_US.min(*left);
                }
            }
        }
        false
    }

    /// The run has ended then: so has the time in which it was not followed, however late the client attached.
    fn is_over(&mut self, end: Stamp) {
        self.ended = Some(end);
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
                if let Some((_, t)) = printed(&envelope.event) {
                    // its place is found when all is put in order
                    let is_past = self.is_past_line(rank, t, now);
                    self.held.push(Held { happened: None, envelope });
                    return is_past;
                }
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

    /// A moment of a rank's host, on the client's clock, but not before the run was known up to.
    fn stamp(&self, rank: Rank, t: HostTime) -> Option<Stamp> {
        Some(self.stamp_of(rank, t)?.max(self.floor))
    }

    fn stamp_of(&self, rank: Rank, t: HostTime) -> Option<Stamp> {
        let clock = self.clocks.get(self.host_of.get(&rank)?)?;
        clock.stamp(t).filter(|_| t.0 > 0)
    }

    /// Whether a line that comes now was printed in the past. A host that is behind with what is printed now tells nothing of that.
    fn is_past_line(&self, rank: Rank, t: Option<HostTime>, now: Stamp) -> bool {
        let printed = t.and_then(|t| self.stamp(rank, t));
        printed.is_some_and(|at| now.micros_since(at) > PAST_US && self.begun.is_none_or(|begun| at < begun))
    }

    /// From when to when lasted what has a time of its own.
    fn timed(&self, rank: Rank, event: &Event) -> Option<(Stamp, Stamp)> {
        let at = |t: HostTime| self.stamp(rank, t);
        match event {
            Event::StepDone { timing } => {
                // it may have begun while the run was still followed
                let from = self.stamp_of(rank, timing.start)?;
                Some((from.max(self.floor), from.plus_micros(timing.dur_us.into()).max(self.floor)))
            }
            Event::RankStarted { t, .. } => at(*t).map(|at| (at, at)),
            // what is known of the clock may be of the boot before
            Event::RankExited { exit } if exit.is_of_reboot() => {
                let boot = self.stamp_of(rank, exit.ended_by()).filter(|boot| *boot >= self.floor)?;
                Some((boot, boot))
            }
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

    /// Gives the lines that wait their times: in each stream one behind the other, and before their rank's end.
    fn place_lines(&mut self) {
        let end = |held: &Held| match (&held.envelope.origin, &held.envelope.event) {
            (Origin::Rank(_, rank), Event::RankExited { .. }) => {
                Some(((*rank, held.envelope.seq), held.happened?))
            }
            _ => None,
        };
        let ends: BTreeMap<(Rank, u64), Stamp> = self.held.iter().filter_map(end).collect();
        let (mut last, mut waiting) = (self.printed.clone(), BTreeMap::<_, Vec<usize>>::new());
        for at in 0..self.held.len() {
            let held = &self.held[at];
            let (Origin::Rank(_, rank), Some((stream, t))) =
                (&held.envelope.origin, printed(&held.envelope.event))
            else {
                continue;
            };
            let (of, arrived) = ((*rank, stream), held.envelope.at);
            let Some(happened) = t.and_then(|t| self.stamp(*rank, t)).or(held.happened) else {
                waiting.entry(of).or_default().push(at);
                continue;
            };
            let end = ends.range((*rank, held.envelope.seq)..=(*rank, u64::MAX)).next();
            let end = end.filter(|(_, end)| (0..=NOTED_US).contains(&happened.micros_since(**end)));
            let happened = end.map_or(happened, |(_, end)| *end);
            let happened = last.get(&of).map_or(happened, |last| happened.max(*last)).min(arrived);
            last.insert(of, happened);
            for before in waiting.remove(&of).unwrap_or_default() {
                let held = &mut self.held[before];
                held.happened = Some(happened.min(held.envelope.at));
            }
            self.held[at].happened = Some(happened);
        }
    }

    /// What a host has told of its GPUs stands before what it has noted of them.
    fn place_facts(&mut self) {
        let mut noted: BTreeMap<&HostId, Stamp> = BTreeMap::new();
        for (host, sampled) in &self.sampled {
            noted.extend(sampled.noted.map(|(first, _)| (host, first)));
        }
        for held in &mut self.held {
            if let (Origin::Host(host), Event::HostDescribed { .. }) =
                (&held.envelope.origin, &held.envelope.event)
                && let Some(first) = noted.remove(host)
            {
                held.happened = Some(first.plus_micros(-1).min(held.envelope.at));
            }
        }
    }

    /// Of a run that has ended nothing is later than its end and what its ranks have told with its time, however late a client
    /// attached. What hosts have measured since is no part of it. All is in its order by then, and stays so: what a host says now comes
    /// behind the last exit.
    fn place_end(&mut self) {
        let Some(end) = self.ended else { return };
        let of_rank = |held: &Held| {
            let is_of_rank = matches!(held.envelope.origin, Origin::Rank(..) | Origin::Worker(..));
            held.happened.filter(|_| is_of_rank)
        };
        let end = self.held.iter().filter_map(of_rank).fold(end.max(self.floor), Stamp::max);
        self.held
            .retain(|held| held.at() <= end || !matches!(held.envelope.event, Event::HostSampled { .. }));
        for held in &mut self.held {
            held.happened = Some(held.at().min(end));
        }
    }

    /// Puts what waits in the order in which it happened.
    fn order(&mut self) {
        self.place_lines();
        self.place_facts();
        // one stage follows the other, by whichever host it was heard of first
        let mut staged = self.staged;
        for held in self.held.iter_mut().filter(|held| held.is_stage()) {
            staged = held.at().max(staged);
            held.happened = Some(staged);
        }
        self.held.sort_by_key(Held::at);
        self.place_end();
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

    /// The older half of what has its time, and all lines behind it that have none: what comes later may have happened earlier than
    /// they came.
    fn older_half(&mut self) -> Vec<Envelope> {
        self.order();
        let mut last: BTreeMap<(Rank, Stream), Stamp> = BTreeMap::new();
        let known = self.held.iter().filter(|held| held.happened.is_some()).count();
        let half = self.held.iter().enumerate().filter(|(_, held)| held.happened.is_some()).nth(known / 2);
        let Some((half, newest)) = half.map(|(at, held)| (at + 1, held.at())) else {
            return self.go(self.held.len());
        };
        let (mut goes, mut stays): (Vec<Held>, Vec<Held>) = (Vec::new(), Vec::new());
        for (at, mut held) in std::mem::take(&mut self.held).into_iter().enumerate() {
            if let Some(of) = held.stream() {
                // behind those of its stream that stay it stays, too
                let behind = last.get(&of).map_or(newest, |last| newest.max(*last));
                let happened = *held.happened.get_or_insert(behind);
                last.insert(of, happened);
                if happened <= newest { goes.push(held) } else { stays.push(held) }
            } else if at < half && held.happened.is_some() {
                goes.push(held);
            } else {
                stays.push(held);
            }
        }
        goes.sort_by_key(Held::at);
        stays.sort_by_key(Held::at);
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
        let (staged, printed) = (&mut self.staged, &mut self.printed);
        let number = |held: Held| {
            let (seq, at) = (next, held.at());
            if held.is_stage() {
                *staged = at;
            }
            if let Some(of) = held.stream() {
                printed.insert(of, at);
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

/// Whether it tells of what a rank has printed: into which file, and by when its host had that.
fn printed(event: &Event) -> Option<(Stream, Option<HostTime>)> {
    match event {
        Event::LogPrinted { line } | Event::LogUnfinished { line } => Some((line.stream, line.t)),
        Event::LogGap { gap } => Some((gap.stream, None)).filter(|(stream, _)| *stream != Stream::Report),
        _ => None,
    }
}

/// Whether it stands in a rank's report, and has no time of its own.
fn is_report(event: &Event) -> bool {
    match event {
        Event::JobDescribed { .. }
        | Event::StepsBy { .. }
        | Event::RankWaits { .. }
        | Event::RankConnected
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
