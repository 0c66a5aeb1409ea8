//! Traces of torch's profiler (Kineto): a file or more a rank, or one file of several ranks, as `hvtui trace` writes it. Steps are
//! `ProfilerStep#N`, as `prof.step()` marks them, from 0; where none is marked, those of an optimizer.
//!
//! A kernel of NCCL lasts from when its rank comes until all are through, and so does gloo's work: it is waiting and moving bytes.
//! Where there are the traces of all ranks and each has the same collectives, the shortest of a collective is what moving took, for
//! the rank that came last did not wait; what the others' lasted longer they waited. Else all of it is called transfer, which is
//! said. What runs while the rank computes is hidden. Nothing tells where forward ends and backward begins: no phase stands for
//! them.
//!
//! The [`slices`](super::slices) of other programs' traces are folded the same way: each of the [`threads`](super::threads) with steps
//! is a rank.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::super::error::Error;
use super::intervals::Span;
use super::kineto_events::Work;
use super::kineto_ranks::{MOST_RANKS, Ranks, TraceFile, assign, host_of, rank_within};
use super::kineto_steps::{Comm, Lane, Part, Step, part_waits};
use super::run::{Asked, is_moment, unknown_places};
use super::slices::Told;
use super::summary::{Folded, LeftOut, StepsRead};
use super::target::Target;
use super::threads::Threads;
use super::trace_event::TraceEvent;
use crate::domain::event::Event;
use crate::domain::hooks::HookFacts;
use crate::domain::ids::{HostId, Rank};
use crate::domain::run::{JobKind, Placement};
use crate::domain::time::Stamp;

/// Processes of a file.
const MOST_PROCESSES: usize = 1 << 12;
/// Steps and kernels that are kept of all files together.
const MOST_KEPT: usize = 1 << 22;
/// Operators that are kept of all files together.
const MOST_OPERATORS: usize = 1 << 21;
/// Collectives and optimizers that are told apart.
const MOST_NAMES: usize = 64;
/// Letters of a name.
const MOST_NAME: usize = 256;
/// By whose clock the times of a file are.
const CLOCK: &str = "the rank's own clock";
/// By whose clock those of several are.
const CLOCKS: &str = "each rank's own clock, not compared with the others'";

/// What stands in a file beside its events.
#[derive(Debug, Default, Clone)]
pub(super) struct Head {
    distributed: Option<Distributed>,
    base_ns: Option<i64>,
    host: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
struct Distributed {
    backend: String,
    rank: Option<u32>,
    world_size: Option<u32>,
    /// Process groups.
    pg_count: Value,
}

impl Head {
    /// Takes a value of the object that the file is.
    pub(super) fn take(&mut self, key: &str, text: &[u8]) {
        match key {
            "distributedInfo" => self.distributed = serde_json::from_slice(text).ok(),
            "baseTimeNanoseconds" => self.base_ns = serde_json::from_slice(text).ok(),
            "host_name" => self.host = serde_json::from_slice(text).ok(),
            _ => {}
        }
    }
}

/// What the traces come to.
pub(super) struct Profile {
    pub(super) told: Folded,
    /// By whose clock its times are.
    pub(super) clock: String,
    /// The rank of each file.
    pub(super) ranks: Vec<Option<u32>>,
}

/// What was counted while the steps were written.
struct Counted {
    steps: u64,
    ranks: usize,
    is_from_0: bool,
    repeated: u64,
    overlapping: u64,
    beside: u64,
    unparted: u64,
    crowded: u64,
    unknown: u64,
}

/// The fold over the files.
pub(super) struct Traces<'a> {
    asked: &'a Asked<'a>,
    /// Of the file that is being read, by process.
    open: BTreeMap<String, Lane>,
    labels: BTreeMap<String, (u32, String)>,
    kept: usize,
    operators: usize,
    names: Vec<String>,
    files: Vec<TraceFile>,
    hosts: BTreeMap<u32, String>,
    world: u32,
    backend: String,
    /// Whether gloo's work may be of some of the ranks.
    has_groups: bool,
    no_moment: u64,
    dropped: u64,
    ops: u64,
    first_ns: Option<i64>,
    last_ns: i64,
    /// Of traces that are not torch's.
    threads: Option<Threads>,
}

