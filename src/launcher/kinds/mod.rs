//! How each kind of job is started. A kind is pure: from the plan to what every host executes, and from the ports that the
//! hosts offer to the variables that need them. Adding a kind takes a file here and a line of [`of`].

mod delegated;
mod horovod;
mod mpi;
mod native;
mod plain;
mod slurm;
mod tensorflow;
mod torch;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::inventory::HostFacts;
use crate::domain::ids::{HostId, Rank};
use crate::domain::options::Delegated;
use crate::domain::run::{JobKind, Placement, RunSpec, RunStage};
use crate::launch::error::LaunchError;
use crate::launch::plan::{LaunchPlan, Rendezvous};

/// Variables by name.
pub(super) type Env = BTreeMap<String, String>;

/// How one kind of job is started.
pub trait Kind: Sync {
    /// Adds to a plan what the kind needs: variables, ports, programs. The plan holds what every rank gets.
    fn complete(&self, plan: &mut LaunchPlan, facts: &[HostFacts]) -> Result<(), LaunchError>;

    /// Variables of all ranks that are known only when every host has offered its ports.
    fn at_start(&self, _start: &Start<'_>) -> Env {
        Env::new()
    }

    /// Variables of one rank that are known only then.
    fn rank_at_start(&self, _start: &Start<'_>, _placement: &Placement) -> Env {
        Env::new()
    }

    /// Seconds within which every rank must have been started.
    fn start_deadline_s(&self) -> u32 {
        START_DEADLINE_S
    }

    /// The stages between the start and the end of its ranks.
    fn stages(&self, world: u32) -> &'static [RunStage];
}

/// The rules of a run's kind.
pub fn of(spec: &RunSpec) -> &'static dyn Kind {
    // mpirun starts the ranks of its kind anyway; only a line of its own is executed in another way.
    let wanted = |launcher: &Delegated| spec.kind != JobKind::Mpi || !launcher.line.is_empty();
    match spec.kind {
        _ if spec.options.delegate.as_ref().is_some_and(wanted) => &delegated::ByItsLauncher,
        JobKind::Native => &native::Native,
        JobKind::Torch => &torch::Torch,
        JobKind::Horovod => &horovod::Horovod,
        JobKind::Mpi => &mpi::Mpi,
        JobKind::Tensorflow => &tensorflow::Tensorflow,
        JobKind::Slurm => &slurm::Slurm,
        JobKind::Plain => &plain::Plain,
    }
}

/// What is known of a run when all hosts can start.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The run.
    pub spec: &'a RunSpec,
    /// The addresses.
    pub rendezvous: &'a Rendezvous,
    /// The free ports of each host: one for each of its ranks, then the further ones.
    pub ports: &'a BTreeMap<HostId, Vec<u16>>,
}

impl Start<'_> {
    /// Where a rank may listen.
    pub fn address(&self, placement: &Placement) -> SocketAddr {
        let ports = self.ports.get(&placement.host);
        let port = ports.and_then(|ports| ports.get(placement.local_rank as usize)).copied();
        SocketAddr::new(self.rendezvous.of(&placement.host), port.unwrap_or_default())
    }

    /// The further port of this number on the host of rank 0; number 0 is `MASTER_PORT`.
    pub fn master_port(&self, number: usize) -> u16 {
        let Some(first) = self.spec.placements.first() else { return 0 };
        let ranks = self.spec.placements.iter().filter(|p| p.host == first.host).count();
        let ports = self.ports.get(&first.host);
        ports.and_then(|ports| ports.get(ranks + number)).copied().unwrap_or_default()
    }

    /// The variables that every rank on a host gets, whatever the kind.
    pub fn common(&self) -> Env {
        let peers: Vec<String> =
            self.spec.placements.iter().map(|placement| self.address(placement).to_string()).collect();
        let mut common =
            env([("MASTER_PORT", self.master_port(0).to_string()), ("HVTUI_PEERS", peers.join(","))]);
        common.retain(|_, value| value.len() <= LONGEST_VALUE);
        common
    }

    /// What the kind sets for each rank of a host, by rank.
    pub fn ranks(&self, host: &HostId) -> BTreeMap<Rank, Env> {
        let kind = of(self.spec);
        let ours = self.spec.placements.iter().filter(|placement| placement.host == *host);
        let envs = ours.map(|placement| (placement.rank, kind.rank_at_start(self, placement)));
        envs.filter(|(_, env)| !env.is_empty()).collect()
    }
}

/// The longest value of a variable: Linux takes 128 KiB with its name (`MAX_ARG_STRLEN`).
const LONGEST_VALUE: usize = (128 << 10) - 64;

/// Variables from pairs.
fn env<const N: usize>(pairs: [(&str, String); N]) -> Env {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Adds variables to each rank that tell it who it is, made from its placement; no one else may set them.
fn each_rank(plan: &mut LaunchPlan, make: impl Fn(&RunSpec, &Placement) -> Env) {
    let spec = plan.spec.clone();
    for rank in plan.hosts.iter_mut().flat_map(|host| &mut host.ranks) {
        let Some(placement) = spec.placements.get(rank.rank.0 as usize) else { continue };
        rank.env.extend(make(&spec, placement));
    }
}

/// Adds variables to each rank that the user or the host may have set otherwise.
fn defaults<const N: usize>(plan: &mut LaunchPlan, pairs: [(&str, &str); N]) {
    for rank in plan.hosts.iter_mut().flat_map(|host| &mut host.ranks) {
        for (name, value) in pairs {
            rank.set_default(name, value);
        }
    }
}

/// How the ranks lie over the hosts.
struct Topology {
    /// Number of hosts.
    nodes: usize,
    /// The number of a rank's host.
    node: usize,
    /// Ranks on that host.
    local_size: usize,
    /// The number of its host among those that have its local rank.
    cross_rank: usize,
    /// How many hosts have its local rank.
    cross_size: usize,
}

fn topology(spec: &RunSpec, placement: &Placement) -> Topology {
    let hosts = spec.hosts();
    let size = |host: &HostId| spec.placements.iter().filter(|p| p.host == *host).count();
    let with: Vec<&HostId> = hosts.iter().filter(|host| size(host) > placement.local_rank as usize).collect();
    Topology {
        nodes: hosts.len(),
        node: hosts.iter().position(|host| *host == placement.host).unwrap_or_default(),
        local_size: size(&placement.host),
        cross_rank: with.iter().position(|host| **host == placement.host).unwrap_or_default(),
        cross_size: with.len(),
    }
}

/// Seconds within which ranks that hvtui starts must have been started.
const START_DEADLINE_S: u32 = 20;
/// The same where a launcher starts them: it has to find its hosts first.
const LAUNCHER_DEADLINE_S: u32 = 90;

/// Seconds that Horovod's ranks wait for one that is missing, unless something else is said; as horovodrun.
pub const START_TIMEOUT_S: u32 = 30;

/// Stages of a kind whose ranks tell nothing of themselves.
const STARTED: &[RunStage] = &[RunStage::Start, RunStage::Training];

#[cfg(test)]
mod tests;
