//! Traces of torch's profiler (Kineto): a file a rank, which `distributedInfo` names; or one file of several ranks, as `hvtui
//! trace` writes it. Steps are `ProfilerStep#N`, as `prof.step()` marks them.
//!
//! A kernel of NCCL lasts from when its rank comes until all are through, so it is waiting and moving bytes. Where there are the
//! traces of all ranks and each has the same collectives in a step, the shortest of a collective's kernels is what moving took, for
//! the rank that came last did not wait; what the others' kernels lasted longer they waited. Else all of it is called transfer,
//! which is said. What runs while the GPU computes is hidden. Nothing tells where forward ends and backward begins: no phase
//! stands for them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::super::error::Error;
use super::intervals::{Span, clipped, length, united, without};
use super::run::{Asked, is_moment, unknown_places};
use super::summary::{Folded, LeftOut, StepsRead};
use super::target::Target;
use super::trace_event::TraceEvent;
use crate::domain::event::Event;
use crate::domain::hooks::HookFacts;
use crate::domain::ids::{HostId, Rank};
use crate::domain::run::JobKind;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::{Phase, PhaseSpan, StepTiming};

/// Ranks that are told apart.
const MOST_RANKS: u32 = 1 << 16;
/// Processes of a file.
const MOST_PROCESSES: usize = 1 << 12;
/// Steps and kernels that are kept of all files together.
const MOST_KEPT: usize = 1 << 22;
/// Phases of a step that are kept.
const MOST_SPANS: usize = 1 << 10;
/// By whose clock the times of a file are.
pub(super) const CLOCK: &str = "the rank's own clock";
/// By whose clock those of several are.
pub(super) const CLOCKS: &str = "each rank's own clock, not compared with the others'";

/// What stands in a file beside its events.
#[derive(Debug, Default, Clone)]
pub(super) struct Head {
    distributed: Option<Distributed>,
    base_ns: Option<i64>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
struct Distributed {
    backend: String,
    rank: Option<u32>,
    world_size: Option<u32>,
}

impl Head {
    /// Takes a value of the object that the file is.
    pub(super) fn take(&mut self, key: &str, text: &[u8]) {
        match key {
            "distributedInfo" => self.distributed = serde_json::from_slice(text).ok(),
            "baseTimeNanoseconds" => self.base_ns = serde_json::from_slice(text).ok(),
            _ => {}
        }
    }

    /// The file's rank.
    pub(super) fn rank(&self) -> Option<u32> {
        self.distributed.as_ref()?.rank
    }
}

/// A kernel of NCCL.
#[derive(Debug, Clone, Copy)]
struct Comm {
    span: Span,
    /// Which collective, among those of all files.
    func: u16,
    /// Ranks of its communicator; 0 where that is not told.
    group: u32,
}

/// What a process, or all of a rank, did. Times are nanoseconds.
#[derive(Debug, Default)]
struct Lane {
    steps: Vec<(u64, Span)>,
    comms: Vec<Comm>,
    computing: Vec<Span>,
}

/// The fold over the files.
pub(super) struct Traces<'a> {
    asked: &'a Asked<'a>,
    /// Of the file that is being read, by process.
    open: BTreeMap<String, Lane>,
    labels: BTreeMap<String, (u32, String)>,
    kept: usize,
    funcs: Vec<String>,
    ranks: BTreeMap<u32, Lane>,
    hosts: BTreeMap<u32, String>,
    world: u32,
    backend: String,
    files: u32,
    no_moment: u64,
    dropped: u64,
    ops: u64,
    first_ns: Option<i64>,
    last_ns: i64,
}

impl<'a> Traces<'a> {
    pub(super) fn new(asked: &'a Asked<'a>) -> Self {
        Self {
            asked,
            open: BTreeMap::new(),
            labels: BTreeMap::new(),
            kept: 0,
            funcs: Vec::new(),
            ranks: BTreeMap::new(),
            hosts: BTreeMap::new(),
            world: 0,
            backend: String::new(),
            files: 0,
            no_moment: 0,
            dropped: 0,
            ops: 0,
            first_ns: None,
            last_ns: 0,
        }
    }

    /// From the first event of the open file to its newest, microseconds.
    pub(super) fn length_us(&self) -> i64 {
        self.last_ns.saturating_sub(self.first_ns.unwrap_or_default()) / 1_000
    }

