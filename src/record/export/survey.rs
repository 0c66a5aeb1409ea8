//! What must be known before anything is written: the hosts' clocks, what steps tell and who tells them, when the chosen steps were, and
//! behind which chunk nothing that is chosen comes any more.
//!
//! The index of the chunks tells when events were heard of. A step or a collective may have been made long before that: one of a host
//! that was cut off comes late. So how far the recording is to be read is found from these themselves, of which some chunks together
//! are one stretch: by its first moment and its first and last step.

use std::collections::{BTreeMap, BTreeSet};

use super::super::format::Channel;
use super::super::reader::Reader;
use super::align::{Clocks, Gather};
use super::pass::{Progress, Run, by_arrival, trainer};
use super::selection::{Chosen, Selection, Span};
use super::told::Told;
use crate::domain::event::{Envelope, Event};
use crate::domain::ids::HostId;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::StepTiming;
use crate::domain::trainer_keys::TrainerId;

/// So many stretches at most: of a longer recording more chunks are one.
const MOST: usize = 512;

/// How much of a recording is read after the survey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// So many chunks: those behind them hold nothing that is chosen, nor a step that another rank has told before them.
    pub(super) chunks: usize,
    /// The last step that these hold. What is held of a step may be chosen up to this one.
    pub(super) newest: u64,
    /// So many chunks: those behind them lie behind all that is chosen by when it was heard of.
    pub(super) heard: usize,
    /// Chunks that can't be read.
    pub(super) unread: Vec<usize>,
}

impl End {
    /// Of a recording that is read to its last chunk.
    pub(super) fn of_all(reader: &Reader) -> Self {
        let chunks = reader.chunk_count();
        Self { chunks, newest: u64::MAX, heard: chunks, unread: Vec::new() }
    }
}

/// Reads the clocks and the steps of a recording, and the collectives where its end is not chosen. `read` is given the share that is read.
pub(super) fn survey<'a>(
    reader: &'a Reader,
    selection: &'a Selection,
    read: &mut dyn FnMut(f64),
) -> (Run<'a>, End) {
    let mut progress = Progress::of(reader);
    let (start, _) = reader.range().unwrap_or_default();
    let spec = reader.spec();
    let chosen = Chosen::new(selection, spec);
    let (mut gather, mut when, mut told) = (Gather::default(), When::default(), Told::of(spec));
    let (mut trainers, mut stretches, mut unread) = (BTreeSet::new(), Stretches::default(), Vec::new());
    let mut chunk = 0;
    let mut take = |glance: Option<Glance>| {
        let at = chunk;
        chunk += 1;
        if let Some(share) = reader.chunk_span(at).and_then(|(_, end)| progress.at(end)) {
            read(share);
        }
        let Some(glance) = glance else {
            unread.push(at);
            return stretches.push(None);
        };
        glance.clocks.iter().for_each(|envelope| gather.take(envelope));
        when.join(glance.when);
        told.join(glance.told);
        trainers.extend(glance.trainers);
        stretches.push(glance.steps);
    };
    reader.of_each(|chunk| Glance::of(reader, &chosen, chunk), &mut |_| true, &mut take);
    if trainers.iter().all(|id| id.worker().is_none()) {
        trainers.clear();
    }
    let outcome = reader.outcome();
    let mut run = Run { spec, chosen, clocks: gather.fit(), start, outcome, told, trainers };
    // an open range reaches to the end of the recording: what follows the last step, such as a failure, is in it
    let is_open = selection.steps.is_some_and(|steps| steps.last.is_none());
    let during = when.during(&run.clocks);
    run.chosen.set_during(during.map(|(first, last)| (first, if is_open { i64::MAX } else { last })));
    let ends = !run.chosen.has_end();
    let end = if ends { end_of(reader, &run, &stretches, unread) } else { End::of_all(reader) };
    (run, end)
}

/// When the selected steps of the selected ranks were made, nanoseconds since the Unix epoch by the client's clock, without end where
/// their range is open; `None` where no rank tells any, or none are selected.
pub(in super::super) fn during(reader: &Reader, selection: &Selection) -> Option<Span> {
    survey(reader, selection, &mut |_| ()).0.chosen.during()
}

