//! Logs of NCCL's Inspector plugin as a run: how long each collective took on each rank. A line of JSON a collective; a file a
//! process.
//!
//! Files are read twice: which processes and communicators there are, then all of them side by side in the order of their moments.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::error::Error;
use super::run::{Asked, is_moment, unknown_places};
use super::scanner::End;
use super::source::Text;
use super::summary::{FileRead, Folded, LeftOut, StepsRead};
use super::target::Target;
use super::{cut, source};
use crate::domain::event::Event;
use crate::domain::ids::{HostId, Rank};
use crate::domain::nccl_timing::{CollectiveTiming, CommId};
use crate::domain::run::{JobKind, Placement, Slot};
use crate::domain::time::{HostTime, Stamp};

/// Files that are read side by side, each of them open.
const MOST_FILES: usize = 512;
/// Ranks that are told apart, as many as a report follows; and communicators of a process.
const MOST_RANKS: usize = 4096;
const MOST_COMMS: usize = 1024;
/// The longest line that is taken: with the events of 64 channels one has a tenth of it.
const MOST_LINE: u64 = 1 << 20;
/// Letters of a function's name, and of a host's.
const MOST_NAME: usize = 24;
const MOST_HOST: usize = 255;
/// By whose clock its times are.
pub(super) const CLOCK: &str =
    "each host's own wall clock: how long a collective took is compared, when it was is not";

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    header: Header<'a>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    coll_perf: Option<Collective<'a>>,
    #[serde(default)]
    p2p_perf: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    rank: u32,
    n_ranks: u32,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    dump_timestamp_us: i64,
    #[serde(borrow)]
    hostname: Cow<'a, str>,
    pid: u64,
}

#[derive(Deserialize)]
struct Collective<'a> {
    #[serde(borrow)]
    coll: Cow<'a, str>,
    coll_sn: u64,
    #[serde(default)]
    coll_msg_size_bytes: u64,
    coll_exec_time_us: u32,
    #[serde(borrow, default)]
    coll_timing_source: Option<Cow<'a, str>>,
    #[serde(default)]
    event_trace_ts: Option<Trace>,
}

#[derive(Deserialize)]
struct Trace {
    #[serde(default)]
    kernel_events: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Kernel {
    #[serde(default)]
    kernel_start_ts: i64,
}

/// A process of the run: host and pid.
type Process = (String, u64);

/// One collective on one rank.
struct Done {
    process: Process,
    at: Stamp,
    timing: CollectiveTiming,
}

/// What a line tells.
enum Told {
    Done(Box<Done>),
    /// A message between two ranks.
    Message,
    /// Its length is that of a call on the CPU, which says nothing of other ranks.
    ByCpu,
    /// It has no moment.
    Timeless,
    /// Something about the log itself.
    Other,
}

fn told(line: &[u8]) -> Option<Told> {
    let Line { header, metadata, coll_perf, p2p_perf } = serde_json::from_slice(line).ok()?;
    let Some(done) = coll_perf else {
        return Some(if p2p_perf.is_some() { Told::Message } else { Told::Other });
    };
    let comm = CommId(u64::from_str_radix(header.id.trim_start_matches("0x"), 16).ok()?);
    if done.coll_timing_source.as_deref() == Some("collective_cpu") {
        return Some(Told::ByCpu);
    }
    let length = i64::from(done.coll_exec_time_us);
    let starts = done.event_trace_ts.iter().flat_map(|trace| &trace.kernel_events);
    let start = starts.map(|kernel| kernel.kernel_start_ts).filter(|start| *start > 0).min();
    // without a trace the writing of the line is all that is known: it comes behind the end
    let start = Stamp(start.unwrap_or(metadata.dump_timestamp_us.saturating_sub(length)));
    if !is_moment(start) {
        return Some(Told::Timeless);
    }
    let timing = CollectiveTiming {
        comm,
        ranks: header.n_ranks,
        comm_rank: header.rank,
        func: done.coll.chars().take(MOST_NAME).collect(),
        seq: done.coll_sn,
        bytes: done.coll_msg_size_bytes,
        datatype: String::new(),
        t: Some(HostTime(u64::try_from(start.0).unwrap_or_default())),
        dur_ns: u64::from(done.coll_exec_time_us) * 1000,
        gpu_ns: None,
        every: 1,
        lost: 0,
    };
    let process = (metadata.hostname.chars().take(MOST_HOST).collect(), metadata.pid);
    Some(Told::Done(Box::new(Done { process, at: start.plus_micros(length), timing })))
}

/// Whether a text is such a log, by its first line.
pub(super) fn is_log(text: impl Read) -> bool {
    let mut lines = Lines::new(text.take(MOST_LINE));
    lines.next().is_some_and(|line| serde_json::from_slice::<Line<'_>>(line).is_ok())
}

/// The lines of a text, those that are too long left out.
struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    bytes: u64,
    unread: u64,
    end: Option<End>,
}

impl<R: Read> Lines<R> {
    fn new(from: R) -> Self {
        Self { from: BufReader::new(from), line: Vec::new(), bytes: 0, unread: 0, end: None }
    }

