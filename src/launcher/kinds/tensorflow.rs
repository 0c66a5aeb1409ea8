//! TensorFlow: a `TF_CONFIG` for each rank, all made from one cluster: numeric addresses and free ports, so that no
//! worker waits for a name that means itself.
//!
//! The rules are those of `tensorflow/python/distribute/multi_worker_util.py`: at most one chief and one evaluator,
//! the same cluster everywhere, only the task differs. An evaluator is no part of the cluster that trains.

use serde_json::{Value, json};

use super::{Env, Kind, STARTED, Start, env};
use crate::domain::options::TaskCounts;
use crate::domain::run::{Placement, RunSpec, RunStage};
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind tensorflow`.
pub(super) struct Tensorflow;

impl Kind for Tensorflow {
    fn complete(&self, plan: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        let (world, tasks) = (plan.spec.world(), plan.spec.options.tasks);
        let others = tasks.ps + u32::from(tasks.evaluator);
        if others >= world {
            return Err(LaunchError::usage(format!(
                "{world} ranks are too few: {} parameter servers{} leave none for a worker; raise -np",
                tasks.ps,
                if tasks.evaluator { " and an evaluator" } else { "" }
            )));
        }
        for rank in plan.hosts.iter_mut().flat_map(|host| &mut host.ranks) {
            // One that the user's shell or hosts file left behind would name another cluster.
            rank.env.remove("TF_CONFIG");
            // The addresses are those of the run's own hosts: a proxy would not reach them.
            rank.env.entry("no_proxy".to_owned()).or_insert_with(|| "*".to_owned());
        }
        Ok(())
    }

    fn rank_at_start(&self, start: &Start<'_>, placement: &Placement) -> Env {
        let (kind, index) = task(start.spec, placement);
        let config = json!({ "cluster": cluster(start), "task": { "type": kind, "index": index } });
        env([("TF_CONFIG", config.to_string())])
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }
}

/// The task of a rank: chief or workers first, then parameter servers, then the evaluator.
fn task(spec: &RunSpec, placement: &Placement) -> (&'static str, u32) {
    let TaskCounts { chief, ps, evaluator } = spec.options.tasks;
    let (rank, world) = (placement.rank.0, spec.world());
    let first_evaluator = world - u32::from(evaluator);
    let first_ps = first_evaluator.saturating_sub(ps);
    if rank >= first_evaluator {
        ("evaluator", 0)
    } else if rank >= first_ps {
        ("ps", rank - first_ps)
    } else if chief && rank == 0 {
        ("chief", 0)
    } else {
        ("worker", rank - u32::from(chief))
    }
}

fn cluster(start: &Start<'_>) -> Value {
    let mut cluster = serde_json::Map::new();
    for placement in &start.spec.placements {
        let (kind, _) = task(start.spec, placement);
        if kind == "evaluator" {
            continue;
        }
        let address = Value::String(start.address(placement).to_string());
        match cluster.entry(kind).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(all) => all.push(address),
            _ => return Value::Null,
        }
    }
    Value::Object(cluster)
}
