//! MPI programs: the first host's `mpirun` starts the ranks, because MPI's libraries want its process manager. hvtui
//! carries its orders to the other hosts, so no host needs to reach another one by ssh.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::{Env, Kind, LAUNCHER_DEADLINE_S, STARTED, Start, env};
use crate::domain::engine::{Engine, Launcher, NODE_PORT, Node, Program};
use crate::domain::mpirun::{MpiHost, MpiPlan};
use crate::domain::run::{HostRun, RunStage};
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind mpi`.
pub(super) struct Mpi;

/// Number of the port for the nodes' connections among the further ones.
const NODES: usize = 1;
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// What the launchers start on every other host: Open MPI 4, Open MPI 5, and the two of MPICH's kin. One must be there.
const DAEMONS: &str = "orted|prted|hydra_pmi_proxy|hydra_bstrap_proxy|pmi_proxy";

impl Kind for Mpi {
    fn complete(&self, plan: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        let address = |host: &HostRun| plan.rendezvous.of(&host.host);
        let hosts: Vec<MpiHost> = plan
            .hosts
            .iter()
            .map(|host| {
                // A single host is that of the launcher itself.
                let name = Some(address(host)).filter(IpAddr::is_ipv4).unwrap_or(LOOPBACK);
                MpiHost { address: name.to_string(), slots: host.ranks.len() as u32 }
            })
            .collect();
        let addresses: Vec<IpAddr> = plan.hosts.iter().map(address).collect();
        if let Some((v6, host)) =
            addresses.iter().zip(&plan.hosts).find(|(ip, _)| ip.is_ipv6() && plan.hosts.len() > 1)
        {
            return Err(LaunchError::usage(format!(
                "mpirun takes hosts by IPv4 addresses alone, and {} has {v6} in this run: name an interface with an IPv4 \
                 address by --network-interface",
                host.host
            )));
        }
        let mut unique = addresses.clone();
        unique.sort_unstable();
        unique.dedup();
        if unique.len() < hosts.len() {
            return Err(LaunchError::usage(
                "two hosts have the same address, and mpirun can not tell them apart: name an interface by \
                 --network-interface",
            ));
        }
        let names: Vec<String> = hosts.iter().skip(1).map(|host| host.address.clone()).collect();
        let options = &plan.spec.options;
        let program = options.mpi_program.clone().unwrap_or_else(|| "mpirun".to_owned());
        let mpi = MpiPlan {
            program,
            world: plan.spec.world(),
            interface: (hosts.len() > 1).then(|| network(&addresses)).flatten(),
            hosts,
            options: options.mpi_args.clone(),
            before: Vec::new(),
            line: Vec::new(),
        };
        for (number, host) in plan.hosts.iter_mut().enumerate() {
            let rank = host.ranks.first();
            let cwd = rank.and_then(|rank| rank.cwd.clone());
            let env: Env = rank
                .into_iter()
                .flat_map(|rank| &rank.env)
                .filter(|(name, _)| is_launchers(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            host.engine = Some(if number == 0 {
                host.ports += 1;
                let program = Program::Mpi(mpi.clone());
                Engine::Launcher(Launcher {
                    program,
                    env,
                    cwd,
                    nodes: names.clone(),
                    tags: None,
                    name: String::new(),
                    elsewhere: BTreeMap::new(),
                })
            } else {
                // One that is named by its path looks for its daemon beside itself.
                let needs = if mpi.program.contains('/') { Vec::new() } else { vec![DAEMONS.to_owned()] };
                let name = mpi.hosts.get(number).map(|host| host.address.clone()).unwrap_or_default();
                Engine::Node(Node { name, needs, env, stands: false })
            });
        }
        Ok(())
    }

    fn at_start(&self, start: &Start<'_>) -> Env {
        env([(NODE_PORT, start.master_port(NODES).to_string())])
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }

    fn start_deadline_s(&self) -> u32 {
        LAUNCHER_DEADLINE_S
    }
}

/// Beginnings of the names of variables by which the launchers themselves are set up.
const LAUNCHERS: [&str; 6] = ["OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "HYDRA_", "I_MPI_", "MPIEXEC_"];

/// Whether a variable of the ranks is meant for what starts them, too. How hosts are reached is hvtui's.
fn is_launchers(name: &str) -> bool {
    let its_own = LAUNCHERS.iter().any(|start| name.starts_with(start));
    matches!(name, "PATH" | "LD_LIBRARY_PATH") || (its_own && !name.contains("_MCA_plm_"))
}

/// A network with a shorter prefix says nothing of where the hosts are.
const LEAST_PREFIX: u32 = 8;

/// The smallest network that holds all addresses, as CIDR: each host finds its interface by it, whatever its name.
fn network(addresses: &[IpAddr]) -> Option<String> {
    let v4: Option<Vec<u32>> = addresses
        .iter()
        .map(|address| match address {
            IpAddr::V4(v4) => Some(u32::from(*v4)),
            IpAddr::V6(_) => None,
        })
        .collect();
    let v4 = v4?;
    let first = *v4.first()?;
    let common = v4.iter().map(|address| (address ^ first).leading_zeros()).min()?.min(32);
    if common < LEAST_PREFIX {
        // It would take in loopback and what else a host has: Open MPI's own choice is better.
        return None;
    }
    let mask = u32::MAX.checked_shl(32 - common).unwrap_or(0);
    Some(format!("{}/{common}", Ipv4Addr::from(first & mask)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_the_hosts_is_the_smallest_that_holds_them() {
        let net = |list: &[&str]| network(&list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(net(&["10.77.0.11", "10.77.0.12"]).as_deref(), Some("10.77.0.8/29"));
        assert_eq!(net(&["10.163.6.155", "10.163.24.200"]).as_deref(), Some("10.163.0.0/19"));
        assert_eq!(net(&["10.0.0.1"]).as_deref(), Some("10.0.0.1/32"));
        assert_eq!(net(&["10.0.0.1", "192.168.0.1"]), None);
        assert_eq!(net(&["::1", "10.0.0.1"]), None);
    }
}