    /// Takes an event of the open file in.
    pub(super) fn take(&mut self, event: &TraceEvent<'_>) {
        let (phase, cat, name) = (event.phase(), event.cat.text(), event.name.text());
        if phase == "M" {
            if name == "process_name" {
                self.label(event);
            }
            return;
        }
        let Some(span) = event.span().filter(|_| phase == "X") else { return };
        self.first_ns = Some(self.first_ns.map_or(span.0, |first| first.min(span.0)));
        self.last_ns = self.last_ns.max(span.1);
        let step = name.strip_prefix("ProfilerStep#").filter(|_| cat != "gpu_user_annotation");
        let is_kernel = cat == "kernel";
        if step.is_none() && !is_kernel {
            self.ops += 1;
            return;
        }
        let key = match event.pid.whole() {
            Some(pid) => pid.to_string(),
            None => event.pid.text().chars().take(64).collect(),
        };
        if !self.open.contains_key(&key) && self.open.len() >= MOST_PROCESSES || self.kept >= MOST_KEPT {
            self.dropped += 1;
            return;
        }
        let lane = self.open.entry(key).or_default();
        if let Some(step) = step {
            match step.parse() {
                Ok(step) => lane.steps.push((step, span)),
                Err(_) => self.dropped += 1,
            }
        } else if name.starts_with("nccl") {
            let func = name.split('_').nth(1).unwrap_or(name).split('(').next().unwrap_or_default();
            let func = match self.funcs.iter().position(|known| known == func) {
                Some(at) => at,
                None if self.funcs.len() < 64 => {
                    self.funcs.push(func.to_owned());
                    self.funcs.len() - 1
                }
                None => self.funcs.len(),
            };
            let group = event.args.get("Group size").count().unwrap_or_default();
            let group = u32::try_from(group).unwrap_or(u32::MAX);
            lane.comms.push(Comm { span, func: func as u16, group });
        } else {
            match lane.computing.last_mut() {
                // one after the other on a stream: less to keep
                Some(last) if span.0 >= last.0 && span.0 <= last.1 => {
                    last.1 = last.1.max(span.1);
                    return;
                }
                _ => lane.computing.push(span),
            }
        }
        self.kept += 1;
    }

    /// `rank 3 on gpu-b`, with more behind it for what is not its process.
    fn label(&mut self, event: &TraceEvent<'_>) {
        let label = event.args.get("name").text();
        let Some((rank, place)) = label.strip_prefix("rank ").and_then(|rest| rest.split_once(" on ")) else {
            return;
        };
        let (Ok(rank), Some(pid)) = (rank.parse::<u32>(), event.pid.whole()) else { return };
        if rank < MOST_RANKS && self.labels.len() < MOST_PROCESSES {
            let host = place.split(" · ").next().unwrap_or_default().chars().take(256).collect();
            self.labels.insert(pid.to_string(), (rank, host));
        }
    }

    /// The open file is over.
    ///
    /// # Errors
    /// Where it names a rank that is none.
    pub(super) fn file(&mut self, head: &Head) -> Result<(), String> {
        let info = head.distributed.clone().unwrap_or_default();
        let of_file = info.rank.unwrap_or(self.files);
        self.files += 1;
        if of_file >= MOST_RANKS || info.world_size.is_some_and(|world| world > MOST_RANKS) {
            return Err(format!(
                "its distributedInfo names rank {of_file}: no more than {MOST_RANKS} ranks are read"
            ));
        }
        self.world = self.world.max(info.world_size.unwrap_or_default());
        if self.backend.is_empty() {
            self.backend = info.backend.chars().take(32).collect();
        }
        // older files count from the Unix epoch themselves
        let first_ns = self.first_ns.take().unwrap_or_default();
        self.last_ns = 0;
        let told = head.base_ns.unwrap_or_default();
        let shift = if is_moment(Stamp(told.saturating_add(first_ns) / 1_000)) {
            told
        } else {
            self.no_moment += 1;
            self.asked.now.0.saturating_mul(1_000).saturating_sub(first_ns)
        };
        let labels = std::mem::take(&mut self.labels);
        for (pid, mut lane) in std::mem::take(&mut self.open) {
            let (rank, host) = labels.get(&pid).cloned().unwrap_or((of_file, String::new()));
            if !labels.is_empty() && host.is_empty() {
                continue;
            }
            lane.shift(shift);
            self.world = self.world.max(rank + 1);
            if !host.is_empty() {
                self.hosts.insert(rank, host);
            }
            let all = self.ranks.entry(rank).or_default();
            all.steps.append(&mut lane.steps);
            all.comms.append(&mut lane.comms);
            all.computing.append(&mut lane.computing);
        }
        Ok(())
    }

