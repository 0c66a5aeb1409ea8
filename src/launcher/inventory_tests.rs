use super::*;
use crate::domain::fixtures::{host_info, host_sample};
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::gpu::{GpuInfo, GpuProcess};
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::host::GpuAbsenceReason;
use crate::domain::ids::{GpuUuid, RunId};
use crate::domain::lease::Lease;
use crate::domain::occupancy::FreeMemory;

fn info(gpus: u32) -> HostInfo {
    let gpu = |index| GpuInfo {
        uuid: GpuUuid::from(format!("GPU-{index}")),
        name: "NVIDIA H200".to_owned(),
        memory_total: Reading::Value(141 << 30),
        ..GpuInfo::unknown(index)
    };
    HostInfo {
        hostname: "node1".to_owned(),
        memory_total: Reading::Value(1 << 30),
        ssh_server_address: Some("::ffff:10.0.0.11".parse().unwrap()),
        gpus: (0..gpus).map(gpu).collect(),
        ..host_info()
    }
}

fn sample(processes: Vec<Reading<Vec<GpuProcess>>>) -> HostSample {
    let gpu = |(index, processes)| GpuSample {
        memory_used: Reading::Value(1 << 30),
        memory_total: Reading::Value(141 << 30),
        processes,
        ..GpuSample::unknown(index)
    };
    HostSample { gpus: (0..).zip(processes).map(gpu).collect(), ..host_sample() }
}

fn no_age(_: HostTime) -> Option<String> {
    None
}

fn present(config: &HostConfig, info: &HostInfo, sample: Option<&HostSample>) -> HostFacts {
    HostFacts::present(
        config,
        info,
        &Now { sample, events: None, acknowledged: &BTreeMap::new(), leases: None, age: &no_age },
        "/here",
    )
}

#[test]
fn slots_are_gpus_then_cpus_then_what_was_asked_for() {
    assert!(matches!(slots(SlotCount::Auto, &info(2))[..], [Slot::Gpu { .. }, Slot::Gpu { index: 1, .. }]));
    assert_eq!(slots(SlotCount::Auto, &info(0)).len(), 4);
    assert_eq!(slots(SlotCount::Cpus(3), &info(2)), cpu_slots(3));
}

#[test]
fn cpu_slots_for_want_of_a_driver_that_works_are_told_from_those_of_a_cpu_host() {
    let with =
        |reason| HostInfo { gpu_absence: Some(GpuAbsence { reason, detail: String::new() }), ..info(0) };
    let auto = HostConfig::this_machine();
    let fails = |config: &HostConfig, reason| present(config, &with(reason), None).driver_fails;
    assert!(fails(&auto, GpuAbsenceReason::DriverMismatch) && fails(&auto, GpuAbsenceReason::Other));
    assert!(!fails(&auto, GpuAbsenceReason::NoLibrary) && !fails(&auto, GpuAbsenceReason::NoDevice));
    let said = HostConfig { slots: SlotCount::Cpus(2), ..HostConfig::this_machine() };
    assert!(!fails(&said, GpuAbsenceReason::DriverMismatch), "the hosts file asks for CPU slots");
    assert!(!present(&auto, &info(2), None).driver_fails);
}

#[test]
fn cpu_slots_of_a_gpu_host_see_no_gpu() {
    let config = HostConfig { slots: SlotCount::Cpus(2), ..HostConfig::this_machine() };
    let facts = present(&config, &info(1), None);
    assert_eq!(facts.env.get("CUDA_VISIBLE_DEVICES").map(String::as_str), Some(""));
    assert!(present(&config, &info(0), None).env.is_empty());
}

#[test]
fn a_launch_that_hides_the_gpus_finds_the_cpus_free() {
    let facts = present(&HostConfig::this_machine(), &info(2), None);
    assert_eq!((facts.slots.len(), facts.usable(false).len()), (2, 0), "no values of them have come");
    let without = facts.without_gpus(&info(2));
    assert_eq!(without.usable(false), cpu_slots(4));
    let config = HostConfig { slots: SlotCount::Cpus(3), ..HostConfig::this_machine() };
    assert_eq!(present(&config, &info(2), None).without_gpus(&info(2)).slots, cpu_slots(3));
}

#[test]
fn what_is_not_known_to_be_free_is_busy() {
    let process = GpuProcess {
        user: Reading::Value("li".to_owned()),
        command: Reading::Value("python train.py".to_owned()),
        ..GpuProcess::unknown(7)
    };
    let sample = sample(vec![
        Reading::Value(vec![process]),
        Reading::Value(Vec::new()),
        Reading::failed("no permission"),
    ]);
    let config = HostConfig::this_machine();
    let facts = present(&config, &info(4), Some(&sample));
    let holder = |words: &str, who: &str, named, own| Holder {
        words: words.to_owned(),
        who: who.to_owned(),
        named,
        own,
        gone: false,
    };
    let not_known = |why: &str| {
        let words = format!("it is not known whether it is free: {why}");
        holder(&words, &words, false, false)
    };
    let expected = [
        (0, holder("li python train.py (pid 7)", "li", true, true)),
        (2, not_known("process list: no permission")),
        (3, not_known("no values of it have come")),
    ];
    assert_eq!(facts.busy, BTreeMap::from(expected));
    let strict = HostConfig { free_memory: FreeMemory::Bytes(1 << 20), ..config.clone() };
    assert_eq!(present(&strict, &info(2), Some(&sample)).usable(true), slots(SlotCount::Auto, &info(1)));
    let on_cpus = HostConfig { slots: SlotCount::Cpus(3), ..config };
    assert!(present(&on_cpus, &info(4), Some(&sample)).busy.is_empty());
}

