//! Whether the network interfaces that programs are told to use are there, have the same names everywhere, and send packets of
//! the same size.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::compare::Compared;
use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::host::{HostInfo, InterfaceAddress};
use crate::domain::needs::INTERFACES;
use crate::domain::preflight::Mark;
use crate::domain::told_address::is_bridge;
use crate::program::home;

pub(in crate::doctor) struct Interface;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The variables that name interfaces and are set, for a command over ssh or in a login shell.
    variables: BTreeMap<String, String>,
    /// All interfaces, with loopback, those that are down and those without an address.
    interfaces: Vec<String>,
    /// The largest packet of each, bytes.
    #[serde(default)]
    mtus: BTreeMap<String, u32>,
    /// Those that carry nothing, and why: `is down`.
    #[serde(default)]
    down: BTreeMap<String, String>,
}

impl Check for Interface {
    const NAME: &'static str = "interface";
    const ASKS: &'static str =
        "is the interface that NCCL, Gloo and MPI are told to use there, on all hosts by one name";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let variables = named(site);
        let links = links(site)
            .or_else(by_files)
            .ok_or("neither `ip link` nor /sys/class/net tells its interfaces")?;
        let mut found = Found { variables, ..Found::default() };
        for Link { name, mtu, down } in links {
            found.interfaces.push(name.clone());
            found.down.extend(down.map(|why| (name.clone(), why.to_owned())));
            found.mtus.insert(name, mtu);
        }
        found.interfaces.sort_unstable();
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let holders = holders(seen.iter().map(|one| one.info));
        let own = |one: &Seen<'_, Found>| {
            first(one.info, &holders, |name| one.found.down.contains_key(without_label(name))).cloned()
        };
        let own: Vec<Option<InterfaceAddress>> = seen.iter().map(own).collect();
        let told = seen.iter().zip(&own).filter_map(|(one, own)| Some((one, own.as_ref()?)));
        let all = Compared::new(told.map(|(one, own)| (one.host.as_str(), without_label(&own.interface))));
        let mtu = |(one, own): (&Seen<'_, Found>, &Option<InterfaceAddress>)| {
            one.found.mtus.get(without_label(&own.as_ref()?.interface)).map(ToString::to_string)
        };
        let mtus: Vec<Option<String>> = seen.iter().zip(&own).map(mtu).collect();
        let told = seen.iter().zip(&mtus).filter_map(|(one, mtu)| Some((one.host.as_str(), mtu.as_deref()?)));
        let sizes = Compared::new(told);
        let hosts = seen.iter().zip(&own).zip(&mtus);
        hosts
            .map(|((one, own), mtu)| {
                // a machine may be several hosts of the file
                let is_other = |other: &&Seen<'_, Found>| {
                    other.host != one.host
                        && (other.info.boot_id != one.info.boot_id
                            || other.info.addresses != one.info.addresses)
                };
                let others = seen.iter().filter(is_other);
                let here = Here {
                    found: &one.found,
                    info: one.info,
                    own: own.as_ref(),
                    others: others.map(|other| other.info).collect(),
                };
                let verdict = judge(&here, one.given, &all);
                let (Some(own), Some(mtu)) = (own, mtu) else { return verdict };
                match sizes.difference(mtu).filter(|_| !verdict.is_trouble()) {
                    Some(difference) => unlike_packets(&own.interface, mtu, &difference, sizes.wanted(mtu)),
                    None => verdict,
                }
            })
            .collect()
    }
}

/// What names interfaces here: variables of a command over ssh or of a login shell, and the libraries' own files.
pub(super) fn named(site: &Site) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for name in INTERFACES {
        let value = std::env::var(name).ok().or_else(|| site.of_login_too(name)).or_else(|| of_file(name));
        variables.extend(value.filter(|value| !value.is_empty()).map(|value| (name.to_owned(), value)));
    }
    variables
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

/// A network interface.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    mtu: u32,
    /// Why it carries nothing.
    pub(super) down: Option<&'static str>,
}

pub(super) const DOWN: &str = "is down";
const NO_CARRIER: &str = "has no carrier";

