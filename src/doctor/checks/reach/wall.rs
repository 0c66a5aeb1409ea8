//! What keeps others out of a host, as far as any user can see it, and the command that lets them in.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::super::site::{Site, on};

/// Where rendezvous ports of torch begin; the ports of NCCL, Gloo and hvtui's own launches are those that the kernel gives.
const FIRST: u16 = 29_400;
/// The kernel's own range where it can't be read.
const USUAL: (u16, u16) = (32_768, 60_999);
/// Folders of administrators' programs, which a command over ssh may not find.
const SBIN: &str = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin";
/// Where the unit of nft's own rules is switched on, and where those stand: of Debian and Arch, of Red Hat.
const WANTS: [&str; 2] = ["sysinit.target.wants", "multi-user.target.wants"];
const RULES: [&str; 2] = ["etc/nftables.conf", "etc/sysconfig/nftables.conf"];
/// The chain of most who write such rules, where no other is known.
const CHAIN: &str = "inet filter input";
/// Of chains that iptables keeps by nft: their families, their tables and their name.
const FAMILIES: [&str; 2] = ["ip", "ip6"];
const OF_IPTABLES: [&str; 5] = ["nat", "mangle", "security", "raw", "filter"];
const INPUT: &str = "INPUT";
/// How long nft may take to list its chains.
const PATIENCE: Duration = Duration::from_millis(300);

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
    /// The chain of nft's own that what comes in passes, where it is known: `inet filter input`.
    #[serde(default)]
    pub(super) chain: Option<String>,
    /// The same of IPv6.
    #[serde(default)]
    pub(super) chain_v6: Option<String>,
    /// Whether the chains of nft's own could be read: one that is not known is not there then.
    #[serde(default)]
    pub(super) is_read: bool,
    /// Whether rules of nft's own may keep others out beside those of iptables: a rule of the one does not lift a drop of the other.
    #[serde(default)]
    pub(super) perhaps_nft: bool,
    /// The ports that its kernel gives to who asks for any.
    #[serde(default)]
    pub(super) ports: Option<(u16, u16)>,
}

impl Wall {
    /// That of this host.
    pub(super) fn here() -> Self {
        // root alone may ask
        let nft = on(Some(SBIN.as_ref()), "nft").filter(|_| rustix::process::geteuid().is_root());
        let told = nft.and_then(|nft| Site::ask_within(&nft, &["list", "chains"], PATIENCE).ok());
        let chains = told.filter(|told| told.status.success()).map(|told| told.out);
        Self::below(Path::new("/"), chains.as_deref())
    }

