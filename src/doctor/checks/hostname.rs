//! Whether a host's own name is one that launchers take, and leads others to it.

use std::net::{IpAddr, ToSocketAddrs};

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use super::interface;
use crate::domain::doctor::Verdict;
use crate::domain::told_address::is_bridge;

pub(in crate::doctor) struct Hostname;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    name: String,
    /// What the name means on the host itself.
    addresses: Vec<IpAddr>,
}

impl Check for Hostname {
    const NAME: &'static str = "hostname";
    const ASKS: &'static str = "is the host's own name one that mpirun takes, and not that of its loopback";
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let addresses = (name.as_str(), 0).to_socket_addrs();
        let addresses = addresses.map(|all| all.map(|one| one.ip()).collect()).unwrap_or_default();
        Ok(Found { name, addresses })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let holders = interface::holders(seen.iter().map(|one| one.info));
        let own = |one: &Seen<'_, Found>| {
            let first = interface::first(one.info, &holders, |_| false);
            // by a bridge of containers the host reaches itself
            let others = || one.info.addresses.iter().filter(|one| one.address.is_ipv4());
            let first = first.filter(|one| !is_bridge(&one.interface)).or_else(|| {
                others().find(|one| !is_bridge(&one.interface) && holders.get(&one.address) == Some(&1))
            });
            first.map(|one| one.address.to_string())
        };
        let judge = |one: &Seen<'_, Found>| match twin(one, seen) {
            Some(other) => same_machine(other),
            None => judge(&one.found, own(one).as_deref()),
        };
        seen.iter().map(judge).collect()
    }
}

/// Another host of the hosts file that is this machine too: it was started at the same time and has the same addresses.
/// Containers of one machine have their own.
fn twin<'a>(one: &Seen<'_, Found>, seen: &'a [Seen<'_, Found>]) -> Option<&'a str> {
    let is_same = |other: &&Seen<'_, Found>| {
        let (own, others) = (one.info, other.info);
        other.host != one.host
            && !own.addresses.is_empty()
            && (&own.boot_id, &own.addresses) == (&others.boot_id, &others.addresses)
    };
    seen.iter().find(is_same).map(|other| other.host.as_str())
}

fn same_machine(other: &str) -> Verdict {
    Verdict::look(
        format!("it is the same machine as {other}"),
        "its GPUs and slots are counted twice, and a run is planned on more than there are",
        "remove one of the two from the hosts file",
    )
}

/// `own` is the address by which other hosts reach it, where that is known.
fn judge(found: &Found, own: Option<&str>) -> Verdict {
    let name = &found.name;
    let known = own;
    let own = own.unwrap_or("<its network address>");
    // the whole name first, as `hostname -f` reads it
    let short = name.split_once('.').map_or_else(String::new, |(short, _)| format!(" {short}"));
    let line = format!("{own} {name}{short}");
    if !is_legal(&found.name) {
        return Verdict::bad(
            format!("its name is '{name}'"),
            "mpirun refuses a host whose name has other characters than letters, digits, '-' and '.'",
            format!("sudo hostnamectl set-hostname {}, where no other host has that name", legal(name)),
        );
    }
    let (Some(first), all) = (found.addresses.first(), &found.addresses) else {
        let verdict = Verdict::look(
            format!("{name} has no address on the host itself"),
            "programs that look their own host's name up fail, as gloo does",
            format!("add this line to /etc/hosts there: {line}"),
        );
        // its last line may lack an end
        let command = format!("printf '\\n%s\\n' '{line}' | sudo tee -a /etc/hosts");
        return if known.is_some() { verdict.fixed_there(command) } else { verdict };
    };
    if let Some(loopback) = all.iter().find(|address| address.is_loopback()) {
        let verdict = Verdict::look(
            format!("{name} is {loopback} on the host itself"),
            "a program that tells others its own name listens where only this host can connect",
            format!("in /etc/hosts there, give {name} its own address in the place of {loopback}: {line}"),
        );
        // the line of 127.0.0.1 is localhost's, too
        let is_debians = known.is_some() && loopback.to_string() == DEBIANS;
        let command = format!("sudo sed -i 's/^127\\.0\\.1\\.1\\([[:space:]]\\)/{own}\\1/' /etc/hosts");
        return if is_debians { verdict.fixed_there(command) } else { verdict };
    }
    Verdict::good(format!("{name} is {first}"))
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

    #[test]
    fn one_machine_under_two_names_is_told() {
        let told = |address: &str| {
            let found = Found { name: "n1".to_owned(), addresses: address.parse().into_iter().collect() };
            (info_with(&[("eth0", address)]), found)
        };
        let verdicts = Hostname::judge(&seen_with([told("10.0.0.2"), told("10.0.0.3"), told("10.0.0.2")]));
        assert_eq!(
            verdicts.iter().map(|one| one.mark).collect::<Vec<_>>(),
            [Mark::Look, Mark::Good, Mark::Look]
        );
        assert!(verdicts[0].evidence.starts_with("it is the same machine as "), "{verdicts:?}");
    }

    #[test]
    fn the_line_for_the_file_is_told_with_its_address() {
        let of = |name: &str, address: &str| {
            let addresses = address.parse().into_iter().collect();
            let told = (
                info_with(&[("docker0", "172.17.0.1"), ("eth0", "10.0.0.2")]),
                Found { name: name.to_owned(), addresses },
            );
            Hostname::judge(&seen_with([told])).remove(0).remedy.unwrap()
        };
        assert_eq!(
            of("gpu-a", "127.0.1.1"),
            "in /etc/hosts there, give gpu-a its own address in the place of 127.0.1.1: 10.0.0.2 gpu-a"
        );
        assert_eq!(of("gpu-a.lab", ""), "add this line to /etc/hosts there: 10.0.0.2 gpu-a.lab gpu-a");
    }

    #[test]
    fn the_command_changes_debians_line_alone() {
        let of = |name: &str, address: &str, own: Option<&str>| {
            let addresses = address.parse().into_iter().collect();
            judge(&Found { name: name.to_owned(), addresses }, own).help().unwrap()
        };
        let command = of("gpu-a", "127.0.1.1", Some("10.0.0.2"));
        assert_eq!(command, r"sudo sed -i 's/^127\.0\.1\.1\([[:space:]]\)/10.0.0.2\1/' /etc/hosts");
        assert!(of("gpu-a", "127.0.0.1", Some("10.0.0.2")).starts_with("in /etc/hosts there, give"));
        assert!(of("gpu-a", "127.0.1.1", None).starts_with("in /etc/hosts there, give"));
        assert_eq!(
            of("gpu-a", "", Some("10.0.0.2")),
            r"printf '\n%s\n' '10.0.0.2 gpu-a' | sudo tee -a /etc/hosts"
        );
        assert_eq!(["gpu_a", "_", "a b."].map(legal), ["gpu-a", "gpu-1", "a-b"]);
    }

    #[test]
    fn names_and_addresses_are_told_apart() {
        let of = |name: &str, address: &str| {
            let addresses = address.parse().into_iter().collect();
            judge(&Found { name: name.to_owned(), addresses }, None).mark
        };
        assert_eq!(of("gpu-a.lab", "10.0.0.1"), Mark::Good);
        assert_eq!(of("gpu-a", "127.0.1.1"), Mark::Look, "Debian's default");
        assert_eq!(of("gpu-a", ""), Mark::Look);
        for name in ["gpu_a", "-a", "a.", "gpu a", ""] {
            assert_eq!(of(name, "10.0.0.1"), Mark::Bad, "{name}");
        }
    }
}
