//! Containers that were left behind: by a rank-wrap that was killed, by a supervisor, by a host that was switched off.
//! They are found by the run's own files, and by their labels where those are gone too.

use std::path::Path;

use super::end::remove;
use super::{PLACE_LABEL, Setup, cid_file};
use crate::domain::container;
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;
use crate::image::engine::Engine;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{Phase, STATE, State};
use crate::supervise::{SuperviseError, adopt};

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

/// Removes the containers of runs in this state folder that have no owner left: their run has ended here, or its files
/// are gone. Quiet about what can't be done: the run that asks has its own containers.
pub fn orphans(engine: &Engine, state: &Path) {
    let format = format!("{{{{.Names}}}}\t{{{{.Label \"{PLACE_LABEL}\"}}}}");
    let filter = format!("label={PLACE_LABEL}");
    let Ok(told) = engine.ask(&["ps", "--all", "--filter", &filter, "--format", &format]) else { return };
    for line in told.out.lines() {
        let Some((name, place)) = line.split_once('\t') else { continue };
        if is_orphan(Path::new(place), state) {
            let _ = engine.ask(&["rm", "--force", "--volumes", name]);
        }
    }
}

/// Whether a container of a run whose files lie there is of this state folder, and has no owner left.
pub fn is_orphan(place: &Path, state: &Path) -> bool {
    place.starts_with(state) && !is_owned(place).unwrap_or(true)
}

/// Whether the run whose files lie there still has a process that ends its containers.
fn is_owned(place: &Path) -> Result<bool, SuperviseError> {
    if !place.exists() {
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
