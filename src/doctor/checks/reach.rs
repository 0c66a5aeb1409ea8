//! Whether each host reaches each other one by TCP, on ports as ranks use them: one on which the other listens just now, so that a
//! firewall that refuses is told apart from a port that nothing has, the one that torch takes unless told another, and those that a
//! launch takes there.

mod bulk;
mod knock;
mod pace;
mod wall;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::knock::{Answer, knock};
use self::wall::Wall;
use super::super::{Check, Seen, Site};
use crate::clock;
use crate::domain::doctor::{Fix, Peer, Verdict};
use crate::domain::ids::HostId;
use crate::domain::units::{counted, short_duration_us};

pub(in crate::doctor) struct Reach;

/// Torch's `MASTER_PORT`. Nothing need listen there: what its host says of the other port says whether a refusal is its own.
const USUAL: u16 = 29_500;
/// The one of ssh where no other is known.
const SSH: u16 = 22;
/// Who is let in, where that is not known.
const UNKNOWN: &str = "THIS_HOST";
/// Addresses of one host, and of those that are knocked at at a time.
const ADDRESSES: usize = 4;
const AT_ONCE: usize = 200;
/// How long all of them may take.
const ALL: Duration = Duration::from_millis(3200);
/// How long all that is looked at may take, what is looked at more closely, and how often that is.
const WHOLE: Duration = Duration::from_millis(3700);
const CLOSER: Duration = Duration::from_millis(800);
const AGAIN: usize = 3;

/// What came of the ways to one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Way {
    host: HostId,
    address: IpAddr,
    /// By which address of this host.
    #[serde(default)]
    from: Option<IpAddr>,
    /// What came from [`USUAL`]; absent where it was not waited for.
    usual: Option<Answer>,
    /// What came from the port on which it listens; absent where it does not.
    #[serde(default)]
    door: Option<Answer>,
    /// What came from the port of ssh, where that was tried, and which one that is.
    #[serde(default)]
    ssh: Option<(u16, Answer)>,
    /// What came from the ports that a launch takes there.
    #[serde(default)]
    run: Vec<(u16, Answer)>,
    /// Whether packets of full size come through where small ones do; absent where that is not known.
    #[serde(default)]
    large: Option<bool>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    ways: Vec<Way>,
    /// What keeps others out of this host.
    wall: Wall,
}

impl Check for Reach {
    const NAME: &'static str = "reach";
    const ASKS: &'static str = "does each host reach each other one on the ports that ranks use";
    const MEETS_OTHERS: bool = true;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let begun = clock::host_now().0;
        let of_peer = |peer: &'_ Peer| {
            let addresses: Vec<IpAddr> = peer.addresses.iter().take(ADDRESSES).copied().collect();
            (peer.clone(), addresses)
        };
        let wanted: Vec<(Peer, Vec<IpAddr>)> = site.peers.iter().map(of_peer).collect();
        let each: Vec<(&Peer, IpAddr)> = wanted
            .iter()
            .flat_map(|(peer, addresses)| addresses.iter().map(move |address| (peer, *address)))
            .collect();
        // the more ports each has, the fewer at a time
        let most = site.peers.iter().map(|peer| peer.ports.len()).max().unwrap_or_default();
        let at_once = (2 * AT_ONCE / (2 + most)).max(1);
        // of each the ports of ranks, and then perhaps that of ssh: together in less time than the check has
        let rounds = u32::try_from(2 * each.len().div_ceil(at_once)).unwrap_or(u32::MAX).max(1);
        let patience = knock::PATIENCE.min(ALL / rounds);
        let mut ways: Vec<Way> = Vec::with_capacity(each.len());
        for some in each.chunks(at_once) {
            ways.extend(ways_to(some, patience)?);
        }
        // ssh says whether it is the host that is not reached, or its ports
        let reached: BTreeSet<HostId> =
            ways.iter().filter(|way| is_open(way)).map(|way| way.host.clone()).collect();
        let ports: BTreeMap<&HostId, u16> =
            site.peers.iter().map(|peer| (&peer.host, peer.port.unwrap_or(SSH))).collect();
        let port = |way: &Way| ports.get(&way.host).copied().unwrap_or(SSH);
        let mut others: Vec<&mut Way> = ways.iter_mut().filter(|way| !reached.contains(&way.host)).collect();
        for some in others.chunks_mut(AT_ONCE) {
            let targets: Vec<SocketAddr> =
                some.iter().map(|way| SocketAddr::new(way.address, port(way))).collect();
            let told = knock(&targets, patience, |_| false)?;
            for (way, answer) in some.iter_mut().zip(told.answers) {
                way.ssh = Some((port(way), answer.unwrap_or(Answer::Silent)));
            }
        }
        look_closer(&mut ways, &site.peers, begun)?;
        Ok(Found { ways, wall: Wall::here() })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        // no host has more hosts beside it than it was told of
        let most = seen.len() * ADDRESSES;
        let ways = |one: &'_ Found| one.ways.get(..most).unwrap_or(&one.ways).to_vec();
        let ways: Vec<Vec<Way>> = seen.iter().map(|one| ways(&one.found)).collect();
        let walls = seen.iter().map(|one| (one.host, &one.found.wall)).collect();
        let all = All { walls, ways: &ways, usual: pace::usual(&ways) };
        ways.iter().map(|own| all.judge(own)).collect()
    }
}

