//! Ranks that Slurm starts: `srun` on this machine is their launcher, inside an allocation or with one of its own. Its
//! output is split into ranks by its labels, and its words say which rank failed.

use std::collections::BTreeMap;

use super::{Env, Kind, LAUNCHER_DEADLINE_S, STARTED, env};
use crate::domain::engine::{Engine, Launcher, Program};
use crate::domain::redaction::MASK;
use crate::domain::run::{RunSpec, RunStage};
use crate::domain::tags::TagStyle;
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launch::srun::HOST;
use crate::launch::words::join;
use crate::launcher::inventory::HostFacts;

/// `--kind slurm`.
pub(super) struct Slurm;

/// Gives a task what every rank gets, from what Slurm tells it, and becomes the command. The port follows from the job and
/// the step: all tasks must come to the same one, and none of them can ask the others. What hvtui has set for ranks on
/// this machine does not hold where a task runs.
///
/// srun drops what it has not printed when it ends a step for a task that failed (`--kill-on-bad-exit`), that task's last
/// lines too. So a task that failed marks the end of its output ([`crate::domain::task_end::MARK`]), and ends when it reads
/// its rank, which says that all was read, or after a while. The shell says nothing of its own, and keeps off the descriptor of Slurm's PMI.
const TASK: &str = r#"unset HVTUI_BIND HVTUI_PEERS HVTUI_REPORT HVTUI_SECRET MASTER_ADDR
export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" WORLD_SIZE="$SLURM_NTASKS"
export LOCAL_WORLD_SIZE="$(IFS=,; set -- $SLURM_GTIDS; echo $#)"
export GROUP_RANK="$SLURM_NODEID" NODE_RANK="$SLURM_NODEID" GROUP_WORLD_SIZE="$SLURM_NNODES" NNODES="$SLURM_NNODES"
export HVTUI_HOST="${SLURMD_NODENAME:-$(hostname)}" HVTUI_LOCAL_RANK="$SLURM_LOCALID"
first="$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)"
if [ -n "$first" ]; then export MASTER_ADDR="$first"; fi
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
export MASTER_PORT="$((20000 + (SLURM_JOB_ID * 16 + SLURM_STEP_ID) % 10000))"
errors=3
if [ "$PMI_FD" = 3 ]; then errors=4; fi
signals='HUP INT QUIT ALRM TERM USR1 USR2'
trap : $signals
eval "exec $errors>&2 2>/dev/null"
eval '(exec "$@")' "2>&$errors $errors>&- </dev/null"
code=$?
eval "exec 2>&$errors $errors>&-"
if [ $code = 0 ]; then exit; fi
printf '\036hvtui: end of output\n'
printf '\036hvtui: end of output\n' >&2
timeout 10 sh -c 'while read -r rank; do if [ "$rank" = "$SLURM_PROCID" ]; then exit; fi; done' 2>/dev/null
if [ $code -gt 128 ]; then
    ulimit -c 0
    trap - $signals
    kill -s $((code - 128)) $$
fi
exit $code"#;

impl Kind for Slurm {
    fn complete(&self, plan: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        let elsewhere = elsewhere(&plan.spec);
        let [host] = plan.hosts.as_mut_slice() else {
            return Err(elsewhere);
        };
        if host.host.as_str() != HOST {
            return Err(elsewhere);
        }
        let spec = &plan.spec;
        let mut argv: Vec<String> = ["srun", "--label", "--kill-on-bad-exit=1"].map(str::to_owned).into();
        argv.push(format!("--job-name={}", spec.name));
        argv.extend(spec.options.mpi_args.iter().cloned());
        argv.push(format!("--ntasks={}", spec.world()));
        argv.extend(["sh", "-c", TASK, "sh"].map(str::to_owned));
        argv.extend(spec.command.iter().cloned());
        let mut given: Env = spec.env.clone();
        given.extend(env([("HVTUI_RUN", spec.id.to_string())]));
        for rank in &mut host.ranks {
            // Each task has these from Slurm; the plan shows what it gets beside that.
            rank.env.retain(|name, _| matches!(name.as_str(), "RANK" | "WORLD_SIZE" | "HVTUI_PLACE"));
            rank.env.extend(given.clone());
            rank.defaults.retain(|name, _| name == "PYTHONUNBUFFERED");
        }
        host.engine = Some(Engine::Launcher(Launcher {
            program: Program::Argv(argv),
            // A secret comes with the order to start.
            env: given.into_iter().filter(|(_, value)| value != MASK).collect(),
            cwd: host.ranks.first().and_then(|rank| rank.cwd.clone()),
            nodes: Vec::new(),
            tags: Some(TagStyle::Srun),
            name: String::new(),
            elsewhere: BTreeMap::new(),
        }));
        Ok(())
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }

    fn start_deadline_s(&self) -> u32 {
        LAUNCHER_DEADLINE_S
    }
}

fn elsewhere(spec: &RunSpec) -> LaunchError {
    LaunchError::usage(format!(
        "kind slurm starts srun on this machine, from the command line: `hvtui run --kind slurm -np {} -- {}`; inside an \
         allocation (salloc) every other kind uses its hosts",
        spec.world(),
        join(&spec.command)
    ))
}
