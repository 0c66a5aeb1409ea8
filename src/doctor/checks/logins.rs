//! Whether a host can log in to others without a person: mpirun and horovodrun start their ranks so, hvtui does not need it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::domain::doctor::{Fix, Peer, Verdict};
use crate::domain::ids::HostId;

pub(in crate::doctor) struct Logins;

/// So many of the hosts behind it each one tries: together they try each host, and none tries all of a large cluster.
const TRIED: usize = 3;
/// Of a cluster with more hosts each tries the next one alone: a login costs both sides a key exchange.
const LARGE: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Login {
    host: HostId,
    /// Why it failed; absent where it did not.
    fault: Option<String>,
}

impl Check for Logins {
    const NAME: &'static str = "logins";
    const ASKS: &'static str = "can it log in to other hosts by ssh, as mpirun and horovodrun do";
    const MEETS_OTHERS: bool = true;
    /// Absent without an ssh.
    type Found = Option<Vec<Login>>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let Some(ssh) = site.program("ssh") else { return Ok(None) };
        let most = if site.peers.len() < LARGE { TRIED } else { 1 };
        let tried: Vec<(&Peer, Vec<String>)> =
            site.peers.iter().filter_map(|peer| Some((peer, words(peer)?))).take(most).collect();
        let login = |(Peer { host, .. }, words): (&Peer, Vec<String>)| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let fault = match site.ask(&ssh, &words) {
                Ok(told) if told.status.success() => None,
                Ok(told) => Some(told.last_words().trim_end_matches('\r').to_owned()),
                Err(why) => Some(why),
            };
            Login { host: host.clone(), fault }
        };
        // at once: each may take seconds
        Ok(Some(std::thread::scope(|scope| {
            let logins: Vec<_> = tried.into_iter().map(|one| scope.spawn(move || login(one))).collect();
            logins.into_iter().filter_map(|login| login.join().ok()).collect()
        })))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one.found.as_deref())).collect()
    }
}

/// The arguments of ssh for one of them: port and login name are those of the hosts file, else ssh's own.
fn words(peer: &Peer) -> Option<Vec<String>> {
    let address = peer.addresses.first()?;
    let options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=2", "-o", "StrictHostKeyChecking=yes"];
    let mut words: Vec<String> = options.map(str::to_owned).to_vec();
    words.extend(peer.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
    words.extend(peer.user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]));
    words.extend([address.to_string(), "true".to_owned()]);
    Some(words)
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
        let hosts: Vec<&str> = logins.iter().map(|login| login.host.as_str()).collect();
        return Verdict::good(format!("logs in to {}", hosts.join(", ")));
    }
    Verdict::look(
        failed.join("; "),
        "mpirun and horovodrun started by themselves end or hang there; the runs of hvtui need no login between hosts",
        "hvtui hosts mesh   (or: ssh-copy-id and ssh-keyscan there)",
    )
    .fixed_by(Fix::Here(vec!["hosts".to_owned(), "mesh".to_owned()]))
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
        };
        let of = |peer: &Peer| words(peer).unwrap()[6..].join(" ");
        assert_eq!(of(&peer(Some("ml"), Some(2222))), "-p 2222 -l ml 10.0.0.2 true");
        assert_eq!(of(&peer(None, None)), "10.0.0.2 true");
        assert!(words(&Peer { addresses: Vec::new(), ..peer(None, None) }).is_none());
    }

    #[test]
    fn what_ssh_says_is_told_with_the_host() {
        let login = |fault: Option<&str>| Login { host: HostId::from("b"), fault: fault.map(str::to_owned) };
        assert_eq!(judge(Some(&[login(None)])).mark, Mark::Good);
        let refused = judge(Some(&[login(None), login(Some("Host key verification failed."))]));
        assert_eq!(
            (refused.mark, refused.evidence.as_str()),
            (Mark::Look, "to b: Host key verification failed.")
        );
        assert_eq!(judge(None).mark, Mark::Unknown);
        assert_eq!(judge(Some(&[])).mark, Mark::Unknown);
    }
}