/// Of one open way to each host: whether large packets come through, and how quick it is where it was not quick at once. For that the
/// time that is left is taken, or none.
fn look_closer(ways: &mut [Way], peers: &[Peer], begun: u64) -> Result<(), String> {
    let left = || {
        let gone = Duration::from_micros(clock::host_now().0.saturating_sub(begun));
        WHOLE.saturating_sub(gone)
    };
    let doors: BTreeMap<&HostId, u16> =
        peers.iter().filter_map(|peer| Some((&peer.host, peer.door?))).collect();
    let mut firsts = BTreeSet::new();
    let mut open: Vec<(&mut Way, SocketAddr)> = Vec::new();
    for way in ways.iter_mut().filter(|way| is_open(way)) {
        if let Some(port) = doors.get(&way.host)
            && firsts.insert(way.host.clone())
        {
            let door = SocketAddr::new(way.address, *port);
            open.push((way, door));
        }
    }
    if left() < CLOSER / 2 {
        return Ok(());
    }
    for some in open.chunks_mut(AT_ONCE) {
        large_passes(&mut some.iter_mut().collect::<Vec<_>>(), left().min(CLOSER));
    }
    // of a line that is full what is large comes late, and so it does to a host without a processor: a second look decides
    let mut lost: Vec<&mut (&mut Way, SocketAddr)> =
        open.iter_mut().filter(|(way, _)| way.large == Some(false)).take(AT_ONCE).collect();
    if left() < CLOSER {
        for (way, _) in &mut lost {
            way.large = None;
        }
    } else {
        large_passes(&mut lost, CLOSER);
    }
    // what looked slow may have been this host's own processor
    let is_slow = |way: &Way| quickest(way).is_some_and(|micros| micros > pace::SLOW);
    let mut slow: Vec<_> = open.iter_mut().filter(|(way, _)| is_slow(way)).collect();
    for _ in 0..AGAIN {
        let targets: Vec<SocketAddr> = slow.iter().map(|(_, door)| *door).take(AT_ONCE).collect();
        if targets.is_empty() || left() < CLOSER / 2 {
            break;
        }
        let told = knock(&targets, left().min(CLOSER), |_| false)?;
        for ((way, _), answer) in slow.iter_mut().zip(told.answers) {
            if let Some(Answer::Open(micros)) = answer
                && quickest(way).is_none_or(|before| micros < before)
            {
                way.door = Some(Answer::Open(micros));
            }
        }
    }
    Ok(())
}

