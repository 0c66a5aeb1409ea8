use super::super::fixtures::{cpu_host, gpu_host, request};
use super::*;
use proptest::prelude::*;

fn list(list: &[(&str, u32)], np: Option<u32>) -> Whereto {
    Whereto::Hosts { hosts: list.iter().map(|(host, n)| (HostId::from(*host), *n)).collect(), np }
}

fn pick(host: &str, slot: SlotName) -> Pick {
    Pick { host: HostId::from(host), slot }
}

fn places(whereto: Whereto, hosts: &[HostFacts]) -> String {
    let placements = place(&request("true", whereto), hosts).unwrap();
    placements.iter().map(Placement::to_string).collect::<Vec<_>>().join(" ")
}

fn fails(whereto: Whereto, hosts: &[HostFacts]) -> String {
    place(&request("true", whereto), hosts).unwrap_err().to_string()
}

fn cluster() -> Vec<HostFacts> {
    let mut down = gpu_host("gpu-c", 0);
    down.absent = Some("connection refused by 10.0.0.13:22".to_owned());
    let mut busy = gpu_host("gpu-b", 2);
    busy.busy.insert(0, "li python train.py (pid 7)".to_owned());
    vec![gpu_host("gpu-a", 2), busy, down, cpu_host("cpu", 2)]
}

#[test]
fn a_count_takes_free_slots_in_file_order() {
    assert_eq!(places(Whereto::Count(Some(4)), &cluster()), "gpu-a:0 gpu-a:1 gpu-b:1 cpu:0");
    assert_eq!(places(Whereto::Count(None), &cluster()), "gpu-a:0 gpu-a:1 gpu-b:1 cpu:0 cpu:1");
}

#[test]
fn too_many_ranks_say_who_has_how_many() {
    insta::assert_snapshot!(fails(Whereto::Count(Some(3)), &[cpu_host("local", 2)]), @"-np 3 on 2 free slots (local: 2): lower -np, or add hosts or slots to the hosts file");
    insta::assert_snapshot!(fails(Whereto::Count(Some(9)), &cluster()), @"-np 9 on 5 free slots (gpu-a: 2, gpu-b: 1 and 1 busy, gpu-c: none, connection refused by 10.0.0.13:22, cpu: 2): lower -np, or add hosts or slots to the hosts file");
    insta::assert_snapshot!(fails(list(&[("gpu-a", 2)], Some(3)), &cluster()), @"-np 3 on 2 slots (gpu-a: 2): lower -np, or give the hosts more slots");
    insta::assert_snapshot!(fails(list(&[("gpu-a", 3)], None), &cluster()), @"host gpu-a: 3 ranks asked for, it has 2 slots");
    insta::assert_snapshot!(fails(list(&[("gpu-a", 3)], Some(1)), &cluster()), @"host gpu-a: 3 ranks asked for, it has 2 slots");
    insta::assert_snapshot!(fails(list(&[("gpu-b", 2)], None), &cluster()), @"host gpu-b: 2 ranks asked for, 1 of its 2 slots free (0: li python train.py (pid 7)); to share them, name them by --gpus");
}

#[test]
fn no_slot_at_all_is_no_run() {
    insta::assert_snapshot!(fails(Whereto::Count(None), &cluster()[2..3]), @"-np 1 on 0 free slots (gpu-c: none, connection refused by 10.0.0.13:22): lower -np, or add hosts or slots to the hosts file");
    insta::assert_snapshot!(fails(Whereto::Count(Some(0)), &cluster()), @"a run of 0 ranks starts nothing: give a number of ranks from 1 on");
    insta::assert_snapshot!(fails(Whereto::Picks(Vec::new()), &cluster()), @"a run of 0 ranks starts nothing: give a number of ranks from 1 on");
    assert_eq!(place(&request("", Whereto::Count(None)), &cluster()), Err(PlaceError::NoCommand));
}

#[test]
fn hosts_are_found_or_explained() {
    assert_eq!(places(list(&[("cpu", 2), ("gpu-a", 2)], Some(3)), &cluster()), "cpu:0 cpu:1 gpu-a:0");
    insta::assert_snapshot!(fails(list(&[("gpua", 1)], None), &cluster()), @"unknown host gpua: did you mean gpu-a? the hosts file names gpu-a, gpu-b, gpu-c, cpu");
    insta::assert_snapshot!(fails(list(&[("zebra", 1)], None), &cluster()), @"unknown host zebra: the hosts file names gpu-a, gpu-b, gpu-c, cpu");
    insta::assert_snapshot!(fails(list(&[("gpu-c", 1)], None), &cluster()), @"host gpu-c can't take ranks: connection refused by 10.0.0.13:22");
}

