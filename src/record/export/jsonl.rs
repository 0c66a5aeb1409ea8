//! One JSON object a line, for `jq`, `DuckDB` and scripts: first the run, then one line a step, phase of a step, allreduce, line,
//! sample and whatever else happened. What all lines have comes first in them.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::allreduce::Allreduce;
use super::json_values::{collective, finite, object, of_gpu, of_host, of_mark, step};
use super::out::Out;
use super::pass::{Item, Run, Sink, length};
use super::selection::Span;
use super::{Format, Target};
use crate::domain::event::Origin;
use crate::domain::host::HostSample;
use crate::domain::ids::{HostId, Rank};
use crate::domain::log_text::level::Level;
use crate::domain::log_text::plain;
use crate::domain::time::Stamp;
use crate::domain::timing::StepTiming;
use crate::domain::trainer_keys::TrainerId;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "jsonl",
    about: "One JSON object a line: steps, their phases, allreduces, lines, GPUs, hosts and all that happened",
    target: Target::Text,
    sink: || Box::new(Lines),
};

/// Grows when a field changes its meaning or goes.
const VERSION: u32 = 1;

struct Lines;

/// The first line.
#[derive(Serialize)]
struct First {
    r#type: &'static str,
    version: u32,
    #[serde(flatten)]
    rest: Value,
}

/// Another line.
#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    at: String,
    /// Since the recording's start, microseconds.
    time_us: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<Rank>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a HostId>,
    #[serde(flatten)]
    rest: Value,
}

impl Sink for Lines {
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        if out.name(1) { line(out, &of_run(run)) } else { Ok(()) }
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Step { id, span, timing } => of_step(out, run, *id, *span, timing),
            Item::Allreduce(allreduce) => of_allreduce(out, run, allreduce),
            Item::Metric { id, at, name, value, step } => {
                let rest = object([
                    ("name", Some((*name).into())),
                    ("value", finite(*value)),
                    ("step", step.map(Value::from)),
                ]);
                of_trainer(out, run, "metric", (*id, *at), rest)
            }
            Item::Collective { id, span, timing } => {
                of_trainer(out, run, "collective", (*id, span.0), collective(*span, timing))
            }
            Item::Line { at, line } => {
                let level = Level::of(&line.text);
                let rest = object([
                    ("stream", Some(line.stream.extension().into())),
                    ("level", (level != Level::Unknown).then(|| format!("{level:?}").to_lowercase().into())),
                    ("text", Some(plain(&line.text).into())),
                    ("cut_bytes", (line.elided > 0).then(|| line.elided.into())),
                ]);
                of_rank(out, run, "line", (line.rank, *at), rest)
            }
            Item::Gap { at, gap } => {
                let rest = json!({
                    "stream": gap.stream.extension(), "bytes": gap.to.saturating_sub(gap.from), "words": gap.describe(),
                });
                of_rank(out, run, "gap", (gap.rank, *at), rest)
            }
            Item::Straggler { id, at, straggler } => {
                let rest = json!({ "words": straggler.words() });
                of_trainer(out, run, "straggler", (*id, *at), rest)
            }
            Item::Mark { at, mark } => write(out, run, "mark", *at, (None, None), of_mark(mark)),
            Item::Host { at, host, sample } => of_sample(out, run, *at, host, sample),
            Item::Other { at, origin, event } => {
                let about = match origin {
                    Origin::Host(host) => (None, Some(host)),
                    Origin::Run(_) => (None, None),
                    Origin::Rank(_, rank) | Origin::Worker(_, rank, _) => place(run, *rank),
                };
                let worker = if let Origin::Worker(_, _, worker) = origin { Some(*worker) } else { None };
                let event = serde_json::to_value(event)?;
                let rest = object([("event", Some(event)), ("worker", worker.map(Value::from))]);
                write(out, run, "event", *at, about, rest)
            }
        }
    }

    fn end(&mut self, _: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        Ok(())
    }

    fn tells_stragglers(&self) -> bool {
        true
    }
}

