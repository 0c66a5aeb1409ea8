//! Whether a host's own name is one that launchers take and leads to it, and whether the names of the others lead there to them.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::{Check, LONGEST, Seen, Site};
use super::interface;
use crate::clock;
use crate::domain::doctor::Verdict;
use crate::domain::host::{HostInfo, InterfaceAddress};
use crate::domain::ids::HostId;
use crate::domain::told_address::is_bridge;
use crate::domain::units::counted;

pub(in crate::doctor) struct Hostname;

/// Names that are looked up at a time, and how long all of them may take: a name server that is gone answers none.
const AT_ONCE: usize = 16;
const ALL: Duration = Duration::from_secs(3);
/// Where the C library reads which name servers to ask, and how many of them it asks.
const SERVERS: &str = "/etc/resolv.conf";
const MOST_SERVERS: usize = 3;
/// Where systemd-resolved listens. It asks no server for a name without a dot, and says of one that it does not know that it has no
/// answer.
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];
/// What helps where they do not answer.
const SEE_SERVERS: &str = "see whether the servers in /etc/resolv.conf there answer (resolvectl status shows those behind 127.0.0.53)";
/// What the C libraries, GNU's and musl, say of a name to which there was no answer (`EAI_AGAIN`, `EAI_FAIL`).
const NO_ANSWER: [&str; 4] = [
    "Temporary failure in name resolution",
    "Non-recoverable failure in name resolution",
    "Try again",
    "Non-recoverable error",
];
/// Names that are told of many.
const SHOWN: usize = 4;
/// What does without them.
const GIVEN: &str = "the runs that hvtui starts are given addresses";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    name: String,
    /// What the name means on the host itself.
    addresses: Vec<IpAddr>,
    /// Whether there was no answer to that in time.
    #[serde(default)]
    is_late: bool,
    /// Whether the name servers did not answer to that, as they said at once.
    #[serde(default)]
    is_unanswered: bool,
    /// The name servers that are asked there.
    #[serde(default)]
    servers: Vec<String>,
    /// What the names of the other hosts mean there.
    #[serde(default)]
    others: Vec<Other>,
}

/// Another host's name.
#[derive(Debug, Serialize, Deserialize)]
struct Other {
    host: HostId,
    name: String,
    /// Absent where there was no answer, or none in time.
    addresses: Option<Vec<IpAddr>>,
    /// Whether the name servers did not answer, as they said at once.
    #[serde(default)]
    is_unanswered: bool,
    /// Whether it was not looked up, as those before took so long.
    #[serde(default)]
    is_untried: bool,
}

impl Other {
    fn of(host: HostId, name: String, meaning: Meaning) -> Self {
        let (is_untried, is_unanswered) = (meaning == Meaning::Untried, meaning == Meaning::Unanswered);
        let addresses = if let Meaning::Of(addresses) = meaning { Some(addresses) } else { None };
        Self { host, name, addresses, is_unanswered, is_untried }
    }
}

impl Check for Hostname {
    const NAME: &'static str = "hostname";
    const ASKS: &'static str = "is the host's own name one that mpirun takes, and do its name and those of the others lead to them there";
    const MEETS_OTHERS: bool = true;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let others = site.peers.iter().filter_map(|peer| Some((peer.host.clone(), peer.name.clone()?)));
        let others: Vec<(HostId, String)> = others.collect();
        let names = [&name].into_iter().chain(others.iter().map(|(_, name)| name)).cloned();
        let names: Vec<String> = names.collect();
        let servers = servers(&std::fs::read_to_string(SERVERS).unwrap_or_default());
        let told = resolved(names.clone(), ALL).into_iter().zip(&names);
        let mut told = told.map(|(meaning, name)| meaning.with(name, &servers));
        let (addresses, is_late, is_unanswered) = match told.next() {
            Some(Meaning::Of(addresses)) => (addresses, false, false),
            Some(Meaning::Late) => (Vec::new(), true, false),
            Some(Meaning::Unanswered) => (Vec::new(), false, true),
            Some(Meaning::Untried) | None => return Err(format!("{name} could not be looked up")),
        };
        let others = others.into_iter().zip(told);
        let others = others.map(|((host, name), meaning)| Other::of(host, name, meaning)).collect();
        Ok(Found { name, addresses, is_late, is_unanswered, servers, others })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let holders = interface::holders(seen.iter().map(|one| one.info));
        let own = |info: &HostInfo| {
            // by a bridge of containers, and by an address that another host has, too, the host reaches itself
            let is_own =
                |one: &&InterfaceAddress| !is_bridge(&one.interface) && holders.get(&one.address) == Some(&1);
            let first = interface::first(info, &holders, |_| false).filter(is_own);
            let others = || info.addresses.iter().filter(|one| one.address.is_ipv4());
            first.or_else(|| others().find(is_own)).map(|one| one.address)
        };
        let known = seen.iter().map(|one| Known { host: one.host, info: one.info, own: own(one.info) });
        let all: Vec<Known<'_>> = known.collect();
        let names: Vec<&str> = seen.iter().map(|one| one.found.name.as_str()).collect();
        let hosts = seen.iter().zip(&all);
        hosts
            .map(|(one, here)| Here { found: &one.found, own: here, all: &all, names: &names }.judge())
            .collect()
    }
}