/// Whether a chunk lies in the chosen time by when its events were heard of.
pub(super) fn is_chosen(reader: &Reader, chosen: &Chosen<'_>, chunk: usize) -> bool {
    let nanos = |at: Stamp| at.0.saturating_mul(1_000);
    reader.note(chunk).is_none_or(|note| chosen.has_span((nanos(note.start), nanos(note.end))))
}

fn end_of(reader: &Reader, run: &Run<'_>, stretches: &Stretches, unread: Vec<usize>) -> End {
    let heard = (0..reader.chunk_count()).rev().find(|chunk| is_chosen(reader, &run.chosen, *chunk));
    let heard = heard.map_or(0, |last| last + 1);
    let end = run.chosen.window().map_or(i64::MIN, |(_, end)| end);
    let (chunks, newest) = stretches.until(&run.clocks, end);
    End { chunks: chunks.max(heard), newest, heard, unread }
}

/// What the survey takes of one chunk.
struct Glance {
    clocks: Vec<Envelope>,
    told: Told,
    trainers: BTreeSet<TrainerId>,
    when: When,
    steps: Option<Stretch>,
}

impl Glance {
    /// `None` of a chunk that can't be read.
    fn of(reader: &Reader, chosen: &Chosen<'_>, chunk: usize) -> Option<Self> {
        let is_bounded = !chosen.has_end();
        let wants = |channel: Channel| match channel {
            Channel::Clock | Channel::Phase => true,
            // collectives have no channel of their own
            Channel::Event => is_bounded,
            _ => false,
        };
        let mut clocks = reader.load_untimed(chunk, wants).ok()?;
        let (mut told, mut trainers, mut when) = (Told::default(), BTreeSet::new(), When::default());
        let mut steps: Option<Stretch> = None;
        for envelope in &clocks {
            let Some(id) = trainer(&envelope.origin) else { continue };
            match &envelope.event {
                Event::StepDone { timing } => {
                    told.take(timing);
                    trainers.insert(id);
                    if chosen.is_by_steps() {
                        when.take(chosen, id, timing, envelope.at);
                    }
                    if is_bounded {
                        steps.get_or_insert_with(Stretch::default).take(chosen, id, timing, envelope.at);
                    }
                }
                Event::CollectiveDone { timing } if is_bounded && chosen.has_trainer(id) => {
                    let length = i64::try_from(timing.dur_ns).unwrap_or(i64::MAX);
                    let (arrived, _) = by_arrival(envelope.at, length);
                    steps.get_or_insert_with(Stretch::default).began(chosen, id, timing.t, arrived);
                }
                _ => {}
            }
        }
        clocks.retain(|envelope| matches!(envelope.event, Event::ClockSampled { .. }));
        Some(Self { clocks, told, trainers, when, steps })
    }
}

/// When the chosen steps were, as long as the clocks are not known.
#[derive(Default)]
struct When {
    /// By each host's clock.
    hosts: BTreeMap<HostId, (HostTime, HostTime)>,
    /// By their arrival, as steps are placed that no clock places.
    arrived: Option<Span>,
}

impl When {
    fn take(&mut self, chosen: &Chosen<'_>, id: TrainerId, timing: &StepTiming, at: Stamp) {
        if !chosen.has_trainer(id) || !chosen.has_step(timing.step) {
            return;
        }
        let length_us = i64::from(timing.dur_us);
        let end = HostTime(timing.start.0.saturating_add(u64::from(timing.dur_us)));
        if let Some(placement) = chosen.placement(id.rank) {
            let (first, last) = self.hosts.entry(placement.host.clone()).or_insert((timing.start, end));
            (*first, *last) = ((*first).min(timing.start), (*last).max(end));
        }
        let arrived = by_arrival(at, length_us.saturating_mul(1_000));
        self.arrived = Some(joined(self.arrived, arrived));
    }

    fn join(&mut self, other: Self) {
        for (host, (start, end)) in other.hosts {
            let (first, last) = self.hosts.entry(host).or_insert((start, end));
            (*first, *last) = ((*first).min(start), (*last).max(end));
        }
        self.arrived = other.arrived.map(|arrived| joined(self.arrived, arrived)).or(self.arrived);
    }

