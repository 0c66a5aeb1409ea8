use super::super::fixtures::{cpu_host, gpu_host, request};
use super::super::inventory::Holder;
use super::*;
use crate::domain::filter::{Exclusion, Filter};
use proptest::prelude::*;

fn list(list: &[(&str, u32)], np: Option<u32>) -> PlacementSpec {
    PlacementSpec::Hosts { hosts: list.iter().map(|(host, n)| (HostId::from(*host), *n)).collect(), np }
}

fn pick(host: &str, slot: SlotName) -> Pick {
    Pick { host: HostId::from(host), slot }
}

fn places(at: PlacementSpec, hosts: &[HostFacts]) -> String {
    let placements = place(&request("true", at), hosts).unwrap();
    placements.iter().map(Placement::to_string).collect::<Vec<_>>().join(" ")
}

fn fails(at: PlacementSpec, hosts: &[HostFacts]) -> String {
    said(&place(&request("true", at), hosts).unwrap_err())
}

fn said(error: &PlaceError) -> String {
    format!("{error}{}", error.remedy().map_or_else(String::new, |remedy| format!(": {remedy}")))
}

fn holder(words: &str, own: bool) -> Holder {
    Holder { words: words.to_owned(), who: words.to_owned(), named: true, own, gone: false }
}

fn cluster() -> Vec<HostFacts> {
    let mut down = gpu_host("gpu-c", 0);
    down.absent = Some("connection refused by 10.0.0.13:22".to_owned());
    let mut busy = gpu_host("gpu-b", 2);
    busy.busy.insert(0, holder("li python train.py (pid 7)", false));
    vec![gpu_host("gpu-a", 2), busy, down, cpu_host("cpu", 2)]
}

#[test]
fn all_free_slots_of_a_host_are_those_that_are_free_now() {
    let mut hosts = cluster();
    let free = |hosts: &[&str], np| {
        list(&hosts.iter().map(|host| (*host, FREE_SLOTS)).collect::<Vec<(&str, u32)>>(), np)
    };
    assert_eq!(places(free(&["gpu-a"], None), &hosts), "gpu-a:0 gpu-a:1");
    assert_eq!(places(free(&["gpu-b"], None), &hosts), "gpu-b:1");
    assert_eq!(places(free(&["gpu-b", "gpu-a"], Some(2)), &hosts), "gpu-b:1 gpu-a:0");
    // more than are free now, and more than there are
    let busy = place(&request("true", free(&["gpu-b"], Some(2))), &hosts).unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    let many = place(&request("true", free(&["gpu-b"], Some(3))), &hosts).unwrap_err();
    assert!(!many.is_busy(), "{many}");
    hosts[1].busy.insert(1, holder("li", false));
    assert_eq!(places(free(&["gpu-a", "gpu-b"], None), &hosts), "gpu-a:0 gpu-a:1");
    insta::assert_snapshot!(fails(free(&["gpu-b"], None), &hosts), @"gpu-b: no slot is free (0: li python train.py (pid 7), 1: li): wait for them with --wait");
    insta::assert_snapshot!(fails(PlacementSpec::Count(None), &hosts[1..2]), @"no slot is free (gpu-b: none, busy 0: li python train.py (pid 7), 1: li): wait for them with --wait");
    hosts[0].busy.extend([(0, holder("me", true)), (1, holder("me", true))]);
    insta::assert_snapshot!(fails(free(&["gpu-a", "gpu-b"], None), &hosts), @"gpu-a: no slot is free (0-1: me); gpu-b: no slot is free (0: li python train.py (pid 7), 1: li): wait with --wait, or use your own ones too with --share");
    hosts[1].busy.remove(&1);
    let mut pairs = request("true", free(&["gpu-b"], None));
    pairs.options.gpus_per_rank = 2;
    let few = place(&pairs, &hosts).unwrap_err();
    insta::assert_snapshot!(said(&few), @"gpu-b: 1 slot is free, a rank takes 2 (0: li python train.py (pid 7)): wait for them with --wait");
    pairs.place = PlacementSpec::Count(None);
    let few = place(&pairs, &hosts[1..2]).unwrap_err();
    insta::assert_snapshot!(said(&few), @"no host has 2 free slots (gpu-b: 1, busy 0: li python train.py (pid 7)): wait for them with --wait");
}

#[test]
fn a_count_takes_free_slots_in_file_order() {
    assert_eq!(places(PlacementSpec::Count(Some(3)), &cluster()), "gpu-a:0 gpu-a:1 gpu-b:1");
    assert_eq!(places(PlacementSpec::Count(None), &cluster()), "gpu-a:0 gpu-a:1 gpu-b:1");
    assert_eq!(places(PlacementSpec::Count(None), &cluster()[2..]), "cpu:0 cpu:1");
}

