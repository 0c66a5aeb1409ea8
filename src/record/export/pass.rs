//! The one pass over a recording that all formats share: what belongs to the selection, in the order of the recording,
//! with its time on the client's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::Value;

use super::super::error::Error;
use super::super::format::Channel;
use super::super::marks;
use super::super::reader::Reader;
use super::align::{Clocks, Gather};
use super::allreduce::{Allreduce, Meetings};
use super::out::Out;
use super::parting::{Held, Parting};
use super::selection::{Chosen, Selection, Span};
use super::told::Told;
use crate::domain::clock_fit::ClockFit;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::host::HostSample;
use crate::domain::ids::{HostId, Rank};
use crate::domain::last_in::HostClock;
use crate::domain::log::{LogGap, LogLine};
use crate::domain::marks::RunMark;
use crate::domain::nccl_timing::CollectiveTiming;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::RunSpec;
use crate::domain::straggler::{Straggler, Stragglers};
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::StepTiming;
use crate::domain::trainer_keys::TrainerId;

/// What a format makes of a recording. Errors are those of the writing.
pub(super) trait Sink {
    /// What stands before everything else.
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()>;
    /// One thing of the recording.
    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()>;
    /// What stands behind everything else.
    fn end(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()>;
}

/// What is known of the run from the start.
pub(super) struct Run<'a> {
    /// `None` when the chunk that tells it is lost.
    pub(super) spec: Option<&'a RunSpec>,
    /// What belongs to the selection.
    pub(super) chosen: Chosen<'a>,
    /// The clocks of its hosts.
    pub(super) clocks: Clocks,
    /// When the recording begins.
    pub(super) start: Stamp,
    /// How the run ended, as far as the recording tells.
    pub(super) outcome: Option<&'a RunOutcome>,
    /// What its steps tell at all, chosen or not.
    pub(super) told: Told,
    /// Those that tell steps, where processes within ranks are among them.
    trainers: BTreeSet<TrainerId>,
}

impl Run<'_> {
    /// How many tell each step.
    fn world(&self) -> usize {
        match self.trainers.len() {
            0 => self.spec.map_or(0, |spec| spec.placements.len()),
            trainers => trainers,
        }
    }

    /// Whether one number stands for several: then each rank holds a training of its own, and none waits for one of another rank.
    fn is_apart(&self) -> bool {
        let numbers: BTreeSet<u32> = self.trainers.iter().map(|id| id.number).collect();
        numbers.len() < self.trainers.len()
    }

    /// The one that trains under a number.
    fn trainer(&self, number: Rank) -> TrainerId {
        self.trainers.iter().find(|id| id.number == number.0).copied().unwrap_or(number.into())
    }

    /// Which run it is, for the metadata of a file; nothing where that is lost.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let Some(spec) = self.spec else { return Vec::new() };
        vec![
            ("run", spec.id.to_string()),
            ("name", spec.name.clone()),
            ("command", shlex::try_join(spec.command.iter().map(String::as_str)).unwrap_or_default()),
            ("ranks", spec.world().to_string()),
            ("created", spec.created.rfc3339()),
            ("outcome", self.outcome.map_or_else(String::new, |outcome| outcome.summary.clone())),
        ]
    }

    /// A moment in microseconds since the recording's start, with three decimals where they are needed. Counted since
    /// the Unix epoch, readers' floats would lose the last digits.
    pub(super) fn micros(&self, at: i64) -> Value {
        decimal_micros(i128::from(at) - i128::from(self.start.0) * 1_000)
    }
}

/// How long a span is, in microseconds likewise.
pub(super) fn length((start, end): Span) -> Value {
    decimal_micros(i128::from(end) - i128::from(start))
}

fn decimal_micros(ns: i128) -> Value {
    if ns % 1_000 == 0 {
        i64::try_from(ns / 1_000).map_or(Value::Null, Value::from)
    } else {
        Value::from(ns as f64 / 1e3)
    }
}

