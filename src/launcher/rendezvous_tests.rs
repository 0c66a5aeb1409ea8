use super::super::fixtures::{cpu_host, one_each, with_addresses};
use super::*;

fn remote(name: &str, server: &str, addresses: &[(&str, &str)]) -> HostFacts {
    let mut host = with_addresses(cpu_host(name, 2), addresses);
    host.ssh_server_address = Some(server.parse().unwrap());
    host.ssh_client_address = Some("10.0.0.1".parse().unwrap());
    host
}

fn local(addresses: &[(&str, &str)]) -> HostFacts {
    HostFacts { local: true, ..with_addresses(cpu_host("local", 2), addresses) }
}

fn solve(hosts: &[HostFacts], interface: Option<&str>) -> Result<String, String> {
    let found = rendezvous_address(&one_each(hosts), hosts, interface).map_err(|error| error.to_string())?;
    let bind: Vec<String> = found.bind.iter().map(|(host, ip)| format!("{host}={ip}")).collect();
    Ok(format!("{} master={}", bind.join(" "), found.master))
}

#[test]
fn one_host_needs_no_network() {
    assert_eq!(solve(&[remote("a", "10.0.0.11", &[])], None).unwrap(), "a=127.0.0.1 master=127.0.0.1");
    let mut other = local(&[]);
    other.id = HostId::from("other");
    assert_eq!(
        solve(&[local(&[]), other], None).unwrap(),
        "local=127.0.0.1 other=127.0.0.1 master=127.0.0.1"
    );
}

#[test]
fn hosts_meet_where_ssh_reached_them() {
    let hosts = [remote("b", "10.0.0.12", &[("eth0", "10.0.0.12")]), remote("a", "10.0.0.11", &[])];
    assert_eq!(solve(&hosts, None).unwrap(), "a=10.0.0.11 b=10.0.0.12 master=10.0.0.12");
}

#[test]
fn a_named_interface_counts_before_ssh() {
    let nics = |last: u8| {
        [("eth0".to_owned(), format!("10.0.0.{last}")), ("ib0".to_owned(), format!("10.9.0.{last}"))]
    };
    let host = |name: &str, last: u8| {
        let nics = nics(last);
        let nics: Vec<(&str, &str)> = nics.iter().map(|(nic, ip)| (nic.as_str(), ip.as_str())).collect();
        remote(name, &format!("10.0.0.{last}"), &nics)
    };
    let mut hosts = [host("a", 11), host("b", 12)];
    assert_eq!(solve(&hosts, Some("ib0")).unwrap(), "a=10.9.0.11 b=10.9.0.12 master=10.9.0.11");
    for host in &mut hosts {
        host.interface = Some("ib0".to_owned());
    }
    assert_eq!(solve(&hosts, None).unwrap(), "a=10.9.0.11 b=10.9.0.12 master=10.9.0.11");
    assert_eq!(solve(&hosts, Some("eth0")).unwrap(), "a=10.0.0.11 b=10.0.0.12 master=10.0.0.11");
    insta::assert_snapshot!(solve(&hosts, Some("eth7")).unwrap_err(), @"host a has no usable address on interface eth7: it has eth0 10.0.0.11, ib0 10.9.0.11; correct --network-interface or `interface` in the hosts file");
}

#[test]
fn this_machine_is_where_ssh_came_from() {
    let hosts = [local(&[("wlan0", "192.168.1.7"), ("eth0", "10.0.0.1")]), remote("a", "10.0.0.11", &[])];
    assert_eq!(solve(&hosts, None).unwrap(), "a=10.0.0.11 local=10.0.0.1 master=10.0.0.1");
}

#[test]
fn behind_address_translation_an_interface_must_be_named() {
    let hosts = [local(&[("wlan0", "192.168.1.7")]), remote("a", "10.0.0.11", &[])];
    insta::assert_snapshot!(solve(&hosts, None).unwrap_err(), @"host local: no address is known by which the ranks of other hosts reach it (wlan0 192.168.1.7); name an interface by --network-interface or `interface` in the hosts file");
}

#[test]
fn loopback_serves_all_or_none() {
    let near = |name: &str| remote(name, "127.0.0.1", &[]);
    assert_eq!(solve(&[near("a"), near("b")], None).unwrap(), "a=127.0.0.1 b=127.0.0.1 master=127.0.0.1");
    insta::assert_snapshot!(solve(&[near("a"), remote("b", "10.0.0.12", &[])], None).unwrap_err(), @"host a is reached by 127.0.0.1, which other hosts can't use; name an interface by --network-interface or `interface` in the hosts file");
}

#[test]
fn addresses_are_of_one_family() {
    let six = [remote("a", "fd00::11", &[]), remote("b", "fd00::12", &[])];
    assert_eq!(solve(&six, None).unwrap(), "a=fd00::11 b=fd00::12 master=fd00::11");
    // One was reached by IPv6, and the same wire carries IPv4, as with the other.
    let both = [("eth0", "fd00::11"), ("eth0", "fe80::1"), ("eth0", "10.0.0.11")];
    let mixed = [remote("a", "fd00::11", &both), remote("b", "10.0.0.12", &[])];
    assert_eq!(solve(&mixed, None).unwrap(), "a=10.0.0.11 b=10.0.0.12 master=10.0.0.11");
    let none = [remote("a", "fd00::11", &[]), remote("b", "10.0.0.12", &[])];
    insta::assert_snapshot!(solve(&none, None).unwrap_err(), @"hosts b and a share neither IPv4 nor IPv6 (a: fd00::11, b: 10.0.0.12); name an interface by --network-interface or `interface` in the hosts file");
}

#[test]
fn link_local_addresses_are_no_meeting_place() {
    let hosts = [remote("a", "10.0.0.11", &[("eth1", "fe80::1")]), remote("b", "10.0.0.12", &[])];
    assert!(solve(&hosts, Some("eth1")).unwrap_err().contains("no usable address on interface eth1"));
}
