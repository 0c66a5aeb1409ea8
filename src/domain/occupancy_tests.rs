use super::*;
use crate::domain::ids::GpuUuid;

const GIB: u64 = 1 << 30;

fn idle() -> GpuSample {
    GpuSample {
        util: Reading::Value(0),
        memory_used: Reading::Value(GIB),
        memory_total: Reading::Value(45 * GIB),
        processes: Reading::Value(Vec::new()),
        ..GpuSample::unknown(1)
    }
}

fn gpu() -> GpuInfo {
    GpuInfo { uuid: GpuUuid::from("GPU-1"), ..GpuInfo::unknown(1) }
}

fn process(pid: u32, user: &str) -> GpuProcess {
    GpuProcess {
        user: Reading::Value(user.to_owned()),
        command: Reading::Value("python train.py".to_owned()),
        ..GpuProcess::unknown(pid)
    }
}

fn lease(own: bool) -> Lease {
    Lease {
        user: Some("li".to_owned()),
        own,
        pid: Some(9),
        since: Some(HostTime(5)),
        ..Lease::unknown("GPU-1")
    }
}

fn of<'a>(leases: Option<&'a Leases>, sample: &'a GpuSample) -> Occupancy<'a> {
    Occupancy::of(&gpu(), leases, Some(sample), FreeMemory::default())
}

/// Why `gpu-c:1` is refused.
fn refusal(occupancy: &Occupancy<'_>) -> String {
    let words = occupancy.words(&|since| Some(format!("{} s", since.0)));
    super::refusal("gpu-c:1", &words, occupancy.has_holder())
}

#[test]
fn what_is_not_in_use_is_free() {
    assert!(of(None, &idle()).is_free());
    let others =
        Leases { held: vec![Lease { gpu: GpuUuid::from("GPU-2"), ..lease(true) }], ..Leases::default() };
    assert!(of(Some(&others), &idle()).is_free(), "the lease of another GPU");
}

#[test]
fn a_lease_comes_first_and_keeps_its_processes() {
    let leases = Leases { held: vec![lease(true)], ..Leases::default() };
    let sample =
        GpuSample { processes: Reading::Value(vec![process(7, "wang"), process(8, "li")]), ..idle() };
    let taken = of(Some(&leases), &sample);
    assert_eq!(
        refusal(&taken),
        "gpu-c:1 is busy: leased by li (pid 9) for 5 s: wang python train.py (pid 7) and 1 more"
    );
    assert!(!taken.is_own("li"), "another one computes on it");
    assert!(of(Some(&leases), &idle()).is_own("li"));
    let foreign = Leases { held: vec![lease(false)], ..Leases::default() };
    assert!(!of(Some(&foreign), &idle()).is_own("li"));
}

#[test]
fn any_process_takes_it() {
    let sample = GpuSample { processes: Reading::Value(vec![process(7, "li")]), ..idle() };
    assert_eq!(refusal(&of(None, &sample)), "gpu-c:1 is busy: li python train.py (pid 7)");
    assert!(of(None, &sample).is_own("li"));
    let two = GpuSample { processes: Reading::Value(vec![process(7, "li"), process(8, "wang")]), ..idle() };
    assert!(!of(None, &two).is_own("li"), "not only the first one counts");
}

#[test]
fn memory_without_a_visible_process_takes_it() {
    let sample = GpuSample { memory_used: Reading::Value(18 * GIB), util: Reading::Value(32), ..idle() };
    let unseen = of(None, &sample);
    assert_eq!(
        refusal(&unseen),
        "gpu-c:1: 18 of 45 GiB and 32 % in use by a process that is not visible to you, perhaps in a container"
    );
    assert!(!unseen.is_own("li"), "its user is unknown");
    let hidden = GpuSample { processes: Reading::failed("no permission"), ..sample };
    assert!(
        matches!(of(None, &hidden), Occupancy::Unseen { .. }),
        "memory decides where the list can't be read"
    );
}

