//! Whether each host reaches each other one by TCP, on a port as ranks use them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::clock;
use crate::domain::doctor::{Peer, Verdict};
use crate::domain::ids::HostId;

pub(in crate::doctor) struct Reach;

/// A port of the kind that ranks listen on. Nothing need listen there: a refusal has come the whole way too.
const HIGH: u16 = 29_500;
/// The one of ssh where the hosts file says no other.
const SSH: u16 = 22;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Addresses of one host, and connections at a time.
const ADDRESSES: usize = 4;
const AT_ONCE: usize = 200;

/// What came of the ways to one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Way {
    host: HostId,
    address: IpAddr,
    /// Round trip to the high port, microseconds; absent where no answer came.
    high_us: Option<u64>,
    /// Why none came.
    why: Option<String>,
    /// Whether the port of ssh answers.
    ssh: bool,
    /// Which one that is.
    #[serde(default = "usual_port")]
    ssh_port: u16,
}

fn usual_port() -> u16 {
    SSH
}

impl Check for Reach {
    const NAME: &'static str = "reach";
    const ASKS: &'static str = "does each host reach each other one on the ports that ranks use";
    const MEETS_OTHERS: bool = true;
    type Found = Vec<Way>;

    fn look(site: &Site) -> Result<Vec<Way>, String> {
        let mut wanted = Vec::new();
        for Peer { host, addresses, port, .. } in &site.peers {
            for address in addresses.iter().take(ADDRESSES) {
                wanted.push((host.clone(), *address, port.unwrap_or(SSH)));
            }
        }
        let mut ways = Vec::new();
        for some in wanted.chunks(AT_ONCE / 2) {
            let targets: Vec<SocketAddr> = some
                .iter()
                .flat_map(|(_, at, ssh)| [SocketAddr::new(*at, HIGH), SocketAddr::new(*at, *ssh)])
                .collect();
            let answers = knock(&targets);
            for ((host, address, ssh_port), pair) in some.iter().zip(answers.chunks(2)) {
                let [high, ssh] = pair else { continue };
                ways.push(Way {
                    host: host.clone(),
                    address: *address,
                    high_us: high.as_ref().ok().copied(),
                    why: high.as_ref().err().cloned(),
                    ssh: ssh.is_ok(),
                    ssh_port: *ssh_port,
                });
            }
        }
        Ok(ways)
    }

    fn judge(seen: &[Seen<'_, Vec<Way>>]) -> Vec<Verdict> {
        // no host has more hosts beside it than it was told of
        let most = seen.len() * ADDRESSES;
        seen.iter().map(|one| judge(one.found.get(..most).unwrap_or(&one.found))).collect()
    }
}

/// Which addresses of hosts others may reach: those that more than one host has, such as docker0's, lead nowhere.
pub(in crate::doctor) fn addresses<'a>(
    hosts: impl Iterator<Item = (&'a HostId, &'a [IpAddr])> + Clone,
) -> Vec<Peer> {
    let mut holders: BTreeMap<IpAddr, BTreeSet<&HostId>> = BTreeMap::new();
    for (host, all) in hosts.clone() {
        for address in all {
            holders.entry(*address).or_default().insert(host);
        }
    }
    let own = |address: &&IpAddr| holders.get(address).is_some_and(|hosts| hosts.len() == 1);
    let peer = |(host, all): (&HostId, &[IpAddr])| Peer {
        host: host.clone(),
        addresses: all.iter().filter(own).copied().collect(),
        user: None,
        port: None,
    };
    hosts.map(peer).collect()
}

/// Connects to all of these at once: the time until each has answered, microseconds, or why none came.
fn knock(targets: &[SocketAddr]) -> Vec<Result<u64, String>> {
    let words = |error: Errno| crate::domain::text::os_text(&error.into());
    let begun = clock::host_now().0;
    let mut answers: Vec<Option<Result<u64, String>>> = vec![None; targets.len()];
    let mut open: Vec<(usize, OwnedFd)> = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let begun = socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
            match connect(&socket, target) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error),
            }
        });
        match begun {
            Ok(socket) => open.push((at, socket)),
            Err(Errno::CONNREFUSED) => answers[at] = Some(Ok(0)),
            Err(error) => answers[at] = Some(Err(words(error))),
        }
    }
    let mut is_late = false;
    while !open.is_empty() && !is_late {
        let gone = clock::host_now().0.saturating_sub(begun);
        let left = PATIENCE.saturating_sub(Duration::from_micros(gone));
        // a last look: what came while this process had no processor has come
        is_late = left.is_zero();
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::OUT)).collect();
        let Ok(left) = Timespec::try_from(left) else { break };
        if !matches!(poll(&mut polled, Some(&left)), Ok(1..)) {
            continue;
        }
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        let took = clock::host_now().0.saturating_sub(begun);
        let mut ready = ready.into_iter();
        open.retain(|(at, socket)| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            answers[*at] = Some(match sockopt::socket_error(socket) {
                Ok(Ok(()) | Err(Errno::CONNREFUSED)) => Ok(took),
                Ok(Err(error)) | Err(error) => Err(words(error)),
            });
            false
        });
    }
    let late = || Err(format!("no answer in {:.1} s", PATIENCE.as_secs_f64()));
    answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect()
}

