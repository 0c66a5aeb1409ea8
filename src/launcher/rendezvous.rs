//! By which address the ranks of each host can be reached by the others. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::inventory::HostFacts;
use crate::domain::ids::HostId;
use crate::domain::run::{JobKind, RunSpec};
use crate::launch::plan::Rendezvous;

/// Hosts that share no address by which ranks could reach each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RendezvousError {
    /// The named interface is not there.
    #[error(
        "host {host} has no usable address on interface {interface}: it has {there}; correct --network-interface or `interface` in the hosts file"
    )]
    NoInterface {
        /// The host.
        host: HostId,
        /// The interface.
        interface: String,
        /// Interfaces and addresses that it has.
        there: String,
    },
    /// Nothing tells how other hosts reach it.
    #[error(
        "host {host}: no address is known by which the ranks of other hosts reach it ({there}); name an interface by --network-interface or `interface` in the hosts file"
    )]
    NoAddress {
        /// The host.
        host: HostId,
        /// Interfaces and addresses that it has.
        there: String,
    },
    /// It is known only by its loopback address.
    #[error(
        "host {host} is reached by {address}, which other hosts can't use; name an interface by --network-interface or `interface` in the hosts file"
    )]
    Loopback {
        /// The host.
        host: HostId,
        /// The address.
        address: IpAddr,
    },
    /// No common address family.
    #[error(
        "hosts {first} and {second} share neither IPv4 nor IPv6 ({addresses}); name an interface by --network-interface or `interface` in the hosts file"
    )]
    NoFamily {
        /// A host.
        first: HostId,
        /// Another one.
        second: HostId,
        /// What they have.
        addresses: String,
    },
}

/// The address of each host of `spec`. `interface` (`--network-interface`) counts before the hosts file's.
/// All ranks on this machine, or on one host: loopback. Else the named interface's address, else the one by
/// which ssh reached the host; for this machine, the one from which ssh came to another host.
pub fn rendezvous_address(
    spec: &RunSpec,
    facts: &[HostFacts],
    interface: Option<&str>,
) -> Result<Rendezvous, RendezvousError> {
    let ids = spec.hosts();
    let hosts: Vec<&HostFacts> = facts.iter().filter(|host| ids.contains(&host.id)).collect();
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if ids.len() <= 1 || hosts.iter().all(|host| host.local) {
        // Its ranks need no network, but a name that is written wrongly is a fault all the same.
        if let (Some(name), Some(host)) = (interface, hosts.first())
            && spec.kind != JobKind::Slurm
            && !name.split(',').any(|one| one.trim() == LOOPBACK)
            && on_interface(host, name).is_empty()
        {
            let (host, interface, there) = (host.id.clone(), name.to_owned(), addresses(host));
            return Err(RendezvousError::NoInterface { host, interface, there });
        }
        return Ok(Rendezvous { bind: ids.into_iter().map(|id| (id, loopback)).collect(), master: loopback });
    }
    let mut choices = Vec::new();
    for host in &hosts {
        choices.push((*host, candidates(host, &hosts, interface)?));
    }
    let bind = choose(&choices)?;
    let master = ids.first().and_then(|id| bind.get(id)).copied().unwrap_or(loopback);
    Ok(Rendezvous { bind, master })
}

/// An interface that every host has, and of whose address no host tells.
const LOOPBACK: &str = "lo";

/// Addresses of a host in order of preference; at least one.
fn candidates(
    host: &HostFacts,
    hosts: &[&HostFacts],
    interface: Option<&str>,
) -> Result<Vec<IpAddr>, RendezvousError> {
    if let Some(name) = interface.or(host.interface.as_deref()) {
        let found = on_interface(host, name);
        return if found.is_empty() {
            let (host, interface, there) = (host.id.clone(), name.to_owned(), addresses(host));
            Err(RendezvousError::NoInterface { host, interface, there })
        } else {
            Ok(found)
        };
    }
    let known = if host.local { seen_from_outside(host, hosts) } else { host.ssh_server_address };
    let Some(known) = known else {
        return Err(RendezvousError::NoAddress { host: host.id.clone(), there: addresses(host) });
    };
    let mut found = vec![known];
    // The same wire may carry the other family, too.
    if let Some(same) = host.addresses.iter().find(|a| a.address == known) {
        found.extend(on_interface(host, &same.interface).into_iter().filter(|ip| *ip != known));
    }
    Ok(found)
}

