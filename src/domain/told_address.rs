//! Addresses by which ranks of a run that failed tried to reach each other and that lead nowhere, as docker's own bridge on each
//! host. Pure: lines of a log and facts of hosts in, a sentence out.

use std::net::Ipv4Addr;

use super::host::HostInfo;
use super::ids::{HostId, Rank};
use super::world::{RunState, World};

/// How many of the newest lines are looked at.
const LINES: usize = 400;
/// What a line says of an address that could not be reached, in lower case.
const UNREACHED: [&str; 6] =
    ["connect", "refused", "timed out", "timeout", "no route to host", "unreachable"];
/// What it says of one that was.
const REACHED: [&str; 3] = [" connected to", "connecting to http", "connection established"];
/// Behind it a rank of NCCL's names the address that it tells the others.
const OWN: [&str; 2] = ["Bootstrap : Using ", "NET/Socket : Using "];
/// Hosts that are named.
const NAMED: usize = 3;

/// Whether it is a bridge that programs for containers and virtual machines make for those on this host.
pub fn is_bridge(name: &str) -> bool {
    let of_docker = name
        .strip_prefix("br-")
        .is_some_and(|id| id.len() == 12 && id.chars().all(|c| c.is_ascii_hexdigit()));
    of_docker
        || ["docker", "podman", "cni", "virbr", "lxcbr", "lxdbr"].iter().any(|kind| {
            name.strip_prefix(kind)
                .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
        })
}

/// Which rank told the others, or was sent to, an address that leads nowhere: `rank 2 (n2) told the others 172.17.0.1, docker0 of
/// n1, n2: by it each of them reaches itself`. `None` where no line says so, and of a run on one host.
pub fn leads_nowhere(run: &RunState, world: &World) -> Option<String> {
    let hosts = run.spec.hosts();
    let known: Vec<(&HostId, &HostInfo)> =
        hosts.iter().filter_map(|host| Some((host, world.hosts.get(host)?.info.as_deref()?))).collect();
    if known.len() < 2 {
        return None;
    }
    let mut lines = run.log.iter().rev().map(|(_, logged)| &logged.line).take(LINES);
    lines.find_map(|line| {
        let host = run.ranks.get(line.rank.0 as usize).map(|rank| &rank.placement.host)?;
        said((line.rank, host), &line.text, &known)
    })
}

/// What one line of a rank says of it.
fn said((rank, host): (Rank, &HostId), text: &str, hosts: &[(&HostId, &HostInfo)]) -> Option<String> {
    let own = OWN.iter().find_map(|begin| Some(text.split_once(begin)?.1));
    let lower = text.to_ascii_lowercase();
    if own.is_none() && (!has_any(&lower, &UNREACHED) || has_any(&lower, &REACHED)) {
        return None;
    }
    let mut all = addresses(own.unwrap_or(text));
    // the first is the one that counts of those that it tells itself
    let address = if own.is_some() {
        all.next().filter(|one| is_shared(*one, hosts))
    } else {
        all.find(|one| is_shared(*one, hosts))
    };
    let address = address?;
    let holders: Vec<(&HostId, &str)> = holders(address, hosts).collect();
    let (_, interface) = holders.first()?;
    let mut names: Vec<&str> = holders.iter().take(NAMED).map(|(host, _)| host.as_str()).collect();
    let more = format!("{} more", holders.len().saturating_sub(NAMED));
    names.extend((holders.len() > NAMED).then_some(more.as_str()));
    let what = if own.is_some() { "told the others" } else { "was sent to" };
    let leads = if holders.len() > 1 {
        "by it each of them reaches itself"
    } else {
        "it leads to what runs on that host alone"
    };
    Some(format!("rank {rank} ({host}) {what} {address}, {interface} of {}: {leads}", names.join(", ")))
}

fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Who has an address, and by which interface.
fn holders<'a>(
    address: Ipv4Addr,
    hosts: &[(&'a HostId, &'a HostInfo)],
) -> impl Iterator<Item = (&'a HostId, &'a str)> {
    hosts.iter().filter_map(move |(host, info)| {
        let of_it = info.addresses.iter().find(|one| one.address == address)?;
        Some((*host, of_it.interface.as_str()))
    })
}

/// Whether it is one of this run's hosts' and does not lead from one to another.
fn is_shared(address: Ipv4Addr, hosts: &[(&HostId, &HostInfo)]) -> bool {
    if address.is_loopback() || address.is_unspecified() {
        return false;
    }
    match machines_with(address, hosts).as_slice() {
        [] => false,
        // other hosts may be containers on it
        [(_, interface)] => is_bridge(interface) && !leads_to_another(address, hosts),
        _ => true,
    }
}

/// Whether more than one machine has an address: by it each of them reaches itself.
pub fn is_of_several(address: Ipv4Addr, hosts: &[(&HostId, &HostInfo)]) -> bool {
    machines_with(address, hosts).len() > 1
}

/// The machines that have an address, by boot, and by which interface.
fn machines_with<'a>(address: Ipv4Addr, hosts: &[(&'a HostId, &'a HostInfo)]) -> Vec<(&'a str, &'a str)> {
    // several hosts of the file may be one machine
    let mut of: Vec<(&str, &str)> = Vec::new();
    for (host, info) in hosts {
        for (_, interface) in holders(address, &[(*host, *info)]) {
            of.push((info.boot_id.as_str(), interface));
        }
    }
    of.sort_unstable();
    of.dedup_by_key(|(boot, _)| *boot);
    of
}

