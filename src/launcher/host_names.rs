//! What people write for a host beside its name in the hosts file: its address, or `localhost`. Pure.

use std::net::IpAddr;

use crate::config::{Address, HostConfig};
use crate::domain::ids::HostId;
use crate::launch::request::PlacementSpec;

/// The host that is meant: by its name, else by its address; `localhost` is this machine.
pub fn find<'a>(written: &HostId, hosts: &'a [HostConfig]) -> Option<&'a HostConfig> {
    let text = written.as_str();
    let by_name = hosts.iter().find(|host| host.id == *written);
    // IPv6 has several spellings of one address
    let ip = text.parse::<IpAddr>().ok();
    let is_it = |address: &str| address == text || (ip.is_some() && address.parse().ok() == ip);
    let by_address =
        || hosts.iter().find(|host| matches!(&host.address, Address::Ssh(address) if is_it(address)));
    let here = || hosts.iter().find(|host| host.is_local()).filter(|_| is_here(written));
    by_name.or_else(by_address).or_else(here)
}

/// Whether it means the machine on which it was written.
pub fn is_here(written: &HostId) -> bool {
    let loopback = written.as_str().parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    loopback || matches!(written.as_str(), "localhost" | "local")
}

/// Replaces what was written for hosts by their names, where they are known. Two ways to write one host become one.
pub fn resolve(place: &mut PlacementSpec, hosts: &[HostConfig]) {
    let name = |id: &HostId| find(id, hosts).map_or_else(|| id.clone(), |host| host.id.clone());
    match place {
        PlacementSpec::Hosts { hosts: list, .. } => {
            let mut named: Vec<(HostId, u32)> = Vec::new();
            for (id, count) in std::mem::take(list) {
                let id = name(&id);
                match named.iter_mut().find(|(known, _)| *known == id) {
                    Some((_, sum)) => *sum = sum.saturating_add(count),
                    None => named.push((id, count)),
                }
            }
            *list = named;
        }
        PlacementSpec::Picks(picks) => picks.iter_mut().for_each(|pick| pick.host = name(&pick.host)),
        PlacementSpec::Count(_) | PlacementSpec::Nodes { .. } | PlacementSpec::Free { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_name_address_and_localhost() {
        let mut far = HostConfig { id: HostId::from("gpu-a"), ..HostConfig::this_machine() };
        far.address = Address::Ssh("10.163.6.155".to_owned());
        let hosts = [far, HostConfig { id: HostId::from("desk"), ..HostConfig::this_machine() }];
        let found = |text: &str| find(&HostId::from(text), &hosts).map(|host| host.id.to_string());
        for (written, name) in
            [("gpu-a", "gpu-a"), ("10.163.6.155", "gpu-a"), ("localhost", "desk"), ("127.0.0.1", "desk")]
        {
            assert_eq!(found(written).as_deref(), Some(name), "{written}");
        }
        assert_eq!(found("gpu-b"), None);
        let mut far = hosts[0].clone();
        far.address = Address::Ssh("fd77::11".to_owned());
        let found =
            find(&HostId::from("FD77:0::11"), std::slice::from_ref(&far)).map(|host| host.id.as_str());
        assert_eq!(found, Some("gpu-a"));
        assert_eq!(
            find(&HostId::from("localhost"), &hosts[..1]),
            None,
            "the file does not name this machine"
        );
        let list = [("10.163.6.155", 2), ("desk", 1), ("gpu-a", 1)];
        let list = list.map(|(host, count)| (HostId::from(host), count)).to_vec();
        let mut place = PlacementSpec::Hosts { hosts: list, np: None };
        resolve(&mut place, &hosts);
        let named = vec![(HostId::from("gpu-a"), 3), (HostId::from("desk"), 1)];
        assert_eq!(place, PlacementSpec::Hosts { hosts: named, np: None });
    }
}