/// The address from which this machine's ssh came to another host, if it is one of its own: behind address
/// translation it is not.
fn seen_from_outside(local: &HostFacts, hosts: &[&HostFacts]) -> Option<IpAddr> {
    let own = |ip: &IpAddr| ip.is_loopback() || local.addresses.iter().any(|a| a.address == *ip);
    hosts.iter().filter(|host| !host.local).filter_map(|host| host.ssh_client_address).find(own)
}

/// Addresses on the first of several interfaces that the host has: `eth0`, `eth0,ens3`, or networks such as `10.0.0.0/24`.
fn on_interface(host: &HostFacts, list: &str) -> Vec<IpAddr> {
    let found = list.split(',').map(|one| on_one(host, one.trim()));
    found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// Whether an address lies in a network, `10.0.0.0/24`.
fn is_in(address: IpAddr, network: &str) -> bool {
    let Some((base, length)) = network.split_once('/') else { return false };
    match (address, base.parse(), length.parse::<u32>()) {
        (IpAddr::V4(address), Ok(IpAddr::V4(base)), Ok(length @ 0..=32)) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            u32::from(address) & mask == u32::from(base) & mask
        }
        (IpAddr::V6(address), Ok(IpAddr::V6(base)), Ok(length @ 0..=128)) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            u128::from(address) & mask == u128::from(base) & mask
        }
        _ => false,
    }
}

/// IPv4 first; without link-local IPv6, which means nothing on another host.
fn on_one(host: &HostFacts, interface: &str) -> Vec<IpAddr> {
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let mut found: Vec<IpAddr> = host
        .addresses
        .iter()
        .filter(|a| a.interface == interface || is_in(a.address, interface))
        .map(|a| a.address)
        .filter(usable)
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// One address a host, all of one family, all loopback or none.
fn choose(choices: &[(&HostFacts, Vec<IpAddr>)]) -> Result<BTreeMap<HostId, IpAddr>, RendezvousError> {
    let with = |pick: &dyn Fn(&[IpAddr]) -> Option<IpAddr>| -> Option<BTreeMap<HostId, IpAddr>> {
        choices.iter().map(|(host, ips)| Some((host.id.clone(), pick(ips)?))).collect()
    };
    let preferred = with(&|ips| ips.first().copied()).filter(|bind| {
        let v6 = bind.values().filter(|ip| ip.is_ipv6()).count();
        v6 == 0 || v6 == bind.len()
    });
    let family = |v6: bool| with(&|ips: &[IpAddr]| ips.iter().find(|ip| ip.is_ipv6() == v6).copied());
    let Some(bind) = preferred.or_else(|| family(false)).or_else(|| family(true)) else {
        return Err(no_family(choices));
    };
    let loopbacks = bind.values().filter(|ip| ip.is_loopback()).count();
    match bind.iter().find(|(_, ip)| ip.is_loopback()) {
        Some((host, address)) if loopbacks < bind.len() => {
            Err(RendezvousError::Loopback { host: host.clone(), address: *address })
        }
        _ => Ok(bind),
    }
}

fn no_family(choices: &[(&HostFacts, Vec<IpAddr>)]) -> RendezvousError {
    let lacks = |v6: bool| {
        let lacking = choices.iter().find(|(_, ips)| ips.iter().all(|ip| ip.is_ipv6() != v6));
        lacking.map_or_else(|| HostId::from("?"), |(host, _)| host.id.clone())
    };
    let words = |(host, ips): &(&HostFacts, Vec<IpAddr>)| {
        let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
        format!("{}: {}", host.id, ips.join(" "))
    };
    RendezvousError::NoFamily {
        first: lacks(true),
        second: lacks(false),
        addresses: choices.iter().map(words).collect::<Vec<_>>().join(", "),
    }
}

fn addresses(host: &HostFacts) -> String {
    let all: Vec<String> = host.addresses.iter().map(|a| format!("{} {}", a.interface, a.address)).collect();
    if all.is_empty() { "no interface with an address".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;
