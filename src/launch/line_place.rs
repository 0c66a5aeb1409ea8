//! Where a launcher's line says that its ranks go, and whether the launch that was made of it says something else. Pure.

use std::net::IpAddr;

use super::host_list;
use super::request::{ALL_SLOTS, FREE_SLOTS, LaunchRequest, PlacementSpec};
use crate::domain::ids::HostId;
use crate::domain::units::counted;
use crate::domain::world::World;

/// What `line` says of the places of its ranks and `taken`, which was made of it, does not follow: `hosts a:2,b:2`, or `2 ranks
/// on 1 host`. `None` where both agree, and where the line leaves it open.
pub fn passed_over(line: &LaunchRequest, taken: &LaunchRequest) -> Option<String> {
    match (&line.place, &taken.place) {
        (PlacementSpec::Hosts { .. } | PlacementSpec::Picks(_), _) => {
            let (said, now) = (ranks_by_host(line), ranks_by_host(taken));
            let entry = |(host, ranks): &(HostId, u32)| match *ranks {
                ALL_SLOTS | FREE_SLOTS => host.to_string(),
                ranks => host_list::entry(host.as_str(), ranks),
            };
            (!agree(&said, &now))
                .then(|| format!("hosts {}", said.iter().map(entry).collect::<Vec<_>>().join(",")))
        }
        (PlacementSpec::Nodes { nodes, each: Some(each) }, PlacementSpec::Picks(_)) => {
            let said = nodes.saturating_mul(*each);
            let now: u32 = ranks_by_host(taken).iter().map(|(_, ranks)| *ranks).sum();
            (said != now).then(|| format!("{} on {}", counted(said, "rank"), counted(*nodes, "host")))
        }
        _ => None,
    }
}

/// A request with the names of the hosts that it means; `None` where it may mean any.
pub fn named(request: &LaunchRequest, world: &World) -> Option<LaunchRequest> {
    let mut request = request.clone();
    let written: Vec<&mut HostId> = match &mut request.place {
        PlacementSpec::Hosts { hosts, .. } => hosts.iter_mut().map(|(host, _)| host).collect(),
        PlacementSpec::Picks(picks) => picks.iter_mut().map(|pick| &mut pick.host).collect(),
        PlacementSpec::Count(_) | PlacementSpec::Nodes { .. } | PlacementSpec::Free { .. } => Vec::new(),
    };
    for host in written {
        *host = name_of(host, world)?;
    }
    Some(request)
}

/// The name of a host that is written by it, or by the address at which it is reached.
fn name_of(written: &HostId, world: &World) -> Option<HostId> {
    let text = written.as_str();
    if world.hosts.contains_key(written) {
        return Some(written.clone());
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        let address = |host: &HostId| world.hosts[host].info.as_ref()?.ssh_server_address;
        let is_it = |host: &&HostId| address(host).is_some_and(|at| at.to_canonical() == ip.to_canonical());
        return world.hosts.keys().find(is_it).cloned();
    }
    // another name of DNS may be that of any host
    let is_name = !text.contains('.') && !matches!(text, "localhost" | "local");
    is_name.then(|| written.clone())
}

/// Whether both name the same hosts with the same numbers of ranks, in whatever order.
fn agree(said: &[(HostId, u32)], now: &[(HostId, u32)]) -> bool {
    let is_there = |(host, ranks): &(HostId, u32)| {
        now.iter().any(|(at, count)| at == host && (ranks == count || *ranks == ALL_SLOTS))
    };
    said.len() == now.len() && said.iter().all(is_there)
}

/// The ranks of each host that is named, in the order written.
fn ranks_by_host(request: &LaunchRequest) -> Vec<(HostId, u32)> {
    let each = request.options.gpus_per_rank.max(1);
    let slots: Vec<(&HostId, u32)> = match &request.place {
        PlacementSpec::Hosts { hosts, .. } => {
            hosts.iter().map(|(host, ranks)| (host, ranks.saturating_mul(each))).collect()
        }
        PlacementSpec::Picks(picks) => picks.iter().map(|pick| (&pick.host, 1)).collect(),
        PlacementSpec::Count(_) | PlacementSpec::Nodes { .. } | PlacementSpec::Free { .. } => Vec::new(),
    };
    let mut by_host: Vec<(HostId, u32)> = Vec::new();
    for (host, count) in slots {
        match by_host.iter_mut().find(|(known, _)| known == host) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => by_host.push((host.clone(), count)),
        }
    }
    let ranks = |slots: u32| if slots == FREE_SLOTS { slots } else { slots / each };
    by_host.into_iter().map(|(host, slots)| (host, ranks(slots))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::request::{Pick, SlotName};

    fn at(place: PlacementSpec) -> LaunchRequest {
        LaunchRequest { place, ..LaunchRequest::of(vec!["true".to_owned()]) }
    }

    fn hosts(list: &[(&str, u32)]) -> LaunchRequest {
        let hosts = list.iter().map(|(host, ranks)| (HostId::from(*host), *ranks)).collect();
        at(PlacementSpec::Hosts { hosts, np: None })
    }

    fn picks(list: &[(&str, u32)]) -> LaunchRequest {
        let pick =
            |(host, slot): &(&str, u32)| Pick { host: HostId::from(*host), slot: SlotName::Index(*slot) };
        at(PlacementSpec::Picks(list.iter().map(pick).collect()))
    }

    #[test]
    fn other_hosts_and_other_numbers_than_those_of_the_line_are_told() {
        let line = hosts(&[("a", 2), ("b", 1)]);
        let told = Some("hosts a:2,b:1".to_owned());
        assert_eq!(passed_over(&line, &picks(&[("c", 0)])), told);
        assert_eq!(passed_over(&line, &picks(&[("a", 0), ("b", 1)])), told, "fewer ranks");
        assert_eq!(passed_over(&line, &hosts(&[("a", 2)])), told);
        assert_eq!(passed_over(&line, &at(PlacementSpec::Nodes { nodes: 2, each: Some(1) })), told);
        assert_eq!(
            passed_over(&line, &picks(&[("b", 3), ("a", 0), ("a", 1)])),
            None,
            "which of their slots is no other word"
        );
        assert_eq!(passed_over(&line, &line), None);
        assert_eq!(passed_over(&hosts(&[("a", ALL_SLOTS)]), &picks(&[("a", 0)])), None);
        assert_eq!(passed_over(&hosts(&[("a", ALL_SLOTS)]), &picks(&[("b", 0)])), Some("hosts a".to_owned()));
        let mut free = hosts(&[("a", FREE_SLOTS)]);
        free.options.gpus_per_rank = 2;
        assert_eq!(passed_over(&free, &free), None);
        assert_eq!(passed_over(&free, &picks(&[("b", 0)])), Some("hosts a".to_owned()));
        let mut pairs = picks(&[("a", 0), ("a", 1), ("b", 0), ("b", 1)]);
        pairs.options.gpus_per_rank = 2;
        assert_eq!(passed_over(&hosts(&[("a", 1), ("b", 1)]), &pairs), None);
    }

    #[test]
    fn a_line_without_hosts_says_its_number_of_ranks_alone() {
        let line = at(PlacementSpec::Nodes { nodes: 1, each: Some(2) });
        assert_eq!(passed_over(&line, &picks(&[("a", 0), ("b", 1)])), None);
        let six: Vec<(&str, u32)> = (0..6).map(|slot| ("a", slot)).collect();
        assert_eq!(passed_over(&line, &picks(&six)), Some("2 ranks on 1 host".to_owned()));
        assert_eq!(passed_over(&at(PlacementSpec::Count(Some(2))), &picks(&six)), None);
    }
}
