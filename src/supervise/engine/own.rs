//! The supervisor's part of a run whose ranks a launcher starts: it starts the launcher or the node beside the
//! rank-wraps, and ends the ranks that are still expected when that has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{END, EngineEnd};
use crate::clock;
use crate::domain::engine::{EXE, Engine, NODE_PORT, RUN_DIR};
use crate::domain::environment::EnvironmentChange;
use crate::domain::ids::Rank;
use crate::domain::late::Late;
use crate::domain::log::Stream;
use crate::domain::run::{HostRun, RankExit};
use crate::domain::time::HostTime;
use crate::procs::identity::Identity;
use crate::procs::marks;
use crate::procs::table::{self, Process};
use crate::program::own_binary;
use crate::supervise::SuperviseError;
use crate::supervise::environment;
use crate::supervise::lease::Claims;
use crate::supervise::machine::Action;
use crate::supervise::state::{STOP, exit_file, started_file, stream_file};
use crate::supervise::supervisor::Supervisor;

/// What the wrapper of a launcher or a node needs of the variables that no file holds.
const MEETING: [&str; 4] = ["MASTER_ADDR", "HVTUI_BIND", NODE_PORT, super::RUN_SECRET];

/// What the ranks of a host have in common, for what starts them: where they meet, and the run's secret.
pub(in crate::supervise) fn env(spec: &HostRun, late: &Late) -> BTreeMap<String, String> {
    let mut env = spec.ranks.first().map(|rank| rank.env.clone()).unwrap_or_default();
    env.retain(|name, _| MEETING.contains(&name.as_str()));
    env.extend(late.env.iter().chain(&late.secrets).map(|(name, value)| (name.clone(), value.clone())));
    env
}

/// What a supervisor knows of its run's launcher or node.
#[derive(Debug, Default)]
pub(in crate::supervise) struct Watch {
    /// Its end has been dealt with.
    over: bool,
    /// Since when no rank is left of a run that was stopped.
    alone: Option<HostTime>,
    /// It was told to end, since no rank is left.
    told: bool,
}

/// How long a launcher may take to end by itself when its ranks have been stopped: mpirun crashes when it is told to end
/// while it does, and with several hosts it takes two seconds and more.
const ALONE_US: u64 = 4_000_000;
/// The same for one that has not started any rank, and can't have elsewhere: it has nothing to end.
const IDLE_US: u64 = 1_000_000;
/// How long it may take when it was told to, before it is killed. Killed with its wrapper it leaves no word of how it ended.
const TOLD_US: u64 = 1_000_000;

impl Watch {
    /// Whether the launcher is left to end by itself, for a moment.
    pub(in crate::supervise) fn waits(&self) -> bool {
        self.alone.is_some() && !self.over
    }
}

impl Supervisor {
    /// Whether each rank of this run waits for a launcher.
    pub(in crate::supervise) fn seats(&self) -> bool {
        self.spec.engine.as_ref().is_some_and(Engine::seats_ranks)
    }

    /// Starts the launcher or the node of a run that has one.
    pub(in crate::supervise) fn start_engine(
        &mut self,
        spec: &HostRun,
        env: (&BTreeMap<String, String>, &EnvironmentChange),
        claims: &mut Claims,
    ) {
        let Some(engine) = &spec.engine else { return };
        let started = if engine.seats_ranks() {
            self.spawn_engine(spec, engine, env)
        } else {
            // It stands for all its ranks.
            let started = claims.inherit_all(|| self.spawn_engine(spec, engine, env));
            if let Ok(wrap) = &started {
                for rank in &spec.ranks {
                    claims.handed_over(rank.rank, wrap);
                    self.state.wraps.insert(rank.rank, wrap.clone());
                }
            }
            started
        };
        match started {
            Ok(process) if engine.seats_ranks() => self.state.engine = Some(process),
            Ok(_) => {}
            Err(error) => {
                let words = format!("{} was not started: {error}", engine.name());
                let end = EngineEnd { code: 126, died: true, words, t: clock::host_now() };
                self.end_absent(&end);
            }
        }
    }

    fn spawn_engine(
        &self,
        spec: &HostRun,
        engine: &Engine,
        (env, change): (&BTreeMap<String, String>, &EnvironmentChange),
    ) -> Result<Identity, SuperviseError> {
        let exe = own_binary();
        let role = match engine {
            Engine::Launcher(_) => "launch-wrap",
            Engine::Node(_) => "node-wrap",
        };
        for rank in &spec.ranks {
            for stream in Stream::ALL {
                drop(self.dir.append(&stream_file(rank.rank, stream))?);
            }
        }
        let wanted =
            |name: &str| !engine.seats_ranks() || MEETING.contains(&name) || engine.env().contains_key(name);
        let mut command = Command::new(&exe);
        // Before the run's own variables, which count more.
        environment::apply(change, &mut command);
        let child = command
            .args([role, "--dir"])
            .arg(self.dir.path())
            .envs(engine.env())
            .envs(env.iter().filter(|(name, _)| wanted(name)))
            .env(marks::RUN_MARK, spec.run.as_str())
            .env(marks::HOST_MARK, spec.host.as_str())
            .env(RUN_DIR, self.dir.path())
            .env(EXE, &exe)
            .stdin(Stdio::null())
            .stdout(self.log_copy()?)
            .stderr(self.log_copy()?)
            .spawn()
            .map_err(|e| SuperviseError::io("start", &exe, e))?;
        Identity::of(child.id()).map_err(|e| SuperviseError::io("identify", &exe, e))
    }

