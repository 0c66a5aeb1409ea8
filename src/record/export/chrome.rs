//! Chrome trace JSON, for Perfetto, Chrome's own viewer and speedscope.
//!
//! The object form, `displayTimeUnit` first and one event a line. A process is a rank or a host. The threads of a rank
//! are its steps, its computing, its communication and, where they are known, the collectives of NCCL on its GPU,
//! because slices of one thread must nest and communication may overlap the backward pass.
//!
//! Perfetto takes pid 0 and tid 0 for the idle process, and a thread whose tid equals the pid of another process for
//! that one's main thread: so neither is ever 0, and no tid is any pid. Names of slices are constant, so that viewers
//! can sum them up; the step is an argument. Perfetto names a counter by its name and its key: so a key is a unit.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::allreduce::{Allreduce, Arrival};
use super::out::Out;
use super::pass::{Item, Run, Sink, length};
use super::selection::Span;
use super::{Format, Target};
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::host::HostSample;
use crate::domain::ids::{HostId, Rank};
use crate::domain::log_text::{self, level::Level};
use crate::domain::nccl_timing::CollectiveTiming;
use crate::domain::run::{Placement, Slot};
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainer_keys::TrainerId;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "chrome",
    about: "Trace events, for Perfetto and Chrome's tracing page",
    target: Target::Text,
    sink: || Box::new(Chrome::default()),
};

/// A thread of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thread {
    Steps = 1,
    Compute,
    Comm,
    Nccl,
}

const THREADS: [(Thread, &str); 3] =
    [(Thread::Steps, "steps"), (Thread::Compute, "compute"), (Thread::Comm, "comm")];
/// Processes within ranks have these numbers, and hosts from the second on; below them are ranks.
const FIRST_WORKER: u64 = 400_001;
const FIRST_HOST: u64 = 500_001;
/// No process has a number as large as a thread's.
const FIRST_THREAD: u64 = 1_000_000;

fn pid_of(rank: Rank) -> u64 {
    u64::from(rank.0) + 1
}

fn tid_of(pid: u64, thread: Thread) -> u64 {
    FIRST_THREAD + pid * 10 + thread as u64
}

#[derive(Default)]
struct Chrome {
    /// Where the last slice of a thread of a rank ended, nanoseconds.
    last_end: BTreeMap<(TrainerId, Thread), i64>,
    /// The processes within ranks that have been named, by their processes.
    workers: BTreeMap<TrainerId, u64>,
    /// The hosts that have been named, by their processes.
    hosts: BTreeMap<HostId, u64>,
    /// How many arrows there are.
    flows: u64,
}

impl Sink for Chrome {
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        run.chosen.placements().try_for_each(|placement| name_rank(out, placement))
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Step { id, span, timing } => self.step(out, run, *id, *span, timing),
            Item::Allreduce(allreduce) => self.flows(out, run, allreduce),
            Item::Collective { id, span, timing } => self.collective(out, run, *id, *span, timing),
            Item::Metric { id, at, name, value, .. } => {
                let value = [("value", value.is_finite().then_some(*value))];
                let pid = self.pid(out, run, *id)?;
                counter(out, run, (pid, *at), ("metric", name), &value)
            }
            Item::Line { at, line } => {
                let name = match Level::of(&line.text) {
                    level if level < Level::Warning => return Ok(()),
                    Level::Warning => "WARN",
                    _ => "ERROR",
                };
                let args = json!({ "line": log_text::plain(&line.text) });
                mark(out, run, (line.rank, *at), (name, "log"), &args)
            }
            Item::Gap { at, gap } => {
                let args =
                    json!({ "line": gap.describe(), "stream": gap.stream, "from": gap.from, "to": gap.to });
                mark(out, run, (gap.rank, *at), ("GAP", "log"), &args)
            }
            Item::Straggler { id, at, straggler } => {
                let args = json!({ "line": format!("rank {} {}", straggler.rank, straggler.words()) });
                mark(out, run, (id.rank, *at), ("STRAGGLER", "straggler"), &args)
            }
            Item::Mark { at, mark: set } => {
                let name = if set.note.is_empty() { "mark" } else { &set.note };
                let args = json!({ "note": set.note, "step": set.step });
                // one that is about no rank goes through all of them, and is written as one of the first
                let first = || run.chosen.placements().next().map(|placement| placement.rank);
                let scope = if set.rank.is_some() { "p" } else { "g" };
                let rank = set.rank.or_else(first).unwrap_or_default();
                instant(out, run, (rank, *at), (name, "mark", scope), &args)
            }
            Item::Host { at, host, sample } => self.host(out, run, *at, host, sample),
            Item::Other { .. } => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        out.write_all(b"\n],\"otherData\":")?;
        let other_data = other_data(run, out.is_truncated());
        serde_json::to_writer(&mut *out, &other_data)?;
        out.write_all(b"}\n")
    }

    fn tells_stragglers(&self) -> bool {
        true
    }
}

