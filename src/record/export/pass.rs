//! The one pass over a recording that all formats share: what belongs to the selection, in the order of the recording,
//! with its time on the client's clock.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::iter::Peekable;
use std::slice;

use serde_json::Value;

use super::super::error::Error;
use super::super::format::Channel;
use super::super::marks;
use super::super::reader::Reader;
use super::align::Clocks;
use super::allreduce::{Allreduce, Meetings};
use super::out::Out;
use super::parting::{Held, Parting};
use super::selection::{Chosen, Selection, Span};
use super::survey::{End, is_chosen, survey};
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
    /// Whether it writes stragglers, which takes all steps from the first one on.
    fn tells_stragglers(&self) -> bool {
        false
    }
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
    pub(super) trainers: BTreeSet<TrainerId>,
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
    export_by(reader, to, sink, selection, told, &Way { load: &needed, ends: true })
}

/// Reads what is needed of a chunk.
type Load<'a> = dyn Fn(&Reader, &Chosen<'_>, usize) -> Result<Vec<Envelope>, Error> + Sync + 'a;

/// How a recording is read.
struct Way<'a> {
    load: &'a Load<'a>,
    /// Whether it ends where nothing that is chosen comes any more.
    ends: bool,
}

/// What is needed of a chunk: all of it where it lies in the chosen time. Of any other one the steps, which say who was late and may have
/// been made long before they were told, the pings, by which that is judged, and what has no channel of its own.
fn needed(reader: &Reader, chosen: &Chosen<'_>, chunk: usize) -> Result<Vec<Envelope>, Error> {
    let is_chosen = is_chosen(reader, chosen, chunk);
    let is_needed = |channel| matches!(channel, Channel::Phase | Channel::Clock | Channel::Event);
    reader.load_untimed(chunk, |channel| is_chosen || is_needed(channel))
}

fn export_by(
    reader: &Reader,
    to: &mut dyn Write,
    sink: &mut dyn Sink,
    selection: &Selection,
    told: &mut dyn FnMut(f64),
    way: &Way<'_>,
) -> Result<Exported, Error> {
    let (run, end) = survey(reader, selection, &mut |share| told(share / 2.0));
    let end = if way.ends { end } else { End::of_all(reader) };
    let kept = marks::read(reader.path())?;
    let tells_stragglers = sink.tells_stragglers();
    let mut pass = Pass {
        out: Out::new(to, run.chosen.max_events()),
        run: &run,
        sink,
        marks: kept.all().iter().peekable(),
        stragglers: Stragglers::default(),
        judges: tells_stragglers,
        meetings: Meetings::default(),
        parting: Parting::default(),
        ways: BTreeMap::new(),
        world: run.world(),
        is_apart: run.is_apart(),
        unaligned_steps: 0,
    };
    let mut progress = Progress::of(reader);
    pass.sink.begin(&mut pass.out, &run).map_err(Error::Write)?;
    let is_over = Cell::new(end.chunks == 0);
    let (mut chunk, mut missing_chunks, mut written) = (0, 0, Ok(()));
    let mut take = |loaded: Result<Vec<Envelope>, Error>| {
        // a straggler is told when it is heard of
        pass.judges = tells_stragglers && chunk < end.heard;
        match loaded {
            Ok(envelopes) => {
                written = pass.chunk(&envelopes, &mut |at| {
                    if let Some(share) = progress.at(at) {
                        told(0.5 + share / 2.0);
                    }
                });
            }
            Err(_) => missing_chunks += 1,
        }
        chunk += 1;
        let has_all = chunk >= end.chunks && pass.parting.is_behind(end.newest);
        is_over.set(has_all || written.is_err() || pass.out.is_truncated());
    };
    let load = |chunk| (way.load)(reader, &run.chosen, chunk);
    reader.of_each(load, &mut |_| !is_over.get(), &mut take);
    written.map_err(Error::Write)?;
    if !pass.out.is_truncated() {
        missing_chunks += end.unread.iter().filter(|unread| **unread >= chunk).count() as u64;
    }
    pass.rest().map_err(Error::Write)?;
    let Pass { mut out, sink, unaligned_steps, .. } = pass;
    sink.end(&mut out, &run).and_then(|()| out.flush()).map_err(Error::Write)?;
    let (events, recorded, truncated) = (out.written(), out.recorded(), out.is_truncated());
    Ok(Exported { events, recorded, truncated, unaligned_steps, missing_chunks })
}