    /// The next line that says something.
    fn next(&mut self) -> Option<&[u8]> {
        while self.end.is_none() {
            self.line.clear();
            let read = (&mut self.from).take(MOST_LINE).read_until(b'\n', &mut self.line);
            match read {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.end = Some(End::Cut(self.bytes));
                }
                Err(error) => self.end = Some(End::Unreadable(self.bytes, error.to_string())),
                Ok(0) => self.end = Some(End::Whole),
                Ok(count) => {
                    let is_whole = self.line.ends_with(b"\n");
                    let begins = self.bytes;
                    self.bytes += count as u64;
                    if is_whole && !self.line.trim_ascii().is_empty() {
                        return Some(&self.line);
                    }
                    if !is_whole && !self.rest(begins) {
                        return Some(&self.line);
                    }
                }
            }
        }
        None
    }

    /// Behind a line without its end: passes over what is too long, and tells a writer that was killed. `false` where the last line
    /// is one all the same.
    fn rest(&mut self, begins: u64) -> bool {
        if (self.line.len() as u64) < MOST_LINE {
            if serde_json::from_slice::<IgnoredAny>(&self.line).is_ok() {
                return false;
            }
            self.end = Some(End::Cut(begins));
            return true;
        }
        self.unread += 1;
        loop {
            self.line.clear();
            match (&mut self.from).take(MOST_LINE).read_until(b'\n', &mut self.line) {
                Ok(0) | Err(_) => return true,
                Ok(count) => self.bytes += count as u64,
            }
            if self.line.ends_with(b"\n") {
                return true;
            }
        }
    }
}

/// A file that is read.
struct Open<'a> {
    path: &'a Path,
    lines: Lines<Text>,
    is_packed: bool,
    events: u64,
    unread: u64,
    rank: Option<u32>,
    next: Option<Box<Done>>,
    last: Option<Stamp>,
}

/// What is not a collective with its length.
#[derive(Default)]
struct Others {
    messages: u64,
    by_cpu: u64,
    timeless: u64,
    unplaced: u64,
}

impl Open<'_> {
    /// Reads on to the next collective.
    fn advance(&mut self, others: &mut Others) {
        self.next = None;
        while let Some(line) = self.lines.next() {
            match told(line) {
                Some(Told::Done(done)) => {
                    self.events += 1;
                    self.last = Some(done.at);
                    self.next = Some(done);
                    return;
                }
                Some(Told::Message) => others.messages += 1,
                Some(Told::ByCpu) => others.by_cpu += 1,
                Some(Told::Timeless) => others.timeless += 1,
                Some(Told::Other) => {}
                None => self.unread += 1,
            }
        }
    }
}

fn open(paths: &[PathBuf]) -> Result<Vec<Open<'_>>, Error> {
    let mut files = Vec::new();
    for path in paths {
        let source = source::open(path)?;
        let lines = Lines::new(source.text);
        let is_packed = source.is_packed;
        files.push(Open { path, lines, is_packed, events: 0, unread: 0, rank: None, next: None, last: None });
    }
    Ok(files)
}

/// The processes of a log, and what each is to its communicators.
#[derive(Default)]
struct Processes {
    all: BTreeMap<Process, BTreeSet<(CommId, u32, u32)>>,
    start: Option<Stamp>,
}