impl<'a> Traces<'a> {
    /// Of torch's profiler.
    pub(super) fn new(asked: &'a Asked<'a>) -> Self {
        Self {
            asked,
            threads: None,
            open: BTreeMap::new(),
            labels: BTreeMap::new(),
            kept: 0,
            operators: 0,
            names: Vec::new(),
            files: Vec::new(),
            hosts: BTreeMap::new(),
            world: 0,
            backend: String::new(),
            has_groups: false,
            no_moment: 0,
            dropped: 0,
            ops: 0,
            first_ns: None,
            last_ns: 0,
        }
    }

    /// Of so many files of any program whose steps are the slices of this name.
    pub(super) fn of_slices(asked: &'a Asked<'a>, step: &str, files: usize) -> Self {
        Self { threads: Some(Threads::new(step, files)), ..Self::new(asked) }
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
        if let Some(threads) = &mut self.threads {
            if let Some((thread, told, span)) = threads.take(event) {
                self.slice(thread, told, span);
            }
            return;
        }
        let Some(span) = event.span().filter(|_| phase == "X") else { return };
        self.reach(span);
        let Some(kind) = Work::of(cat, name) else {
            self.ops += 1;
            return;
        };
        let key = event.pid.key();
        let is_operator = matches!(kind, Work::Operator);
        let is_crowded = if is_operator { self.operators >= MOST_OPERATORS } else { self.kept >= MOST_KEPT };
        if is_crowded || self.open.len() >= MOST_PROCESSES && !self.open.contains_key(&key) {
            if is_operator {
                self.ops += 1;
            } else {
                self.dropped += 1;
            }
            return;
        }
        let group = event.args.get("Group size").count().unwrap_or_default();
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        let named = match kind {
            Work::Nccl(func) | Work::Gloo(func) | Work::Optimizer(func) => self.named(func),
            _ => 0,
        };
        let comm = Comm { span, func: named, group, wait: 0 };
        let lane = self.open.entry(key).or_default();
        match kind {
            Work::Step(step) => match step.parse() {
                Ok(number) => lane.steps.push(Step { number, span, is_cut: false }),
                Err(_) => self.dropped += 1,
            },
            Work::Nccl(_) => lane.comms.push(comm),
            Work::Gloo(_) => lane.gloo.push(comm),
            Work::Data => lane.data.push(span),
            Work::Optimizer(_) => lane.optimizer.push((named, span)),
            Work::Kernel if is_joined(&mut lane.computing, span) => return,
            Work::Kernel => {}
            Work::Operator => {
                self.ops += 1;
                self.operators += usize::from(!is_joined(&mut lane.operators, span));
                return;
            }
        }
        self.kept += 1;
    }

    /// The file tells something from when to when.
    fn reach(&mut self, span: Span) {
        self.first_ns = Some(self.first_ns.map_or(span.0, |first| first.min(span.0)));
        self.last_ns = self.last_ns.max(span.1);
    }

    /// Takes a slice of a thread in.
    fn slice(&mut self, thread: String, told: Told, span: Span) {
        self.reach(span);
        let kept = match told {
            Told::Step(_) => &mut self.kept,
            Told::Part(_) => &mut self.operators,
        };
        if *kept >= MOST_KEPT || self.open.len() >= MOST_PROCESSES && !self.open.contains_key(&thread) {
            self.dropped += 1;
            return;
        }
        *kept += 1;
        self.open.entry(thread).or_default().take_slice(told, span);
    }

    /// The number of a collective's or an optimizer's name; the last one stands for all that are too many.
    fn named(&mut self, name: &str) -> u16 {
        let at = self.names.iter().position(|known| known == name);
        let at = at.unwrap_or_else(|| {
            if self.names.len() < MOST_NAMES {
                self.names.push(name.chars().take(MOST_NAME).collect());
                return self.names.len() - 1;
            }
            MOST_NAMES
        });
        at as u16
    }

    /// `rank 3 on gpu-b`, with more behind it for what is not its process.
    fn label(&mut self, event: &TraceEvent<'_>) {
        let label = event.args.get("name").text();
        if self.threads.is_some() {
            if let Some(rank) = rank_within(label).filter(|_| self.labels.len() < MOST_PROCESSES) {
                self.labels.insert(event.pid.key(), (rank, String::new()));
            }
            return;
        }
        let Some((rank, place)) = label.strip_prefix("rank ").and_then(|rest| rest.split_once(" on ")) else {
            return;
        };
        let (Ok(rank), Some(pid)) = (rank.parse::<u32>(), event.pid.whole()) else { return };
        if rank < MOST_RANKS && self.labels.len() < MOST_PROCESSES {
            let host = place.split(" · ").next().unwrap_or_default();
            let host = host.split(", process ").next().unwrap_or_default().chars().take(MOST_NAME).collect();
            self.labels.insert(pid.to_string(), (rank, host));
        }
    }

