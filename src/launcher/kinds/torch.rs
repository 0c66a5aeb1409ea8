//! PyTorch: each rank gets what torchrun's agent gives it, so that `env://`, Lightning, Accelerate and scripts written
//! for torchrun work unchanged, on uneven hosts too.
//!
//! The contract is `_start_workers` of `torch/distributed/elastic/agent/server/local_elastic_agent.py`. The store is
//! hosted by rank 0: `TORCHELASTIC_USE_AGENT_STORE` must not be `True`, or all ranks wait for an agent's.

use super::{Env, Kind, STARTED, defaults, each_rank, env, topology};
use crate::domain::run::{Placement, RunSpec, RunStage};
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind torch`.
pub(super) struct Torch;

impl Kind for Torch {
    fn complete(&self, plan: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        each_rank(plan, elastic);
        defaults(plan, [("ROLE_NAME", "default"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")]);
        tell_local_ranks(plan);
        Ok(())
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }
}

/// Adds the argument by which `torch.distributed.launch` tells each rank its local rank, where that is wanted.
pub(super) fn tell_local_ranks(plan: &mut LaunchPlan) {
    let Some(arg) = plan.spec.options.local_rank_arg.clone() else { return };
    for rank in plan.hosts.iter_mut().flat_map(|host| &mut host.ranks) {
        let local = rank.env.get("LOCAL_RANK").cloned().unwrap_or_default();
        let at = (arg.at as usize).min(rank.argv.len());
        rank.argv.insert(at, format!("{}={local}", arg.option));
    }
}

fn elastic(spec: &RunSpec, placement: &Placement) -> Env {
    let at = topology(spec, placement);
    env([
        ("GROUP_RANK", at.node.to_string()),
        // Lightning's launcher reads this one.
        ("NODE_RANK", at.node.to_string()),
        ("GROUP_WORLD_SIZE", at.nodes.to_string()),
        ("NNODES", at.nodes.to_string()),
        ("ROLE_RANK", placement.rank.to_string()),
        ("ROLE_WORLD_SIZE", spec.world().to_string()),
        ("TORCHELASTIC_RUN_ID", spec.id.to_string()),
        ("TORCHELASTIC_RESTART_COUNT", "0".to_owned()),
        ("TORCHELASTIC_MAX_RESTARTS", spec.options.max_restarts.to_string()),
        ("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned()),
    ])
}
