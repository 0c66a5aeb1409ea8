//! Horovod's timeline (`horovod/common/timeline.cc`): rank 0 writes it, by its own clock, and a process of it is a tensor.
//! `NEGOTIATE_<op>` lasts from when rank 0 hears that the first rank is ready until it hears that all are, with a tick for each
//! rank, whose name is its number; then `<op>` lasts until the collective is through, its activities within it.
//!
//! A step ends where a tensor comes again. `CYCLE_START` says nothing of steps: it is a turn of Horovod's own loop, of which a
//! step has several. What lies between the collectives is computing or anything else, and no phase stands for it here.
//!
//! Tensors whose responses Horovod has cached, by default all after the first step, have no ticks: then it is known when bytes
//! moved, and not who waited.

use std::collections::{BTreeMap, BTreeSet};

use super::super::error::Error;
use super::clock::Clock;
use super::collectives::{self, Collective};
use super::run::Asked;
use super::summary::{Folded, LeftOut, StepsRead};
use super::target::Target;
use super::trace_event::TraceEvent;
use super::waits::{Waits, length};
use crate::domain::event::{Event, UNBEGUN, UNTICKED};
use crate::domain::hooks::HookFacts;
use crate::domain::ids::{HostId, Rank};
use crate::domain::run::JobKind;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::StepTiming;

/// Tensors that are told apart.
const MOST_TENSORS: usize = 1 << 16;
/// Arrivals that are kept at once.
const MOST_ARRIVALS: usize = 1 << 22;
/// Ranks that are told apart, as many as a report follows.
const MOST_RANKS: u32 = 4096;
/// Steps of ranks that are written.
const MOST_WRITTEN: u64 = 50_000_000;
/// What the time of the trace is worth.
pub(super) const CLOCK: &str = "rank 0's clock, includes network";

const NEGOTIATE: &str = "NEGOTIATE_";
/// Operations that are no part of a step: parameters at the beginning, and what keeps ranks together.
const BESIDE: [&str; 3] = ["BROADCAST", "BARRIER", "JOIN"];

/// Where a tensor stands.
#[derive(Debug, Default)]
struct Tensor {
    stage: Stage,
    /// The step in which it was first heard of, if it is part of one.
    step: Option<u64>,
    first: i64,
    arrivals: Vec<(u32, i64)>,
    together: i64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    Negotiating,
    Agreed,
    /// With so many beginnings open.
    Running(u32),
}

/// What was counted on the way.
#[derive(Debug, Default)]
struct Counts {
    beside: u64,
    unfinished: u64,
    cycles: u64,
    stray: u64,
    crowded: u64,
    late_ranks: u64,
    unwritten: u64,
    empty: u64,
    repeats: u64,
}

