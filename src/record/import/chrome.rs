//! The Chrome trace that hvtui exports, read back: the ranks and their places, steps with phases, and numbers that the ranks
//! reported. What it shows beside these was made of them, or has lost what a recording needs: counters of hosts and GPUs, lines
//! of the log without their place in it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::error::Error;
use super::run::{Asked, is_moment};
use super::summary::{Folded, LeftOut, StepsRead};
use super::target::Target;
use super::trace_event::TraceEvent;
use crate::domain::event::Event;
use crate::domain::ids::{GpuUuid, HostId, Rank};
use crate::domain::run::{JobKind, Placement, Slot};
use crate::domain::sync::Code;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::{Phase, PhaseSpan, Spans, StepTiming};

/// Ranks that are told apart.
const MOST_RANKS: u32 = 1 << 16;
/// Phases of a step that are kept.
const MOST_SPANS: usize = 1 << 12;
/// Steps of ranks that wait for those of the other ranks.
const MOST_WAITING: usize = 1 << 10;
/// Letters of a host's name, and of that of a number.
const MOST_NAME: usize = 256;
/// By whose clock its times are.
pub(super) const CLOCK: &str = "the clock of the client that recorded it";

/// What stands behind the events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OtherData {
    name: Option<String>,
    argv: Vec<String>,
    code: Option<Code>,
    origin_unix_us: Option<i64>,
    hosts: Vec<HostClock>,
    truncated: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HostClock {
    host: String,
    clock_uncertainty_us: u32,
}

/// A step that is not whole yet: its phases follow it.
struct Open {
    timing: StepTiming,
    from_ns: i64,
}

/// The fold over a trace.
pub(super) struct Trace<'a> {
    asked: &'a Asked<'a>,
    other: OtherData,
    /// Microseconds since the Unix epoch at which the trace's times begin.
    base_us: i64,
    places: BTreeMap<u64, Placement>,
    open: BTreeMap<Rank, Open>,
    /// Steps that not all ranks have told.
    waiting: BTreeMap<u64, Vec<(Rank, StepTiming)>>,
    target: Option<Target>,
    steps: StepsRead,
    last_us: i64,
    left_out: BTreeMap<&'static str, (u64, &'static str)>,
}

impl<'a> Trace<'a> {
    /// Of a trace behind whose events this stands.
    pub(super) fn new(asked: &'a Asked<'a>, other: OtherData) -> Self {
        let origin = other.origin_unix_us.filter(|us| is_moment(Stamp(*us)));
        Self {
            asked,
            base_us: origin.unwrap_or(asked.now.0),
            other: OtherData { origin_unix_us: origin, ..other },
            places: BTreeMap::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            target: None,
            steps: StepsRead::default(),
            last_us: 0,
            left_out: BTreeMap::new(),
        }
    }

    /// From the beginning to the newest moment, microseconds.
    pub(super) fn length_us(&self) -> i64 {
        self.last_us
    }

    fn leave_out(&mut self, what: &'static str, why: &'static str) {
        self.left_out.entry(what).or_insert((0, why)).0 += 1;
    }

    /// Takes an event in, in the order of the file.
    pub(super) fn take(&mut self, event: &TraceEvent<'_>) -> Result<(), Error> {
        let (phase, cat, name) = (event.phase(), event.cat.text(), event.name.text());
        if phase == "M" {
            if name == "process_name" {
                self.place(event);
            }
            return Ok(());
        }
        let rank = event.pid.count().and_then(|pid| self.places.get(&pid)).map(|place| place.rank);
        if let Some(ns) = event.ts.nanos() {
            self.last_us = self.last_us.max(ns.div_euclid(1_000));
        }
        match (phase, cat, rank) {
            ("X", "step", Some(rank)) => return self.step(rank, event),
            ("X", "phase" | "comm", Some(rank)) => self.phase(rank, event),
            ("C", "metric", Some(rank)) => return self.metric(rank, event),
            ("C", "gpu" | "host", _) => {
                self.leave_out("values of hosts and GPUs", "a counter does not tell the whole sample");
            }
            ("i", "log", _) => self.leave_out("lines of the log", "the trace has those that warn alone"),
            ("X", "nccl", _) => {
                self.leave_out("collectives of NCCL", "a slice does not tell its communicator's ranks");
            }
            // made of the steps
            ("s" | "f", "allreduce", _) | ("C", "training", _) | ("i", "straggler", _) => {}
            _ => self.leave_out("other events", "no export of hvtui has them"),
        }
        Ok(())
    }

