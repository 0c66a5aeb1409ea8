//! Whether a host can log in to others without a person: mpirun and horovodrun start their ranks so, hvtui does not need it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use super::hostname::{Meaning, resolved};
use crate::clock;
use crate::domain::doctor::{Fix, Peer, Verdict};
use crate::domain::ids::HostId;
use crate::procs::status::user_name;

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
/// For all of a login, of the second try of those to whose connection no answer came in time: a busy host is late. With less than the
/// least there is none.
const SECOND: Duration = Duration::from_millis(3500);
const LEAST: Duration = Duration::from_millis(2500);
/// Both tries together.
const BOTH: Duration = Duration::from_millis(6800);
/// Before them: for what ssh's configuration says of a host's names, and for that and their addresses.
const CONFIGURED: Duration = Duration::from_secs(1);
const NAMED: Duration = Duration::from_millis(1500);
/// The usual port.
const SSH: u16 = 22;

/// Of what ssh says where the connection is there and the server says nothing.
const NO_BANNER: &str = "during banner exchange";
/// And where the server hangs up before the login.
const HUNG_UP: [&str; 3] = ["kex_exchange_identification", "connection reset by", "connection closed by"];
/// What is added where ssh may have waited for a name server.
const NO_NAME: &str = "is not looked up in time";

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Login {
    host: HostId,
    /// The name or address that ssh was given.
    #[serde(default)]
    by: Option<String>,
    /// Why it failed; absent where it did not.
    fault: Option<String>,
    /// Under which name its key stands in `known_hosts`, where it failed.
    #[serde(default)]
    at: Option<String>,
    /// Whether it was not tried, as those before took so long.
    #[serde(default)]
    is_untried: bool,
    /// Whether it was the second try.
    #[serde(default)]
    is_second: bool,
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
        let own = std::env::var("USER").unwrap_or_else(|_| user_name(rustix::process::getuid().as_raw()));
        let mut logins: Vec<Login> = Vec::new();
        let mut targets: Vec<Target> = Vec::new();
        for some in tried.chunks(AT_ONCE) {
            if !logins.is_empty() && gone() > BEGINNING {
                logins.extend(some.iter().map(|peer| Login {
                    host: peer.host.clone(),
                    by: None,
                    fault: None,
                    at: None,
                    is_untried: true,
                    is_second: false,
                }));
                continue;
            }
            let some = at_once(some, |peer| Target::of(&ssh, peer, &own));
            logins.extend(at_once(&some, |target| login(&ssh, target, FIRST)));
            targets.extend(some);
        }
        let is_passing = |login: &Login| login.fault.as_deref().is_some_and(is_passing);
        let again = logins.iter().filter(|login| is_passing(login)).map(|login| login.host.clone());
        let again: BTreeSet<HostId> = again.take(AT_ONCE).collect();
        targets.retain(|target| again.contains(&target.host));
        let left = BOTH.saturating_sub(gone());
        if left < LEAST {
            return Ok(Some(logins));
        }
        // it is ssh that tells what it has waited for
        let all = SECOND.min(left);
        let connect = u32::try_from(all.as_secs()).unwrap_or(1);
        for second in at_once(&targets, |target| login(&ssh, target, (connect, all))) {
            if let Some(first) = logins.iter_mut().find(|login| login.host == second.host) {
                *first = Login { is_second: true, ..second };
            }
        }
        Ok(Some(logins))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one.found.as_deref())).collect()
    }
}

/// Does this with each of them at once: each may take seconds.
fn at_once<T: Sync, U: Send>(all: &[T], work: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let work = &work;
    std::thread::scope(|scope| {
        let each: Vec<_> = all.iter().map(|one| scope.spawn(move || work(one))).collect();
        each.into_iter().filter_map(|one| one.join().ok()).collect()
    })
}

fn login(ssh: &Path, target: &Target, (connect, all): (u32, Duration)) -> Login {
    let words = target.words(connect);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let fault = match Site::ask_within(ssh, &words, all) {
        Ok(told) if told.status.success() => None,
        Ok(told) => Some(said(&told.err, told.last_words())),
        Err(why) if target.is_late => Some(format!("{why}, and {} {NO_NAME} there", target.to)),
        Err(why) => Some(why),
    };
    let at = fault.is_some().then(|| target.known_as.clone());
    let (host, by) = (target.host.clone(), Some(target.to.clone()));
    Login { host, by, fault, at, is_untried: false, is_second: false }
}

