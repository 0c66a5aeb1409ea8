//! The word that the ranks of a run are told to stop, and which of them had ended before.

use super::SuperviseError;
use super::rundir::RunDir;
use super::state::{STOP, Started, StopMark, started_file};
use crate::clock;
use crate::domain::ids::Rank;

/// Writes down that these ranks are told to stop, before the first signal. A rank whose process has ended by then ended by
/// itself, though its rank-wrap may not have come to write that down.
pub(super) fn write(
    dir: &RunDir,
    ranks: impl IntoIterator<Item = Rank>,
    why: String,
    now: bool,
) -> Result<(), SuperviseError> {
    let has_ended = |rank: &Rank| {
        let started = dir.read_json::<Started>(&started_file(*rank)).ok().flatten();
        started.is_some_and(|started| !started.process.alive())
    };
    let ended = ranks.into_iter().filter(has_ended).collect();
    dir.write_json(STOP, &StopMark { why, t: clock::host_now(), now, ended })
}

/// Whether a rank was told to stop before it ended.
pub(super) fn names(dir: &RunDir, rank: Rank) -> bool {
    let mark = dir.read_json::<StopMark>(STOP).ok().flatten();
    dir.has(STOP) && !mark.is_some_and(|mark| mark.ended.contains(&rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};
    use crate::domain::time::HostTime;
    use crate::procs::identity::Identity;

    #[test]
    fn who_had_ended_before_the_stop_was_not_told_to() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let failed = Identity::of(child.id()).unwrap();
        while failed.alive() {
            std::thread::yield_now();
        }
        for (rank, process) in [(0, failed), (1, Identity::own().unwrap())] {
            let started = Started { process, t: HostTime(0), grouped: false };
            dir.write_json(&started_file(Rank(rank)), &started).unwrap();
        }
        let told = || [0, 1, 2].map(|rank| names(&dir, Rank(rank)));
        assert_eq!(told(), [false; 3], "no stop yet");
        write(&dir, [0, 1, 2].map(Rank), "asked to stop".to_owned(), false).unwrap();
        assert_eq!(told(), [false, true, true], "one that has not begun is told, too");
        child.wait().unwrap();
        // of an earlier version
        dir.replace_with(STOP, br#"{"why":"asked to stop","t":1}"#).unwrap();
        assert_eq!(told(), [true; 3]);
    }
}
