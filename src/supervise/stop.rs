//! Stops a run on this host from outside: through its supervisor, or directly when that is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;

use super::SuperviseError;
use super::rundir::RunDir;
use super::state::{SPEC, STATE, STOP, Started, State, StopMark, started_file};
use super::tree::{self, Process};
use crate::clock;
use crate::domain::run::HostRun;

/// What a stop found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The supervisor was told and does the rest.
    Told,
    /// The supervisor is dead; what it left behind was ended here.
    Swept,
    /// Nothing of the run was left.
    NothingLeft,
}

/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(20);
/// How long KILL may take before what is left is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stops the run; blocks for the grace period when the supervisor is dead.
pub fn stop(dir: &RunDir, now: bool) -> Result<Stopped, SuperviseError> {
    let Some(state) = dir.read_json::<State>(STATE)? else {
        return Ok(Stopped::NothingLeft);
    };
    if !now && dir.has(STOP) && state.supervisor.alive() {
        // it is at it: a second signal would mean «now», and two clients may see the same failure
        return Ok(Stopped::Told);
    }
    let signal = if now { Signal::INT } else { Signal::TERM };
    let told = state.supervisor.signal(signal);
    if told.map_err(|e| SuperviseError::io("signal the supervisor of", dir.path(), e))? {
        return Ok(Stopped::Told);
    }
    sweep(dir, &state, now)
}

/// Ends what a dead supervisor left behind: TERM, grace unless `now`, KILL until nothing is found twice. The
/// rank-wraps are left to write down their rank's end.
pub fn sweep(dir: &RunDir, state: &State, now: bool) -> Result<Stopped, SuperviseError> {
    let Some(spec) = dir.read_json::<HostRun>(SPEC)? else {
        return Ok(Stopped::NothingLeft);
    };
    if left_behind(dir, &spec, state).is_empty() {
        return Ok(Stopped::NothingLeft);
    }
    if !dir.has(STOP) {
        let why = "asked to stop after the supervisor's death".to_owned();
        dir.write_json(STOP, &StopMark { why, t: clock::host_now(), now })?;
    }
    if !now {
        for process in left_behind(dir, &spec, state) {
            process.signal(Signal::TERM);
            process.signal(Signal::CONT);
        }
        let mut waited = Duration::ZERO;
        while waited < Duration::from_millis(spec.grace_ms) && !left_behind(dir, &spec, state).is_empty() {
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }
    let (mut waited, mut empty) = (Duration::ZERO, 0);
    while empty < 2 && waited < PATIENCE {
        let left = left_behind(dir, &spec, state);
        empty = if left.is_empty() { empty + 1 } else { 0 };
        for process in left {
            process.signal(Signal::KILL);
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    Ok(Stopped::Swept)
}

/// The processes of the run that still live, without the rank-wraps.
fn left_behind(dir: &RunDir, spec: &HostRun, state: &State) -> Vec<Process> {
    let all = tree::all();
    let wraps: BTreeSet<u32> =
        state.wraps.values().filter(|wrap| wrap.alive()).map(|wrap| wrap.pid).collect();
    let ranks: BTreeSet<u32> = spec
        .ranks
        .iter()
        .filter_map(|rank| dir.read_json::<Started>(&started_file(rank.rank)).ok()?)
        .filter(|started| started.process.alive())
        .map(|started| started.process.pid)
        .collect();
    let mut found: BTreeMap<u32, Process> = BTreeMap::new();
    let roots = &wraps | &ranks;
    let by_descent = tree::descendants(&all, &roots).into_iter();
    let themselves = all.iter().filter(|process| ranks.contains(&process.pid)).cloned();
    for process in by_descent.chain(themselves).chain(tree::marked(&all, &spec.run, &spec.host)) {
        found.insert(process.pid, process);
    }
    found.into_values().filter(|process| !wraps.contains(&process.pid)).collect()
}
