//! Who owns a run whose first supervisor may be dead, and how a new one takes its place.
//!
//! Supervisors of a run are numbered. The first one is generation 0; a process that finds the newest one dead
//! may claim the next number by creating its file, which one of several can. A supervisor that is only slow, or
//! halted, is alive and keeps its run.

use std::path::Path;
use std::process::{Command, Stdio};

use super::SuperviseError;
use super::daemon::Reply;
use super::logout::{self, Logout};
use super::rundir::RunDir;
use super::state::{Phase, STATE, State};
use crate::procs::identity::Identity;

/// `adopted-2.json`: the process that claimed to be the supervisor of this generation, an [`Identity`].
pub fn claim_file(generation: u64) -> String {
    format!("adopted-{generation}.json")
}

/// The variables that a supervisor needs. One that starts no ranks gets no others: its starter may be a
/// rank-wrap, whose environment holds the run's secrets.
const ENVIRONMENT: [&str; 6] = ["HOME", "PATH", "LANG", "TMPDIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"];

/// How `systemd-run` finds the user's service manager.
const MANAGER: [&str; 2] = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// The newest supervisor of a run and its generation.
pub fn owner(dir: &RunDir, state: &State) -> Result<(u64, Identity), SuperviseError> {
    let mut newest = (state.generation, state.supervisor.clone());
    while let Some(next) = dir.read_json::<Identity>(&claim_file(newest.0 + 1))? {
        newest = (newest.0 + 1, next);
    }
    Ok(newest)
}

/// Whether a run has a supervisor now.
pub fn supervised(dir: &RunDir, state: &State) -> Result<bool, SuperviseError> {
    Ok(owner(dir, state)?.1.alive())
}

/// Makes this process the run's supervisor: its generation. `None` when the run has one, or has ended.
pub(super) fn claim(dir: &RunDir, own: &Identity) -> Result<Option<u64>, SuperviseError> {
    let state: State = dir.read_json(STATE)?.ok_or_else(|| {
        SuperviseError::NotStarted(format!("no run was started in {}", dir.path().display()))
    })?;
    let (generation, owner) = owner(dir, &state)?;
    if state.phase == Phase::Ended || owner.alive() {
        return Ok(None);
    }
    let next = generation + 1;
    Ok(dir.claim_json(&claim_file(next), own)?.then_some(next))
}

/// The command that starts a supervisor for a run that has lost its own. It answers a [`Reply`].
pub(super) fn command(exe: &Path, dir: &Path) -> Command {
    prepared(Command::new(exe), dir)
}

fn prepared(mut command: Command, dir: &Path) -> Command {
    command.args(["supervise", "--adopt", "--dir"]).arg(dir).current_dir("/").env_clear();
    command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What a look after a run's supervisor has found or done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// A new supervisor was started.
    Now,
    /// It has one, or needs none any more.
    Needless,
}

/// Gives a run that has lost its supervisor a new one, started with `exe`, hvtui's own binary. Blocks until
/// that owns the run. However many ask at once, one supervisor results.
pub fn adopt(exe: &Path, dir: &RunDir) -> Result<Adopted, SuperviseError> {
    match dir.read_json::<State>(STATE)? {
        Some(state) if state.phase != Phase::Ended && !supervised(dir, &state)? => {}
        _ => return Ok(Adopted::Needless),
    }
    let failed = |doing| move |e| SuperviseError::io(doing, exe, e);
    if logout::danger() == Logout::Escapable {
        let mut through =
            prepared(logout::escape(Path::new(logout::SYSTEMD_RUN), exe, dir.path()), dir.path());
        through.envs(MANAGER.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let output = through.stdout(Stdio::piped()).output();
        if let Some(Reply::Ready) = output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok())
        {
            return Ok(Adopted::Now);
        }
    }
    let output = command(exe, dir.path()).stdout(Stdio::piped()).output().map_err(failed("start"))?;
    match serde_json::from_slice(&output.stdout) {
        Ok(Reply::Ready) => Ok(Adopted::Now),
        Ok(Reply::Already) => Ok(Adopted::Needless),
        Ok(Reply::Failed(why)) => Err(SuperviseError::NotStarted(why)),
        Err(_) => Err(SuperviseError::NotStarted(format!("{} {}", exe.display(), output.status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};

    fn place(supervisor: Identity, phase: Phase) -> (tempfile::TempDir, RunDir) {
        let home = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&home.path().join("s"), &RunId::new(1, 2), &HostId::from("a")).unwrap();
        let state = State::of_test(phase, supervisor);
        dir.write_json(STATE, &state).unwrap();
        (home, dir)
    }

    fn dead() -> Identity {
        let own = Identity::own().unwrap();
        Identity { start: own.start + 1, ..own }
    }

    #[test]
    fn of_many_that_find_the_supervisor_dead_one_takes_its_place() {
        let (_home, dir) = place(dead(), Phase::Running);
        let own = Identity::own().unwrap();
        assert_eq!(claim(&dir, &own).unwrap(), Some(1));
        assert_eq!(claim(&dir, &own).unwrap(), None, "the one that claimed it is alive");
        let state = dir.read_json::<State>(STATE).unwrap().unwrap();
        assert_eq!(owner(&dir, &state).unwrap(), (1, own.clone()));
        // one that died between its claim and its first word
        dir.write_json(&claim_file(1), &dead()).unwrap();
        assert!(!supervised(&dir, &state).unwrap());
        assert_eq!(claim(&dir, &own).unwrap(), Some(2));
    }

    #[test]
    fn a_living_supervisor_and_a_run_that_has_ended_are_left_alone() {
        let own = Identity::own().unwrap();
        let (_home, dir) = place(own.clone(), Phase::Running);
        assert_eq!(claim(&dir, &own).unwrap(), None);
        let (_home, dir) = place(dead(), Phase::Ended);
        assert_eq!(claim(&dir, &own).unwrap(), None);
        assert_eq!(adopt(Path::new("/bin/false"), &dir).unwrap(), Adopted::Needless);
        let (_home, dir) = place(dead(), Phase::Running);
        let error = adopt(Path::new("/bin/false"), &dir).unwrap_err().to_string();
        assert!(error.starts_with("supervisor did not start: /bin/false exit"), "{error}");
    }
}