/// One thing of the recording. Times are nanoseconds since the Unix epoch by the client's clock.
pub(super) enum Item<'a> {
    /// A step of one that trains.
    Step { id: TrainerId, span: Span, timing: &'a StepTiming },
    /// The allreduce of a step of which all ranks have told, on clocks that are known; after their steps.
    Allreduce(&'a Allreduce),
    /// A number that one reported by name.
    Metric { id: TrainerId, at: i64, name: &'a str, value: f64, step: Option<u64> },
    /// A collective of NCCL on the GPU of one.
    Collective { id: TrainerId, span: Span, timing: &'a CollectiveTiming },
    /// A line that a rank printed.
    Line { at: i64, line: &'a LogLine },
    /// Bytes that a rank printed and that are missing.
    Gap { at: i64, gap: &'a LogGap },
    /// One that trains became a straggler.
    Straggler { id: TrainerId, at: i64, straggler: &'a Straggler },
    /// A mark that a person has set.
    Mark { at: i64, mark: &'a RunMark },
    /// The values of a host.
    Host { at: i64, host: &'a HostId, sample: &'a HostSample },
    /// Whatever else happened, but for what only the recording itself needs.
    Other { at: i64, origin: &'a Origin, event: &'a Event },
}

/// What was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Events written: lines, rows or samples where the format has those.
    pub events: u64,
    /// Those of them that come from the recording: the others name things.
    pub recorded: u64,
    /// Whether there was more than `max_events` allowed.
    pub truncated: bool,
    /// Steps of hosts without a clock sample: placed by their arrival, not to be compared with others'.
    pub unaligned_steps: u64,
    /// Chunks that could not be read and are missing.
    pub missing_chunks: u64,
}

/// Writes what `selection` takes of a recording.
pub(super) fn export(
    reader: &Reader,
    to: &mut dyn Write,
    sink: &mut dyn Sink,
    selection: &Selection,
    told: &mut dyn FnMut(f64),
) -> Result<Exported, Error> {
    export_by(reader, to, sink, selection, told, &needed)
}

/// Reads what is needed of a chunk.
type Load<'a> = dyn Fn(&Reader, &Chosen<'_>, usize) -> Result<Vec<Envelope>, Error> + 'a;

/// What is needed of a chunk: all of it where it lies in the chosen time. Of any other one the steps, which say who was late and may have
/// been made long before they were told, the pings, by which that is judged, and what has no channel of its own.
fn needed(reader: &Reader, chosen: &Chosen<'_>, chunk: usize) -> Result<Vec<Envelope>, Error> {
    let nanos = |at: Stamp| at.0.saturating_mul(1_000);
    let is_chosen =
        reader.note(chunk).is_none_or(|note| chosen.has_span((nanos(note.start), nanos(note.end))));
    let is_needed = |channel| matches!(channel, Channel::Phase | Channel::Clock | Channel::Event);
    reader.load_untimed(chunk, |channel| is_chosen || is_needed(channel))
}

fn export_by(
    reader: &Reader,
    to: &mut dyn Write,
    sink: &mut dyn Sink,
    selection: &Selection,
    told: &mut dyn FnMut(f64),
    load: &Load<'_>,
) -> Result<Exported, Error> {
    let run = survey(reader, selection, &mut |share| told(share / 2.0));
    let (world, is_apart) = (run.world(), run.is_apart());
    let out = Out::new(to, run.chosen.max_events());
    let (stragglers, meetings) = (Stragglers::default(), Meetings::default());
    let kept = marks::read(reader.path())?;
    let mut marks = kept.all().iter().peekable();
    let (parting, ways, unaligned_steps) = (Parting::default(), BTreeMap::new(), 0);
    let mut pass =
        Pass { out, run, sink, stragglers, meetings, parting, ways, world, is_apart, unaligned_steps };
    let mut missing_chunks = 0;
    let mut progress = Progress::of(reader);
    pass.sink.begin(&mut pass.out, &pass.run).map_err(Error::Write)?;
    'chunks: for chunk in 0..reader.chunk_count() {
        let Ok(envelopes) = load(reader, &pass.run.chosen, chunk) else {
            missing_chunks += 1;
            continue;
        };
        for envelope in envelopes {
            if let Some(share) = progress.at(envelope.at) {
                told(0.5 + share / 2.0);
            }
            while let Some(mark) = marks.next_if(|mark| mark.at < envelope.at) {
                pass.mark(mark).map_err(Error::Write)?;
            }
            pass.take(&envelope).map_err(Error::Write)?;
            if pass.out.is_truncated() {
                break 'chunks;
            }
        }
    }
    let held = pass.parting.rest();
    pass.held(&held).map_err(Error::Write)?;
    marks.try_for_each(|mark| pass.mark(mark)).map_err(Error::Write)?;
    let Pass { mut out, run, sink, unaligned_steps, .. } = pass;
    sink.end(&mut out, &run).and_then(|()| out.flush()).map_err(Error::Write)?;
    let (events, recorded, truncated) = (out.written(), out.recorded(), out.is_truncated());
    Ok(Exported { events, recorded, truncated, unaligned_steps, missing_chunks })
}

/// What must be known before anything is written: the hosts' clocks, what steps tell, and when the chosen ones were.
fn survey<'a>(reader: &'a Reader, selection: &'a Selection, read: &mut dyn FnMut(f64)) -> Run<'a> {
    let mut progress = Progress::of(reader);
    let (start, _) = reader.range().unwrap_or_default();
    let spec = reader.spec();
    let chosen = Chosen::new(selection, spec);
    let wants = |channel| matches!(channel, Channel::Clock | Channel::Phase);
    let (mut gather, mut when, mut told) = (Gather::default(), When::default(), Told::of(spec));
    let mut trainers = BTreeSet::new();
    for envelope in reader.select(.., wants).flatten() {
        if let Some(share) = progress.at(envelope.at) {
            read(share);
        }
        gather.take(&envelope);
        if let (Event::StepDone { timing }, Some(id)) = (&envelope.event, trainer(&envelope.origin)) {
            told.take(timing);
            trainers.insert(id);
        }
        if chosen.is_by_steps() {
            when.take(&chosen, &envelope);
        }
    }
    if trainers.iter().all(|id| id.worker().is_none()) {
        trainers.clear();
    }
    let outcome = reader.outcome();
    let mut run = Run { spec, chosen, clocks: gather.fit(), start, outcome, told, trainers };
    // an open range reaches to the end of the recording: what follows the last step, such as a failure, is in it
    let is_open = selection.steps.is_some_and(|steps| steps.last.is_none());
    let during = when.during(&run.clocks);
    run.chosen.set_during(during.map(|(first, last)| (first, if is_open { i64::MAX } else { last })));
    run
}

/// When the selected steps of the selected ranks were made, nanoseconds since the Unix epoch by the client's clock, without end where
/// their range is open; `None` where no rank tells any, or none are selected.
pub(in super::super) fn during(reader: &Reader, selection: &Selection) -> Option<Span> {
    survey(reader, selection, &mut |_| ()).chosen.during()
}

/// How much of a recording is read, by the time of its events.
struct Progress {
    start: Stamp,
    length_us: i64,
    /// Percent that were told.
    told: i64,
}

impl Progress {
    fn of(reader: &Reader) -> Self {
        let (start, end) = reader.range().unwrap_or_default();
        Self { start, length_us: end.micros_since(start).max(1), told: -1 }
    }

    /// The share that is read with an event of this moment, where that is one percent more.
    fn at(&mut self, at: Stamp) -> Option<f64> {
        let share = (at.micros_since(self.start) as f64 / self.length_us as f64).clamp(0.0, 1.0);
        let percent = (share * 100.0) as i64;
        if percent <= self.told {
            return None;
        }
        self.told = percent;
        Some(share)
    }
}

/// Which of those that train an event is about.
fn trainer(origin: &Origin) -> Option<TrainerId> {
    match origin {
        Origin::Rank(_, rank) => Some((*rank).into()),
        Origin::Worker(_, rank, worker) => Some(TrainerId::new(*rank, Some(*worker))),
        Origin::Host(_) | Origin::Run(_) => None,
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
    fn take(&mut self, chosen: &Chosen<'_>, envelope: &Envelope) {
        let (Event::StepDone { timing }, Some(id)) = (&envelope.event, trainer(&envelope.origin)) else {
            return;
        };
        if !chosen.has_trainer(id) || !chosen.has_step(timing.step) {
            return;
        }
        let length_us = i64::from(timing.dur_us);
        let end = HostTime(timing.start.0.saturating_add(u64::from(timing.dur_us)));
        if let Some(placement) = chosen.placement(id.rank) {
            let (first, last) = self.hosts.entry(placement.host.clone()).or_insert((timing.start, end));
            (*first, *last) = ((*first).min(timing.start), (*last).max(end));
        }
        let arrived = by_arrival(envelope.at, length_us.saturating_mul(1_000));
        self.arrived = Some(joined(self.arrived, arrived));
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

/// Where something lies whose host's clock is not known: its end is when it was heard of.
fn by_arrival(arrived: Stamp, length_ns: i64) -> Span {
    let end = arrived.0.saturating_mul(1_000);
    (end.saturating_sub(length_ns), end)
}

struct Pass<'a, 'o> {
    out: Out<'o>,
    run: Run<'a>,
    sink: &'o mut dyn Sink,
    /// Stragglers: judged by all ranks, whichever are exported.
    stragglers: Stragglers,
    /// Allreduces likewise.
    meetings: Meetings,
    /// Steps that hooks tell.
    parting: Parting,
    /// The hosts, each with its number and what messages to it take; as a report has them, by the pings so far.
    ways: BTreeMap<HostId, (usize, ClockFit)>,
    world: usize,
    is_apart: bool,
    unaligned_steps: u64,
}

impl Pass<'_, '_> {
    fn take(&mut self, envelope: &Envelope) -> io::Result<()> {
        let at = envelope.at.0.saturating_mul(1_000);
        match (&envelope.event, &envelope.origin) {
            (Event::ClockSampled { sample }, Origin::Host(host)) => {
                let number = self.ways.len() + 1;
                self.ways.entry(host.clone()).or_insert_with(|| (number, ClockFit::default())).1.add(*sample);
                Ok(())
            }
            (Event::StepDone { timing }, Origin::Rank(..) | Origin::Worker(..)) => {
                trainer(&envelope.origin).map_or(Ok(()), |id| self.step(id, timing, envelope.at))
            }
            (Event::StepsBy { by }, origin @ (Origin::Rank(..) | Origin::Worker(..))) => {
                let held = trainer(origin).map_or_else(Vec::new, |id| self.parting.told_by(id, *by));
                self.held(&held)
            }
            (event @ Event::RunRestarted { .. }, origin) => {
                let held = self.parting.rest();
                self.held(&held)?;
                self.at(at, &Item::Other { at, origin, event })
            }
            (Event::CollectiveDone { timing }, origin @ (Origin::Rank(..) | Origin::Worker(..))) => {
                trainer(origin).map_or(Ok(()), |id| self.collective(id, timing, envelope.at))
            }
            (Event::MetricReported { name, value, step }, origin) => {
                let id = trainer(origin).filter(|id| self.run.chosen.has_trainer(*id));
                let is_chosen = step.is_none_or(|step| self.run.chosen.has_step(step));
                id.filter(|_| is_chosen).map_or(Ok(()), |id| {
                    self.at(at, &Item::Metric { id, at, name, value: *value, step: *step })
                })
            }
            (Event::LogGap { gap }, _) if self.run.chosen.has_rank(gap.rank) => {
                self.at(at, &Item::Gap { at, gap })
            }
            (Event::LogPrinted { line }, _) if self.run.chosen.has_rank(line.rank) => {
                self.at(at, &Item::Line { at, line })
            }
            (Event::HostSampled { sample }, Origin::Host(host)) if self.run.chosen.has_host(host) => {
                self.at(at, &Item::Host { at, host, sample })
            }
            (
                Event::StepDone { .. }
                | Event::StepsBy { .. }
                | Event::ClockSampled { .. }
                | Event::CollectiveDone { .. }
                | Event::LogGap { .. }
                | Event::LogPrinted { .. }
                | Event::LogUnfinished { .. }
                | Event::HostSampled { .. }
                | Event::ReportsRead { .. },
                _,
            ) => Ok(()),
            (event, origin) if self.is_chosen(origin) => self.at(at, &Item::Other { at, origin, event }),
            _ => Ok(()),
        }
    }

    /// Whether whom an event is about is chosen.
    fn is_chosen(&self, origin: &Origin) -> bool {
        match origin {
            Origin::Run(_) => self.run.spec.is_none() || self.run.chosen.placements().next().is_some(),
            Origin::Host(host) => self.run.chosen.has_host(host),
            Origin::Rank(_, rank) => self.run.chosen.has_rank(*rank),
            Origin::Worker(_, rank, worker) => {
                self.run.chosen.has_trainer(TrainerId::new(*rank, Some(*worker)))
            }
        }
    }

    fn give(&mut self, item: &Item<'_>) -> io::Result<()> {
        self.sink.take(&mut self.out, &self.run, item)
    }

    /// Gives what happened at a moment, if that is chosen.
    fn at(&mut self, at: i64, item: &Item<'_>) -> io::Result<()> {
        if self.run.chosen.has_moment(at) { self.give(item) } else { Ok(()) }
    }

    fn mark(&mut self, mark: &RunMark) -> io::Result<()> {
        if mark.rank.is_some_and(|rank| !self.run.chosen.has_rank(rank)) {
            return Ok(());
        }
        let at = mark.at.0.saturating_mul(1_000);
        self.at(at, &Item::Mark { at, mark })
    }

    fn step(&mut self, id: TrainerId, timing: &StepTiming, arrived: Stamp) -> io::Result<()> {
        if self.is_apart {
            return self.give_step(id, timing, arrived);
        }
        let before = self.stragglers.now().map(|now| now.rank);
        self.stragglers.step(self.world, Rank(id.number), timing);
        if let Some(now) = self.stragglers.now().filter(|now| before != Some(now.rank)).cloned() {
            let (at, late) = (arrived.0.saturating_mul(1_000), self.run.trainer(now.rank));
            if self.run.chosen.has_trainer(late) {
                self.at(at, &Item::Straggler { id: late, at, straggler: &now })?;
            }
        }
        if self.parting.holds(self.world) {
            let done = self.parting.step(self.world, Held { id, arrived, timing: timing.clone() });
            return self.held(&done);
        }
        self.give_step(id, timing, arrived)
    }

    /// Gives steps that were held.
    fn held(&mut self, held: &[Held]) -> io::Result<()> {
        held.iter().try_for_each(|held| self.give_step(held.id, &held.timing, held.arrived))
    }

    /// Gives a step, and behind the last one of all ranks their allreduce.
    fn give_step(&mut self, id: TrainerId, timing: &StepTiming, arrived: Stamp) -> io::Result<()> {
        let length = i64::from(timing.dur_us) * 1_000;
        let (span, is_aligned) = self.place(id.rank, Some(timing.start), length, arrived);
        let chosen = &self.run.chosen;
        if chosen.has_trainer(id) && chosen.has_step(timing.step) && chosen.has_span(span) {
            self.unaligned_steps += u64::from(!is_aligned);
            self.give(&Item::Step { id, span, timing })?;
        }
        let is_met = is_aligned && !self.is_apart;
        let clock = self.clock_of(id.rank, timing.start);
        let whole = if is_met { self.meetings.take(self.world, (id, clock), timing, span) } else { None };
        let chosen = |whole: &Allreduce| {
            let is_in_time = whole.span().is_some_and(|span| self.run.chosen.has_span(span));
            let has_rank = whole.arrivals.iter().any(|arrival| self.run.chosen.has_trainer(arrival.id));
            is_in_time && has_rank && self.run.chosen.has_step(whole.step)
        };
        whole.filter(chosen).map_or(Ok(()), |whole| self.give(&Item::Allreduce(&whole)))
    }

    fn collective(&mut self, id: TrainerId, timing: &CollectiveTiming, arrived: Stamp) -> io::Result<()> {
        let length = i64::try_from(timing.dur_ns).unwrap_or(i64::MAX);
        let (span, _) = self.place(id.rank, timing.t, length, arrived);
        if !self.run.chosen.has_trainer(id) || !self.run.chosen.has_span(span) {
            return Ok(());
        }
        self.give(&Item::Collective { id, span, timing })
    }

    /// The host of a rank, with what messages to it took at a moment of it.
    fn clock_of(&self, rank: Rank, time: HostTime) -> HostClock {
        let host = self.run.chosen.placement(rank).map(|placement| &placement.host);
        let way = host.and_then(|host| self.ways.get(host));
        way.map_or_else(HostClock::default, |(host, fit)| HostClock {
            host: *host,
            unsure_us: fit.way_us(time),
        })
    }

    /// When something was that a rank tells of by its host's clock, and whether that clock is known.
    fn place(&self, rank: Rank, start: Option<HostTime>, length_ns: i64, arrived: Stamp) -> (Span, bool) {
        let host = self.run.chosen.placement(rank).map(|placement| &placement.host);
        match host.zip(start).and_then(|(host, start)| self.run.clocks.place(host, start)) {
            Some(start) => ((start, start.saturating_add(length_ns)), true),
            None => (by_arrival(arrived, length_ns), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{START, blank_sample, spec, timing};
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::fixtures::log_line;
    use crate::domain::hooks::StepsBy;
    use crate::record::Writer;
    use crate::record::export::FORMATS;
    use crate::record::export::selection::StepRange;

    const S: i64 = 1_000_000;

    /// A minute of two ranks, whose steps hooks tell; those of the second come 20 s late, as those of a host that was cut off.
    fn recorded() -> Vec<Envelope> {
        let spec = spec(2);
        let id = spec.id.clone();
        let rank = |rank: u32| Origin::Rank(id.clone(), Rank(rank));
        let host = || Origin::Host(HostId::from("gpu-a"));
        let mut told = vec![(0, Origin::Run(id.clone()), Event::RunCreated { spec: Arc::new(spec) })];
        told.extend((0..2).map(|number| (10, rank(number), Event::StepsBy { by: StepsBy::Hooks })));
        for second in 1..=60_u64 {
            let now = second as i64 * S;
            let sample =
                ClockSample { host_time: HostTime(second * 1_000_000), offset_us: START.0, rtt_us: 80 };
            told.push((now, host(), Event::ClockSampled { sample }));
            told.push((now + 1, host(), blank_sample()));
            for number in 0..2 {
                let timing = timing(second, [10, 20, 30, 40 + 20 * number, 0, 7]);
                let late = 20 * S * i64::from(number);
                let done = Event::StepDone { timing: Arc::new(timing) };
                told.push((now + 200_000 + late, rank(number), done));
                let line = Arc::new(log_line(number, format!("line {second}")));
                told.push((now + 500_000, rank(number), Event::LogPrinted { line }));
                let (name, value) = ("lr".into(), 0.5);
                let metric = Event::MetricReported { name, value, step: Some(second) };
                told.push((now + 600_000, rank(number), metric));
            }
        }
        told.sort_by_key(|(at, ..)| *at);
        let of = |(seq, (at, origin, event))| Envelope { seq, at: START.plus_micros(at), origin, event };
        (1..).zip(told).map(of).collect()
    }

    #[test]
    fn a_part_is_the_same_whether_all_is_read_or_what_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
        for envelope in recorded() {
            writer.push(envelope).unwrap();
        }
        writer.finish().unwrap();
        let reader = Reader::open(&path).unwrap();
        let moment = |second: i64| Some(START.plus_micros(second * S));
        let second = Selection { from: moment(30), to: moment(31), ..Selection::default() };
        let steps = Some(StepRange { first: Some(30), last: Some(31) });
        let selections = [
            Selection::default(),
            Selection { from: moment(59), ..Selection::default() },
            Selection { to: moment(2), ..Selection::default() },
            Selection { steps, ..Selection::default() },
            second,
        ];
        let mut read = (0, 0);
        for (selection, format) in selections.iter().flat_map(|of| FORMATS.map(|format| (of, format))) {
            let count = Cell::new(0);
            let of = |load: &Load<'_>| {
                count.set(0);
                let counted = |reader: &Reader, chosen: &Chosen<'_>, chunk: usize| -> Result<_, Error> {
                    let loaded = load(reader, chosen, chunk)?;
                    count.set(count.get() + loaded.len());
                    Ok(loaded)
                };
                let (mut bytes, mut sink) = (Vec::new(), (format.sink)());
                let exported = export_by(&reader, &mut bytes, &mut *sink, selection, &mut |_| (), &counted);
                (bytes, exported.unwrap(), count.get())
            };
            let all = of(&everything);
            let some = of(&needed);
            assert!(all.0 == some.0 && all.1 == some.1, "{} of {selection:?}", format.name);
            read = (all.2, some.2);
        }
        let (all, some) = read;
        assert!(some < all / 2, "{some} of {all} events are read for one second");
    }

    fn everything(reader: &Reader, _: &Chosen<'_>, chunk: usize) -> Result<Vec<Envelope>, Error> {
        reader.load_untimed(chunk, |_| true)
    }
}
