//! A launch, planned in full: what runs where and by which addresses its ranks meet. Pure.

use super::facts::HostFacts;
use super::gather::LaunchError;
use super::place::{self, PlaceError};
use super::plan;
use super::rendezvous::{Rendezvous, rendezvous_address};
use crate::domain::ids::{HostId, RunId};
use crate::domain::request::LaunchRequest;
use crate::domain::run::{HostRun, RunSpec};
use crate::domain::time::Stamp;

/// Exit code of a launch that asks for what is not there.
const USAGE: i32 = 64;
/// Exit code of a launch whose GPUs somebody holds.
const BUSY: i32 = 75;
/// Exit code of a launch whose host can't be used.
const UNREACHABLE: i32 = 69;

/// A launch, planned in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The run.
    pub spec: RunSpec,
    /// Each host's share.
    pub hosts: Vec<HostRun>,
    /// Where its ranks meet.
    pub rendezvous: Rendezvous,
    /// The hosts in the order in which their GPUs are leased: the same for every client, whatever it calls them.
    pub lease_order: Vec<HostId>,
}

impl Planned {
    /// Plans `request` on hosts of which `facts` tell.
    pub fn new(
        request: &LaunchRequest,
        facts: &[HostFacts],
        id: RunId,
        at: Stamp,
    ) -> Result<Self, LaunchError> {
        let placements = place::place(request, facts).map_err(|error| {
            let code = match &error {
                error if error.is_busy() => BUSY,
                PlaceError::HostAbsent { .. } => UNREACHABLE,
                _ => USAGE,
            };
            let remedy = error.remedy().map_or_else(String::new, |remedy| format!(": {remedy}"));
            let busy = error.is_busy().then(|| error.to_string());
            LaunchError { busy, ..LaunchError::new(code, format!("{error}{remedy}")) }
        })?;
        let spec = plan::spec(request, placements, id, at);
        let mut hosts = plan::host_runs(&spec, facts, request.on_busy.share);
        if let Some(cap) = request.spool_cap {
            for host in &mut hosts {
                host.spool.cap = cap;
            }
        }
        if let Some(silence) = request.max_silence_ms {
            for host in &mut hosts {
                host.max_silence_ms = Some(silence).filter(|ms| *ms > 0);
            }
        }
        let rendezvous = rendezvous_address(&spec, facts, request.interface.as_deref())
            .map_err(|error| LaunchError::new(USAGE, error.to_string()))?;
        for share in &mut hosts {
            name_interface(share, facts, &rendezvous);
        }
        let mut lease_order = spec.hosts();
        let machine = |id: &HostId| facts.iter().find(|host| host.id == *id).map(|host| &host.machine);
        lease_order.sort_by(|a, b| (machine(a), a).cmp(&(machine(b), b)));
        Ok(Self { spec, hosts, rendezvous, lease_order })
    }

    /// Each host's share, in the order in which their GPUs are leased.
    pub fn in_lease_order(&self) -> Vec<HostRun> {
        let share = |id: &HostId| self.hosts.iter().find(|share| share.host == *id).cloned();
        self.lease_order.iter().filter_map(share).collect()
    }
}

/// Tells NCCL and Gloo the interface that the other hosts reach, which they would otherwise guess: by the address that was
/// chosen. Not for what stays within one host, nor where the user has said it.
fn name_interface(share: &mut HostRun, facts: &[HostFacts], rendezvous: &Rendezvous) {
    let Some(bind) = rendezvous.bind.get(&share.host) else { return };
    let mut own = facts.iter().filter(|host| host.id == share.host).flat_map(|host| &host.addresses);
    let Some(found) = own.find(|one| one.address == *bind && !bind.is_loopback()) else { return };
    for rank in &mut share.ranks {
        // NCCL takes a name as a prefix unless `=` stands before it.
        for (name, prefix) in [("NCCL_SOCKET_IFNAME", "="), ("GLOO_SOCKET_IFNAME", "")] {
            rank.env.entry(name.to_owned()).or_insert_with(|| format!("{prefix}{}", found.interface));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gpu_host, request};
    use super::*;
    use crate::domain::host::InterfaceAddress;
    use crate::domain::request::Whereto;

    #[test]
    fn nccl_and_gloo_are_told_the_interface_that_the_other_hosts_reach() {
        let host = |name: &str, last: u8| {
            let address = |interface: &str, ip: [u8; 4]| InterfaceAddress {
                interface: interface.to_owned(),
                address: ip.into(),
            };
            HostFacts {
                addresses: vec![address("docker0", [172, 17, 0, 1]), address("ib0", [10, 9, 0, last])],
                interface: Some("ib0".to_owned()),
                ..gpu_host(name, 1)
            }
        };
        let told = |hosts: &[HostFacts], env: &[(&str, &str)]| {
            let mut asked = request("true", Whereto::Count(None));
            asked.env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let planned = Planned::new(&asked, hosts, RunId::new(1, 1), Stamp(1)).unwrap();
            let env = &planned.hosts[0].ranks[0].env;
            ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"].map(|name| env.get(name).cloned())
        };
        let two = [host("a", 1), host("b", 2)];
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(told(&two, &[]), [some("=ib0"), some("ib0")]);
        assert_eq!(told(&two, &[("NCCL_SOCKET_IFNAME", "^lo")]), [some("^lo"), some("ib0")]);
        assert_eq!(told(&two[..1], &[]), [None, None], "one host needs no network");
    }

    #[test]
    fn every_client_leases_the_gpus_of_its_hosts_in_the_same_order() {
        let host = |name: &str, boot: &str| HostFacts {
            machine: (boot.to_owned(), String::new()),
            ssh_server_address: Some([10, 0, 0, 1].into()),
            ..gpu_host(name, 1)
        };
        let order = |hosts: [HostFacts; 3]| {
            let asked = request("true", Whereto::Count(None));
            let planned = Planned::new(&asked, &hosts, RunId::new(1, 1), Stamp(1)).unwrap();
            assert_eq!(planned.hosts.len(), 3);
            let shares = planned.in_lease_order().into_iter();
            shares.map(|share| share.host.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order([host("a", "boot-3"), host("b", "boot-1"), host("c", "boot-2")]), "b c a");
        assert_eq!(order([host("x", "boot-2"), host("y", "boot-3"), host("z", "boot-1")]), "z x y");
    }
}