/// What a name means here, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// These addresses; none where it leads nowhere.
    Of(Vec<IpAddr>),
    /// There was no answer in time.
    Late,
    /// There was none, as was said at once: the name servers are out of order or are not reached.
    Unanswered,
    /// It was not looked up: those before took the time.
    Untried,
}

impl Meaning {
    /// What `name` means here.
    fn of(name: &str) -> Self {
        match (name, 0).to_socket_addrs() {
            Ok(all) => Self::Of(all.map(|one| one.ip()).collect()),
            Err(error) if is_unanswered(&error) => Self::Unanswered,
            Err(_) => Self::Of(Vec::new()),
        }
    }

    /// The same where these servers are asked for `name`: where there is none, or one that asks no other for such a name, no answer
    /// means that it is in no file.
    fn with(self, name: &str, servers: &[String]) -> Self {
        let is_stub = |server: &String| STUBS.contains(&server.as_str());
        let is_asked = !servers.is_empty() && (name.contains('.') || !servers.iter().any(is_stub));
        if self == Self::Unanswered && !is_asked { Self::Of(Vec::new()) } else { self }
    }
}

/// Whether there was no answer to a look-up, which is something else than that there is no such name.
fn is_unanswered(error: &io::Error) -> bool {
    let words = error.to_string();
    error.raw_os_error().is_some() || NO_ANSWER.iter().any(|one| words.ends_with(one))
}

/// The name servers that this text of `/etc/resolv.conf` names, as it writes them.
fn servers(text: &str) -> Vec<String> {
    let named = text.lines().filter_map(|line| {
        // the C libraries take it at the begin of a line alone
        let rest = line.strip_prefix("nameserver").filter(|rest| rest.starts_with([' ', '\t']))?;
        rest.split_whitespace().next().map(str::to_owned)
    });
    named.take(MOST_SERVERS).collect()
}

/// What names mean here, in their order: so many are looked up at a time, each for a third of the time at least. Who waits for one to
/// which there is no answer ends by itself.
pub(super) fn resolved(names: Vec<String>, patience: Duration) -> Vec<Meaning> {
    let begun = clock::host_now().0;
    let gone = move || Duration::from_micros(clock::host_now().0.saturating_sub(begun));
    let mut found = vec![Meaning::Untried; names.len()];
    let (names, next) = (Arc::new(names), Arc::new(AtomicUsize::new(0)));
    let (tell, told) = mpsc::channel();
    for _ in 0..names.len().min(AT_ONCE) {
        let (names, next, tell) = (Arc::clone(&names), Arc::clone(&next), tell.clone());
        let body = move || {
            while gone() < patience * 2 / 3
                && let Some((at, name)) = numbered(&names, next.fetch_add(1, Ordering::Relaxed))
            {
                let is_told = |meaning| tell.send((at, meaning)).is_ok();
                // the others may be waited for no more
                if !(is_told(Meaning::Late) && is_told(Meaning::of(name))) {
                    break;
                }
            }
        };
        // what can't be begun is untried
        let _ = thread::Builder::new().name("look up".to_owned()).spawn(body);
    }
    drop(tell);
    loop {
        match told.recv_timeout(patience.saturating_sub(gone())) {
            Ok((at, meaning)) => found[at] = meaning,
            Err(_) => return found,
        }
    }
}

fn numbered(names: &[String], at: usize) -> Option<(usize, &str)> {
    Some((at, names.get(at)?.as_str()))
}

/// A host as others know it.
struct Known<'a> {
    host: &'a HostId,
    info: &'a HostInfo,
    /// The address by which they reach it, where that is known.
    own: Option<IpAddr>,
}

impl Known<'_> {
    fn has(&self, address: IpAddr) -> bool {
        self.info.addresses.iter().any(|one| one.address == address)
            || self.info.ssh_server_address == Some(address)
    }

    /// Whether another host of the hosts file is this machine too: it was started at the same time and has the same addresses.
    /// Containers of one machine have their own.
    fn is_same_machine(&self, other: &Self) -> bool {
        let (own, others) = (self.info, other.info);
        other.host != self.host
            && !own.addresses.is_empty()
            && (&own.boot_id, &own.addresses) == (&others.boot_id, &others.addresses)
    }

    /// The line of `/etc/hosts` that leads a name to it: the whole name first, as `hostname -f` reads it.
    fn line(&self, name: &str) -> String {
        let own = self.own.map_or_else(|| "<its network address>".to_owned(), |own| own.to_string());
        let short = name.split_once('.').map_or_else(String::new, |(short, _)| format!(" {short}"));
        format!("{own} {name}{short}")
    }
}