#[test]
fn no_job_that_names_no_host_has_both_gpus_and_cpu_slots() {
    let said = fails(PlacementSpec::Count(Some(4)), &cluster());
    assert!(
        said.starts_with("-np 4 on 3 free slots (") && said.ends_with("wait for them with --wait"),
        "{said}"
    );
    let hosts = [gpu_host("g", 2), cpu_host("c", 4), cpu_host("d", 4)];
    assert_eq!(places(PlacementSpec::Count(Some(3)), &hosts), "c:0 c:1 c:2", "GPUs would never be enough");
    let cpus_first = [cpu_host("c", 1), gpu_host("g", 2)];
    assert_eq!(places(PlacementSpec::Count(Some(1)), &cpus_first), "c:0");
    assert_eq!(places(PlacementSpec::Count(Some(2)), &cpus_first), "g:0 g:1");
    assert_eq!(places(PlacementSpec::Count(None), &cpus_first), "g:0 g:1", "a rank for each GPU");
    let nodes = |nodes, each| PlacementSpec::Nodes { nodes, each: Some(each) };
    assert_eq!(places(nodes(1, 2), &hosts), "g:0 g:1");
    assert_eq!(places(nodes(2, 2), &hosts), "c:0 c:1 d:0 d:1");
    let said = fails(nodes(2, 2), &hosts[..2]);
    assert!(said.starts_with("--nnodes 2 --nproc-per-node 2: 1 host has that many free slots"), "{said}");
    let mut busy = hosts.clone();
    busy[0].busy.insert(0, holder("li", false));
    assert!(fails(nodes(1, 2), &busy).ends_with("wait for them with --wait"));
    // what is named is taken
    assert_eq!(places(list(&[("g", 1), ("c", 1)], None), &hosts), "g:0 c:0");
}

#[test]
fn a_host_whose_gpu_driver_fails_is_no_cpu_host_beside_others_with_gpus() {
    let mut broken = cpu_host("broken", 8);
    (broken.driver_fails, broken.no_gpu) = (true, Some("NVML failed (x)".to_owned()));
    let hosts = [broken, gpu_host("g", 2)];
    assert_eq!(places(PlacementSpec::Count(Some(2)), &hosts), "g:0 g:1");
    assert_eq!(places(PlacementSpec::Nodes { nodes: 1, each: Some(2) }, &hosts), "g:0 g:1");
    let said = fails(PlacementSpec::Count(Some(3)), &hosts);
    assert!(said.starts_with("-np 3 on 2 free slots (broken: none, NVML failed (x); g: 2)"), "{said}");
    assert_eq!(places(list(&[("broken", 1)], None), &hosts), "broken:0", "it is named");
    assert_eq!(places(PlacementSpec::Count(Some(1)), &hosts[..1]), "broken:0", "there are no others");
    let mut cpus = request("true", PlacementSpec::Nodes { nodes: 1, each: Some(2) });
    cpus.only = Only::Cpus;
    let placements = place(&cpus, &hosts).unwrap();
    assert!(placements.iter().all(|rank| rank.host.as_str() == "broken"), "CPU slots are asked for");
}

#[test]
fn several_slots_of_one_holder_are_told_once() {
    let mut host = gpu_host("a", 8);
    for slot in [0, 1, 2, 3, 6] {
        let words = format!("leased by li for run H6W3: li python (pid {slot})");
        host.busy
            .insert(slot, Holder { who: "leased by li for run H6W3".to_owned(), ..holder(&words, true) });
    }
    host.busy.insert(4, holder("wang python (pid 9)", false));
    host.busy.insert(5, holder("wang", false));
    let said = fails(PlacementSpec::Count(Some(3)), &[host]);
    let have = "(a: 1, busy 0-3,6: leased by li for run H6W3, 4: wang python (pid 9), 5: wang)";
    assert!(said.contains(have), "{said}");
}

#[test]
fn ranks_go_to_the_first_host_that_holds_them_all_before_they_are_split() {
    let mut hosts = [gpu_host("a", 4), gpu_host("b", 4), gpu_host("c", 8)];
    hosts[0].busy = (1..4).map(|slot| (slot, holder("li", false))).collect();
    assert_eq!(places(PlacementSpec::Count(Some(1)), &hosts), "a:0");
    assert_eq!(places(PlacementSpec::Count(Some(4)), &hosts), "b:0 b:1 b:2 b:3");
    assert_eq!(places(PlacementSpec::Count(Some(5)), &hosts), "c:0 c:1 c:2 c:3 c:4");
    assert_eq!(places(PlacementSpec::Count(Some(9)), &hosts), "a:0 b:0 b:1 b:2 b:3 c:0 c:1 c:2 c:3");
    hosts[1].at_risk.insert(0, "xid 48".to_owned());
    assert_eq!(places(PlacementSpec::Count(Some(4)), &hosts), "c:0 c:1 c:2 c:3", "a host at risk does not");
    let mut pairs = request("true", PlacementSpec::Count(Some(2)));
    pairs.options.gpus_per_rank = 2;
    let placed = place(&pairs, &hosts).unwrap();
    assert_eq!(placed.iter().map(Placement::to_string).collect::<Vec<_>>(), ["c:0,1", "c:2,3"]);
    // no GPU is given up for that
    let mixed = [gpu_host("g", 1), gpu_host("h", 1), cpu_host("cpu", 8)];
    assert_eq!(places(PlacementSpec::Count(Some(2)), &mixed), "g:0 h:0");
    assert_eq!(places(PlacementSpec::Count(Some(3)), &mixed), "cpu:0 cpu:1 cpu:2");
    let cpus = [cpu_host("m", 1), cpu_host("n", 4)];
    assert_eq!(places(PlacementSpec::Count(Some(2)), &cpus), "n:0 n:1");
}

