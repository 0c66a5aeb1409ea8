//! A world with every sort of host, for the tests of this module.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Address, HostConfig};
use crate::domain::clock_fit::ClockSample;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use crate::domain::host::{
    GpuAbsence, GpuAbsenceReason, HostInfo, HostSample, InterfaceAddress, LinkState, RefusalKind,
};
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::lease::{Lease, Leases, Ticket};
use crate::domain::time::{HostTime, Stamp};
use crate::domain::world::World;

/// When the tests look at the world: 2026-11-21 14:32:07.12 UTC.
pub(super) const NOW: Stamp = Stamp(1_795_271_527_120_000);

pub(super) fn hosts() -> Vec<HostConfig> {
    let names = ["gpu-a", "cpu", "gpu-c", "gpu-d", "gpu-e", "new"];
    let address = |name: &str| Address::Ssh(format!("{name}.example.org"));
    names
        .map(|name| HostConfig {
            id: HostId::from(name),
            address: address(name),
            ..HostConfig::this_machine()
        })
        .into()
}

pub(super) fn world() -> World {
    let mut world = World::default();
    let mut seq = 0;
    let mut tell = |host: &str, ago_us: i64, event: Event| {
        let origin = Origin::Host(HostId::from(host));
        world.apply(&Envelope { seq, at: NOW.plus_micros(-ago_us), origin, event });
        seq += 1;
    };
    for host in ["gpu-a", "cpu"] {
        tell(host, 9_000_000, Event::LinkChanged { state: LinkState::Up });
    }
    tell("gpu-a", 8_000_000, Event::HostDescribed { info: Arc::new(gpu_info()) });
    let (t0, t) = (NOW.plus_micros(-5_000), HostTime(500));
    tell(
        "gpu-a",
        2_000,
        Event::ClockSampled {
            sample: ClockSample::from_ping(t0, t, t, Duration::from_micros(1_200)).unwrap(),
        },
    );
    let held = Lease {
        gpu: GpuUuid::from("GPU-3f2a-1"),
        user: Some("li".to_owned()),
        own: false,
        pid: Some(40_213),
        command: None,
        run: Some(RunId::new(1_795_000_000_000, 7)),
        name: Some("mnist".to_owned()),
        rank: Some(Rank(0)),
        since: Some(HostTime(500)),
    };
    let waits = Ticket {
        id: RunId::new(1_795_000_000_000, 8),
        user: "wang".to_owned(),
        own: false,
        name: "big".to_owned(),
        gpus: vec![GpuUuid::from("GPU-3f2a-1")],
    };
    let leases = Leases { held: vec![held], queue: vec![waits], ..Leases::default() };
    tell("gpu-a", 500_000, Event::LeasesTold { leases });
    tell("gpu-a", 400_000, Event::HostSampled { sample: Arc::new(gpu_sample()) });
    tell("cpu", 8_000_000, Event::HostDescribed { info: Arc::new(cpu_info()) });
    let down =
        LinkState::Down { reason: "connection refused by 10.0.0.13:22".to_owned(), retry_at: Some(NOW) };
    tell("gpu-c", 700_000_000, Event::HostSampled { sample: Arc::new(cpu_sample()) });
    tell("gpu-c", 600_000_000, Event::LinkChanged { state: down });
    let reason = "host key of gpu-d is unknown: \u{1b}[31m run hvtui hosts trust gpu-d".to_owned();
    let refused = LinkState::Refused { reason, kind: RefusalKind::HostKey };
    tell("gpu-d", 100_000, Event::LinkChanged { state: refused });
    let connecting = LinkState::Connecting { to: "ml@gpu-e.example.org:22".to_owned() };
    tell("gpu-e", 100_000, Event::LinkChanged { state: connecting });
    world
}

