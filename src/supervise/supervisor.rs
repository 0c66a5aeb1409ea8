//! The supervisor: owns the ranks of one run on one host until nothing of them is left.
//!
//! It is a subreaper: whatever a rank starts, however it daemonises, becomes a child of this process when its
//! parent ends. So «no children» means that nothing of the run is left, and the kernel says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use super::SuperviseError;
use super::background::Background;
use super::container;
use super::daemon::Input;
use super::engine::{self, own::Watch};
use super::environment;
use super::flight::RasPort;
use super::kineto;
use super::lease::Claims;
use super::logout;
use super::machine::{Action, Machine};
use super::nccl_timings;
use super::notes;
use super::process_set;
use super::python_hooks;
use super::rendezvous::Meeting;
use super::rundir::RunDir;
use super::secrets;
use super::silence::{Pulse, Silence};
use super::spool_trimmer::SpoolTrimmer;
use super::state::{
    LOG, Phase, SPEC, STATE, STOP, Started, State, VERSION, exit_file, started_file, stream_file,
};
use super::stop_mark;
use super::unwanted;
use super::variables::{OWN_NAMES, REPORT, own_names};
use crate::clock;
use crate::domain::engine::Engine;
use crate::domain::environment::EnvironmentChange;
use crate::domain::ids::Rank;
use crate::domain::late::Late;
use crate::domain::log::Stream;
use crate::domain::note::{Note, what};
use crate::domain::options::PythonHooks;
use crate::domain::redaction::{MASK, Masks};
use crate::domain::root_cause::SETTLE_US;
use crate::domain::run::{HostRun, RankExit, RankSpec};
use crate::domain::time::HostTime;
use crate::procs::cgroup::Cgroup;
use crate::procs::identity::Identity;
use crate::procs::marks;
use crate::procs::pidfd;
use crate::procs::table;
use crate::program::own_binary;

/// A supervisor that owns its run.
pub struct Supervisor {
    pub(super) dir: RunDir,
    pub(super) log: File,
    pub(super) spec: HostRun,
    pub(super) state: State,
    pub(super) machine: Machine,
    signals: Listener,
    /// How many looks in a row found nothing of an adopted run; `None` for one that was started here.
    pub(super) adopted: Option<u32>,
    /// Processes that were told to end: pid and start time.
    ended: BTreeSet<(u32, u64)>,
    /// What ranks left behind that ended by themselves.
    background: Background,
    /// Until the last rank has ended.
    pub(super) spool_trimmer: Option<SpoolTrimmer>,
    /// Where the run may be silent for a limited time.
    silence: Option<Silence>,
    /// Where the ranks find each other, until the last has ended.
    meeting: Option<Meeting>,
    /// Whom the ranks' torch asks whether it shall trace, until the last has ended.
    pub(super) tracing: Option<kineto::Server>,
    /// The port on which the ranks' NCCL answers, kept for them.
    pub(super) ras: Option<RasPort>,
    /// The values of secret variables, where they are known: what outlives a rank may print them too.
    pub(super) values: Masks,
    /// The ranks all of whose values are among them: what another one has printed can't be judged.
    pub(super) known: BTreeSet<Rank>,
    /// Where the ranks have a launcher.
    pub(super) watch: Watch,
}

/// The signals that a supervisor hears. Made before it claims a run: from then on agents may send them.
pub(super) struct Listener {
    child: Signals,
    terminate: Signals,
    interrupt: Signals,
}

impl Listener {
    pub(super) fn new() -> std::io::Result<Self> {
        let (child, terminate) = (signal(SignalKind::child())?, signal(SignalKind::terminate())?);
        // Its handler stays for the life of the process.
        drop(signal(SignalKind::hangup())?);
        Ok(Self { child, terminate, interrupt: signal(SignalKind::interrupt())? })
    }
}