#[test]
fn a_line_that_counts_ranks_by_host_takes_sound_gpus_first() {
    let nodes = |nodes, each| PlacementSpec::Nodes { nodes, each };
    let mut hosts = [gpu_host("a", 2), gpu_host("b", 2), gpu_host("c", 2)];
    hosts[0].at_risk.insert(1, "xid 48".to_owned());
    assert_eq!(places(nodes(1, Some(1)), &hosts), "a:0", "the sound one of the first host");
    assert_eq!(places(nodes(1, Some(2)), &hosts), "b:0 b:1");
    assert_eq!(places(nodes(2, Some(2)), &hosts), "b:0 b:1 c:0 c:1");
    assert_eq!(places(nodes(3, Some(2)), &hosts), "a:0 a:1 b:0 b:1 c:0 c:1", "in the order of the file");
    assert_eq!(places(nodes(1, None), &hosts), "b:0 b:1", "all of the first host with none at risk");
    assert_eq!(places(nodes(1, None), &hosts[..1]), "a:0 a:1", "there is no other");
    hosts[0].busy.insert(0, holder("li", false));
    assert_eq!(places(nodes(1, Some(1)), &hosts), "b:0");
    let alone = [hosts[0].clone(), cpu_host("cpu", 2)];
    assert_eq!(places(nodes(1, Some(1)), &alone), "a:1", "no GPU is given up for that");
}