impl Processes {
    fn add(&mut self, done: &Done) {
        let timing = &done.timing;
        let start = done.at.plus_micros(-(i64::try_from(timing.dur_ns / 1000).unwrap_or(0)));
        self.start = Some(self.start.map_or(start, |known| known.min(start)));
        if self.all.len() < MOST_RANKS || self.all.contains_key(&done.process) {
            let comms = self.all.entry(done.process.clone()).or_default();
            if comms.len() < MOST_COMMS {
                comms.insert((timing.comm, timing.comm_rank, timing.ranks));
            }
        }
    }

    /// Which rank each process is: its number in the largest communicator, where that is one of all processes. Else they are
    /// numbered in the order of their names. Gives how many ranks there are, too.
    fn ranks(&self) -> (Ranks, usize) {
        let comms = || self.all.values().flatten();
        let largest = comms().map(|(_, _, ranks)| *ranks).max().unwrap_or_default();
        let mut members: BTreeMap<CommId, usize> = BTreeMap::new();
        for comms in self.all.values() {
            let own = comms.iter().filter(|(.., ranks)| *ranks == largest).map(|(comm, ..)| *comm);
            for comm in own.collect::<BTreeSet<_>>() {
                *members.entry(comm).or_default() += 1;
            }
        }
        // that of all processes, each with ranks of its own
        for world in
            members.into_iter().filter(|(_, count)| *count == self.all.len()).map(|(comm, _)| comm).take(8)
        {
            let own = |comms: &BTreeSet<(CommId, u32, u32)>| {
                let of_world = comms.iter().filter(|(comm, ..)| *comm == world);
                of_world.map(|(_, rank, _)| *rank).collect::<Vec<u32>>()
            };
            let of_process: BTreeMap<Process, Vec<u32>> =
                self.all.iter().map(|(process, comms)| (process.clone(), own(comms))).collect();
            let mut taken = BTreeSet::new();
            if of_process.values().flatten().all(|rank| *rank < largest && taken.insert(*rank)) {
                return (Ranks { of_process, world: Some(world) }, largest as usize);
            }
        }
        let of_process = self.all.keys().cloned().zip((0..).map(|rank| vec![rank])).collect();
        (Ranks { of_process, world: None }, self.all.len())
    }
}

/// Which rank a process is; several where it has several GPUs.
struct Ranks {
    of_process: BTreeMap<Process, Vec<u32>>,
    /// The communicator of all, where there is one.
    world: Option<CommId>,
}

impl Ranks {
    /// The rank that has told of a collective; `None` where its process has several, and it is one of another communicator.
    fn of(&self, done: &Done) -> Option<u32> {
        match self.of_process.get(&done.process)?.as_slice() {
            [rank] => Some(*rank),
            several => {
                let rank = done.timing.comm_rank;
                (self.world == Some(done.timing.comm) && several.contains(&rank)).then_some(rank)
            }
        }
    }

    /// Where ranks ran, as far as it is told.
    fn places(&self, count: u32) -> Vec<Placement> {
        let mut places = unknown_places(count, &HostId::from("unknown"));
        let mut on_host: BTreeMap<&str, u32> = BTreeMap::new();
        for ((host, _), ranks) in &self.of_process {
            for rank in ranks {
                let Some(place) = places.get_mut(*rank as usize) else { continue };
                let next = on_host.entry(host).or_default();
                place.host = host_id(host);
                place.local_rank = *next;
                place.slot = Slot::Cpu { index: *next };
                *next += 1;
            }
        }
        places
    }
}

/// A host's name without what no host is called.
fn host_id(name: &str) -> HostId {
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).take(64).collect();
    HostId::from(if name.is_empty() { "unknown" } else { name.as_str() })
}

