//! Runs that were stopped on this host before they had started here: whoever still makes them ready is refused.
//!
//! Who stops a run writes the mark first and looks for the run's state then; its supervisor writes the state first and looks for
//! the mark then, before it starts a rank. One of the two therefore sees the other.

use std::path::{Path, PathBuf};

use super::SuperviseError;
use super::rundir::RunDir;
use crate::clock;
use crate::domain::ids::RunId;
use crate::domain::time::Stamp;

/// The folder of the marks, in the state directory.
const FOLDER: &str = "unwanted";
/// No launch takes longer: older marks are removed, microseconds.
const LIFE_US: i64 = 7 * 24 * 3_600_000_000;

/// Where the marks are.
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER)
}

/// From now on the run is not started here, in no attempt.
pub fn mark(state_dir: &Path, run: &RunId) -> Result<(), SuperviseError> {
    let (folder, now) = (RunDir::make(state_dir, &[FOLDER])?, clock::now());
    for name in folder.names()? {
        let written: Option<Stamp> = folder.read_json(&name).ok().flatten();
        if written.is_some_and(|at| now.micros_since(at) > LIFE_US) {
            // another agent may have done so just now
            let _ = folder.remove(&name);
        }
    }
    // one that is there does as well: another thread, or a host that shares the folder, may have written it just now
    let written = folder.write_json(run.as_str(), &now);
    if folder.has(run.as_str()) { Ok(()) } else { written }
}

/// Why a run is refused that was stopped before it started.
pub const WHY: &str = "the run was stopped before it started";

/// Refuses a run that was stopped, by its own directory.
pub(super) fn check(dir: &RunDir, run: &RunId) -> Result<(), SuperviseError> {
    // <state>/spool/<run>/<host>
    let is_unwanted = dir.path().ancestors().nth(3).is_some_and(|state| is_marked(state, run));
    if is_unwanted { Err(SuperviseError::NotStarted(WHY.to_owned())) } else { Ok(()) }
}

/// Whether the run was stopped here.
pub fn is_marked(state_dir: &Path, run: &RunId) -> bool {
    state_dir.join(FOLDER).join(run.as_str()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::HostId;

    #[test]
    fn a_run_is_marked_alone_and_old_marks_go() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("s");
        let [old, run] = [1, 2].map(|at| RunId::new(at, 1));
        assert!(!is_marked(&state, &run), "no folder yet");
        mark(&state, &old).unwrap();
        let folder = RunDir::make(&state, &[FOLDER]).unwrap();
        folder.write_json(old.as_str(), &clock::now().plus_micros(-LIFE_US - 1)).unwrap();
        assert!(is_marked(&state, &old) && !is_marked(&state, &run));
        for _ in 0..2 {
            mark(&state, &run).unwrap();
            assert!(is_marked(&state, &run) && !is_marked(&state, &old));
            let dir = |run| RunDir::create(&state, run, &HostId::from("a")).unwrap();
            assert!(check(&dir(&run), &run).is_err() && check(&dir(&old), &old).is_ok());
        }
        // one that can't be written anew is one
        std::fs::create_dir(folder.path().join(crate::supervise::rundir::draft(run.as_str()))).unwrap();
        mark(&state, &run).unwrap();
        assert!(mark(&state, &old).is_ok() && is_marked(&state, &old));
    }
}