/// The fold over a timeline.
pub(super) struct Timeline<'a> {
    asked: &'a Asked<'a>,
    /// When it begins, microseconds since the Unix epoch.
    epoch: Option<i64>,
    clock: Clock,
    tensors: BTreeMap<i64, Tensor>,
    arrivals: usize,
    /// The number of the open step, from 1.
    step: u64,
    /// Its tensors, and how many of them are not through.
    members: BTreeSet<i64>,
    running: usize,
    done: Vec<Collective>,
    /// When the step before ended: the open one began then.
    began: Option<i64>,
    /// Nothing tells when the first step began.
    is_unbegun: bool,
    last_size: usize,
    ranks: u32,
    written: u64,
    transport: BTreeSet<&'static str>,
    target: Option<Target>,
    waits: Waits,
    steps: StepsRead,
    counts: Counts,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(asked: &'a Asked<'a>) -> Self {
        Self {
            asked,
            epoch: None,
            clock: Clock::default(),
            tensors: BTreeMap::new(),
            arrivals: 0,
            step: 1,
            members: BTreeSet::new(),
            running: 0,
            done: Vec::new(),
            began: None,
            is_unbegun: false,
            last_size: 0,
            ranks: 0,
            written: 0,
            transport: BTreeSet::new(),
            target: None,
            waits: Waits::default(),
            steps: StepsRead::default(),
            counts: Counts::default(),
        }
    }

    /// Takes an event in, in the order of the file.
    pub(super) fn take(&mut self, event: &TraceEvent<'_>) -> Result<(), Error> {
        let phase = event.phase();
        if phase == "M" {
            let start = event.args.get("start_time_since_epoch_in_micros").whole();
            self.epoch = self.epoch.or(start.filter(|us| super::run::is_moment(Stamp(*us))));
            return Ok(());
        }
        let ts = event.ts.nanos().map(|ns| ns.div_euclid(1_000));
        let Some(at) = self.clock.at(ts) else { return Ok(()) };
        if phase == "i" || phase == "I" {
            self.counts.cycles += u64::from(event.name.text() == "CYCLE_START");
            return Ok(());
        }
        let Some(pid) = event.pid.whole() else {
            self.counts.stray += 1;
            return Ok(());
        };
        if !self.tensors.contains_key(&pid) && self.tensors.len() >= MOST_TENSORS {
            self.counts.crowded += 1;
            return Ok(());
        }
        match phase {
            "B" => self.begin(pid, event.name.text(), at),
            "X" => {
                self.arrive(pid, event.name.text(), at);
                Ok(())
            }
            "E" => {
                self.end(pid, at);
                Ok(())
            }
            _ => {
                self.counts.stray += 1;
                Ok(())
            }
        }
    }

    fn begin(&mut self, pid: i64, name: &str, at: i64) -> Result<(), Error> {
        if let Some(op) = name.strip_prefix(NEGOTIATE) {
            let is_part = !BESIDE.contains(&op);
            self.give_up(pid);
            if is_part && self.members.contains(&pid) {
                self.counts.repeats += 1;
                self.close()?;
            }
            if is_part {
                self.members.insert(pid);
                self.running += 1;
            }
            let step = is_part.then_some(self.step);
            let tensor = self.tensors.entry(pid).or_default();
            *tensor = Tensor { stage: Stage::Negotiating, step, first: at, ..Tensor::default() };
            return Ok(());
        }
        self.transport.extend(
            ["NCCL", "MPI", "GLOO", "CCL"]
                .iter()
                .filter(|by| name.strip_prefix(**by).is_some_and(|rest| rest.starts_with('_'))),
        );
        let tensor = self.tensors.entry(pid).or_default();
        tensor.stage = match tensor.stage {
            Stage::Agreed => Stage::Running(1),
            Stage::Running(depth) => Stage::Running(depth.saturating_add(1)),
            other => {
                self.counts.stray += 1;
                other
            }
        };
        Ok(())
    }

    /// A collective of a tensor that comes again was never through.
    fn give_up(&mut self, pid: i64) {
        let Some(tensor) = self.tensors.get_mut(&pid).filter(|tensor| tensor.stage != Stage::Idle) else {
            return;
        };
        self.counts.unfinished += 1;
        self.arrivals -= tensor.arrivals.len();
        tensor.arrivals.clear();
        tensor.stage = Stage::Idle;
        if tensor.step == Some(self.step) {
            self.running = self.running.saturating_sub(1);
        }
    }

    fn arrive(&mut self, pid: i64, name: &str, at: i64) {
        let Some(tensor) = self.tensors.get_mut(&pid).filter(|tensor| tensor.stage == Stage::Negotiating)
        else {
            self.counts.stray += 1;
            return;
        };
        let known = self.target.as_ref().map(|_| self.ranks);
        match name.parse::<u32>() {
            Ok(rank) if rank >= known.unwrap_or(MOST_RANKS) => self.counts.late_ranks += 1,
            Ok(_) if self.arrivals >= MOST_ARRIVALS => self.counts.crowded += 1,
            Ok(rank) => {
                self.ranks = self.ranks.max(rank + 1);
                tensor.arrivals.push((rank, at));
                self.arrivals += 1;
            }
            Err(_) => self.counts.stray += 1,
        }
    }

    fn end(&mut self, pid: i64, at: i64) {
        let Some(tensor) = self.tensors.get_mut(&pid) else {
            self.counts.stray += 1;
            return;
        };
        match tensor.stage {
            Stage::Idle | Stage::Agreed => self.counts.stray += 1,
            Stage::Negotiating => (tensor.stage, tensor.together) = (Stage::Agreed, at),
            Stage::Running(depth) if depth > 1 => tensor.stage = Stage::Running(depth - 1),
            Stage::Running(_) => {
                tensor.stage = Stage::Idle;
                let (first, together) = (tensor.first, tensor.together);
                let mut arrivals = std::mem::take(&mut tensor.arrivals);
                let step = tensor.step;
                let Some(step) = step else {
                    self.arrivals -= arrivals.len();
                    self.counts.beside += 1;
                    if self.done.is_empty() && self.step == 1 {
                        self.began = Some(at);
                    }
                    return;
                };
                let told = arrivals.len();
                self.waits.collective(self.ranks as usize, &arrivals, together);
                arrivals.sort_by_key(|(rank, _)| *rank);
                arrivals.dedup_by_key(|(rank, _)| *rank);
                if step == self.step {
                    self.running = self.running.saturating_sub(1);
                    self.arrivals -= told - arrivals.len();
                    self.done.push(Collective { first, arrivals, together, ended: at });
                } else {
                    // through only after its step: it is in the table alone
                    self.arrivals -= told;
                }
            }
        }
    }

    /// The open step is over.
    fn close(&mut self) -> Result<(), Error> {
        let done = std::mem::take(&mut self.done);
        self.members.clear();
        self.running = 0;
        self.arrivals -= done.iter().map(|one| one.arrivals.len()).sum::<usize>();
        let Some(ended) = done.iter().map(|one| one.ended).max() else {
            self.counts.empty += 1;
            return Ok(());
        };
        let first = done.iter().map(|one| one.first).min().unwrap_or(ended);
        // a step that overlaps the one before begins where that ended
        let start = self.began.unwrap_or(first);
        self.is_unbegun |= self.began.is_none();
        self.began = Some(ended.max(start));
        self.last_size = done.len();
        let number = self.step;
        self.step += 1;
        let ranks = self.ranks.max(1);
        if self.written + u64::from(ranks) > MOST_WRITTEN {
            self.counts.unwritten += 1;
            return Ok(());
        }
        self.written += u64::from(ranks);
        let tells_waits = collectives::tells_waits(&done, ranks);
        self.steps.add(number);
        self.steps.with_waits += u64::from(tells_waits);
        let base = self.base();
        let any = if tells_waits { None } else { Some(collectives::part(&done, None, start)) };
        for rank in 0..ranks {
            let part = match &any {
                Some(any) => collectives::Part { spans: any.spans.clone(), ..collectives::Part::default() },
                None => collectives::part(&done, Some(rank), start),
            };
            self.waits.idle(rank, part.wait_us);
            let timing = StepTiming {
                step: number,
                start: HostTime(base.saturating_add(start).unsigned_abs()),
                dur_us: length(start, ended),
                loss: None,
                samples: 0,
                spans: part.spans.into(),
                hidden_us: part.hidden_us,
            };
            self.target()?.step(Rank(rank), timing)?;
        }
        Ok(())
    }

    /// From the first event to the newest, microseconds.
    pub(super) fn length_us(&self) -> i64 {
        self.clock.now()
    }

    /// What to add to times to have those since the Unix epoch.
    fn base(&self) -> i64 {
        self.epoch.unwrap_or(self.asked.now.0)
    }

    /// The recording; from its first event on no more ranks can come.
    fn target(&mut self) -> Result<&mut Target, Error> {
        if self.target.is_none() {
            let ranks = self.ranks.max(1);
            self.ranks = ranks;
            let host = HostId::from("unknown");
            let placements = super::run::unknown_places(ranks, &host);
            let created = Stamp(self.base());
            let about = format!("Horovod timeline, {CLOCK}");
            let spec = self.asked.spec(JobKind::Horovod, &about, placements, created);
            let mut target = Target::begin(self.asked.place, spec)?;
            // all that is told is told by one clock
            target.clock(&host, 0)?;
            let transport = self.transport.iter().copied().collect::<Vec<_>>().join(", ").to_lowercase();
            for rank in 0..ranks {
                let described = Event::JobDescribed {
                    job: "Horovod".to_owned(),
                    transport: (!transport.is_empty()).then(|| transport.clone()),
                    total_steps: None,
                    facts: Box::<HookFacts>::default(),
                };
                target.of_rank(created, Rank(rank), described)?;
            }
            self.target = Some(target);
        }
        // it was just put there
        self.target.as_mut().ok_or_else(|| self.asked.nothing("no collective was recorded"))
    }

    /// Ends the fold.
    ///
    /// # Errors
    /// Where no collective was recorded.
    pub(super) fn finish(mut self) -> Result<Folded, Error> {
        let pending = self.tensors.values().filter(|tensor| tensor.stage != Stage::Idle).count() as u64;
        let is_whole = self.running == 0 && self.done.len() >= self.last_size;
        let is_torn = !self.done.is_empty() && !is_whole && self.step > 1;
        if !is_torn && !self.done.is_empty() {
            self.close()?;
        }
        if self.target.is_none() {
            let what = match (self.counts.cycles, self.counts.beside + pending) {
                (0, 0) => "no collective was recorded".to_owned(),
                (cycles, 0) => format!("no collective was recorded, turns of Horovod's loop alone: {cycles}"),
                (_, others) => format!(
                    "no collective of a step was recorded; broadcasts, barriers and what was not through: {others}"
                ),
            };
            return Err(self.asked.nothing(&what));
        }
        let mut left_out: Vec<LeftOut> = Vec::new();
        let mut tell = |what: &str, count: u64, why: &str| {
            if count > 0 {
                left_out.push(LeftOut::new(what, count, why));
            }
        };
        let counts = &self.counts;
        let silent = self.steps.count - self.steps.with_waits;
        tell(
            "steps in which it is not told who waited",
            silent,
            "Horovod's cache of responses leaves the ranks' ticks out; HOROVOD_CACHE_CAPACITY=0 puts them in",
        );
        if counts.repeats == 0 {
            tell("step for the whole file", 1, "no tensor comes twice, so where steps end is not known");
        }
        tell("unfinished step at the end", u64::from(is_torn), "its collectives are not all there");
        tell("collectives not through", counts.unfinished + pending, "they were begun and never ended");
        tell("broadcasts, barriers and joins", counts.beside, "they are no part of a step");
        tell(
            "turns of Horovod's loop",
            counts.cycles,
            "a turn of its loop (CYCLE_START) is no training step",
        );
        tell("steps without a collective that was through", counts.empty, "nothing is known of them");
        tell("ticks of ranks beyond those of the first step", counts.late_ranks, "the run had no such ranks");
        tell("events beyond what is kept", counts.crowded, "more tensors or ticks than an import keeps");
        tell("steps beyond what is written", counts.unwritten, "a recording of an import has a limit");
        tell("events out of place", counts.stray, "they belong to no collective");
        left_out.extend(self.clock.told());
        if self.epoch.is_none() {
            left_out.push(LeftOut::new(
                "moment of the beginning",
                1,
                "the file does not tell it; that of the import stands for it",
            ));
        }
        let silent_run = Event::Gap { what: UNTICKED.to_owned(), dropped: silent };
        // where there is no other step, the whole file is taken for it
        let is_unbegun = self.is_unbegun && self.steps.count > 1;
        let end = Stamp(self.base()).plus_micros(self.clock.now());
        let Some(mut target) = self.target else {
            return Err(self.asked.nothing("no collective was recorded"));
        };
        if silent > 0 {
            target.of_run(end, silent_run)?;
        }
        if is_unbegun {
            target.of_run(end, Event::Gap { what: UNBEGUN.to_owned(), dropped: 1 })?;
        }
        Ok(Folded {
            told_ranks: self.ranks,
            steps: self.steps,
            waits: Some(self.waits.finish(CLOCK)),
            left_out,
            target,
        })
    }
}
