//! Chrome trace JSON, for Perfetto, Chrome's own viewer and speedscope.
//!
//! The array form, one event a line, the separator before every event but the first and `]` at the
//! close: valid when closed, and what readers of cut files forgive when not. A process is a rank; its
//! threads are its steps (0), its computing (1), its communication (2) and, where they are known, the collectives of
//! NCCL on its GPU (3), because slices of one
//! thread must nest and communication may overlap the backward pass.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Value, json};

use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::selection::Span;
use super::{Format, Target};
use crate::domain::gpu::GpuSample;
use crate::domain::ids::Rank;
use crate::domain::log_text::{self, level::Level};
use crate::domain::run::Slot;
use crate::domain::timing::{Phase, StepTiming};

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "chrome",
    about: "Trace events, for Perfetto and Chrome's tracing page",
    target: Target::Text,
    sink: || Box::new(Chrome::default()),
};

const STEPS: u32 = 0;
const COMPUTE: u32 = 1;
const COMM: u32 = 2;
const NCCL: u32 = 3;
const THREADS: [(u32, &str); 3] = [(STEPS, "steps"), (COMPUTE, "compute"), (COMM, "comm")];

#[derive(Default)]
struct Chrome {
    /// Where the last slice of a thread of a rank ended, nanoseconds.
    last_end: BTreeMap<(Rank, u32), i64>,
}

impl Sink for Chrome {
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        io::Write::write_all(out, b"[")?;
        for placement in run.chosen.placements() {
            let place = match &placement.slot {
                Slot::Gpu { index, .. } => format!("GPU{index}"),
                Slot::Cpu { index } => format!("CPU slot {index}"),
            };
            let pid = placement.rank;
            let name = format!("rank {} · {} · {place}", placement.rank, placement.host);
            let args = json!({ "name": name, "origin_unix_us": run.start });
            named(out, &json!({ "ph": "M", "name": "process_name", "pid": pid, "args": args }))?;
            let args = json!({ "sort_index": pid });
            named(out, &json!({ "ph": "M", "name": "process_sort_index", "pid": pid, "args": args }))?;
            for (tid, name) in THREADS {
                let args = json!({ "name": name });
                named(
                    out,
                    &json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args }),
                )?;
            }
        }
        Ok(())
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Step { rank, span, timing } => self.step(out, run, *rank, *span, timing),
            Item::Collective { rank, span, timing } => {
                if !self.last_end.contains_key(&(*rank, NCCL)) {
                    let args = json!({ "name": "nccl" });
                    let event =
                        json!({ "ph": "M", "name": "thread_name", "pid": rank, "tid": NCCL, "args": args });
                    named(out, &event)?;
                }
                let args = json!({
                    "comm": timing.comm, "seq": timing.seq, "bytes": timing.bytes, "datatype": timing.datatype,
                    "every": timing.every,
                });
                self.slice(out, run, (*rank, NCCL), &timing.func, *span, &args)
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
            Item::Straggler { at, straggler } => {
                let args = json!({ "line": format!("rank {} {}", straggler.rank, straggler.words()) });
                mark(out, run, (straggler.rank, *at), ("STRAGGLER", "straggler"), &args)
            }
            Item::Host { at, host, sample } => {
                let ts = run.micros(*at);
                for placement in run.chosen.placements().filter(|placement| placement.host == **host) {
                    let Slot::Gpu { index, .. } = placement.slot else { continue };
                    let gpu = sample.gpus.iter().find(|gpu| gpu.index == index);
                    for counter in gpu.into_iter().flat_map(|gpu| gpu_counters(placement.rank, gpu, &ts)) {
                        event(out, &counter)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn end(&mut self, out: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        io::Write::write_all(out, b"\n]\n")
    }
}

impl Chrome {
    fn step(
        &mut self,
        out: &mut Out<'_>,
        run: &Run<'_>,
        rank: Rank,
        span: Span,
        timing: &StepTiming,
    ) -> io::Result<()> {
        let args = json!({
            "step": timing.step, "loss": timing.loss, "samples": timing.samples, "hidden_us": timing.hidden_us,
        });
        self.slice(out, run, (rank, STEPS), &format!("step {}", timing.step), span, &args)?;
        for part in &timing.spans {
            let from = span.0.saturating_add(i64::from(part.start_us) * 1_000);
            let to = from.saturating_add(i64::from(part.dur_us) * 1_000);
            let (tid, name) = match part.phase {
                Phase::Wait => (COMM, "allreduce wait"),
                Phase::Transfer => (COMM, "allreduce transfer"),
                other => (COMPUTE, other.name()),
            };
            self.slice(out, run, (rank, tid), name, (from, to), &json!({ "step": timing.step }))?;
        }
        Ok(())
    }

    /// A slice of a thread. It begins where the one before ended, if a job reports them as overlapping:
    /// viewers take an overlap for a call.
    fn slice(
        &mut self,
        out: &mut Out<'_>,
        run: &Run<'_>,
        thread: (Rank, u32),
        name: &str,
        (from, to): Span,
        args: &Value,
    ) -> io::Result<()> {
        let last = self.last_end.entry(thread).or_insert(i64::MIN);
        let from = from.max(*last);
        if to <= from {
            return Ok(());
        }
        *last = to;
        let (pid, tid) = thread;
        let (ts, dur) = (run.micros(from), run.length((from, to)));
        event(
            out,
            &json!({ "ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args }),
        )
    }
}

/// An event of the recording.
fn event(out: &mut Out<'_>, event: &Value) -> io::Result<()> {
    if out.take(1) { out.element(event) } else { Ok(()) }
}

/// An event that names something.
fn named(out: &mut Out<'_>, event: &Value) -> io::Result<()> {
    if out.name(1) { out.element(event) } else { Ok(()) }
}

/// A mark of a rank at a moment, by its name and category.
fn mark(
    out: &mut Out<'_>,
    run: &Run<'_>,
    (rank, at): (Rank, i64),
    (name, cat): (&str, &str),
    args: &Value,
) -> io::Result<()> {
    let ts = run.micros(at);
    event(
        out,
        &json!({
            "ph": "i", "s": "p", "name": name, "cat": cat, "pid": rank, "tid": STEPS, "ts": ts, "args": args,
        }),
    )
}

fn gpu_counters(rank: Rank, gpu: &GpuSample, ts: &Value) -> Vec<Value> {
    let counter =
        |name: &str, args: Value| json!({ "ph": "C", "name": name, "pid": rank, "ts": ts, "args": args });
    let util = gpu.util.value().map(|util| counter("gpu util %", json!({ "util": util })));
    let memory = gpu.memory_used.value().map(|bytes| counter("gpu memory bytes", json!({ "used": bytes })));
    util.into_iter().chain(memory).collect()
}