#[test]
fn this_machine_starts_ranks_where_the_user_stands() {
    let config = HostConfig::this_machine();
    assert_eq!(present(&config, &info(0), None).workdir.as_deref(), Some("/here"));
    let named = HostConfig { workdir: Some("/srv".to_owned()), ..config };
    assert_eq!(present(&named, &info(0), None).workdir.as_deref(), Some("/srv"));
}

#[test]
fn mapped_addresses_are_plain_ones() {
    let facts = present(&HostConfig::this_machine(), &info(0), None);
    assert_eq!(facts.ssh_server_address, Some("10.0.0.11".parse().unwrap()));
}

#[test]
fn a_lease_says_who_has_a_gpu_and_whether_it_may_be_shared() {
    let lease = |gpu: &str, own| Lease {
        gpu: GpuUuid::from(gpu),
        user: Some(if own { "li" } else { "wang" }.to_owned()),
        own,
        pid: Some(9),
        command: None,
        run: Some(RunId::new(1, 2)),
        name: Some("mnist".to_owned()),
        rank: None,
        since: Some(HostTime(5)),
    };
    let stranger = GpuProcess {
        user: Reading::Value("wang".to_owned()),
        command: Reading::Value("python".to_owned()),
        ..GpuProcess::unknown(7)
    };
    let none = || Reading::Value(Vec::new());
    let sample = sample(vec![Reading::Value(vec![stranger]), none(), none(), none()]);
    let held = vec![lease("GPU-0", true), lease("GPU-1", true), lease("GPU-2", false)];
    let leases = Leases { held, ..Leases::default() };
    let age = |since: HostTime| Some(format!("{} s", since.0));
    let now = Now {
        sample: Some(&sample),
        events: None,
        acknowledged: &BTreeMap::new(),
        leases: Some(&leases),
        age: &age,
    };
    let facts = HostFacts::present(&HostConfig::this_machine(), &info(4), &now, "/here");
    let run = RunId::new(1, 2).short().to_owned();
    let words = |index| facts.busy.get(&index).map(|holder| (holder.words.clone(), holder.own));
    let mine = format!("leased by li for run {run} (mnist) for 5 s");
    assert_eq!(words(0), Some((format!("{mine}: wang python (pid 7)"), false)), "another one computes on it");
    assert_eq!(words(1), Some((mine, true)));
    assert_eq!(words(2), Some((format!("leased by wang for run {run} (mnist) for 5 s"), false)));
    let indices = |share| facts.usable(share).iter().map(Slot::index).collect::<Vec<_>>();
    assert_eq!((indices(false), indices(true)), (vec![3], vec![3, 1]));
}

#[test]
fn a_slice_is_shared_by_its_own_lease_and_not_by_that_of_its_gpu() {
    let lease = |gpu: &GpuUuid| Lease {
        user: Some("li".to_owned()),
        own: true,
        pid: Some(9),
        run: Some(RunId::new(1, 2)),
        ..Lease::unknown(gpu.clone())
    };
    let mut info = info(2);
    for gpu in 0..2 {
        let uuid = GpuUuid::from(format!("MIG-{gpu}"));
        let slice = GpuInfo { uuid, parent: Some(gpu), ..GpuInfo::unknown(mig::slice_index(gpu, 0)) };
        info.gpus[gpu as usize].slices = Some(1);
        info.gpus.push(slice);
    }
    let held = vec![lease(&info.gpus[0].uuid), lease(&info.gpus[3].uuid)];
    let mut leases = Leases { held, ..Leases::default() };
    leases.extend_to_slices(&info.gpus);
    let now = Now {
        sample: None,
        events: None,
        acknowledged: &BTreeMap::new(),
        leases: Some(&leases),
        age: &no_age,
    };
    let facts = HostFacts::present(&HostConfig::this_machine(), &info, &now, "/here");
    assert_eq!(facts.busy.keys().copied().collect::<Vec<_>>(), [100, 200]);
    assert_eq!(facts.usable(true).iter().map(Slot::index).collect::<Vec<_>>(), [200]);
}

