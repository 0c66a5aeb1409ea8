//! Asks the ranks of a run here for a kernel trace, tells how far they are, and sends the files. On a thread of its
//! own, by files alone: what the supervisor has heard of the processes, and what those have written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::AgentConfig;
use super::outgoing::Outgoing;
use crate::clock;
use crate::domain::hooks::HookFacts;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::run::HostRun;
use crate::domain::text::sanitize;
use crate::domain::time::HostTime;
use crate::domain::trace::{StepProgress, TraceSpan, TraceStage, TracedProcess, WallMoment};
use crate::procs::identity::Identity;
use crate::supervise::SuperviseError;
use crate::supervise::kineto::{self, Ask, Tracer};
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{Phase, SPEC, STATE, Started, State, exit_file, started_file, stream_file};
use crate::wire::chunk::CHUNK_BYTES;
use crate::wire::message::FromAgent;
use crate::wire::trace::{Trace, TracePiece, Traces};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// So long a process may take to come for a request, microseconds: it asks every 5 s.
const SILENCE_US: u64 = 15_000_000;
/// So long a rank without a process that can be traced is waited for, microseconds: its torch may only now begin.
const CONNECT_US: u64 = 8_000_000;
/// So long after its start a process may say that it does nothing, though its file is not there, microseconds.
const BEGIN_US: u64 = 10_000_000;
/// The largest trace that is sent.
const MOST: u64 = 1 << 30;
/// The lines of a report in which the versions stand.
const HELLO_LINES: usize = 8;
/// How much of them is read, bytes.
const HELLO_BYTES: u64 = 64 << 10;
/// How much of the end of a report is read for its pace, bytes.
const TAIL_BYTES: u64 = 16 << 10;
/// The oldest torch that can be asked without risk.
const OLDEST: (u32, u32) = (2, 7);

/// A thread that has a run traced; the request is taken back when this is dropped.
#[derive(Debug)]
pub(super) struct TraceTask {
    cancelled: Arc<AtomicBool>,
}

impl Drop for TraceTask {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

fn wall_moment() -> WallMoment {
    let (at, host, _) = clock::both();
    WallMoment { unix_us: at.0, host }
}

/// Starts to have a run traced.
pub(super) fn start(config: &AgentConfig, trace: Trace, out: Outgoing) -> std::io::Result<TraceTask> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let (flag, state_dir) = (Arc::clone(&cancelled), config.state_dir.clone());
    std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
        let gone = || flag.load(Ordering::Relaxed) || out.closed();
        let told = |processes: Vec<TracedProcess>, fault, last| {
            let (run, host) = (trace.run.clone(), trace.host.clone());
            let traces = Traces { run, host, processes, fault, pace: None, moment: wall_moment(), last };
            out.data_blocking(FromAgent::Traces(traces))
        };
        let begun = RunDir::find(&state_dir, &trace.run, &trace.host)
            .map_err(|error| error.to_string())
            .and_then(|dir| dir.ok_or_else(|| format!("run {} was never started there", trace.run.short())))
            .and_then(|dir| Job::begin(dir, &trace));
        match begun {
            Ok(job) if job.ask.is_none() && job.spec.traceable => {
                let (run, host) = (trace.run.clone(), trace.host.clone());
                let traces = Traces {
                    run,
                    host,
                    processes: Vec::new(),
                    fault: None,
                    pace: job.pace(),
                    moment: wall_moment(),
                    last: false,
                };
                out.data_blocking(FromAgent::Traces(traces));
            }
            Ok(job) => {
                let dir = job.ask.as_ref().map(|ask| ask.id);
                let sent = job.follow(&gone, &told, &|pid, offset, data| {
                    let piece = TracePiece { run: trace.run.clone(), pid, offset, data: data.into() };
                    out.data_blocking(FromAgent::TracePiece(piece))
                });
                if let Some(id) = dir {
                    kineto::withdraw(&job.dir, id);
                }
                if let Err(error) = sent {
                    told(Vec::new(), Some(error.to_string()), true);
                }
            }
            Err(fault) => {
                told(Vec::new(), Some(fault), true);
            }
        }
    })?;
    Ok(TraceTask { cancelled })
}