    /// The open file is over.
    ///
    /// # Errors
    /// Where it names a rank that is none.
    pub(super) fn file(&mut self, path: &Path, head: Head, is_cut: bool) -> Result<(), String> {
        let info = head.distributed.unwrap_or_default();
        let is_too_large = |number: Option<u32>, most: u32| number.is_some_and(|number| number > most);
        if is_too_large(info.rank, MOST_RANKS - 1) || is_too_large(info.world_size, MOST_RANKS) {
            return Err(format!(
                "its distributedInfo names rank {} of {}: no more than {MOST_RANKS} ranks are read",
                info.rank.unwrap_or_default(),
                info.world_size.unwrap_or_default()
            ));
        }
        self.world = self.world.max(info.world_size.unwrap_or_default());
        self.has_groups |= info.pg_count.as_u64().is_some_and(|count| count > 1);
        if self.backend.is_empty() {
            self.backend = info.backend.chars().take(32).collect();
        }
        // older files count from the Unix epoch themselves
        let first_ns = self.first_ns.take().unwrap_or_default();
        self.last_ns = 0;
        let told = head.base_ns.unwrap_or_default();
        let has_moment = is_moment(Stamp(told.saturating_add(first_ns) / 1_000));
        let shift = if has_moment {
            told
        } else {
            self.no_moment += 1;
            self.asked.now.0.saturating_mul(1_000).saturating_sub(first_ns)
        };
        let mut file = TraceFile {
            path: path.to_owned(),
            rank: info.rank,
            world: info.world_size,
            has_moment,
            ..TraceFile::default()
        };
        let mut lanes: Vec<(String, Lane)> = std::mem::take(&mut self.open).into_iter().collect();
        for (_, lane) in &mut lanes {
            lane.shift(shift);
            if is_cut {
                lane.cut();
            }
        }
        let labels = std::mem::take(&mut self.labels);
        if let Some(threads) = &mut self.threads {
            threads.end_file(&mut file, std::mem::take(&mut lanes), &labels)?;
        }
        for (pid, lane) in lanes {
            match labels.get(&pid) {
                Some((rank, host)) => {
                    let (of, all) = file.others.entry(*rank).or_default();
                    of.clone_from(host);
                    all.append(lane);
                }
                None if labels.is_empty() => {
                    if !lane.steps.is_empty() || file.pid.is_empty() && !lane.optimizer.is_empty() {
                        file.pid = pid;
                    }
                    file.own.append(lane);
                }
                None => {}
            }
        }
        let host = head.host.filter(|host| !host.is_empty() && host.chars().count() <= MOST_NAME);
        file.host = host.or_else(|| host_of(path, &file.pid)).unwrap_or_default();
        self.files.push(file);
        Ok(())
    }

    /// All ranks and what they did, the ranks of the files, and what is to be said of both.
    fn ranks(&mut self) -> Result<(BTreeMap<u32, Lane>, Ranks), Error> {
        let mut files = std::mem::take(&mut self.files);
        let assigned = assign(&mut files).map_err(|(path, words)| Error::foreign(&path, &words))?;
        let mut ranks: BTreeMap<u32, Lane> = BTreeMap::new();
        for (file, rank) in files.into_iter().zip(&assigned.of_files) {
            let own = rank.map(|rank| (rank, (file.host, file.own)));
            for (rank, (host, lane)) in file.others.into_iter().chain(own) {
                self.world = self.world.max(rank.saturating_add(1));
                if !host.is_empty() {
                    self.hosts.insert(rank, host);
                }
                ranks.entry(rank).or_default().append(lane);
            }
        }
        Ok((ranks, assigned))
    }

    /// Whether each collective is one of all ranks, so that they can be compared.
    fn is_comparable(&self, ranks: &BTreeMap<u32, Lane>, is_gloo: bool) -> bool {
        let all = || ranks.values().flat_map(|lane| &lane.comms);
        // that a slice lasts until all are through is not told
        self.threads.is_none()
            && self.world > 1
            && ranks.len() == self.world as usize
            && !(is_gloo && self.has_groups)
            && all().all(|comm| {
                (comm.group == 0 || comm.group == self.world) && usize::from(comm.func) < MOST_NAMES
            })
    }

