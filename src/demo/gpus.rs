//! What the GPUs of the demo do: who is on them, and how busy, hot and full they are at a moment.

use super::chance::{drift, share};
use super::runs::Held;
use super::signals::Touched;
use crate::domain::gpu::topology::{Affinity, Path, Topology};
use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading, RunOfProcess};
use crate::domain::ids::GpuUuid;
use crate::domain::time::HostTime;

/// Bytes of memory of each GPU: an H200.
const MEMORY: u64 = 141 << 30;
/// What happens to the GPU of a rank that fails: a double-bit ECC error.
pub(super) const XID: u32 = 48;
const POWER_LIMIT_MW: u32 = 700_000;
const GIB: f64 = (1u64 << 30) as f64;

/// Who uses a GPU besides the runs of the demo.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tenant {
    Free,
    /// Trains day and night.
    Trains(&'static str, &'static str),
    /// Answers requests: now more, now less.
    Serves(&'static str, &'static str),
    /// A notebook that was left open.
    Idles(&'static str, &'static str),
}

impl Tenant {
    fn user_and_command(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Free => None,
            Self::Trains(user, command) | Self::Serves(user, command) | Self::Idles(user, command) => {
                Some((user, command))
            }
        }
    }
}

/// Half a host belongs to one person.
fn tenant(host: u32, gpu: u32) -> Tenant {
    if (host, gpu) == (0, 7) {
        return Tenant::Idles("wang", "python -m ipykernel_launcher -f kernel.json");
    }
    // what is signalled here ends: the processes of other users are left alone
    if (host, gpu) == (0, 6) {
        return Tenant::Trains("you", "python train.py --config probe.yaml");
    }
    let half = share(&[1, host.into(), (gpu / 4).into()]);
    match half {
        0.0..0.40 => Tenant::Free,
        0.40..0.62 => Tenant::Trains("li", "python pretrain.py --config 7b.yaml"),
        0.62..0.78 => Tenant::Trains("chen", "python -m torch.distributed.run train_vit.py"),
        0.78..0.92 => Tenant::Serves("svc-llm", "vllm serve --tensor-parallel-size 4"),
        _ if gpu.is_multiple_of(4) => Tenant::Idles("wang", "python -m ipykernel_launcher -f kernel.json"),
        _ => Tenant::Free,
    }
}

/// Whether only the runs of the demo use a GPU.
pub(super) fn is_free(host: u32, gpu: u32) -> bool {
    tenant(host, gpu) == Tenant::Free
}

/// The UUID of a GPU.
pub(super) fn uuid(host: u32, gpu: u32) -> GpuUuid {
    GpuUuid::from(format!("GPU-{host:08x}-de30-4000-8000-{gpu:012x}").as_str())
}

/// What does not change of a GPU.
pub(super) fn info(host: u32, gpu: u32) -> GpuInfo {
    GpuInfo {
        uuid: uuid(host, gpu),
        name: "NVIDIA H200".to_owned(),
        pci: Reading::Value(format!("00000000:{:02X}:00.0", 0x0a + 0x10 * gpu)),
        memory_total: Reading::Value(MEMORY),
        clock_sm_max_mhz: Reading::Value(1980),
        clock_memory_max_mhz: Reading::Value(3201),
        slowdown_celsius: Reading::Value(89),
        shutdown_celsius: Reading::Value(92),
        pcie_gen_max: Reading::Value(5),
        pcie_width_max: Reading::Value(16),
        ecc_enabled: Reading::Value(true),
        ..GpuInfo::unknown(gpu)
    }
}

/// How the GPUs of each host are connected: all by NVLink through switches, half of them near each processor.
pub(super) fn topology(gpus: u32) -> Topology {
    let path = |a: u32, b: u32| if a == b { Path::Own } else { Path::NvLink(18) };
    let near = |gpu: u32| {
        let far = gpu >= gpus.div_ceil(2);
        let cpus = if far { "48-95,144-191" } else { "0-47,96-143" };
        Affinity { cpus: Some(cpus.to_owned()), numa_node: Some(u32::from(far)) }
    };
    Topology {
        paths: (0..gpus).map(|a| (0..gpus).map(|b| path(a, b)).collect()).collect(),
        affinity: (0..gpus).map(near).collect(),
    }
}

