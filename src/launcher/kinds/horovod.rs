//! Horovod by Gloo, without horovodrun: each rank gets what `gloo_run.py` gives it, and the supervisor of rank 0's host
//! serves the rendezvous.
//!
//! Unlike horovodrun, each host is told its own interface: the names need not be equal.

use std::net::{IpAddr, Ipv4Addr};

use super::{Env, Kind, START_TIMEOUT_S, Start, defaults, each_rank, env, topology};
use crate::domain::rendezvous::{HostRanks, RendezvousPlan};
use crate::domain::run::{Placement, RunSpec, RunStage};
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;
use crate::launcher::plan::interface_of;

/// `--kind horovod`.
pub(super) struct Horovod;

/// Number of the rendezvous server's port among the further ones.
const KV_PORT: usize = 1;
/// The interface of ranks that stay within one host.
const LOOPBACK: &str = "lo";

impl Kind for Horovod {
    fn complete(&self, plan: &mut LaunchPlan, facts: &[HostFacts]) -> Result<(), LaunchError> {
        if plan.rendezvous.master.is_ipv6() {
            return Err(LaunchError::usage(
                "Horovod reaches its rendezvous by IPv4 alone: name an interface with an IPv4 address by \
                 --network-interface or `interface` in the hosts file",
            ));
        }
        each_rank(plan, slot);
        defaults(plan, [("HOROVOD_CONTROLLER", "gloo"), ("HOROVOD_CPU_OPERATIONS", "gloo")]);
        let rendezvous = plan.rendezvous.clone();
        let timeout = plan.spec.options.start_timeout_s.unwrap_or(START_TIMEOUT_S).saturating_add(30);
        for host in &mut plan.hosts {
            let interface = interface_of(&host.host, facts, &rendezvous).unwrap_or(LOOPBACK);
            for rank in &mut host.ranks {
                rank.set_default("HOROVOD_GLOO_IFACE", interface);
                // Longer than hvtui waits, which names the rank that is missing; the ranks that wait can not.
                rank.set_default("HOROVOD_GLOO_TIMEOUT_SECONDS", timeout.to_string());
            }
        }
        let hosts = plan.spec.hosts().into_iter().map(|host| {
            let ranks = plan.spec.placements.iter().filter(|placement| placement.host == host).count();
            HostRanks { name: host.to_string(), ranks: ranks as u32 }
        });
        let served = RendezvousPlan { hosts: hosts.collect(), peers: peers(plan, facts) };
        if let Some(first) = plan.hosts.first_mut() {
            first.ports += 1;
            first.rendezvous = Some(served);
        }
        Ok(())
    }

    fn at_start(&self, start: &Start<'_>) -> Env {
        env([
            ("HOROVOD_GLOO_RENDEZVOUS_ADDR", start.rendezvous.master.to_string()),
            ("HOROVOD_GLOO_RENDEZVOUS_PORT", start.master_port(KV_PORT).to_string()),
            ("HVTUI_KV_PORT", start.master_port(KV_PORT).to_string()),
        ])
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        &[RunStage::Start, RunStage::Rendezvous, RunStage::Training]
    }
}

/// All addresses from which the run's ranks may come: a host with several may connect from any of them.
fn peers(plan: &LaunchPlan, facts: &[HostFacts]) -> Vec<IpAddr> {
    let hosts = plan.spec.hosts();
    let ours = facts.iter().filter(|host| hosts.contains(&host.id));
    let mut peers: Vec<IpAddr> = ours
        .flat_map(|host| host.addresses.iter().map(|one| one.address).chain(host.ssh_server_address))
        .chain(plan.rendezvous.bind.values().copied())
        .collect();
    peers.push(Ipv4Addr::LOCALHOST.into());
    peers.sort_unstable();
    peers.dedup();
    peers
}

fn slot(spec: &RunSpec, placement: &Placement) -> Env {
    let at = topology(spec, placement);
    env([
        ("HOROVOD_HOSTNAME", placement.host.to_string()),
        ("HOROVOD_RANK", placement.rank.to_string()),
        ("HOROVOD_SIZE", spec.world().to_string()),
        ("HOROVOD_LOCAL_RANK", placement.local_rank.to_string()),
        ("HOROVOD_LOCAL_SIZE", at.local_size.to_string()),
        ("HOROVOD_CROSS_RANK", at.cross_rank.to_string()),
        ("HOROVOD_CROSS_SIZE", at.cross_size.to_string()),
    ])
}