/// A run that is traced here.
struct Job {
    dir: RunDir,
    spec: HostRun,
    span: TraceSpan,
    /// `None` where the run was not launched for it, or nothing is asked yet.
    ask: Option<Ask>,
    begun: HostTime,
}

/// What says how far the processes are: processes, fault, whether it is the last word. `false` when the link is gone.
type Tell<'a> = &'a dyn Fn(Vec<TracedProcess>, Option<String>, bool) -> bool;
/// What sends a piece of a process's file from an offset on. `false` when the link is gone.
type Send<'a> = &'a dyn Fn(u32, u64, Vec<u8>) -> bool;

impl Job {
    /// Asks; the error is for people.
    fn begin(dir: RunDir, trace: &Trace) -> Result<Self, String> {
        let words = |error: SuperviseError| error.to_string();
        let span = trace.span;
        if !span.is_valid() {
            return Err(format!("a trace of {} can't be asked for", span.words()));
        }
        let Some(spec) = dir.read_json::<HostRun>(SPEC).map_err(words)? else {
            return Err("the run has started no rank there yet: try again".to_owned());
        };
        let state = dir.read_json::<State>(STATE).map_err(words)?;
        if state.is_none_or(|state| state.phase == Phase::Ended) {
            return Err("the run has ended there".to_owned());
        }
        let begun = clock::host_now();
        if !spec.traceable {
            return Ok(Self { dir, spec, span, ask: None, begun });
        }
        if let Some(error) = kineto::known(&dir).map_err(words)?.and_then(|known| known.error) {
            return Err(format!("its ranks can't be asked: {error}"));
        }
        let Some(start) = trace.start else {
            return Ok(Self { dir, spec, span, ask: None, begun });
        };
        let own = Identity::own().map_err(|error| format!("identify the agent: {error}"))?;
        let ask = kineto::ask(&dir, span, start, &own, begun).map_err(words)?;
        let Some(ask) = ask else {
            return Err("somebody else has asked for a trace of this run: wait until that is over".to_owned());
        };
        Ok(Self { dir, spec, span, ask: Some(ask), begun })
    }