#[test]
fn a_gpu_that_has_fallen_off_the_bus_takes_no_ranks() {
    let at = Stamp(1);
    let happened = |index: u32, xid| {
        let (uuid, what) = (GpuUuid::from(format!("GPU-{index}")), Happening::Xid { xid });
        GpuEvent { index, uuid, what, count: 1, t: None }
    };
    let mut events = GpuEvents::default();
    events.add(at, &happened(0, 79));
    events.add(at, &happened(1, 48));
    let none = || Reading::Value(Vec::new());
    let sample = sample(vec![none(), none(), none()]);
    let busy = |now: Stamp| {
        let now = Now {
            sample: Some(&sample),
            events: Some((&events, now)),
            acknowledged: &BTreeMap::new(),
            leases: None,
            age: &no_age,
        };
        let facts = HostFacts::present(&HostConfig::this_machine(), &info(3), &now, "/here");
        assert!(facts.busy.values().all(|holder| holder.gone));
        facts.busy.iter().map(|(index, holder)| (*index, holder.words.clone())).collect::<Vec<_>>()
    };
    assert_eq!(busy(at), [(0, "it has fallen off the bus".to_owned())], "one at risk is free");
    assert!(busy(at.plus_micros(3_600_000_001)).is_empty(), "an event of an hour ago counts no more");

    // nor is it shared with another run of its own
    let own = Lease { user: Some("li".to_owned()), own: true, ..Lease::unknown("GPU-0") };
    let leases = Leases { held: vec![own], ..Leases::default() };
    let usable = |events| {
        let now = Now {
            sample: Some(&sample),
            events,
            acknowledged: &BTreeMap::new(),
            leases: Some(&leases),
            age: &no_age,
        };
        let facts = HostFacts::present(&HostConfig::this_machine(), &info(3), &now, "/here");
        let words = facts.busy[&0].words.clone();
        (facts.usable(true).iter().map(Slot::index).collect::<Vec<_>>(), words)
    };
    assert_eq!(usable(None), (vec![1, 2, 0], "leased by li".to_owned()));
    let words = "leased by li, and it has fallen off the bus".to_owned();
    assert_eq!(usable(Some((&events, at))), (vec![1, 2], words));
}

#[test]
fn a_gpu_that_the_driver_has_lost_is_off_the_bus_without_an_event() {
    let lost = Reading::Failed { error: "GPU is lost".to_owned() };
    let mut sample = sample(vec![lost, Reading::Value(Vec::new())]);
    sample.gpus[0].memory_used = Reading::Failed { error: "GPU is lost".to_owned() };
    let now = Now {
        sample: Some(&sample),
        events: None,
        acknowledged: &BTreeMap::new(),
        leases: None,
        age: &no_age,
    };
    let facts = HostFacts::present(&HostConfig::this_machine(), &info(2), &now, "/here");
    assert_eq!(facts.off_bus(&facts.slots), [0]);
}

#[test]
fn what_was_acknowledged_is_no_risk_and_off_the_bus_stays_off() {
    let at = Stamp(1);
    let mut events = GpuEvents::default();
    for (index, xid) in [(0, 79), (1, 48)] {
        let (uuid, what) = (GpuUuid::from(format!("GPU-{index}")), Happening::Xid { xid });
        events.add(at, &GpuEvent { index, uuid, what, count: 1, t: None });
    }
    let sample = sample(vec![Reading::Value(Vec::new()), Reading::Value(Vec::new())]);
    let facts = |acknowledged: &BTreeMap<GpuUuid, Stamp>| {
        let now = Now {
            sample: Some(&sample),
            events: Some((&events, at)),
            acknowledged,
            leases: None,
            age: &no_age,
        };
        HostFacts::present(&HostConfig::this_machine(), &info(2), &now, "/here")
    };
    let before = facts(&BTreeMap::new());
    assert_eq!(before.at_risk[&1], "xid 48");
    let all = ["GPU-0", "GPU-1"].map(|uuid| (GpuUuid::from(uuid.to_owned()), at));
    let after = facts(&BTreeMap::from(all));
    assert!(after.at_risk.is_empty(), "{:?}", after.at_risk);
    assert_eq!((before.busy.len(), after.busy), (1, before.busy), "it is not free");
}

#[test]
fn a_gpu_that_cannot_be_read_is_no_slot_and_is_named() {
    let mut info = info(3);
    let unreadable = |index, why: &str| GpuInfo {
        uuid: GpuUuid::unreadable(index),
        pci: Reading::failed(why),
        ..GpuInfo::unknown(index)
    };
    info.gpus[1] = unreadable(1, "the GPU is lost: it fell off the bus or has become inaccessible");
    info.gpus[2] = unreadable(2, "unknown error");
    let auto = HostConfig::this_machine();
    let facts = present(&auto, &info, None);
    assert_eq!(facts.slots.iter().map(Slot::index).collect::<Vec<_>>(), [0]);
    assert_eq!(facts.lost, [(1, "is lost"), (2, "is unreadable")].into());
    let on_cpus = HostConfig { slots: SlotCount::Cpus(3), ..auto };
    assert!(present(&on_cpus, &info, None).lost.is_empty());
}