    /// That of the host whose files lie below `root`, and whose chains of nft are these, where they can be read.
    fn below(root: &Path, chains: Option<&str>) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let is_on = |line: &str| line.trim().eq_ignore_ascii_case("enabled=yes");
        let is_there = |path: &str| root.join(path).exists();
        let has = |program: &str| on(Some(SBIN.as_ref()), program).is_some();
        let is_enabled =
            || WANTS.iter().any(|wants| is_there(&format!("etc/systemd/system/{wants}/nftables.service")));
        let rules = || RULES.iter().find_map(|file| std::fs::read_to_string(root.join(file)).ok());
        let own = match chains {
            Some(chains) => Some(incoming(chains)),
            None => is_enabled().then(rules).flatten().map(|rules| incoming(&rules)),
        };
        let own_chains = own.as_deref().unwrap_or_default();
        let (v4, v6) = (passed(own_chains, "ip"), passed(own_chains, "ip6"));
        let drops = |chain: Option<&Incoming>| chain.is_some_and(|chain| chain.drops);
        let keeper = if text("etc/ufw/ufw.conf").lines().any(is_on) {
            Some(Keeper::Ufw)
        } else if is_there("run/firewalld.pid") || is_there("run/firewalld") {
            Some(Keeper::Firewalld)
        } else if drops(v4) || drops(v6) {
            Some(Keeper::Nft)
        } else if has("iptables") {
            // of today's systems it writes rules of nft's
            Some(Keeper::Iptables)
        } else {
            let is_one = own.is_none() || v4.or(v6).is_some();
            (is_one && has("nft")).then_some(Keeper::Nft)
        };
        // what none has told may be there, and what lets in by itself may have rules that do not
        let perhaps_nft = keeper == Some(Keeper::Iptables)
            && match &own {
                Some(own) => !own.is_empty(),
                None => is_enabled() || has("nft"),
            };
        // where nft keeps one family out, it is not what keeps the other one out that it lets in
        let is_nfts = keeper == Some(Keeper::Nft) && (drops(v4) || drops(v6));
        let keeps = |chain: &&Incoming| chain.drops || !is_nfts;
        let [chain, chain_v6] = [v4, v6].map(|chain| chain.filter(keeps).map(|chain| chain.name.clone()));
        let ports = range(&text("proc/sys/net/ipv4/ip_local_port_range"));
        Self { keeper, chain, chain_v6, is_read: own.is_some(), perhaps_nft, ports }
    }

    /// What lets TCP from there in, to one port or to all that ranks take.
    pub(super) fn opened_to(&self, source: &str, port: Option<u16>) -> String {
        let (low, high) = self.range_to(port);
        let between = |sign: &str| between(low, high, sign);
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
            Some(Keeper::Nft) if self.has_chain(is_v6) => self.by_nft(source, port),
            Some(Keeper::Nft | Keeper::Iptables) => {
                let program = if is_v6 { "ip6tables" } else { "iptables" };
                format!("sudo {program} -I INPUT -p tcp -s {source} --dport {} -j ACCEPT", between(":"))
            }
            None if low == high => format!("let TCP from {source} to port {low} in"),
            None => format!("let TCP from {source} to ports {low} to {high} in"),
        }
    }

    /// What lets it in where the first command changes nothing, as rules of nft's own keep it out; `None` where there are none.
    pub(super) fn else_opened_to(&self, source: &str, port: Option<u16>) -> Option<String> {
        (self.perhaps_nft && self.has_chain(source.contains(':'))).then(|| self.by_nft(source, port))
    }

    /// Whether nft has a chain for a family, or may have one, as none could be read.
    fn has_chain(&self, is_v6: bool) -> bool {
        !self.is_read || if is_v6 { self.chain_v6.is_some() } else { self.chain.is_some() }
    }

    fn by_nft(&self, source: &str, port: Option<u16>) -> String {
        let (low, high) = self.range_to(port);
        let (family, chain) =
            if source.contains(':') { ("ip6", &self.chain_v6) } else { ("ip", &self.chain) };
        let chain = chain.as_deref().filter(|chain| is_plain(chain)).unwrap_or(CHAIN);
        let ports = between(low, high, "-");
        format!("sudo nft insert rule {chain} {family} saddr {source} tcp dport {ports} accept")
    }

    fn range_to(&self, port: Option<u16>) -> (u16, u16) {
        let (low, high) = self.ports.unwrap_or(USUAL);
        port.map_or((low.min(FIRST), high), |port| (port, port))
    }
}

fn between(low: u16, high: u16, sign: &str) -> String {
    if low == high { low.to_string() } else { format!("{low}{sign}{high}") }
}

/// Whether a chain's name is one that a command may hold as it is.
fn is_plain(chain: &str) -> bool {
    chain.chars().all(|c| c.is_ascii_alphanumeric() || " _-.".contains(c))
}

/// A chain of nft's own that what comes in passes.
struct Incoming {
    /// As commands name it: `inet filter input`.
    name: String,
    /// Whether it drops or rejects what no rule lets in.
    drops: bool,
}

/// The chain that what comes in by this family passes: the first that drops, else one of the name that most give it.
fn passed<'a>(chains: &'a [Incoming], family: &str) -> Option<&'a Incoming> {
    let is_of =
        |chain: &&Incoming| chain.name.split(' ').next().is_some_and(|own| own == "inet" || own == family);
    let all = || chains.iter().filter(is_of);
    let is_usual = |chain: &&Incoming| chain.name.ends_with(" filter input");
    all().find(|chain| chain.drops).or_else(|| all().find(is_usual))
}

/// Whether iptables keeps a chain.
fn is_of_iptables(chain: &str) -> bool {
    let words: Vec<&str> = chain.split(' ').collect();
    let [family, table, INPUT] = words.as_slice() else { return false };
    FAMILIES.contains(family) && OF_IPTABLES.contains(table)
}

