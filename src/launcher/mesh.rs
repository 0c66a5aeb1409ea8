//! What every host of a mesh has in its `~/.ssh`: the texts, made of what is known of the hosts. Pure.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use crate::config::HostConfig;
use crate::domain::host::HostInfo;
use crate::domain::ids::HostId;
use crate::wire::mesh::MeshPlan;

/// One host of a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name, which the others give to `ssh`.
    pub id: HostId,
    /// By which it is called too: its addresses and its own host name.
    pub names: BTreeSet<String>,
    /// The address by which the others reach it.
    pub address: String,
    /// Port of its sshd.
    pub port: u16,
    /// Login name there.
    pub user: String,
    /// The addresses from which its connections come; empty when they are not known.
    pub from: BTreeSet<IpAddr>,
    /// Its host keys, each as `type base64`.
    pub host_keys: Vec<String>,
}

impl Member {
    /// From what the hosts file and the host itself say. `address` and `port` are those of the client's ssh.
    pub fn new(
        config: &HostConfig,
        info: &HostInfo,
        (address, port, user): (&str, u16, &str),
        host_key: &str,
    ) -> Self {
        let named = config.interface.as_ref().and_then(|name| {
            let mut all = info.addresses.iter();
            all.find(|one| one.interface == *name).map(|one| one.address)
        });
        let reached = named.or(info.ssh_server_address);
        let reached = reached.map_or_else(|| address.to_owned(), |address| address.to_string());
        let words = [config.id.as_str(), address, info.hostname.as_str(), reached.as_str()];
        let called = words.into_iter().filter(|word| is_name(word)).map(str::to_owned).collect();
        let from = info.addresses.iter().map(|one| one.address).chain(info.ssh_server_address).collect();
        Self {
            id: config.id.clone(),
            names: called,
            address: reached,
            port,
            user: user.to_owned(),
            from,
            host_keys: vec![host_key.to_owned()],
        }
    }
}

/// A word that means nothing else in a file of ssh's.
fn is_name(word: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    !word.is_empty() && !word.starts_with('-') && word.chars().all(letter)
}

/// The same texts for all hosts of the mesh, so that hosts which share a home agree. `public` is `type base64`.
pub fn plan(id: &str, public: &str, members: &[Member]) -> MeshPlan {
    MeshPlan {
        id: id.to_owned(),
        public: public.to_owned(),
        authorized: authorized(id, public, members),
        config: config(id, members),
        known_hosts: known_hosts(members),
    }
}

/// `restrict` leaves a command and a terminal: what mpirun and people need.
fn authorized(id: &str, public: &str, members: &[Member]) -> String {
    let all_known = members.iter().all(|member| !member.from.is_empty());
    let from: BTreeSet<String> =
        members.iter().flat_map(|member| &member.from).map(ToString::to_string).collect();
    let from: Vec<&str> = from.iter().map(String::as_str).collect();
    let from = if all_known { format!("from=\"{}\",", from.join(",")) } else { String::new() };
    format!("{from}restrict,pty {public} hvtui-mesh {id}")
}

fn config(id: &str, members: &[Member]) -> String {
    let all: Vec<&str> = members.iter().map(|member| member.id.as_str()).collect();
    let mut text = format!(
        "# hvtui-mesh {id}: logins between {}. `hvtui hosts mesh --remove` takes all of it out.\n",
        all.join(", ")
    );
    for member in members {
        let names: Vec<&str> = member.names.iter().map(String::as_str).collect();
        let _ = write!(
            text,
            "Host {}\n  HostName {}\n  Port {}\n  User {}\n  IdentityFile ~/.ssh/hvtui_mesh_{id}\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile ~/.ssh/hvtui_mesh_{id}.known_hosts\n  StrictHostKeyChecking yes\n",
            names.join(" "),
            member.address,
            member.port,
            member.user
        );
    }
    text
}

/// Under the address alone: ssh looks for nothing else.
fn known_hosts(members: &[Member]) -> String {
    let mut text = String::new();
    for member in members {
        let at = match member.port {
            22 => member.address.clone(),
            port => format!("[{}]:{port}", member.address),
        };
        for key in &member.host_keys {
            let _ = writeln!(text, "{at} {key}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, last: u8, port: u16) -> Member {
        let address = format!("10.0.0.{last}");
        Member {
            id: id.into(),
            names: BTreeSet::from([id.to_owned(), address.clone()]),
            from: BTreeSet::from([address.parse().unwrap()]),
            address,
            port,
            user: "ml".to_owned(),
            host_keys: vec![format!("ssh-ed25519 KEY{last}")],
        }
    }

    #[test]
    fn every_host_gets_the_same_texts() {
        let plan = plan("0123abcd", "ssh-ed25519 AAAA", &[member("a", 1, 22), member("b", 2, 2222)]);
        insta::assert_snapshot!(plan.authorized, @r#"from="10.0.0.1,10.0.0.2",restrict,pty ssh-ed25519 AAAA hvtui-mesh 0123abcd"#);
        insta::assert_snapshot!(plan.known_hosts, @r"
        10.0.0.1 ssh-ed25519 KEY1
        [10.0.0.2]:2222 ssh-ed25519 KEY2
        ");
        insta::assert_snapshot!(plan.config, @r"
        # hvtui-mesh 0123abcd: logins between a, b. `hvtui hosts mesh --remove` takes all of it out.
        Host 10.0.0.1 a
          HostName 10.0.0.1
          Port 22
          User ml
          IdentityFile ~/.ssh/hvtui_mesh_0123abcd
          IdentitiesOnly yes
          UserKnownHostsFile ~/.ssh/hvtui_mesh_0123abcd.known_hosts
          StrictHostKeyChecking yes
        Host 10.0.0.2 b
          HostName 10.0.0.2
          Port 2222
          User ml
          IdentityFile ~/.ssh/hvtui_mesh_0123abcd
          IdentitiesOnly yes
          UserKnownHostsFile ~/.ssh/hvtui_mesh_0123abcd.known_hosts
          StrictHostKeyChecking yes
        ");
    }

    #[test]
    fn a_host_with_unknown_addresses_is_not_locked_out() {
        let unknown = Member { from: BTreeSet::new(), ..member("b", 2, 22) };
        let plan = plan("0123abcd", "k", &[member("a", 1, 22), unknown]);
        assert!(plan.authorized.starts_with("restrict,pty k"), "{}", plan.authorized);
    }

    #[test]
    fn words_that_ssh_reads_its_own_way_are_no_names() {
        for word in ["", "-x", "a b", "a\nHost *", "*", "!a", "\"", "a,b", "%h"] {
            assert!(!is_name(word), "{word}");
        }
        assert!(is_name("gpu-a.example.org") && is_name("fe80::1"));
    }
}
