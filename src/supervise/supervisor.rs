//! The supervisor: owns the ranks of one run on one host until nothing of them is left.
//!
//! It is a subreaper: whatever a rank starts, however it daemonises, becomes a child of this process when its
//! parent ends. So «no children» means that nothing of the run is left, and the kernel says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use super::daemon::Input;
use super::guard::Guard;
use super::identity::Identity;
use super::lease::{self, Claims};
use super::machine::{Action, Machine};
use super::program::own_binary;
use super::rundir::RunDir;
use super::state::{
    LOG, Phase, SPEC, STATE, STOP, Started, State, StopMark, exit_file, started_file, stream_file,
};
use super::{SuperviseError, tree};
use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::run::{HostRun, RankExit, RankSpec};
use crate::domain::time::HostTime;

/// A supervisor that owns its run.
pub struct Supervisor {
    dir: RunDir,
    log: File,
    state: State,
    machine: Machine,
    child: Signals,
    terminate: Signals,
    interrupt: Signals,
    /// Until the last rank has ended.
    guard: Option<Guard>,
}

impl Supervisor {
    /// Claims the run and starts its ranks; `None` when the run was started before. After an error nothing
    /// runs and the run may be started again.
    pub fn begin(dir: RunDir, input: Input) -> Result<Option<Self>, SuperviseError> {
        let failed = |doing| {
            let path = dir.path().to_owned();
            move |e: std::io::Error| SuperviseError::io(doing, &path, e)
        };
        let listen = |kind| signal(kind).map_err(failed("listen for signals in"));
        // Before the claim: from then on agents may send them.
        let (child, terminate) = (listen(SignalKind::child())?, listen(SignalKind::terminate())?);
        let interrupt = listen(SignalKind::interrupt())?;
        drop(listen(SignalKind::hangup())?);
        set_child_subreaper(Some(getpid())).map_err(|e| failed("own the processes of")(e.into()))?;
        let state = State {
            phase: Phase::Starting,
            supervisor: Identity::own().map_err(failed("identify the supervisor of"))?,
            wraps: BTreeMap::new(),
            left: Vec::new(),
        };
        let log = dir.append(LOG)?;
        if !dir.claim_json(STATE, &state)? {
            return Ok(None);
        }
        let Input { spec, env } = input;
        let claims = match lease::claim(&spec) {
            Ok(claims) => claims,
            Err(error) => {
                dir.remove(STATE)?;
                let _ = dir.remove(LOG);
                return Err(error.into());
            }
        };
        let machine = Machine::new(spec.ranks.iter().map(|rank| rank.rank), spec.grace_ms);
        let mut supervisor = Self { dir, log, state, machine, child, terminate, interrupt, guard: None };
        if let Err(error) = supervisor.dir.write_json(SPEC, &spec) {
            supervisor.dir.remove(STATE)?;
            return Err(error);
        }
        supervisor.start_guard(&spec);
        supervisor.start_ranks(&spec, &env, claims);
        Ok(Some(supervisor))
    }

    /// Before the first rank: it may print at once. A run whose output can't be kept within its cap runs all the same.
    fn start_guard(&mut self, spec: &HostRun) {
        let log = self.log.try_clone();
        let say = move |text: &str| {
            if let Ok(log) = &log {
                line(log, text);
            }
        };
        match Guard::start(&self.dir, spec, Box::new(say)) {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => self.note(&format!("what ranks print is not kept within a cap: {error}")),
        }
    }

    /// Starts every rank. One that can't be started has failed, like one that ran and failed. Each rank-wrap
    /// gets the lease of its rank's GPU; none stays here.
    fn start_ranks(&mut self, spec: &HostRun, env: &BTreeMap<String, String>, mut claims: Claims) {
        let mut failures = Vec::new();
        for rank in &spec.ranks {
            match claims.inherit(rank.rank, || self.start_rank(spec, rank, env)) {
                Ok(wrap) => {
                    claims.handed_over(rank.rank, &wrap);
                    self.state.wraps.insert(rank.rank, wrap);
                }
                Err(error) => failures.push((rank.rank, error.to_string())),
            }
        }
        self.enter(Phase::Running);
        for (rank, error) in failures {
            self.note(&format!("rank {rank} could not be started: {error}"));
            let exit = RankExit { error: Some(error), ..self.exit(Some(126), None) };
            self.record(rank, &exit);
        }
    }

    fn start_rank(
        &self,
        spec: &HostRun,
        rank: &RankSpec,
        env: &BTreeMap<String, String>,
    ) -> Result<Identity, SuperviseError> {
        let exe = own_binary();
        let file = |stream| self.dir.append(&stream_file(rank.rank, stream));
        drop(file(Stream::Report)?);
        let child = Command::new(&exe)
            .args(["rank-wrap", "--rank", &rank.rank.to_string(), "--dir"])
            .arg(self.dir.path())
            .envs(&rank.env)
            .envs(env)
            .env(tree::RUN_MARK, spec.run.as_str())
            .env(tree::HOST_MARK, spec.host.as_str())
            .env("HVTUI_REPORT", self.dir.path().join(stream_file(rank.rank, Stream::Report)))
            .stdin(Stdio::null())
            .stdout(file(Stream::Stdout)?)
            .stderr(file(Stream::Stderr)?)
            .spawn()
            .map_err(|e| SuperviseError::io("start", &exe, e))?;
        // Children are waited for all together, see `reap`.
        Identity::of(child.id()).map_err(|e| SuperviseError::io("identify", &exe, e))
    }