#[test]
fn slots_of_processors_are_shared_where_that_is_asked_for_and_gpus_never() {
    let hosts = [cpu_host("a", 2), cpu_host("b", 4), gpu_host("g", 1)];
    let placed = |at: PlacementSpec| {
        let mut asked = request("true", at);
        asked.options.oversubscribe = true;
        let placed = place(&asked, &hosts).map_err(|error| said(&error))?;
        Ok::<_, String>(placed.iter().map(Placement::to_string).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(placed(list(&[("a", 3), ("b", 2)], Some(5))).as_deref(), Ok("a:0 a:1 a:2 b:0 b:1"));
    assert_eq!(placed(list(&[("a", 3)], Some(2))).as_deref(), Ok("a:0 a:1"), "as many as are asked for");
    let again = [0, 1, 2].map(|index| pick("a", SlotName::Index(index)));
    assert_eq!(placed(PlacementSpec::Picks(again.to_vec())).as_deref(), Ok("a:0 a:1 a:2"));
    let gpus = placed(list(&[("g", 2)], Some(2))).unwrap_err();
    assert!(gpus.starts_with("host g: 2 ranks on 1 GPU: --oversubscribe shares CPU slots alone"), "{gpus}");
    assert!(fails(list(&[("a", 3)], None), &hosts).starts_with("host a: 3 ranks asked for, it has 2 slots"));
}

#[test]
fn a_gpu_at_risk_is_taken_after_the_sound_slots_of_all_hosts() {
    let mut hosts = cluster();
    hosts[0].at_risk.insert(0, "xid 48".to_owned());
    assert_eq!(places(PlacementSpec::Count(Some(1)), &hosts), "gpu-a:1");
    assert_eq!(places(PlacementSpec::Count(Some(2)), &hosts), "gpu-a:1 gpu-b:1");
    assert_eq!(places(PlacementSpec::Count(Some(3)), &hosts), "gpu-a:0 gpu-a:1 gpu-b:1");
    let mut cpus = cpu_host("cpu", 2);
    cpus.at_risk.insert(0, "of a GPU, not of a CPU slot".to_owned());
    assert_eq!(places(PlacementSpec::Count(Some(1)), &[cpus]), "cpu:0");
    let mut pairs = request("true", PlacementSpec::Count(Some(2)));
    pairs.options.gpus_per_rank = 2;
    let two = [gpu_host("a", 4), gpu_host("b", 2)];
    let placed = |hosts: &[HostFacts]| {
        let placed = place(&pairs, hosts).unwrap();
        placed.iter().map(Placement::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(placed(&two), "a:0,1 a:2,3");
    let mut two = two;
    two[0].at_risk.insert(1, "xid 48".to_owned());
    assert_eq!(placed(&two), "a:0,2 b:0,1");
}

#[test]
fn too_many_ranks_say_who_has_how_many() {
    insta::assert_snapshot!(fails(PlacementSpec::Count(Some(3)), &[cpu_host("local", 2)]), @"-np 3 on 2 free slots (local: 2): lower the number of ranks, or give a host more by `slots` in the hosts file");
    insta::assert_snapshot!(fails(PlacementSpec::Count(Some(9)), &cluster()), @"-np 9 on 3 free slots (gpu-a: 2; gpu-b: 1, busy 0: li python train.py (pid 7); gpu-c: none, connection refused by 10.0.0.13:22; cpu: 2 CPU slots): lower the number of ranks");
    insta::assert_snapshot!(fails(list(&[("gpu-a", 2)], Some(3)), &cluster()), @"-np 3 on 2 slots (gpu-a: 2): lower -np, or give the hosts more slots");
    insta::assert_snapshot!(fails(list(&[("gpu-a", 3)], None), &cluster()), @"host gpu-a: 3 ranks asked for, it has 2 slots: lower the number of ranks");
    insta::assert_snapshot!(fails(list(&[("gpu-a", 3)], Some(1)), &cluster()), @"host gpu-a: 3 ranks asked for, it has 2 slots: lower the number of ranks");
    insta::assert_snapshot!(fails(list(&[("gpu-b", 2)], None), &cluster()), @"host gpu-b: 2 ranks asked for, 1 of its 2 slots free (0: li python train.py (pid 7)): wait for them with --wait");
}

#[test]
fn a_line_that_starts_its_ranks_itself_needs_them_on_one_host() {
    let hosts = [cpu_host("n1", 2), cpu_host("n2", 2)];
    let fails = |line: &str, slots, hosts: &[HostFacts]| {
        let mut asked = request(line, PlacementSpec::Count(Some(1)));
        (asked.single, asked.options.gpus_per_rank) = (true, slots);
        said(&place(&asked, hosts).unwrap_err())
    };
    insta::assert_snapshot!(fails("accelerate launch --num_processes 4 train.py", 4, &hosts), @"the line needs 4 slots on one host (--num_processes 4), and no host has as many (n1: 2; n2: 2): lower that number, or give a host more by `slots` in the hosts file");
    insta::assert_snapshot!(fails("deepspeed --num_gpus=3 train.py", 3, &hosts), @"the line needs 3 slots on one host (--num_gpus 3), and no host has as many (n1: 2; n2: 2): lower that number, or give a host more by `slots` in the hosts file");
    insta::assert_snapshot!(fails("horovodrun -np 4 --host-discovery-script ./d.sh ./x", 4, &hosts), @"the line needs 4 slots on one host, and no host has as many (n1: 2; n2: 2): lower that number, or give a host more by `slots` in the hosts file");
    insta::assert_snapshot!(fails("deepspeed --num_gpus 2 train.py", 2, &cluster()[1..2]), @"the line needs 2 slots on one host (--num_gpus 2), and no host has as many free (gpu-b: 1, busy 0: li python train.py (pid 7)): wait for them with --wait");
}

#[test]
fn the_gpus_of_a_line_are_taken_on_the_host_that_it_gets_without_them() {
    let masked = |at: PlacementSpec, mask: &str, hosts: &[HostFacts]| {
        let asked = LaunchRequest { gpu_mask: Some(mask.to_owned()), ..request("true", at) };
        let placed = place(&asked, hosts).map_err(|error| said(&error))?;
        Ok::<_, String>(placed.iter().map(Placement::to_string).collect::<Vec<_>>().join(" "))
    };
    let nodes = |nodes, each| PlacementSpec::Nodes { nodes, each };
    let cpus = [cpu_host("n1", 2), cpu_host("n2", 2)];
    // it selects nothing there
    assert_eq!(masked(nodes(1, Some(2)), "0", &cpus).unwrap(), "n1:0 n1:1");
    assert_eq!(masked(PlacementSpec::Count(Some(3)), "7", &cpus).unwrap(), "n1:0 n1:1 n2:0");
    let gpus = [gpu_host("a", 4), gpu_host("b", 4)];
    assert_eq!(masked(nodes(1, Some(2)), "3,1", &gpus).unwrap(), "a:3 a:1");
    assert_eq!(masked(nodes(2, Some(1)), "3,1", &gpus).unwrap(), "a:3 b:3");
    assert_eq!(masked(nodes(1, None), "3,1", &gpus).unwrap(), "a:3 a:1");
    assert_eq!(masked(PlacementSpec::Count(Some(1)), "GPU-a-2", &gpus).unwrap(), "a:2");
    assert_eq!(
        masked(PlacementSpec::Count(Some(2)), "1,0", &[cpu_host("c", 1), gpu_host("a", 2)]).unwrap(),
        "a:1 a:0"
    );
    insta::assert_snapshot!(masked(nodes(1, Some(2)), "0", &gpus).unwrap_err(), @"CUDA_VISIBLE_DEVICES=0 names 1 GPU, and 2 ranks on a take 2: name as many there, or leave it out");
    insta::assert_snapshot!(masked(nodes(1, Some(1)), "9", &gpus[..1]).unwrap_err(), @"host a has no slot 9: its GPUs are 0 (GPU-a-0), 1 (GPU-a-1), 2 (GPU-a-2), 3 (GPU-a-3)");
    let mut busy = gpu_host("a", 4);
    busy.busy.insert(3, holder("li python train.py (pid 7)", false));
    let error = masked(nodes(1, Some(1)), "3", &[busy]).unwrap_err();
    assert!(error.contains("a:3") && error.ends_with("wait for them with --wait"), "{error}");
    // slots that the launch names itself count before those of the line
    assert_eq!(masked(list(&[("b", 1)], None), "3", &gpus).unwrap(), "b:0");
}

#[test]
fn too_few_hosts_are_told_what_would_help() {
    let hosts = [cpu_host("n1", 2), cpu_host("n2", 2), cpu_host("n3", 2)];
    let nodes = |nodes, each| PlacementSpec::Nodes { nodes, each: Some(each) };
    insta::assert_snapshot!(fails(nodes(4, 2), &hosts), @"--nnodes 4 --nproc-per-node 2: 3 hosts have that many free slots (n1: 2; n2: 2; n3: 2): at most `--nnodes 3` fits; for more add a [[host]] to the hosts file");
    insta::assert_snapshot!(fails(nodes(2, 3), &hosts), @"--nnodes 2 --nproc-per-node 3: no host has that many free slots (n1: 2; n2: 2; n3: 2): lower the ranks on each host, or give the hosts more by `slots` in the hosts file");
    let down = HostFacts { absent: Some("n3: connection refused".to_owned()), ..cpu_host("n3", 2) };
    let said = fails(nodes(4, 2), &[cpu_host("n1", 2), down]);
    assert!(said.contains("n3: none, connection refused)"), "the host once: {said}");
}

#[test]
fn a_query_takes_no_slot() {
    let hosts: Vec<HostFacts> = cluster().into_iter().skip(1).take(1).collect();
    let mut asked = request("mpirun --version", PlacementSpec::Count(Some(2)));
    assert!(place(&asked, &hosts).is_err(), "one of its two GPUs is busy");
    asked.query = true;
    let placed = place(&asked, &hosts).unwrap();
    assert_eq!(placed.iter().map(|one| one.slot.clone()).collect::<Vec<_>>(), [Slot::Cpu { index: 0 }]);
    asked.place = PlacementSpec::Hosts { hosts: vec![("gpu-c".into(), 1)], np: None };
    assert!(place(&asked, &cluster()).is_err(), "a host that is down answers nothing");
}

#[test]
fn no_slot_at_all_is_no_run() {
    insta::assert_snapshot!(fails(PlacementSpec::Count(None), &cluster()[2..3]), @"no slot is free (gpu-c: none, connection refused by 10.0.0.13:22): `hvtui hosts check` tells more");
    insta::assert_snapshot!(fails(PlacementSpec::Count(Some(0)), &cluster()), @"a run of 0 ranks starts nothing: give a number of ranks from 1 on");
    insta::assert_snapshot!(fails(PlacementSpec::Picks(Vec::new()), &cluster()), @"a run of 0 ranks starts nothing: give a number of ranks from 1 on");
    assert_eq!(place(&request("", PlacementSpec::Count(None)), &cluster()), Err(PlaceError::NoCommand));
}

#[test]
fn hosts_are_found_or_explained() {
    assert_eq!(places(list(&[("cpu", 2), ("gpu-a", 2)], Some(3)), &cluster()), "cpu:0 cpu:1 gpu-a:0");
    insta::assert_snapshot!(fails(list(&[("gpua", 1)], None), &cluster()), @"unknown host gpua: did you mean gpu-a? the hosts file names gpu-a, gpu-b, gpu-c, cpu");
    insta::assert_snapshot!(fails(list(&[("gpua", 1)], Some(2)), &cluster()), @"unknown host gpua: did you mean gpu-a? the hosts file names gpu-a, gpu-b, gpu-c, cpu");
    insta::assert_snapshot!(fails(list(&[("zebra", 1)], None), &cluster()), @"unknown host zebra: the hosts file names gpu-a, gpu-b, gpu-c, cpu");
    insta::assert_snapshot!(fails(list(&[("gpua", 1), ("cpu", 1), ("zebra", 1)], None), &cluster()), @"unknown host gpua: did you mean gpu-a? the hosts file names gpu-a, gpu-b, gpu-c, cpu; also unknown: zebra");
    insta::assert_snapshot!(fails(list(&[("localhost", 2)], None), &cluster()), @"unknown host localhost: the hosts file names gpu-a, gpu-b, gpu-c, cpu, not this machine: leave out -H, or name one of these, or pick their slots");
    insta::assert_snapshot!(fails(list(&[("gpu-c", 1)], None), &cluster()), @"host gpu-c can't take ranks: connection refused by 10.0.0.13:22");
}

#[test]
fn picks_keep_their_order_and_group_by_host() {
    let picks = vec![
        pick("gpu-a", SlotName::Index(1)),
        pick("gpu-b", SlotName::Index(1)),
        pick("gpu-a", SlotName::Uuid("GPU-gpu-a-0".to_owned())),
    ];
    assert_eq!(places(PlacementSpec::Picks(picks), &cluster()), "gpu-a:1 gpu-a:0 gpu-b:1");
}

/// Some GPUs, and behind them a MIG slice of another one.
fn cut_host(name: &str, gpus: u32) -> HostFacts {
    let mut host = gpu_host(name, gpus);
    host.slots.push(Slot::Gpu { index: 400, uuid: GpuUuid::from(format!("MIG-{name}-400")) });
    host
}

#[test]
fn mig_slices_never_fill_up_whole_gpus_that_name_no_host() {
    let hosts = [gpu_host("a", 2), cut_host("b", 3)];
    let count = |np| PlacementSpec::Count(Some(np));
    let on_one = |each| PlacementSpec::Nodes { nodes: 1, each: Some(each) };
    assert_eq!(places(count(4), &hosts), "a:0 a:1 b:0 b:1");
    assert_eq!(places(PlacementSpec::Count(None), &hosts), "a:0 a:1 b:0 b:1 b:2");
    insta::assert_snapshot!(fails(count(6), &hosts), @"-np 6 on 5 free slots (a: 2; b: 3 GPUs and 1 MIG slice): lower the number of ranks");
    let mut busy = hosts.clone();
    busy[0].busy = (0..2).map(|slot| (slot, holder("li", false))).collect();
    assert!(fails(count(4), &busy).ends_with("wait for them with --wait"), "n3:400 is not taken for it");
    insta::assert_snapshot!(fails(count(1), &busy[..1].iter().cloned().chain([cut_host("c", 0)]).collect::<Vec<_>>()), @"-np 1 on 0 free slots (a: none, busy 0-1: li; c: 1 MIG slice): wait for them with --wait");
    let slices = [cut_host("a", 0), cut_host("b", 0)];
    assert_eq!(places(count(2), &slices), "a:400 b:400");
    assert_eq!(places(on_one(3), &hosts), "b:0 b:1 b:2");
    assert!(fails(on_one(4), &hosts).contains("no host has"));
    // the host is named
    assert_eq!(places(list(&[("b", 3)], None), &hosts), "b:0 b:1 b:2");
    assert_eq!(places(list(&[("b", 4)], None), &hosts), "b:0 b:1 b:2 b:400");
}

#[test]
fn for_a_named_gpu_that_has_fallen_off_the_bus_no_one_waits() {
    let mut hosts = cluster();
    let words = "it has fallen off the bus";
    hosts[0].busy.insert(0, Holder { named: false, gone: true, ..holder(words, false) });
    let picked = |at: &[(&str, u32)]| {
        PlacementSpec::Picks(at.iter().map(|(host, index)| pick(host, SlotName::Index(*index))).collect())
    };
    let off_bus = place(&request("true", picked(&[("gpu-a", 0)])), &hosts).unwrap_err();
    assert!(!off_bus.is_busy(), "--wait is refused, too");
    insta::assert_snapshot!(said(&off_bus), @"gpu-a:0: it has fallen off the bus: reboot gpu-a, or leave GPU 0 out");
    insta::assert_snapshot!(fails(picked(&[("gpu-a", 0), ("gpu-b", 0)]), &hosts), @"gpu-a:0: it has fallen off the bus; gpu-b:0 is busy: li python train.py (pid 7): reboot gpu-a, or leave GPU 0 out");
    insta::assert_snapshot!(fails(list(&[("gpu-a", 2)], None), &hosts), @"host gpu-a: 2 ranks asked for, 1 of its 2 slots free (0: it has fallen off the bus): reboot gpu-a, or leave GPU 0 out");
    // the others are only busy
    hosts[0].busy.insert(1, holder("li", false));
    assert!(fails(list(&[("gpu-a", 1)], None), &hosts).ends_with("wait for them with --wait"));
    assert!(fails(picked(&[("gpu-a", 1)]), &hosts).ends_with("wait for them with --wait"));
}

#[test]
fn for_gpus_that_are_all_off_the_bus_no_launch_waits() {
    let mut hosts = [gpu_host("a", 2), cpu_host("c", 2)];
    let gone = || Holder { named: false, gone: true, ..holder("it has fallen off the bus", false) };
    hosts[0].busy = [(0, gone()), (1, gone())].into();
    let free = |ranks| PlacementSpec::Free { ranks, per_host: None, filter: Filter::default() };
    let nodes = PlacementSpec::Nodes { nodes: 1, each: Some(2) };
    let count = PlacementSpec::Count(Some(1));
    let whole = |np| PlacementSpec::Hosts { hosts: vec![("a".into(), FREE_SLOTS)], np };
    for asked in [whole(None), whole(Some(1)), free(1), count.clone(), nodes.clone()] {
        let error = place(&request("true", asked.clone()), &hosts).unwrap_err();
        assert!(!error.is_busy(), "--wait is refused, too: {asked:?}");
        let told = said(&error);
        assert!(told.contains("it has fallen off the bus"), "{asked:?}: {told}");
        assert!(told.ends_with("reboot a, or leave GPUs 0-1 out"), "{asked:?}: {told}");
    }
    // one of them is only busy
    hosts[0].busy.insert(1, holder("li", false));
    for asked in [whole(None), whole(Some(1)), free(1), count.clone()] {
        assert!(place(&request("true", asked.clone()), &hosts).unwrap_err().is_busy(), "{asked:?}");
    }
    assert!(!place(&request("true", free(2)), &hosts).unwrap_err().is_busy());
    assert!(!place(&request("true", nodes), &hosts).unwrap_err().is_busy());
}

#[test]
fn what_somebody_has_is_refused_and_shared_only_by_its_owner() {
    let mut hosts = cluster();
    hosts[0].busy.insert(1, holder("leased by me for run 7QK2", true));
    let both =
        || PlacementSpec::Picks(vec![pick("gpu-a", SlotName::Index(1)), pick("gpu-b", SlotName::Index(0))]);
    let try_it = |at, share| {
        let mut request = request("true", at);
        request.on_busy.share = share;
        let placed = place(&request, &hosts).map_err(|error| said(&error));
        placed.map(|all| all.iter().map(Placement::to_string).collect::<Vec<_>>().join(" "))
    };
    insta::assert_snapshot!(try_it(both(), false).unwrap_err(), @"gpu-a:1 is busy: leased by me for run 7QK2; gpu-b:0 is busy: li python train.py (pid 7): wait for them with --wait");
    insta::assert_snapshot!(try_it(both(), true).unwrap_err(), @"gpu-b:0 is busy: li python train.py (pid 7): wait for them with --wait");
    let mine = || PlacementSpec::Picks(vec![pick("gpu-a", SlotName::Index(1))]);
    insta::assert_snapshot!(try_it(mine(), false).unwrap_err(), @"gpu-a:1 is busy: leased by me for run 7QK2: wait with --wait, or use your own ones too with --share");
    let three = || list(&[("gpu-a", 2), ("gpu-b", 2)], None);
    assert!(!try_it(three(), true).unwrap_err().contains("--share"), "it was given");
    assert!(!try_it(PlacementSpec::Count(Some(4)), false).unwrap_err().contains("--share"), "it is no help");
    assert!(try_it(PlacementSpec::Count(Some(3)), false).unwrap_err().ends_with("too with --share"));
    assert!(try_it(mine(), false).is_err());
    assert_eq!(try_it(mine(), true).unwrap(), "gpu-a:1");
    assert_eq!(try_it(list(&[("gpu-a", 2)], None), true).unwrap(), "gpu-a:0 gpu-a:1");
    assert!(try_it(list(&[("gpu-a", 2)], None), false).is_err());
    assert_eq!(try_it(PlacementSpec::Count(Some(2)), false).unwrap(), "gpu-a:0 gpu-b:1");
    let few = |np| {
        let error = place(&request("true", PlacementSpec::Count(Some(np))), &hosts[..2]).unwrap_err();
        matches!(error, PlaceError::TooFew { busy: true, .. })
    };
    assert!(few(4) && !few(5), "busy only when there would be enough if all were free");
}

#[test]
fn a_launch_queues_for_the_gpus_that_it_may_take() {
    let mut hosts = cluster();
    let exclusion = |for_good| Exclusion { clauses: vec!["x".to_owned()], for_good };
    hosts[0].left_out = [(0, exclusion(true)), (1, exclusion(false))].into();
    let gpus = |at| {
        let wanted = wanted(&request("true", at), &hosts);
        let words = |(host, gpus): (HostId, Vec<GpuUuid>)| format!("{host}: {}", gpus.len());
        wanted.into_iter().map(words).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(gpus(PlacementSpec::Count(Some(1))), "gpu-a: 2 gpu-b: 2");
    assert_eq!(gpus(list(&[("gpu-b", 1), ("cpu", 1)], None)), "gpu-b: 2");
    let free = PlacementSpec::Free { ranks: 1, per_host: None, filter: Filter::default() };
    assert_eq!(gpus(free), "gpu-a: 1 gpu-b: 2", "those too that pass the filter once they are free");
    assert_eq!(gpus(PlacementSpec::Picks(vec![pick("gpu-b", SlotName::Index(1))])), "gpu-b: 1");
}

#[test]
fn a_launch_does_not_queue_for_mig_slices_that_it_never_takes() {
    let gpus = |at, hosts: &[HostFacts]| {
        let wanted = wanted(&request("true", at), hosts);
        let words = |(host, gpus): (HostId, Vec<GpuUuid>)| format!("{host}: {}", gpus.len());
        wanted.into_iter().map(words).collect::<Vec<_>>().join(" ")
    };
    let mixed = [cut_host("a", 2), cut_host("b", 0)];
    assert_eq!(gpus(PlacementSpec::Count(Some(2)), &mixed), "a: 2");
    assert_eq!(gpus(PlacementSpec::Nodes { nodes: 1, each: Some(2) }, &mixed), "a: 2");
    assert_eq!(gpus(list(&[("a", 3)], None), &mixed), "a: 3", "the host is named");
    let free = PlacementSpec::Free { ranks: 1, per_host: None, filter: Filter::default() };
    assert_eq!(gpus(free, &mixed), "a: 3 b: 1", "whichever is free first");
    let slices = [cut_host("a", 0), cut_host("b", 0)];
    assert_eq!(gpus(PlacementSpec::Count(Some(2)), &slices), "a: 1 b: 1");
    assert_eq!(gpus(PlacementSpec::Nodes { nodes: 2, each: Some(1) }, &slices), "a: 1 b: 1");
}

#[test]
fn slots_that_are_not_there_are_explained() {
    let one = |host, slot| PlacementSpec::Picks(vec![pick(host, slot)]);
    insta::assert_snapshot!(fails(one("gpu-a", SlotName::Index(7)), &cluster()), @"host gpu-a has no slot 7: its GPUs are 0 (GPU-gpu-a-0), 1 (GPU-gpu-a-1)");
    insta::assert_snapshot!(fails(one("gpu-a", SlotName::Uuid("GPU-x".into())), &cluster()), @"host gpu-a has no slot GPU-x: its GPUs are 0 (GPU-gpu-a-0), 1 (GPU-gpu-a-1)");
    insta::assert_snapshot!(fails(one("cpu", SlotName::Index(2)), &cluster()), @"host cpu has no slot 2: its CPU slots are 0 to 1");
    let twice = vec![pick("gpu-a", SlotName::Index(0)), pick("gpu-a", SlotName::Uuid("GPU-gpu-a-0".into()))];
    insta::assert_snapshot!(fails(PlacementSpec::Picks(twice), &cluster()), @"gpu-a:0 is picked twice: one rank a slot");
}

#[test]
fn the_beginning_of_a_uuid_is_enough_where_it_is_of_one_gpu_alone() {
    let uuids = ["GPU-3f2a91c0-1111", "GPU-3f2b0000-2222", "GPU-3f2b0000-2222-3"];
    let gpu = |(index, uuid): (u32, &str)| Slot::Gpu { index, uuid: uuid.into() };
    let hosts = [HostFacts { slots: (0..).zip(uuids).map(gpu).collect(), ..gpu_host("a", 0) }];
    let one = |uuid: &str| PlacementSpec::Picks(vec![pick("a", SlotName::Uuid(uuid.to_owned()))]);
    assert_eq!(places(one("GPU-3f2a91c0"), &hosts), "a:0");
    assert_eq!(places(one("GPU-3f2b0000-2222"), &hosts), "a:1", "a whole one is meant as it is");
    insta::assert_snapshot!(fails(one("GPU-3f2b"), &hosts), @"host a has no slot GPU-3f2b: 2 GPUs begin so: 1 (GPU-3f2b0000-2222), 2 (GPU-3f2b0000-2222-3)");
    let twice = vec![pick("a", SlotName::Index(0)), pick("a", SlotName::Uuid("GPU-3f2a".to_owned()))];
    assert_eq!(fails(PlacementSpec::Picks(twice), &hosts), "a:0 is picked twice: one rank a slot");
}

#[test]
fn a_gpu_that_is_lost_is_named_and_no_remedy_takes_the_others_away() {
    let mut host = gpu_host("a", 3);
    host.slots.remove(1);
    host.lost.insert(1, "is lost");
    let hosts = [host];
    let one = |slot| PlacementSpec::Picks(vec![pick("a", slot)]);
    insta::assert_snapshot!(fails(one(SlotName::Index(1)), &hosts), @"host a has no slot 1: GPU 1 is lost");
    insta::assert_snapshot!(fails(one(SlotName::Uuid("GPU-a-1".to_owned())), &hosts), @"host a has no slot GPU-a-1: its GPUs are 0 (GPU-a-0), 2 (GPU-a-2); GPU 1 is lost");
    insta::assert_snapshot!(fails(list(&[("a", 3)], None), &hosts), @"host a: 3 ranks asked for, it has 2 slots (GPU 1 is lost): lower the number of ranks");
    let mut none = gpu_host("b", 0);
    none.lost.insert(0, "is lost");
    assert!(!fails(list(&[("b", 1)], None), &[none]).contains("in the hosts file"));
}

#[test]
fn ranks_that_no_host_has_gpus_for_are_told_by_their_size() {
    let hosts = [gpu_host("a", 4), gpu_host("b", 4)];
    let sized = |np, each, hosts: &[HostFacts]| {
        let mut asked = request("true", PlacementSpec::Count(Some(np)));
        asked.options.gpus_per_rank = each;
        said(&place(&asked, hosts).unwrap_err())
    };
    insta::assert_snapshot!(sized(1, 5, &hosts), @"-np 1 of 5 slots each: no host has 5 GPUs (a: 4; b: 4): lower --gpus-per-rank");
    insta::assert_snapshot!(sized(5, 2, &hosts), @"-np 5 of 2 slots each on 8 free slots (a: 4; b: 4): lower the number of ranks or --gpus-per-rank");
    let cpus = [cpu_host("c", 2)];
    insta::assert_snapshot!(sized(1, 3, &cpus), @"-np 1 of 3 slots each: no host has 3 slots (c: 2): lower the number of ranks, or give a host more by `slots` in the hosts file");
}

fn any_hosts() -> impl Strategy<Value = Vec<HostFacts>> {
    prop::collection::vec((0_u32..5, any::<bool>(), prop::collection::btree_set(0_u32..5, 0..3)), 1..5)
        .prop_map(|hosts| {
            let host = |(number, (slots, gpus, busy)): (usize, (u32, bool, BTreeSet<u32>))| {
                let name = format!("h{number}");
                let mut host = if gpus { gpu_host(&name, slots) } else { cpu_host(&name, slots) };
                host.busy = busy
                    .into_iter()
                    .filter(|slot| *slot < slots)
                    .map(|slot| (slot, holder("", false)))
                    .collect();
                host
            };
            hosts.into_iter().enumerate().map(host).collect()
        })
}

fn any_where() -> impl Strategy<Value = PlacementSpec> {
    let slot = (0_u32..4, 0_u32..5);
    prop_oneof![
        prop::option::of(0_u32..12).prop_map(PlacementSpec::Count),
        (prop::collection::btree_map(0_u32..4, 1_u32..4, 1..4), prop::option::of(0_u32..8)).prop_map(
            |(hosts, np)| {
                PlacementSpec::Hosts {
                    hosts: hosts.into_iter().map(|(h, n)| (HostId::from(format!("h{h}")), n)).collect(),
                    np,
                }
            }
        ),
        prop::collection::vec(slot, 0..8).prop_map(|picks| PlacementSpec::Picks(
            picks.into_iter().map(|(h, s)| pick(&format!("h{h}"), SlotName::Index(s))).collect()
        )),
    ]
}

proptest! {
    #[test]
    fn placements_hold_together(hosts in any_hosts(), at in any_where()) {
        let Ok(placements) = place(&request("true", at.clone()), &hosts) else { return Ok(()) };
        prop_assert!(!placements.is_empty());
        let slots: BTreeSet<_> = placements.iter().map(|p| (p.host.clone(), p.slot.clone())).collect();
        prop_assert_eq!(slots.len(), placements.len(), "each slot once");
        for (rank, placement) in (0..).zip(&placements) {
            prop_assert_eq!(placement.rank, Rank(rank), "ranks without holes");
            let host = hosts.iter().find(|host| host.id == placement.host).unwrap();
            prop_assert!(host.slots.contains(&placement.slot), "a slot of its host");
            prop_assert!(!host.busy.contains_key(&placement.slot.index()), "free");
        }
        let mut blocks: Vec<HostId> = placements.iter().map(|p| p.host.clone()).collect();
        blocks.dedup();
        let distinct: BTreeSet<HostId> = blocks.iter().cloned().collect();
        prop_assert_eq!(blocks.len(), distinct.len(), "one block a host");
        for host in distinct {
            let local: Vec<u32> = placements.iter().filter(|p| p.host == host).map(|p| p.local_rank).collect();
            prop_assert_eq!(&local, &(0..local.len() as u32).collect::<Vec<_>>(), "local ranks from 0");
        }
        if let PlacementSpec::Count(Some(np)) | PlacementSpec::Hosts { np: Some(np), .. } = at {
            prop_assert_eq!(placements.len(), np as usize);
        }
    }
}

#[test]
fn a_rank_for_each_gpu_takes_no_cpu_slot_and_the_other_way_round() {
    let hosts = [cpu_host("c", 2), gpu_host("g", 3)];
    let nodes = PlacementSpec::Nodes { nodes: 1, each: None };
    let at = |only| LaunchRequest { only, ..request("true", nodes.clone()) };
    let placed = |only| place(&at(only), &hosts).map(|all| (all.len(), all[0].host.to_string()));
    assert_eq!(placed(Only::Any), Ok((2, "c".to_owned())));
    assert_eq!(placed(Only::Gpus), Ok((3, "g".to_owned())));
    assert_eq!(placed(Only::Cpus), Ok((2, "c".to_owned())));
    let none = place(&at(Only::Gpus), &hosts[..1]).unwrap_err().to_string();
    assert_eq!(none, "the line wants a rank for each GPU of a host, and no host has one (CPU slots: c: 2)");
}