/// A moment of the host's clock, and when the demo began by it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: HostTime,
    pub(super) began: HostTime,
}

/// The process of a GPU's tenant.
fn pid_of_tenant(seed: u64) -> u32 {
    20_000 + (share(&[2, seed]) * 40_000.0) as u32
}

/// For how long a tenant's process had been running when the demo began, seconds.
fn age_of_tenant(seed: u64) -> u64 {
    600 + (share(&[4, seed]) * 200_000.0) as u64
}

/// The GPU of a host at a moment; `held` is the run of the demo on it, and how busy that keeps it, `errors` what its ranks have met.
pub(super) fn sample(
    (host, gpu): (u32, u32),
    moment: Moment,
    (held, errors): (Option<&Held>, u64),
    touched: &Touched,
) -> GpuSample {
    let seconds = moment.now.0 as f64 / 1e6;
    let seed = u64::from(host) << 8 | u64::from(gpu);
    let is_free = held.is_some() || !touched.runs(pid_of_tenant(seed));
    let user = if is_free { Tenant::Free } else { tenant(host, gpu) };
    let is_halted = held.is_none() && touched.is_halted(pid_of_tenant(seed));
    let load = match (held, user) {
        (Some(held), _) => held.busy + 0.02 * drift(seed, seconds, 3.0),
        (None, Tenant::Trains(..)) => 0.96 + 0.04 * drift(seed, seconds, 4.0),
        (None, Tenant::Serves(..)) => {
            0.45 + 0.4 * drift(seed >> 2, seconds, 20.0) + 0.1 * drift(seed, seconds, 2.0)
        }
        (None, Tenant::Free | Tenant::Idles(..)) => 0.0,
    };
    let busy = if is_halted { 0.0 } else { load.clamp(0.0, 1.0) };
    // a kernel that waits is busy on few SMs
    let spins = held.is_some_and(|held| held.spins);
    let work = if spins { 0.14 * busy } else { busy };
    let gigabytes = match (held, user) {
        (Some(_), _) => 38.0,
        (None, Tenant::Trains(..)) => 131.0 + drift(seed, seconds, 30.0),
        (None, Tenant::Serves(..)) => 118.0,
        (None, Tenant::Idles(..)) => 96.0,
        (None, Tenant::Free) => 0.4,
    };
    let memory = (gigabytes * GIB) as u64;
    // one GPU of the cluster runs hot
    let overheats = seed == 1 && busy > 0.5;
    let warm = drift(seed ^ 7, seconds, 40.0);
    let degrees = if overheats { 86.0 + 2.0 * warm } else { 33.0 + 36.0 * work + 3.0 * warm };
    let watts = 76.0 + 600.0 * work + 14.0 * warm * work;
    let power_mw = ((watts * 1000.0) as u32).min(POWER_LIMIT_MW);
    let throttle = match (overheats, power_mw > 680_000) {
        (true, _) => vec!["sw thermal slowdown".to_owned()],
        (false, true) => vec!["sw power cap".to_owned()],
        (false, false) => Vec::new(),
    };
    GpuSample {
        util: Reading::Value((100.0 * busy).round() as u32),
        memory_used: Reading::Value(memory),
        memory_total: Reading::Value(MEMORY),
        temperature: Reading::Value(degrees as u32),
        power_mw: Reading::Value(power_mw),
        power_limit_mw: Reading::Value(POWER_LIMIT_MW),
        clock_sm_mhz: Reading::Value(if busy > 0.0 { 1980 } else { 345 }),
        clock_memory_mhz: Reading::Value(3201),
        pstate: Reading::Value(0),
        throttle: Reading::Value(throttle),
        processes: Reading::Value(processes(seed, (memory, busy), moment, (user, held))),
        memory_util_percent: Reading::Value((55.0 * work) as u32),
        encoder_percent: Reading::Value(0),
        decoder_percent: Reading::Value(0),
        sm_active_percent: Reading::Value((88.0 * work) as u32),
        tensor_active_percent: Reading::Value((41.0 * work) as u32),
        dram_active_percent: Reading::Value((52.0 * work) as u32),
        pcie_gen: Reading::Value(if busy > 0.0 { 5 } else { 1 }),
        pcie_width: Reading::Value(16),
        pcie_rx_bytes_per_s: Reading::Value((9e9 * busy) as u64),
        pcie_tx_bytes_per_s: Reading::Value((2e9 * busy) as u64),
        nvlink_rx_bytes_per_s: Reading::Value((140e9 * busy) as u64),
        nvlink_tx_bytes_per_s: Reading::Value((140e9 * busy) as u64),
        nvlink_count: Reading::Value(18),
        nvlink_active: Reading::Value(18),
        nvlink_errors: Reading::Value(0),
        // one GPU has met an error that it could not correct before
        ecc_corrected: Reading::Value(u64::from(seed == 0x105)),
        ecc_uncorrected: Reading::Value(u64::from(seed == 0x105) + errors),
        row_remap_pending: Reading::Value(seed == 0x105),
        row_remap_failed: Reading::Value(false),
        energy_mj: Reading::Value((seconds * 350_000.0) as u64),
        persistence: Reading::Value(true),
        mig: Reading::Value(false),
        ..GpuSample::unknown(gpu)
    }
}

