//! TensorFlow: a `TF_CONFIG` for each rank, all made from one cluster: numeric addresses and free ports, so that no
//! worker waits for a name that means itself.
//!
//! The rules are those of `tensorflow/python/distribute/multi_worker_util.py`: at most one chief and one evaluator,
//! the same cluster everywhere, only the task differs. An evaluator is no part of the cluster that trains.

use serde_json::{Value, json};

use super::{Env, Kind, STARTED, Start, env};
use crate::domain::options::TaskRole;
use crate::domain::run::{Placement, RunSpec, RunStage};
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind tensorflow`.
pub(super) struct Tensorflow;

impl Kind for Tensorflow {
    fn complete(&self, plan: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        for rank in plan.hosts.iter_mut().flat_map(|host| &mut host.ranks) {
            // One that the user's shell or hosts file left behind would name another cluster.
            rank.env.remove("TF_CONFIG");
        }
        Ok(())
    }

    fn rank_at_start(&self, start: &Start<'_>, placement: &Placement) -> Env {
        let (role, index) = task(start.spec, placement);
        let config = json!({ "cluster": cluster(start), "task": { "type": role.name(), "index": index } });
        env([("TF_CONFIG", config.to_string())])
    }

    fn at_start(&self, start: &Start<'_>) -> Env {
        // gRPC would go to the run's own hosts through a proxy, which does not reach them.
        let mut hosts: Vec<String> = start.rendezvous.bind.values().map(ToString::to_string).collect();
        hosts.dedup();
        env([("no_grpc_proxy", hosts.join(","))])
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }
}

/// The task of a rank: what it is, and its number among those that are the same.
fn task(spec: &RunSpec, placement: &Placement) -> (TaskRole, usize) {
    let rank = placement.rank.0 as usize;
    let own = role(spec, rank);
    (own, (0..rank).filter(|before| role(spec, *before) == own).count())
}

fn role(spec: &RunSpec, rank: usize) -> TaskRole {
    spec.options.tasks.get(rank).copied().unwrap_or(TaskRole::Worker)
}

fn cluster(start: &Start<'_>) -> Value {
    let mut cluster = serde_json::Map::new();
    for placement in &start.spec.placements {
        let role = role(start.spec, placement.rank.0 as usize);
        if role == TaskRole::Evaluator {
            continue;
        }
        let address = Value::String(start.address(placement).to_string());
        match cluster.entry(role.name()).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(all) => all.push(address),
            _ => return Value::Null,
        }
    }
    Value::Object(cluster)
}
