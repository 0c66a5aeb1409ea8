//! Which processes belong to a run on this host, whatever their parents are by now. Knows nothing of when they
//! are ended.
//!
//! The supervisor that started the ranks is their subreaper, and all that lives descends from it. One that has
//! adopted a run, and an agent where there is none, find them by descent from the recorded processes and by the run's
//! control group; where there is none, or not all of the run was born in it, by the mark in each rank's environment.

use std::collections::{BTreeMap, BTreeSet};

use super::container::members::Members;
use super::rundir::RunDir;
use super::state::{Started, State, started_file};
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;
use crate::procs::cgroup::Cgroup;
use crate::procs::marks;
use crate::procs::permission;
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
    let started = spec.ranks.iter().filter_map(|rank| dir.read_json(&started_file(rank.rank)).ok()?);
    let started: Vec<Started> = started.collect();
    let cgroup = state.cgroup.as_deref().and_then(Cgroup::open);
    // A launcher's own processes and containers are born elsewhere, and so is a rank that its rank-wrap could not move. One that
    // has not started may be about to.
    let plain = spec.engine.is_none() && spec.container().is_none();
    let all_born = started.len() == spec.ranks.len() && started.iter().all(|rank| rank.grouped);
    let whole = cgroup.is_some() && plain && all_born;
    let started = started.into_iter().map(|rank| rank.process);
    let roots: BTreeSet<u32> = (state.wraps.values().chain(&state.engine).cloned().chain(started))
        .filter(crate::procs::identity::Identity::alive)
        .map(|process| process.pid)
        .collect();
    let mut found = if whole { Vec::new() } else { marks::marked(&all, &spec.run, &spec.host) };
    found.extend(all.iter().filter(|process| roots.contains(&process.pid)).cloned());
    found.extend(table::descendants(&all, &roots));
    found.extend(grouped(&all, cgroup.as_ref()));
    found.extend(contained(dir, spec, &all));
    once(found)
}

/// Every process that descends from this one, is in the run's control group or in a container of it.
pub(super) fn own(dir: &RunDir, spec: &HostRun, state: &State) -> Vec<Process> {
    let all = table::all();
    let mut found = table::descendants(&all, &BTreeSet::from([std::process::id()]));
    found.extend(grouped(&all, state.cgroup.as_deref().and_then(Cgroup::open).as_ref()));
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

/// What is said of a process of a run that does not end.
pub(super) fn why_left(process: &Process) -> String {
    let described = process.describe();
    match permission::refusal(process.pid) {
        Some(why) => format!("process {described} goes on and keeps what it holds: {why}"),
        None => {
            format!("KILL does not end process {described}: it hangs in the kernel and keeps what it holds")
        }
    }
}

fn grouped<'a>(all: &'a [Process], cgroup: Option<&Cgroup>) -> impl Iterator<Item = Process> + use<'a> {
    let pids: BTreeSet<u32> = cgroup.map(|cgroup| cgroup.pids().into_iter().collect()).unwrap_or_default();
    all.iter().filter(move |process| pids.contains(&process.pid)).cloned()
}

fn once(found: Vec<Process>) -> Vec<Process> {
    let own = std::process::id();
    let map: BTreeMap<u32, Process> = found.into_iter().map(|process| (process.pid, process)).collect();
    map.into_values().filter(|process| process.pid != own).collect()
}
