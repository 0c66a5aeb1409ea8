use super::*;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::fixtures::host_info;
use crate::domain::gpu::GpuInfo;
use crate::domain::host::HostInfo;
use crate::domain::time::Stamp;
use crate::launcher::fixtures::{cpu_host, gpu_host, request};
use std::sync::Arc;

fn config(name: &str) -> HostConfig {
    HostConfig { id: HostId::from(name), ..HostConfig::this_machine() }
}

fn info(cpus: u32) -> HostInfo {
    HostInfo { cpus, ..host_info() }
}

fn tell(world: &mut World, host: &str, event: Event) {
    world.apply(&Envelope { seq: 0, at: Stamp(0), origin: Origin::Host(HostId::from(host)), event });
}

fn up(world: &mut World, host: &str, cpus: u32) {
    tell(world, host, Event::LinkChanged { state: LinkState::Up });
    tell(world, host, Event::HostDescribed { info: Arc::new(info(cpus)) });
}

fn down(world: &mut World, host: &str) {
    let state = LinkState::Down { reason: "connection refused".into(), retry_at: None };
    tell(world, host, Event::LinkChanged { state });
}

fn refused(world: &mut World, host: &str) {
    let state =
        LinkState::Refused { reason: format!("{host}: unknown host key"), kind: RefusalKind::HostKey };
    tell(world, host, Event::LinkChanged { state });
}

/// `ready` with the slots of each host, `wait` for whom, or the exit code and the reason.
fn result(place: PlacementSpec, world: &World) -> String {
    result_on(&[config("a"), config("b"), config("c")], place, world)
}

fn result_on(hosts: &[HostConfig], place: PlacementSpec, world: &World) -> String {
    result_at(Stamp(0), hosts, place, world)
}

fn result_at(now: Stamp, hosts: &[HostConfig], place: PlacementSpec, world: &World) -> String {
    match gather(
        &request("true", place),
        &ClusterView {
            hosts,
            world,
            here: "/",
            ages: true,
            hides_gpus: false,
            acknowledged: &BTreeMap::new(),
            now,
        },
    ) {
        Gathered::Ready(facts) => {
            let facts: Vec<String> = facts.iter().map(|f| format!("{}{}", f.id, f.slots.len())).collect();
            format!("ready {}", facts.join(" "))
        }
        Gathered::Wait(hosts) => format!("wait {hosts:?}"),
        Gathered::Unsatisfiable(error) => format!("{:?} {}", error.fault, error.reason),
    }
}

fn on(hosts: &[&str]) -> PlacementSpec {
    PlacementSpec::Hosts { hosts: hosts.iter().map(|host| (HostId::from(*host), 1)).collect(), np: None }
}

