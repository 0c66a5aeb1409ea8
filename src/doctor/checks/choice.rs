//! Which interface and address Gloo, NCCL and Open MPI take on a host where nothing names one to them, and whether other hosts reach
//! it there. The rules are those of the libraries' own sources:
//!
//! - Gloo (torch's `ProcessGroupGloo.cpp`, Gloo's `transport/tcp/device.cc`): the first address of the host's own name on which it
//!   can listen; torch takes 127.0.0.1 where there is none.
//! - NCCL (`src/misc/socket.cc`): interfaces that run, by the beginnings of their names: all of `ib`, else all but `docker`, `lo` and
//!   `virbr`, else those in this order. All of them carry data; by the first one ranks find each other.
//! - Open MPI (`btl_tcp_component.c`, `if_posix.c`): each interface that is up, even without a carrier, but loopback.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use super::interface::{self, DOWN};
use crate::domain::doctor::Verdict;
use crate::domain::host::{HostInfo, InterfaceAddress};
use crate::domain::ids::HostId;
use crate::domain::told_address::is_of_several;

pub(in crate::doctor) struct Choice;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The variables and settings that name interfaces.
    named: BTreeMap<String, String>,
    /// The host's own name, and the first address of it on which can be listened.
    name: String,
    address: Option<IpAddr>,
    /// Those that carry nothing, and why: `is down`.
    down: BTreeMap<String, String>,
    /// Whether Open MPI is installed.
    has_open_mpi: bool,
}

impl Check for Choice {
    const NAME: &'static str = "choice";
    const ASKS: &'static str = "which interface and address do Gloo, NCCL and Open MPI take where nothing names one, and do others reach it";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let links = interface::links(site).or_else(interface::by_files).unwrap_or_default();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let addresses = (name.as_str(), 0).to_socket_addrs().into_iter().flatten();
        // as Gloo tries them, for a moment and on a port that the kernel gives
        let address = addresses.map(|one| one.ip()).find(|one| TcpListener::bind((*one, 0)).is_ok());
        Ok(Found {
            named: interface::named(site),
            address,
            down: links.into_iter().filter_map(|link| Some((link.name, link.down?.to_owned()))).collect(),
            has_open_mpi: site.program("ompi_info").is_some(),
            name,
        })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let hosts: Vec<(&HostId, &HostInfo)> = seen.iter().map(|one| (one.host, one.info)).collect();
        seen.iter()
            .map(|one| Here { found: &one.found, host: one.host, info: one.info, hosts: &hosts }.judge())
            .collect()
    }
}

/// What a library takes on a host.
struct Taken {
    library: &'static str,
    /// In words.
    what: String,
    /// Why other hosts can't use it.
    fault: Option<Fault>,
}

struct Fault {
    why: String,
    cause: &'static str,
    remedy: String,
    /// The remedy as a command on the host, where it is one.
    command: Option<String>,
}

/// A host that is judged beside the others.
struct Here<'a> {
    found: &'a Found,
    host: &'a HostId,
    info: &'a HostInfo,
    hosts: &'a [(&'a HostId, &'a HostInfo)],
}