fn same_machine(other: &HostId) -> Verdict {
    Verdict::look(
        format!("it is the same machine as {other}"),
        "its GPUs and slots are counted twice, and a run is planned on more than there are",
        "remove one of the two from the hosts file",
    )
}

/// The command that adds lines to the file, whose last one may lack an end, and how many of them it adds: what is too long is not
/// offered.
fn appended(lines: &[String]) -> (String, usize) {
    let quoted: Vec<String> = lines.iter().map(|line| format!("'{line}'")).collect();
    let command =
        |count: usize| format!("printf '\\n%s\\n' {} | sudo tee -a /etc/hosts", quoted[..count].join(" "));
    let fits = |count: &usize| command(*count).chars().count() <= LONGEST;
    let count = (1..=quoted.len()).take_while(fits).last().unwrap_or(quoted.len());
    (command(count), count)
}

/// That these name servers did not answer.
fn unanswered(servers: &[String]) -> String {
    match servers {
        [one] => format!("the name server {one} gives no answer"),
        all => format!("the name servers {} give no answer", all.join(", ")),
    }
}

/// Of names that lead nowhere there, with their lines for `/etc/hosts`. `lasting` are those that a command may add; `is_out` is whether
/// a name server may be out of order.
fn nowhere(seen: String, lines: &[String], lasting: &[String], is_out: bool) -> Verdict {
    let command = Some(appended(lasting)).filter(|_| !lasting.is_empty());
    let rest = lines.len() - command.as_ref().map_or(lines.len(), |(_, count)| *count);
    let rest = if let Some((_, count)) = command.as_ref().filter(|_| rest > 0) {
        format!(" (--fix adds {count} of them; {rest} remain for the next look)")
    } else {
        String::new()
    };
    let add = format!("add to /etc/hosts there: {}{rest}", few(lines, "; "));
    let verdict = Verdict::look(
        seen,
        format!(
            "mpirun -H, horovodrun -H, MASTER_ADDR and TF_CONFIG can fail there with such a name; {GIVEN}"
        ),
        if is_out { format!("{SEE_SERVERS}; where they know no such name, {add}") } else { add },
    );
    match command {
        Some((command, _)) => verdict.fixed_there(command),
        None => verdict,
    }
}

/// The first ones of many.
fn few(all: &[String], between: &str) -> String {
    let mut few: Vec<String> = all.iter().take(SHOWN).cloned().collect();
    few.extend((all.len() > SHOWN).then(|| format!("{} more", all.len() - SHOWN)));
    few.join(between)
}

/// A host that is judged beside the others.
struct Here<'a> {
    found: &'a Found,
    own: &'a Known<'a>,
    all: &'a [Known<'a>],
    /// What each of them calls itself.
    names: &'a [&'a str],
}