impl Chrome {
    /// The process of one that trains; that of a process within a rank is named here.
    fn pid(&mut self, out: &mut Out<'_>, run: &Run<'_>, id: TrainerId) -> io::Result<u64> {
        let Some(worker) = id.worker() else { return Ok(pid_of(id.rank)) };
        let next = FIRST_WORKER + self.workers.len() as u64;
        let pid = *self.workers.entry(id).or_insert(next);
        if pid == next {
            let host = run.chosen.placement(id.rank).map_or("", |placement| placement.host.as_str());
            name_process(out, pid, &format!("rank {worker} · {host} · in rank {}", id.rank))?;
            THREADS.into_iter().try_for_each(|(thread, name)| name_thread(out, pid, thread, name))?;
        }
        Ok(pid)
    }

    fn step(
        &mut self,
        out: &mut Out<'_>,
        run: &Run<'_>,
        id: TrainerId,
        span: Span,
        timing: &StepTiming,
    ) -> io::Result<()> {
        let known = run.told.known(timing);
        let mut args = json!({ "step": timing.step });
        let loss = timing.loss.filter(|loss| loss.is_finite()).map(Value::from);
        let values = [
            ("loss", loss),
            ("samples", known.samples.map(Value::from)),
            ("hidden_us", known.hidden_us.map(Value::from)),
        ];
        for (name, value) in values.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            args[name] = value;
        }
        self.slice(out, run, (id, Thread::Steps), ("step", "step"), span, &args)?;
        for part in &timing.spans {
            let from = span.0.saturating_add(i64::from(part.start_us) * 1_000);
            let to = from.saturating_add(i64::from(part.dur_us) * 1_000);
            let (thread, name, cat) = match part.phase {
                Phase::Wait => (Thread::Comm, "allreduce wait", "comm"),
                Phase::Transfer => (Thread::Comm, "allreduce transfer", "comm"),
                other => (Thread::Compute, other.name(), "phase"),
            };
            let args = json!({ "step": timing.step });
            self.slice(out, run, (id, thread), (name, cat), (from, to), &args)?;
        }
        let place = (self.pid(out, run, id)?, span.1);
        let loss = timing.loss.filter(|loss| loss.is_finite()).map(f64::from);
        counter(out, run, place, ("training", "loss"), &[("value", loss)])?;
        counter(out, run, place, ("training", "samples"), &[("per second", timing.samples_per_second())])
    }

    /// An arrow from what the rank that came last did before to what each other one did once it was there. Perfetto turns one
    /// round that leads to a slice which began earlier: so it never leads to the wait itself.
    fn flows(&mut self, out: &mut Out<'_>, run: &Run<'_>, allreduce: &Allreduce) -> io::Result<()> {
        let is_shown =
            |arrival: &Arrival| run.chosen.has_trainer(arrival.id) && run.chosen.has_span(arrival.step);
        let Some(last) = allreduce.last().filter(|last| is_shown(last)) else { return Ok(()) };
        let others = allreduce.arrivals.iter().filter(|arrival| arrival.id != last.id);
        for waiting in others.filter(|arrival| is_shown(arrival)) {
            let Some((begin, left)) = waiting.last() else { continue };
            let Some((thread, (from, to))) = origin(last, begin) else { continue };
            let start = last.came.min(to.saturating_sub(1_000)).max(from);
            // clocks are not exact: an arrow never points back, nor to where the rank has left
            let end = begin.max(start);
            if end >= left {
                continue;
            }
            if !out.take(2) {
                return Ok(());
            }
            self.flows += 1;
            let ends = [("s", last.id, thread, start), ("f", waiting.id, Thread::Comm, end)];
            for (ph, id, thread, at) in ends {
                let pid = self.pid(out, run, id)?;
                let mut event = json!({
                    "ph": ph, "id": self.flows, "name": "came last", "cat": "allreduce", "pid": pid,
                    "tid": tid_of(pid, thread), "ts": run.micros(at), "args": { "step": allreduce.step },
                });
                if ph == "f" {
                    event["bp"] = Value::from("e");
                }
                out.element(&event)?;
            }
        }
        Ok(())
    }

    fn collective(
        &mut self,
        out: &mut Out<'_>,
        run: &Run<'_>,
        id: TrainerId,
        span: Span,
        timing: &CollectiveTiming,
    ) -> io::Result<()> {
        if !self.last_end.contains_key(&(id, Thread::Nccl)) {
            let pid = self.pid(out, run, id)?;
            name_thread(out, pid, Thread::Nccl, "nccl")?;
        }
        let args = json!({
            "comm": timing.comm, "seq": timing.seq, "bytes": timing.bytes, "datatype": timing.datatype,
            "every": timing.every,
        });
        self.slice(out, run, (id, Thread::Nccl), (&timing.func, "nccl"), span, &args)
    }

    /// A slice of a thread. It begins where the one before ended, if a job reports them as overlapping:
    /// viewers take an overlap for a call.
    fn slice(
        &mut self,
        out: &mut Out<'_>,
        run: &Run<'_>,
        (id, thread): (TrainerId, Thread),
        (name, cat): (&str, &str),
        (from, to): Span,
        args: &Value,
    ) -> io::Result<()> {
        let pid = self.pid(out, run, id)?;
        let last = self.last_end.entry((id, thread)).or_insert(i64::MIN);
        let from = from.max(*last);
        if to <= from {
            return Ok(());
        }
        *last = to;
        let tid = tid_of(pid, thread);
        let (ts, dur) = (run.micros(from), length((from, to)));
        let slice = json!({
            "ph": "X", "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args,
        });
        out.event(&slice)
    }

    /// The counters of a host, and those of its GPUs with the ranks that have them.
    fn host(
        &mut self,
        out: &mut Out<'_>,
        run: &Run<'_>,
        at: i64,
        host: &HostId,
        sample: &HostSample,
    ) -> io::Result<()> {
        let next = FIRST_HOST + self.hosts.len() as u64;
        let pid = *self.hosts.entry(host.clone()).or_insert(next);
        if pid == next {
            name_process(out, pid, &format!("host {host}"))?;
        }
        for (name, values) in [
            ("cpu", &[("%", number(&sample.cpu_percent))][..]),
            ("memory", &[("bytes", number(&sample.memory_used))]),
            (
                "net",
                &[("bytes/s received", number(&sample.net_rx)), ("bytes/s sent", number(&sample.net_tx))],
            ),
        ] {
            counter(out, run, (pid, at), ("host", name), values)?;
        }
        for (placement, _, gpu) in run.chosen.gpus(host, sample) {
            let is_one = placement.more.is_empty();
            let which = if is_one { String::new() } else { format!("GPU{} ", gpu.index) };
            gpu_counters(out, run, (pid_of(placement.rank), at), &which, gpu)?;
        }
        Ok(())
    }
}

