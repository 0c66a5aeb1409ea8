//! Addresses that count on one link alone, `fe80::1%eth0`: connected to by their zone and known by their whole name, over
//! both transports, as OpenSSH does it. Against a real sshd on such an address of this machine.

use crate::common::cluster::skip;
use crate::common::echo::{AGENT, agent, assert_echoes, open, target};
use crate::common::in_time::OutputInTime;
use crate::common::sshd::{self, Sshd};
use hvtui::ssh::{ErrorKind, HostKey, HostKeyPolicy, OpenSsh, Target, TransportKind};

/// An address of this machine with its zone: `fe80::1%eth0`.
fn link_local() -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
    let line = table
        .lines()
        .find(|line| line.starts_with("fe80") && line.split_whitespace().nth(3) == Some("20"))?;
    let address = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
    Some(format!("{}%{}", std::net::Ipv6Addr::from(address), line.split_whitespace().last()?))
}

#[tokio::test]
async fn an_address_with_a_zone_is_reached_and_known_by_its_whole_name() {
    let Some(address) = link_local() else { return skip("no interface has a link-local IPv6 address") };
    let Some(sshd) = Sshd::start(&["ed25519"], &format!("ListenAddress {address}")) else { return };
    let plain = Target { address: address.clone(), ..target(&sshd) };
    let line = |name: &str| format!("[{name}]:{} {}\n", sshd.port, sshd.host_key("ed25519"));
    let Some(program) = sshd::program("ssh") else { return skip("there is no ssh here") };
    let config = Some("none".into());
    let ssh = OpenSsh { program, alias: address.clone(), config, ignore_unknown: None };
    let binary = agent(&sshd, AGENT);
    let key = HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap();
    for transport in [TransportKind::Russh, TransportKind::OpenSsh(ssh)] {
        let target = Target { transport, ..plain.clone() };
        std::fs::write(&target.known_hosts[0], line(&address)).unwrap();
        assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
        // Another link's host of the same address is another host.
        let bare = address.split('%').next().unwrap();
        std::fs::write(&target.known_hosts[0], line(bare) + &line(&format!("{bare}%other"))).unwrap();
        let error = open(&target, &binary).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostKey, "{error}");
        assert!(error.to_string().contains(&format!("[{address}]:{}", sshd.port)), "{error}");
        // The zone is part of the name under which a pinned key and one that is just accepted are handed on.
        let (known_hosts, fingerprint) = (vec![sshd.path("none")], Some(key.fingerprint()));
        let pinned = Target { known_hosts, fingerprint, ..target.clone() };
        assert_echoes(&mut open(&pinned, &binary).await.unwrap()).await;
        std::fs::write(&target.known_hosts[0], "").unwrap();
        let new = Target { host_key_policy: HostKeyPolicy::AcceptNew, ..target };
        assert_echoes(&mut open(&new, &binary).await.unwrap()).await;
    }
    // What hvtui writes down, OpenSSH finds.
    std::fs::write(&plain.known_hosts[0], "").unwrap();
    hvtui::ssh::trust(&plain.server(), &key, None).unwrap();
    assert_eq!(std::fs::read_to_string(&plain.known_hosts[0]).unwrap(), line(&address));
    let found = std::process::Command::new("ssh-keygen")
        .args(["-F", &format!("[{address}]:{}", sshd.port), "-f"])
        .arg(&plain.known_hosts[0])
        .output_in_time()
        .unwrap();
    assert!(found.status.success());
    let nowhere = Target { address: format!("{}%none0", address.split('%').next().unwrap()), ..plain };
    let error = open(&nowhere, &binary).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}