    /// Looks whether the launcher or the node has ended, and deals with it once.
    pub(in crate::supervise) fn look_at_engine(&mut self) {
        if self.watch.over || self.state.engine.as_ref().is_none_or(Identity::alive) {
            return;
        }
        self.watch.over = true;
        let Some(engine) = &self.spec.engine else { return };
        let end = self.dir.read_json::<EngineEnd>(END).ok().flatten().unwrap_or_else(|| EngineEnd {
            code: 137,
            died: true,
            words: format!("the wrapper of {} was killed", engine.name()),
            t: clock::host_now(),
        });
        self.note(&format!("{} (exit {})", end.words, end.code));
        self.end_absent(&end);
        if !self.machine.open().is_empty() && !self.dir.has(STOP) {
            // Ranks that were started: without their launcher they wait for each other for ever.
            let actions = self.machine.give_up(end.words, clock::host_now());
            self.perform(actions);
        }
    }

    /// Ranks that the launcher never started have failed by its words.
    fn end_absent(&mut self, end: &EngineEnd) {
        let open: Vec<Rank> = self.machine.open().iter().copied().collect();
        let all = table::all();
        for rank in open {
            if let Ok(Some(exit)) = self.dir.read_json(&exit_file(rank)) {
                self.exited(rank, &exit);
            } else if !self.dir.has(&started_file(rank)) && !self.begins(rank, &all) {
                let code = if (1..=255).contains(&end.code) { end.code } else { 126 };
                let failed = self.exit(Some(code), None);
                let exit = if failed.stopped {
                    self.exit(None, Some(15))
                } else {
                    RankExit { error: Some(end.of_absent(rank)), ..failed }
                };
                self.unseat(rank, &exit);
            }
        }
    }

    /// Ends a rank-wrap that waits for its launcher, and writes down why.
    fn unseat(&mut self, rank: Rank, exit: &RankExit) {
        if let Some(wrap) = self.state.wraps.get(&rank).filter(|_| self.seats()) {
            let _ = wrap.signal(Signal::KILL);
        }
        // Should it have been about to start it.
        self.kill_rank(rank);
        self.record(rank, exit);
    }

    /// The ranks are told to end: those that their launcher has not started yet have ended.
    pub(in crate::supervise) fn unseat_all(&mut self) {
        if !self.seats() {
            return;
        }
        let open: Vec<Rank> = self.machine.open().iter().copied().collect();
        let all = table::all();
        for rank in open {
            if !self.dir.has(&started_file(rank))
                && !self.dir.has(&exit_file(rank))
                && !self.begins(rank, &all)
            {
                let exit = self.exit(None, Some(15));
                self.unseat(rank, &exit);
            }
        }
    }

    /// Whether a rank has a process already, of which its rank-wrap has yet to write.
    fn begins(&self, rank: Rank, all: &[Process]) -> bool {
        let wrap = self.state.wraps.get(&rank);
        wrap.is_some_and(|wrap| all.iter().any(|process| process.stat.parent == wrap.pid))
    }

    /// Whether the launcher has started any rank of this host.
    fn any_started(&self) -> bool {
        self.spec.ranks.iter().any(|rank| self.dir.has(&started_file(rank.rank)))
    }

    /// The processes that TERM is for. A launcher that is ended takes what its ranks need for an orderly end with it:
    /// while a rank lives only the ranks are told. It and what it has started are told last: one that ends already, as
    /// mpirun does by itself when a rank fails, may crash.
    pub(in crate::supervise) fn told_to_end(&self) -> Vec<Process> {
        if self.spec.container().is_some() {
            return self.inside();
        }
        let mut all = self.processes();
        if !self.seats() {
            return all;
        }
        let table = table::all();
        let below = |roots: BTreeSet<u32>| -> BTreeSet<u32> {
            let found = table::descendants(&table, &roots);
            found.into_iter().map(|process| process.pid).chain(roots).collect()
        };
        let lives = |rank: &Rank| self.rank_lives(*rank) || self.begins(*rank, &table);
        if self.machine.open().iter().any(lives) {
            let ours = below(self.state.wraps.values().map(|wrap| wrap.pid).collect());
            all.retain(|process| ours.contains(&process.pid));
        } else if !self.watch.over && !self.watch.told && self.any_started() {
            let theirs = below(self.state.engine.iter().map(|engine| engine.pid).collect());
            all.retain(|process| !theirs.contains(&process.pid));
        }
        all
    }

    /// Whether the launcher may have started ranks on another host.
    fn has_other_hosts(&self) -> bool {
        let all = self.spec.run_spec.iter().flat_map(|run| &run.placements);
        all.into_iter().any(|placement| placement.host != self.spec.host)
    }

    /// Whether only the launcher or the node is left, and is still wanted: other hosts may have ranks of it. One that
    /// is not is told to end.
    pub(in crate::supervise) fn engine_is_wanted(&mut self) -> bool {
        if self.watch.over || self.state.engine.is_none() || !self.machine.open().is_empty() {
            return false;
        }
        if !self.dir.has(STOP) {
            return true;
        }
        let now = clock::host_now();
        let alone = now.0.saturating_sub(self.watch.alone.get_or_insert(now).0);
        let patience = if self.any_started() || self.has_other_hosts() { ALONE_US } else { IDLE_US };
        if !self.watch.told && alone >= patience {
            self.watch.told = true;
            self.perform(vec![Action::Term]);
        }
        alone < patience + TOLD_US
    }
}
