//! Whether a host can log in to others without a person: mpirun and horovodrun start their ranks so, hvtui does not need it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use crate::clock;
use crate::domain::doctor::{Fix, Peer, Verdict};
use crate::domain::ids::HostId;

pub(in crate::doctor) struct Logins;

/// So many of the hosts behind it each one tries: together they try each host, and none tries all of a large cluster.
const TRIED: usize = 3;
/// At a time: a login costs both sides a key exchange.
const AT_ONCE: usize = 16;
/// Those of more hosts begin within so long.
const BEGINNING: Duration = Duration::from_millis(1500);
/// Of a cluster with more hosts each tries the next one alone: a login costs both sides a key exchange.
const LARGE: usize = 16;
/// For a connection and the first word of the server, seconds, and for all of a login: of the first try.
const FIRST: (u32, Duration) = (2, Duration::from_millis(3500));
/// And of the second one, of those to whose connection no answer came in time: a busy host is late.
const SECOND: (u32, Duration) = (3, Duration::from_millis(3500));
/// Both tries together.
const BOTH: Duration = Duration::from_millis(6800);

/// Of what ssh says where the connection is there and the server says nothing.
const NO_BANNER: &str = "during banner exchange";
/// And where the server hangs up before the login.
const HUNG_UP: [&str; 3] = ["kex_exchange_identification", "connection reset by", "connection closed by"];

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Login {
    host: HostId,
    /// Why it failed; absent where it did not.
    fault: Option<String>,
    /// Under which name its key stands in `known_hosts`, where it failed.
    #[serde(default)]
    at: Option<String>,
    /// Whether it was not tried, as those before took so long.
    #[serde(default)]
    is_untried: bool,
}

impl Check for Logins {
    const NAME: &'static str = "logins";
    const ASKS: &'static str = "can it log in to other hosts by ssh, as mpirun and horovodrun do";
    const MEETS_OTHERS: bool = true;
    // a client waits for 8 s
    const PATIENCE: Duration = Duration::from_secs(7);
    /// Absent without an ssh.
    type Found = Option<Vec<Login>>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let Some(ssh) = site.program("ssh") else { return Ok(None) };
        let most = match site.peers.len() {
            all if site.all_pairs => all,
            few if few < LARGE => TRIED,
            _ => 1,
        };
        let reachable = site.peers.iter().filter(|peer| !peer.addresses.is_empty());
        let tried: Vec<&Peer> = reachable.take(most).collect();
        let begun = clock::host_now().0;
        let gone = || Duration::from_micros(clock::host_now().0.saturating_sub(begun));
        let mut logins = Vec::new();
        for some in tried.chunks(AT_ONCE) {
            if !logins.is_empty() && gone() > BEGINNING {
                logins.extend(some.iter().map(|peer| Login {
                    host: peer.host.clone(),
                    fault: None,
                    at: None,
                    is_untried: true,
                }));
                continue;
            }
            logins.extend(at_once(&ssh, some, FIRST));
        }
        let is_passing = |login: &Login| login.fault.as_deref().is_some_and(is_passing);
        let again = logins.iter().filter(|login| is_passing(login)).map(|login| login.host.clone());
        let again: BTreeSet<HostId> = again.take(AT_ONCE).collect();
        let again: Vec<&Peer> = tried.into_iter().filter(|peer| again.contains(&peer.host)).collect();
        let all = SECOND.1.min(BOTH.saturating_sub(gone()));
        for second in at_once(&ssh, &again, (SECOND.0, all)) {
            if let Some(first) = logins.iter_mut().find(|login| login.host == second.host) {
                *first = second;
            }
        }
        Ok(Some(logins))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one.found.as_deref())).collect()
    }
}

/// Tries to log in to each of these at once: each may take seconds.
fn at_once(ssh: &Path, peers: &[&Peer], patience: (u32, Duration)) -> Vec<Login> {
    std::thread::scope(|scope| {
        let each: Vec<_> = peers.iter().map(|peer| scope.spawn(|| login(ssh, peer, patience))).collect();
        each.into_iter().filter_map(|login| login.join().ok()).collect()
    })
}

