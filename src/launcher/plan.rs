//! What each host executes. Pure: the same request and facts always give the same plan. What is known only
//! when the hosts are ready (rendezvous, secret, paths on the host) comes later, with the commit.

use std::collections::BTreeMap;

use super::facts::HostFacts;
use super::name;
use crate::domain::ids::{HostId, RunId};
use crate::domain::lease::LeasePlan;
use crate::domain::log::Stream;
use crate::domain::request::LaunchRequest;
use crate::domain::run::{HostRun, Placement, RankSpec, RunSpec, Slot};
use crate::domain::time::Stamp;
use crate::wire::message::Follow;

/// Milliseconds between TERM and KILL when a run is stopped.
pub const GRACE_MS: u64 = 5_000;

/// A run from a request and the slots that were found for it.
pub fn spec(request: &LaunchRequest, placements: Vec<Placement>, id: RunId, created: Stamp) -> RunSpec {
    RunSpec {
        id,
        name: request.name.clone().unwrap_or_else(|| name::name_of(&request.command)),
        kind: request.kind.unwrap_or_else(|| name::kind_of(&request.command)),
        command: request.command.clone(),
        env: request.env.clone(),
        workdir: request.workdir.clone(),
        placements,
        created,
    }
}

/// Each host's share, hosts in rank order. A rank's variables are the host's, then the run's, then hvtui's.
/// With `share`, GPUs that the same user holds are used too.
pub fn host_runs(spec: &RunSpec, hosts: &[HostFacts], share: bool) -> Vec<HostRun> {
    let mut runs = Vec::new();
    for id in spec.hosts() {
        let facts = hosts.iter().find(|host| host.id == id);
        let ours: Vec<&Placement> = spec.placements.iter().filter(|p| p.host == id).collect();
        let rank = |placement: &&Placement| RankSpec {
            rank: placement.rank,
            argv: spec.command.clone(),
            env: rank_env(spec, placement, ours.len(), facts),
            cwd: spec.workdir.clone().or_else(|| facts?.workdir.clone()),
        };
        let ranks = ours.iter().map(rank).collect();
        let gpu = |placement: &&Placement| match &placement.slot {
            Slot::Gpu { uuid, .. } => Some((placement.rank, uuid.clone())),
            Slot::Cpu { .. } => None,
        };
        let leases = LeasePlan {
            dir: facts.and_then(|facts| facts.lease_dir.clone()),
            share,
            gpus: ours.iter().filter_map(gpu).collect(),
        };
        runs.push(HostRun {
            engine: None,
            run: spec.id.clone(),
            host: id,
            name: spec.name.clone(),
            ranks,
            grace_ms: GRACE_MS,
            max_silence_ms: facts.and_then(|facts| facts.max_silence_ms),
            run_spec: Some(Box::new(spec.clone())),
            spool: facts.map(|facts| facts.spool).unwrap_or_default(),
            leases,
        });
    }
    runs
}

/// Asks a host for all of a run's files there, named rank by rank: it is heard about these alone.
pub fn follow(spec: &RunSpec, host: &HostId) -> Follow {
    let ours = spec.placements.iter().filter(|placement| placement.host == *host);
    let files = ours.flat_map(|placement| Stream::ALL.map(|stream| (placement.rank, stream, 0)));
    Follow {
        run: spec.id.clone(),
        host: host.clone(),
        from: files.collect(),
        last: None,
        hurry: true,
        once: false,
    }
}

fn rank_env(
    spec: &RunSpec,
    placement: &Placement,
    local_world: usize,
    facts: Option<&HostFacts>,
) -> BTreeMap<String, String> {
    let mut env = facts.map(|facts| facts.env.clone()).unwrap_or_default();
    env.extend(spec.env.clone());
    let mut set = |key: &str, value: String| env.insert(key.to_owned(), value);
    set("RANK", placement.rank.to_string());
    set("LOCAL_RANK", placement.local_rank.to_string());
    set("WORLD_SIZE", spec.world().to_string());
    set("LOCAL_WORLD_SIZE", local_world.to_string());
    set("HVTUI_RUN", spec.id.to_string());
    set("HVTUI_HOST", placement.host.to_string());
    set("HVTUI_PLACE", placement.to_string());
    if let Slot::Gpu { uuid, .. } = &placement.slot {
        set("CUDA_VISIBLE_DEVICES", uuid.to_string());
        set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
    }
    env
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