/// Makes a run of the Inspector's logs.
///
/// # Errors
/// Where there is no collective in them.
pub(super) fn read(asked: &Asked<'_>, paths: &[PathBuf]) -> Result<(Folded, Vec<FileRead>), Error> {
    if paths.len() > MOST_FILES {
        let words = format!("{} logs; {MOST_FILES} are read at once: name those of some hosts", paths.len());
        return Err(asked.nothing(&words));
    }
    let (mut processes, mut others) = (Processes::default(), Others::default());
    for mut file in open(paths)? {
        file.advance(&mut others);
        while let Some(done) = file.next.take() {
            processes.add(&done);
            file.advance(&mut others);
        }
    }
    let (ranks, count) = processes.ranks();
    let Some(start) = processes.start else {
        return Err(asked.nothing("a log of NCCL's Inspector without a collective whose length is told"));
    };
    let count = u32::try_from(count).ok().filter(|count| (*count as usize) <= MOST_RANKS);
    let count = count.ok_or_else(|| asked.nothing(&format!("more than {MOST_RANKS} ranks")))?;
    let spec = asked.spec(JobKind::Plain, "a log of NCCL's Inspector", ranks.places(count), start);
    let mut target = Target::begin(asked.place, spec)?;
    let mut others = Others::default();
    let mut files = open(paths)?;
    for file in &mut files {
        file.advance(&mut others);
    }
    let mut told_ranks = BTreeSet::new();
    loop {
        let earliest = files.iter_mut().filter(|file| file.next.is_some());
        let Some(file) = earliest.min_by_key(|file| file.next.as_ref().map(|done| done.at)) else { break };
        if let Some(done) = file.next.take() {
            match ranks.of(&done) {
                Some(rank) => {
                    told_ranks.insert(rank);
                    file.rank = Some(rank);
                    let timing = Box::new(done.timing);
                    target.of_rank(done.at, Rank(rank), Event::CollectiveDone { timing })?;
                }
                None => others.unplaced += 1,
            }
        }
        file.advance(&mut others);
    }
    let told_ranks = u32::try_from(told_ranks.len()).unwrap_or(u32::MAX);
    let files = files.iter().map(|file| read_of(file, start)).collect();
    let mut left_out = others.left_out();
    if ranks.world.is_none() {
        let why = "no communicator is one of all processes: they are numbered in the order of host and pid, which is not the program's";
        left_out.push(LeftOut::new("ranks whose number is not told", u64::from(count), why));
    }
    Ok((Folded { target, told_ranks, steps: StepsRead::default(), waits: None, left_out }, files))
}

impl Others {
    fn left_out(&self) -> Vec<LeftOut> {
        [
            ("messages between two ranks", self.messages, "a recording has collectives alone"),
            (
                "collectives timed on the CPU",
                self.by_cpu,
                "that is how long the call took, not the GPU: it says nothing of other ranks",
            ),
            ("collectives without a time", self.timeless, "none, or not of this century"),
            (
                "collectives of processes with several GPUs",
                self.unplaced,
                "which of them it was is told in the communicator of all ranks alone",
            ),
        ]
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(what, count, why)| LeftOut::new(what, count, why))
        .collect()
    }
}

