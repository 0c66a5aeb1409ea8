//! Stops a run on this host from outside: through its supervisor, or directly when that is gone.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::SuperviseError;
use super::adopt::{self, adopt};
use super::container;
use super::process_set::left_behind;
use super::rundir::RunDir;
use super::state::{SPEC, STATE, STOP, State};
use super::stop_mark;
use crate::domain::run::HostRun;
use crate::procs::cgroup::Cgroup;
use crate::procs::identity::Stat;

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

/// Stops the run through its supervisor. One that has died is replaced first, by `exe`, hvtui's own binary;
/// should that fail, what is left is ended here, and this blocks for the grace period.
pub fn stop(exe: &Path, dir: &RunDir, now: bool) -> Result<Stopped, SuperviseError> {
    let Some(state) = dir.read_json::<State>(STATE)? else {
        return Ok(Stopped::NothingLeft);
    };
    if !now && dir.has(STOP) && adopt::supervised(dir, &state)? {
        // it is at it: two clients may see the same failure
        return Ok(Stopped::Told);
    }
    if tell(dir, &state, now)? {
        return Ok(Stopped::Told);
    }
    match adopt(exe, dir) {
        Ok(_) if tell(dir, &state, now)? => return Ok(Stopped::Told),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "a run without supervisor could not be given a new one"),
    }
    sweep(dir, &dir.read_json(STATE)?.unwrap_or(state), now)
}

/// Signals the supervisor; `false` when there is none.
fn tell(dir: &RunDir, state: &State, now: bool) -> Result<bool, SuperviseError> {
    let signal = if now { Signal::INT } else { Signal::TERM };
    let (_, owner) = adopt::owner(dir, state)?;
    let told = owner.signal(signal).and_then(|told| {
        // one that is halted could not obey
        let is_halted = told && Stat::read(owner.pid).is_ok_and(|stat| stat.state == 'T');
        if is_halted { owner.signal(Signal::CONT) } else { Ok(told) }
    });
    told.map_err(|e| SuperviseError::io("signal the supervisor of", dir.path(), e))
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
        stop_mark::write(dir, spec.ranks.iter().map(|rank| rank.rank), why, now)?;
    }
    if !now {
        for process in left_behind(dir, &spec, state) {
            process.tell_to_end();
        }
        let mut waited = Duration::ZERO;
        while waited < Duration::from_millis(spec.grace_ms) && !left_behind(dir, &spec, state).is_empty() {
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }
    let cgroup = state.cgroup.as_deref().and_then(Cgroup::open);
    let (mut waited, mut empty) = (Duration::ZERO, 0);
    while empty < 2 && waited < PATIENCE {
        if let Some(cgroup) = &cgroup {
            cgroup.kill();
        }
        let left = left_behind(dir, &spec, state);
        let populated = cgroup.as_ref().is_some_and(Cgroup::populated);
        empty = if left.is_empty() && !populated { empty + 1 } else { 0 };
        for process in left {
            process.signal(Signal::KILL);
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    if let Some(cgroup) = cgroup {
        cgroup.remove();
    }
    for why in container::sweep::run(dir, &spec) {
        tracing::warn!("{why}");
    }
    Ok(Stopped::Swept)
}