/// The slice from which an arrow leads to one that begins at `begin`: none that begins later.
fn origin(last: &Arrival, begin: i64) -> Option<(Thread, Span)> {
    let slices =
        [(Thread::Compute, last.before), (Thread::Comm, last.first()), (Thread::Steps, Some(last.step))];
    let mut slices = slices.into_iter().filter_map(|(thread, span)| Some((thread, span?)));
    slices.find(|(_, (from, _))| *from <= begin)
}

fn gpu_counters(
    out: &mut Out<'_>,
    run: &Run<'_>,
    place: (u64, i64),
    which: &str,
    gpu: &GpuSample,
) -> io::Result<()> {
    for (name, key, value) in [
        ("gpu util", "%", number(&gpu.util)),
        ("gpu memory", "bytes", number(&gpu.memory_used)),
        ("gpu power", "W", number(&gpu.power_mw).map(|milliwatts| milliwatts / 1e3)),
        ("gpu temperature", "°C", number(&gpu.temperature)),
    ] {
        counter(out, run, place, ("gpu", &format!("{which}{name}")), &[(key, value)])?;
    }
    Ok(())
}

/// A value as counters have it; `None` where it is not known.
fn number<T: Copy + Into<Number>>(reading: &Reading<T>) -> Option<f64> {
    reading.value().map(|value| (*value).into().0).filter(|value| value.is_finite())
}

struct Number(f64);

impl From<f32> for Number {
    fn from(value: f32) -> Self {
        // without the digits that single precision does not have
        Self((f64::from(value) * 1e5).round() / 1e5)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self(value.into())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value as f64)
    }
}

