use super::super::fixtures::{cpu_host, gpu_host, request};
use super::super::inventory::Holder;
use super::super::place::place;
use super::*;
use crate::domain::filter::Exclusion;
use crate::domain::gpu::topology::{Path, Topology};
use crate::domain::run::Placement;

fn free(ranks: u32) -> PlacementSpec {
    PlacementSpec::Free { ranks, per_host: None, filter: Filter::default() }
}

fn places(asked: &LaunchRequest, hosts: &[HostFacts]) -> String {
    match place(asked, hosts) {
        Ok(placements) => placements.iter().map(Placement::to_string).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

fn busy(host: &mut HostFacts, index: u32, own: bool) {
    let words = "li python train.py (pid 7)".to_owned();
    host.busy.insert(index, Holder { who: words.clone(), words, named: true, own, gone: false });
}

fn excluded(clause: &str, for_good: bool) -> Exclusion {
    Exclusion { clauses: vec![clause.to_owned()], for_good }
}

#[test]
fn one_host_is_preferred_and_what_is_busy_or_left_out_is_not_taken() {
    let mut hosts = [gpu_host("a", 2), gpu_host("b", 4), gpu_host("c", 4)];
    let of = |ranks, hosts: &[HostFacts]| places(&request("true", free(ranks)), hosts);
    assert_eq!(of(2, &hosts), "a:0 a:1");
    assert_eq!(of(3, &hosts), "b:0 b:1 b:2");
    busy(&mut hosts[1], 1, false);
    hosts[1].left_out.insert(3, excluded("index<3", true));
    assert_eq!(of(3, &hosts), "c:0 c:1 c:2");
    assert_eq!(of(4, &hosts), "c:0 c:1 c:2 c:3");
    assert_eq!(of(6, &hosts), "a:0 a:1 b:0 b:2 c:0 c:1");
    hosts[2].absent = Some("connection refused".to_owned());
    insta::assert_snapshot!(of(6, &hosts), @"6 GPUs asked for, 4 are free, 1 is left out by the filter: index<3 excludes 1 (a: 2; b: 3, busy 1: li python train.py (pid 7); c: none, connection refused)");
}

#[test]
fn gpus_that_reach_each_other_by_nvlink_are_preferred() {
    let mut hosts = [gpu_host("a", 4)];
    let path = |a: u32, b: u32| match a.abs_diff(b) {
        0 => Path::Own,
        2 => Path::NvLink(4),
        _ => Path::System,
    };
    let paths = (0..4).map(|a| (0..4).map(|b| path(a, b)).collect()).collect();
    hosts[0].topology = Some((Topology { paths, affinity: Vec::new() }, (0..4).collect()));
    assert_eq!(places(&request("true", free(2)), &hosts), "a:0 a:2");
}

#[test]
fn too_few_are_busy_only_if_there_would_be_enough() {
    let mut hosts = [gpu_host("a", 2)];
    busy(&mut hosts[0], 0, true);
    let is_busy =
        |ranks, hosts: &[HostFacts]| place(&request("true", free(ranks)), hosts).unwrap_err().is_busy();
    assert!(is_busy(2, &hosts) && !is_busy(3, &hosts));
    hosts[0].left_out.insert(1, excluded("util<5", false));
    assert!(is_busy(2, &hosts), "it passes when nothing is on it");
    let words = |hosts: &[HostFacts]| places(&request("true", free(2)), hosts);
    insta::assert_snapshot!(words(&hosts), @"2 GPUs asked for, 0 are free, 1 is left out by the filter: util<5 excludes 1 (a: 1, busy 0: li python train.py (pid 7))");
    hosts[0].left_out.insert(1, excluded("model~h200", true));
    assert!(!is_busy(2, &hosts), "the filter never lets two through");
    insta::assert_snapshot!(words(&hosts), @"2 GPUs asked for, 0 are free, 1 is left out by the filter: model~h200 excludes 1 (a: 1, busy 0: li python train.py (pid 7))");
    let mut asked = request("true", free(1));
    assert!(place(&asked, &hosts).is_err());
    asked.on_busy.share = true;
    assert_eq!(places(&asked, &hosts), "a:0", "--share takes one's own where none is free");
}

#[test]
fn ranks_of_several_gpus_get_them_on_one_host() {
    let hosts = [gpu_host("a", 3), gpu_host("b", 3)];
    let mut asked = request("true", free(2));
    asked.options.gpus_per_rank = 2;
    let placements = place(&asked, &hosts).unwrap();
    let all: Vec<String> = placements.iter().map(|rank| format!("{}+{}", rank, rank.more.len())).collect();
    assert_eq!(all, ["a:0,1+1", "b:0,1+1"]);
    asked.place = free(3);
    assert!(places(&asked, &hosts).starts_with("3 ranks of 2 GPUs each asked for, 6 are free"));
    asked.place = PlacementSpec::Free { ranks: 2, per_host: Some(2), filter: Filter::default() };
    assert!(!place(&asked, &hosts).unwrap_err().is_busy(), "no host has four GPUs");
    assert!(places(&asked, &hosts).starts_with("2 ranks of 2 GPUs each, 2 on each host, asked for"));
}

#[test]
fn hosts_without_gpus_give_cpu_slots() {
    let hosts = [cpu_host("a", 2), cpu_host("b", 2)];
    assert_eq!(places(&request("true", free(3)), &hosts), "a:0 a:1 b:0");
    let mut reasons = [cpu_host("a", 2), cpu_host("b", 2), cpu_host("c", 2)];
    reasons[0].no_gpu = Some("no NVIDIA driver library".to_owned());
    reasons[1].no_gpu = Some("the hosts file gives it CPU slots".to_owned());
    reasons[2].absent = Some("connection refused".to_owned());
    let filter = Filter::parse("util<5").unwrap();
    let asked = request("true", PlacementSpec::Free { ranks: 2, per_host: None, filter });
    assert!(!place(&asked, &reasons).unwrap_err().is_busy(), "nothing to wait for");
    insta::assert_snapshot!(places(&asked, &reasons), @"2 GPUs asked for, and no host that is up has a GPU that hvtui can use (a: no NVIDIA driver library, b: the hosts file gives it CPU slots, c: connection refused)");
    let mixed = [cpu_host("a", 2), gpu_host("b", 1)];
    assert_eq!(places(&request("true", free(1)), &mixed), "b:0");
    assert!(places(&request("true", free(2)), &mixed).starts_with("2 GPUs asked for, 1 is free ("));
}