    /// Until every process has its trace, or will have none, and all of them were sent.
    fn follow(&self, gone: &dyn Fn() -> bool, tell: Tell<'_>, send: Send<'_>) -> Result<(), SuperviseError> {
        let mut told = Vec::new();
        let mut done = BTreeSet::new();
        while !gone() {
            let processes = self.look()?;
            if processes != told && !tell(processes.clone(), None, false) {
                return Ok(());
            }
            for process in &processes {
                if let (TraceStage::Done { size }, Some(pid)) = (&process.stage, process.pid)
                    && done.insert(pid)
                    && !self.send(pid, *size, send)?
                {
                    return Ok(());
                }
            }
            if processes.iter().all(|process| process.stage.is_last()) {
                tell(processes, None, true);
                return Ok(());
            }
            told = processes;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn look(&self) -> Result<Vec<TracedProcess>, SuperviseError> {
        let ranks = self.spec.ranks.iter().map(|rank| rank.rank);
        let Some(ask) = &self.ask else {
            let stage = TraceStage::NotTraceable;
            return Ok(ranks
                .map(|rank| TracedProcess { rank, pid: None, worker: None, stage: stage.clone() })
                .collect());
        };
        let now = clock::host_now();
        let clients = kineto::known(&self.dir)?.unwrap_or_default().clients;
        let mut processes = Vec::new();
        for rank in ranks {
            let mut own: Vec<TracedProcess> = clients
                .iter()
                .filter(|(_, tracer)| tracer.rank == rank)
                .filter_map(|(pid, tracer)| self.process(ask, *pid, tracer, now))
                .collect();
            // A launcher within the rank, or a loader's process, makes no steps: one that does is enough.
            if own
                .iter()
                .any(|process| matches!(process.stage, TraceStage::Done { .. } | TraceStage::Tracing))
            {
                own.retain(|process| !matches!(process.stage, TraceStage::Failed { .. }));
            }
            if own.is_empty() {
                let stage = self.absent(rank, now);
                own.push(TracedProcess { rank, pid: None, worker: None, stage });
            }
            processes.extend(own);
        }
        Ok(processes)
    }

    /// How far a process is; `None` for one that had ended before it was asked.
    fn process(&self, ask: &Ask, pid: u32, tracer: &Tracer, now: HostTime) -> Option<TracedProcess> {
        let stage = self.stage(ask, pid, tracer, now)?;
        Some(TracedProcess { rank: tracer.rank, pid: Some(pid), worker: tracer.worker, stage })
    }

    fn stage(&self, ask: &Ask, pid: u32, tracer: &Tracer, now: HostTime) -> Option<TraceStage> {
        let failed = |why: &str| Some(TraceStage::Failed { why: why.to_owned() });
        let given = tracer.given.filter(|(id, _)| *id == ask.id).map(|(_, at)| at);
        // before its file: it writes that and ends
        let alive = tracer.process.alive();
        let folder = kineto::traces(&self.dir)?;
        let size = folder.read(&kineto::trace_file(ask.id, pid)).ok().flatten();
        match size.and_then(|file| Some(file.metadata().ok()?.len())) {
            Some(size) if size > MOST => {
                return failed("its trace is larger than 1 GiB: ask for fewer steps or a shorter time");
            }
            Some(size) => return Some(TraceStage::Done { size }),
            None => {}
        }
        let Some(given) = given else {
            return if !alive {
                None
            } else if now.0.saturating_sub(self.begun.0) > SILENCE_US {
                failed(if tracer.busy {
                    "its torch is busy with another trace: try again"
                } else {
                    "its torch has not asked for 15 s: the process is stopped or hangs"
                })
            } else {
                Some(TraceStage::Asked)
            };
        };
        if !alive {
            return failed("it ended before its trace was written");
        }
        // Before its first step a process says that it is free, and where its steps are long it has only its draft.
        let (length_us, begun) = match self.span {
            TraceSpan::Steps(_) => {
                let step_us = ask.start.pace.map_or(0, |pace| pace.step_us);
                (step_us.saturating_mul(3), folder.has(&kineto::draft_file(ask.id, pid)))
            }
            TraceSpan::Millis(millis) => (u64::from(millis) * 1000, false),
        };
        let due = given.max(ask.start.at).0.saturating_add(length_us).saturating_add(BEGIN_US);
        if !begun && !tracer.busy && now.0 > due {
            return failed(match self.span {
                TraceSpan::Steps(_) => {
                    "it makes no step of a torch optimizer: ask for a time instead, such as --for 500ms"
                }
                TraceSpan::Millis(_) => {
                    "its torch has not begun the trace: another profiler may be in use there"
                }
            });
        }
        Some(TraceStage::Tracing)
    }

    /// What there is to say of a rank that has no process which could be asked.
    fn absent(&self, rank: Rank, now: HostTime) -> TraceStage {
        let failed = |why: String| TraceStage::Failed { why };
        if self.dir.has(&exit_file(rank)) {
            return failed("it has ended".to_owned());
        }
        let versions = self.versions(rank);
        if let Some(torch) = versions.get("torch").filter(|torch| is_old(torch)) {
            let torch = sanitize(torch);
            return failed(format!("its torch {torch} is too old: kernel traces need torch 2.7 or newer"));
        }
        let started = self.dir.read_json::<Started>(&started_file(rank)).ok().flatten();
        let since = started.map_or(now, |started| started.t).max(self.begun);
        if now.0.saturating_sub(since.0) < CONNECT_US {
            return TraceStage::Asked;
        }
        failed(match (versions.get("torch"), versions.is_empty()) {
            (Some(torch), _) => {
                let torch = sanitize(torch);
                format!(
                    "its torch {torch} has not connected: KINETO_ variables of the launch or the host, a container without the run's folders, or a torch without kineto"
                )
            }
            (None, false) => "its Python has not imported torch".to_owned(),
            (None, true) => "no torch of it has connected: kernel traces need torch 2.7 or newer".to_owned(),
        })
    }

    /// How far the ranks are and how fast they go, by the ends of their reports.
    fn pace(&self) -> Option<StepProgress> {
        let all = self.spec.ranks.iter().filter_map(|rank| {
            let mut file = self.dir.read(&stream_file(rank.rank, Stream::Report)).ok()??;
            let size = file.metadata().ok()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES))).ok()?;
            let mut tail = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
            pace_of(&String::from_utf8_lossy(&tail))
        });
        StepProgress::common(all)
    }

    /// Versions by name, as hvtui's hooks tell them in the rank's report; none where they are off.
    fn versions(&self, rank: Rank) -> BTreeMap<String, String> {
        let mut facts = HookFacts::default();
        let file = self.dir.read(&stream_file(rank, Stream::Report)).ok().flatten();
        let lines = file.into_iter().flat_map(|file| BufReader::new(file.take(HELLO_BYTES)).lines());
        for line in lines.take(HELLO_LINES).map_while(Result::ok) {
            let hello = serde_json::from_str::<serde_json::Value>(&line).ok();
            let hello = hello.filter(|hello| hello.get("kind").is_some_and(|kind| kind == "hello"));
            if let Some(more) = hello.and_then(|hello| serde_json::from_value::<HookFacts>(hello).ok()) {
                facts.add(&more);
            }
        }
        facts.versions
    }

    /// Sends a process's file; `false` when the link is gone.
    fn send(&self, pid: u32, size: u64, send: Send<'_>) -> Result<bool, SuperviseError> {
        let (Some(ask), Some(traces)) = (&self.ask, kineto::traces(&self.dir)) else { return Ok(true) };
        let name = kineto::trace_file(ask.id, pid);
        let Some(file) = traces.read(&name)? else { return Ok(true) };
        let mut file = file.take(size);
        let mut offset = 0;
        loop {
            let mut data = Vec::with_capacity(CHUNK_BYTES);
            let read = file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut data);
            let read = read.map_err(|source| SuperviseError::Io {
                doing: "read",
                path: traces.path().join(&name),
                source,
            })?;
            if read == 0 {
                return Ok(true);
            }
            if !send(pid, offset, data) {
                return Ok(false);
            }
            offset += read as u64;
        }
    }
}

