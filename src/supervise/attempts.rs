//! A run that is started again in the same directory, after all its ranks have ended (`--max-restarts`).
//!
//! What tells of the earlier attempt goes into `attempt-0/`, `attempt-1/` …; what ranks have printed stays and goes on,
//! so that every byte keeps its offset. Knows nothing of why a run is started again.

use super::SuperviseError;
use super::adopt::{claim_file, supervised};
use super::engine::END;
use super::rundir::RunDir;
use super::state::{SPEC, STATE, STOP, State, exit_file, started_file};
use crate::domain::run::HostRun;

/// Whether this attempt or a later one was started in the directory.
pub fn has(dir: &RunDir, attempt: u32) -> bool {
    dir.has(STATE) && newest(dir).is_none_or(|newest| newest >= attempt)
}

/// The attempt that the directory's files tell of. Where a supervisor has claimed the run and written nothing yet,
/// nothing tells it: then it is the newest there is.
pub fn newest(dir: &RunDir) -> Option<u32> {
    dir.read_json::<HostRun>(SPEC).ok().flatten().map(|spec| spec.attempt)
}

/// What is left of an attempt after which another one was started; `None` as long as it is the newest.
pub fn aside(dir: &RunDir, attempt: u32) -> Option<RunDir> {
    // what is moved last
    moved(dir, attempt).filter(|aside| aside.has(SPEC))
}

/// What was set aside of an attempt so far.
pub fn moved(dir: &RunDir, attempt: u32) -> Option<RunDir> {
    let place = place(attempt);
    dir.has(&place).then(|| RunDir::open(&dir.path().join(place)).ok()).flatten()
}

fn place(attempt: u32) -> String {
    format!("attempt-{attempt}")
}

/// Makes room for `attempt`: sets the files of the one before aside. Does nothing where there is none, and may be done
/// again where it was interrupted.
pub fn set_aside(dir: &RunDir, attempt: u32) -> Result<(), SuperviseError> {
    let Some(spec) = dir.read_json::<HostRun>(SPEC)?.filter(|spec| spec.attempt < attempt) else {
        return Ok(());
    };
    let state = dir.read_json::<State>(STATE)?;
    if let Some(state) = &state
        && supervised(dir, state)?
    {
        let text =
            format!("attempt {} of the run has not ended yet: try again", spec.attempt.saturating_add(1));
        return Err(SuperviseError::NotStarted(text));
    }
    let place = place(spec.attempt);
    let claims = (1..).map(claim_file).take_while(|name| dir.has(name));
    let ranks = spec.ranks.iter().flat_map(|rank| [started_file(rank.rank), exit_file(rank.rank)]);
    // The state before the spec, which says whose state it is.
    let last = [STOP, END, STATE, SPEC].map(str::to_owned);
    // What tells where its processes stand is of no use to anybody.
    let is_page = |name: &&String| name.starts_with("rank-") && name.strip_suffix(".now").is_some();
    for page in dir.names()?.iter().filter(is_page) {
        dir.remove(page)?;
    }
    for name in ranks.chain(claims.collect::<Vec<_>>()).chain(last) {
        dir.set_aside(&name, &place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run, rank_spec};
    use crate::domain::ids::{HostId, Rank, RunId};
    use crate::domain::log::Stream;
    use crate::procs::identity::Identity;
    use crate::supervise::state::{Phase, stream_file};

    fn spec(attempt: u32) -> HostRun {
        HostRun { attempt, run: RunId::new(1, 2), ..host_run(vec![rank_spec(3)]) }
    }

    #[test]
    fn an_attempt_that_has_ended_makes_room_and_what_was_printed_stays() {
        let home = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&home.path().join("s"), &RunId::new(1, 2), &HostId::from("a")).unwrap();
        assert!(!has(&dir, 0));
        set_aside(&dir, 1).unwrap();
        let own = Identity::own().unwrap();
        dir.write_json(STATE, &State::of_test(Phase::Ended, own.clone())).unwrap();
        assert!(has(&dir, 7), "a supervisor that has only claimed the run");
        dir.write_json(SPEC, &spec(0)).unwrap();
        assert!(has(&dir, 0) && !has(&dir, 1));
        let names = [exit_file(Rank(3)), started_file(Rank(3)), STOP.to_owned(), claim_file(1)];
        for name in &names {
            dir.write_json(name, &own).unwrap();
        }
        let printed = stream_file(Rank(3), Stream::Stdout);
        drop(dir.append(&printed).unwrap());
        let error = set_aside(&dir, 1).unwrap_err().to_string();
        assert!(error.contains("attempt 1 of the run has not ended yet"), "{error}");
        assert!(has(&dir, 0), "one that is supervised stays as it is");

        let dead = Identity { start: own.start + 1, ..own };
        dir.write_json(STATE, &State::of_test(Phase::Ended, dead.clone())).unwrap();
        dir.write_json(&claim_file(1), &dead).unwrap();
        set_aside(&dir, 0).unwrap();
        assert!(has(&dir, 0), "the same attempt is not set aside");
        assert!(aside(&dir, 0).is_none());
        set_aside(&dir, 1).unwrap();
        assert!(aside(&dir, 0).is_some_and(|aside| aside.has(&exit_file(Rank(3)))));
        assert!(!has(&dir, 0) && dir.has(&printed));
        for name in names.iter().map(String::as_str).chain([STATE, SPEC]) {
            assert!(!dir.has(name) && dir.path().join("attempt-0").join(name).exists(), "{name}");
        }
        set_aside(&dir, 1).unwrap();
    }
}
