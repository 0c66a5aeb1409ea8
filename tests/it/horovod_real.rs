//! Real Horovod: its ranks meet at the rendezvous that a real supervisor serves, and train.
//!
//! Heavy: `tests/heavy/horovod` builds Horovod, says by `HVTUI_HOROVOD_PYTHON` which Python has it, and runs this.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use crate::common::bed::{Bed, ended, exit, launch, text};
use crate::common::{client, cluster};
use hvtui::domain::rendezvous::{HostRanks, Progress, RendezvousPlan};
use hvtui::domain::run::HostRun;
use hvtui::supervise::notes::Reader;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::start::Started;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// All ranks of these «hosts» on this machine, each with what Horovod's own launcher would tell it.
fn run(bed: &Bed, hosts: &[(&str, u32)], port: u16) -> HostRun {
    let python = std::env::var("HVTUI_HOROVOD_PYTHON").unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/horovod/train.py");
    let world: u32 = hosts.iter().map(|(_, ranks)| ranks).sum();
    let mut spec = bed.spec(&vec![""; world as usize], 5000);
    let places = hosts
        .iter()
        .enumerate()
        .flat_map(|(at, (name, ranks))| (0..*ranks).map(move |local| (at, *name, *ranks, local)));
    for (rank, (at, name, local_size, local)) in spec.ranks.iter_mut().zip(places) {
        let with = |hosts: &[(&str, u32)]| hosts.iter().filter(|(_, ranks)| *ranks > local).count();
        rank.argv = vec![python.clone(), "-u".to_owned(), script.to_owned()];
        let all = [
            ("HOROVOD_HOSTNAME", name.to_owned()),
            ("HOROVOD_RANK", rank.rank.to_string()),
            ("HOROVOD_SIZE", world.to_string()),
            ("HOROVOD_LOCAL_RANK", local.to_string()),
            ("HOROVOD_LOCAL_SIZE", local_size.to_string()),
            ("HOROVOD_CROSS_RANK", with(&hosts[..at]).to_string()),
            ("HOROVOD_CROSS_SIZE", with(hosts).to_string()),
            ("HOROVOD_GLOO_RENDEZVOUS_ADDR", LOCAL.to_string()),
            ("HOROVOD_GLOO_RENDEZVOUS_PORT", port.to_string()),
            ("HOROVOD_CONTROLLER", "gloo".to_owned()),
            ("HOROVOD_CPU_OPERATIONS", "gloo".to_owned()),
            ("HOROVOD_GLOO_IFACE", "lo".to_owned()),
            ("HOROVOD_DYNAMIC_PROCESS_SETS", "1".to_owned()),
        ];
        rank.env.extend(all.map(|(name, value)| (name.to_owned(), value)));
    }
    let host = |(name, ranks): &(&str, u32)| HostRanks { name: (*name).to_owned(), ranks: *ranks };
    spec.rendezvous = Some(RendezvousPlan { hosts: hosts.iter().map(host).collect(), peers: vec![LOCAL] });
    spec
}

fn trains(hosts: &[(&str, u32)]) {
    let bed = Bed::new();
    let port = TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap().port();
    let spec = run(&bed, hosts, port);
    let world = spec.ranks.len() as u32;
    let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
    let env = [("HVTUI_BIND", LOCAL.to_string()), ("HVTUI_KV_PORT", port.to_string())];
    let env: BTreeMap<String, String> = env.map(|(name, value)| (name.to_owned(), value)).into();
    assert_eq!(launch(&dir, spec, env).unwrap(), Started::Now);
    ended(&dir);
    let mut weights = BTreeSet::new();
    let mut first = 0;
    for (name, ranks) in hosts {
        for local in 0..*ranks {
            let rank = first + local;
            let (out, err) =
                (text(&dir, &format!("rank-{rank}.out")), text(&dir, &format!("rank-{rank}.err")));
            assert_eq!(exit(&dir, rank).code, Some(0), "rank {rank} of {name}: {out}\n{err}");
            let cross = hosts.iter().filter(|(_, ranks)| *ranks > local).count();
            let line =
                out.lines().find(|line| line.starts_with(&format!("rank {rank} of {world} "))).unwrap();
            let sum = world * (world - 1) / 2;
            assert!(line.contains(&format!(" local {local} of {ranks} ")), "{line}");
            assert!(line.contains(&format!(" of {cross} sum {sum} ")), "{line}");
            assert!(out.ends_with(&format!("again {world}\n")), "{out}");
            weights.insert(line.rsplit(' ').next().unwrap().to_owned());
        }
        first += ranks;
    }
    assert_eq!(weights.len(), 1, "ranks differ: {weights:?}");
    let notes = Reader::default().news(&dir).unwrap();
    let told = notes.iter().rev().find_map(|(_, note)| Progress::parse(note));
    assert_eq!(told, Some(Progress::Connected { world }));
}

