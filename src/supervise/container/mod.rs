//! Ranks in containers: each is the main process of a container of its own, on the host's network, with the host's shared
//! memory and process numbers, so that ranks of one host find each other as they do outside (docs/decisions/containers.md).
//!
//! - [`setup`]: all that was found before the run is started, a [`Setup`] in the run directory.
//! - `line`: the engine's command line for a rank. Pure.
//! - `end`: how a rank's container ended, and its removal.
//! - [`look`]: a container of an image for one question.
//! - [`members`]: the processes inside, by their control groups.
//! - [`sweep`]: what was left behind.

mod end;
mod line;
pub mod look;
pub mod members;
pub mod setup;
pub mod sweep;

pub(super) use end::Ended;
pub(super) use line::{Contained, contain};
pub use setup::Setup;

use std::path::Path;

use super::rundir::RunDir;
use crate::domain::gpu::RunOfProcess;
use crate::domain::ids::{self, Rank};
use crate::domain::run::HostRun;

/// `container.json`: a [`Setup`]. Written by the agent before the run is started.
pub const SETUP: &str = "container.json";

/// How many runs of a host are looked into for a container.
const NEWEST: usize = 200;

/// `rank-3.cid`: the id of a rank's container, written by the engine; gone when the container is removed.
fn cid_file(rank: ids::Rank) -> String {
    format!("rank-{rank}.cid")
}

/// The rank whose container has an id that begins so, by the files of the runs in this state folder.
pub fn rank_of(state: &Path, id: &str) -> Option<RunOfProcess> {
    let runs = RunDir::list(state).unwrap_or_default();
    runs.into_iter().take(NEWEST).find_map(|(run, host)| {
        let dir = RunDir::find(state, &run, &host).ok()??;
        let rank = dir.names().ok()?.into_iter().find_map(|name| {
            let rank = name.strip_prefix("rank-")?.strip_suffix(".cid")?.parse().ok().map(Rank)?;
            let known = std::fs::read_to_string(dir.path().join(&name)).ok()?;
            known.starts_with(id).then_some(rank)
        })?;
        Some(RunOfProcess { id: run, rank: Some(rank) })
    })
}

/// Removes the container of an earlier attempt, where that could not be done at its end: it may still train, and an engine
/// does not write over its id.
pub(super) fn clear(setup: &Setup, dir: &RunDir, run: &HostRun, rank: ids::Rank) -> Result<(), String> {
    match run.attempt.checked_sub(1) {
        Some(before) => sweep::rank(setup, dir, &HostRun { attempt: before, ..run.clone() }, rank),
        None => Ok(()),
    }
}

/// The labels that name the run and the rank of a container.
const RUN_LABEL: &str = "hvtui.run";
const RANK_LABEL: &str = "hvtui.rank";
/// The one that names the folder where its run's files lie.
pub const PLACE_LABEL: &str = "hvtui.place";