    /// `rank 3 · gpu-a · GPU1`.
    fn place(&mut self, event: &TraceEvent<'_>) {
        let label = event.args.get("name").text();
        let mut parts = label.splitn(3, " · ");
        let rank = parts.next().and_then(|text| text.strip_prefix("rank ")?.parse::<u32>().ok());
        let (Some(pid), Some(rank)) = (event.pid.count(), rank.filter(|rank| *rank < MOST_RANKS)) else {
            return;
        };
        if self.target.is_some() {
            return self.leave_out("ranks that are named late", "steps were told before");
        }
        let host: String = parts.next().unwrap_or("unknown").chars().take(MOST_NAME).collect();
        let slot = parts.next().unwrap_or_default();
        let gpu = slot.strip_prefix("GPU").and_then(|index| index.parse().ok());
        let slot = match gpu {
            Some(index) => Slot::Gpu { index, uuid: GpuUuid::unreadable(index) },
            None => Slot::Cpu {
                index: slot.strip_prefix("CPU slot ").and_then(|index| index.parse().ok()).unwrap_or(rank),
            },
        };
        let host = HostId::from(host);
        let place = Placement { rank: Rank(rank), host, local_rank: 0, slot, more: Vec::new() };
        self.places.insert(pid, place);
    }

    fn step(&mut self, rank: Rank, event: &TraceEvent<'_>) -> Result<(), Error> {
        let (Some(step), Some((from_ns, to_ns))) = (event.args.get("step").count(), event.span()) else {
            self.leave_out("steps that can't be read", "they have no number or no time");
            return Ok(());
        };
        let start_us = self.base_us.saturating_add(rounded(from_ns));
        let hidden = event.args.get("hidden_us").count().unwrap_or_default();
        let samples = event.args.get("samples").count().unwrap_or_default();
        let timing = StepTiming {
            step,
            start: HostTime(u64::try_from(start_us).unwrap_or_default()),
            dur_us: micros(to_ns.saturating_sub(from_ns)),
            loss: event.args.get("loss").real().map(|loss| loss as f32),
            samples: u32::try_from(samples).unwrap_or(u32::MAX),
            spans: Spans::default(),
            hidden_us: u32::try_from(hidden).unwrap_or(u32::MAX),
        };
        if let Some(before) = self.open.insert(rank, Open { timing, from_ns }) {
            self.write(rank, before)?;
        }
        Ok(())
    }

    fn phase(&mut self, rank: Rank, event: &TraceEvent<'_>) {
        let phase = match event.name.text() {
            "allreduce wait" => Some(Phase::Wait),
            "allreduce transfer" => Some(Phase::Transfer),
            name => Phase::ALL.into_iter().find(|phase| phase.name() == name),
        };
        let step = event.args.get("step").count();
        let open = self.open.get_mut(&rank).filter(|open| Some(open.timing.step) == step);
        let (Some(phase), Some((from, to)), Some(open)) = (phase, event.span(), open) else {
            return self.leave_out("phases of no step", "their step does not stand before them");
        };
        if open.timing.spans.len() >= MOST_SPANS {
            return self.leave_out("phases beyond what a step has", "a step has thousands of them");
        }
        let start_us = micros(from.saturating_sub(open.from_ns));
        open.timing.spans.push(PhaseSpan { phase, start_us, dur_us: micros(to.saturating_sub(from)) });
    }

    fn metric(&mut self, rank: Rank, event: &TraceEvent<'_>) -> Result<(), Error> {
        let (Some(value), Some(ns)) = (event.args.get("value").real(), event.ts.nanos()) else {
            return Ok(());
        };
        let name: String = event.name.text().chars().take(MOST_NAME).collect();
        let at = Stamp(self.base_us.saturating_add(rounded(ns)));
        let event = Event::MetricReported { name, value, step: None };
        self.target()?.of_rank(at, rank, event)
    }

    fn write(&mut self, rank: Rank, open: Open) -> Result<(), Error> {
        let mut timing = open.timing;
        timing.spans.sort_by_key(|span| span.start_us);
        self.steps.add(timing.step);
        let step = timing.step;
        let of_step = self.waiting.entry(step).or_default();
        of_step.push((rank, timing));
        if of_step.len() >= self.places.len() {
            return self.write_step(step);
        }
        let count: usize = self.waiting.values().map(Vec::len).sum();
        match self.waiting.keys().next().copied() {
            Some(first) if count > MOST_WAITING => self.write_step(first),
            _ => Ok(()),
        }
    }

    /// Writes a step of all ranks that told it.
    fn write_step(&mut self, step: u64) -> Result<(), Error> {
        let mut of_step = self.waiting.remove(&step).unwrap_or_default();
        tell_no_wait(&mut of_step);
        for (rank, timing) in of_step {
            self.target()?.step(rank, timing)?;
        }
        Ok(())
    }

