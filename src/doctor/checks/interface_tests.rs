use super::*;
use crate::doctor::tests::{info_with, seen_with};
use crate::domain::preflight::Mark;

const HOST: [(&str, &str); 2] = [("ens3f0", "10.0.0.2"), ("docker0", "172.17.0.1")];

fn found(variable: &str, value: &str) -> Found {
    let interfaces = ["docker0", "ens3f0", "ib0", "lo"].map(str::to_owned).to_vec();
    let variables = [(variable.to_owned(), value.to_owned())].into();
    Found { variables, interfaces, ..Found::default() }
}

/// Beside another host, of which nothing is set.
fn of(variable: &str, value: &str) -> Verdict {
    let other = Found { variables: BTreeMap::new(), ..found("", "") };
    let hosts = [(info_with(&HOST), found(variable, value)), (info_with(&[("ens3f0", "10.0.0.3")]), other)];
    Interface::judge(&seen_with(hosts)).remove(0)
}

#[test]
fn a_name_that_is_not_there_ends_ranks() {
    assert_eq!(of("NCCL_SOCKET_IFNAME", "eth0").mark, Mark::Bad);
    assert_eq!(of("NCCL_SOCKET_IFNAME", "ens").mark, Mark::Good, "NCCL takes beginnings");
    assert_eq!(of("NCCL_SOCKET_IFNAME", "=ens").mark, Mark::Bad);
    assert_eq!(of("NCCL_SOCKET_IFNAME", "^docker0").mark, Mark::Good);
    assert_eq!(of("GLOO_SOCKET_IFNAME", "ens").mark, Mark::Bad);
    assert_eq!(of("GLOO_SOCKET_IFNAME", "^docker0").mark, Mark::Bad, "Gloo knows no ^");
    assert_eq!(of("GLOO_SOCKET_IFNAME", "ens3f0,eth1").mark, Mark::Bad, "Gloo takes each of them");
    assert_eq!(of("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/24").mark, Mark::Good);
    let good = of("NCCL_SOCKET_IFNAME", "ens3f0");
    assert_eq!((good.mark, good.evidence.as_str()), (Mark::Good, "ens3f0 10.0.0.2"));
}

#[test]
fn an_interface_that_is_there_and_leads_nowhere_is_told_with_the_reason() {
    let seen = |variable, value| {
        let verdict = of(variable, value);
        assert_eq!(verdict.mark, Mark::Bad, "{verdict:?}");
        verdict.evidence
    };
    let there = "there is docker0 172.17.0.1, ens3f0 10.0.0.2, ib0, lo";
    assert_eq!(
        seen("NCCL_SOCKET_IFNAME", "=docker0"),
        format!(
            "NCCL_SOCKET_IFNAME==docker0: docker0 172.17.0.1 leads to this host and what runs on it alone; {there}"
        )
    );
    assert!(seen("NCCL_SOCKET_IFNAME", "=lo").contains(": lo leads to this host"));
    assert!(seen("GLOO_SOCKET_IFNAME", "ib0").contains(": ib0 has no address"));
    assert_eq!(
        seen("NCCL_SOCKET_IFNAME", "^ens,lo"),
        format!("NCCL_SOCKET_IFNAME=^ens,lo leaves no interface by which other hosts are reached; {there}")
    );
    assert_eq!(
        seen("OMPI_MCA_btl_tcp_if_include", "10.200.0.0/16"),
        format!(
            "OMPI_MCA_btl_tcp_if_include=10.200.0.0/16, and no address of the host is in that network; {there}"
        )
    );
    // one host needs no other one's way to it
    let alone = [(info_with(&HOST), found("NCCL_SOCKET_IFNAME", "=lo"))];
    assert_eq!(Interface::judge(&seen_with(alone))[0].mark, Mark::Good);
    // and the other host may be a container there
    let beside = Found { variables: BTreeMap::new(), ..found("", "") };
    let hosts = [
        (info_with(&HOST), found("NCCL_SOCKET_IFNAME", "=docker0")),
        (info_with(&[("ens3f0", "172.17.0.2")]), beside),
    ];
    assert_eq!(Interface::judge(&seen_with(hosts))[0].mark, Mark::Good);
}