fn judge(ways: &[Way]) -> Verdict {
    let hosts: BTreeSet<&HostId> = ways.iter().map(|way| &way.host).collect();
    if hosts.is_empty() {
        return Verdict::unknown("no other host is reached");
    }
    let of = |host: &HostId| ways.iter().filter(|way| way.host == *host).collect::<Vec<_>>();
    let mut filtered = Vec::new();
    let mut lost = Vec::new();
    let mut slowest = 0;
    for host in &hosts {
        let ways = of(host);
        if let Some(best) = ways.iter().filter_map(|way| way.high_us).min() {
            slowest = slowest.max(best);
            continue;
        }
        let Some(first) = ways.first() else { continue };
        match ways.iter().find(|way| way.ssh) {
            Some(way) => filtered.push((*host, way.address, way.ssh_port)),
            None => lost.push((*host, first.address, first.why.clone().unwrap_or_default())),
        }
    }
    let joined = |all: Vec<String>| all.join(", ");
    if !filtered.is_empty() {
        let seen = filtered.iter().map(|(host, at, _)| format!("{host} ({at})")).collect();
        let first = filtered[0].1;
        let ports: BTreeSet<String> = filtered.iter().map(|(.., port)| port.to_string()).collect();
        let ports = ports.into_iter().collect::<Vec<_>>().join(", ");
        return Verdict::bad(
            format!("port {HIGH} gets no answer from {}, port {ports} does", joined(seen)),
            "a firewall drops what ranks say to each other: the run hangs when they connect",
            format!(
                "there: sudo ufw allow from <this host>   (or firewall-cmd/iptables); then: nc -vz {first} {HIGH}"
            ),
        );
    }
    if !lost.is_empty() {
        let seen = lost.iter().map(|(host, at, why)| format!("{host} at {at}: {why}")).collect();
        return Verdict::bad(
            format!("does not reach {}", joined(seen)),
            "ranks on these hosts can't connect to each other: the run hangs at its start",
            format!("ip route get {}; give the network that both have as interface in hosts.toml", lost[0].1),
        );
    }
    let count = hosts.len();
    Verdict::good(format!(
        "{count} other host{} in {:.1} ms at most",
        if count == 1 { "" } else { "s" },
        slowest as f64 / 1e3
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    fn way(host: &str, address: &str, high_us: Option<u64>, ssh: bool) -> Way {
        let why = high_us.is_none().then(|| "no answer in 1.5 s".to_owned());
        Way { host: HostId::from(host), address: address.parse().unwrap(), high_us, why, ssh, ssh_port: SSH }
    }

    #[test]
    fn one_way_to_each_host_is_enough() {
        let ways = [way("b", "10.0.0.2", Some(200), true), way("b", "192.168.7.2", None, false)];
        let verdict = judge(&ways);
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Good, "1 other host in 0.2 ms at most"));
        let filtered = judge(&[way("b", "10.0.0.2", None, true)]);
        assert!(filtered.mark == Mark::Bad && filtered.evidence.contains("port 22 does"), "{filtered:?}");
        let other = judge(&[Way { ssh_port: 2222, ..way("b", "10.0.0.2", None, true) }]);
        assert!(other.evidence.ends_with("port 2222 does"), "{other:?}");
        let lost = judge(&[way("b", "10.0.0.2", None, false)]);
        assert_eq!(lost.evidence, "does not reach b at 10.0.0.2: no answer in 1.5 s");
        assert_eq!(judge(&[]).mark, Mark::Unknown);
    }

    #[test]
    fn an_address_that_two_hosts_have_leads_nowhere() {
        let docker: IpAddr = "172.17.0.1".parse().unwrap();
        let (a, b) = (HostId::from("a"), HostId::from("b"));
        let (of_a, of_b) = ([docker, "10.0.0.1".parse().unwrap()], [docker, "10.0.0.2".parse().unwrap()]);
        let found = addresses([(&a, &of_a[..]), (&b, &of_b[..])].into_iter());
        let peer = |host: &HostId, addresses: &[IpAddr]| Peer {
            host: host.clone(),
            addresses: addresses.to_vec(),
            user: None,
            port: None,
        };
        assert_eq!(found, [peer(&a, &of_a[1..]), peer(&b, &of_b[1..])]);
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(knock(&[SocketAddr::from(([127, 0, 0, 1], port))])[0].is_ok(), "nothing listens there");
        let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(knock(&[open.local_addr().unwrap()])[0].is_ok());
    }
}
