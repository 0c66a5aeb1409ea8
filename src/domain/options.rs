//! How a run is started, beside what and where: asked for at its launch, kept with the run so that it can be started
//! again in the same way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::container::ContainerOptions;
use super::environment::EnvironmentPlan;
use super::ids::HostId;
use super::sync::SyncPlan;

/// Options of a launch that are kept with its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOptions {
    /// `--gpu-view`.
    pub gpu_view: GpuView,
    /// `--gpus-per-rank`: at least 1.
    pub gpus_per_rank: u32,
    /// `--network-interface`; the hosts file's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `--spool-cap`: bytes that each host keeps of what a rank prints; the hosts file's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool_cap: Option<u64>,
    /// `--max-silence`, in milliseconds, 0 for never; the hosts file's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_silence_ms: Option<u64>,
    /// `--python-hooks`: whether the ranks' Pythons tell of their steps; the hosts file's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_hooks: Option<PythonHooks>,
    /// Hosts on which the hooks are off, by the hosts file or by the ranks' environment; found when the run is planned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks_off: Vec<HostId>,
    /// `--traceable`: the ranks' torch can be asked for a kernel trace while they run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub traceable: bool,
    /// `--start-timeout`: seconds within which all ranks must be connected, for kinds that can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_s: Option<u32>,
    /// The MPI launcher, where it is not the `mpirun` of the search path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_program: Option<String>,
    /// What `mpirun` or `srun` is told beside what hvtui tells it: `--mca` pairs, binding, a partition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mpi_args: Vec<String>,
    /// The argument by which `torch.distributed.launch` tells each rank its local rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_rank_arg: Option<LocalRankArg>,
    /// The launcher whose own interpreter the command's `python3` is, as its first line names it: `torchrun`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_of: Option<String>,
    /// Hosts that no hosts file named at the launch, and how they were reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<ReachedHost>,
    /// What each TensorFlow task is, in rank order; workers where it says nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskRole>,
    /// The programs of an MPI job that has several, in rank order; the run's command is that of the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<RankProgram>,
    /// More ranks than slots may be on a host without GPUs: they share its CPU slots.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oversubscribe: bool,
    /// `--max-restarts`: how often all ranks are started again after one has failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_restarts: u32,
    /// `--delegate`: the framework's own launcher starts the ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Delegated>,
    /// `--nccl-timings`: whether hvtui's plugin in NCCL tells how long collectives take.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nccl_timings: bool,
    /// `--image`: each rank is started in a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOptions>,
    /// What is activated on each host; the hosts file's where it says nothing.
    #[serde(skip_serializing_if = "EnvironmentPlan::is_empty")]
    pub environment: EnvironmentPlan,
    /// What that comes to on hosts where it is anything; found when the run is planned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environments: BTreeMap<HostId, EnvironmentPlan>,
    /// `--sync`: the folder that is copied to every host before its ranks start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncPlan>,
    /// What the run was made of by `hvtui import`, and from which file: it was never launched by hvtui.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
}

/// One of several programs: so many ranks, behind those of the programs before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProgram {
    /// How many.
    pub ranks: u32,
    /// Program and arguments.
    pub command: Vec<String>,
}

impl RankProgram {
    /// What each rank executes, in rank order.
    pub fn commands(programs: &[Self]) -> impl Iterator<Item = &[String]> {
        programs
            .iter()
            .flat_map(|program| std::iter::repeat_n(program.command.as_slice(), program.ranks as usize))
    }
}

/// How the framework's own launcher is called, where it starts the ranks. What is empty is chosen by hvtui.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegated {
    /// Its whole line, executed as it is on the first host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub line: Vec<String>,
    /// What the line calls the hosts, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The words that call it, where hvtui writes the rest of the line: `python -m torch.distributed.run`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// Options that it gets beside those that hvtui writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            gpu_view: GpuView::default(),
            gpus_per_rank: 1,
            interface: None,
            spool_cap: None,
            max_silence_ms: None,
            python_hooks: None,
            hooks_off: Vec::new(),
            traceable: false,
            start_timeout_s: None,
            mpi_program: None,
            mpi_args: Vec::new(),
            local_rank_arg: None,
            python_of: None,
            reached: Vec::new(),
            tasks: Vec::new(),
            programs: Vec::new(),
            oversubscribe: false,
            max_restarts: 0,
            delegate: None,
            nccl_timings: false,
            container: None,
            environment: EnvironmentPlan::default(),
            environments: BTreeMap::new(),
            sync: None,
            imported: None,
        }
    }
}

/// Whether hvtui's hooks in the ranks' Pythons tell of their steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonHooks {
    /// They do.
    #[default]
    On,
    /// They are not loaded.
    Off,
    /// They do, and say on standard error what they do not manage.
    Debug,
}

impl PythonHooks {
    /// The word on the command line; `None` for any other.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            "debug" => Some(Self::Debug),
            _ => None,
        }
    }
}

/// An argument that each rank gets in its command: its local rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalRankArg {
    /// Before which word of the command.
    pub at: u32,
    /// The option's spelling.
    pub option: String,
}

/// A host that was named by its address alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedHost {
    /// Its address, and its name in the run.
    pub address: String,
    /// Login name; the client's own rules when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// ssh port; ssh's own rules when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Private key file on the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// Which GPUs a rank sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuView {
    /// All GPUs of the run on its host, in the order of the local ranks: `LOCAL_RANK` is the device's index.
    #[default]
    All,
    /// Its own alone, with `LOCAL_RANK` 0: for scripts that only say `.cuda()`.
    Own,
}

impl GpuView {
    /// Lowercase name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }
}

/// What a TensorFlow task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskRole {
    /// Leads and saves; at most one.
    Chief,
    /// Trains.
    Worker,
    /// Holds parameters.
    Ps,
    /// Evaluates, and is no part of the cluster that trains; at most one.
    Evaluator,
}

impl TaskRole {
    /// As `TF_CONFIG` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chief => "chief",
            Self::Worker => "worker",
            Self::Ps => "ps",
            Self::Evaluator => "evaluator",
        }
    }
}
