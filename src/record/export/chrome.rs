//! Chrome trace JSON, for Perfetto, Chrome's own viewer and speedscope.
//!
//! The array form, one event a line, the separator before every event but the first and `]` at the
//! close: valid when closed, and what readers of cut files forgive when not. A process is a rank; its
//! threads are its steps (0), its computing (1), its communication (2) and, where they are known, the collectives of
//! NCCL on its GPU (3), because slices of one
//! thread must nest and communication may overlap the backward pass.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::super::error::Error;
use super::super::reader::Reader;
use super::align::{Clocks, Gather};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::gpu::GpuSample;
use crate::domain::host::HostSample;
use crate::domain::ids::{HostId, Rank};
use crate::domain::log::{LogGap, LogLine};
use crate::domain::log_text::{self, level::Level};
use crate::domain::nccl_timing::CollectiveTiming;
use crate::domain::run::{Placement, RunSpec, Slot};
use crate::domain::straggler::Stragglers;
use crate::domain::time::Stamp;
use crate::domain::timing::{Phase, StepTiming};

const STEPS: u32 = 0;
const COMPUTE: u32 = 1;
const COMM: u32 = 2;
const NCCL: u32 = 3;
const THREADS: [(u32, &str); 3] = [(STEPS, "steps"), (COMPUTE, "compute"), (COMM, "comm")];

/// What to export.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// From this moment; the start of the recording when absent.
    pub from: Option<Stamp>,
    /// Up to this moment; the end of the recording when absent.
    pub to: Option<Stamp>,
    /// These ranks; all when absent.
    pub ranks: Option<Vec<Rank>>,
    /// At most so many events; viewers in a browser give up at about a million.
    pub max_events: Option<u64>,
}

/// What was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Events written.
    pub events: u64,
    /// Whether there was more than `max_events` allowed.
    pub truncated: bool,
    /// Steps of hosts without a clock sample: placed by their arrival, not to be compared with others'.
    pub unaligned_steps: u64,
    /// Chunks that could not be read and are missing.
    pub missing_chunks: u64,
}

/// Writes a recording as a Chrome trace.
///
/// # Errors
/// When `to` can't be written.
pub fn export(reader: &Reader, to: impl Write, options: &Options) -> Result<Exported, Error> {
    let mut gather = Gather::default();
    for envelope in reader.envelopes(..).flatten() {
        gather.take(&envelope);
    }
    let (start, _) = reader.range().unwrap_or_default();
    let mut trace = Trace {
        out: Lines { to, written: 0, limit: options.max_events.unwrap_or(u64::MAX), truncated: false },
        clocks: gather.fit(),
        origin_ns: start.0.saturating_mul(1_000),
        options,
        ranks: Ranks::of(reader.spec(), options.ranks.as_deref()),
        last_end: BTreeMap::new(),
        stragglers: Stragglers::default(),
        world: reader.spec().map_or(0, |spec| spec.placements.len()),
        report: Exported::default(),
    };
    trace.out.begin()?;
    trace.name_ranks(start)?;
    for envelope in reader.envelopes(..) {
        match envelope {
            Ok(envelope) => trace.take(&envelope)?,
            Err(_) => trace.report.missing_chunks += 1,
        }
        if trace.out.truncated {
            break;
        }
    }
    trace.out.end()?;
    Ok(Exported { events: trace.out.written, truncated: trace.out.truncated, ..trace.report })
}

/// The array: what keeps it valid.
struct Lines<W> {
    to: W,
    written: u64,
    limit: u64,
    truncated: bool,
}

impl<W: Write> Lines<W> {
    fn begin(&mut self) -> Result<(), Error> {
        self.to.write_all(b"[").map_err(Error::Write)
    }

    fn event(&mut self, event: &Value) -> Result<(), Error> {
        if self.written >= self.limit {
            self.truncated = true;
            return Ok(());
        }
        let before = if self.written == 0 { "\n" } else { ",\n" };
        self.to.write_all(before.as_bytes()).map_err(Error::Write)?;
        serde_json::to_writer(&mut self.to, event).map_err(|error| Error::Write(error.into()))?;
        self.written += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        self.to.write_all(b"\n]\n").map_err(Error::Write)?;
        self.to.flush().map_err(Error::Write)
    }
}

/// The ranks that are exported and where they run.
struct Ranks {
    placements: Vec<Placement>,
    /// Without a spec every rank is taken, unless some were asked for.
    known: bool,
    wanted: Option<Vec<Rank>>,
}

impl Ranks {
    fn of(spec: Option<&RunSpec>, wanted: Option<&[Rank]>) -> Self {
        let wanted = wanted.map(<[Rank]>::to_vec);
        let mut placements = spec.map(|spec| spec.placements.clone()).unwrap_or_default();
        placements.retain(|placement| wanted.as_ref().is_none_or(|wanted| wanted.contains(&placement.rank)));
        Self { placements, known: spec.is_some(), wanted }
    }