fn login(ssh: &Path, peer: &Peer, (connect, all): (u32, Duration)) -> Login {
    let words = words(peer, connect);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let fault = match Site::ask_within(ssh, &words, all) {
        Ok(told) if told.status.success() => None,
        Ok(told) => Some(said(&told.err, told.last_words())),
        Err(why) => Some(why),
    };
    let at = fault.is_some().then(|| known_as(peer)).flatten();
    Login { host: peer.host.clone(), fault, at, is_untried: false }
}

/// Whether a second try may find it otherwise: the connection was taken, and what came then, or did not, may be due to a host that
/// is busy or to many logins at once.
fn is_passing(fault: &str) -> bool {
    matches!(Fault::of(fault), Fault::Silent | Fault::Slow | Fault::HungUp)
}

/// What ssh says: the sentence that tells most, for its last one is the same for a key that is not known and for another one.
fn said(all: &str, last: &str) -> String {
    let line = |part: &str| all.lines().find(|line| line.contains(part));
    let last = last.trim_end_matches('\r');
    match (line("IDENTIFICATION HAS CHANGED"), line(NO_BANNER)) {
        (Some(line), _) => format!("{} {last}", line.trim_matches(['@', ' ', '\r'])),
        (None, Some(line)) => line.trim_end_matches('\r').to_owned(),
        (None, None) => last.to_owned(),
    }
}

/// As ssh writes it: with the port where it is not the usual one.
fn known_as(peer: &Peer) -> Option<String> {
    let address = peer.addresses.first()?;
    Some(match peer.port.filter(|port| *port != 22) {
        Some(port) => format!("[{address}]:{port}"),
        None => address.to_string(),
    })
}

/// The arguments of ssh for one of them: port and login name are those of the hosts file, else ssh's own.
fn words(peer: &Peer, connect: u32) -> Vec<String> {
    let connect = format!("ConnectTimeout={connect}");
    let options = ["-o", "BatchMode=yes", "-o", &connect, "-o", "StrictHostKeyChecking=yes"];
    let mut words: Vec<String> = options.map(str::to_owned).to_vec();
    words.extend(peer.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
    words.extend(peer.user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]));
    words.extend(peer.addresses.first().map(IpAddr::to_string));
    words.push("true".to_owned());
    words
}

fn judge(logins: Option<&[Login]>) -> Verdict {
    let Some(logins) = logins else { return Verdict::unknown("no ssh there") };
    if logins.is_empty() {
        return Verdict::unknown("no other host to log in to");
    }
    let mut by_fault: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for login in logins {
        if let Some(fault) = &login.fault {
            by_fault.entry(fault).or_default().push(login.host.as_str());
        }
    }
    let failed: Vec<String> =
        by_fault.iter().map(|(fault, hosts)| format!("to {}: {fault}", hosts.join(", "))).collect();
    if failed.is_empty() {
        let (late, tried): (Vec<&Login>, Vec<&Login>) = logins.iter().partition(|login| login.is_untried);
        let names =
            |all: &[&Login]| all.iter().map(|login| login.host.as_str()).collect::<Vec<_>>().join(", ");
        let words = format!("logs in to {}", names(&tried));
        return if late.is_empty() {
            Verdict::good(words)
        } else {
            Verdict::unknown(format!(
                "{words}; not tried in time: {}; hvtui hosts mesh tries them",
                names(&late)
            ))
        };
    }
    let faults: BTreeSet<Fault> = by_fault.keys().map(|fault| Fault::of(fault)).collect();
    let causes: Vec<&str> = faults.iter().map(|fault| fault.cause()).collect();
    let address = |login: &&Login| Fault::of(login.fault.as_deref().unwrap_or_default()) == Fault::Changed;
    let changed = logins.iter().filter(|login| login.fault.is_some()).find(address);
    let cause = format!(
        "{}: mpirun and horovodrun started by themselves end or hang there; the runs of hvtui need no login between hosts",
        causes.join("; ")
    );
    let verdict = |remedy: &str| Verdict::look(failed.join("; "), cause.clone(), remedy);
    let worst = faults.iter().next().copied().unwrap_or(Fault::Other);
    match (worst, changed) {
        // whether it is the same machine is not for a program to say
        (Fault::Changed, changed) => {
            let at = changed
                .and_then(|login| login.at.as_deref())
                .map_or_else(|| "ADDRESS".to_owned(), |at| shell_word(at).into_owned());
            verdict(&format!(
                "ask who keeps the host whether it was installed anew; if so: ssh-keygen -R {at} there, then: hvtui hosts mesh"
            ))
        }
        (Fault::UnknownKey | Fault::NoKey, _) => {
            verdict("hvtui hosts mesh   (or: ssh-copy-id and ssh-keyscan there)")
                .fixed_by(Fix::Here(vec!["hosts".to_owned(), "mesh".to_owned()]))
        }
        (Fault::Refused, _) => verdict(
            "sudo systemctl enable --now ssh (or sshd) on the other host; its port there: sudo ss -ltnp | grep sshd",
        ),
        (Fault::HungUp, _) => verdict(
            "on the other host: sudo journalctl -n 20 -u ssh (or sshd) tells why; then: hvtui doctor --only logins",
        ),
        (Fault::Silent | Fault::Slow, _) => verdict(
            "on the other host: uptime tells how busy it is, sudo ss -ltnp what listens at the port of ssh; then: hvtui doctor --only logins",
        ),
        (Fault::Unreached, _) => verdict("hvtui doctor --only reach tells which way is closed, and opens it"),
        (Fault::Name | Fault::Other, _) => {
            verdict("ssh -v to it there tells more; hvtui hosts mesh sets keys and names up")
        }
    }
}