/// The first line.
fn of_run(run: &Run<'_>) -> First {
    let clocks = run.clocks.hosts().filter(|host| run.chosen.has_host(host)).filter_map(|host| {
        let clock = run.clocks.of(host)?;
        Some(json!({
            "host": host, "offset_us": clock.offset_ns as f64 / 1e3, "drift_ppm": clock.drift * 1e6,
            "uncertainty_us": clock.uncertainty_us,
        }))
    });
    let spec = run.spec;
    let mut rest = json!({
        "hvtui": env!("CARGO_PKG_VERSION"),
        "origin_unix_us": run.start,
        "clocks": clocks.collect::<Vec<_>>(),
    });
    for (name, value) in [
        ("run", spec.map(|spec| json!(spec.id))),
        ("name", spec.map(|spec| json!(spec.name))),
        ("argv", spec.map(|spec| json!(spec.command))),
        ("ranks", spec.map(|spec| json!(spec.world()))),
        ("created", spec.map(|spec| json!(spec.created.rfc3339()))),
        ("outcome", run.outcome.map(|outcome| json!(outcome.summary))),
    ] {
        if let Some(value) = value {
            rest[name] = value;
        }
    }
    First { r#type: "run", version: VERSION, rest }
}

/// A step, then its phases in the order in which they began.
fn of_step(
    out: &mut Out<'_>,
    run: &Run<'_>,
    id: TrainerId,
    span: Span,
    timing: &StepTiming,
) -> io::Result<()> {
    of_trainer(out, run, "step", (id, span.0), step(run, timing))?;
    for part in &timing.spans {
        let from = span.0.saturating_add(i64::from(part.start_us) * 1_000);
        let rest = json!({ "step": timing.step, "phase": part.phase.name(), "dur_us": part.dur_us });
        of_trainer(out, run, "phase", (id, from), rest)?;
    }
    Ok(())
}

/// Who came when to the allreduce of a step.
fn of_allreduce(out: &mut Out<'_>, run: &Run<'_>, allreduce: &Allreduce) -> io::Result<()> {
    let Some(span) = allreduce.span() else { return Ok(()) };
    let came = allreduce.arrivals.iter().filter(|arrival| run.chosen.has_trainer(arrival.id));
    let came = came.map(|arrival| json!({ "rank": arrival.id.number, "time_us": run.micros(arrival.came) }));
    let rest = json!({
        "step": allreduce.step, "dur_us": length(span), "last": allreduce.last().map(|last| last.id.number),
        "came": came.collect::<Vec<_>>(),
    });
    write(out, run, "allreduce", span.0, (None, None), rest)
}

/// The values of a host, then those of its ranks' GPUs.
fn of_sample(
    out: &mut Out<'_>,
    run: &Run<'_>,
    at: i64,
    host: &HostId,
    sample: &HostSample,
) -> io::Result<()> {
    write(out, run, "host", at, (None, Some(host)), of_host(sample))?;
    for (placement, uuid, gpu) in run.chosen.gpus(host, sample) {
        let mut rest = of_gpu(gpu);
        (rest["gpu"], rest["uuid"]) = (gpu.index.into(), uuid.to_string().into());
        write(out, run, "gpu", at, (Some(placement.rank), Some(host)), rest)?;
    }
    Ok(())
}

/// What one that trains tells: of its rank, with its own number where it is a process within it.
fn of_trainer(
    out: &mut Out<'_>,
    run: &Run<'_>,
    kind: &'static str,
    (id, at): (TrainerId, i64),
    mut rest: Value,
) -> io::Result<()> {
    if let Some(worker) = id.worker() {
        rest["worker"] = worker.into();
    }
    of_rank(out, run, kind, (id.rank, at), rest)
}

fn of_rank(
    out: &mut Out<'_>,
    run: &Run<'_>,
    kind: &'static str,
    (rank, at): (Rank, i64),
    rest: Value,
) -> io::Result<()> {
    write(out, run, kind, at, place(run, rank), rest)
}

/// A rank and its host.
fn place<'a>(run: &'a Run<'_>, rank: Rank) -> (Option<Rank>, Option<&'a HostId>) {
    (Some(rank), run.chosen.placement(rank).map(|placement| &placement.host))
}

fn write(
    out: &mut Out<'_>,
    run: &Run<'_>,
    kind: &'static str,
    at: i64,
    (rank, host): (Option<Rank>, Option<&HostId>),
    rest: Value,
) -> io::Result<()> {
    if !out.take(1) {
        return Ok(());
    }
    let moment = Stamp(at.div_euclid(1_000)).rfc3339();
    line(out, &Line { r#type: kind, at: moment, time_us: run.micros(at), rank, host, rest })
}

fn line(out: &mut Out<'_>, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}