#[test]
fn an_interface_that_is_down_is_told() {
    let down = |name: &str| [(name.to_owned(), DOWN.to_owned())].into();
    let named = Found { down: down("ens3f0"), ..found("GLOO_SOCKET_IFNAME", "ens3f0") };
    let verdict = Interface::judge(&seen_with([(info_with(&HOST), named)])).remove(0);
    assert_eq!(
        (verdict.mark, verdict.evidence.as_str()),
        (Mark::Bad, "GLOO_SOCKET_IFNAME=ens3f0: ens3f0 10.0.0.2 is down")
    );
    assert!(verdict.remedy.unwrap().starts_with("sudo ip link set dev ens3f0 up"));
    let own = Found { down: down("ens3f0"), variables: BTreeMap::new(), ..found("", "") };
    let verdict = Interface::judge(&seen_with([(info_with(&HOST), own)])).remove(0);
    assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Bad, "ens3f0 10.0.0.2 is down"));
    // another one that is up counts
    let two = [("eth1", "10.9.0.2"), ("ens3f0", "10.0.0.2")];
    let other = Found { down: down("eth1"), variables: BTreeMap::new(), ..found("", "") };
    let verdict = Interface::judge(&seen_with([(info_with(&two), other)])).remove(0);
    assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Good, "ens3f0 10.0.0.2"));
}

#[test]
fn what_a_run_sets_itself_counts_before_what_the_host_has() {
    let two = || {
        let host = || Found { variables: BTreeMap::new(), ..found("", "") };
        [
            (info_with(&HOST), host()),
            (info_with(&[("ens3f0", "10.0.0.3")]), found("NCCL_SOCKET_IFNAME", "eth9")),
        ]
    };
    let judged = |value: &str| {
        let given = BTreeMap::from([("NCCL_SOCKET_IFNAME".to_owned(), value.to_owned())]);
        let mut seen = seen_with(two());
        for one in &mut seen {
            one.given = Box::leak(Box::new(given.clone()));
        }
        Interface::judge(&seen)
    };
    assert!(judged("ens3f0").iter().all(|one| one.mark == Mark::Good), "the host's own does not count");
    let named = judged("docker0");
    assert_eq!([named[0].mark, named[1].mark], [Mark::Bad, Mark::Bad]);
    assert!(named[0].remedy.as_ref().unwrap().starts_with("leave NCCL_SOCKET_IFNAME out of the run"));
    assert_eq!(Interface::judge(&seen_with(two()))[1].mark, Mark::Bad, "without a run it does");
}

#[test]
fn a_host_with_dockers_address_alone_is_told() {
    let host = || Found { variables: BTreeMap::new(), ..found("", "") };
    let hosts = [(info_with(&HOST[1..]), host()), (info_with(&HOST[..1]), host())];
    let verdict = Interface::judge(&seen_with(hosts)).remove(0);
    assert_eq!(verdict.mark, Mark::Bad);
    assert!(verdict.evidence.starts_with("no address but docker0 172.17.0.1"), "{verdict:?}");
}

#[test]
fn what_works_is_not_red() {
    let mark = |hosts: [(HostInfo, Found); 2]| {
        let verdict = Interface::judge(&seen_with(hosts)).remove(0);
        (verdict.mark, verdict.for_launch())
    };
    let plain = || Found { variables: BTreeMap::new(), ..found("", "") };
    let other = || (info_with(&[("ens3f0", "10.0.0.3")]), plain());
    let good = (Mark::Good, Mark::Good);
    // a further address of an interface, and NCCL's port behind a name
    let labelled = || info_with(&[("ens3f0:1", "10.0.0.2")]);
    for (variable, value) in [
        ("GLOO_SOCKET_IFNAME", "ens3f0:1"),
        ("NCCL_SOCKET_IFNAME", "=ens3f0"),
        ("NCCL_SOCKET_IFNAME", "ens3f0:4000"),
    ] {
        assert_eq!(mark([(labelled(), found(variable, value)), other()]), good, "{variable}={value}");
    }
    // one machine under two names, which has no other to reach
    let here = || info_with(&[("ens3f0", "10.0.0.2")]);
    let lo = || found("GLOO_SOCKET_IFNAME", "lo");
    assert_eq!(mark([(here(), lo()), (here(), lo())]).0, Mark::Unknown);
    // an address of the network that is routed to the loopback
    let routed = info_with(&[("lo", "10.255.0.2"), ("ens3f0", "10.0.0.2")]);
    assert_eq!(mark([(routed, lo()), other()]).0, Mark::Look, "another name than that of the other host");
    // the other host is a container of this one
    let container = (info_with(&[("eth0", "172.17.0.2")]), plain());
    assert_eq!(mark([(info_with(&HOST[1..]), plain()), container]).0, Mark::Good);
    // what the host has set may not be what the run reads
    let mpi = found("OMPI_MCA_btl_tcp_if_include", "ib7");
    assert_eq!(mark([(here(), mpi), other()]), (Mark::Bad, Mark::Look));
}