fn cpu_info() -> HostInfo {
    HostInfo {
        hostname: "node1".to_owned(),
        kernel: "6.1.0-18-amd64".to_owned(),
        arch: "x86_64".to_owned(),
        user: "ml".to_owned(),
        cpus: 64,
        memory_total: Reading::Value(512 << 30),
        boot_id: "5d2c".to_owned(),
        agent_version: "0.1.0".to_owned(),
        agent_build: None,
        banner: None,
        login: None,
        addresses: vec![InterfaceAddress { interface: "eth0".to_owned(), address: [10, 0, 0, 12].into() }],
        ssh_server_address: Some([10, 0, 0, 12].into()),
        ssh_client_address: Some([10, 0, 0, 1].into()),
        gpus: Vec::new(),
        gpu_absence: Some(GpuAbsence {
            reason: GpuAbsenceReason::DriverMismatch,
            detail: "driver 550.54 loaded, library 550.90 installed".to_owned(),
        }),
        driver: Reading::Unsupported,
        cuda_driver: Reading::Unsupported,
        nccl: Reading::Unsupported,
        topology: None,
    }
}

fn gpu_info() -> HostInfo {
    let gpu = |index: u32| GpuInfo {
        uuid: GpuUuid::from(format!("GPU-3f2a-{index}")),
        name: "NVIDIA H200".to_owned(),
        pci: Reading::Value(format!("00000000:0{index}:00.0")),
        memory_total: Reading::Value(141 << 30),
        ..GpuInfo::unknown(index)
    };
    HostInfo {
        gpus: (0..4).map(gpu).collect(),
        gpu_absence: None,
        driver: Reading::Value("550.54.15".to_owned()),
        ..cpu_info()
    }
}

fn cpu_sample() -> HostSample {
    HostSample {
        cpu_percent: Reading::Value(12.4),
        memory_used: Reading::Value(34 << 30),
        load: Reading::Value([3.2, 2.0, 1.0]),
        net_rx: Reading::Value(1_000),
        net_tx: Reading::Value(2_000),
        gpus: Vec::new(),
    }
}

/// Four GPUs: busy, free, a MIG parent that has no utilisation, and one that is lost; of the last but one no
/// sample tells anything more.
fn gpu_sample() -> HostSample {
    let process = GpuProcess {
        user: Reading::Value("li".to_owned()),
        command: Reading::Value("python train.py --title \u{1b}]0;owned\u{7}".to_owned()),
        memory: Reading::Value(120 << 30),
        sm_percent: Reading::Value(96),
        start_ticks: Reading::Value(884_213),
        age_s: Reading::Value(8_040),
        ..GpuProcess::unknown(4242)
    };
    let free = GpuSample {
        util: Reading::Value(0),
        memory_used: Reading::Value(400 << 20),
        memory_total: Reading::Value(141 << 30),
        temperature: Reading::Value(34),
        power_mw: Reading::Value(78_200),
        power_limit_mw: Reading::Value(700_000),
        clock_sm_mhz: Reading::Value(345),
        clock_memory_mhz: Reading::Value(3201),
        pstate: Reading::Value(8),
        throttle: Reading::Value(Vec::new()),
        processes: Reading::Value(Vec::new()),
        ..GpuSample::unknown(1)
    };
    let busy = GpuSample {
        index: 0,
        util: Reading::Value(99),
        memory_used: Reading::Value(131 << 30),
        temperature: Reading::Value(71),
        power_mw: Reading::Value(690_000),
        clock_sm_mhz: Reading::Value(1980),
        pstate: Reading::Value(0),
        throttle: Reading::Value(vec!["sw power cap".to_owned()]),
        processes: Reading::Value(vec![process]),
        ..free.clone()
    };
    let mig = GpuSample {
        index: 2,
        util: Reading::Unsupported,
        power_limit_mw: Reading::Unsupported,
        processes: Reading::Unsupported,
        ..free.clone()
    };
    let lost = GpuSample::failed(3, "GPU is lost");
    HostSample { gpus: vec![busy, free, mig, lost], ..cpu_sample() }
}
