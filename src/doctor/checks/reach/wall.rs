//! What keeps others out of a host, as far as any user can see it, and the command that lets them in.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::super::site::on;

/// Where rendezvous ports of torch begin; the ports of NCCL, Gloo and hvtui's own launches are those that the kernel gives.
const FIRST: u16 = 29_400;
/// The kernel's own range where it can't be read.
const USUAL: (u16, u16) = (32_768, 60_999);
/// Folders of administrators' programs, which a command over ssh may not find.
const SBIN: &str = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin";

/// The program by which a host's firewall is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Keeper {
    Ufw,
    Firewalld,
    Nft,
    Iptables,
}

/// What a host tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Wall {
    #[serde(default)]
    pub(super) keeper: Option<Keeper>,
    /// The ports that its kernel gives to who asks for any.
    #[serde(default)]
    pub(super) ports: Option<(u16, u16)>,
}

impl Wall {
    /// That of the host whose files lie below `root`.
    pub(super) fn below(root: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let is_on = |line: &str| line.trim().eq_ignore_ascii_case("enabled=yes");
        let is_there = |path: &str| root.join(path).exists();
        let keeper = if text("etc/ufw/ufw.conf").lines().any(is_on) {
            Some(Keeper::Ufw)
        } else if is_there("run/firewalld.pid") || is_there("run/firewalld") {
            Some(Keeper::Firewalld)
        } else if on(Some(SBIN.as_ref()), "iptables").is_some() {
            // of today's systems it writes rules of nft's
            Some(Keeper::Iptables)
        } else {
            on(Some(SBIN.as_ref()), "nft").map(|_| Keeper::Nft)
        };
        Self { keeper, ports: range(&text("proc/sys/net/ipv4/ip_local_port_range")) }
    }

    /// What lets TCP from there in, to one port or to all that ranks take.
    pub(super) fn opened_to(&self, source: &str, port: Option<u16>) -> String {
        let (low, high) = self.ports.unwrap_or(USUAL);
        let (low, high) = port.map_or((low.min(FIRST), high), |port| (port, port));
        let between = |sign: &str| if low == high { low.to_string() } else { format!("{low}{sign}{high}") };
        let is_v6 = source.contains(':');
        match self.keeper {
            Some(Keeper::Ufw) => {
                format!("sudo ufw allow proto tcp from {source} to any port {}", between(":"))
            }
            Some(Keeper::Firewalld) => {
                let family = if is_v6 { "ipv6" } else { "ipv4" };
                format!(
                    "sudo firewall-cmd --permanent --add-rich-rule='rule family={family} source address={source} port \
                     port={} protocol=tcp accept' && sudo firewall-cmd --reload",
                    between("-")
                )
            }
            Some(Keeper::Nft) => {
                let family = if is_v6 { "ip6" } else { "ip" };
                format!(
                    "sudo nft insert rule inet filter input {family} saddr {source} tcp dport {} accept",
                    between("-")
                )
            }
            Some(Keeper::Iptables) => {
                let program = if is_v6 { "ip6tables" } else { "iptables" };
                format!("sudo {program} -I INPUT -p tcp -s {source} --dport {} -j ACCEPT", between(":"))
            }
            None if low == high => format!("let TCP from {source} to port {low} in"),
            None => format!("let TCP from {source} to ports {low} to {high} in"),
        }
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next()?, words.next()?) {
        (Ok(low), Ok(high)) if low <= high => Some((low, high)),
        _ => None,
    }
}

/// The addresses as a firewall's rule names them: one, or the network of 256 or of 65536 that all of them are in. `None` for
/// addresses without a network in common, and for those of the internet, whose neighbours are strangers.
pub(super) fn source(addresses: &[IpAddr]) -> Option<String> {
    let first = *addresses.first()?;
    if addresses.iter().all(|one| *one == first) {
        return Some(first.to_string());
    }
    let v4: Option<Vec<[u8; 4]>> = addresses
        .iter()
        .map(|one| match one {
            IpAddr::V4(one) => is_private(*one).then(|| one.octets()),
            IpAddr::V6(_) => None,
        })
        .collect();
    let v4 = v4?;
    let [a, b, c, _] = *v4.first()?;
    if v4.iter().all(|one| one[..3] == [a, b, c]) {
        Some(format!("{}/24", Ipv4Addr::new(a, b, c, 0)))
    } else if v4.iter().all(|one| one[..2] == [a, b]) {
        Some(format!("{}/16", Ipv4Addr::new(a, b, 0, 0)))
    } else {
        None
    }
}

/// Of a network of one's own, or of the addresses that providers share among theirs (100.64.0.0/10).
fn is_private(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private() || address.is_link_local() || (a == 100 && b & 0xc0 == 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keeper_of_a_firewall_has_its_own_line() {
        let of = |keeper| Wall { keeper, ports: Some((40_000, 50_000)) }.opened_to("10.0.0.0/24", None);
        assert_eq!(
            of(Some(Keeper::Ufw)),
            "sudo ufw allow proto tcp from 10.0.0.0/24 to any port 29400:50000"
        );
        assert_eq!(
            of(Some(Keeper::Iptables)),
            "sudo iptables -I INPUT -p tcp -s 10.0.0.0/24 --dport 29400:50000 -j ACCEPT"
        );
        assert_eq!(
            of(Some(Keeper::Nft)),
            "sudo nft insert rule inet filter input ip saddr 10.0.0.0/24 tcp dport 29400-50000 accept"
        );
        let firewalld = of(Some(Keeper::Firewalld));
        assert!(firewalld.contains("source address=10.0.0.0/24 port port=29400-50000 protocol=tcp accept'"));
        let v6 = Wall { keeper: Some(Keeper::Iptables), ports: None }.opened_to("fd00::7", None);
        assert_eq!(v6, "sudo ip6tables -I INPUT -p tcp -s fd00::7 --dport 29400:60999 -j ACCEPT");
    }

    #[test]
    fn who_keeps_it_is_told_by_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/sys/net/ipv4/ip_local_port_range", "40000\t50000\n");
        write("etc/ufw/ufw.conf", "# ufw\nENABLED=no\n");
        let wall = Wall::below(root.path());
        assert!(wall.ports == Some((40_000, 50_000)) && wall.keeper != Some(Keeper::Ufw), "{wall:?}");
        write("run/firewalld.pid", "7");
        assert_eq!(Wall::below(root.path()).keeper, Some(Keeper::Firewalld));
        write("etc/ufw/ufw.conf", "ENABLED=yes\n");
        assert_eq!(Wall::below(root.path()).keeper, Some(Keeper::Ufw));
    }

    #[test]
    fn a_network_stands_for_its_hosts() {
        let of = |all: &[&str]| source(&all.iter().map(|one| one.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(of(&["10.0.0.2", "10.0.0.2"]).as_deref(), Some("10.0.0.2"));
        assert_eq!(of(&["10.0.0.2", "10.0.0.9"]).as_deref(), Some("10.0.0.0/24"));
        assert_eq!(of(&["10.0.0.2", "10.0.7.9"]).as_deref(), Some("10.0.0.0/16"));
        assert_eq!(of(&["10.0.0.2", "192.168.0.2"]), None);
        assert_eq!(of(&["fd00::1", "fd00::2"]), None);
        assert_eq!(of(&["34.1.2.3", "34.1.2.7"]), None, "strangers are between them");
        assert_eq!(of(&["100.64.0.1", "100.64.0.2"]).as_deref(), Some("100.64.0.0/24"));
    }
}