    fn target(&mut self) -> Result<&mut Target, Error> {
        if self.target.is_none() {
            let placements = placements(&self.places);
            let command = std::mem::take(&mut self.other.argv);
            let is_native = command.first().is_some_and(|program| program == "hvtui");
            let kind = if is_native { JobKind::Native } else { JobKind::Plain };
            let created = Stamp(self.base_us);
            let mut spec = self.asked.spec(kind, "Chrome trace of hvtui", placements, created);
            if let Some(name) = self.other.name.take().filter(|_| self.asked.name.is_none()) {
                spec.name = name;
            }
            if !command.is_empty() {
                spec.command = command;
            }
            spec.code = self.other.code.take();
            let hosts = spec.hosts();
            let mut target = Target::begin(self.asked.place, spec)?;
            for host in hosts {
                // of a trace that is cut it is not known
                if let Some(clock) = self.other.hosts.iter().find(|clock| clock.host == host.as_str()) {
                    target.clock(&host, clock.clock_uncertainty_us)?;
                }
            }
            self.target = Some(target);
        }
        // it was just put there
        self.target.as_mut().ok_or_else(|| self.asked.nothing("no step was recorded"))
    }

    /// Ends the fold.
    ///
    /// # Errors
    /// Where there is nothing of a run.
    pub(super) fn finish(mut self) -> Result<Folded, Error> {
        for (rank, open) in std::mem::take(&mut self.open) {
            self.write(rank, open)?;
        }
        while let Some(step) = self.waiting.keys().next().copied() {
            self.write_step(step)?;
        }
        let told_ranks =
            self.places.values().map(|place| place.rank).collect::<std::collections::BTreeSet<_>>();
        let mut left_out: Vec<LeftOut> =
            self.left_out.iter().map(|(what, (count, why))| LeftOut::new(*what, *count, *why)).collect();
        if self.other.truncated {
            left_out.push(LeftOut::new("end of the trace", 1, "the export was cut by --max-events"));
        }
        if self.other.origin_unix_us.is_none() {
            let why = "the file does not tell it; that of the import stands for it";
            left_out.push(LeftOut::new("moment of the beginning", 1, why));
        }
        let Some(target) = self.target else { return Err(self.asked.nothing("an export without a step")) };
        Ok(Folded { target, told_ranks: told_ranks.len() as u32, steps: self.steps, waits: None, left_out })
    }
}

/// A wait of no length is not in the trace, for viewers can't show it: where other ranks of a step waited, one that tells its phases
/// and no wait came last.
fn tell_no_wait(of_step: &mut [(Rank, StepTiming)]) {
    let waits = |timing: &StepTiming| timing.spans.iter().any(|span| span.phase == Phase::Wait);
    if !of_step.iter().any(|(_, timing)| waits(timing)) {
        return;
    }
    for (_, timing) in of_step {
        if timing.spans.is_empty() || waits(timing) {
            continue;
        }
        let transfer = timing.spans.iter().position(|span| span.phase == Phase::Transfer);
        let at = transfer.unwrap_or(timing.spans.len());
        let before = at.checked_sub(1).and_then(|last| timing.spans.get(last));
        let start_us = before.map_or(0, |span| span.start_us.saturating_add(span.dur_us));
        let start_us = timing.spans.get(at).map_or(start_us, |span| span.start_us);
        timing.spans.insert(at, PhaseSpan { phase: Phase::Wait, start_us, dur_us: 0 });
    }
}

/// Places in rank order; those between that are not named are somewhere unknown.
fn placements(named: &BTreeMap<u64, Placement>) -> Vec<Placement> {
    let by_rank: BTreeMap<Rank, &Placement> = named.values().map(|place| (place.rank, place)).collect();
    let count = by_rank.keys().next_back().map_or(0, |rank| rank.0 + 1);
    let mut all = super::run::unknown_places(count, &HostId::from("unknown"));
    let mut on_host: BTreeMap<HostId, u32> = BTreeMap::new();
    for place in &mut all {
        if let Some(known) = by_rank.get(&place.rank) {
            *place = (*known).clone();
        }
        let next = on_host.entry(place.host.clone()).or_default();
        place.local_rank = *next;
        *next += 1;
    }
    all
}

/// Nanoseconds as whole microseconds.
fn rounded(ns: i64) -> i64 {
    ns.saturating_add(500).div_euclid(1_000)
}

/// A length of time likewise; 0 where it is negative.
fn micros(ns: i64) -> u32 {
    u32::try_from(rounded(ns).max(0)).unwrap_or(u32::MAX)
}