    fn during(self, clocks: &Clocks) -> Option<Span> {
        let placed = self.hosts.iter().filter_map(|(host, (first, last))| {
            Some((clocks.place(host, *first)?, clocks.place(host, *last)?))
        });
        let placed = placed.fold(None, |all, span| Some(joined(all, span)));
        let is_whole = !self.hosts.is_empty() && self.hosts.keys().all(|host| clocks.of(host).is_some());
        match (placed, self.arrived) {
            (Some(placed), _) if is_whole => Some(placed),
            (placed, arrived) => arrived.map(|arrived| joined(placed, arrived)),
        }
    }
}

fn joined(all: Option<Span>, span: Span) -> Span {
    all.map_or(span, |all| (all.0.min(span.0), all.1.max(span.1)))
}

/// The steps and collectives of a chunk, or of some that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    /// The lowest and the highest number of a step.
    first: u64,
    last: u64,
    /// The first moment of each host by its own clock.
    hosts: BTreeMap<HostId, HostTime>,
    /// The first one where they are placed by their arrival, nanoseconds.
    arrived: i64,
}

impl Default for Stretch {
    fn default() -> Self {
        Self { first: u64::MAX, last: 0, hosts: BTreeMap::new(), arrived: i64::MAX }
    }
}

impl Stretch {
    fn take(&mut self, chosen: &Chosen<'_>, id: TrainerId, timing: &StepTiming, at: Stamp) {
        (self.first, self.last) = (self.first.min(timing.step), self.last.max(timing.step));
        let (arrived, _) = by_arrival(at, i64::from(timing.dur_us) * 1_000);
        self.began(chosen, id, Some(timing.start), arrived);
    }

    /// Takes when one of them began: by the host's clock, where that is told, and by its arrival.
    fn began(&mut self, chosen: &Chosen<'_>, id: TrainerId, start: Option<HostTime>, arrived: i64) {
        self.arrived = self.arrived.min(arrived);
        let host = chosen.placement(id.rank).map(|placement| &placement.host);
        let Some((host, start)) = host.zip(start) else { return };
        match self.hosts.get_mut(host) {
            Some(first) => *first = (*first).min(start),
            None => {
                self.hosts.insert(host.clone(), start);
            }
        }
    }

    fn join(mut self, other: Self) -> Self {
        (self.first, self.last) = (self.first.min(other.first), self.last.max(other.last));
        self.arrived = self.arrived.min(other.arrived);
        for (host, start) in other.hosts {
            let first = self.hosts.entry(host).or_insert(start);
            *first = (*first).min(start);
        }
        self
    }

    /// Before this nothing of it began, nanoseconds since the Unix epoch by the client's clock.
    fn start(&self, clocks: &Clocks) -> i64 {
        let placed = self.hosts.iter().filter_map(|(host, first)| clocks.earliest(host, *first));
        placed.fold(self.arrived, i64::min)
    }
}

/// Two that follow each other, where there is something in them.
fn both(one: Option<Stretch>, next: Option<Stretch>) -> Option<Stretch> {
    match (one, next) {
        (Some(one), Some(next)) => Some(one.join(next)),
        (one, next) => one.or(next),
    }
}

/// The stretches of a recording, of as many chunks each; `None` of one without a step and a collective.
#[derive(Debug)]
struct Stretches {
    all: Vec<Option<Stretch>>,
    /// Chunks of each.
    each: usize,
    /// Chunks of all.
    count: usize,
}

impl Default for Stretches {
    fn default() -> Self {
        Self { all: Vec::new(), each: 1, count: 0 }
    }
}

impl Stretches {
    /// Takes the steps of the next chunk.
    fn push(&mut self, steps: Option<Stretch>) {
        if self.count / self.each == MOST {
            let mut old = std::mem::take(&mut self.all).into_iter();
            while let Some(one) = old.next() {
                self.all.push(both(one, old.next().flatten()));
            }
            self.each *= 2;
        }
        let at = self.count / self.each;
        self.count += 1;
        match self.all.get_mut(at) {
            Some(last) => *last = both(last.take(), steps),
            None => self.all.push(steps),
        }
    }