#[test]
fn a_count_takes_hosts_in_file_order_and_waits_for_none_behind_them() {
    let mut world = World::default();
    assert_eq!(
        result(PlacementSpec::Count(Some(2)), &world),
        r#"wait [HostId("a"), HostId("b"), HostId("c")]"#
    );
    up(&mut world, "a", 2);
    assert_eq!(result(PlacementSpec::Count(Some(2)), &world), "ready a2 b0 c0");
    assert_eq!(result(PlacementSpec::Count(Some(3)), &world), r#"wait [HostId("b"), HostId("c")]"#);
    down(&mut world, "b");
    up(&mut world, "c", 2);
    assert_eq!(result(PlacementSpec::Count(Some(3)), &world), "ready a2 b0 c2");
    assert_eq!(
        result(PlacementSpec::Count(Some(5)), &world),
        "Unreachable -np 5 on the 4 free slots of the hosts that answer; b: connection refused"
    );
}

#[test]
fn before_ranks_are_split_each_host_that_may_hold_them_all_is_waited_for() {
    let mut world = World::default();
    up(&mut world, "a", 1);
    up(&mut world, "b", 1);
    let two = || PlacementSpec::Count(Some(2));
    assert_eq!(result(two(), &world), r#"wait [HostId("c")]"#);
    let with_slots = |count| {
        let last = HostConfig { slots: SlotCount::Cpus(count), ..config("c") };
        result_on(&[config("a"), config("b"), last], two(), &world)
    };
    assert_eq!(with_slots(1), "ready a1 b1 c0", "it is known to hold fewer");
    assert_eq!(with_slots(2), r#"wait [HostId("c")]"#);
    up(&mut world, "c", 4);
    assert_eq!(result(two(), &world), "ready a1 b1 c4");
    down(&mut world, "c");
    assert_eq!(result(two(), &world), "ready a1 b1 c0");
    tell(&mut world, "c", Event::LinkChanged { state: LinkState::Connecting { to: "c".into() } });
    assert_eq!(result(two(), &world), "ready a1 b1 c0", "it is tried again");
}

#[test]
fn cpu_slots_for_want_of_gpus_are_not_taken_before_each_host_that_may_have_some_has_answered() {
    let settled = |np, facts: &[HostFacts], next| is_settled((np, 1), false, facts, next);
    let (auto, cpus) = (Some(SlotCount::Auto), Some(SlotCount::Cpus(1)));
    let few = [gpu_host("g", 1), cpu_host("c", 4)];
    assert!(!settled(3, &few, auto), "with its GPUs there may be enough");
    assert!(settled(3, &few, cpus) && settled(3, &few, None) && settled(1, &few, auto));
    assert!(settled(3, &[cpu_host("c", 4), gpu_host("g", 1)], auto), "the first host has enough");
    assert!(!settled(2, &[cpu_host("c", 1), gpu_host("g", 2)], cpus), "with its slots there are enough");
    let mut broken = cpu_host("broken", 4);
    broken.driver_fails = true;
    assert!(!settled(2, std::slice::from_ref(&broken), auto), "beside GPUs it gets no ranks");
    assert!(settled(2, &[broken], cpus));
}

#[test]
fn too_few_hosts_with_room_are_those_that_are_not_up() {
    let mut world = World::default();
    up(&mut world, "a", 2);
    up(&mut world, "b", 2);
    down(&mut world, "c");
    let nodes = |nodes, each| PlacementSpec::Nodes { nodes, each: Some(each) };
    assert_eq!(result(nodes(2, 2), &world), "ready a2 b2 c0");
    assert_eq!(
        result(nodes(3, 1), &world),
        "Unreachable --nnodes 3: 2 hosts that answer have room; c: connection refused"
    );
    assert_eq!(result(nodes(4, 1), &world), "ready a2 b2 c0", "c would not be enough");
    assert_eq!(result(nodes(2, 3), &world), "ready a2 b2 c0", "nor here");
}

#[test]
fn a_named_host_must_be_up_and_the_others_do_not_matter() {
    let mut world = World::default();
    up(&mut world, "a", 2);
    assert_eq!(result(on(&["a"]), &world), "ready a2 b0 c0");
    assert_eq!(result(on(&["a", "b"]), &world), r#"wait [HostId("b")]"#);
    refused(&mut world, "b");
    assert_eq!(result(on(&["a", "b"]), &world), "Permission b: unknown host key", "the host once");
    assert_eq!(result(on(&["a"]), &world), "ready a2 b0 c0");
}

#[test]
fn all_named_hosts_that_are_down_are_told_at_once() {
    let mut world = World::default();
    down(&mut world, "a");
    let all = || on(&["a", "b", "c"]);
    assert_eq!(result(all(), &world), r#"wait [HostId("b"), HostId("c")]"#, "they may be down, too");
    up(&mut world, "c", 2);
    down(&mut world, "b");
    let both = "Unreachable a: connection refused; b: connection refused";
    assert_eq!(result(all(), &world), both);
    // one that is tried again is down all the same
    tell(&mut world, "a", Event::LinkChanged { state: LinkState::Connecting { to: "a".into() } });
    assert_eq!(result(all(), &world), both);
    assert_eq!(result(on(&["c"]), &world), "ready a0 b0 c2");
}

#[test]
fn a_host_that_is_up_and_never_tells_of_its_gpus_is_not_waited_for_without_end() {
    let mut world = World::default();
    let gpus = vec![GpuInfo { uuid: "GPU-1".into(), ..GpuInfo::unknown(0) }];
    tell(&mut world, "a", Event::LinkChanged { state: LinkState::Up });
    tell(&mut world, "a", Event::HostDescribed { info: Arc::new(HostInfo { gpus, ..info(2) }) });
    up(&mut world, "b", 2);
    let hosts = [config("a"), config("b")];
    let at = |seconds: i64, place| result_at(Stamp(seconds * 1_000_000), &hosts, place, &world);
    assert_eq!(at(59, on(&["a"])), r#"wait [HostId("a")]"#);
    let told = at(60, on(&["a"]));
    let words = "Unreachable a: it is connected, and for 01:00 it has not told how its GPUs are and who holds them: look whether \
                 nvidia-smi answers there";
    assert!(told.starts_with(words), "{told}");
    assert_eq!(at(60, on(&["b"])), "ready a0 b2");
    let unnamed = at(60, PlacementSpec::Count(Some(2)));
    assert_eq!(unnamed, "ready a0 b2", "where it is not named it is passed over");
    // who waits for GPUs is not told another text each second
    let (named, now) = (request("true", on(&["a"])), Stamp(300_000_000));
    let view = ClusterView {
        hosts: &hosts,
        world: &world,
        here: "/",
        ages: false,
        hides_gpus: false,
        acknowledged: &BTreeMap::new(),
        now,
    };
    let Gathered::Unsatisfiable(error) = gather(&named, &view) else { panic!("it is waited for") };
    assert!(error.reason.contains("for 01:00 it has not told"), "{}", error.reason);
}