    /// Whether each collective is one of all ranks, so that kernels can be compared.
    fn is_comparable(&self) -> bool {
        let all = || self.ranks.values().flat_map(|lane| &lane.comms);
        self.world > 1
            && self.ranks.len() == self.world as usize
            && self.funcs.len() < 64
            && all().all(|comm| comm.group == 0 || comm.group == self.world)
    }

    /// Ends the fold.
    ///
    /// # Errors
    /// Where there is no step.
    pub(super) fn finish(mut self) -> Result<Folded, Error> {
        let is_comparable = self.is_comparable();
        let mut parts: BTreeMap<u64, BTreeMap<u32, Part>> = BTreeMap::new();
        let ranks = std::mem::take(&mut self.ranks);
        let told_ranks: BTreeSet<u32> =
            ranks.iter().filter(|(_, lane)| !lane.steps.is_empty()).map(|(rank, _)| *rank).collect();
        let mut beside = 0;
        for (rank, lane) in ranks {
            beside += lane.parts(&mut |step, part| drop(parts.entry(step).or_default().insert(rank, part)));
        }
        let Some(created) = parts.values().flat_map(BTreeMap::values).map(|part| part.span.0).min() else {
            let what = "no step is marked (`ProfilerStep#N`): call `prof.step()` once a step; \
                        `record_shapes` and the like are not needed";
            return Err(self.asked.nothing(what));
        };
        let mut target = self.begin(Stamp(created.div_euclid(1_000)), &told_ranks)?;
        // they are counted from 1
        let shift = u64::from(parts.keys().next() == Some(&0));
        let mut steps = StepsRead::default();
        let (mut unparted, mut crowded) = (0, 0);
        for (number, mut of_step) in parts {
            let has_comms = of_step.values().any(|part| !part.comms.is_empty());
            let is_parted = is_comparable && of_step.len() == self.world as usize && part_waits(&mut of_step);
            let number = number + shift;
            steps.add(number);
            steps.with_waits += u64::from(is_parted && has_comms);
            unparted += u64::from(!is_parted && has_comms && self.world > 1);
            for (rank, part) in of_step {
                let (timing, more) = part.timing(number, is_parted && has_comms);
                crowded += more;
                target.step(Rank(rank), timing)?;
            }
        }
        let mut left_out = Vec::new();
        let mut tell = |what: &str, count: u64, why: &str| {
            if count > 0 {
                left_out.push(LeftOut::new(what, count, why));
            }
        };
        tell(
            "steps whose transfer includes waiting",
            unparted,
            "an NCCL kernel lasts from its rank's arrival on: only the traces of all ranks, with the same collectives \
             in a step, tell them apart",
        );
        tell("steps numbered from 0", shift, "ProfilerStep#0 is step 1, and so on");
        tell("kernels of NCCL outside of the steps", beside, "they belong to no step");
        tell("phases beyond what a step has", crowded, "a step has thousands of stretches of communication");
        tell("other operations", self.ops, "operators, calls and copies are not what a recording holds");
        tell("steps and kernels beyond what is kept", self.dropped, "there are millions of them");
        tell(
            "moment of the beginning",
            self.no_moment,
            "the file does not tell it; that of the import stands for it",
        );
        Ok(Folded { target, told_ranks: told_ranks.len() as u32, steps, waits: None, left_out })
    }

    fn begin(&self, created: Stamp, told: &BTreeSet<u32>) -> Result<Target, Error> {
        let unknown = HostId::from("unknown");
        let mut places = unknown_places(self.world.max(1), &unknown);
        for (place, rank) in places.iter_mut().zip(0..) {
            if let Some(host) = self.hosts.get(&rank) {
                place.host = HostId::from(host.as_str());
            }
        }
        let spec = self.asked.spec(JobKind::Torch, "trace of torch's profiler", places, created);
        let mut target = Target::begin(self.asked.place, spec)?;
        if told.len() == 1 && self.hosts.is_empty() {
            target.clock(&unknown, 0)?;
        }
        for rank in told {
            let described = Event::JobDescribed {
                job: "torch".to_owned(),
                transport: (!self.backend.is_empty()).then(|| self.backend.clone()),
                total_steps: None,
                facts: Box::<HookFacts>::default(),
            };
            target.of_rank(created, Rank(*rank), described)?;
        }
        Ok(target)
    }
}

/// A rank's part in a step.
struct Part {
    span: Span,
    comms: Vec<Comm>,
    /// How much of each of them was waiting, from its beginning on.
    waits: Vec<i64>,
    computing: Vec<Span>,
}