fn read_of(file: &Open<'_>, start: Stamp) -> FileRead {
    let length_us = file.last.map_or(0, |last| last.micros_since(start));
    FileRead {
        path: file.path.to_owned(),
        bytes: file.lines.bytes,
        packed: file.is_packed,
        events: file.events,
        unread: file.unread + file.lines.unread,
        rank: file.rank,
        cut: file.lines.end.as_ref().and_then(|end| cut(end, file.is_packed, length_us)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comm: u64, ranks: (u32, u32), process: (&str, u64), at_us: i64) -> String {
        format!(
            r#"{{"header":{{"id":"0x{comm:x}","rank":{},"n_ranks":{},"nnodes":1}},"metadata":{{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"profiler_plugin","dump_timestamp_us":{at_us},"hostname":"{}","pid":{}}},"coll_perf":{{"coll":"AllReduce","coll_sn":7,"coll_msg_size_bytes":1024,"coll_exec_time_us":500,"coll_algobw_gbs":1.5,"coll_busbw_gbs":2.5}}}}"#,
            ranks.0, ranks.1, process.0, process.1
        )
    }

    fn done(comm: u64, ranks: (u32, u32), process: (&str, u64)) -> Done {
        match told(line(comm, ranks, process, 1_748_030_377_748_202).as_bytes()) {
            Some(Told::Done(done)) => *done,
            _ => panic!("a collective"),
        }
    }

    fn ranks(all: &[Done]) -> (Ranks, usize) {
        let mut processes = Processes::default();
        for done in all {
            processes.add(done);
        }
        processes.ranks()
    }

    #[test]
    fn a_line_tells_a_collective_with_its_length() {
        let done = done(0x007f_8c49_6ae9_f661, (2, 8), ("gpu-a", 71));
        assert_eq!((done.timing.comm_rank, done.timing.ranks, done.timing.dur_ns), (2, 8, 500_000));
        assert_eq!(done.at, Stamp(1_748_030_377_748_202), "it is written when it is over");
        assert_eq!(done.timing.t, Some(HostTime(1_748_030_377_747_702)));
        let traced = line(1, (0, 2), ("a", 1), 1_748_030_377_748_202).replace(
            r#""coll_algobw_gbs""#,
            r#""event_trace_ts":{"kernel_events":[{"kernel_start_ts":1748030377000009},{"kernel_start_ts":1748030377000001}]},"coll_algobw_gbs""#,
        );
        let Some(Told::Done(traced)) = told(traced.as_bytes()) else { panic!("a collective") };
        assert_eq!(traced.timing.t, Some(HostTime(1_748_030_377_000_001)));
        let of = |text: &str| told(text.as_bytes());
        let plain = line(1, (0, 2), ("a", 1), 1_748_030_377_748_202);
        assert!(matches!(of(&plain.replace("coll_perf", "p2p_perf")), Some(Told::Message)));
        assert!(matches!(of(&plain.replace("1748030377748202", "5")), Some(Told::Timeless)));
        let by_cpu = plain
            .replace(r#""coll_algobw_gbs""#, r#""coll_timing_source":"collective_cpu","coll_algobw_gbs""#);
        assert!(matches!(of(&by_cpu), Some(Told::ByCpu)));
        assert!(of("{}").is_none() && of("[1").is_none());
    }

    #[test]
    fn ranks_are_those_of_the_communicator_of_all() {
        let all = [
            done(1, (0, 4), ("a", 10)),
            done(1, (1, 4), ("a", 11)),
            done(1, (2, 4), ("b", 10)),
            done(1, (3, 4), ("b", 12)),
            done(2, (0, 2), ("b", 10)),
            done(2, (1, 2), ("b", 12)),
        ];
        let (found, count) = ranks(&all);
        assert_eq!(count, 4);
        assert_eq!(all.iter().map(|done| found.of(done)).collect::<Vec<_>>(), [0, 1, 2, 3, 2, 3].map(Some));
        let places = found.places(4);
        assert_eq!((places[3].host.as_str(), places[3].local_rank), ("b", 1));
        // two groups and no communicator of all: processes in the order of their names
        let (found, count) = ranks(&[done(1, (0, 2), ("a", 10)), done(2, (0, 2), ("b", 10))]);
        assert_eq!((count, found.of(&done(2, (0, 2), ("b", 10)))), (2, Some(1)));
        // a process with two GPUs
        let both = [done(1, (0, 2), ("a", 10)), done(1, (1, 2), ("a", 10))];
        let (found, count) = ranks(&both);
        assert_eq!((count, found.of(&both[1])), (2, Some(1)));
        assert_eq!(found.of(&done(3, (0, 1), ("a", 10))), None);
    }

    #[test]
    fn lines_are_read_to_where_a_killed_writer_was() {
        let whole = line(1, (0, 2), ("a", 1), 1_748_030_377_748_202);
        assert!(is_log(whole.as_bytes()) && !is_log(&b"{\"traceEvents\":[]}"[..]) && !is_log(&b""[..]));
        let text = format!("{whole}\n\n{}\n{whole}\n{}", "x".repeat(3 << 20), &whole[..90]);
        let mut lines = Lines::new(text.as_bytes());
        let mut count = 0;
        while lines.next().is_some() {
            count += 1;
        }
        assert_eq!((count, lines.unread), (2, 1));
        assert!(matches!(lines.end, Some(End::Cut(at)) if at == text.len() as u64 - 90), "{}", text.len());
    }
}