/// Why a login fails, as ssh says it; what a person has to do first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The host's key is another one than the one that was known.
    Changed,
    /// Its key is not known there.
    UnknownKey,
    /// It takes none of the keys there.
    NoKey,
    /// Nothing listens.
    Refused,
    /// Nothing answers.
    Unreached,
    /// The connection is taken, and nothing is said.
    Silent,
    /// The server speaks, and the login does not end.
    Slow,
    /// The connection is taken, and ended before the login.
    HungUp,
    /// A name leads nowhere.
    Name,
    Other,
}

impl Fault {
    fn of(words: &str) -> Self {
        let words = words.to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
        if says(&["identification has changed"]) {
            Self::Changed
        } else if says(&["host key verification failed", "host key is known for"]) {
            Self::UnknownKey
        } else if says(&[
            "permission denied",
            "too many authentication failures",
            "no more authentication methods",
        ]) {
            Self::NoKey
        } else if says(&["connection refused"]) {
            Self::Refused
        } else if says(&[NO_BANNER]) {
            Self::Silent
        } else if says(&["does not answer in"]) {
            Self::Slow
        } else if says(&HUNG_UP) {
            Self::HungUp
        } else if says(&["timed out", "no route to host", "network is unreachable"]) {
            Self::Unreached
        } else if says(&["could not resolve"]) {
            Self::Name
        } else {
            Self::Other
        }
    }