    /// Ends the fold. `no_step` says more of the error where there is no step.
    ///
    /// # Errors
    /// Where there is no step, and where files are not of one run.
    pub(super) fn finish(mut self, no_step: &dyn Fn(Error) -> Error) -> Result<Profile, Error> {
        let (mut ranks, assigned) = self.ranks()?;
        let by_optimizer = assigned.by_optimizer;
        if by_optimizer {
            ranks.values_mut().for_each(Lane::number_in_time);
        }
        let is_gloo = ranks.values().any(|lane| lane.comms.is_empty() && !lane.gloo.is_empty());
        let (mut repeated, mut overlapping) = (0, 0);
        for (twice, early) in ranks.values_mut().map(Lane::settle) {
            repeated += twice;
            overlapping += early;
        }
        let is_comparable = self.is_comparable(&ranks, is_gloo);
        let parted: BTreeSet<u64> = if is_comparable {
            part_waits(&mut ranks, self.world as usize).into_iter().collect()
        } else {
            BTreeSet::new()
        };
        let mut parts: BTreeMap<u64, BTreeMap<u32, Part>> = BTreeMap::new();
        let told_ranks: BTreeSet<u32> =
            ranks.iter().filter(|(_, lane)| !lane.steps.is_empty()).map(|(rank, _)| *rank).collect();
        let mut beside = 0;
        for (rank, lane) in ranks {
            beside += lane.parts(&mut |step, part| drop(parts.entry(step).or_default().insert(rank, part)));
        }
        let Some(created) = parts.values().flat_map(BTreeMap::values).map(|part| part.span.0).min() else {
            let what = if self.threads.is_some() {
                "no slice of that name has ended"
            } else {
                "no step is marked (`ProfilerStep#N`): torch marks steps where the profiler has a schedule, \
                        `profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3))`, and the loop calls \
                        `prof.step()` once a step"
            };
            return Err(no_step(self.asked.nothing(what)));
        };
        let mut target = self.begin(Stamp(created.div_euclid(1_000)), &told_ranks)?;
        let mut steps = StepsRead::default();
        let (mut unparted, mut crowded, mut unknown) = (0, 0, 0);
        // torch counts them from 0
        let from_0 = u64::from(self.threads.is_none() || parts.contains_key(&0));
        for (number, of_step) in parts {
            let has_comms = of_step.values().any(|part| !part.comms.is_empty());
            let is_parted = has_comms && parted.contains(&number);
            let number = number.saturating_add(from_0);
            steps.add(number);
            steps.with_waits += u64::from(is_parted);
            unparted += u64::from(!is_parted && has_comms && self.world > 1);
            unknown += u64::from(of_step.values().any(|part| part.is_cut));
            for (rank, part) in of_step {
                let (timing, more) = part.timing(number, is_parted);
                crowded += more;
                target.step(Rank(rank), timing)?;
            }
        }
        let count = Counted {
            steps: steps.count,
            ranks: told_ranks.len(),
            is_from_0: from_0 > 0 && !by_optimizer,
            repeated,
            overlapping,
            beside,
            unparted,
            crowded,
            unknown,
        };
        let left_out = self.left_out(&count, &assigned);
        let clock = self.clock(&told_ranks);
        let told = Folded { target, told_ranks: told_ranks.len() as u32, steps, waits: None, left_out };
        Ok(Profile { told, clock, ranks: assigned.of_files })
    }

