//! Containers that were left behind: by a rank-wrap that was killed, by a supervisor, by a host that was switched off.
//! They are found by the run's own files, and by their labels where those are gone too.

use std::path::Path;

use super::end::remove;
use super::{PLACE_LABEL, Setup, cid_file};
use crate::domain::container;
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;
use crate::image::engine::Engine;
use crate::supervise::rundir::{RunDir, machine_key};
use crate::supervise::state::{Phase, STATE, State};
use crate::supervise::{SuperviseError, adopt, python_hooks};

/// Removes the containers of a run's ranks on this host that are still there; why some could not be, rank by rank.
pub(in crate::supervise) fn run(dir: &RunDir, run: &HostRun) -> Vec<String> {
    let Some(setup) = Setup::read(dir) else { return Vec::new() };
    let left = run.ranks.iter().map(|rank| rank.rank).filter(|rank| dir.has(&cid_file(*rank)));
    left.filter_map(|rank| self::rank(&setup, dir, run, rank).err()).collect()
}

/// Removes the container of one rank, if it is there.
pub(in crate::supervise) fn rank(
    setup: &Setup,
    dir: &RunDir,
    run: &HostRun,
    rank: Rank,
) -> Result<(), String> {
    if !dir.has(&cid_file(rank)) {
        return Ok(());
    }
    let name = container::name(&run.run, rank, run.attempt);
    remove(setup, dir, &name, rank).map_err(|why| {
        format!("container {name} is left: {why}: remove it by `{} rm -f {name}`", setup.engine.name())
    })
}

/// Removes the containers of this machine's runs in this state folder that surely have no owner left: their run has ended here, or
/// its files are gone. Quiet about what can't be done: the run that asks has its own containers.
pub fn orphans(engine: &Engine, state: &Path) {
    let format = format!("{{{{.Names}}}}\t{{{{.Label \"{PLACE_LABEL}\"}}}}");
    let filter = format!("label={PLACE_LABEL}");
    let Ok(told) = engine.ask(&["ps", "--all", "--filter", &filter, "--format", &format]) else { return };
    for line in told.out.lines() {
        let Some((name, place)) = line.split_once('\t') else { continue };
        let place = Path::new(place);
        if is_orphan(place, state) && is_mine(place) {
            let _ = engine.ask(&["rm", "--force", "--volumes", name]);
        }
    }
}

/// Whether a container of a run whose files lie there is of this state folder, and has no owner left.
pub fn is_orphan(place: &Path, state: &Path) -> bool {
    place.starts_with(state) && !is_owned(place).unwrap_or(true)
}

/// Whether such a container may be removed from here: it is of this machine's files, not of those of another one, or of a container, that
/// asks the same engine; and they are gone, or the run is surely over.
fn is_mine(place: &Path) -> bool {
    is_of_this_machine(place) && (matches!(place.try_exists(), Ok(false)) || is_surely_over(place))
}

/// Whether the files of a run there are this machine's.
fn is_of_this_machine(place: &Path) -> bool {
    place.to_str().is_some_and(|place| place.ends_with(&machine_key()))
}

/// Whether it is sure that the run of such a container is over: its files are there, are this machine's, and say so, or its processes
/// would be seen from here. In another namespace of processes a supervisor that lives is not, nor are its files in another of mounts.
pub fn is_surely_over(place: &Path) -> bool {
    let says_so = |dir: &RunDir| {
        let state = dir.read_json::<State>(STATE);
        matches!(state, Ok(Some(state)) if state.phase == Phase::Ended)
    };
    is_of_this_machine(place)
        && RunDir::open(place).is_ok_and(|dir| says_so(&dir) || python_hooks::sees_the_numbers(&dir))
}

/// Whether the run whose files lie there still has a process that ends its containers.
fn is_owned(place: &Path) -> Result<bool, SuperviseError> {
    // what can't be looked at may be there
    if !place.try_exists().map_err(|error| SuperviseError::io("look at", place, error))? {
        return Ok(false);
    }
    let dir = RunDir::open(place)?;
    match dir.read_json::<State>(STATE)? {
        Some(state) if state.phase != Phase::Ended => Ok(adopt::supervised(&dir, &state)?
            || state.wraps.values().any(crate::procs::identity::Identity::alive)),
        // one that is being prepared has no container yet
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};
    use crate::procs::identity::Identity;

    /// The files of a run whose supervisor is this process, or has ended.
    fn files(state: &Path, phase: Phase, is_supervised: bool) -> RunDir {
        let dir = RunDir::create(state, &RunId::new(1, 2), &HostId::from("a")).unwrap();
        let own = Identity::own().unwrap();
        let supervisor = if is_supervised { own } else { Identity { start: own.start + 1, ..own } };
        dir.write_json(STATE, &State::of_test(phase, supervisor)).unwrap();
        dir
    }

    #[test]
    fn a_container_whose_files_can_not_be_looked_at_has_an_owner() {
        let state = tempfile::tempdir().unwrap();
        let place = state.path().join("spool/gone/n1");
        assert!(is_orphan(&place, state.path()));
        assert!(!is_orphan(&place, Path::new("/nowhere")), "of another state folder");
        std::fs::write(state.path().join("spool"), "").unwrap();
        assert!(!is_orphan(&place, state.path()), "there is no answer below a file");
    }

    #[test]
    fn it_is_sure_that_a_run_is_over_where_its_own_files_and_processes_are_seen() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("s");
        let of = |place: &Path| (is_orphan(place, &state), is_surely_over(place));
        assert_eq!(of(&state.join("spool/gone/n1")), (true, false), "its files are gone");
        let lives = files(&state, Phase::Running, true);
        assert!(!is_orphan(lives.path(), &state));
        let ended = files(&state, Phase::Ended, false);
        assert_eq!(of(ended.path()), (true, true));
        // one that was killed, as far as its processes are seen from here
        let killed = files(&state, Phase::Running, false);
        assert_eq!(of(killed.path()), (true, false));
        python_hooks::install(&killed).unwrap();
        let is_told = std::fs::read_link("/proc/self/ns/pid").is_ok();
        assert_eq!(of(killed.path()), (true, is_told));
        // another machine's, beside it in a home that both have
        let other = killed.path().with_file_name("a@other-00000000");
        std::fs::rename(killed.path(), &other).unwrap();
        assert_eq!(of(&other), (true, false));
    }

    #[test]
    fn what_another_machine_has_started_by_the_same_engine_is_left_to_it() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("s");
        let of = |place: &Path| (is_orphan(place, &state), is_mine(place));
        let gone = |key: &str| state.join(format!("spool/gone/a{key}"));
        assert_eq!(of(&gone(&machine_key())), (true, true));
        assert_eq!(of(&gone("@other-00000000")), (true, false), "its files may be there on the other one");
        let ended = files(&state, Phase::Ended, false);
        assert_eq!(of(ended.path()), (true, true));
        let other = ended.path().with_file_name("a@other-00000000");
        std::fs::rename(ended.path(), &other).unwrap();
        assert_eq!(of(&other), (true, false));
        // one that was killed, whose supervisor may live in another namespace of processes
        let killed = files(&state, Phase::Running, false);
        assert_eq!(of(killed.path()), (true, false));
    }
}
