//! Gathers the kernel traces of a run from its hosts: who is waited for, what came, and what did not.
//!
//! Files go into a folder of their own, one a process; it is removed when this is dropped.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::session::{Output, Session};
use crate::domain::clock_fit::ClockFit;
use crate::domain::event::{Event, Origin};
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, Rank};
use crate::domain::run::RunSpec;
use crate::domain::text::{plain, sanitize};
use crate::domain::time::{HostTime, Stamp};
use crate::domain::trace::{StepProgress, TraceSpan, TraceStage, TraceStart, TracedProcess, WallMoment};
use crate::domain::units::ranges;
use crate::domain::world::World;
use crate::wire::trace::{TracePiece, Traces};

/// So long a connected agent may take to say anything, microseconds. One that knows the request answers at once.
const ANSWER_US: i64 = 5_000_000;
/// The most bytes that are taken of one process: what an agent sends at most.
const MOST: u64 = 1 << 30;
/// The most processes of one host.
const MOST_PROCESSES: usize = 4096;

/// From the answers of all hosts to the trace, microseconds: each process has come for the request by then, and its
/// tracer is warm.
const LEAD_US: u64 = 8_500_000;

/// What comes of asking a run for a kernel trace: first it asks each host whether that can be, then all of them for the
/// same steps or the same time.
#[derive(Debug)]
pub struct Gathering {
    spec: RunSpec,
    span: TraceSpan,
    folder: PathBuf,
    hosts: BTreeMap<HostId, HostTrace>,
    started: bool,
}

/// One host's part.
#[derive(Debug, Default)]
struct HostTrace {
    /// Since when the host is connected.
    up: Option<Stamp>,
    heard: bool,
    pace: Option<StepProgress>,
    processes: Vec<TracedProcess>,
    moment: Option<WallMoment>,
    files: BTreeMap<u32, (File, u64)>,
    /// Why nothing more comes of it, where it has not told its last word.
    fault: Option<String>,
    last: bool,
}

/// A trace that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Gathered {
    /// The file, as torch wrote it.
    pub path: PathBuf,
    /// The rank that the process belongs to.
    pub rank: Rank,
    /// For people: `rank 3 on gpu-b`.
    pub name: String,
    /// The process on its host.
    pub pid: u32,
    /// What to add to its times to have the client's, microseconds; `None` where the host's clock is unknown.
    pub shift_us: Option<i64>,
}

/// Why a rank has no trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// For people: `rank 3 on gpu-b`, `ranks 0-3 on gpu-b`.
    pub who: String,
    /// Why, with the remedy.
    pub why: String,
    /// Whether the run was launched without `--traceable`.
    pub not_traceable: bool,
}

