//! Which ports the ranks of a run open, to whom, and for how long.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::common::alone::alone;
use crate::common::cluster::Cluster;
use crate::common::group_config::{config, own_loopback};
use crate::common::group_threads::as_ranks;
use crate::common::rank_processes::program;
use hvtui::collective::{Group, TransportPreference};

const PATIENCE: Duration = Duration::from_secs(60);

/// The addresses on which this process listens for TCP.
fn listening() -> BTreeSet<String> {
    let own: BTreeSet<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut found = BTreeSet::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // 0A is LISTEN; the tenth word is the socket's inode.
            if words[3] == "0A" && own.contains(words[9]) {
                found.insert(words[1].split(':').next().unwrap().to_owned());
            }
        }
    }
    found
}

/// An address as the kernel's table writes it.
fn written(at: IpAddr) -> String {
    let IpAddr::V4(at) = at else { panic!("the tests' groups meet on IPv4") };
    format!("{:08X}", u32::from_le_bytes(at.octets()))
}

#[test]
fn vector_02_ports_of_a_run_are_open_on_its_address_only_and_only_until_all_have_met() {
    let name =
        "collective_ports::vector_02_ports_of_a_run_are_open_on_its_address_only_and_only_until_all_have_met";
    if !alone(name, &[]) {
        return;
    }
    let at = own_loopback();
    std::thread::scope(|scope| {
        let (waiting, is_waiting) = std::sync::mpsc::channel();
        let root = scope.spawn(move || {
            let alone = |event| drop(waiting.send(event));
            Group::connect(config(at, 0, 2, PATIENCE), &mut { alone }).map(drop)
        });
        is_waiting.recv().unwrap();
        assert_eq!(listening(), BTreeSet::from([written(at)]), "while rank 0 waits");
        let other = scope.spawn(move || Group::connect(config(at, 1, 2, PATIENCE), &mut |_| {}).map(drop));
        other.join().unwrap().unwrap();
        root.join().unwrap().unwrap();
    });
    for transport in [TransportPreference::Auto, TransportPreference::Tcp] {
        let all_connected = Barrier::new(3);
        let seen = as_ranks(
            3,
            PATIENCE,
            |config| config.transport = transport,
            |_, group| {
                let mut group = group.unwrap();
                all_connected.wait();
                let seen = listening();
                group.barrier().unwrap();
                seen
            },
        );
        assert_eq!(seen, vec![BTreeSet::new(); 3], "{transport:?}: once all have met");
    }
}

#[test]
fn ranks_meet_though_the_host_of_rank_0_knows_itself_as_127_0_1_1() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let hosts = |host: &str, address: &str| {
        let file = cluster.dir().join(format!("hosts.{host}"));
        std::fs::write(&file, format!("127.0.0.1 localhost\n{address} gpu-a\n")).unwrap();
        file
    };
    let known = [("n1", hosts("n1", "127.0.1.1")), ("n2", hosts("n2", "10.77.0.11"))];
    // Two ranks on the host of rank 0, so that another than rank 0 is to be reached there too.
    let said = thread::scope(|scope| {
        let ranks = [(0, 0), (0, 1), (1, 2), (1, 3)].map(|(host, rank)| {
            let (host, file) = &known[host];
            let steps = "barrier,all:10,all:300000,registered:300000";
            let line = format!(
                "exec unshare -m sh -c 'mount --bind {} /etc/hosts && exec {} gpu-a {rank} 4 20000 auto one {steps}'",
                file.display(),
                program().display()
            );
            let cluster = &cluster;
            scope.spawn(move || cluster.on(host, &line))
        });
        ranks.map(|rank| rank.join().unwrap())
    });
    assert!(said.iter().all(|said| said.starts_with("done")), "{said:?}");
}
