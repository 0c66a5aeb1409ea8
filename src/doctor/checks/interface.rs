//! Whether the network interfaces that programs are told to use are there, have the same names everywhere, and send packets of
//! the same size.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::compare::Compared;
use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::host::HostInfo;

pub(in crate::doctor) struct Interface;

/// Variables that name interfaces.
const VARIABLES: [&str; 4] =
    ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include"];

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Those variables that are set, for a command over ssh or in a login shell.
    variables: BTreeMap<String, String>,
    /// All interfaces that are up, with loopback and those without an address.
    interfaces: Vec<String>,
    /// The largest packet of each, bytes.
    #[serde(default)]
    mtus: BTreeMap<String, u32>,
}

impl Check for Interface {
    const NAME: &'static str = "interface";
    const ASKS: &'static str =
        "is the interface that NCCL, Gloo and MPI are told to use there, on all hosts by one name";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let mut variables = BTreeMap::new();
        for name in VARIABLES {
            let value = std::env::var(name).ok().or_else(|| site.of_login_too(name));
            variables.extend(value.filter(|value| !value.is_empty()).map(|value| (name.to_owned(), value)));
        }
        let mtus = mtus(site)
            .or_else(by_files)
            .ok_or("neither `ip link` nor /sys/class/net tells its interfaces")?;
        Ok(Found { variables, interfaces: mtus.keys().cloned().collect(), mtus })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let mut holders: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for address in seen.iter().flat_map(|one| &one.info.addresses) {
            *holders.entry(address.address).or_default() += 1;
        }
        let own: Vec<Option<String>> = seen.iter().map(|one| first(one.info, &holders)).collect();
        let names =
            seen.iter().zip(&own).filter_map(|(one, name)| Some((one.host.as_str(), name.as_deref()?)));
        let all = Compared::new(names);
        let mtus: Vec<Option<String>> = seen
            .iter()
            .zip(&own)
            .map(|(one, own)| own.as_ref().and_then(|own| one.found.mtus.get(own)).map(ToString::to_string))
            .collect();
        let told = seen.iter().zip(&mtus).filter_map(|(one, mtu)| Some((one.host.as_str(), mtu.as_deref()?)));
        let sizes = Compared::new(told);
        let hosts = seen.iter().zip(&own).zip(&mtus);
        hosts
            .map(|((one, own), mtu)| {
                let verdict = judge(&one.found, own.as_deref(), &all);
                let (Some(own), Some(mtu)) = (own, mtu) else { return verdict };
                match sizes.difference(mtu).filter(|_| !verdict.is_trouble()) {
                    Some(difference) => unlike_packets(own, mtu, &difference, sizes.wanted(mtu)),
                    None => verdict,
                }
            })
            .collect()
    }
}

fn unlike_packets(own: &str, mtu: &str, difference: &str, wanted: Option<&str>) -> Verdict {
    let command = format!("sudo ip link set dev {} mtu {}", shell_word(own), wanted.unwrap_or("1500"));
    Verdict::look(
        format!("{own} has MTU {mtu}; {difference}"),
        "what is larger than the smallest MTU on the way may be dropped: connections are made, and then hang",
        command.clone(),
    )
    .fixed_there(command)
}

/// The interfaces and the largest packet of each, as `ip link` tells them: of this process's own network, which those of the
/// files may not be within a container.
fn mtus(site: &Site) -> Option<BTreeMap<String, u32>> {
    let places = ["/usr/sbin/ip", "/sbin/ip"].map(PathBuf::from).into_iter().filter(|path| path.exists());
    let program = site.program("ip").or_else(|| places.into_iter().next())?;
    let told = site.ask(&program, &["-o", "link", "show"]).ok()?;
    Some(told.out.lines().filter_map(link).collect()).filter(|all: &BTreeMap<_, _>| !all.is_empty())
}

/// `2: eth0@if5: <BROADCAST,UP> mtu 1500 qdisc …`
fn link(line: &str) -> Option<(String, u32)> {
    let mut words = line.split_whitespace().skip(1);
    let name = words.next()?.trim_end_matches(':');
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let mtu = words.skip_while(|word| *word != "mtu").nth(1)?;
    Some((name.to_owned(), mtu.parse().ok()?))
}

fn by_files() -> Option<BTreeMap<String, u32>> {
    let names = std::fs::read_dir("/sys/class/net").ok()?.flatten();
    let names = names.map(|one| one.file_name().to_string_lossy().into_owned());
    let mtu = |name: String| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
        Some((name, text.trim().parse().ok()?))
    };
    Some(names.filter_map(mtu).collect())
}