/// By what ssh is asked for a host.
#[derive(Debug)]
struct Target {
    host: HostId,
    /// A name or an address.
    to: String,
    port: Option<u16>,
    user: Option<String>,
    /// Under which name its key stands in `known_hosts`.
    known_as: String,
    /// Whether it is a name that was not looked up in time.
    is_late: bool,
}

impl Target {
    /// The first of its names that leads there, or may lead there, as `mpirun -H` is given it, else its address; `own` is the user here.
    fn of(ssh: &Path, peer: &Peer, own: &str) -> Self {
        let begun = clock::host_now().0;
        let left = |all: Duration| {
            all.saturating_sub(Duration::from_micros(clock::host_now().0.saturating_sub(begun)))
        };
        let mut names: Vec<&str> = vec![peer.host.as_str()];
        names.extend(peer.name.as_deref().filter(|name| *name != peer.host.as_str()));
        names.retain(|name| is_word(name));
        let configured = |name: &&str| {
            let told = Site::ask_within(ssh, &["-G", name], left(CONFIGURED));
            let told = told.ok().filter(|told| told.status.success());
            told.map_or_else(Configured::default, |told| Configured::of(&told.out))
        };
        let configured: Vec<Configured> = names.iter().map(configured).collect();
        let hosts = names.iter().zip(&configured).map(|(name, of_it)| of_it.host(name).to_owned());
        let meanings = resolved(hosts.collect(), left(NAMED));
        match chosen(&meanings, &peer.addresses) {
            Some((at, is_late)) => Self { is_late, ..Self::named(names[at], &configured[at], peer, own) },
            None => Self::addressed(peer),
        }
    }

    /// Port and login name are those that ssh's configuration says, else those of the hosts file.
    fn named(name: &str, of_it: &Configured, peer: &Peer, own: &str) -> Self {
        let port = of_it.port.filter(|port| *port != SSH);
        let is_user_told = of_it.user.as_ref().is_some_and(|user| user != own);
        let known_as = match &of_it.alias {
            Some(alias) => alias.clone(),
            None => with_port(of_it.host(name), port.or(peer.port)),
        };
        Self {
            host: peer.host.clone(),
            to: name.to_owned(),
            port: if port.is_some() { None } else { peer.port },
            user: if is_user_told { None } else { peer.user.clone() },
            known_as,
            is_late: false,
        }
    }

    fn addressed(peer: &Peer) -> Self {
        let to = peer.addresses.first().map(IpAddr::to_string).unwrap_or_default();
        let (port, user) = (peer.port, peer.user.clone());
        Self { host: peer.host.clone(), known_as: with_port(&to, port), to, port, user, is_late: false }
    }

    /// The arguments of ssh.
    fn words(&self, connect: u32) -> Vec<String> {
        let connect = format!("ConnectTimeout={connect}");
        // nothing but the login: no port is forwarded, and no connection outlives it
        let options = [
            "BatchMode=yes",
            &connect,
            "StrictHostKeyChecking=yes",
            "ClearAllForwardings=yes",
            "ControlMaster=no",
        ];
        let mut words: Vec<String> =
            options.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]).collect();
        words.extend(self.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
        words.extend(self.user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]));
        words.extend([self.to.clone(), "true".to_owned()]);
        words
    }
}

/// Of names the first that leads to these addresses, else the first of which that is not known, as there was no answer in time; and
/// whether it is such a one.
fn chosen(meanings: &[Meaning], addresses: &[IpAddr]) -> Option<(usize, bool)> {
    let leads = |meaning: &Meaning| match meaning {
        Meaning::Of(all) => all.iter().any(|address| addresses.contains(address)),
        Meaning::Late | Meaning::Unanswered | Meaning::Untried => false,
    };
    let is_late = |meaning: &Meaning| matches!(meaning, Meaning::Late | Meaning::Untried);
    let leading = meanings.iter().position(leads).map(|at| (at, false));
    leading.or_else(|| meanings.iter().position(is_late).map(|at| (at, true)))
}

/// A word that is a name to ssh and nothing else.
fn is_word(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && !name.starts_with('-') && name.chars().all(inside)
}

/// As ssh writes it: with the port where it is not the usual one.
fn with_port(host: &str, port: Option<u16>) -> String {
    match port.filter(|port| *port != SSH) {
        Some(port) => format!("[{host}]:{port}"),
        None => host.to_owned(),
    }
}

/// What ssh's configuration says of a name (`ssh -G`).
#[derive(Debug, Default)]
struct Configured {
    host: Option<String>,
    alias: Option<String>,
    port: Option<u16>,
    user: Option<String>,
}