/// Those that filter, of rules or of a list of chains, without the ones that iptables keeps.
fn incoming(rules: &str) -> Vec<Incoming> {
    let lines: Vec<&str> = rules.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
    let rules = lines.join("\n");
    let mut found = Vec::new();
    let (mut table, mut from, mut inline) = (String::new(), 0, 0);
    // its name, whether it is one, and whether it drops
    let mut chain: Option<(String, bool, bool)> = None;
    for (at, sign) in rules.char_indices().filter(|(_, sign)| "{};\n".contains(*sign)) {
        match sign {
            // a set within a rule
            '{' if chain.is_some() => {
                inline += 1;
                continue;
            }
            '}' if inline > 0 => {
                inline -= 1;
                continue;
            }
            _ if inline > 0 => continue,
            _ => {}
        }
        let words: Vec<&str> = rules[from..at].split_whitespace().collect();
        from = at + 1;
        if let Some((_, is_incoming, drops)) = &mut chain {
            *is_incoming |= words.starts_with(&["type", "filter", "hook", "input"]);
            *drops |= is_last_word(&words);
        }
        match (sign, words.as_slice()) {
            // without a family it is that of IPv4
            ('{', ["table", name]) => table = format!("ip {name}"),
            ('{', ["table", family, name]) => table = format!("{family} {name}"),
            ('{', ["chain", name]) => chain = Some((format!("{table} {name}"), false, false)),
            ('}', _) => {
                let done =
                    chain.take().filter(|(name, is_incoming, _)| *is_incoming && !is_of_iptables(name));
                found.extend(done.map(|(name, _, drops)| Incoming { name, drops }));
            }
            _ => {}
        }
    }
    found
}

