//! Runs that were stopped on this host before they had started here: whoever still makes them ready is refused.
//!
//! Who stops a run writes the mark first and looks for the run's state then; who starts it writes the state first and looks for
//! the mark then. One of the two therefore sees the other.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::SuperviseError;
use super::rundir::RunDir;
use crate::domain::ids::RunId;

/// The folder of the marks, in the state directory.
const FOLDER: &str = "unwanted";
/// No launch takes longer. Older marks are removed.
const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// From now on the run is not started here, in no attempt.
pub fn mark(state_dir: &Path, run: &RunId) -> Result<(), SuperviseError> {
    let folder = RunDir::make(state_dir, &[FOLDER])?;
    for name in folder.names()? {
        let written = std::fs::symlink_metadata(folder.path().join(&name)).and_then(|file| file.modified());
        let age = written.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > LIFE) {
            folder.remove(&name)?;
        }
    }
    folder.write_json(run.as_str(), &())
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
        let long_ago = SystemTime::now() - LIFE - Duration::from_secs(60);
        let file = std::fs::File::options().write(true).open(state.join(FOLDER).join(old.as_str())).unwrap();
        file.set_modified(long_ago).unwrap();
        assert!(is_marked(&state, &old) && !is_marked(&state, &run));
        for _ in 0..2 {
            mark(&state, &run).unwrap();
            assert!(is_marked(&state, &run) && !is_marked(&state, &old));
        }
    }
}