    /// What is left out or unknown, and why.
    fn left_out(&self, count: &Counted, assigned: &Ranks) -> Vec<LeftOut> {
        let threads = self.threads.as_ref();
        let is_from_0 = count.is_from_0 && threads.is_none_or(|threads| threads.has_0);
        let numbered = if is_from_0 { count.steps } else { 0 };
        let unnamed = assigned.numbered + threads.map_or(0, |threads| threads.numbered);
        let together = if threads.is_some() {
            "that a slice lasts until all ranks are through is not told"
        } else {
            "a collective lasts from its rank's arrival on: only the traces of all ranks, with the same \
             collectives, tell them apart"
        };
        let mut all = left_out(&[
            (
                "steps whose communication is unknown",
                count.unknown,
                "a file is cut: kernels stand behind the program's events, so any of them may be missing",
            ),
            ("steps whose transfer includes waiting", count.unparted, together),
            (
                "steps numbered from 1",
                numbered,
                "the trace counts them from 0: its step 0 is step 1, and so on",
            ),
            (
                "steps that no ProfilerStep#N marks",
                if assigned.by_optimizer { count.steps } else { 0 },
                "they are counted from the first `Optimizer.step` of the trace: each lasts from the end of one to the \
                 end of the next",
            ),
            (
                "ranks that no file tells",
                if count.ranks > 1 { unnamed } else { 0 },
                "neither the file nor a name such as rank3.json: they are numbered in the order of the names",
            ),
            ("files told twice", assigned.twice.len() as u64, &assigned.twice.join(", ")),
            (
                "files of none of the ranks",
                assigned.strays.len() as u64,
                &format!("the others are of all ranks of the run: {}", assigned.strays.join(", ")),
            ),
            (
                "profiles whose steps are numbered onwards",
                assigned.anew,
                "a process was profiled anew and counted from the beginning: they go on behind the ones before",
            ),
            ("steps told twice", count.repeated, "a file has their number again: the first one counts"),
            ("steps that overlap the one before", count.overlapping, "they begin before it has ended"),
            ("collectives outside of the steps", count.beside, "they belong to no step"),
            (
                "phases beyond what a step has",
                count.crowded,
                "a step has thousands of stretches of communication",
            ),
            ("other operations", self.ops, "operators, calls and copies are not what a recording holds"),
            ("steps and kernels beyond what is kept", self.dropped, "there are millions of them"),
            (
                "moment of the beginning",
                self.no_moment,
                "the file does not tell it; that of the import stands for it",
            ),
        ]);
        all.extend(threads.into_iter().flat_map(|threads| self::left_out(&threads.left_out())));
        all
    }

    /// The one host on which all ranks ran, where each tells it; its clock is theirs where no moment stands for that of a file.
    fn only_host(&self, told: &BTreeSet<u32>) -> Option<&String> {
        if self.no_moment > 0 {
            return None;
        }
        let mut hosts = told.iter().map(|rank| self.hosts.get(rank));
        let first = hosts.next()??;
        hosts.all(|host| host == Some(first)).then_some(first)
    }

    fn clock(&self, told: &BTreeSet<u32>) -> String {
        match self.only_host(told) {
            _ if told.len() == 1 => CLOCK.to_owned(),
            Some(host) => format!("the clock of {host}, on which all ranks ran"),
            None => CLOCKS.to_owned(),
        }
    }

    fn begin(&self, created: Stamp, told: &BTreeSet<u32>) -> Result<Target, Error> {
        let unknown = HostId::from("unknown");
        let mut places = unknown_places(self.world.max(1), &unknown);
        for (place, rank) in places.iter_mut().zip(0..) {
            if let Some(host) = self.hosts.get(&rank) {
                place.host = HostId::from(host.as_str());
            }
        }
        count_on_hosts(&mut places);
        let (kind, about) = match self.threads {
            None => (JobKind::Torch, "trace of torch's profiler"),
            Some(_) => (JobKind::Plain, "Chrome trace"),
        };
        let spec = self.asked.spec(kind, about, places, created);
        let mut target = Target::begin(self.asked.place, spec)?;
        if let Some(host) = self.only_host(told).filter(|_| told.len() > 1) {
            // their moments can be compared: it is one clock
            target.clock(&HostId::from(host.as_str()), 0)?;
        }
        for rank in told.iter().filter(|_| self.threads.is_none()) {
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

/// Which of a host's ranks each is.
fn count_on_hosts(places: &mut [Placement]) {
    let mut on_host: BTreeMap<HostId, u32> = BTreeMap::new();
    for place in places {
        let next = on_host.entry(place.host.clone()).or_default();
        place.local_rank = *next;
        *next += 1;
    }
}

/// What of these there is.
fn left_out(all: &[(&str, u64, &str)]) -> Vec<LeftOut> {
    let some = all.iter().filter(|(_, count, _)| *count > 0);
    some.map(|(what, count, why)| LeftOut::new(*what, *count, *why)).collect()
}

/// Lengthens the last stretch where this one begins in it: one after the other on a stream, or within the other.
fn is_joined(spans: &mut Vec<Span>, span: Span) -> bool {
    if let Some(last) = spans.last_mut()
        && span.0 >= last.0
        && span.0 <= last.1
    {
        last.1 = last.1.max(span.1);
        return true;
    }
    spans.push(span);
    false
}