#[test]
fn a_gpu_with_mig_mode_on_is_not_free() {
    let of = |slices, leases| {
        let gpu = GpuInfo { slices: Some(slices), ..gpu() };
        let sample = idle();
        let occupancy = Occupancy::of(&gpu, leases, Some(&sample), FreeMemory::default());
        (occupancy.is_free(), refusal(&occupancy))
    };
    assert_eq!(of(2, None), (false, "gpu-c:1: MIG, 2 slices, which take the ranks".to_owned()));
    assert!(of(0, None).1.contains("MIG, no slices"));
    let leases = Leases { held: vec![lease(true)], ..Leases::default() };
    assert!(of(2, Some(&leases)).1.contains("leased by li"), "by a run from before it was cut");
}

#[test]
fn how_much_memory_counts_can_be_set() {
    let sample = GpuSample { memory_used: Reading::Value(2 * GIB), ..idle() };
    let free = |limit| Occupancy::of(&gpu(), None, Some(&sample), limit).is_free();
    assert!(free(FreeMemory::Percent(5)), "2 of 45 GiB are less");
    assert!(!free(FreeMemory::Percent(4)));
    assert!(free(FreeMemory::Bytes(2 * GIB)) && !free(FreeMemory::Bytes(2 * GIB - 1)));
}

#[test]
fn what_is_not_known_is_not_free() {
    let why = |sample: &GpuSample| {
        let unknown = of(None, sample);
        assert!(!unknown.is_free(), "{unknown:?}");
        refusal(&unknown)
    };
    let head = "gpu-c:1: it is not known whether it is free: ";
    let list = GpuSample { processes: Reading::failed("no permission"), ..idle() };
    assert_eq!(why(&list), format!("{head}process list: no permission"));
    let no_list = GpuSample { processes: Reading::Unsupported, ..idle() };
    assert_eq!(why(&no_list), format!("{head}process list: the driver does not tell it"));
    let memory = GpuSample { memory_used: Reading::failed("timed out"), ..idle() };
    assert_eq!(why(&memory), format!("{head}memory: timed out"));
    let total = GpuSample { memory_total: Reading::failed("timed out"), ..idle() };
    assert_eq!(why(&total), format!("{head}memory: timed out"));
    let nothing = Occupancy::of(&gpu(), None, None, FreeMemory::default());
    assert!(!nothing.is_free());
    assert_eq!(refusal(&nothing), format!("{head}no values of it have come"));
    let leases = Leases { fault: Some("/run/x belongs to uid 7".to_owned()), ..Leases::default() };
    assert_eq!(refusal(&of(Some(&leases), &idle())), format!("{head}leases: /run/x belongs to uid 7"));
}

#[test]
fn a_gpu_without_memory_of_its_own_is_judged_by_processes_and_utilisation() {
    let shared =
        GpuSample { memory_used: Reading::Unsupported, memory_total: Reading::Unsupported, ..idle() };
    assert!(of(None, &shared).is_free());
    let computing = GpuSample { util: Reading::Value(90), ..shared.clone() };
    assert_eq!(
        refusal(&of(None, &computing)),
        "gpu-c:1: 90 % in use by a process that is not visible to you, perhaps in a container"
    );
    let no_list = GpuSample { processes: Reading::Unsupported, ..shared };
    assert!(matches!(of(None, &no_list), Occupancy::Unknown { .. }));
}

#[test]
fn one_that_has_fallen_off_the_bus_is_not_free_and_what_is_on_it_is_told_first() {
    let idle = idle();
    assert!(of(None, &idle).unless_off_bus(false).is_free());
    let gone = of(None, &idle).unless_off_bus(true);
    assert_eq!(refusal(&gone), "gpu-c:1: it has fallen off the bus");
    assert!(!gone.is_free() && !gone.has_holder() && !gone.is_own("li"));
    let held = Leases { held: vec![lease(true)], ..Leases::default() };
    assert!(of(Some(&held), &idle).unless_off_bus(true).has_holder());
}