/// The interfaces as `ip link` tells them: of this process's own network, which those of the files may not be within a
/// container.
pub(super) fn links(site: &Site) -> Option<Vec<Link>> {
    let places = ["/usr/sbin/ip", "/sbin/ip"].map(PathBuf::from).into_iter().filter(|path| path.exists());
    let program = site.program("ip").or_else(|| places.into_iter().next())?;
    let told = site.ask(&program, &["-o", "link", "show"]).ok()?;
    Some(told.out.lines().filter_map(link).collect()).filter(|all: &Vec<_>| !all.is_empty())
}

/// `2: eth0@if5: <BROADCAST,UP> mtu 1500 qdisc … state UP …`
fn link(line: &str) -> Option<Link> {
    let mut words = line.split_whitespace().skip(1);
    let name = words.next()?.trim_end_matches(':');
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let flags: Vec<&str> = words.next()?.trim_matches(['<', '>']).split(',').collect();
    let mut words = words.skip_while(|word| *word != "mtu").skip(1);
    let mtu = words.next()?.parse().ok()?;
    let state = words.skip_while(|word| *word != "state").nth(1).unwrap_or_default();
    let down = if !flags.contains(&"UP") {
        Some(DOWN)
    } else if flags.contains(&"NO-CARRIER") || ["DOWN", "LOWERLAYERDOWN"].contains(&state) {
        Some(NO_CARRIER)
    } else {
        None
    };
    Some(Link { name: name.to_owned(), mtu, down })
}

pub(super) fn by_files() -> Option<Vec<Link>> {
    let names = std::fs::read_dir("/sys/class/net").ok()?.flatten();
    let names = names.map(|one| one.file_name().to_string_lossy().into_owned());
    let link = |name: String| {
        let read = |what: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{what}")).ok();
        let mtu = read("mtu")?.trim().parse().ok()?;
        // `IFF_UP` is the lowest bit; the carrier of one that is down can't be read
        let flags =
            read("flags").and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
        let is_up = flags.is_none_or(|flags| flags & 1 == 1);
        let has_carrier = read("carrier").is_none_or(|text| text.trim() != "0");
        let down = if is_up { (!has_carrier).then_some(NO_CARRIER) } else { Some(DOWN) };
        Some(Link { name, mtu, down })
    };
    Some(names.filter_map(link).collect())
}

/// How many hosts have each address.
pub(super) fn holders<'a>(infos: impl Iterator<Item = &'a HostInfo>) -> BTreeMap<IpAddr, usize> {
    let mut holders = BTreeMap::new();
    for one in infos.flat_map(|info| &info.addresses) {
        *holders.entry(one.address).or_default() += 1;
    }
    holders
}

/// The interface by which ssh came, else the first whose address no other host has, as docker0's is; one that is down where
/// there is no other.
pub(super) fn first<'a>(
    info: &'a HostInfo,
    holders: &BTreeMap<IpAddr, usize>,
    is_down: impl Fn(&str) -> bool,
) -> Option<&'a InterfaceAddress> {
    let fits = |one: &&InterfaceAddress| {
        one.address.is_ipv4() && holders.get(&one.address) == Some(&1) && !is_bridge(&one.interface)
    };
    let by_ssh = info.addresses.iter().find(|one| Some(one.address) == info.ssh_server_address);
    let up = || info.addresses.iter().filter(fits).find(|one| !is_down(&one.interface));
    by_ssh.or_else(up).or_else(|| info.addresses.iter().find(fits))
}

/// The interface of a further address: of `eth0:1`, `eth0`.
fn without_label(name: &str) -> &str {
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// What a variable's value names.
struct Wanted<'a> {
    names: Vec<&'a str>,
    /// Whether those are whole names; beginnings if not.
    are_whole: bool,
    /// Whether all are taken but those.
    excludes: bool,
    /// Networks, as Open MPI takes them: `10.0.0.0/24`.
    networks: Vec<(Ipv4Addr, u32)>,
}