fn large_passes(some: &mut [&mut (&mut Way, SocketAddr)], patience: Duration) {
    let targets: Vec<SocketAddr> = some.iter().map(|(_, door)| *door).collect();
    for ((way, _), large) in some.iter_mut().map(|one| &mut **one).zip(bulk::large_passes(&targets, patience))
    {
        way.large = large;
    }
}

/// Which targets belong to one way.
struct Places<'a> {
    host: &'a HostId,
    usual: usize,
    door: Option<usize>,
    run: Vec<(u16, usize)>,
}

/// Knocks at the port of torch, at the one on which each listens, and at those of a launch. Who is open by one address is not waited
/// for at the others.
fn ways_to(some: &[(&Peer, IpAddr)], patience: Duration) -> Result<Vec<Way>, String> {
    let mut targets = Vec::new();
    let mut places = Vec::new();
    for (peer, address) in some {
        let usual = targets.len();
        targets.push(SocketAddr::new(*address, USUAL));
        let door = peer.door.map(|port| {
            targets.push(SocketAddr::new(*address, port));
            targets.len() - 1
        });
        let mut run = Vec::new();
        for port in &peer.ports {
            targets.push(SocketAddr::new(*address, *port));
            run.push((*port, targets.len() - 1));
        }
        places.push(Places { host: &peer.host, usual, door, run });
    }
    let is_enough = |answers: &[Option<Answer>]| {
        let mut open = BTreeSet::new();
        let mut hosts = BTreeSet::new();
        for Places { host, usual, door, run } in &places {
            hosts.insert(*host);
            let is_open = |answer: &Option<Answer>| matches!(answer, Some(Answer::Open(_)));
            let is_told = answers[*usual].is_some() && run.iter().all(|(_, at)| answers[*at].is_some());
            if is_told && door.is_some_and(|door| is_open(&answers[door])) {
                open.insert(*host);
            }
        }
        open == hosts
    };
    let told = knock(&targets, patience, is_enough)?;
    let way = |(peer, address): &(&Peer, IpAddr), Places { usual, door, run, .. }: &Places<'_>| {
        let of = |at: usize| told.answers[at].clone().unwrap_or(Answer::Silent);
        Way {
            host: peer.host.clone(),
            address: *address,
            from: told.from[*usual],
            usual: Some(of(*usual)),
            door: door.map(of),
            ssh: None,
            run: run.iter().map(|(port, at)| (*port, of(*at))).collect(),
            large: None,
        }
    };
    Ok(some.iter().zip(&places).map(|(one, place)| way(one, place)).collect())
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
        name: None,
        addresses: all.iter().filter(own).copied().collect(),
        user: None,
        port: None,
        door: None,
        ports: Vec::new(),
    };
    hosts.map(peer).collect()
}

/// Whether it leads to what ranks listen on. Where the host does not listen itself, a refusal has come the whole way, too.
fn is_open(way: &Way) -> bool {
    match (&way.door, &way.usual) {
        (Some(door), _) => matches!(door, Answer::Open(_)),
        (None, Some(usual)) => usual.micros().is_some(),
        (None, None) => false,
    }
}

/// How long its quickest answer took.
fn quickest(way: &Way) -> Option<u64> {
    way.door.iter().chain(&way.usual).filter_map(Answer::micros).min()
}

/// Whether something is in the way, of all ports, of torch's own, or of one of a launch.
fn is_barred(way: &Way) -> bool {
    !is_open(way)
        || way.usual.as_ref().is_none_or(|usual| usual.micros().is_none())
        || way.run.iter().any(|(_, answer)| answer.micros().is_none())
}