#[test]
fn picks_keep_their_order_and_group_by_host() {
    let picks = vec![
        pick("gpu-b", SlotName::Index(0)),
        pick("gpu-a", SlotName::Uuid("GPU-gpu-a-1".to_owned())),
        pick("gpu-b", SlotName::Index(1)),
    ];
    // A busy GPU that was named is taken: its owner asked for it.
    assert_eq!(places(Whereto::Picks(picks.clone()), &cluster()), "gpu-b:0 gpu-b:1 gpu-a:1");
    let placements = place(&request("true", Whereto::Picks(picks)), &cluster()).unwrap();
    let shared = shared(&placements, &cluster());
    assert_eq!(
        shared.into_iter().collect::<Vec<_>>(),
        [("gpu-b:0".into(), "li python train.py (pid 7)".into())]
    );
}

#[test]
fn slots_that_are_not_there_are_explained() {
    let one = |host, slot| Whereto::Picks(vec![pick(host, slot)]);
    insta::assert_snapshot!(fails(one("gpu-a", SlotName::Index(7)), &cluster()), @"host gpu-a has no slot 7: its GPUs are 0 (GPU-gpu-a-0), 1 (GPU-gpu-a-1)");
    insta::assert_snapshot!(fails(one("gpu-a", SlotName::Uuid("GPU-x".into())), &cluster()), @"host gpu-a has no slot GPU-x: its GPUs are 0 (GPU-gpu-a-0), 1 (GPU-gpu-a-1)");
    insta::assert_snapshot!(fails(one("cpu", SlotName::Index(2)), &cluster()), @"host cpu has no slot 2: its CPU slots are 0 to 1");
    let twice = vec![pick("gpu-a", SlotName::Index(0)), pick("gpu-a", SlotName::Uuid("GPU-gpu-a-0".into()))];
    insta::assert_snapshot!(fails(Whereto::Picks(twice), &cluster()), @"gpu-a:0 is picked twice: one rank a slot");
}

fn any_hosts() -> impl Strategy<Value = Vec<HostFacts>> {
    prop::collection::vec((0_u32..5, any::<bool>(), prop::collection::btree_set(0_u32..5, 0..3)), 1..5)
        .prop_map(|hosts| {
            let host = |(number, (slots, gpus, busy)): (usize, (u32, bool, BTreeSet<u32>))| {
                let name = format!("h{number}");
                let mut host = if gpus { gpu_host(&name, slots) } else { cpu_host(&name, slots) };
                host.busy =
                    busy.into_iter().filter(|slot| *slot < slots).map(|slot| (slot, String::new())).collect();
                host
            };
            hosts.into_iter().enumerate().map(host).collect()
        })
}

fn any_where() -> impl Strategy<Value = Whereto> {
    let slot = (0_u32..4, 0_u32..5);
    prop_oneof![
        prop::option::of(0_u32..12).prop_map(Whereto::Count),
        (prop::collection::btree_map(0_u32..4, 1_u32..4, 1..4), prop::option::of(0_u32..8)).prop_map(
            |(hosts, np)| {
                Whereto::Hosts {
                    hosts: hosts.into_iter().map(|(h, n)| (HostId::from(format!("h{h}")), n)).collect(),
                    np,
                }
            }
        ),
        prop::collection::vec(slot, 0..8).prop_map(|picks| Whereto::Picks(
            picks.into_iter().map(|(h, s)| pick(&format!("h{h}"), SlotName::Index(s))).collect()
        )),
    ]
}

proptest! {
    #[test]
    fn placements_hold_together(hosts in any_hosts(), whereto in any_where()) {
        let Ok(placements) = place(&request("true", whereto.clone()), &hosts) else { return Ok(()) };
        prop_assert!(!placements.is_empty());
        let slots: BTreeSet<_> = placements.iter().map(|p| (p.host.clone(), p.slot.clone())).collect();
        prop_assert_eq!(slots.len(), placements.len(), "each slot once");
        for (rank, placement) in (0..).zip(&placements) {
            prop_assert_eq!(placement.rank, Rank(rank), "ranks without holes");
            let host = hosts.iter().find(|host| host.id == placement.host).unwrap();
            prop_assert!(host.slots.contains(&placement.slot), "a slot of its host");
            let picked = matches!(whereto, Whereto::Picks(_));
            prop_assert!(picked || !host.busy.contains_key(&placement.slot.index()), "free unless picked");
        }
        let mut blocks: Vec<HostId> = placements.iter().map(|p| p.host.clone()).collect();
        blocks.dedup();
        let distinct: BTreeSet<HostId> = blocks.iter().cloned().collect();
        prop_assert_eq!(blocks.len(), distinct.len(), "one block a host");
        for host in distinct {
            let local: Vec<u32> = placements.iter().filter(|p| p.host == host).map(|p| p.local_rank).collect();
            prop_assert_eq!(&local, &(0..local.len() as u32).collect::<Vec<_>>(), "local ranks from 0");
        }
        if let Whereto::Count(Some(np)) | Whereto::Hosts { np: Some(np), .. } = whereto {
            prop_assert_eq!(placements.len(), np as usize);
        }
    }
}