impl Here<'_> {
    fn judge(&self) -> Verdict {
        if let Some(other) = self.all.iter().find(|other| self.own.is_same_machine(other)) {
            return same_machine(other.host);
        }
        let name = &self.found.name;
        if !is_legal(name) {
            return Verdict::bad(
                format!("its name is '{name}'"),
                "mpirun refuses a host whose name has other characters than letters, digits, '-' and '.'",
                format!("sudo hostnamectl set-hostname {}, where no other host has that name", legal(name)),
            );
        }
        if self.is_of_several(name) {
            return Verdict::look(
                format!("its name is '{name}', by which it is not told from other hosts"),
                "mpirun takes hosts of one name for one host, and by that name none of the others reaches it",
                "sudo hostnamectl set-hostname NAME, where no other host has that name",
            );
        }
        let own = self.own_name(name);
        if own.is_trouble() || self.found.others.is_empty() {
            return own;
        }
        self.others().unwrap_or_else(|| {
            // hosts come and go
            let lasting = own.evidence;
            Verdict::good(format!("{lasting}; the names of the others lead to them")).lasting(lasting)
        })
    }

    /// Whether a name is one of several hosts, or one by which each means itself.
    fn is_of_several(&self, name: &str) -> bool {
        let first = name.split('.').next().unwrap_or_default();
        first.eq_ignore_ascii_case("localhost")
            || self.names.iter().filter(|one| one.eq_ignore_ascii_case(name)).count() > 1
    }

    /// Of what the host's own name means there.
    fn own_name(&self, name: &str) -> Verdict {
        let (here, all) = (self.own, &self.found.addresses);
        let line = here.line(name);
        let Some(first) = all.first() else {
            let add = format!("add this line to /etc/hosts there: {line}");
            let fails = "programs that look their own host's name up fail, as gloo does";
            let (seen, cause, remedy) = if self.found.is_late {
                (
                    format!("{name} is not looked up in {} s on the host itself", ALL.as_secs()),
                    "a name server does not answer, or the host is too busy: programs that look their own host's name up wait for it, as \
                     gloo does",
                    format!("see whether its name server answers again; where it does not last, {add}"),
                )
            } else if self.found.is_unanswered {
                let servers = unanswered(&self.found.servers);
                let remedy = format!("{SEE_SERVERS}; where they know no such name, {add}");
                (format!("{name} has no address on the host itself: {servers}"), fails, remedy)
            } else {
                (format!("{name} has no address on the host itself"), fails, add)
            };
            let verdict = Verdict::look(seen, cause, remedy);
            // a name server that is out for a while is no reason for a line that stays
            let is_sure = here.own.is_some() && !self.found.is_late && !self.found.is_unanswered;
            return if is_sure { verdict.fixed_there(appended(&[line]).0) } else { verdict };
        };
        if let Some(loopback) = all.iter().find(|address| address.is_loopback()) {
            let verdict = Verdict::look(
                format!("{name} is {loopback} on the host itself"),
                "a program that tells others its own name listens where only this host can connect",
                format!(
                    "in /etc/hosts there, give {name} its own address in the place of {loopback}: {line}"
                ),
            );
            // the line of 127.0.0.1 is localhost's, too
            let Some(own) = here.own.filter(|_| loopback.to_string() == DEBIANS) else { return verdict };
            let command = format!("sudo sed -i 's/^127\\.0\\.1\\.1\\([[:space:]]\\)/{own}\\1/' /etc/hosts");
            return verdict.fixed_there(command);
        }
        if !here.info.addresses.is_empty() && !all.iter().any(|one| here.has(*one)) {
            return Verdict::look(
                format!("{name} is {first} on the host itself, {}", self.whose(*first, here)),
                "a program that tells others its own name can't listen there, or sends them to another machine",
                format!(
                    "in /etc/hosts there, or at its name server, give {name} its own address in the place of {first}: {line}"
                ),
            );
        }
        Verdict::good(format!("{name} is {first}"))
    }

    /// Whose an address is to which the name of `owner` leads in the place of its own.
    fn whose(&self, address: IpAddr, owner: &Known<'_>) -> String {
        if address.is_loopback() || self.own.has(address) {
            return "by which the host reaches itself".to_owned();
        }
        match (self.all.iter().find(|one| one.has(address)), owner.own) {
            (Some(other), _) => format!("an address of {}", other.host),
            (None, Some(own)) => format!("none of its own addresses ({own})"),
            (None, None) => "none of its own addresses".to_owned(),
        }
    }

    /// The address to which another host's name leads in the place of its own, where it does.
    fn astray(&self, peer: &Known<'_>, addresses: &[IpAddr]) -> Option<IpAddr> {
        let loopback = addresses.iter().find(|one| one.is_loopback());
        let leads = addresses.iter().any(|one| peer.has(*one) && !self.own.has(*one));
        // of a host whose addresses are not known it can't be told
        let first = addresses.first().filter(|_| !leads && !peer.info.addresses.is_empty());
        loopback.or(first).copied()
    }

    /// Of the names of the other hosts; `None` where each leads to its own.
    fn others(&self) -> Option<Verdict> {
        let (mut absent, mut astray, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        // a name server that is out for a while is no reason for lines that stay
        let mut lasting = Vec::new();
        let (mut is_known, mut is_sure, mut untried) = (true, false, 0_usize);
        let (mut is_late, mut is_unanswered) = (false, false);
        for peer in self.all.iter().filter(|peer| peer.host != self.own.host) {
            let Some(other) = self.found.others.iter().find(|one| one.host == *peer.host) else { continue };
            let name = &other.name;
            // what such a name does to it is told of its own host
            if !is_legal(name) || self.is_of_several(name) {
                continue;
            }
            let is_id = name == peer.host.as_str();
            let called = if is_id { name.clone() } else { format!("{name} ({})", peer.host) };
            match other.addresses.as_deref() {
                None if other.is_untried => {
                    untried += 1;
                    continue;
                }
                None if other.is_unanswered => {
                    is_unanswered = true;
                    absent.push(called);
                }
                None => {
                    is_late = true;
                    absent.push(format!("{called} in time"));
                }
                Some([]) => {
                    absent.push(called);
                    is_known &= peer.own.is_some();
                    lasting.push(peer.line(name));
                }
                Some(addresses) => {
                    let Some(address) = self.astray(peer, addresses) else { continue };
                    is_sure |= address.is_loopback() || self.all.iter().any(|one| one.has(address));
                    astray.push(format!("{called} is {address} there, {}", self.whose(address, peer)));
                }
            }
            lines.push(peer.line(name));
        }
        let mut seen = Vec::new();
        seen.extend((!astray.is_empty()).then(|| few(&astray, "; ")));
        seen.extend(
            (!absent.is_empty()).then(|| format!("no address is found there for {}", few(&absent, ", "))),
        );
        seen.extend(is_unanswered.then(|| unanswered(&self.found.servers)));
        let is_told = !seen.is_empty();
        let of_untried =
            || format!("not looked up in time there: the names of {}", counted(untried, "other host"));
        seen.extend((untried > 0).then(of_untried));
        let seen = seen.join("; ");
        if !is_told {
            return (untried > 0).then(|| Verdict::unknown(seen));
        }
        if astray.is_empty() {
            let lasting: &[String] = if is_known { &lasting } else { &[] };
            return Some(nowhere(seen, &lines, lasting, is_late || is_unanswered));
        }
        let comes = if is_sure {
            "comes to another host, and hangs or is refused"
        } else {
            "may come to another host, and hang or be refused"
        };
        let cause = format!(
            "what mpirun -H, horovodrun -H, MASTER_ADDR or TF_CONFIG give such a name to there {comes}; {GIVEN}"
        );
        let remedy = format!(
            "in /etc/hosts there, or at its name server, give each its own address: {}",
            few(&lines, "; ")
        );
        // what is only not known here may lead to it by a gateway
        Some(if is_sure {
            Verdict::bad(seen, cause, remedy).may_run()
        } else {
            Verdict::look(seen, cause, remedy)
        })
    }
}

