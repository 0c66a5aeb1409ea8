//! Which processes belong to a run on this host, whoever their parents are by now. Knows nothing of when they
//! are ended.
//!
//! The supervisor that started the ranks is their subreaper, and all that lives descends from it. One that has
//! adopted a run, and an agent where there is none, find them by descent from the recorded processes, by the
//! control group where there is one, and by the mark in each rank's environment.

use std::collections::{BTreeMap, BTreeSet};

use super::container::members::Members;
use super::rundir::RunDir;
use super::state::{Started, State, started_file};
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;
use crate::procs::cgroup::Cgroup;
use crate::procs::marks;
use crate::procs::table::{self, Process};

/// Every process of the run but the rank-wraps, for one that did not start them.
pub(super) fn left_behind(dir: &RunDir, spec: &HostRun, state: &State) -> Vec<Process> {
    let wraps: BTreeSet<u32> =
        state.wraps.values().filter(|wrap| wrap.alive()).map(|wrap| wrap.pid).collect();
    let mut found = with_wraps(dir, spec, state);
    found.retain(|process| !wraps.contains(&process.pid));
    found
}

/// Every process of the run, for one that did not start them.
pub(super) fn with_wraps(dir: &RunDir, spec: &HostRun, state: &State) -> Vec<Process> {
    let all = table::all();
    let started = spec.ranks.iter().filter_map(|rank| {
        let started = dir.read_json::<Started>(&started_file(rank.rank)).ok()??;
        Some(started.process)
    });
    let roots: BTreeSet<u32> = (state.wraps.values().chain(&state.engine).cloned().chain(started))
        .filter(crate::procs::identity::Identity::alive)
        .map(|process| process.pid)
        .collect();
    let mut found = marks::marked(&all, &spec.run, &spec.host);
    found.extend(all.iter().filter(|process| roots.contains(&process.pid)).cloned());
    found.extend(table::descendants(&all, &roots));
    found.extend(grouped(&all, state));
    found.extend(contained(dir, spec, &all));
    once(found)
}

/// Every process that descends from this one, is in the run's control group or in a container of it.
pub(super) fn own(dir: &RunDir, spec: &HostRun, state: &State) -> Vec<Process> {
    let all = table::all();
    let mut found = table::descendants(&all, &BTreeSet::from([std::process::id()]));
    found.extend(grouped(&all, state));
    found.extend(contained(dir, spec, &all));
    once(found)
}

/// Every process in the containers of a run.
fn contained(dir: &RunDir, spec: &HostRun, all: &[Process]) -> Vec<Process> {
    inside(dir, spec, all).into_values().flatten().collect()
}

/// The processes in the containers of a run, by rank; nothing where its ranks are in none.
pub(super) fn inside(dir: &RunDir, spec: &HostRun, all: &[Process]) -> BTreeMap<Rank, Vec<Process>> {
    let mut found: BTreeMap<Rank, Vec<Process>> = BTreeMap::new();
    if spec.container().is_some() {
        let members = Members::of(dir, spec.ranks.iter().map(|rank| rank.rank));
        for (rank, process) in members.among(all) {
            found.entry(rank).or_default().push(process.clone());
        }
    }
    found
}

fn grouped<'a>(all: &'a [Process], state: &State) -> impl Iterator<Item = Process> + 'a {
    let cgroup = state.cgroup.as_deref().and_then(Cgroup::open);
    let pids: BTreeSet<u32> = cgroup.map(|cgroup| cgroup.pids().into_iter().collect()).unwrap_or_default();
    all.iter().filter(move |process| pids.contains(&process.pid)).cloned()
}

fn once(found: Vec<Process>) -> Vec<Process> {
    let own = std::process::id();
    let map: BTreeMap<u32, Process> = found.into_iter().map(|process| (process.pid, process)).collect();
    map.into_values().filter(|process| process.pid != own).collect()
}