/// The first port of a launch that no way to its host leads to, though others do, and one of these ways. What refuses may be the
/// host itself: nothing listens there yet.
fn without<'a>(open: &[&'a Way]) -> Option<(&'a Way, u16)> {
    let first = open.first()?;
    let is_shut = |port: u16| {
        let mut answers = open.iter().flat_map(|way| &way.run).filter(|(one, _)| *one == port);
        answers.all(|(_, answer)| answer.micros().is_none())
    };
    first.run.iter().map(|(port, _)| *port).find(|port| is_shut(*port)).map(|port| (*first, port))
}

/// Where small packets come through and large ones are lost.
fn narrow(ways: &[Way]) -> Option<Verdict> {
    let narrow: Vec<&Way> = ways.iter().filter(|way| way.large == Some(false)).collect();
    let first = narrow.first()?;
    let seen: Vec<String> = narrow.iter().map(|way| format!("{} ({})", way.host, way.address)).collect();
    Some(Verdict::bad(
        format!("small packets reach {}, and those of full size do not", seen.join(", ")),
        "something between them passes smaller packets than the interface's MTU and does not say so: ranks connect, and hang at the first \
         tensor",
        format!(
            "ping -M do -s 1472 {} finds the size; then a smaller MTU on both hosts (sudo ip link set dev IFACE mtu 1400), jumbo frames \
             on every switch between them, or let ICMP \"fragmentation needed\" through",
            first.address
        ),
    ))
}

/// How a way is closed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Closed {
    /// A firewall says no, in these words.
    Rejected(String),
    /// A firewall says nothing.
    Dropped,
    /// No way leads to the host itself.
    Lost(String),
}

/// Of a way that is not open: how the port on which its host listens answers, beside that of ssh.
fn closed(way: &Way) -> Closed {
    let Some(port) = way.door.as_ref().or(way.usual.as_ref()) else { return Closed::Lost(String::new()) };
    let is_reached = way.ssh.as_ref().is_some_and(|(_, answer)| answer.micros().is_some());
    match port {
        Answer::Open(_) | Answer::Refused(_) => Closed::Rejected("Connection refused".to_owned()),
        Answer::Barred(words) if is_reached => Closed::Rejected(words.clone()),
        Answer::Barred(words) => Closed::Lost(words.clone()),
        Answer::Silent if is_reached => Closed::Dropped,
        Answer::Silent => Closed::Lost(format!("no answer in {:.1} s", knock::PATIENCE.as_secs_f64())),
    }
}

/// What all hosts have told.
struct All<'a> {
    walls: BTreeMap<&'a HostId, &'a Wall>,
    ways: &'a [Vec<Way>],
    /// How long the way from one host to another one usually takes.
    usual: Option<u64>,
}