impl<'a> Wanted<'a> {
    /// As the program reads it that the variable is of. `None` where it is in no form that is known.
    fn read(variable: &str, value: &'a str) -> Option<Self> {
        let split = |text: &'a str| text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut wanted = Self { names: Vec::new(), are_whole: true, excludes: false, networks: Vec::new() };
        if variable.starts_with("NCCL") {
            // beginnings of names, or whole ones behind `=`; all others behind `^`
            let rest = value.strip_prefix('^').inspect(|_| wanted.excludes = true).unwrap_or(value);
            wanted.are_whole = rest.starts_with('=');
            // what stands behind `:` is a port to NCCL
            let names = split(rest.trim_start_matches('='));
            wanted.names.extend(names.map(|name| name.split_once(':').map_or(name, |(name, _)| name)));
        } else if variable.starts_with("OMPI") || variable.starts_with("PRTE") {
            wanted.excludes = variable.ends_with("_exclude");
            for word in split(value).filter(|word| !word.starts_with('^')) {
                match word.split_once('/') {
                    Some((network, bits)) => {
                        wanted
                            .networks
                            .push((network.parse().ok()?, bits.parse().ok().filter(|bits| *bits <= 32)?));
                    }
                    None => wanted.names.push(word),
                }
            }
        } else {
            // Gloo's and TensorPipe's know no signs
            wanted.names.extend(split(value));
        }
        (!wanted.names.is_empty() || !wanted.networks.is_empty()).then_some(wanted)
    }

    fn names(&self, interface: &str) -> bool {
        let is = |name: &&str| if self.are_whole { interface == *name } else { interface.starts_with(*name) };
        self.names.iter().any(is)
    }

    fn holds(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        self.networks.iter().any(|(network, bits)| {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            u32::from(address) & mask == u32::from(*network) & mask
        })
    }
}

/// A host whose variables are judged.
struct Here<'a> {
    found: &'a Found,
    info: &'a HostInfo,
    own: Option<&'a InterfaceAddress>,
    /// The other hosts.
    others: Vec<&'a HostInfo>,
}

/// An interface and its address, in words.
fn words(one: &InterfaceAddress) -> String {
    format!("{} {}", one.interface, one.address)
}

impl Here<'_> {
    fn address_of(&self, interface: &str) -> Option<IpAddr> {
        let is_of = |one: &&InterfaceAddress| {
            one.interface == interface || without_label(&one.interface) == interface
        };
        self.info.addresses.iter().find(is_of).map(|one| one.address)
    }

    /// The interfaces, and the names of further addresses: `eth0:1`.
    fn names(&self) -> Vec<&str> {
        let of_addresses = self.info.addresses.iter().map(|one| one.interface.as_str());
        let mut names: Vec<&str> =
            self.found.interfaces.iter().map(String::as_str).chain(of_addresses).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Why an interface carries nothing.
    fn down(&self, interface: &str) -> Option<&str> {
        self.found.down.get(without_label(interface)).map(String::as_str)
    }

    fn named(&self, interface: &str) -> String {
        self.address_of(interface)
            .map_or_else(|| interface.to_owned(), |address| format!("{interface} {address}"))
    }

    /// All that is there, in words.
    fn there(&self) -> String {
        self.found.interfaces.iter().map(|name| self.named(name)).collect::<Vec<_>>().join(", ")
    }

    /// Whether an interface leads to this host and what runs on it alone, though there are other hosts.
    fn leads_nowhere(&self, interface: &str) -> bool {
        if self.others.is_empty() {
            return false;
        }
        if interface == "lo" {
            // an address of the network may be routed to it
            return self.address_of("lo").is_none();
        }
        let Some(IpAddr::V4(own)) = self.address_of(interface).filter(|_| is_bridge(interface)) else {
            return false;
        };
        // other hosts may be containers on it
        let is_beside = |other: &InterfaceAddress| match other.address {
            IpAddr::V4(address) => address != own && address.octets()[..2] == own.octets()[..2],
            IpAddr::V6(_) => false,
        };
        !self.others.iter().flat_map(|info| &info.addresses).any(is_beside)
    }

    /// What is wrong with a variable's value here, and the command that helps where it is one.
    fn fault(&self, variable: &str, value: &str) -> Option<(String, Option<String>)> {
        let wanted = Wanted::read(variable, value)?;
        let carries = |name: &&str| self.down(name).is_none();
        let there = self.names();
        let all = there.iter().copied();
        if wanted.excludes {
            let left = all.filter(|name| !wanted.names(name));
            let left =
                left.filter(|name| self.address_of(name).is_some_and(|address| !wanted.holds(address)));
            let left = left.filter(carries).any(|name| !self.leads_nowhere(name));
            let is_known = !self.info.addresses.is_empty();
            return (!left && is_known)
                .then(|| (format!("{variable}={value} leaves no interface by which other hosts are reached; there is {}", self.there()), None));
        }
        let in_networks = self.info.addresses.iter().any(|one| wanted.holds(one.address));
        if in_networks {
            return None;
        }
        if wanted.names.is_empty() {
            return Some((
                format!(
                    "{variable}={value}, and no address of the host is in that network; there is {}",
                    self.there()
                ),
                None,
            ));
        }
        let named: Vec<&str> = all.filter(|name| wanted.names(name)).collect();
        // torch's Gloo takes each of them
        let each = variable.starts_with("GLOO");
        let is_there = |name: &&str| there.contains(name);
        if named.is_empty() || each && !wanted.names.iter().all(is_there) {
            return Some((format!("{variable}={value}, and there is {} alone", self.there()), None));
        }
        let up: Vec<&str> = named.iter().copied().filter(carries).collect();
        if up.is_empty() {
            let (name, why) = named.iter().find_map(|name| Some((without_label(name), self.down(name)?)))?;
            let command = (why == DOWN).then(|| format!("sudo ip link set dev {} up", shell_word(name)));
            return Some((format!("{variable}={value}: {} {why}", self.named(name)), command));
        }
        let is_addressed = |name: &&str| *name == "lo" || self.address_of(name).is_some();
        // what the facts of a host do not tell is not missed
        let is_known = !self.info.addresses.is_empty();
        if is_known && !up.iter().any(is_addressed) {
            return Some((
                format!("{variable}={value}: {} has no address; there is {}", up.join(", "), self.there()),
                None,
            ));
        }
        let nowhere = up.iter().all(|name| self.leads_nowhere(name));
        let first = up.first().filter(|_| nowhere)?;
        Some((
            format!(
                "{variable}={value}: {} leads to this host and what runs on it alone; there is {}",
                self.named(first),
                self.there()
            ),
            None,
        ))
    }
}