/// How much of a recording is read, by the time of its events.
pub(super) struct Progress {
    start: Stamp,
    length_us: i64,
    /// Percent that were told.
    told: i64,
}

impl Progress {
    pub(super) fn of(reader: &Reader) -> Self {
        let (start, end) = reader.range().unwrap_or_default();
        Self { start, length_us: end.micros_since(start).max(1), told: -1 }
    }

    /// The share that is read with an event of this moment, where that is one percent more.
    pub(super) fn at(&mut self, at: Stamp) -> Option<f64> {
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
pub(super) fn trainer(origin: &Origin) -> Option<TrainerId> {
    match origin {
        Origin::Rank(_, rank) => Some((*rank).into()),
        Origin::Worker(_, rank, worker) => Some(TrainerId::new(*rank, Some(*worker))),
        Origin::Host(_) | Origin::Run(_) => None,
    }
}

/// Where something lies whose host's clock is not known: its end is when it was heard of.
pub(super) fn by_arrival(arrived: Stamp, length_ns: i64) -> Span {
    let end = arrived.0.saturating_mul(1_000);
    (end.saturating_sub(length_ns), end)
}

struct Pass<'a, 'o> {
    out: Out<'o>,
    run: &'a Run<'a>,
    sink: &'o mut dyn Sink,
    /// Marks that were not given yet.
    marks: Peekable<slice::Iter<'a, RunMark>>,
    /// Stragglers: judged by all ranks, whichever are exported.
    stragglers: Stragglers,
    /// Whether they are looked for.
    judges: bool,
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
    /// Takes what is needed of a chunk, until there is no room for more. `read` is given the moment of each event.
    fn chunk(&mut self, envelopes: &[Envelope], read: &mut dyn FnMut(Stamp)) -> io::Result<()> {
        for envelope in envelopes {
            read(envelope.at);
            while let Some(mark) = self.marks.next_if(|mark| mark.at < envelope.at) {
                self.mark(mark)?;
            }
            self.take(envelope)?;
            if self.out.is_truncated() {
                break;
            }
        }
        Ok(())
    }

    /// Gives what is held, and the marks behind the last event.
    fn rest(&mut self) -> io::Result<()> {
        let held = self.parting.rest();
        self.held(&held)?;
        self.marks.clone().try_for_each(|mark| self.mark(mark))
    }

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
        self.sink.take(&mut self.out, self.run, item)
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
        // when it is heard of, as in a report
        let clock = self.clock_of(id.rank, timing.start);
        if self.is_apart {
            return self.give_step((id, clock), timing, arrived);
        }
        if self.judges {
            self.judge(id, timing, arrived)?;
        }
        if self.parting.holds(self.world) {
            let done = self.parting.step(self.world, Held { id, clock, arrived, timing: timing.clone() });
            return self.held(&done);
        }
        self.give_step((id, clock), timing, arrived)
    }

    /// Looks for a straggler; gives it where it has become one.
    fn judge(&mut self, id: TrainerId, timing: &StepTiming, arrived: Stamp) -> io::Result<()> {
        let before = self.stragglers.now().map(|now| now.rank);
        self.stragglers.step(self.world, Rank(id.number), timing);
        let now = self.stragglers.now().filter(|now| before != Some(now.rank)).cloned();
        let Some(straggler) = now else { return Ok(()) };
        let (at, id) = (arrived.0.saturating_mul(1_000), self.run.trainer(straggler.rank));
        if !self.run.chosen.has_trainer(id) {
            return Ok(());
        }
        self.at(at, &Item::Straggler { id, at, straggler: &straggler })
    }

    /// Gives steps that were held.
    fn held(&mut self, held: &[Held]) -> io::Result<()> {
        held.iter().try_for_each(|held| self.give_step((held.id, held.clock), &held.timing, held.arrived))
    }

    /// Gives a step, and behind the last one of all ranks their allreduce.
    fn give_step(
        &mut self,
        (id, clock): (TrainerId, HostClock),
        timing: &StepTiming,
        arrived: Stamp,
    ) -> io::Result<()> {
        let length = i64::from(timing.dur_us) * 1_000;
        let (span, is_aligned) = self.place(id.rank, Some(timing.start), length, arrived);
        let chosen = &self.run.chosen;
        if chosen.has_trainer(id) && chosen.has_step(timing.step) && chosen.has_span(span) {
            self.unaligned_steps += u64::from(!is_aligned);
            self.give(&Item::Step { id, span, timing })?;
        }
        let is_met = is_aligned && !self.is_apart;
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
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::domain::analysis::fixtures::{START, blank_sample, spec, timing};
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::fixtures::log_line;
    use crate::domain::hooks::StepsBy;
    use crate::domain::nccl_timing::CommId;
    use crate::record::Writer;
    use crate::record::export::selection::StepRange;
    use crate::record::export::{FORMATS, Format};

    const S: i64 = 1_000_000;

    /// A minute of two ranks, in so many attempts that count their steps from 1; those of the second come so many seconds late, as those of
    /// a host that was cut off.
    fn recorded(by: StepsBy, attempts: u64, late: i64) -> Vec<Envelope> {
        let spec = spec(2);
        let id = spec.id.clone();
        let rank = |rank: u32| Origin::Rank(id.clone(), Rank(rank));
        let host = || Origin::Host(HostId::from("gpu-a"));
        let mut told = vec![(0, Origin::Run(id.clone()), Event::RunCreated { spec: Arc::new(spec) })];
        told.extend((0..2).map(|number| (10, rank(number), Event::StepsBy { by })));
        for second in 1..=60_u64 {
            let now = second as i64 * S;
            let sample =
                ClockSample { host_time: HostTime(second * 1_000_000), offset_us: START.0, rtt_us: 80 };
            told.push((now, host(), Event::ClockSampled { sample }));
            told.push((now + 1, host(), blank_sample()));
            for number in 0..2 {
                let step = (second - 1) % (60 / attempts) + 1;
                let timing = timing(second, [10, 20, 30, 40 + 20 * number, 0, 7]);
                let late_us = late * S * i64::from(number);
                let done = Event::StepDone { timing: Arc::new(StepTiming { step, ..timing }) };
                told.push((now + 200_000 + late_us, rank(number), done));
                let line = Arc::new(log_line(number, format!("line {second}")));
                told.push((now + 500_000, rank(number), Event::LogPrinted { line }));
                let (name, value) = ("lr".into(), 0.5);
                let metric = Event::MetricReported { name, value, step: Some(step) };
                told.push((now + 600_000, rank(number), metric));
            }
        }
        told.sort_by_key(|(at, ..)| *at);
        let of = |(seq, (at, origin, event))| Envelope { seq, at: START.plus_micros(at), origin, event };
        (1..).zip(told).map(of).collect()
    }

    /// The recording and the chunks that it has.
    fn reader(folder: &Path, recorded: Vec<Envelope>) -> Reader {
        let path = folder.join("run.mcap");
        let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
        for envelope in recorded {
            writer.push(envelope).unwrap();
        }
        writer.finish().unwrap();
        Reader::open(&path).unwrap()
    }

    /// What an export writes, what is told of it, and how many events were read for it.
    fn exported(
        (reader, selection, format): (&Reader, &Selection, &Format),
        way: &Way<'_>,
    ) -> (Vec<u8>, Exported, usize) {
        let count = AtomicUsize::new(0);
        let load = |reader: &Reader, chosen: &Chosen<'_>, chunk: usize| -> Result<_, Error> {
            let loaded = (way.load)(reader, chosen, chunk)?;
            count.fetch_add(loaded.len(), Ordering::Relaxed);
            Ok(loaded)
        };
        let (mut bytes, mut sink) = (Vec::new(), (format.sink)());
        let way = Way { load: &load, ends: way.ends };
        let exported = export_by(reader, &mut bytes, &mut *sink, selection, &mut |_| (), &way).unwrap();
        (bytes, exported, count.into_inner())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as it is where it is given")]
    fn moment(second: i64) -> Option<Stamp> {
        Some(START.plus_micros(second * S))
    }

    #[expect(clippy::unnecessary_wraps, reason = "as it is where it is given")]
    fn steps(first: u64, last: u64) -> Option<StepRange> {
        Some(StepRange { first: Some(first), last: Some(last) })
    }

    #[test]
    fn a_part_is_the_same_whether_all_is_read_or_what_is_needed() {
        let second = || Selection { from: moment(30), to: moment(31), ..Selection::default() };
        let selections = [
            Selection::default(),
            Selection { from: moment(59), ..Selection::default() },
            Selection { to: moment(2), ..Selection::default() },
            Selection { steps: steps(30, 31), ..Selection::default() },
            Selection { steps: steps(70, 71), ..Selection::default() },
            Selection { ranks: Some(vec![Rank(1)]), ..second() },
            Selection { steps: steps(10, 90), max_events: Some(9), ..second() },
            second(),
        ];
        let (hooks, program) = (StepsBy::Hooks, StepsBy::Program);
        for (by, attempts, late) in [(hooks, 1, 20), (hooks, 3, 20), (hooks, 1, 0), (program, 1, 20)] {
            let folder = tempfile::tempdir().unwrap();
            let reader = reader(folder.path(), recorded(by, attempts, late));
            for (selection, format) in selections.iter().flat_map(|of| FORMATS.map(|format| (of, format))) {
                let of = |load: &Load<'_>, ends| exported((&reader, selection, format), &Way { load, ends });
                let (all, some) = (of(&everything, false), of(&needed, true));
                let is_same = all.0 == some.0 && all.1 == some.1;
                let name = format.name;
                assert!(is_same, "{name} of {selection:?}, {by:?}, {attempts} attempts, {late} s late");
            }
        }
    }

    #[test]
    fn of_a_part_the_chunks_behind_it_are_not_read() {
        let selection = Selection { to: moment(10), ..Selection::default() };
        // a chunk that has a late step tells others too, whose other rank is as late
        for (attempts, late, last) in [(1, 0, 10), (1, 20, 50), (3, 0, 50)] {
            let folder = tempfile::tempdir().unwrap();
            let reader = reader(folder.path(), recorded(StepsBy::Hooks, attempts, late));
            let (_, end) = survey(&reader, &selection, &mut |_| ());
            let told_by = |chunks: usize| reader.chunk_span(chunks - 1).unwrap().1.micros_since(START);
            let is_of = |second: i64, at: i64| (second * S..(second + 2) * S).contains(&at);
            assert!(is_of(10, told_by(end.heard)) && is_of(last, told_by(end.chunks)), "{last}: {end:?}");
            let what = (&reader, &selection, FORMATS[0]);
            let of = |load: &Load<'_>, ends| exported(what, &Way { load, ends }).2;
            let (all, some) = (of(&everything, false), of(&needed, true));
            let most = if last == 10 { all / 3 } else { all / 2 };
            assert!(some < most, "{last}: {some} of {all} events are read for ten seconds");
        }
    }

    #[test]
    fn collectives_that_are_told_late_are_read_behind_the_part() {
        let mut told = recorded(StepsBy::Program, 1, 0);
        told.retain(|envelope| !matches!(envelope.event, Event::StepDone { .. }));
        for envelope in &mut told {
            let Event::MetricReported { step: Some(second), .. } = envelope.event else { continue };
            let timing = CollectiveTiming {
                comm: CommId(7),
                ranks: 2,
                comm_rank: 0,
                func: "AllReduce".to_owned(),
                seq: second,
                bytes: 1 << 20,
                datatype: String::new(),
                // from the 21st on it is told 20 s later
                t: Some(HostTime(second.saturating_sub(20) * 1_000_000 + 500_000)),
                dur_ns: 1_000_000,
                gpu_ns: None,
                every: 1,
                lost: 0,
            };
            envelope.event = Event::CollectiveDone { timing: Box::new(timing) };
        }
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(folder.path(), told);
        let selection = Selection { from: moment(5), to: moment(10), ..Selection::default() };
        let (_, end) = survey(&reader, &selection, &mut |_| ());
        assert!(end.heard < end.chunks && end.chunks < reader.chunk_count(), "{end:?}");
        for format in FORMATS {
            let of = |load: &Load<'_>, ends| exported((&reader, &selection, format), &Way { load, ends });
            let (all, some) = (of(&everything, false), of(&needed, true));
            assert!(all.0 == some.0 && all.1 == some.1, "{}", format.name);
        }
        let jsonl = Format::named("jsonl").unwrap();
        let (bytes, ..) = exported((&reader, &selection, jsonl), &Way { load: &needed, ends: true });
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("AllReduce").count(), 10, "five of two ranks: {text}");
    }

    fn everything(reader: &Reader, _: &Chosen<'_>, chunk: usize) -> Result<Vec<Envelope>, Error> {
        reader.load_untimed(chunk, |_| true)
    }
}