/// Whether a statement of a chain keeps out whatever comes to it: its policy, or a rule without a condition.
fn is_last_word(words: &[&str]) -> bool {
    let keeps_out = |word: &&str| ["drop", "reject"].contains(word);
    match words {
        ["policy", policy] => keeps_out(policy),
        ["counter", rest @ ..] => rest.iter().any(keeps_out),
        [first, ..] => keeps_out(first),
        [] => false,
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
        let wall = |keeper| Wall { keeper, ports: Some((40_000, 50_000)), ..Wall::default() };
        let of = |keeper| wall(keeper).opened_to("10.0.0.0/24", None);
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
        let v6 = Wall { keeper: Some(Keeper::Iptables), ..Wall::default() }.opened_to("fd00::7", None);
        assert_eq!(v6, "sudo ip6tables -I INPUT -p tcp -s fd00::7 --dport 29400:60999 -j ACCEPT");
        let chained = |chain: &str| {
            let chain = Some(chain.to_owned());
            Wall { chain, ..wall(Some(Keeper::Nft)) }.opened_to("10.0.0.7", Some(29_500))
        };
        assert_eq!(
            chained("inet main in-ext"),
            "sudo nft insert rule inet main in-ext ip saddr 10.0.0.7 tcp dport 29500 accept"
        );
        assert!(chained("x; rm -rf ~").starts_with("sudo nft insert rule inet filter input "));
        let sure = wall(Some(Keeper::Iptables));
        assert_eq!(sure.else_opened_to("10.0.0.7", None), None);
        let unsure = Wall { perhaps_nft: true, ..sure };
        assert!(unsure.else_opened_to("10.0.0.7", None).unwrap().starts_with("sudo nft insert rule "));
        let read = Wall { is_read: true, ..unsure };
        assert_eq!(read.else_opened_to("10.0.0.7", None), None, "no chain is guessed where they are known");
    }

    /// As Debian's file has it, but for the policy.
    fn rules(policy: &str) -> String {
        format!(
            "#!/usr/sbin/nft -f\nflush ruleset\n\ntable inet filter {{\n\tset peers {{\n\t\ttype ipv4_addr\n\t\telements = {{ 10.0.0.1, \
             10.0.0.2 }}\n\t}}\n\tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n\t\tct state vmap \
             {{ established : accept, invalid : drop }}\n\t\ttcp dport {{ 22, 80 }} accept # drop\n\t\tip saddr 10.9.0.0/16 drop\n\t}}\n\t\
             chain forward {{\n\t\ttype filter hook forward priority filter; policy drop;\n\t}}\n}}\n"
        )
    }

    #[test]
    fn who_keeps_it_is_told_by_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let look = || Wall::below(root.path(), None);
        write("proc/sys/net/ipv4/ip_local_port_range", "40000\t50000\n");
        write("etc/ufw/ufw.conf", "# ufw\nENABLED=no\n");
        let wall = look();
        assert!(wall.ports == Some((40_000, 50_000)) && wall.keeper != Some(Keeper::Ufw), "{wall:?}");
        // rules that are there and not switched on keep nothing out
        write("etc/nftables.conf", &rules("drop"));
        assert_eq!(look().chain, None);
        write("etc/systemd/system/sysinit.target.wants/nftables.service", "");
        let nft = look();
        assert_eq!((nft.keeper, nft.chain.as_deref()), (Some(Keeper::Nft), Some("inet filter input")));
        assert!(nft.is_read && nft.chain_v6.is_some(), "{nft:?}");
        // of a family that nft lets in iptables is what may keep it out
        let v6 =
            "table ip6 own {\n\tchain in {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}\n";
        let of_v6 = Wall::below(root.path(), Some(&(rules("accept") + v6)));
        assert_eq!((of_v6.keeper, of_v6.chain.as_deref()), (Some(Keeper::Nft), None));
        assert!(of_v6.opened_to("10.0.0.7", None).starts_with("sudo iptables -I INPUT "));
        assert!(of_v6.opened_to("fd00::7", None).starts_with("sudo nft insert rule ip6 own in ip6 "));
        // what is loaded counts before what is written
        let of_iptables = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n}\n";
        let loaded = Wall::below(root.path(), Some(of_iptables));
        assert!(loaded.chain.is_none() && !loaded.perhaps_nft, "{loaded:?}");
        write("run/firewalld.pid", "7");
        assert_eq!(look().keeper, Some(Keeper::Firewalld));
        write("etc/ufw/ufw.conf", "ENABLED=yes\n");
        assert_eq!(look().keeper, Some(Keeper::Ufw));
    }

    #[test]
    fn a_chain_that_keeps_others_out_is_known_by_its_policy_or_its_last_rule() {
        let of = |rules: &str| {
            incoming(rules).into_iter().map(|chain| (chain.name, chain.drops)).collect::<Vec<_>>()
        };
        let input = |drops| vec![("inet filter input".to_owned(), drops)];
        assert_eq!(of(&rules("drop")), input(true));
        assert_eq!(of(&rules("accept")), input(false), "what it drops are some alone");
        let last = rules("accept")
            .replace("ip saddr 10.9.0.0/16 drop", "counter reject with icmpx admin-prohibited");
        assert_eq!(of(&last), input(true));
        assert_eq!(
            of("table filter { chain in { type filter hook input priority 0; policy drop; } }"),
            [("ip filter in".to_owned(), true)]
        );
        assert!(of("").is_empty() && of("table inet x {\n chain y {\n drop\n }\n}\n").is_empty());
        let all = |family: &str, table: &str, kind: &str, name: &str| {
            format!(
                "table {family} {table} {{ chain {name} {{ type {kind} hook input priority 0; policy drop; }} }}\n"
            )
        };
        for (family, table) in [("ip", "nat"), ("ip", "mangle"), ("ip6", "security"), ("ip6", "raw")] {
            assert!(of(&all(family, table, "filter", "INPUT")).is_empty(), "{table} of iptables");
        }
        assert!(of(&all("inet", "own", "nat", "in")).is_empty(), "it filters nothing");
        assert_eq!(of(&all("inet", "own", "filter", "INPUT")), [("inet own INPUT".to_owned(), true)]);
    }

    #[test]
    fn the_chain_is_one_of_the_family_that_comes_in() {
        let chain = |name: &str, drops| Incoming { name: name.to_owned(), drops };
        let of = |all: &[Incoming]| {
            ["ip", "ip6"].map(|family| passed(all, family).map(|chain| chain.name.clone()))
        };
        let named = |v4: Option<&str>, v6: Option<&str>| [v4, v6].map(|name| name.map(str::to_owned));
        let both = [chain("ip6 own in", true), chain("inet filter input", false)];
        assert_eq!(of(&both), named(Some("inet filter input"), Some("ip6 own in")));
        assert_eq!(of(&[chain("inet f2b in", false), chain("bridge own in", true)]), named(None, None));
        let v6 = Wall { chain_v6: Some("ip6 own in".to_owned()), ..Wall::default() };
        assert!(v6.by_nft("fd00::7", None).starts_with("sudo nft insert rule ip6 own in ip6 saddr fd00::7 "));
        assert!(v6.by_nft("10.0.0.7", None).starts_with("sudo nft insert rule inet filter input ip saddr "));
        let told: Wall =
            serde_json::from_value(serde_json::json!({"keeper": "nft", "chain": "ip x y"})).unwrap();
        assert_eq!((told.chain.as_deref(), told.chain_v6), (Some("ip x y"), None), "of an older hvtui");
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