fn judge(here: &Here<'_>, given: &BTreeMap<String, String>, all: &Compared<'_>) -> Verdict {
    // what the run itself sets counts before what the host has
    let of_host = here.found.variables.iter().filter(|(name, _)| !given.contains_key(*name));
    let variables = given.iter().map(|one| (one, true)).chain(of_host.map(|one| (one, false)));
    for ((variable, value), is_given) in variables {
        let Some((evidence, command)) = here.fault(variable, value) else { continue };
        let name = here.own.map_or_else(String::new, |own| format!(", such as {}", own.interface));
        let other = if is_given {
            format!(
                "leave {variable} out of the run, so that hvtui names each host's own, or give an interface that all hosts have{name}"
            )
        } else {
            format!(
                "name an interface{name}, or unset {variable} there: grep -sn {} ~/.bashrc ~/.profile /etc/environment \
                 ~/.nccl.conf /etc/nccl.conf ~/.openmpi/mca-params.conf shows where it is set",
                variable.trim_start_matches("OMPI_MCA_")
            )
        };
        let cause = "ranks end at their start (no such interface, \"Unable to find address for\"), or never reach each other";
        let verdict = match command {
            Some(command) => {
                Verdict::bad(evidence, cause, format!("{command}   (or: {other})")).fixed_there(command)
            }
            None => Verdict::bad(evidence, cause, other),
        };
        // what the host has may be of another library than the run's, or not reach its ranks
        return if is_given { verdict } else { verdict.may_run() };
    }
    let of_mpi = of_open_mpi(here, given);
    if let Some(verdict) = of_mpi.clone().filter(|verdict| verdict.mark == Mark::Bad) {
        return verdict;
    }
    let Some(own) = here.own else { return no_address(here) };
    let seen = words(own);
    if let Some(why) = here.down(&own.interface) {
        let command = format!("sudo ip link set dev {} up", shell_word(&own.interface));
        let cause = "no other host reaches this one by it";
        // which interface it is is a guess where ssh came by none of them
        return if why == DOWN {
            Verdict::bad(format!("{seen} {why}"), cause, command.clone()).fixed_there(command).may_run()
        } else {
            let remedy = "look at its cable, its switch and its driver: dmesg | tail there";
            Verdict::bad(format!("{seen} {why}"), cause, remedy).may_run()
        };
    }
    match all.difference(without_label(&own.interface)) {
        None => of_mpi.unwrap_or_else(|| Verdict::good(seen)),
        Some(difference) => Verdict::look(
            format!("{seen}; {difference}"),
            "one interface name for all hosts (--network-interface, NCCL_SOCKET_IFNAME) fails on some of them",
            "interface = \"…\" of each host in hosts.toml: hvtui then tells each rank its own host's",
        ),
    }
}