/// Whether another host has an address beside it.
fn leads_to_another(address: Ipv4Addr, hosts: &[(&HostId, &HostInfo)]) -> bool {
    let beside = |other: std::net::IpAddr| match other {
        std::net::IpAddr::V4(other) => other != address && other.octets()[..2] == address.octets()[..2],
        std::net::IpAddr::V6(_) => false,
    };
    hosts.iter().flat_map(|(_, info)| &info.addresses).any(|one| beside(one.address))
}

/// The addresses in a text, as Gloo, NCCL, MPI and Python write them: `[172.17.0.1]:41234`, `docker0:172.17.0.1<0>`.
fn addresses(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .map(|word| word.trim_matches('.'))
        .filter(|word| word.len() >= 7)
        .filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(boot: &str, addresses: &[(&str, &str)]) -> HostInfo {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|(interface, address)| serde_json::json!({"interface": interface, "address": address}))
            .collect();
        serde_json::from_value(serde_json::json!({
            "hostname": "host", "kernel": "6.1.0", "arch": "x86_64", "user": "li", "cpus": 8, "memory_total": null,
            "boot_id": boot, "agent_version": "0", "addresses": addresses, "ssh_server_address": null,
            "ssh_client_address": null, "gpus": [], "gpu_absence": null, "driver": null, "cuda_driver": null, "nccl": null,
        }))
        .unwrap()
    }

    fn of(text: &str, infos: &[HostInfo]) -> Option<String> {
        let names = ["n1", "n2", "n3"].map(HostId::from);
        let hosts: Vec<(&HostId, &HostInfo)> = names.iter().zip(infos).collect();
        said((Rank(1), &names[1]), text, &hosts)
    }

    #[test]
    fn an_address_that_several_hosts_have_is_told_with_the_rank() {
        let host = |at: &str, boot| info(boot, &[("eth0", at), ("docker0", "172.17.0.1")]);
        let hosts = [host("10.0.0.1", "a"), host("10.0.0.2", "b")];
        for text in [
            "RuntimeError: [../pair.cc:799] connect [127.0.1.1]:1 -> [172.17.0.1]:41234: Connection refused",
            "Gloo connectFullMesh failed with [..] timed out connecting: Connect timeout [172.17.0.1]:2",
            "OSError: [Errno 113] No route to host: ('172.17.0.1', 29500)",
        ] {
            let words =
                "rank 1 (n2) was sent to 172.17.0.1, docker0 of n1, n2: by it each of them reaches itself";
            assert_eq!(of(text, &hosts).as_deref(), Some(words), "{text}");
        }
        let own = of("n2:9:9 [0] NCCL INFO Bootstrap : Using [0]docker0:172.17.0.1<0>", &hosts);
        assert!(own.unwrap().starts_with("rank 1 (n2) told the others 172.17.0.1, docker0 of n1, n2: "));
    }

    #[test]
    fn an_address_that_leads_to_a_host_is_none() {
        let plain = [
            info("a", &[("eth0", "10.0.0.1")]),
            info("b", &[("eth0", "10.0.0.2"), ("docker0", "172.17.0.1")]),
        ];
        let refused = |address: &str| format!("connect to {address}:29500: Connection refused");
        assert_eq!(of(&refused("10.0.0.1"), &plain), None, "the host's own: nothing listens there");
        assert_eq!(of(&refused("127.0.0.1"), &plain), None);
        assert_eq!(of(&refused("192.168.7.7"), &plain), None, "of no host of the run");
        assert_eq!(of("172.17.0.1 is the address of docker0", &plain), None, "nothing has failed by it");
        let alone = of(&refused("172.17.0.1"), &plain).unwrap();
        assert!(alone.ends_with("docker0 of n2: it leads to what runs on that host alone"), "{alone}");
        // the hosts are containers on that bridge
        let within = [info("a", &[("eth0", "172.17.0.2")]), info("a2", &[("docker0", "172.17.0.1")])];
        assert_eq!(of(&refused("172.17.0.1"), &within), None);
        // one machine by two names
        let twice = [info("a", &[("eth0", "10.0.0.1")]), info("a", &[("eth0", "10.0.0.1")])];
        assert_eq!(of(&refused("10.0.0.1"), &twice), None);
        // a second interface behind the one that counts
        let host = |at: &str, boot| info(boot, &[("eth0", at), ("docker0", "172.17.0.1")]);
        let hosts = [host("10.0.0.1", "a"), host("10.0.0.2", "b")];
        let several = "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0> [1]docker0:172.17.0.1<0>";
        assert_eq!(of(several, &hosts), None);
    }

    #[test]
    fn bridges_are_known_by_their_names() {
        assert!(["docker0", "br-0123456789ab", "virbr0", "cni0"].iter().all(|name| is_bridge(name)));
        assert!(!["eth0", "br0", "bridge0", "docker", "br-lan", "ib0"].iter().any(|name| is_bridge(name)));
    }
}