/// What Debian's installer gives a host's own name.
const DEBIANS: &str = "127.0.1.1";

/// A name that mpirun takes, as near to this one as can be.
fn legal(name: &str) -> String {
    let legal = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let legal = legal.trim_matches(['-', '.']);
    if legal.is_empty() { "gpu-1".to_owned() } else { legal.to_owned() }
}

/// The names that Open MPI takes (its `orte/util/help-regex.txt`).
fn is_legal(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let at_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    at_end(name.chars().next()) && at_end(name.chars().last()) && name.chars().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{info_with, seen_with};
    use crate::domain::preflight::Mark;

    fn addresses(all: &[&str]) -> Vec<IpAddr> {
        all.iter().map(|one| one.parse().unwrap()).collect()
    }

    fn found(name: &str, all: &[&str]) -> Found {
        Found { name: name.to_owned(), addresses: addresses(all), ..Found::default() }
    }

    /// The verdict on a host without others, by what its name means there and by its own addresses.
    fn alone(name: &str, means: &[&str], own: &[(&str, &str)]) -> Verdict {
        Hostname::judge(&seen_with([(info_with(own), found(name, means))])).remove(0)
    }

    const DOCKER: (&str, &str) = ("docker0", "172.17.0.1");
    const OWN: [(&str, &str); 2] = [DOCKER, ("eth0", "10.0.0.2")];

    #[test]
    fn one_machine_under_two_names_is_told() {
        let told = |name: &str, address: &str| (info_with(&[("eth0", address)]), found(name, &[address]));
        let hosts = [told("n1", "10.0.0.2"), told("n2", "10.0.0.3"), told("n3", "10.0.0.2")];
        let verdicts = Hostname::judge(&seen_with(hosts));
        assert_eq!(
            verdicts.iter().map(|one| one.mark).collect::<Vec<_>>(),
            [Mark::Look, Mark::Good, Mark::Look]
        );
        assert!(verdicts[0].evidence.starts_with("it is the same machine as "), "{verdicts:?}");
    }

    #[test]
    fn the_line_for_the_file_is_told_with_its_address() {
        assert_eq!(
            alone("gpu-a", &["127.0.1.1"], &OWN).remedy.unwrap(),
            "in /etc/hosts there, give gpu-a its own address in the place of 127.0.1.1: 10.0.0.2 gpu-a"
        );
        assert_eq!(
            alone("gpu-a.lab", &[], &OWN).remedy.unwrap(),
            "add this line to /etc/hosts there: 10.0.0.2 gpu-a.lab gpu-a"
        );
    }

    #[test]
    fn the_command_changes_debians_line_alone() {
        let of = |means: &[&str], own: &[(&str, &str)]| alone("gpu-a", means, own).help().unwrap();
        let command = of(&["127.0.1.1"], &OWN);
        assert_eq!(command, r"sudo sed -i 's/^127\.0\.1\.1\([[:space:]]\)/10.0.0.2\1/' /etc/hosts");
        assert!(of(&["127.0.0.1"], &OWN).starts_with("in /etc/hosts there, give"));
        assert!(of(&["127.0.1.1"], &[]).starts_with("in /etc/hosts there, give"));
        assert_eq!(of(&[], &OWN), r"printf '\n%s\n' '10.0.0.2 gpu-a' | sudo tee -a /etc/hosts");
        assert_eq!(["gpu_a", "_", "a b."].map(legal), ["gpu-a", "gpu-1", "a-b"]);
    }

    #[test]
    fn names_and_addresses_are_told_apart() {
        let of = |name: &str, means: &[&str]| alone(name, means, &[]).mark;
        assert_eq!(of("gpu-a.lab", &["10.0.0.1"]), Mark::Good);
        assert_eq!(of("gpu-a", &["127.0.1.1"]), Mark::Look, "Debian's default");
        assert_eq!(of("gpu-a", &[]), Mark::Look);
        for name in ["gpu_a", "-a", "a.", "gpu a", ""] {
            assert_eq!(of(name, &["10.0.0.1"]), Mark::Bad, "{name}");
        }
        for name in ["localhost", "localhost.localdomain"] {
            assert_eq!(of(name, &["10.0.0.1"]), Mark::Look, "{name}");
        }
        let common = alone("localhost", &["10.0.0.1"], &[]).evidence;
        assert_eq!(common, "its name is 'localhost', by which it is not told from other hosts");
    }

    #[test]
    fn a_name_that_leads_to_another_machine_is_told_of_its_own_host() {
        let verdict = alone("gpu-a", &["10.9.9.9"], &OWN);
        let seen = "gpu-a is 10.9.9.9 on the host itself, none of its own addresses (10.0.0.2)";
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Look, seen));
        assert!(verdict.remedy.unwrap().ends_with(": 10.0.0.2 gpu-a"));
        let own = alone("gpu-a", &["10.9.9.9", "10.0.0.2"], &OWN);
        assert_eq!(own.mark, Mark::Good, "one of several");
        let hosts = [
            (info_with(&OWN), found("gpu-a", &["10.0.0.3"])),
            (info_with(&[("eth0", "10.0.0.3")]), found("gpu-b", &["10.0.0.3"])),
        ];
        let verdicts = Hostname::judge(&seen_with(hosts));
        assert!(verdicts[0].evidence.ends_with(", an address of host-1"), "{verdicts:?}");
        assert_eq!(verdicts[1].mark, Mark::Good);
    }

    #[test]
    fn an_own_name_without_an_answer_is_told_with_its_line() {
        let late = Found { is_late: true, ..found("gpu-a", &[]) };
        let verdict = Hostname::judge(&seen_with([(info_with(&OWN), late)])).remove(0);
        let seen = "gpu-a is not looked up in 3 s on the host itself";
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Look, seen));
        assert_eq!(verdict.fix, None, "its name server may be out for a while");
        assert!(verdict.remedy.unwrap().ends_with("add this line to /etc/hosts there: 10.0.0.2 gpu-a"));
    }

    #[test]
    fn a_name_server_that_is_out_of_order_is_named() {
        let servers = || vec!["10.0.0.53".to_owned()];
        let own = Found { is_unanswered: true, servers: servers(), ..found("gpu-a", &[]) };
        let verdict = Hostname::judge(&seen_with([(info_with(&OWN), own)])).remove(0);
        let seen = "gpu-a has no address on the host itself: the name server 10.0.0.53 gives no answer";
        assert_eq!((verdict.mark, verdict.evidence.as_str(), &verdict.fix), (Mark::Look, seen, &None));
        let remedy = verdict.remedy.unwrap();
        assert!(remedy.starts_with("see whether the servers in /etc/resolv.conf there answer"), "{remedy}");
        assert!(
            remedy
                .ends_with("where they know no such name, add this line to /etc/hosts there: 10.0.0.2 gpu-a")
        );
        let verdict = beside_with("gpu-b", Meaning::Unanswered);
        let seen = "no address is found there for gpu-b (host-1); the name servers 10.0.0.53, 10.0.0.54 give no answer";
        assert_eq!((verdict.mark, verdict.evidence.as_str(), &verdict.fix), (Mark::Look, seen, &None));
        let remedy = verdict.remedy.unwrap();
        assert!(
            remedy.ends_with("where they know no such name, add to /etc/hosts there: 10.0.0.2 gpu-b"),
            "{remedy}"
        );
    }

    #[test]
    fn no_answer_is_told_from_no_such_name() {
        let of = |words: &str| {
            is_unanswered(&io::Error::other(format!("failed to lookup address information: {words}")))
        };
        assert!(NO_ANSWER.iter().all(|words| of(words)));
        for words in
            ["Name or service not known", "No address associated with hostname", "Name does not resolve"]
        {
            assert!(!of(words), "{words}");
        }
        assert!(is_unanswered(&io::Error::from_raw_os_error(libc::ECONNREFUSED)));
        let told = servers(
            "# nameserver 1.1.1.1\nsearch lab\nnameserver 10.0.0.53 # first\nnameserver\tfe80::1%eth0\n nameserver 1.1.1.1\nnameservers 1.1.1.1\nnameserver\n",
        );
        assert_eq!(told, ["10.0.0.53", "fe80::1%eth0"]);
        let with = |name: &str, servers: &[String]| Meaning::Unanswered.with(name, servers);
        assert_eq!(with("gpu-b", &told), Meaning::Unanswered);
        let nowhere = Meaning::Of(Vec::new());
        assert_eq!(with("gpu-b", &[]), nowhere, "there is no server to be out of order");
        assert_eq!(Meaning::Late.with("gpu-b", &[]), Meaning::Late);
        let stub = servers("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n");
        assert_eq!(
            with("gpu-b", &stub),
            nowhere,
            "systemd-resolved says so of each name that it does not know"
        );
        assert_eq!(with("gpu-b.lab", &stub), Meaning::Unanswered);
        // as an older hvtui tells it
        let old = r#"{"name": "gpu-a", "addresses": [], "others": [{"host": "n2", "name": "gpu-b", "addresses": null}]}"#;
        let old: Found = serde_json::from_str(old).unwrap();
        assert!(!old.is_unanswered && old.servers.is_empty() && !old.others[0].is_unanswered);
    }

    #[test]
    fn an_address_that_two_hosts_have_is_no_ones_own() {
        // containers of two machines, reached by their forwarded ports
        let told = |name: &str, boot: &str, address: &str| {
            let info = HostInfo {
                boot_id: boot.to_owned(),
                ssh_server_address: address.parse().ok(),
                ..info_with(&[("eth0", address)])
            };
            (info, found(name, &[]))
        };
        let commands = |first: &str, second: &str| {
            let hosts = [told("c1", "1", first), told("c2", "2", second)];
            let verdicts = Hostname::judge(&seen_with(hosts));
            assert!(verdicts.iter().all(|one| one.mark == Mark::Look), "{verdicts:?}");
            verdicts.into_iter().map(|one| one.help().unwrap()).collect::<Vec<String>>()
        };
        let none = |name: &str| format!("add this line to /etc/hosts there: <its network address> {name}");
        assert_eq!(commands("172.17.0.2", "172.17.0.2"), [none("c1"), none("c2")]);
        let own = commands("172.17.0.2", "172.17.0.3");
        assert!(own[0].contains("'172.17.0.2 c1'") && own[1].contains("'172.17.0.3 c2'"), "{own:?}");
    }

    /// The verdict on `host-0` of three, by what the name of `host-1` means there.
    fn beside(name: &str, means: Option<&[&str]>) -> Verdict {
        let meaning = means.map_or(Meaning::Late, |all| Meaning::Of(addresses(all)));
        beside_with(name, meaning)
    }

    fn beside_with(name: &str, meaning: Meaning) -> Verdict {
        let other = Other::of(HostId::from("host-1"), name.to_owned(), meaning);
        let info = |address: &str| info_with(&[DOCKER, ("eth0", address)]);
        let servers = vec!["10.0.0.53".to_owned(), "10.0.0.54".to_owned()];
        let hosts = [
            (info("10.0.0.1"), Found { others: vec![other], servers, ..found("gpu-a", &["10.0.0.1"]) }),
            (info("10.0.0.2"), found(name, &["10.0.0.2"])),
            (info("10.0.0.3"), found("gpu-c", &["10.0.0.3"])),
        ];
        Hostname::judge(&seen_with(hosts)).remove(0)
    }

    #[test]
    fn a_name_of_another_host_that_leads_nowhere_is_told_with_its_line() {
        let good = beside("gpu-b", Some(&["fd00::2", "10.0.0.2"]));
        let seen = "gpu-a is 10.0.0.1; the names of the others lead to them";
        assert_eq!((good.mark, good.evidence.as_str()), (Mark::Good, seen));
        let absent = beside("gpu-b.lab", Some(&[]));
        let seen = "no address is found there for gpu-b.lab (host-1)";
        assert_eq!((absent.mark, absent.evidence.as_str()), (Mark::Look, seen));
        assert_eq!(absent.remedy.as_deref(), Some("add to /etc/hosts there: 10.0.0.2 gpu-b.lab gpu-b"));
        let command = r"printf '\n%s\n' '10.0.0.2 gpu-b.lab gpu-b' | sudo tee -a /etc/hosts";
        assert_eq!(absent.help().as_deref(), Some(command));
        let late = beside("gpu-b", None);
        assert!(late.mark == Mark::Look && late.evidence.ends_with("gpu-b (host-1) in time"), "{late:?}");
        assert_eq!(late.fix, None, "its name server may be out for a while");
        assert!(late.remedy.unwrap().starts_with("see whether the servers in /etc/resolv.conf there answer"));
        let untried = beside_with("gpu-b", Meaning::Untried);
        let seen = "not looked up in time there: the names of 1 other host";
        assert_eq!((untried.mark, untried.evidence.as_str(), untried.fix), (Mark::Unknown, seen, None));
        // what is wrong with such a name is told of its own host
        assert_eq!(beside("gpu_b", Some(&[])).mark, Mark::Good);
        assert_eq!(beside("gpu-c", Some(&[])).mark, Mark::Good);
    }

    #[test]
    fn a_name_of_another_host_that_leads_elsewhere_is_told_with_whose_address_it_is() {
        for (means, mark, whose) in [
            ("127.0.1.1", Mark::Bad, "by which the host reaches itself"),
            ("10.0.0.1", Mark::Bad, "by which the host reaches itself"),
            ("172.17.0.1", Mark::Bad, "by which the host reaches itself"),
            ("10.0.0.3", Mark::Bad, "an address of host-2"),
            ("10.9.9.9", Mark::Look, "none of its own addresses (10.0.0.2)"),
        ] {
            let verdict = beside("gpu-b", Some(&[means]));
            let seen = format!("gpu-b (host-1) is {means} there, {whose}");
            assert_eq!((verdict.mark, verdict.evidence.as_str()), (mark, seen.as_str()));
            assert!(!verdict.stops_launch() && verdict.fix.is_none(), "{verdict:?}");
            assert!(verdict.remedy.unwrap().ends_with(": 10.0.0.2 gpu-b"));
            let comes = if mark == Mark::Bad { " there comes to " } else { " there may come to " };
            assert!(verdict.cause.unwrap().contains(comes));
        }
    }

    #[test]
    fn the_command_for_many_names_adds_as_many_as_can_be_seen() {
        let told = |number: usize, others: Vec<Other>| {
            let (name, address) = (format!("node{number:02}.cluster.lab"), format!("10.0.0.{number}"));
            let address = address.as_str();
            (info_with(&[("eth0", address)]), Found { others, ..found(&name, &[address]) })
        };
        let other = |number: usize| {
            let host = HostId::from(format!("host-{number}").as_str());
            let meaning = if number < 30 { Meaning::Of(Vec::new()) } else { Meaning::Untried };
            Other::of(host, format!("node{number:02}.cluster.lab"), meaning)
        };
        let others = (1..40).map(|number| told(number, Vec::new()));
        let hosts = [told(0, (1..40).map(other).collect())].into_iter().chain(others);
        let verdict = Hostname::judge(&seen_with(hosts)).remove(0);
        assert!(verdict.evidence.ends_with("; not looked up in time there: the names of 10 other hosts"));
        let command = verdict.help().unwrap();
        let count = command.matches(".lab node").count();
        assert!(count > 5 && count < 29 && command.chars().count() <= LONGEST, "{command}");
        assert!(command.contains("'10.0.0.1 node01.cluster.lab node01'"), "{command}");
        let rest = format!(" (--fix adds {count} of them; {} remain for the next look)", 29 - count);
        assert!(verdict.remedy.unwrap().ends_with(&rest), "{rest}");
    }

    #[test]
    fn a_name_that_two_hosts_have_is_told_of_both() {
        let told = |name: &str, address: &str| (info_with(&[("eth0", address)]), found(name, &[address]));
        let hosts = [told("node", "10.0.0.1"), told("Node", "10.0.0.2"), told("other", "10.0.0.3")];
        let marks: Vec<Mark> = Hostname::judge(&seen_with(hosts)).iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Look, Mark::Look, Mark::Good]);
    }

    #[test]
    fn names_are_looked_up_in_their_order() {
        let names: Vec<String> = (0..40).map(|number| format!("10.0.0.{number}")).collect();
        let all = resolved(names.clone(), Duration::from_secs(60));
        let expected = names.iter().map(|name| Meaning::Of(addresses(&[name.as_str()])));
        assert_eq!(all, expected.collect::<Vec<Meaning>>());
        assert!(resolved(Vec::new(), ALL).is_empty());
        assert_eq!(resolved(names, Duration::ZERO), vec![Meaning::Untried; 40]);
    }
}