/// Of the two lists of Open MPI, of which it takes one.
fn of_open_mpi(here: &Here<'_>, given: &BTreeMap<String, String>) -> Option<Verdict> {
    let value = |name: &str| given.get(name).or_else(|| here.found.variables.get(name));
    let excluded = value(EXCLUDE)?;
    if let Some(included) = value(INCLUDE) {
        let verdict = Verdict::bad(
            format!("{INCLUDE}={included} and {EXCLUDE}={excluded}"),
            "Open MPI takes one of them alone: mpirun's ranks end in MPI_Init",
            "leave one of them out: grep -rn btl_tcp_if ~/.bashrc ~/.profile /etc/environment there shows where they are set",
        );
        // ranks that load no Open MPI, or reach each other by UCX, do without
        return Some(verdict.may_run());
    }
    // set, it takes the place of Open MPI's own list, which is that of loopback
    let names_loopback = excluded.split(',').map(str::trim).any(|one| one == "lo" || one.starts_with("127."));
    (!names_loopback && !here.others.is_empty()).then(|| {
        Verdict::look(
            format!("{EXCLUDE}={excluded} leaves loopback in"),
            "it takes the place of Open MPI's own list: ranks tell other hosts 127.0.0.1, and hang when they send",
            format!("{EXCLUDE}={excluded},lo"),
        )
    })
}

const INCLUDE: &str = "OMPI_MCA_btl_tcp_if_include";
const EXCLUDE: &str = "OMPI_MCA_btl_tcp_if_exclude";

/// What NCCL's and Open MPI's own files say of a variable, which count where it is not set: a person's before the host's.
fn of_file(name: &str) -> Option<String> {
    if let Some(parameter) = name.strip_prefix("OMPI_MCA_") {
        let files = [home().join(".openmpi/mca-params.conf"), "/etc/openmpi/openmpi-mca-params.conf".into()];
        return files.iter().find_map(|path| in_params(&std::fs::read_to_string(path).ok()?, parameter));
    }
    let own = std::env::var_os("NCCL_CONF_FILE").map_or_else(|| home().join(".nccl.conf"), PathBuf::from);
    let value = |path: PathBuf| in_conf(&std::fs::read_to_string(path).ok()?, name);
    let files = [own, PathBuf::from("/etc/nccl.conf")].into_iter();
    files.filter(|_| name.starts_with("NCCL_")).find_map(value)
}

/// The value of a parameter in a file of Open MPI's, where the last counts.
fn in_params(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut values = lines.filter_map(|line| line.split_once('=')).filter(|(one, _)| one.trim() == name);
    values.next_back().map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The value of a variable in a file of NCCL's.
fn in_conf(text: &str, name: &str) -> Option<String> {
    // NCCL takes the first, and a name as it stands
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut values = lines.filter_map(|line| line.split_once('=')).filter(|(one, _)| *one == name);
    values.next().map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Of a host without an address that other hosts could reach.
fn no_address(here: &Here<'_>) -> Verdict {
    let bridge = here.info.addresses.iter().find(|one| is_bridge(&one.interface));
    let Some(bridge) = bridge.filter(|_| here.info.addresses.iter().all(|one| is_bridge(&one.interface)))
    else {
        return Verdict::unknown("no address that other hosts could reach");
    };
    if !here.others.is_empty() && !here.leads_nowhere(&bridge.interface) {
        return Verdict::good(words(bridge));
    }
    let seen = format!("no address but {}, which leads to this host's own containers alone", words(bridge));
    if here.others.is_empty() {
        return Verdict::unknown(seen);
    }
    Verdict::bad(
        seen,
        "no other host reaches this one: ranks on several hosts can't connect to each other",
        "give it an address in the network of the other hosts: ip -4 addr shows what there is, ip link which interfaces are down",
    )
    .may_run()
}

#[cfg(test)]
#[path = "interface_tests.rs"]
mod tests;