    fn placement(&self, rank: Rank) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.rank == rank)
    }

    fn wants(&self, rank: Rank) -> bool {
        match &self.wanted {
            Some(wanted) => wanted.contains(&rank),
            None => !self.known || self.placement(rank).is_some(),
        }
    }
}

struct Trace<'a, W> {
    out: Lines<W>,
    clocks: Clocks,
    origin_ns: i64,
    options: &'a Options,
    ranks: Ranks,
    /// Where the last slice of a thread of a rank ended, nanoseconds.
    last_end: BTreeMap<(Rank, u32), i64>,
    /// Stragglers: judged by all ranks, whichever are exported.
    stragglers: Stragglers,
    world: usize,
    report: Exported,
}

impl<W: Write> Trace<'_, W> {
    fn name_ranks(&mut self, start: Stamp) -> Result<(), Error> {
        for placement in self.ranks.placements.clone() {
            let place = match &placement.slot {
                Slot::Gpu { index, .. } => format!("GPU{index}"),
                Slot::Cpu { index } => format!("CPU slot {index}"),
            };
            let pid = placement.rank;
            let name = format!("rank {} · {} · {place}", placement.rank, placement.host);
            let args = json!({ "name": name, "origin_unix_us": start });
            self.out.event(&json!({ "ph": "M", "name": "process_name", "pid": pid, "args": args }))?;
            let args = json!({ "sort_index": pid });
            self.out.event(&json!({ "ph": "M", "name": "process_sort_index", "pid": pid, "args": args }))?;
            for (tid, name) in THREADS {
                let args = json!({ "name": name });
                let event = json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args });
                self.out.event(&event)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, envelope: &Envelope) -> Result<(), Error> {
        if let (Event::StepDone { timing }, Origin::Rank(_, rank)) = (&envelope.event, &envelope.origin) {
            let before = self.stragglers.now().map(|now| now.rank);
            self.stragglers.step(self.world, *rank, timing);
            if self.stragglers.now().map(|now| now.rank) != before && self.shows(envelope.at) {
                self.straggler(envelope.at)?;
            }
        }
        match (&envelope.event, &envelope.origin) {
            (Event::StepDone { timing }, Origin::Rank(_, rank)) if self.ranks.wants(*rank) => {
                self.step(*rank, timing, envelope.at)
            }
            (Event::CollectiveDone { timing }, Origin::Rank(_, rank)) if self.ranks.wants(*rank) => {
                self.collective(*rank, timing, envelope.at)
            }
            (Event::LogGap { gap }, _) if self.ranks.wants(gap.rank) && self.shows(envelope.at) => {
                self.gap(gap, envelope.at)
            }
            (Event::LogPrinted { line }, _) if self.ranks.wants(line.rank) && self.shows(envelope.at) => {
                self.line(line, envelope.at)
            }
            (Event::HostSampled { sample }, Origin::Host(host)) if self.shows(envelope.at) => {
                self.sample(host, sample, envelope.at)
            }
            _ => Ok(()),
        }
    }

    fn shows(&self, at: Stamp) -> bool {
        self.options.from.is_none_or(|from| at >= from) && self.options.to.is_none_or(|to| at <= to)
    }

    fn step(&mut self, rank: Rank, timing: &StepTiming, arrived: Stamp) -> Result<(), Error> {
        let host = self.ranks.placement(rank).map(|placement| placement.host.clone());
        let placed = host.and_then(|host| self.clocks.place(&host, timing.start));
        let start =
            placed.unwrap_or_else(|| arrived.plus_micros(-i64::from(timing.dur_us)).0.saturating_mul(1_000));
        let end = start.saturating_add(i64::from(timing.dur_us) * 1_000);
        if !self.shows(Stamp(end.div_euclid(1_000))) || self.options.to.is_some_and(|to| start / 1_000 > to.0)
        {
            return Ok(());
        }
        self.report.unaligned_steps += u64::from(placed.is_none());
        let args = json!({
            "step": timing.step, "loss": timing.loss, "samples": timing.samples, "hidden_us": timing.hidden_us,
        });
        self.slice((rank, STEPS), &format!("step {}", timing.step), (start, end), &args)?;
        for span in &timing.spans {
            let from = start.saturating_add(i64::from(span.start_us) * 1_000);
            let to = from.saturating_add(i64::from(span.dur_us) * 1_000);
            let (tid, name) = match span.phase {
                Phase::Wait => (COMM, "allreduce wait"),
                Phase::Transfer => (COMM, "allreduce transfer"),
                other => (COMPUTE, other.name()),
            };
            self.slice((rank, tid), name, (from, to), &json!({ "step": timing.step }))?;
        }
        Ok(())
    }

    fn collective(&mut self, rank: Rank, timing: &CollectiveTiming, arrived: Stamp) -> Result<(), Error> {
        let host = self.ranks.placement(rank).map(|placement| placement.host.clone());
        let length = i64::try_from(timing.dur_ns).unwrap_or(i64::MAX);
        let placed = host.zip(timing.t).and_then(|(host, t)| self.clocks.place(&host, t));
        let start = placed.unwrap_or_else(|| arrived.0.saturating_mul(1_000).saturating_sub(length));
        let end = start.saturating_add(length);
        let is_past = self.options.to.is_some_and(|to| start / 1_000 > to.0);
        if is_past || !self.shows(Stamp(end.div_euclid(1_000))) {
            return Ok(());
        }
        if !self.last_end.contains_key(&(rank, NCCL)) {
            let args = json!({ "name": "nccl" });
            let event = json!({ "ph": "M", "name": "thread_name", "pid": rank, "tid": NCCL, "args": args });
            self.out.event(&event)?;
        }
        let args = json!({
            "comm": timing.comm, "seq": timing.seq, "bytes": timing.bytes, "datatype": timing.datatype,
            "every": timing.every,
        });
        self.slice((rank, NCCL), &timing.func, (start, end), &args)
    }

    /// A slice of a thread. It begins where the one before ended, if a job reports them as overlapping:
    /// viewers take an overlap for a call.
    fn slice(
        &mut self,
        thread: (Rank, u32),
        name: &str,
        (from, to): (i64, i64),
        args: &Value,
    ) -> Result<(), Error> {
        let last = self.last_end.entry(thread).or_insert(i64::MIN);
        let from = from.max(*last);
        if to <= from {
            return Ok(());
        }
        *last = to;
        let (pid, tid) = thread;
        let (ts, dur) = (self.micros(from), decimal_micros(i128::from(to) - i128::from(from)));
        self.out.event(&json!({
            "ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args,
        }))
    }

    fn line(&mut self, line: &LogLine, at: Stamp) -> Result<(), Error> {
        let level = Level::of(&line.text);
        if level < Level::Warning {
            return Ok(());
        }
        let name = if level == Level::Warning { "WARN" } else { "ERROR" };
        let ts = self.micros(at.0.saturating_mul(1_000));
        let args = json!({ "line": log_text::plain(&line.text) });
        self.out.event(&json!({
            "ph": "i", "s": "p", "name": name, "cat": "log", "pid": line.rank, "tid": STEPS, "ts": ts, "args": args,
        }))
    }

    /// Marks where a rank became a straggler.
    fn straggler(&mut self, at: Stamp) -> Result<(), Error> {
        let Some(now) = self.stragglers.now().filter(|now| self.ranks.wants(now.rank)) else { return Ok(()) };
        let ts = self.micros(at.0.saturating_mul(1_000));
        let args = json!({ "line": format!("rank {} {}", now.rank, now.words()) });
        let event = json!({
            "ph": "i", "s": "p", "name": "STRAGGLER", "cat": "straggler", "pid": now.rank, "tid": STEPS, "ts": ts, "args": args,
        });
        self.out.event(&event)
    }

    fn gap(&mut self, gap: &LogGap, at: Stamp) -> Result<(), Error> {
        let ts = self.micros(at.0.saturating_mul(1_000));
        let args = json!({ "line": gap.describe(), "stream": gap.stream, "from": gap.from, "to": gap.to });
        self.out.event(&json!({
            "ph": "i", "s": "p", "name": "GAP", "cat": "log", "pid": gap.rank, "tid": STEPS, "ts": ts, "args": args,
        }))
    }

    fn sample(&mut self, host: &HostId, sample: &HostSample, at: Stamp) -> Result<(), Error> {
        let ts = self.micros(at.0.saturating_mul(1_000));
        let here = |placement: &&Placement| placement.host == *host;
        let mut counters = Vec::new();
        for placement in self.ranks.placements.iter().filter(here) {
            let Slot::Gpu { index, .. } = placement.slot else { continue };
            let gpu = sample.gpus.iter().find(|gpu| gpu.index == index);
            counters.extend(gpu.into_iter().flat_map(|gpu| gpu_counters(placement.rank, gpu, &ts)));
        }
        counters.iter().try_for_each(|counter| self.out.event(counter))
    }

    /// A moment as the trace counts it: microseconds since the start of the recording. Counted since
    /// the Unix epoch, readers' floats would lose the last digits.
    fn micros(&self, ns: i64) -> Value {
        decimal_micros(i128::from(ns) - i128::from(self.origin_ns))
    }
}

fn gpu_counters(rank: Rank, gpu: &GpuSample, ts: &Value) -> Vec<Value> {
    let counter =
        |name: &str, args: Value| json!({ "ph": "C", "name": name, "pid": rank, "ts": ts, "args": args });
    let util = gpu.util.value().map(|util| counter("gpu util %", json!({ "util": util })));
    let memory = gpu.memory_used.value().map(|bytes| counter("gpu memory bytes", json!({ "used": bytes })));
    util.into_iter().chain(memory).collect()
}

/// Nanoseconds as microseconds with three decimals where they are needed.
fn decimal_micros(ns: i128) -> Value {
    if ns % 1_000 == 0 {
        i64::try_from(ns / 1_000).map_or(Value::Null, Value::from)
    } else {
        Value::from(ns as f64 / 1e3)
    }
}