impl Configured {
    fn of(text: &str) -> Self {
        let of = |key: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            values.next().map(|value| value.trim().to_owned())
        };
        let port = of("port").and_then(|port| port.parse().ok());
        Self { host: of("hostname"), alias: of("hostkeyalias"), port, user: of("user") }
    }

    /// What it connects to in the place of the name.
    fn host<'a>(&'a self, name: &'a str) -> &'a str {
        self.host.as_deref().unwrap_or(name)
    }
}

impl Login {
    /// The host, with what ssh was given in the place of its name.
    fn called(&self) -> String {
        match self.by.as_deref().filter(|by| *by != self.host.as_str()) {
            Some(by) => format!("{} (as {by})", self.host),
            None => self.host.to_string(),
        }
    }
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

fn judge(logins: Option<&[Login]>) -> Verdict {
    let Some(logins) = logins else { return Verdict::unknown("no ssh there") };
    if logins.is_empty() {
        return Verdict::unknown("no other host to log in to");
    }
    let mut by_fault: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for login in logins {
        if let Some(fault) = &login.fault {
            by_fault.entry(fault).or_default().push(login.called());
        }
    }
    let failed: Vec<String> =
        by_fault.iter().map(|(fault, hosts)| format!("to {}: {fault}", hosts.join(", "))).collect();
    if failed.is_empty() {
        let (late, tried): (Vec<&Login>, Vec<&Login>) = logins.iter().partition(|login| login.is_untried);
        let names = |all: &[&Login]| all.iter().map(|login| login.called()).collect::<Vec<_>>().join(", ");
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
    let cause = |fault: &Fault| {
        let is_it = |words: &str| Fault::of(words) == *fault;
        let mut of_it = logins.iter().filter(|login| login.fault.as_deref().is_some_and(is_it));
        let tries = if of_it.all(|login| login.is_second) { " (tried twice)" } else { "" };
        format!("{}{tries}", fault.cause())
    };
    let causes: Vec<String> = faults.iter().map(cause).collect();
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
            let refuses = if faults.contains(&Fault::NoKey) {
                "; where it is in authorized_keys already: hvtui doctor --only sshd tells why the other host refuses it"
            } else {
                ""
            };
            verdict(&format!("hvtui hosts mesh   (or: ssh-copy-id and ssh-keyscan there){refuses}"))
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
        } else if says(&["could not resolve", NO_NAME]) {
            Self::Name
        } else if says(&[NO_BANNER]) {
            Self::Silent
        } else if says(&["does not answer in"]) {
            Self::Slow
        } else if says(&HUNG_UP) {
            Self::HungUp
        } else if says(&["timed out", "no route to host", "network is unreachable"]) {
            Self::Unreached
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
                "the other host takes none of the keys here: there is none, it is not in its authorized_keys, or others may write that file \
                 or a folder above it"
            }
            Self::Refused => "no ssh server listens at that address and port",
            Self::Unreached => "nothing answers at that address: a firewall, or no way there",
            Self::Silent => {
                "the connection is taken, and no ssh server speaks in time: the host is too busy, its sshd hangs, or another program listens there"
            }
            Self::Slow => {
                "the ssh server speaks, and the login does not end in time: the host is too busy, or the login waits there (a name server, a file server)"
            }
            Self::HungUp => {
                "the ssh server takes the connection and ends it before the login: too many logins at once (MaxStartups), an address that it refuses, or a fault of its own"
            }
            Self::Name => "a name leads nowhere here, or no name server answers",
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
            name: None,
            addresses: vec!["10.0.0.2".parse().unwrap()],
            user: user.map(str::to_owned),
            port,
            door: None,
            ports: Vec::new(),
        };
        let of = |target: &Target| (target.words(2)[10..].join(" "), target.known_as.clone());
        let of_file = peer(Some("ml"), Some(2222));
        let told = |words: &str, known_as: &str| (words.to_owned(), known_as.to_owned());
        let by_address = Target::addressed(&of_file);
        assert_eq!(of(&by_address), told("-p 2222 -l ml 10.0.0.2 true", "[10.0.0.2]:2222"));
        assert_eq!(of(&Target::addressed(&peer(None, None))), told("10.0.0.2 true", "10.0.0.2"));
        // what ssh's configuration says of the name stays, as mpirun has it
        let named = |text: &str, peer: &Peer| of(&Target::named("gpu-b", &Configured::of(text), peer, "li"));
        let plain = "host gpu-b\nuser li\nhostname gpu-b\nport 22\n";
        assert_eq!(named(plain, &of_file), told("-p 2222 -l ml gpu-b true", "[gpu-b]:2222"));
        assert_eq!(named("", &peer(None, None)), told("gpu-b true", "gpu-b"));
        let own = "host gpu-b\nuser wu\nhostname 10.0.0.2\nport 2200\n";
        assert_eq!(named(own, &of_file), told("gpu-b true", "[10.0.0.2]:2200"));
        let alias = "user li\nhostname gpu-b\nport 22\nhostkeyalias b.lab\n";
        assert_eq!(named(alias, &of_file), told("-p 2222 -l ml gpu-b true", "b.lab"));
        let options = by_address.words(2)[..10].join(" ");
        assert_eq!(
            options,
            "-o BatchMode=yes -o ConnectTimeout=2 -o StrictHostKeyChecking=yes -o ClearAllForwardings=yes -o ControlMaster=no"
        );
    }

    #[test]
    fn a_host_is_asked_for_by_a_name_that_leads_to_it_else_by_its_address() {
        let peer = |name: &str, address: &str| Peer {
            host: HostId::from("no host of this machine"),
            name: Some(name.to_owned()),
            addresses: vec![address.parse().unwrap()],
            user: None,
            port: None,
            door: None,
            ports: Vec::new(),
        };
        // an ssh that says nothing of a name
        let of = |peer: &Peer| Target::of(Path::new("/bin/false"), peer, "li").to;
        assert_eq!(of(&peer("localhost", "127.0.0.1")), "localhost");
        assert_eq!(of(&peer("-oProxyCommand=x", "10.0.0.2")), "10.0.0.2");
        let means = |all: &[&str]| Meaning::Of(all.iter().map(|one| one.parse().unwrap()).collect());
        let (there, elsewhere, nowhere) = (means(&["fd00::2", "10.0.0.2"]), means(&["10.0.0.9"]), means(&[]));
        let chosen = |all: &[&Meaning]| {
            let all: Vec<Meaning> = all.iter().map(|one| (*one).clone()).collect();
            super::chosen(&all, &["10.0.0.2".parse().unwrap()])
        };
        assert_eq!(chosen(&[&elsewhere, &there]), Some((1, false)));
        assert_eq!(chosen(&[&elsewhere, &nowhere]), None);
        assert_eq!(chosen(&[&Meaning::Unanswered]), None, "ssh gets no answer either");
        // one without an answer may lead there
        assert_eq!(chosen(&[&elsewhere, &Meaning::Late]), Some((1, true)));
        assert_eq!(chosen(&[&Meaning::Untried, &there]), Some((1, false)));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn what_was_tried_once_is_not_told_as_tried_twice() {
        let silent = "Connection timed out during banner exchange";
        let login = |host: &str, is_second| Login {
            host: HostId::from(host),
            by: None,
            fault: Some(silent.to_owned()),
            at: None,
            is_untried: false,
            is_second,
        };
        let cause = |logins: &[Login]| judge(Some(logins)).cause.unwrap();
        assert!(cause(&[login("b", true)]).contains("another program listens there (tried twice): mpirun"));
        assert!(!cause(&[login("b", false)]).contains("twice"));
        assert!(!cause(&[login("b", true), login("c", false)]).contains("twice"));
    }

    #[test]
    fn what_ssh_says_is_told_with_the_host() {
        let login = |fault: Option<&str>| Login {
            host: HostId::from("b"),
            by: Some("b".to_owned()),
            fault: fault.map(str::to_owned),
            at: Some("[10.0.0.2]:2222".to_owned()),
            is_untried: false,
            is_second: false,
        };
        assert_eq!(judge(Some(&[login(None)])).evidence, "logs in to b");
        let by_address = Login { by: Some("10.0.0.2".to_owned()), ..login(None) };
        let by_address = judge(Some(&[by_address]));
        assert_eq!(
            (by_address.mark, by_address.evidence.as_str()),
            (Mark::Good, "logs in to b (as 10.0.0.2)")
        );
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
            (
                "/usr/bin/ssh does not answer in 3.5 s, and gpu-b is not looked up in time there",
                "no name server answers",
                "ssh -v",
                false,
            ),
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
        assert_eq!(judge(None).mark, Mark::Unknown);
        assert_eq!(judge(Some(&[])).mark, Mark::Unknown);
    }

    #[test]
    fn of_what_ssh_says_the_sentence_that_tells_most_is_taken() {
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
    }
}