impl Supervisor {
    /// Claims the run, says that it is `owned`, and starts its ranks, which get the `leases` that came with the input;
    /// `None` when the run was started before. After an error nothing runs and the run may be started again.
    ///
    /// Whether a rank could be started is told of each rank: many take longer than an answer may.
    pub fn begin(
        dir: RunDir,
        input: Input,
        leases: Vec<OwnedFd>,
        owned: impl FnOnce() -> Result<(), SuperviseError>,
    ) -> Result<Option<Self>, SuperviseError> {
        let failed = |doing| {
            let path = dir.path().to_owned();
            move |e: std::io::Error| SuperviseError::io(doing, &path, e)
        };
        let signals = Listener::new().map_err(failed("listen for signals in"))?;
        set_child_subreaper(Some(getpid())).map_err(|e| failed("own the processes of")(e.into()))?;
        let state = State {
            phase: Phase::Starting,
            supervisor: Identity::own().map_err(failed("identify the supervisor of"))?,
            wraps: BTreeMap::new(),
            left: Vec::new(),
            generation: 0,
            cgroup: None,
            engine: None,
            version: VERSION.to_owned(),
        };
        let log = dir.append(LOG)?;
        if !dir.claim_json(STATE, &state)? {
            return Ok(None);
        }
        let Input { spec, late, held, environment } = input;
        let ready = || {
            unwanted::check(&dir, &spec.run)?;
            let claims = Claims::received(&spec, held.into_iter().zip(leases).collect())?;
            // Before the first rank, which asks there at once.
            Ok((claims, Meeting::begin(&dir, &spec, &late)?))
        };
        let (claims, meeting) = ready().inspect_err(|_: &SuperviseError| {
            let _ = dir.remove(STATE).and_then(|()| dir.remove(LOG));
        })?;
        let mut supervisor = Self { meeting, ..Self::new(dir, log, spec, state, signals) };
        if let Err(error) = supervisor.dir.write_json(SPEC, &supervisor.spec) {
            supervisor.dir.remove(STATE)?;
            return Err(error);
        }
        let spec = supervisor.spec.clone();
        supervisor.values = values(&spec, &late);
        supervisor.known = spec.ranks.iter().map(|rank| rank.rank).collect();
        if let Some(cgroup) = Cgroup::make(&spec.run, &spec.host) {
            supervisor.state.cgroup = Some(cgroup.path().to_owned());
            // The rank-wraps read it.
            supervisor.enter(Phase::Starting);
        }
        if let Some(text) = pidfd::lack() {
            supervisor.tell(&Note::new(what::NO_PIDFD, text, clock::host_now()));
        }
        // Of this process itself: where it was started through the user's manager there is none.
        if let Some(text) = logout::danger().warning() {
            supervisor.tell(&Note::new(what::LOGOUT, text, clock::host_now()));
        }
        supervisor.start_spool_trimmer();
        if spec.wants_nccl_timings()
            && let Err(error) = nccl_timings::install(&supervisor.dir)
        {
            supervisor.note(&format!("no NCCL timings: the plugin can't be installed: {error}"));
        }
        if spec.python_hooks != PythonHooks::Off
            && let Err(error) = python_hooks::install(&supervisor.dir)
        {
            supervisor
                .note(&format!("steps of Python scripts are not told: the hooks can't be written: {error}"));
        }
        supervisor.start_tracing(false);
        supervisor.start_recorders();
        if let Err(error) = owned() {
            supervisor.note(&error.to_string());
        }
        supervisor.start_ranks(&spec, (&late, &environment), claims);
        Ok(Some(supervisor))
    }

    pub(super) fn new(dir: RunDir, log: File, spec: HostRun, state: State, signals: Listener) -> Self {
        // a launcher judges by itself which rank has failed
        let settle_us = if spec.engine.is_none() { SETTLE_US } else { 0 };
        let ranks = spec.ranks.iter().map(|rank| rank.rank);
        let machine = Machine::new(ranks, spec.grace_ms).settling(settle_us);
        let silence = Silence::new(&spec, clock::host_now());
        let watch = Watch::default();
        Self {
            dir,
            log,
            spec,
            state,
            machine,
            signals,
            adopted: None,
            ended: BTreeSet::new(),
            background: Background::default(),
            spool_trimmer: None,
            silence,
            meeting: None,
            tracing: None,
            ras: None,
            values: Masks::default(),
            known: BTreeSet::new(),
            watch,
        }
    }