impl Here<'_> {
    fn judge(&self) -> Verdict {
        let taken: Vec<Taken> = [self.gloo(), self.nccl(), self.open_mpi()].into_iter().flatten().collect();
        let what: Vec<String> =
            taken.iter().map(|one| format!("{} takes {}", one.library, one.what)).collect();
        if what.is_empty() {
            return Verdict::good("what they take is named to them: see interface");
        }
        let mut faults = taken.iter().filter_map(|one| Some((one, one.fault.as_ref()?))).peekable();
        // ranks of one host reach each other by any of them
        if faults.peek().is_none() || self.others().next().is_none() {
            return Verdict::good(what.join("; "));
        }
        let (mut evidence, mut remedies, mut commands) = (Vec::new(), Vec::new(), Vec::new());
        let mut cause = "";
        for (one, fault) in faults {
            evidence.push(format!("{} takes {}: {}", one.library, one.what, fault.why));
            cause = if cause.is_empty() { fault.cause } else { cause };
            remedies.push(fault.remedy.clone());
            commands.extend(fault.command.clone());
        }
        let cause = format!("{cause}. The runs that hvtui starts are told an interface");
        let verdict = Verdict::look(evidence.join("; "), cause, remedies.join("; "));
        if commands.is_empty() { verdict } else { verdict.fixed_there(commands.join(" && ")) }
    }

    /// The other machines: several hosts of the file may be one.
    fn others(&self) -> impl Iterator<Item = &(&HostId, &HostInfo)> {
        let is_other = |(host, info): &&(&HostId, &HostInfo)| {
            *host != self.host && (info.boot_id != self.info.boot_id || info.addresses != self.info.addresses)
        };
        self.hosts.iter().filter(is_other)
    }

    fn is_named(&self, variables: &[&str]) -> bool {
        variables.iter().any(|name| self.found.named.contains_key(*name))
    }

    fn down(&self, interface: &str) -> Option<&str> {
        self.found.down.get(bare(interface)).map(String::as_str)
    }

    /// The interface that other hosts reach, as a remedy names it.
    fn own(&self) -> String {
        let is_down = |name: &str| self.down(name).is_some();
        let holders = interface::holders(self.hosts.iter().map(|(_, info)| *info));
        let own = interface::first(self.info, &holders, is_down);
        own.map_or_else(|| "INTERFACE".to_owned(), |own| bare(&own.interface).to_owned())
    }

    /// Which other hosts have an address that this one has, too.
    fn shared(&self, address: IpAddr) -> Option<String> {
        let IpAddr::V4(v4) = address else { return None };
        if !is_of_several(v4, self.hosts) {
            return None;
        }
        let mut others =
            self.others().filter(|(_, info)| info.addresses.iter().any(|one| one.address == address));
        let first = others.next()?.0;
        let more = others.count();
        let whose = if more == 0 { format!("{first} has") } else { format!("{first} and {more} more have") };
        Some(format!("{whose} {address}, too, and reaches itself by it"))
    }

    fn gloo(&self) -> Option<Taken> {
        let library = "Gloo";
        if self.is_named(&["GLOO_SOCKET_IFNAME"]) {
            return None;
        }
        let name = &self.found.name;
        let own = self.own();
        let remedy = format!(
            "for Gloo: GLOO_SOCKET_IFNAME={own} (Horovod: HOROVOD_GLOO_IFACE={own}), or give {name} its address in /etc/hosts: hvtui doctor \
             --only hostname"
        );
        let cause = "torch with the backend gloo, and Horovod, connect to that address, and end with \"Connection refused\" or wait";
        let fault = |why: String| Some(Fault { why, cause, remedy: remedy.clone(), command: None });
        let Some(address) = self.found.address else {
            let why = format!("{name} has no address on which the host can listen");
            return Some(Taken { library, what: "127.0.0.1".to_owned(), fault: fault(why) });
        };
        let interface = self.info.addresses.iter().find(|one| one.address == address);
        let place = interface.map_or_else(String::new, |one| format!("{} ", one.interface));
        let what = format!("{place}{address}, as {name} is called there");
        let carried =
            || interface.and_then(|one| Some(format!("{} {}", one.interface, self.down(&one.interface)?)));
        let why = if address.is_loopback() {
            Some("no other host reaches it".to_owned())
        } else {
            self.shared(address).or_else(carried)
        };
        Some(Taken { library, what, fault: why.and_then(fault) })
    }

    fn nccl(&self) -> Option<Taken> {
        if self.is_named(&["NCCL_SOCKET_IFNAME"]) || self.info.gpus.is_empty() {
            return None;
        }
        let taken = nccl_takes(self.info.addresses.iter().filter(|one| self.down(&one.interface).is_none()));
        let bad = taken.iter().find_map(|one| self.shared(one.address));
        let own = self.own();
        let fault = bad.map(|why| Fault {
            why,
            cause: "ranks with NCCL connect to themselves, and hang or end with \"unhandled system error\"",
            remedy: format!("for NCCL: NCCL_SOCKET_IFNAME=={own}, such as in ~/.nccl.conf"),
            command: Some(format!(
                "printf '\\nNCCL_SOCKET_IFNAME=%s\\n' {} >> ~/.nccl.conf",
                shell_word(&format!("={own}"))
            )),
        });
        Some(Taken { library: "NCCL", what: words(&taken), fault })
    }

    fn open_mpi(&self) -> Option<Taken> {
        if !self.found.has_open_mpi
            || self.is_named(&["OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"])
        {
            return None;
        }
        let is_up = |one: &&InterfaceAddress| self.down(&one.interface) != Some(DOWN);
        let taken: Vec<&InterfaceAddress> =
            self.info.addresses.iter().filter(|one| one.address.is_ipv4()).filter(is_up).collect();
        let bad = taken.iter().find_map(|one| self.shared(one.address));
        let own = self.own();
        let fault = bad.map(|why| Fault {
            why,
            cause: "ranks of mpirun connect to themselves, and hang when they first send",
            remedy: format!("for Open MPI: mpirun --mca btl_tcp_if_include {own}, or so in ~/.openmpi/mca-params.conf"),
            command: Some(format!(
                "mkdir -p ~/.openmpi && printf '\\nbtl_tcp_if_include = %s\\n' {} >> ~/.openmpi/mca-params.conf",
                shell_word(&own)
            )),
        });
        Some(Taken { library: "Open MPI", what: words(&taken), fault })
    }
}

/// Without the name of a further address: of `eth0:1`, `eth0`.
fn bare(interface: &str) -> &str {
    interface.split_once(':').map_or(interface, |(name, _)| name)
}

fn words(taken: &[&InterfaceAddress]) -> String {
    let words: Vec<String> = taken.iter().map(|one| format!("{} {}", one.interface, one.address)).collect();
    if words.is_empty() { "no interface".to_owned() } else { words.join(", ") }
}