#[test]
fn links_are_read_as_ip_tells_them() {
    let up = |name: &str, mtu| Some(Link { name: name.to_owned(), mtu, down: None });
    let line = "7: eth0@if8: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1400 qdisc noqueue state UP mode DEFAULT group default";
    assert_eq!(link(line), up("eth0", 1400));
    assert_eq!(link("1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue state UNKNOWN"), up("lo", 65536));
    let down = "3: eth1: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN mode DEFAULT";
    assert_eq!(link(down).unwrap().down, Some(DOWN));
    let unplugged = "4: eth2: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN mode DEFAULT";
    assert_eq!(link(unplugged).unwrap().down, Some(NO_CARRIER));
    assert_eq!(link("garbage"), None);
}

#[test]
fn packets_of_unlike_size_are_told() {
    let sizes = Compared::new([("a", "9000"), ("b", "9000"), ("c", "1500")]);
    let verdict = unlike_packets("eth0", "1500", &sizes.difference("1500").unwrap(), sizes.wanted("1500"));
    assert_eq!(verdict.evidence, "eth0 has MTU 1500; other hosts have 9000");
    assert_eq!(verdict.remedy.unwrap(), "sudo ip link set dev eth0 mtu 9000");
}

#[test]
fn unlike_names_are_told_with_the_others() {
    let host = || Found { variables: BTreeMap::new(), ..found("", "") };
    let hosts = [("eth0", "10.0.0.1"), ("eth0", "10.0.0.2"), ("ens3f0", "10.0.0.3")];
    let verdict = Interface::judge(&seen_with(hosts.map(|one| (info_with(&[one]), host())))).remove(2);
    assert_eq!(
        (verdict.mark, verdict.evidence.as_str()),
        (Mark::Look, "ens3f0 10.0.0.3; other hosts have eth0")
    );
}

#[test]
fn open_mpis_two_lists_exclude_each_other_and_its_own_is_not_forgotten() {
    let both = |include: Option<&str>, exclude: &str| {
        let mut one = found("OMPI_MCA_btl_tcp_if_exclude", exclude);
        one.variables
            .extend(include.map(|value| ("OMPI_MCA_btl_tcp_if_include".to_owned(), value.to_owned())));
        let other = Found { variables: BTreeMap::new(), ..found("", "") };
        let hosts = [(info_with(&HOST), one), (info_with(&[("ens3f0", "10.0.0.3")]), other)];
        Interface::judge(&seen_with(hosts)).remove(0)
    };
    let two = both(Some("ens3f0"), "lo,docker0");
    assert_eq!((two.mark, two.for_launch()), (Mark::Bad, Mark::Look), "{two:?}");
    assert_eq!(both(None, "lo,docker0").mark, Mark::Good, "as people set it");
    assert_eq!(both(None, "127.0.0.0/8,docker0").mark, Mark::Good);
    let without = both(None, "docker0");
    assert_eq!(
        (without.mark, without.remedy.as_deref()),
        (Mark::Look, Some("OMPI_MCA_btl_tcp_if_exclude=docker0,lo"))
    );
    // what is yellow hides nothing that is red
    let mut worse = found("OMPI_MCA_btl_tcp_if_exclude", "docker0");
    worse.variables.insert("NCCL_SOCKET_IFNAME".to_owned(), "eth9".to_owned());
    let worse = Interface::judge(&seen_with([(info_with(&HOST), worse)])).remove(0);
    assert!(worse.mark == Mark::Bad && worse.evidence.contains("eth9"), "{worse:?}");
    let none = both(None, "lo,docker0,10.0.0.0/24");
    assert!(none.mark == Mark::Bad && none.evidence.contains("leaves no interface"), "{none:?}");
}

#[test]
fn the_variables_of_other_programs_are_judged_as_they_read_them() {
    assert_eq!(of("HOROVOD_GLOO_IFACE", "ens3f0").mark, Mark::Good);
    assert_eq!(of("HOROVOD_GLOO_IFACE", "ens").mark, Mark::Bad, "it takes whole names");
    assert_eq!(of("OMPI_MCA_oob_tcp_if_include", "10.0.0.0/24").mark, Mark::Good);
    assert_eq!(of("PRTE_MCA_prte_if_include", "eth7").mark, Mark::Bad);
    let file = "# of the site\nNCCL_DEBUG=WARN\n NCCL_SOCKET_IFNAME=eth9\nNCCL_SOCKET_IFNAME=eth7\nNCCL_SOCKET_IFNAME=eth8\n";
    assert_eq!(in_conf(file, "NCCL_SOCKET_IFNAME").as_deref(), Some("eth7"), "the first, by its whole name");
    assert_eq!(
        (in_conf(file, "NCCL_IB_HCA"), in_conf("NCCL_SOCKET_IFNAME=", "NCCL_SOCKET_IFNAME")),
        (None, None)
    );
}