    fn cause(self) -> &'static str {
        match self {
            Self::Changed => {
                "the other host has another key than the one that is known here: it was installed anew, or another machine answers"
            }
            Self::UnknownKey => {
                "the other host's key is not in known_hosts here, and ssh can ask no person there"
            }
            Self::NoKey => {
                "the other host takes none of the keys here: there is none, or it is not in its authorized_keys"
            }
            Self::Refused => "no ssh server listens at that address and port",
            Self::Unreached => "nothing answers at that address: a firewall, or no way there",
            Self::Silent => {
                "the connection is taken, and no ssh server speaks in time, at a second try either: the host is too busy, its sshd hangs, or another program listens there"
            }
            Self::Slow => {
                "the ssh server speaks, and the login does not end in time, at a second try either: the host is too busy, or the login waits there (a name server, a file server)"
            }
            Self::HungUp => {
                "the ssh server takes the connection and ends it before the login, at a second try either: too many logins at once (MaxStartups), an address that it refuses, or a fault of its own"
            }
            Self::Name => "a name leads nowhere here",
            Self::Other => "the login fails",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn port_and_login_name_are_those_of_the_hosts_file() {
        let peer = |user: Option<&str>, port| Peer {
            host: HostId::from("b"),
            addresses: vec!["10.0.0.2".parse().unwrap()],
            user: user.map(str::to_owned),
            port,
            door: None,
            ports: Vec::new(),
        };
        let of = |peer: &Peer| words(peer, 2)[6..].join(" ");
        assert_eq!(of(&peer(Some("ml"), Some(2222))), "-p 2222 -l ml 10.0.0.2 true");
        assert_eq!(of(&peer(None, None)), "10.0.0.2 true");
    }

    #[test]
    fn what_ssh_says_is_told_with_the_host() {
        let login = |fault: Option<&str>| Login {
            host: HostId::from("b"),
            fault: fault.map(str::to_owned),
            at: Some("[10.0.0.2]:2222".to_owned()),
            is_untried: false,
        };
        assert_eq!(judge(Some(&[login(None)])).mark, Mark::Good);
        let refused = judge(Some(&[login(None), login(Some("Host key verification failed."))]));
        assert_eq!(
            (refused.mark, refused.evidence.as_str()),
            (Mark::Look, "to b: Host key verification failed.")
        );
        // each fault has a cause of its own, and the command where one helps
        for (says, cause, remedy, is_fixed) in [
            ("Host key verification failed.", "not in known_hosts", "hvtui hosts mesh", true),
            (
                "No ED25519 host key is known for 10.0.0.2 and you have requested strict checking.",
                "not in known_hosts",
                "hosts mesh",
                true,
            ),
            (
                "REMOTE HOST IDENTIFICATION HAS CHANGED! Host key verification failed.",
                "another key",
                "ssh-keygen -R '[10.0.0.2]:2222'",
                false,
            ),
            (
                "root@10.0.0.2: Permission denied (publickey,password).",
                "none of the keys",
                "hosts mesh",
                true,
            ),
            (
                "ssh: connect to host 10.0.0.2 port 22: Connection refused",
                "no ssh server",
                "systemctl",
                false,
            ),
            (
                "ssh: connect to host 10.0.0.2 port 22: Connection timed out",
                "nothing answers",
                "--only reach",
                false,
            ),
            (
                "Connection timed out during banner exchange",
                "no ssh server speaks in time",
                "uptime tells how busy",
                false,
            ),
            ("/usr/bin/ssh does not answer in 3.5 s", "the login does not end in time", "uptime", false),
            (
                "kex_exchange_identification: Connection closed by remote host",
                "before the login",
                "journalctl",
                false,
            ),
            ("Connection reset by 10.0.0.2 port 22", "before the login", "journalctl", false),
            ("no such identity", "the login fails", "ssh -v", false),
        ] {
            let verdict = judge(Some(&[login(Some(says))]));
            assert!(verdict.cause.as_ref().unwrap().contains(cause), "{verdict:?}");
            assert!(verdict.remedy.as_ref().unwrap().contains(remedy), "{verdict:?}");
            assert_eq!((verdict.mark, verdict.fix.is_some()), (Mark::Look, is_fixed), "{verdict:?}");
        }
        let both =
            judge(Some(&[login(Some("Connection refused")), login(Some("Permission denied (publickey)."))]));
        assert!(both.fix.is_some() && both.cause.unwrap().contains("no ssh server"), "both are told");
        let warned = "@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@@\nHost key verification failed.\r\n";
        let said = said(warned, "Host key verification failed.\r");
        assert_eq!(said, "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! Host key verification failed.");
        let silent =
            "Connection timed out during banner exchange\r\nConnection to 10.0.0.2 port 22 timed out\r\n";
        let said = super::said(silent, "Connection to 10.0.0.2 port 22 timed out");
        assert_eq!(said, "Connection timed out during banner exchange");
        assert!(is_passing(&said) && is_passing("/usr/bin/ssh does not answer in 3.5 s"));
        let reset = "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.2 port 22\r\n";
        assert!(
            is_passing(&super::said(reset, "Connection reset by 10.0.0.2 port 22\r")),
            "its last line, too"
        );
        assert!(
            !is_passing("ssh: connect to host 10.0.0.2 port 22: Connection timed out"),
            "nothing took it"
        );
        assert_eq!(judge(None).mark, Mark::Unknown);
        assert_eq!(judge(Some(&[])).mark, Mark::Unknown);
    }
}
