//! Runs that were stopped on this host before they had started here: whoever still makes them ready is refused.
//!
//! Who stops a run writes the mark first and looks for the run's state then; who starts it writes the state first and looks for
//! the mark then. One of the two therefore sees the other.

use std::path::Path;

use super::SuperviseError;
use super::rundir::RunDir;
use crate::clock;
use crate::domain::ids::RunId;
use crate::domain::time::Stamp;

/// The folder of the marks, in the state directory.
const FOLDER: &str = "unwanted";
/// No launch takes longer: older marks are removed, microseconds.
const LIFE_US: i64 = 7 * 24 * 3_600_000_000;

/// From now on the run is not started here, in no attempt.
pub fn mark(state_dir: &Path, run: &RunId) -> Result<(), SuperviseError> {
    let (folder, now) = (RunDir::make(state_dir, &[FOLDER])?, clock::now());
    for name in folder.names()? {
        let written: Option<Stamp> = folder.read_json(&name).ok().flatten();
        if written.is_some_and(|at| now.micros_since(at) > LIFE_US) {
            folder.remove(&name)?;
        }
    }
    folder.write_json(run.as_str(), &now)
}

/// Whether the run was stopped here.
pub fn is_marked(state_dir: &Path, run: &RunId) -> bool {
    state_dir.join(FOLDER).join(run.as_str()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        }
    }
}