impl All<'_> {
    /// With what to do on a host so that the others come in, to one port or to those of ranks: those that do not, by the addresses
    /// that they come from.
    fn helped(&self, verdict: Verdict, host: &HostId, own: Option<IpAddr>, port: Option<u16>) -> Verdict {
        let from: Vec<IpAddr> = self
            .ways
            .iter()
            .filter_map(|ways| {
                let mut barred = ways.iter().filter(|way| way.host == *host && is_barred(way));
                barred.find_map(|way| way.from)
            })
            .collect();
        let source = wall::source(&from).or_else(|| own.map(|own| own.to_string()));
        let source = source.unwrap_or_else(|| UNKNOWN.to_owned());
        let wall = self.walls.get(host).copied().cloned().unwrap_or_default();
        let opened = wall.opened_to(&source, port);
        let other = wall.else_opened_to(&source, port);
        let other = other.map_or_else(String::new, |other| format!("{other} (rules of nft's own), "));
        let remedy = format!(
            "on {host}: {opened}; where that changes nothing: {other}the cloud's security group, or a firewall between them"
        );
        let verdict = Verdict { remedy: Some(remedy), ..verdict };
        let is_command = wall.keeper.is_some() && source != UNKNOWN;
        if is_command { verdict.fixed_by(Fix::On(host.clone(), opened)) } else { verdict }
    }

    fn judge(&self, ways: &[Way]) -> Verdict {
        let hosts: BTreeSet<&HostId> = ways.iter().map(|way| &way.host).collect();
        if hosts.is_empty() {
            return Verdict::unknown("no other host is reached");
        }
        let mut shut: BTreeMap<Closed, Vec<&Way>> = BTreeMap::new();
        let mut without_usual: Vec<&Way> = Vec::new();
        let mut without_own: Vec<(&Way, u16)> = Vec::new();
        let mut paces: Vec<(&Way, u64)> = Vec::new();
        for host in &hosts {
            let of_host = || ways.iter().filter(|way| way.host == **host);
            let open = || of_host().filter(|way| is_open(way));
            if open().next().is_none() {
                let worst = of_host().map(|way| (closed(way), way)).min_by(|a, b| a.0.cmp(&b.0));
                if let Some((closed, way)) = worst {
                    shut.entry(closed).or_default().push(way);
                }
                continue;
            }
            without_own.extend(without(&open().collect::<Vec<_>>()));
            if open().all(|way| way.usual.as_ref().and_then(Answer::micros).is_none()) {
                without_usual.extend(open().next());
            }
            paces.extend(
                open().filter_map(|way| Some((way, quickest(way)?))).min_by_key(|(_, micros)| *micros),
            );
        }
        if let Some((closed, ways)) = shut.into_iter().next() {
            return self.shut(&closed, &ways);
        }
        if let Some((first, port)) = without_own.first() {
            let of_port = without_own.iter().filter(|(_, one)| one == port);
            let seen: Vec<String> =
                of_port.map(|(way, _)| format!("{} ({})", way.host, way.address)).collect();
            let verdict = Verdict::bad(
                format!(
                    "port {port}, which the run takes there, gets no answer from {}; other ports do",
                    seen.join(", ")
                ),
                "a firewall has a rule for that port: the ranks of this host hang, or end, when they connect to it",
                "",
            );
            return self.helped(verdict, &first.host, first.from, Some(*port));
        }
        if let Some(first) = without_usual.first() {
            let seen: Vec<String> =
                without_usual.iter().map(|way| format!("{} ({})", way.host, way.address)).collect();
            let verdict = Verdict::bad(
                format!("port {USUAL} gets no answer from {}, other ports do", seen.join(", ")),
                "a firewall has a rule for that port, torch's own: torchrun that is told no other one hangs when its ranks connect",
                "",
            );
            return self.helped(verdict.may_run(), &first.host, first.from, None);
        }
        if let Some(verdict) = narrow(ways).or_else(|| pace::judge(&paces, self.usual)) {
            return verdict;
        }
        let slowest = paces.iter().map(|(_, micros)| *micros).max().unwrap_or_default();
        let lasting = counted(hosts.len(), "other host");
        Verdict::good(format!("{lasting} in {} at most", short_duration_us(slowest))).lasting(lasting)
    }

    fn shut(&self, closed: &Closed, ways: &[&Way]) -> Verdict {
        let Some(first) = ways.first() else { return Verdict::unknown("no other host is reached") };
        let seen: Vec<String> = ways.iter().map(|way| format!("{} ({})", way.host, way.address)).collect();
        let seen = seen.join(", ");
        let ports: BTreeSet<String> = ways
            .iter()
            .filter_map(|way| way.ssh.as_ref())
            .filter(|(_, answer)| answer.micros().is_some())
            .map(|(port, _)| port.to_string())
            .collect();
        let ssh = ports.into_iter().collect::<Vec<_>>().join(", ");
        let ssh = if ssh.is_empty() { String::new() } else { format!("; port {ssh}, that of ssh, answers") };
        let helped = |verdict| self.helped(verdict, &first.host, first.from, None);
        match closed {
            Closed::Rejected(words) => helped(Verdict::bad(
                format!("a port on which hvtui listens is answered with \"{words}\" by {seen}{ssh}"),
                format!(
                    "a firewall rejects what ranks say to each other: they end with \"{words}\", or try again until they give up"
                ),
                "",
            )),
            Closed::Dropped => helped(Verdict::bad(
                format!("a port on which hvtui listens gets no answer from {seen}{ssh}"),
                "a firewall drops what ranks say to each other: the run hangs when they connect",
                "",
            )),
            Closed::Lost(why) => Verdict::bad(
                format!("does not reach {seen}: {why}"),
                "ranks on these hosts can't connect to each other: the run hangs at its start",
                format!(
                    "ip route get {}; give the network that both have as interface in hosts.toml",
                    first.address
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    fn way(host: &str, address: &str, door: Answer, ssh: Option<Answer>) -> Way {
        Way {
            host: HostId::from(host),
            address: address.parse().unwrap(),
            from: Some("10.0.0.1".parse().unwrap()),
            usual: Some(match door {
                Answer::Open(us) => Answer::Refused(us),
                ref other => other.clone(),
            }),
            door: Some(door),
            ssh: ssh.map(|answer| (SSH, answer)),
            run: Vec::new(),
            large: None,
        }
    }

    fn judge(ways: &[Way]) -> Verdict {
        judge_behind(&Wall { keeper: Some(wall::Keeper::Iptables), ..Wall::default() }, ways)
    }

    fn judge_behind(wall: &Wall, ways: &[Way]) -> Verdict {
        let b = HostId::from("b");
        All { walls: [(&b, wall)].into(), ways: &[ways.to_vec()], usual: None }.judge(ways)
    }

    #[test]
    fn where_rules_of_nft_may_keep_others_out_both_commands_are_told() {
        let wall = Wall { keeper: Some(wall::Keeper::Iptables), perhaps_nft: true, ..Wall::default() };
        let verdict = judge_behind(&wall, &[way("b", "10.0.0.2", Answer::Silent, Some(Answer::Open(100)))]);
        assert_eq!(
            verdict.remedy.as_deref(),
            Some(
                "on b: sudo iptables -I INPUT -p tcp -s 10.0.0.1 --dport 29400:60999 -j ACCEPT; where that changes nothing: sudo nft \
                 insert rule inet filter input ip saddr 10.0.0.1 tcp dport 29400-60999 accept (rules of nft's own), the cloud's security \
                 group, or a firewall between them"
            )
        );
        assert!(verdict.help().unwrap().starts_with("sudo iptables "), "the first of them");
    }

    #[test]
    fn one_way_to_each_host_is_enough() {
        let ways =
            [way("b", "10.0.0.2", Answer::Open(200), None), way("b", "192.168.7.2", Answer::Silent, None)];
        let verdict = judge(&ways);
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Good, "1 other host in 0.2 ms at most"));
        let near = judge(&[way("b", "10.0.0.2", Answer::Open(40), None)]);
        assert_eq!(near.evidence, "1 other host in 40 µs at most", "never 0.0 ms");
        assert_eq!(judge(&[]).mark, Mark::Unknown);
        let unlistened = Way { door: None, ..way("b", "10.0.0.2", Answer::Refused(200), None) };
        assert_eq!(judge(&[unlistened]).mark, Mark::Good, "a host that can't listen has refused itself");
    }

    #[test]
    fn what_rejects_what_drops_and_what_leads_nowhere_are_told_apart() {
        let ssh = || Some(Answer::Open(100));
        let refused = judge(&[way("b", "10.0.0.2", Answer::Refused(90), ssh())]);
        assert_eq!(
            (refused.mark, refused.evidence.as_str()),
            (
                Mark::Bad,
                "a port on which hvtui listens is answered with \"Connection refused\" by b (10.0.0.2); port 22, that of ssh, answers"
            )
        );
        assert_eq!(
            refused.remedy.unwrap(),
            "on b: sudo iptables -I INPUT -p tcp -s 10.0.0.1 --dport 29400:60999 -j ACCEPT; where that changes nothing: the cloud's \
             security group, or a firewall between them"
        );
        let prohibited = Answer::Barred("No route to host".to_owned());
        let rejected = judge(&[way("b", "10.0.0.2", prohibited.clone(), ssh())]);
        assert!(rejected.cause.unwrap().contains("rejects"), "firewalld's way to say no");
        let dropped = judge(&[way("b", "10.0.0.2", Answer::Silent, ssh())]);
        assert!(dropped.cause.unwrap().contains("drops"));
        let seen = "a port on which hvtui listens gets no answer from b (10.0.0.2)";
        assert!(dropped.evidence.starts_with(seen), "{}", dropped.evidence);
        let lost = judge(&[way("b", "10.0.0.2", Answer::Silent, Some(Answer::Silent))]);
        assert_eq!(lost.evidence, "does not reach b (10.0.0.2): no answer in 1.5 s");
        let unrouted = judge(&[way("b", "10.0.0.2", prohibited, Some(Answer::Silent))]);
        assert_eq!(unrouted.evidence, "does not reach b (10.0.0.2): No route to host");
        let usual = Way { usual: Some(Answer::Silent), ..way("b", "10.0.0.2", Answer::Open(90), None) };
        let usual = judge(&[usual]);
        assert_eq!((usual.mark, usual.for_launch()), (Mark::Bad, Mark::Look));
        assert!(usual.evidence.starts_with("port 29500 gets no answer from b"), "{usual:?}");
    }

    #[test]
    fn a_port_of_a_launch_that_a_firewall_keeps_is_told_with_its_own_rule() {
        let to = |address: &str, answer: Answer| Way {
            run: vec![(2223, Answer::Refused(80)), (2222, answer)],
            ..way("b", address, Answer::Open(90), None)
        };
        let shut = judge(&[to("10.0.0.2", Answer::Silent)]);
        assert_eq!(
            (shut.mark, shut.stops_launch(), shut.evidence.as_str()),
            (
                Mark::Bad,
                true,
                "port 2222, which the run takes there, gets no answer from b (10.0.0.2); other ports do"
            )
        );
        let help = shut.help().unwrap();
        assert_eq!(help, "sudo iptables -I INPUT -p tcp -s 10.0.0.1 --dport 2222 -j ACCEPT");
        // by another address it is reached, and what refuses is the host itself
        let both = judge(&[to("10.0.0.2", Answer::Silent), to("10.1.0.2", Answer::Refused(70))]);
        assert_eq!((both.mark, judge(&[to("10.0.0.2", Answer::Open(70))]).mark), (Mark::Good, Mark::Good));
    }

    #[test]
    fn a_way_on_which_large_packets_are_lost_is_told() {
        let of = |large| Way { large, ..way("b", "10.0.0.2", Answer::Open(90), None) };
        let lost = judge(&[of(Some(false))]);
        let seen = "small packets reach b (10.0.0.2), and those of full size do not";
        assert_eq!((lost.stops_launch(), lost.evidence.as_str()), (true, seen));
        assert_eq!((judge(&[of(Some(true))]).mark, judge(&[of(None)]).mark), (Mark::Good, Mark::Good));
    }

    #[test]
    fn an_address_that_two_hosts_have_leads_nowhere() {
        let docker: IpAddr = "172.17.0.1".parse().unwrap();
        let (a, b) = (HostId::from("a"), HostId::from("b"));
        let (of_a, of_b) = ([docker, "10.0.0.1".parse().unwrap()], [docker, "10.0.0.2".parse().unwrap()]);
        let found = addresses([(&a, &of_a[..]), (&b, &of_b[..])].into_iter());
        let peer = |host: &HostId, addresses: &[IpAddr]| Peer {
            host: host.clone(),
            name: None,
            addresses: addresses.to_vec(),
            user: None,
            port: None,
            door: None,
            ports: Vec::new(),
        };
        assert_eq!(found, [peer(&a, &of_a[1..]), peer(&b, &of_b[1..])]);
    }
}
