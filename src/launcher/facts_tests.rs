use super::*;
use crate::domain::gpu::{GpuInfo, GpuProcess};
use crate::domain::ids::GpuUuid;

fn info(gpus: u32) -> HostInfo {
    let gpu = |index| GpuInfo {
        index,
        uuid: GpuUuid::from(format!("GPU-{index}")),
        name: "NVIDIA H200".to_owned(),
        pci: Reading::Unsupported,
        memory_total: Reading::Value(141 << 30),
    };
    HostInfo {
        hostname: "node1".to_owned(),
        kernel: "6.1".to_owned(),
        arch: "x86_64".to_owned(),
        user: "li".to_owned(),
        cpus: 4,
        memory_total: Reading::Value(1 << 30),
        boot_id: "b".to_owned(),
        agent_version: "0.1.0".to_owned(),
        agent_build: None,
        banner: None,
        addresses: Vec::new(),
        ssh_server_address: Some("::ffff:10.0.0.11".parse().unwrap()),
        ssh_client_address: None,
        gpus: (0..gpus).map(gpu).collect(),
        gpu_absence: None,
        driver: Reading::Unsupported,
        cuda_driver: Reading::Unsupported,
        nccl: Reading::Unsupported,
    }
}

fn sample(processes: Vec<Reading<Vec<GpuProcess>>>) -> HostSample {
    let gpu = |(index, processes)| GpuSample {
        index,
        util: Reading::Unsupported,
        memory_used: Reading::Unsupported,
        memory_total: Reading::Unsupported,
        temperature: Reading::Unsupported,
        power_mw: Reading::Unsupported,
        power_limit_mw: Reading::Unsupported,
        clock_sm_mhz: Reading::Unsupported,
        clock_memory_mhz: Reading::Unsupported,
        pstate: Reading::Unsupported,
        throttle: Reading::Unsupported,
        processes,
    };
    HostSample {
        cpu_percent: Reading::Unsupported,
        memory_used: Reading::Unsupported,
        load: Reading::Unsupported,
        net_rx: Reading::Unsupported,
        net_tx: Reading::Unsupported,
        gpus: (0..).zip(processes).map(gpu).collect(),
    }
}

#[test]
fn slots_are_gpus_then_cpus_then_what_was_asked_for() {
    assert!(matches!(slots(SlotCount::Auto, &info(2))[..], [Slot::Gpu { .. }, Slot::Gpu { index: 1, .. }]));
    assert_eq!(slots(SlotCount::Auto, &info(0)).len(), 4);
    assert_eq!(slots(SlotCount::Cpus(3), &info(2)), cpu_slots(3));
}

#[test]
fn cpu_slots_of_a_gpu_host_see_no_gpu() {
    let config = HostConfig { slots: SlotCount::Cpus(2), ..HostConfig::this_machine() };
    let facts = HostFacts::present(&config, &info(1), None, "/here");
    assert_eq!(facts.env.get("CUDA_VISIBLE_DEVICES").map(String::as_str), Some(""));
    assert!(HostFacts::present(&config, &info(0), None, "/here").env.is_empty());
}

#[test]
fn who_computes_is_busy_and_who_is_unknown_is_free() {
    let process = GpuProcess {
        pid: 7,
        user: Reading::Value("li".to_owned()),
        command: Reading::Value("python train.py".to_owned()),
        memory: Reading::Unsupported,
    };
    let sample = sample(vec![
        Reading::Value(vec![process]),
        Reading::Value(Vec::new()),
        Reading::failed("no permission"),
    ]);
    let config = HostConfig::this_machine();
    let facts = HostFacts::present(&config, &info(3), Some(&sample), "/here");
    assert_eq!(facts.busy, BTreeMap::from([(0, "li python train.py (pid 7)".to_owned())]));
    let on_cpus = HostConfig { slots: SlotCount::Cpus(3), ..config };
    assert!(HostFacts::present(&on_cpus, &info(3), Some(&sample), "/here").busy.is_empty());
}

#[test]
fn this_machine_starts_ranks_where_the_user_stands() {
    let config = HostConfig::this_machine();
    assert_eq!(HostFacts::present(&config, &info(0), None, "/here").workdir.as_deref(), Some("/here"));
    let named = HostConfig { workdir: Some("/srv".to_owned()), ..config };
    assert_eq!(HostFacts::present(&named, &info(0), None, "/here").workdir.as_deref(), Some("/srv"));
}

#[test]
fn mapped_addresses_are_plain_ones() {
    let facts = HostFacts::present(&HostConfig::this_machine(), &info(0), None, "/here");
    assert_eq!(facts.ssh_server_address, Some("10.0.0.11".parse().unwrap()));
}