/// Of the interfaces that run, in the kernel's order, those that NCCL takes: the first address of each.
fn nccl_takes<'a>(running: impl Iterator<Item = &'a InterfaceAddress>) -> Vec<&'a InterfaceAddress> {
    let running: Vec<&InterfaceAddress> = running.collect();
    let others = ["docker", "lo", "virbr"];
    let by = |is_wanted: &dyn Fn(&str) -> bool| {
        let mut taken: Vec<&InterfaceAddress> = Vec::new();
        for one in running.iter().filter(|one| is_wanted(&one.interface)) {
            if taken.iter().all(|known| known.interface != one.interface) {
                taken.push(one);
            }
        }
        taken
    };
    let all_but = by(&|name| !others.iter().any(|other| name.starts_with(other)));
    let ways = [by(&|name| name.starts_with("ib")), all_but];
    let rest = others.iter().map(|other| by(&|name| name.starts_with(other)));
    ways.into_iter().chain(rest).find(|taken| !taken.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{info_with, seen_with};
    use crate::domain::preflight::Mark;

    const DOCKER: (&str, &str) = ("docker0", "172.17.0.1");

    fn host(boot: &str, addresses: &[(&str, &str)], found: Found) -> (HostInfo, Found) {
        (HostInfo { boot_id: boot.to_owned(), ..info_with(addresses) }, found)
    }

    fn found(address: &str, has_open_mpi: bool) -> Found {
        Found { name: "a".to_owned(), address: address.parse().ok(), has_open_mpi, ..Found::default() }
    }

    /// The verdict on the first of two hosts.
    fn first(own: Found, addresses: &[(&str, &str)]) -> Verdict {
        let one = [&[("eth0", "10.0.0.1")][..], addresses].concat();
        let other = [&[("eth0", "10.0.0.2")][..], addresses].concat();
        Choice::judge(&seen_with([host("a", &one, own.clone()), host("b", &other, own)])).remove(0)
    }

    #[test]
    fn what_each_takes_is_told() {
        let plain = first(found("10.0.0.1", true), &[]);
        let words = "Gloo takes eth0 10.0.0.1, as a is called there; Open MPI takes eth0 10.0.0.1";
        assert_eq!((plain.mark, plain.evidence.as_str()), (Mark::Good, words));
    }

    #[test]
    fn an_address_that_others_have_and_one_of_loopback_are_yellow() {
        let mpi = first(found("10.0.0.1", true), &[DOCKER]);
        assert_eq!(
            (mpi.mark, mpi.evidence.as_str()),
            (
                Mark::Look,
                "Open MPI takes eth0 10.0.0.1, docker0 172.17.0.1: host-1 has 172.17.0.1, too, and reaches itself by it"
            )
        );
        let command = "mkdir -p ~/.openmpi && printf '\\nbtl_tcp_if_include = %s\\n' eth0 >> ~/.openmpi/mca-params.conf";
        assert_eq!(mpi.help().as_deref(), Some(command));
        // without a carrier it is taken all the same, but not where it is down
        let down = |why: &str| {
            let down = [("docker0".to_owned(), why.to_owned())].into();
            first(Found { down, ..found("10.0.0.1", true) }, &[DOCKER]).mark
        };
        assert_eq!((down("has no carrier"), down(DOWN)), (Mark::Look, Mark::Good));
        let named = [("OMPI_MCA_btl_tcp_if_include".to_owned(), "eth0".to_owned())].into();
        assert_eq!(first(Found { named, ..found("10.0.0.1", true) }, &[DOCKER]).mark, Mark::Good);
        let debians = first(found("127.0.1.1", false), &[]);
        assert!(
            debians.mark == Mark::Look && debians.evidence.ends_with(": no other host reaches it"),
            "{debians:?}"
        );
        assert!(debians.remedy.unwrap().contains("GLOO_SOCKET_IFNAME=eth0"));
        let unknown = first(found("", false), &[]);
        assert!(unknown.evidence.starts_with("Gloo takes 127.0.0.1: a has no address"), "{unknown:?}");
        assert_eq!(first(found("172.17.0.1", false), &[DOCKER]).mark, Mark::Look);
        let alone = Choice::judge(&seen_with([host("a", &[DOCKER], found("127.0.1.1", true))])).remove(0);
        assert_eq!(alone.mark, Mark::Good, "nothing has to reach it");
    }

    #[test]
    fn nccl_takes_by_the_beginnings_of_names() {
        let takes = |names: &[(&str, &str)]| {
            let info = info_with(names);
            nccl_takes(info.addresses.iter()).iter().map(|one| one.interface.clone()).collect::<Vec<_>>()
        };
        let eth = ("eth0", "10.0.0.1");
        assert_eq!(
            takes(&[DOCKER, eth, ("eth1", "10.1.0.1"), ("virbr0", "192.168.122.1")]),
            ["eth0", "eth1"]
        );
        assert_eq!(takes(&[eth, ("ib0", "10.2.0.1"), ("ib0", "fd00::1")]), ["ib0"]);
        assert_eq!(takes(&[DOCKER, ("virbr0", "192.168.122.1")]), ["docker0"]);
        assert_eq!(takes(&[]), [""; 0]);
    }
}