/// The last step that hvtui's hooks have told in a report, and the median time of their last ones: it is by the steps of
/// torch's optimizer that torch counts, and not by those that a script tells.
fn pace_of(tail: &str) -> Option<StepProgress> {
    let steps: Vec<StepLine> = tail.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let steps: Vec<&StepLine> =
        steps.iter().filter(|line| line.kind == "step" && line.by == "hooks").collect();
    let last = steps.last()?;
    let mut times: Vec<u64> = steps.iter().map(|line| line.dur_us).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or(1);
    Some(StepProgress { step: last.step, step_us: median.max(1) })
}

/// What of a line of a report says how far a rank is.
#[derive(serde::Deserialize)]
struct StepLine {
    kind: String,
    #[serde(default)]
    by: String,
    step: u64,
    dur_us: u64,
}

/// Whether a version of torch is older than [`OLDEST`]; one that can't be read is not.
fn is_old(version: &str) -> bool {
    let mut numbers = version.split(['.', '+']).map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_last_steps_whatever_else_is_reported() {
        let tail = [
            r#"1,"dur_us":9}"#,
            r#"{"kind":"step","by":"hooks","step":7,"dur_us":20000,"loss":1}"#,
            r#"{"kind":"metric","name":"lr"}"#,
            r#"{"kind":"step","by":"hooks","step":8,"dur_us":90000}"#,
            r#"{"kind":"step","by":"hooks","step":9,"dur_us":21000}"#,
            r#"{"kind":"step","step":50000,"dur_us":10}"#,
            r#"{"kind":"st"#,
        ];
        assert_eq!(pace_of(&tail.join("\n")), Some(StepProgress { step: 9, step_us: 21000 }));
        assert_eq!(pace_of(r#"{"kind":"hello"}"#), None);
    }

    #[test]
    fn versions_are_compared_by_number() {
        for old in ["1.13.1", "2.6.0+cu124", "2.0"] {
            assert!(is_old(old), "{old}");
        }
        for new in ["2.7.0", "2.10.1+cpu", "3.0", "", "nightly"] {
            assert!(!is_old(new), "{new}");
        }
    }
}