#[test]
#[ignore = "heavy: tests/heavy/horovod builds what it needs"]
fn real_horovod_trains_with_two_ranks_on_one_host() {
    trains(&[("localhost", 2)]);
}

#[test]
#[ignore = "heavy: tests/heavy/horovod builds what it needs"]
fn real_horovod_trains_with_one_rank_on_each_of_two_hosts() {
    trains(&[("gpu-a", 1), ("gpu-b", 1)]);
}

#[test]
#[ignore = "heavy: tests/heavy/horovod builds what it needs"]
fn real_horovod_trains_on_uneven_hosts() {
    trains(&[("gpu-a", 2), ("gpu-b", 1)]);
}

#[test]
#[ignore = "heavy: tests/heavy/horovod builds what it needs"]
fn real_horovod_trains_with_one_rank_alone() {
    trains(&[("localhost", 1)]);
}

/// `hvtui run` of a line on two ssh hosts that do not reach each other, with the heavy Horovod first in the search path.
fn on_two_hosts(options: &str, line: &str) -> Option<client::Ended> {
    let cluster = cluster::Cluster::ready(2, &[])?;
    let client = client::Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(2));
    let python = std::env::var("HVTUI_HOROVOD_PYTHON").unwrap();
    let bin = std::path::Path::new(&python).parent().unwrap();
    let env = format!("--env PATH={}:/usr/bin:/bin --env HOROVOD_DYNAMIC_PROCESS_SETS=1", bin.display());
    let line = format!("run {options} {env} -- {line}");
    let words = shlex::split(&line).unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(client.run(&words))
}

fn trained(ended: &client::Ended) {
    let ranks: BTreeSet<&str> =
        ended.out.lines().filter_map(|line| line.split_once("] rank ")).map(|(_, said)| &said[..1]).collect();
    assert_eq!((ended.code, ranks.len()), (0, 4), "{ended:#?}");
}

const TRAIN: &str = concat!("python ", env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/horovod/train.py");

#[test]
#[ignore = "heavy: tests/heavy/horovod builds what it needs"]
fn a_pasted_horovodrun_trains_on_two_hosts() {
    let Some(ended) = on_two_hosts("", &format!("horovodrun -np 4 -H n1:2,n2:2 {TRAIN}")) else { return };
    trained(&ended);
}

#[test]
#[ignore = "heavy: tests/heavy/horovod builds what it needs"]
fn horovodrun_itself_trains_on_two_hosts_without_ssh_between_them() {
    let line = format!("horovodrun --gloo -np 4 -H 10.77.0.11:2,10.77.0.12:2 {TRAIN}");
    let Some(ended) = on_two_hosts("--delegate", &line) else { return };
    trained(&ended);
    let raises =
        "python -c 'import horovod.torch as h, time; h.init(); h.rank() == 3 and 1/0; time.sleep(99)'";
    let line = format!("horovodrun --gloo -np 4 -H 10.77.0.11:2,10.77.0.12:2 {raises}");
    let ended = on_two_hosts("--delegate", &line).unwrap();
    assert!(ended.err.contains("rank 3 (n2:1) failed first: exit 1"), "{ended:#?}");
}
