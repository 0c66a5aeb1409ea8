//! A host for tests of supervisors: a state directory and a working directory of its own, real processes.
//!
//! Knows how a run is started and what its files hold; nothing of what a test asks of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hvtui::domain::ids::{HostId, Rank, RunId};
use hvtui::domain::run::{HostRun, RankExit};
use hvtui::procs::identity::Identity;
use hvtui::procs::marks;
use hvtui::procs::table;
use hvtui::supervise::lease::Claims;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::start::{Started as Start, start};
use hvtui::supervise::state::{Phase, STATE, Started, State, exit_file, started_file};
use rustix::process::Signal;

use super::plan;
use super::processes::wait_for;

/// A host with a state directory and a working directory of its own.
pub(crate) struct Bed {
    pub(crate) home: tempfile::TempDir,
    pub(crate) run: RunId,
    pub(crate) host: HostId,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        // Unique over tests that run at the same time: processes are found by it.
        let run = plan::unique_run();
        Self { home, run, host: HostId::from("here") }
    }

    pub(crate) fn work(&self, file: &str) -> PathBuf {
        self.home.path().join("work").join(file)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.home.path().join("state")
    }

    pub(crate) fn spec(&self, scripts: &[&str], grace_ms: u64) -> HostRun {
        plan::scripts((&self.run, &self.host), "/bin/sh", scripts, &self.home.path().join("work"), grace_ms)
    }

    pub(crate) fn start(&self, spec: HostRun) -> RunDir {
        let dir = RunDir::create(&self.state_dir(), &self.run, &self.host).unwrap();
        let secret = BTreeMap::from([("HVTUI_SECRET".to_owned(), "canary-5f1c".to_owned())]);
        assert_eq!(launch(&dir, spec, secret).unwrap(), Start::Now);
        dir
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        marks::marked(&table::all(), &self.run, &self.host).iter().map(|process| process.pid).collect()
    }
}

impl Drop for Bed {
    /// A failed test leaves nothing behind either.
    fn drop(&mut self) {
        for process in marks::marked(&table::all(), &self.run, &self.host) {
            process.signal(Signal::KILL);
        }
    }
}

pub(crate) fn launch(
    dir: &RunDir,
    spec: HostRun,
    env: BTreeMap<String, String>,
) -> Result<Start, hvtui::supervise::SuperviseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(start(
        Path::new(crate::common::program::hvtui()),
        dir,
        spec,
        secrets(env),
        Claims::default(),
    ))
}

pub(crate) fn state(dir: &RunDir) -> State {
    dir.read_json(STATE).unwrap().unwrap()
}

/// Waits until the supervisor has written down every rank-wrap: each rank may begin before its own is.
pub(crate) fn running(dir: &RunDir) -> State {
    wait_for("the supervisor to write down that it started all", || {
        Some(state(dir)).filter(|state| state.phase != Phase::Starting)
    })
}

/// Waits until the supervisor has done all and is gone.
pub(crate) fn ended(dir: &RunDir) -> State {
    wait_for("the end of the supervisor", || {
        let state = state(dir);
        (state.phase == Phase::Ended && !state.supervisor.alive()).then_some(state)
    })
}

pub(crate) fn exit(dir: &RunDir, rank: u32) -> RankExit {
    dir.read_json(&exit_file(Rank(rank))).unwrap().unwrap()
}

pub(crate) fn rank_process(dir: &RunDir, rank: u32) -> Identity {
    let started = || dir.read_json::<Started>(&started_file(Rank(rank))).unwrap();
    wait_for("a rank's start", started).process
}

pub(crate) fn text(dir: &RunDir, file: &str) -> String {
    std::fs::read_to_string(dir.path().join(file)).unwrap()
}

/// The binary under test.
pub(crate) fn hvtui() -> &'static Path {
    Path::new(crate::common::program::hvtui())
}

/// Variables that are known at the start only, as an order to start brings them: where the ranks meet may be seen, the
/// rest may not.
pub(crate) fn secrets(all: BTreeMap<String, String>) -> hvtui::domain::late::Late {
    const SEEN: [&str; 5] = ["MASTER_ADDR", "MASTER_PORT", "HVTUI_BIND", "HVTUI_KV_PORT", "HVTUI_NODE_PORT"];
    let (env, secrets) = all.into_iter().partition(|(name, _)| SEEN.contains(&name.as_str()));
    hvtui::domain::late::Late { env, secrets, ..Default::default() }
}