fn processes(
    seed: u64,
    (memory, busy): (u64, f64),
    moment: Moment,
    (tenant, held): (Tenant, Option<&Held>),
) -> Vec<GpuProcess> {
    let since = |start: HostTime| moment.now.0.saturating_sub(start.0) / 1_000_000;
    let process = |pid: u32, user: &str, command: &str, run: Option<RunOfProcess>| GpuProcess {
        user: Reading::Value(user.to_owned()),
        command: Reading::Value(command.to_owned()),
        memory: Reading::Value(memory),
        sm_percent: Reading::Value((93.0 * busy) as u32),
        run,
        ..GpuProcess::unknown(pid)
    };
    if let Some(held) = held {
        let run = RunOfProcess { id: held.run.clone(), rank: Some(held.rank) };
        return vec![GpuProcess {
            start_ticks: Reading::Value(held.start.0 / 10_000),
            age_s: Reading::Value(since(held.start)),
            ..process(held.pid, "you", &held.command, Some(run))
        }];
    }
    let age = age_of_tenant(seed);
    let told = |(user, command)| GpuProcess {
        // the notebooks run in a container
        container: matches!(tenant, Tenant::Idles(..)).then(|| format!("{:012x}", 0x59c3_1390_8f42 ^ seed)),
        start_ticks: Reading::Value(10_000_000 + seed),
        age_s: Reading::Value(age + since(moment.began)),
        ..process(pid_of_tenant(seed), user, command, None)
    };
    tenant.user_and_command().map(told).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_may_be_signalled_which_is_no_rank_of_a_run() {
        let moment = Moment { now: HostTime(1_000_000_000), began: HostTime(900_000_000) };
        let gpus = (0..8).map(|gpu| sample((0, gpu), moment, (None, 0), &Touched::default()));
        let own = gpus.filter(|gpu| {
            let processes = gpu.processes.value().unwrap();
            processes.iter().any(|process| process.user.value().is_some_and(|user| user == "you"))
        });
        assert_eq!(own.count(), 1);
    }

    #[test]
    fn an_error_that_a_rank_has_met_is_counted() {
        let moment = Moment { now: HostTime(1_000_000_000), began: HostTime(900_000_000) };
        let counted = |errors| sample((2, 1), moment, (None, errors), &Touched::default()).ecc_uncorrected;
        assert_eq!((counted(0), counted(1)), (Reading::Value(0), Reading::Value(1)));
    }

    #[test]
    fn a_gpu_without_a_tenant_is_free_and_each_tenant_has_a_process() {
        let mut free = 0;
        for (host, gpu) in (0..64).flat_map(|host| (0..8).map(move |gpu| (host, gpu))) {
            let moment = Moment { now: HostTime(1_000_000_000), began: HostTime(900_000_000) };
            let sample = sample((host, gpu), moment, (None, 0), &Touched::default());
            let processes = sample.processes.value().unwrap();
            assert_eq!(processes.is_empty(), tenant(host, gpu) == Tenant::Free);
            free += usize::from(processes.is_empty());
            assert!(sample.power_mw.value().unwrap() <= &POWER_LIMIT_MW);
            for process in processes {
                assert!(process.age_s.value().unwrap() >= &700 && process.key().is_some());
            }
        }
        assert!((150..350).contains(&free), "{free} of 512");
    }
}