    /// Until nothing of the run is left, or what is left can't be ended.
    pub async fn run(mut self) -> Result<(), SuperviseError> {
        loop {
            let empty = self.reap();
            let now = clock::host_now();
            let actions = self.machine.tick(empty, now);
            self.perform(actions);
            if self.machine.done(empty) {
                return self.end();
            }
            let wake = self.machine.wake_at().map_or(IDLE, |at| {
                Duration::from_micros(at.0.saturating_sub(now.0)).max(Duration::from_millis(1))
            });
            let actions = tokio::select! {
                biased;
                _ = self.interrupt.recv() => self.machine.stop(true, clock::host_now()),
                _ = self.terminate.recv() => self.machine.stop(false, clock::host_now()),
                _ = self.child.recv() => Vec::new(),
                () = tokio::time::sleep(wake) => Vec::new(),
            };
            self.perform(actions);
        }
    }

    /// Waits for every child that has ended; whether none is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.child_ended(pid.as_raw_pid().unsigned_abs(), status),
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    fn child_ended(&mut self, pid: u32, status: WaitStatus) {
        let Some(rank) = self.state.wraps.iter().find(|(_, wrap)| wrap.pid == pid).map(|(rank, _)| *rank)
        else {
            return;
        };
        if !self.machine.open().contains(&rank) {
            return;
        }
        let exit = if let Ok(Some(exit)) = self.dir.read_json(&exit_file(rank)) {
            exit
        } else {
            self.note(&format!("rank-wrap of rank {rank} ended without a word: {status:?}"));
            self.kill_rank(rank);
            let exit = self.exit(status.exit_status(), status.terminating_signal());
            self.store(rank, &exit);
            exit
        };
        let actions = self.machine.exited(rank, &exit, clock::host_now());
        self.perform(actions);
    }

    /// Ends a rank that has lost its rank-wrap, and all that it started.
    fn kill_rank(&self, rank: Rank) {
        let Ok(Some(started)) = self.dir.read_json::<Started>(&started_file(rank)) else {
            return;
        };
        // Before the rank itself: its children are found by descent only while it lives.
        for process in tree::descendants(&tree::all(), &BTreeSet::from([started.process.pid])) {
            process.signal(Signal::KILL);
        }
        let _ = started.process.signal(Signal::KILL);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        let now = actions.iter().any(|action| matches!(action, Action::Kill { .. }));
        for action in actions {
            match action {
                Action::MarkStop(why) => {
                    self.note(&format!("stopping: {why}"));
                    let mark = StopMark { why, t: clock::host_now(), now };
                    if let Err(error) = self.dir.write_json(STOP, &mark) {
                        self.note(&error.to_string());
                    }
                    self.enter(Phase::Stopping);
                }
                Action::Term => {
                    for process in self.processes(false) {
                        process.signal(Signal::TERM);
                        // One that is halted could not obey.
                        process.signal(Signal::CONT);
                    }
                }
                Action::Kill { wraps } => {
                    for process in self.processes(wraps) {
                        process.signal(Signal::KILL);
                    }
                    for wrap in self.state.wraps.values().filter(|_| !wraps) {
                        let _ = wrap.signal(Signal::CONT);
                    }
                }
            }
        }
    }

    /// All that descends from this process, with or without the rank-wraps.
    fn processes(&self, wraps: bool) -> Vec<tree::Process> {
        let mut found = tree::descendants(&tree::all(), &BTreeSet::from([std::process::id()]));
        found.retain(|process| wraps || !self.state.wraps.values().any(|wrap| wrap.pid == process.pid));
        found
    }

    /// A rank's end that nobody else has written down.
    fn record(&mut self, rank: Rank, exit: &RankExit) {
        self.store(rank, exit);
        let actions = self.machine.exited(rank, exit, clock::host_now());
        self.perform(actions);
    }

    fn store(&mut self, rank: Rank, exit: &RankExit) {
        if let Err(error) = self.dir.write_json(&exit_file(rank), exit) {
            self.note(&error.to_string());
        }
    }

    fn exit(&self, code: Option<i32>, signal: Option<i32>) -> RankExit {
        RankExit { code, signal, t: clock::host_now(), error: None, stopped: self.dir.has(STOP), cause: None }
    }

    fn enter(&mut self, phase: Phase) {
        self.state.phase = phase;
        if let Err(error) = self.dir.write_json(STATE, &self.state) {
            self.note(&error.to_string());
        }
    }

    fn end(mut self) -> Result<(), SuperviseError> {
        // its last look cuts and syncs what the ranks said at the end
        self.guard = None;
        self.state.left = self.processes(true).iter().map(tree::Process::describe).collect();
        for process in self.state.left.clone() {
            self.note(&format!("KILL does not end process {process}: it hangs in the kernel"));
        }
        for rank in self.machine.open().clone() {
            let exit = self.exit(None, None);
            self.store(rank, &exit);
        }
        self.state.phase = Phase::Ended;
        self.dir.write_json(STATE, &self.state)
    }

    /// A line for whoever looks for what happened. A log that can't be written stops nothing.
    fn note(&mut self, text: &str) {
        line(&self.log, text);
    }
}

/// A line of the log, in one write: several threads have something to say.
fn line(mut log: &File, text: &str) {
    let HostTime(micros) = clock::host_now();
    let line = format!("{}.{:06} {text}\n", micros / 1_000_000, micros % 1_000_000);
    let _ = log.write_all(line.as_bytes());
}

/// Between looks while nothing is expected.
const IDLE: Duration = Duration::from_secs(60);