    /// How many chunks there are up to the last one that holds what began by a moment (nanoseconds), or part of a step of which
    /// another part may have begun by then; and the highest number among those that began by then.
    fn until(&self, clocks: &Clocks, end: i64) -> (usize, u64) {
        let is_behind = |one: &Stretch| one.start(clocks) > end;
        let within = self.all.iter().flatten().filter(|one| !is_behind(one));
        let newest = within.map(|one| one.last).max().unwrap_or_default();
        let is_needed = |one: &Stretch| one.first <= newest || !is_behind(one);
        let last = self.all.iter().rposition(|one| one.as_ref().is_some_and(is_needed));
        (last.map_or(0, |last| self.count.min((last + 1) * self.each)), newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::event::Origin;

    /// Steps from one number to another that began at a moment of the host, microseconds.
    #[expect(clippy::unnecessary_wraps, reason = "as it is where it is given")]
    fn steps(first: u64, last: u64, start: u64) -> Option<Stretch> {
        let hosts = BTreeMap::from([(HostId::from("a"), HostTime(start))]);
        Some(Stretch { first, last, hosts, arrived: i64::MAX })
    }

    /// Of a host by its pings: its moment and how much later it is by the client's clock, microseconds.
    fn clocks(pings: &[(u64, i64)]) -> Clocks {
        let mut gather = Gather::default();
        for (host_time, offset_us) in pings {
            let sample = ClockSample { host_time: HostTime(*host_time), offset_us: *offset_us, rtt_us: 80 };
            let (origin, event) = (Origin::Host(HostId::from("a")), Event::ClockSampled { sample });
            gather.take(&Envelope { seq: 1, at: Stamp(0), origin, event });
        }
        gather.fit()
    }

    fn until(all: impl IntoIterator<Item = Option<Stretch>>, end_us: i64) -> (usize, u64) {
        let mut stretches = Stretches::default();
        all.into_iter().for_each(|one| stretches.push(one));
        stretches.until(&clocks(&[(0, 0)]), end_us * 1_000)
    }

    #[test]
    fn behind_the_last_chunk_with_a_step_by_then_nothing_is_read() {
        let plain = || (0..10).map(|chunk| steps(chunk * 2 + 1, chunk * 2 + 2, chunk * 100));
        assert_eq!(until(plain(), 450), (5, 10));
        assert_eq!(until(plain(), -1), (0, 0));
        assert_eq!(until(plain(), i64::MAX / 1_000), (10, 20));
        // one that comes late, and a chunk without steps
        assert_eq!(until(plain().chain([None, steps(9, 9, 430), None]), 450), (12, 10));
        // a rank began the step later, or the ranks count anew
        assert_eq!(until(plain().chain([steps(10, 10, 5_000)]), 450), (11, 10));
        assert_eq!(until(plain().chain([steps(11, 11, 5_000)]), 450), (5, 10));
        // where no clock is known the arrival counts
        let unknown = Some(Stretch { hosts: BTreeMap::new(), arrived: 440_000, ..steps(90, 90, 0).unwrap() });
        assert_eq!(until(plain().chain([unknown]), 450), (11, 90));
    }

    #[test]
    fn of_a_long_recording_some_chunks_are_one() {
        let all = 5 * MOST as u64 + 3;
        let mut stretches = Stretches::default();
        (0..all).for_each(|chunk| stretches.push(steps(chunk + 1, chunk + 1, chunk)));
        assert_eq!((stretches.each, stretches.all.len()), (8, (all as usize).div_ceil(8)));
        let clocks = clocks(&[(0, 0)]);
        assert_eq!(stretches.until(&clocks, 20 * 1_000), (24, 24));
        assert_eq!(stretches.until(&clocks, i64::MAX), (all as usize, all));
        let whole = stretches.all.into_iter().fold(None, both);
        assert_eq!(whole, steps(1, all, 0));
    }

    #[test]
    fn where_a_clock_was_set_the_earliest_of_its_lines_counts() {
        let clocks = clocks(&[(0, 0), (10_000_000, -5_000_000)]);
        let (host, before, after) = (HostId::from("a"), HostTime(1_000_000), HostTime(20_000_000));
        let of = |time| (clocks.place(&host, time), clocks.earliest(&host, time));
        assert_eq!(of(before), (Some(1_000_000_000), Some(-4_000_000_000)));
        assert_eq!(of(after), (Some(15_000_000_000), Some(15_000_000_000)));
        assert_eq!(clocks.earliest(&HostId::from("b"), after), None);
    }
}