impl Gathering {
    /// Asks the hosts of a run, and gathers what comes in a new folder.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn begin(
        spec: &RunSpec,
        span: TraceSpan,
        folder: &Path,
        session: &mut Session,
        now: Stamp,
    ) -> io::Result<Self> {
        let gathering = Self::new(spec, span, folder, session.world(), now)?;
        for host in gathering.hosts.keys() {
            session.trace(&spec.id, host, span, None);
        }
        Ok(gathering)
    }

    fn new(spec: &RunSpec, span: TraceSpan, folder: &Path, world: &World, now: Stamp) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(folder)?;
        let is_up = |host: &HostId| {
            let link = world.hosts.get(host).and_then(|host| host.link.as_ref());
            link.is_some_and(|(_, link)| *link == LinkState::Up)
        };
        let share = |host: HostId| {
            let up = is_up(&host).then_some(now);
            (host, HostTrace { up, ..HostTrace::default() })
        };
        let hosts = spec.hosts().into_iter().map(share).collect();
        Ok(Self { spec: spec.clone(), span, folder: folder.to_owned(), hosts, started: false })
    }

    /// Takes in what a session has handed out.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn take(&mut self, output: &Output, now: Stamp) -> io::Result<()> {
        match output {
            Output::Traces(host, traces) if traces.run == self.spec.id => self.told(host, traces),
            Output::TracePiece(host, piece) if piece.run == self.spec.id => return self.piece(host, piece),
            Output::Event(envelope) => {
                if let (Origin::Host(host), Event::LinkChanged { state }) =
                    (&envelope.origin, &envelope.event)
                {
                    self.link(host, state, now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Gives up the hosts that are connected and don't answer, and asks the others for the trace once all have said that
    /// it can be. Called every now and then.
    pub fn look(&mut self, session: &mut Session, now: Stamp) {
        self.give_up_older(now);
        for (host, start) in self.starts(session.world(), now).unwrap_or_default() {
            session.trace(&self.spec.id, &host, self.span, Some(start));
        }
    }

    /// When each host begins; `None` while one has not said whether it can, or after it was said.
    fn starts(&mut self, world: &World, now: Stamp) -> Option<Vec<(HostId, TraceStart)>> {
        let open = || self.hosts.iter().filter(|(_, share)| !share.is_over());
        if self.started || open().any(|(_, share)| !share.heard) {
            return None;
        }
        let pace =
            StepProgress::common(open().filter_map(|(_, share)| share.pace)).map(|pace| pace.after(LEAD_US));
        let lead = LEAD_US.cast_signed();
        let at = |host: &HostId, moment: Option<WallMoment>| {
            let clock = world.hosts.get(host).and_then(|host| host.clock.host_time(now.plus_micros(lead)));
            // without a ping: from its answer on
            clock.or_else(|| Some(HostTime(moment?.host.0.saturating_add(LEAD_US)))).unwrap_or_default()
        };
        let starts =
            open().map(|(host, share)| (host.clone(), TraceStart { at: at(host, share.moment), pace }));
        let starts = starts.collect();
        self.started = true;
        Some(starts)
    }

    fn give_up_older(&mut self, now: Stamp) {
        for share in self.hosts.values_mut().filter(|share| !share.is_over() && !share.heard) {
            if share.up.is_some_and(|up| now.micros_since(up) > ANSWER_US) {
                let text = "it has not answered for 5 s, or its hvtui agent is an older one that knows no traces: try \
                            again; it gets this version as soon as its run has ended, or set agent_path to a newer one";
                share.fault = Some(text.to_owned());
            }
        }
    }

    /// Whether nothing more is waited for.
    pub fn is_over(&self) -> bool {
        self.hosts.values().all(HostTrace::is_over)
    }

    /// For whom and what it waits: `n1 to answer, ranks 0-1 on n2 to come for the request`.
    pub fn waits_for(&self) -> String {
        let mut parts = Vec::new();
        for (host, share) in self.hosts.iter().filter(|(_, share)| !share.is_over()) {
            if !share.heard {
                let what = if share.up.is_some() { "answer" } else { "be connected" };
                parts.push(format!("{host} to {what}"));
                continue;
            }
            if share.processes.is_empty() && self.started {
                parts.push(format!("{host} to ask its ranks"));
            }
            let mut by_what: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
            for process in &share.processes {
                let what = match &process.stage {
                    TraceStage::Asked => "to come for the request (asks every 5 s)".to_owned(),
                    TraceStage::Tracing | TraceStage::Other => format!("to trace {}", self.span.words()),
                    TraceStage::Done { size } => match process.pid.map(|pid| share.has(pid)) {
                        Some(has) if has < *size => format!("to send its trace ({} %)", has * 100 / size),
                        _ => continue,
                    },
                    _ => continue,
                };
                by_what.entry(what).or_default().push(process.rank);
            }
            parts.extend(by_what.into_iter().map(|(what, ranks)| format!("{} {what}", who(&ranks, host))));
        }
        parts.join(", ")
    }

    /// The traces that came, in the order of ranks.
    pub fn gathered(&self, world: &World) -> Vec<Gathered> {
        let mut all = Vec::new();
        for (host, share) in &self.hosts {
            let clock = world.hosts.get(host).map(|state| &state.clock);
            let shift_us = share.moment.and_then(|moment| shift(moment, clock?));
            for process in &share.processes {
                let (Some(pid), TraceStage::Done { size }) = (process.pid, &process.stage) else { continue };
                if share.has(pid) != *size || *size == 0 {
                    continue;
                }
                let name = name(host, process, share);
                let path = self.path(host, pid);
                all.push(Gathered { path, rank: process.rank, name, pid, shift_us });
            }
        }
        all.sort_by_key(|one| (one.rank, one.pid));
        all
    }

    /// The ranks of which nothing came, those with the same reason together.
    pub fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        for (host, share) in &self.hosts {
            if let Some(why) = &share.fault {
                let why = plain(host, &sanitize(why)).to_owned();
                missing.push(Missing { who: host.to_string(), why, not_traceable: false });
            }
            let mut by_why: BTreeMap<(String, bool), Vec<Rank>> = BTreeMap::new();
            for process in &share.processes {
                let (why, not_traceable) = match &process.stage {
                    TraceStage::NotTraceable => {
                        let text =
                            "launched without --traceable: launch it again with that (torch 2.7 or newer)";
                        (text.to_owned(), true)
                    }
                    TraceStage::Failed { why } => (sanitize(why).into_owned(), false),
                    TraceStage::Done { size } if process.pid.is_some_and(|pid| share.has(pid) != *size) => {
                        ("its trace did not come whole: ask again".to_owned(), false)
                    }
                    _ => continue,
                };
                by_why.entry((why, not_traceable)).or_default().push(process.rank);
            }
            let words = |((why, not_traceable), ranks): ((String, bool), Vec<Rank>)| Missing {
                who: who(&ranks, host),
                why,
                not_traceable,
            };
            missing.extend(by_why.into_iter().map(words));
        }
        missing
    }

    fn told(&mut self, host: &HostId, traces: &Traces) {
        let placements = &self.spec.placements;
        let is_its = |rank: Rank| placements.iter().any(|one| one.rank == rank && one.host == *host);
        let Some(share) = self.hosts.get_mut(host).filter(|share| !share.is_over()) else { return };
        share.heard = true;
        share.last = traces.last;
        share.moment = Some(traces.moment);
        share.pace = traces.pace.or(share.pace);
        share.fault.clone_from(&traces.fault);
        if share.fault.is_none() {
            // an agent speaks of the ranks of its host alone
            let processes = traces.processes.iter().filter(|process| is_its(process.rank));
            share.processes = processes.take(MOST_PROCESSES).cloned().collect();
        }
    }

    fn piece(&mut self, host: &HostId, piece: &TracePiece) -> io::Result<()> {
        let path = self.path(host, piece.pid);
        let Some(share) = self.hosts.get_mut(host).filter(|share| !share.is_over()) else { return Ok(()) };
        let announced = share.processes.iter().find(|process| process.pid == Some(piece.pid));
        let Some(TraceStage::Done { size }) = announced.map(|process| &process.stage) else { return Ok(()) };
        let limit = (*size).min(MOST);
        let (file, length) = match share.files.entry(piece.pid) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                entry.insert((file, 0))
            }
        };
        // what does not fit is missed at the end
        if piece.offset != *length || *length + piece.data.len() as u64 > limit {
            return Ok(());
        }
        file.write_all(&piece.data)?;
        *length += piece.data.len() as u64;
        Ok(())
    }

    fn link(&mut self, host: &HostId, state: &LinkState, now: Stamp) {
        let Some(share) = self.hosts.get_mut(host).filter(|share| !share.is_over()) else { return };
        match state {
            LinkState::Up => share.up = Some(now),
            LinkState::Down { reason, .. }
            | LinkState::Limited { reason }
            | LinkState::Refused { reason, .. } => {
                share.fault = Some(reason.clone());
            }
            _ => {}
        }
    }

    fn path(&self, host: &HostId, pid: u32) -> PathBuf {
        let at = self.hosts.keys().position(|known| known == host).unwrap_or_default();
        self.folder.join(format!("{at}-{pid}.json"))
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        // Where this fails only a file is left that is not needed.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl HostTrace {
    fn is_over(&self) -> bool {
        self.last || self.fault.is_some()
    }

    fn has(&self, pid: u32) -> u64 {
        self.files.get(&pid).map_or(0, |(_, length)| *length)
    }
}

/// `rank 3 on gpu-b`; another process of the rank by its number in the training, else its pid.
fn name(host: &HostId, process: &TracedProcess, share: &HostTrace) -> String {
    let rank = process.rank;
    let several = share.processes.iter().filter(|one| one.rank == rank && one.pid.is_some()).count() > 1;
    match (process.worker, process.pid) {
        (Some(worker), _) => format!("process {worker} of rank {rank} on {host}"),
        (None, Some(pid)) if several => format!("rank {rank} on {host}, process {pid}"),
        _ => format!("rank {rank} on {host}"),
    }
}

fn who(ranks: &[Rank], host: &HostId) -> String {
    let mut numbers: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
    numbers.dedup();
    let word = if numbers.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {} on {host}", ranges(numbers))
}

/// What to add to a host's wall clock to have the client's.
fn shift(moment: WallMoment, clock: &ClockFit) -> Option<i64> {
    Some(clock.stamp(moment.host)?.0.saturating_sub(moment.unix_us))
}

#[cfg(test)]
#[path = "traces_tests.rs"]
mod tests;
