//! The plainest values of types with many fields, for tests everywhere: a test writes down the fields that it is about.

use std::collections::BTreeMap;

use super::gpu::Reading;
use super::host::{HostInfo, HostSample};
use super::ids::{HostId, Rank, RunId};
use super::lease::LeasePlan;
use super::log::{LogLine, Stream};
use super::options::{PythonHooks, RunOptions};
use super::run::{HostRun, JobKind, Placement, RankExit, RankSpec, RunSpec, RunStage, Slot, Spool};
use super::run_status::HostRunStatus;
use super::time::{HostTime, Stamp};
use super::timing::{Spans, StepTiming};

/// What a host without GPUs says of itself.
pub(crate) fn host_info() -> HostInfo {
    HostInfo {
        hostname: "a".to_owned(),
        kernel: "6.1".to_owned(),
        arch: "x86_64".to_owned(),
        user: "li".to_owned(),
        cpus: 4,
        memory_total: Reading::Unsupported,
        boot_id: "b".to_owned(),
        agent_version: "0.1.0".to_owned(),
        agent_build: None,
        banner: None,
        login: None,
        addresses: Vec::new(),
        ssh_server_address: None,
        ssh_client_address: None,
        gpus: Vec::new(),
        gpu_absence: None,
        driver: Reading::Unsupported,
        cuda_driver: Reading::Unsupported,
        nccl: Reading::Unsupported,
        topology: None,
    }
}

/// That of a host that can measure nothing and has no GPU.
pub(crate) fn host_sample() -> HostSample {
    HostSample {
        cpu_percent: Reading::Unsupported,
        memory_used: Reading::Unsupported,
        load: Reading::Unsupported,
        net_rx: Reading::Unsupported,
        net_tx: Reading::Unsupported,
        gpus: Vec::new(),
    }
}

/// A rank on the slot of a CPU that has its number on the host.
pub(crate) fn placement(rank: u32, host: impl Into<HostId>, local_rank: u32) -> Placement {
    let slot = Slot::Cpu { index: local_rank };
    Placement { rank: Rank(rank), host: host.into(), local_rank, slot, more: Vec::new() }
}

/// A run of `true`.
pub(crate) fn run_spec(placements: Vec<Placement>) -> RunSpec {
    RunSpec {
        id: RunId::new(1, 1),
        name: "test".to_owned(),
        kind: JobKind::Plain,
        command: vec!["true".to_owned()],
        env: BTreeMap::new(),
        workdir: None,
        placements,
        created: Stamp(0),
        options: RunOptions::default(),
        code: None,
    }
}

/// The share that host `a` has of a run.
pub(crate) fn host_run(ranks: Vec<RankSpec>) -> HostRun {
    HostRun {
        run: RunId::new(1, 1),
        host: HostId::from("a"),
        name: "test".to_owned(),
        ranks,
        grace_ms: 1,
        max_silence_ms: None,
        python_hooks: PythonHooks::Off,
        traceable: false,
        run_spec: None,
        leases: LeasePlan::default(),
        spool: Spool::default(),
        ports: 1,
        rendezvous: None,
        engine: None,
        attempt: 0,
    }
}

/// A rank with nothing to start.
pub(crate) fn rank_spec(rank: u32) -> RankSpec {
    RankSpec {
        rank: Rank(rank),
        argv: Vec::new(),
        env: BTreeMap::new(),
        defaults: BTreeMap::new(),
        cwd: None,
    }
}

/// The end of a rank with this code, which its host's clock does not tell.
pub(crate) fn rank_exit(code: i32) -> RankExit {
    RankExit { code: Some(code), signal: None, t: HostTime(0), error: None, stopped: false, cause: None }
}

/// A line of standard error.
pub(crate) fn log_line(rank: u32, text: impl Into<String>) -> LogLine {
    LogLine { rank: Rank(rank), stream: Stream::Stderr, offset: 0, text: text.into(), elided: 0, t: None }
}

/// What host `a` tells of its share of a run that has begun.
pub(crate) fn host_run_status(live: bool) -> HostRunStatus {
    HostRunStatus {
        run: RunId::new(1, 1),
        host: HostId::from("a"),
        name: "test".to_owned(),
        ranks: Vec::new(),
        stage: RunStage::Training,
        supervised: live,
        live,
        stop: None,
        started: Vec::new(),
        exits: BTreeMap::new(),
        spec: None,
        quiet_s: None,
    }
}

/// A step without phases.
pub(crate) fn step_timing(step: u64, dur_us: u32) -> StepTiming {
    let (start, spans) = (HostTime(0), Spans::default());
    StepTiming { step, start, dur_us, loss: None, samples: 0, spans, hidden_us: 0 }
}