/// The interface by which ssh came, else the first whose address no other host has, as docker0's is.
fn first(info: &HostInfo, holders: &BTreeMap<IpAddr, usize>) -> Option<String> {
    let by_ssh = info.addresses.iter().find(|one| Some(one.address) == info.ssh_server_address);
    let alone =
        || info.addresses.iter().find(|one| one.address.is_ipv4() && holders.get(&one.address) == Some(&1));
    by_ssh.or_else(alone).map(|one| one.interface.clone())
}

/// The names that a variable's value wants, as NCCL reads it: a beginning, or with `=` the whole name. What is excluded by
/// `^`, and networks such as `10.0.0.0/24`, name none.
fn wanted(value: &str) -> Vec<(&str, bool)> {
    if value.starts_with('^') {
        return Vec::new();
    }
    let (value, whole) = value.strip_prefix('=').map_or((value, false), |rest| (rest, true));
    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty() && !name.contains('/'));
    names.map(|name| (name, whole)).collect()
}

fn judge(found: &Found, own: Option<&str>, all: &Compared<'_>) -> Verdict {
    for (variable, value) in &found.variables {
        let is_there = |(name, whole): &(&str, bool)| {
            // Gloo's and MPI's are whole names
            let whole = *whole || !variable.starts_with("NCCL");
            found.interfaces.iter().any(|one| one == name || !whole && one.starts_with(name))
        };
        let names = wanted(value);
        if !names.is_empty() && !names.iter().any(is_there) {
            let there: Vec<&str> = found.interfaces.iter().map(String::as_str).collect();
            return Verdict::bad(
                format!("{variable}={value}, and there is {} alone", there.join(", ")),
                "ranks end at their start: no such interface, or \"Unable to find address for\"",
                format!("unset {variable} there, or name an interface that the host has"),
            );
        }
    }
    let Some(own) = own else { return Verdict::unknown("no address that other hosts could reach") };
    match all.difference(own) {
        None => Verdict::good(own),
        Some(difference) => Verdict::look(
            format!("{own}; {difference}"),
            "one interface name for all hosts (--network-interface, NCCL_SOCKET_IFNAME) fails on some of them",
            "interface = \"…\" of each host in hosts.toml: hvtui then tells each rank its own host's",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    fn found(variable: &str, value: &str) -> Found {
        let variables = [(variable.to_owned(), value.to_owned())].into();
        Found { variables, interfaces: vec!["lo".to_owned(), "ens3f0".to_owned()], mtus: BTreeMap::new() }
    }

    #[test]
    fn a_name_that_is_not_there_ends_ranks() {
        let of = |variable, value| judge(&found(variable, value), Some("ens3f0"), &Compared::new([])).mark;
        assert_eq!(of("NCCL_SOCKET_IFNAME", "eth0"), Mark::Bad);
        assert_eq!(of("NCCL_SOCKET_IFNAME", "ens"), Mark::Good, "NCCL takes beginnings");
        assert_eq!(of("NCCL_SOCKET_IFNAME", "=ens"), Mark::Bad);
        assert_eq!(of("NCCL_SOCKET_IFNAME", "^docker0"), Mark::Good);
        assert_eq!(of("GLOO_SOCKET_IFNAME", "ens"), Mark::Bad);
        assert_eq!(of("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/24"), Mark::Good);
    }

    #[test]
    fn links_are_read_as_ip_tells_them() {
        let line = "7: eth0@if8: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1400 qdisc noqueue state UP mode DEFAULT group default";
        assert_eq!(link(line), Some(("eth0".to_owned(), 1400)));
        assert_eq!(link("1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue"), Some(("lo".to_owned(), 65536)));
        assert_eq!(link("garbage"), None);
    }

    #[test]
    fn packets_of_unlike_size_are_told() {
        let sizes = Compared::new([("a", "9000"), ("b", "9000"), ("c", "1500")]);
        let verdict =
            unlike_packets("eth0", "1500", &sizes.difference("1500").unwrap(), sizes.wanted("1500"));
        assert_eq!(verdict.evidence, "eth0 has MTU 1500; other hosts have 9000");
        assert_eq!(verdict.remedy.unwrap(), "sudo ip link set dev eth0 mtu 9000");
    }

    #[test]
    fn unlike_names_are_told_with_the_others() {
        let all = Compared::new([("a", "eth0"), ("b", "eth0"), ("c", "ens3f0")]);
        let verdict = judge(&found("TP_SOCKET_IFNAME", "^lo"), Some("ens3f0"), &all);
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Look, "ens3f0; other hosts have eth0"));
    }
}