    /// Starts every rank. One that can't be started has failed, like one that ran and failed. Each rank-wrap
    /// gets the lease of its rank's GPU; none stays here.
    fn start_ranks(&mut self, spec: &HostRun, given: (&Late, &EnvironmentChange), mut claims: Claims) {
        let mut failures = Vec::new();
        let wrapped = spec.engine.as_ref().is_none_or(Engine::seats_ranks);
        for rank in spec.ranks.iter().filter(|_| wrapped) {
            match claims.inherit(rank.rank, || self.start_rank(spec, rank, given)) {
                Ok(wrap) => {
                    claims.handed_over(rank.rank, &wrap);
                    self.state.wraps.insert(rank.rank, wrap);
                    if is_written(self.state.wraps.len()) {
                        self.enter(Phase::Starting);
                    }
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
        // After the rank-wraps: they wait for it.
        let (late, change) = given;
        self.start_engine(spec, (&engine::own::env(spec, late), change), &mut claims);
        self.enter(self.state.phase);
    }

    fn start_rank(
        &self,
        spec: &HostRun,
        rank: &RankSpec,
        (late, change): (&Late, &EnvironmentChange),
    ) -> Result<Identity, SuperviseError> {
        let exe = own_binary();
        let setup = spec.container().and_then(|_| container::Setup::read(&self.dir));
        // This process has the environment that the host gives to its logins; a container has its image's.
        let rank = &rank.on_host(|name| match &setup {
            Some(setup) => setup.image_env.contains_key(name),
            None => change.has(name, std::env::var_os(name).is_some()),
        });
        let file = |stream| self.dir.append(&stream_file(rank.rank, stream));
        drop(file(Stream::Report)?);
        let mut command = Command::new(&exe);
        // Before the run's own variables, which count more.
        environment::apply(change, &mut command);
        let child = command
            .args(["rank-wrap", "--rank", &rank.rank.to_string(), "--dir"])
            .arg(self.dir.path())
            .envs(&rank.env)
            .envs(late.of(rank.rank))
            .env(marks::RUN_MARK, spec.run.as_str())
            .env(marks::HOST_MARK, spec.host.as_str())
            .env(OWN_NAMES, own_names(spec, rank, late, change))
            .env(REPORT, self.dir.path().join(stream_file(rank.rank, Stream::Report)))
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
            let empty = if self.adopted.is_some() { self.look_around() } else { self.reap() };
            self.look_at_engine();
            let now = clock::host_now();
            let engine_is_wanted = self.engine_is_wanted();
            if !engine_is_wanted {
                let actions = self.machine.tick(empty, now);
                self.perform(actions);
            }
            if self.machine.done(empty) {
                return self.end();
            }
            self.listen(now);
            let unseen = self.spec.container().is_some() && self.machine.open().is_empty();
            let idle = if self.adopted.is_some() || self.watch.waits() || unseen { LOOK } else { IDLE };
            let look = self.silence.as_ref().map(Silence::look_at);
            // while the launcher ends by itself no time of the ranks' is due
            let due = self.machine.wake_at().filter(|_| !engine_is_wanted);
            let wake = due.into_iter().chain(look).min().map_or(idle, |at| {
                Duration::from_micros(at.0.saturating_sub(now.0)).max(Duration::from_millis(1)).min(idle)
            });
            let Listener { child, terminate, interrupt } = &mut self.signals;
            let actions = tokio::select! {
                biased;
                _ = interrupt.recv() => self.machine.stop(true, clock::host_now()),
                _ = terminate.recv() => self.machine.stop(false, clock::host_now()),
                _ = child.recv() => Vec::new(),
                () = tokio::time::sleep(wake) => Vec::new(),
            };
            self.perform(actions);
        }
    }

    /// Ends the ranks when no client has looked at them and they have said nothing for too long.
    fn listen(&mut self, now: HostTime) {
        let Some(silence) = self.silence.as_mut().filter(|silence| silence.look_at() <= now) else {
            return;
        };
        let Some(why) = silence.look(Pulse::of(&self.dir, &self.spec), now) else { return };
        self.silence = None;
        let actions = self.machine.give_up(why.clone(), now);
        if !actions.is_empty() {
            // Before the first signal: a client that attaches learns it before any rank's end.
            self.tell(&Note::new(what::SILENT, why, now));
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
                // The kernel's word, but for what a rank may have hidden from it in its control group.
                Err(_) => {
                    return !self.cgroup().is_some_and(|cgroup| cgroup.populated()) && !self.is_inside();
                }
            }
        }
    }

    fn child_ended(&mut self, pid: u32, status: WaitStatus) {
        // A launcher's wrapper may stand for several.
        let ended = self.state.wraps.iter().filter(|(_, wrap)| wrap.pid == pid);
        let ranks: Vec<Rank> = ended.map(|(rank, _)| *rank).collect();
        for rank in ranks {
            self.wrap_ended(rank, status);
        }
    }

    fn wrap_ended(&mut self, rank: Rank, status: WaitStatus) {
        if !self.machine.open().contains(&rank) {
            return;
        }
        if let Ok(Some(exit)) = self.dir.read_json(&exit_file(rank)) {
            self.exited(rank, &exit);
            return;
        }
        self.note(&format!("rank-wrap of rank {rank} ended without a word: {status:?}"));
        self.kill_rank(rank);
        let mut exit = self.exit(status.exit_status(), status.terminating_signal());
        exit.cause = exit.signal.map(|_| WRAP_KILLED.to_owned());
        self.record(rank, &exit);
    }

    /// A rank's end, written down by its rank-wrap.
    pub(super) fn exited(&mut self, rank: Rank, exit: &RankExit) {
        if let Some(meeting) = &mut self.meeting {
            meeting.ended(exit);
        }
        let actions = self.machine.exited(rank, exit, clock::host_now());
        self.perform(actions);
    }

    /// Ends a rank that has lost its rank-wrap, and all that it started.
    pub(super) fn kill_rank(&self, rank: Rank) {
        let Ok(Some(started)) = self.dir.read_json::<Started>(&started_file(rank)) else {
            return;
        };
        // Before the rank itself: its children are found by descent only while it lives.
        for process in table::descendants(&table::all(), &BTreeSet::from([started.process.pid])) {
            process.signal(Signal::KILL);
        }
        let _ = started.process.signal(Signal::KILL);
        // The container is removed at the end.
        for process in
            process_set::inside(&self.dir, &self.spec, &table::all()).remove(&rank).into_iter().flatten()
        {
            process.signal(Signal::KILL);
        }
    }

    pub(super) fn perform(&mut self, actions: Vec<Action>) {
        let now = actions.iter().any(|action| matches!(action, Action::Kill { .. }));
        for action in actions {
            match action {
                Action::MarkStop(why) => {
                    self.note(&format!("stopping: {why}"));
                    let open = self.machine.open().iter().copied();
                    if let Err(error) = stop_mark::write(&self.dir, open, why, now) {
                        self.note(&error.to_string());
                    }
                    self.enter(Phase::Stopping);
                }
                Action::Term => {
                    self.unseat_all();
                    let is_left = self.leaves_background();
                    for process in self.told_to_end() {
                        self.background.see(is_left, &process);
                        self.ended.insert((process.pid, process.stat.start));
                        process.tell_to_end();
                    }
                    self.machine.told(clock::host_now());
                }
                Action::Kill { wraps } => {
                    self.unseat_all();
                    let contained = self.spec.container().is_some() && !wraps;
                    let found = if contained { self.inside() } else { self.processes() };
                    let parents: BTreeSet<u32> = found.iter().map(|process| process.stat.parent).collect();
                    if let Some(cgroup) = self.cgroup() {
                        cgroup.kill();
                    }
                    for process in found {
                        self.ended.insert((process.pid, process.stat.start));
                        process.signal(Signal::KILL);
                    }
                    for (rank, wrap) in &self.state.wraps {
                        // One that waits for a rank that can't be ended holds what that holds; one may have a child no more.
                        let hangs = wraps && !self.rank_lives(*rank) && !parents.contains(&wrap.pid);
                        let _ = wrap.signal(if hangs { Signal::KILL } else { Signal::CONT });
                    }
                }
            }
        }
    }

    /// All of the run that lives, the rank-wraps too.
    pub(super) fn process_set(&self) -> Vec<table::Process> {
        match self.adopted {
            Some(_) => process_set::with_wraps(&self.dir, &self.spec, &self.state),
            None => process_set::own(&self.dir, &self.spec, &self.state),
        }
    }

    /// All of the run that lives, without the rank-wraps.
    pub(super) fn processes(&self) -> Vec<table::Process> {
        let wraps: BTreeSet<u32> = self.state.wraps.values().map(|wrap| wrap.pid).collect();
        let mut found = self.process_set();
        found.retain(|process| !wraps.contains(&process.pid));
        found
    }

    pub(super) fn rank_lives(&self, rank: Rank) -> bool {
        let started = self.dir.read_json::<Started>(&started_file(rank));
        started.is_ok_and(|started| started.is_some_and(|started| started.process.alive()))
    }

    pub(super) fn cgroup(&self) -> Option<Cgroup> {
        Cgroup::open(self.state.cgroup.as_deref()?)
    }

    /// A rank's end that nothing else has written down.
    pub(super) fn record(&mut self, rank: Rank, exit: &RankExit) {
        // Before the exit: what reads that finds it.
        self.hide_values();
        self.store(rank, exit);
        self.exited(rank, exit);
    }

    fn store(&mut self, rank: Rank, exit: &RankExit) {
        if let Err(error) = self.dir.write_reserved(&exit_file(rank), exit) {
            self.note(&error.to_string());
        }
    }

    pub(super) fn exit(&self, code: Option<i32>, signal: Option<i32>) -> RankExit {
        RankExit { code, signal, t: clock::host_now(), error: None, stopped: self.dir.has(STOP), cause: None }
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.state.phase = phase;
        if let Err(error) = self.dir.write_json(STATE, &self.state) {
            self.note(&error.to_string());
        }
    }

    fn end(mut self) -> Result<(), SuperviseError> {
        // its last look cuts and syncs what the ranks said at the end
        self.spool_trimmer = None;
        if let Some(meeting) = self.meeting.take().filter(|_| !self.dir.has(STOP)) {
            meeting.finish();
        }
        self.tracing = None;
        self.ras = None;
        self.hide_values();
        let left = self.processes();
        self.state.left = left.iter().map(table::Process::describe).collect();
        for process in &left {
            self.tell(&Note::new(what::UNKILLABLE, process_set::why_left(process), clock::host_now()));
        }
        for rank in self.machine.open().clone() {
            let mut exit = self.exit(None, None);
            exit.cause = Some("KILL does not end it".to_owned());
            self.store(rank, &exit);
        }
        if self.state.left.is_empty() && self.dir.has(STOP) {
            let count = self.ended.len() as u64;
            let ended = crate::domain::units::counted(count, "process");
            let text = format!("nothing of the run is left ({ended} ended)");
            self.tell(&Note { count, ..Note::new(what::GONE, text, clock::host_now()) });
        } else if let Some(note) = self.background.note() {
            self.tell(&note);
        }
        if let Some(cgroup) = self.cgroup() {
            cgroup.remove();
        }
        for why in container::sweep::run(&self.dir, &self.spec) {
            self.tell(&Note::new(what::UNKILLABLE, why, clock::host_now()));
        }
        if let Err(error) = self.dir.sweep() {
            line(&self.log, &error.to_string());
        }
        self.state.phase = Phase::Ended;
        self.dir.write_json(STATE, &self.state)
    }

    /// Writes down where ranks have printed secret values: what was printed after a rank's end, or by a rank whose
    /// rank-wrap was killed. Where the values are not known nothing is written, and its reader can tell.
    fn hide_values(&self) {
        let known = |rank: &&RankSpec| secrets::any(rank) && self.known.contains(&rank.rank);
        for rank in self.spec.ranks.iter().filter(known) {
            if let Err(error) = secrets::write_down(&self.dir, rank.rank, &self.values) {
                line(&self.log, &error.to_string());
            }
        }
    }

    /// Says something to the clients that follow the run, now or later.
    pub(super) fn tell(&mut self, note: &Note) {
        self.note(&note.text);
        if let Err(error) = notes::add(&self.dir, note) {
            self.note(&error.to_string());
        }
    }

    /// The log, for a process that is started.
    pub(super) fn log_copy(&self) -> Result<File, SuperviseError> {
        self.log.try_clone().map_err(|e| SuperviseError::io("open", &self.dir.path().join(LOG), e))
    }

    /// A line for those who look for what happened. A log that can't be written stops nothing.
    pub(super) fn note(&mut self, text: &str) {
        line(&self.log, text);
    }
}

/// Whether the state is written when so many rank-wraps were started: each of a few before the next, so that a
/// successor knows them; of many ever fewer, as it names all of them each time. A successor then looks for those
/// that it does not name.
fn is_written(started: usize) -> bool {
    started <= 16 || started.is_power_of_two()
}

/// The values of all secret variables of these ranks.
fn values(spec: &HostRun, late: &Late) -> Masks {
    let secret = spec.ranks.iter().flat_map(|rank| &rank.env).filter(|(_, value)| *value == MASK);
    Masks::new(secret.filter_map(|(name, _)| late.secrets.get(name)).map(String::as_str))
}

/// A line of the log, in one write: several threads have something to say.
pub(super) fn line(mut log: &File, text: &str) {
    let HostTime(micros) = clock::host_now();
    let line = format!("{}.{:06} {text}\n", micros / 1_000_000, micros % 1_000_000);
    let _ = log.write_all(line.as_bytes());
}

/// Why a rank has ended whose rank-wrap was killed.
pub(super) const WRAP_KILLED: &str = "hvtui's process beside it (rank-wrap) was killed";
/// Between looks at ranks that are no children of this process.
const LOOK: Duration = Duration::from_millis(100);
/// Between looks while nothing is expected.
const IDLE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_many_ranks_is_written_few_times() {
        assert!((1..=16).all(is_written));
        assert_eq!((1..=512).filter(|started| is_written(*started)).count(), 16 + 5);
    }
}