/// The values of a counter of a process at a moment, by their units; nothing where none is known.
fn counter(
    out: &mut Out<'_>,
    run: &Run<'_>,
    (pid, at): (u64, i64),
    (cat, name): (&str, &str),
    values: &[(&str, Option<f64>)],
) -> io::Result<()> {
    let known = values.iter().filter_map(|(key, value)| Some(((*key).to_owned(), whole((*value)?))));
    let args: serde_json::Map<String, Value> = known.collect();
    if args.is_empty() {
        return Ok(());
    }
    let ts = run.micros(at);
    out.event(&json!({ "ph": "C", "name": name, "cat": cat, "pid": pid, "ts": ts, "args": args }))
}

/// A number without `.0` where it is whole.
fn whole(value: f64) -> Value {
    if value.fract() == 0.0 && (0.0..9e15).contains(&value) {
        Value::from(value as u64)
    } else {
        Value::from(value)
    }
}

/// A mark of a rank at a moment, by its name and category.
fn mark(
    out: &mut Out<'_>,
    run: &Run<'_>,
    (rank, at): (Rank, i64),
    (name, cat): (&str, &str),
    args: &Value,
) -> io::Result<()> {
    instant(out, run, (rank, at), (name, cat, "p"), args)
}

/// The same with how far it is drawn: over its process, or over all.
fn instant(
    out: &mut Out<'_>,
    run: &Run<'_>,
    (rank, at): (Rank, i64),
    (name, cat, scope): (&str, &str, &str),
    args: &Value,
) -> io::Result<()> {
    let (pid, tid, ts) = (pid_of(rank), tid_of(pid_of(rank), Thread::Steps), run.micros(at));
    let mark = json!({
        "ph": "i", "s": scope, "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": ts, "args": args,
    });
    out.event(&mark)
}

fn name_rank(out: &mut Out<'_>, placement: &Placement) -> io::Result<()> {
    let place = match &placement.slot {
        Slot::Gpu { index, .. } => format!("GPU{index}"),
        Slot::Cpu { index } => format!("CPU slot {index}"),
    };
    let rank = placement.rank;
    name_process(out, pid_of(rank), &format!("rank {rank} · {} · {place}", placement.host))?;
    THREADS.into_iter().try_for_each(|(thread, name)| name_thread(out, pid_of(rank), thread, name))
}

/// Processes are sorted by their numbers.
fn name_process(out: &mut Out<'_>, pid: u64, name: &str) -> io::Result<()> {
    meta(out, "process_name", json!({ "pid": pid, "args": { "name": name } }))?;
    meta(out, "process_sort_index", json!({ "pid": pid, "args": { "sort_index": pid } }))
}

fn name_thread(out: &mut Out<'_>, pid: u64, thread: Thread, name: &str) -> io::Result<()> {
    let tid = tid_of(pid, thread);
    meta(out, "thread_name", json!({ "pid": pid, "tid": tid, "args": { "name": name } }))?;
    meta(out, "thread_sort_index", json!({ "pid": pid, "tid": tid, "args": { "sort_index": thread as u64 } }))
}

fn meta(out: &mut Out<'_>, name: &str, mut event: Value) -> io::Result<()> {
    event["ph"] = Value::from("M");
    event["cat"] = Value::from("__metadata");
    event["name"] = Value::from(name);
    out.naming(&event)
}

/// What is known of the run as a whole.
fn other_data(run: &Run<'_>, is_truncated: bool) -> Value {
    let hosts: Vec<Value> = run
        .clocks
        .hosts()
        .filter(|host| run.chosen.has_host(host))
        .filter_map(|host| {
            let clock = run.clocks.of(host)?;
            Some(json!({
                "host": host, "clock_offset_us": clock.offset_ns as f64 / 1e3, "clock_drift_ppm": clock.drift * 1e6,
                "clock_uncertainty_us": clock.uncertainty_us,
            }))
        })
        .collect();
    json!({
        "hvtui": env!("CARGO_PKG_VERSION"),
        "run": run.spec.map(|spec| &spec.id),
        "name": run.spec.map(|spec| &spec.name),
        "argv": run.spec.map(|spec| &spec.command),
        "code": run.spec.and_then(|spec| spec.code.as_ref()),
        "origin_unix_us": run.start,
        "hosts": hosts,
        "truncated": is_truncated,
    })
}