impl Lane {
    fn shift(&mut self, by: i64) {
        let moved = |span: &mut Span| *span = (span.0.saturating_add(by), span.1.saturating_add(by));
        self.steps.iter_mut().for_each(|(_, span)| moved(span));
        self.comms.iter_mut().for_each(|comm| moved(&mut comm.span));
        self.computing.iter_mut().for_each(moved);
    }

    /// Gives the parts of all steps, in their order in time; how many kernels of NCCL belong to none.
    fn parts(mut self, give: &mut dyn FnMut(u64, Part)) -> u64 {
        self.steps.sort_by_key(|(_, span)| *span);
        self.comms.sort_by_key(|comm| comm.span);
        let computing = united(self.computing);
        let mut comms = &self.comms[..];
        let mut beside = 0;
        for (step, span) in self.steps {
            let first = comms.partition_point(|comm| comm.span.0 < span.0);
            beside += first;
            comms = &comms[first..];
            let count = comms.partition_point(|comm| comm.span.0 < span.1);
            let (own, rest) = comms.split_at(count);
            comms = rest;
            let from = computing.partition_point(|other| other.1 <= span.0);
            let to = computing.partition_point(|other| other.0 < span.1).max(from);
            let (comms, computing) = (own.to_vec(), computing[from..to].to_vec());
            give(step, Part { span, waits: vec![0; comms.len()], comms, computing });
        }
        (beside + comms.len()) as u64
    }
}

/// Tells waiting from moving bytes, where all ranks have the same collectives.
fn part_waits(of_step: &mut BTreeMap<u32, Part>) -> bool {
    let Some(first) = of_step.values().next() else { return false };
    let funcs: Vec<u16> = first.comms.iter().map(|comm| comm.func).collect();
    if !of_step.values().all(|part| part.comms.iter().map(|comm| comm.func).eq(funcs.iter().copied())) {
        return false;
    }
    for at in 0..funcs.len() {
        let lasts = |part: &Part| part.comms.get(at).map_or(0, |comm| comm.span.1 - comm.span.0);
        let least = of_step.values().map(lasts).min().unwrap_or_default();
        for part in of_step.values_mut() {
            let more = lasts(part) - least;
            if let Some(wait) = part.waits.get_mut(at) {
                *wait = more;
            }
        }
    }
    true
}

impl Part {
    /// The step as it is recorded, and how many phases it has beyond what is kept.
    fn timing(&self, step: u64, tells_wait: bool) -> (StepTiming, u64) {
        let (mut waiting, mut moving, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        for (comm, wait) in self.comms.iter().zip(&self.waits) {
            let Some(span) = clipped(comm.span, self.span) else { continue };
            busy.push(span);
            let moves = comm.span.0.saturating_add(*wait).clamp(span.0, span.1);
            waiting.extend(without((span.0, moves), &self.computing));
            moving.extend(without((moves, span.1), &self.computing));
        }
        let mut spans: Vec<PhaseSpan> = Vec::new();
        let mut exposed = Vec::new();
        // where streams run beside each other, who moves bytes does not wait
        let moving = united(moving);
        let waiting: Vec<Span> =
            united(waiting).into_iter().flat_map(|span| without(span, &moving)).collect();
        for (phase, all) in [(Phase::Wait, waiting), (Phase::Transfer, moving)] {
            spans.extend(all.iter().map(|(from, to)| PhaseSpan {
                phase,
                start_us: micros(from - self.span.0),
                dur_us: micros(to - from),
            }));
            exposed.extend(all);
        }
        spans.retain(|span| span.dur_us > 0);
        spans.sort_by_key(|span| span.start_us);
        if tells_wait && !spans.iter().any(|span| span.phase == Phase::Wait) {
            // that it came last, it tells too
            let start_us = spans.first().map_or(0, |span| span.start_us);
            spans.insert(0, PhaseSpan { phase: Phase::Wait, start_us, dur_us: 0 });
        }
        let crowded = spans.len().saturating_sub(MOST_SPANS) as u64;
        spans.truncate(MOST_SPANS);
        let hidden = length(&united(busy)) - length(&united(exposed));
        let start = u64::try_from(self.span.0.div_euclid(1_000)).unwrap_or_default();
        let timing = StepTiming {
            step,
            start: HostTime(start),
            dur_us: micros(self.span.1 - self.span.0),
            loss: None,
            samples: 0,
            spans,
            hidden_us: micros(hidden),
        };
        (timing, crowded)
    }
}

fn micros(ns: i64) -> u32 {
    u32::try_from(ns.saturating_add(500).max(0) / 1_000).unwrap_or(u32::MAX)
}
