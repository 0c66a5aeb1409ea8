//! The host itself: what it is, and how busy its CPUs, memory and network are.
//! Knows nothing of GPUs. Reads files; understanding them is `procfs`' work.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use super::addresses::{interface_addresses, parse_ssh_connection};
use super::procfs::{self, CpuTicks, ProcError, Traffic};
use crate::domain::gpu::Reading;
use crate::domain::host::InterfaceAddress;
use crate::domain::time::HostTime;
use crate::procs::identity::boot_id;
use crate::procs::status::user_name;

/// The facts of a host that have nothing to do with GPUs; see [`crate::domain::host::HostInfo`].
#[derive(Debug, Clone)]
pub(super) struct HostFacts {
    pub(super) hostname: String,
    pub(super) kernel: String,
    pub(super) arch: String,
    pub(super) user: String,
    pub(super) cpus: u32,
    pub(super) memory_total: Reading<u64>,
    pub(super) boot_id: String,
    pub(super) addresses: Vec<InterfaceAddress>,
    pub(super) ssh_client_address: Option<IpAddr>,
    pub(super) ssh_server_address: Option<IpAddr>,
}

impl HostFacts {
    /// Asks the kernel. `ssh_connection` is the variable of that name, where there is one.
    pub(super) fn read(ssh_connection: Option<&str>) -> Self {
        let uname = rustix::system::uname();
        let (ssh_client_address, ssh_server_address) =
            ssh_connection.map_or((None, None), parse_ssh_connection);
        Self {
            hostname: uname.nodename().to_string_lossy().into_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            arch: uname.machine().to_string_lossy().into_owned(),
            user: user_name(rustix::process::geteuid().as_raw()),
            // Honours the affinity mask and the CPU quota of the cgroup.
            cpus: std::thread::available_parallelism()
                .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
            memory_total: reading(read("/proc/meminfo", procfs::parse_meminfo)).map(|memory| memory.total),
            boot_id: boot(),
            addresses: interface_addresses(),
            ssh_client_address,
            ssh_server_address,
        }
    }
}

/// One reading of the host's live values; see [`crate::domain::host::HostSample`].
#[derive(Debug, Clone)]
pub(super) struct HostLive {
    pub(super) cpu_percent: Reading<f32>,
    pub(super) memory_used: Reading<u64>,
    pub(super) load: Reading<[f32; 3]>,
    pub(super) net_rx: Reading<u64>,
    pub(super) net_tx: Reading<u64>,
}

/// What the kernel had counted at one moment.
#[derive(Debug, Clone)]
struct Counters {
    at: HostTime,
    cpu: Result<CpuTicks, String>,
    net: Result<BTreeMap<String, Traffic>, String>,
}

/// Turns the kernel's counters into rates: keeps those of the last reading.
#[derive(Debug)]
pub(super) struct HostMeter {
    last: Counters,
}

/// The kernel's files that tell what a host does now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts<'a> {
    pub(super) stat: &'a str,
    pub(super) meminfo: &'a str,
    pub(super) loadavg: &'a str,
    pub(super) net_dev: &'a str,
}

impl HostMeter {
    /// Starts counting now, by this clock.
    pub(super) fn start(clock: impl Fn() -> HostTime) -> Self {
        Self { last: Counters::read(clock) }
    }

    /// Starts counting for another host, whose files are these.
    pub(super) fn start_of(now: HostTime, texts: &Texts<'_>) -> Self {
        Self { last: Counters::parse(now, texts) }
    }

    /// The values now, by this clock; rates cover the time since the last call, or since the start.
    pub(super) fn sample(&mut self, clock: impl Fn() -> HostTime) -> HostLive {
        let memory = read("/proc/meminfo", procfs::parse_meminfo);
        let load = read("/proc/loadavg", procfs::parse_loadavg);
        self.advance(Counters::read(clock), memory, load)
    }

    /// The same for another host, whose files are these.
    pub(super) fn sample_of(&mut self, now: HostTime, texts: &Texts<'_>) -> HostLive {
        let memory = understood(procfs::parse_meminfo(texts.meminfo));
        let load = understood(procfs::parse_loadavg(texts.loadavg));
        self.advance(Counters::parse(now, texts), memory, load)
    }

    fn advance(
        &mut self,
        counters: Counters,
        memory: Result<procfs::Memory, String>,
        load: Result<[f32; 3], String>,
    ) -> HostLive {
        let cpu_percent = cpu_percent(&self.last, &counters);
        let traffic = traffic(&self.last, &counters);
        self.last = counters;
        HostLive {
            cpu_percent,
            memory_used: reading(memory).map(|memory| memory.total.saturating_sub(memory.available)),
            load: reading(load),
            net_rx: traffic.clone().map(|traffic| traffic.rx),
            net_tx: traffic.map(|traffic| traffic.tx),
        }
    }
}

impl Counters {
    fn read(clock: impl Fn() -> HostTime) -> Self {
        let cpu = read("/proc/stat", procfs::parse_stat);
        let net = read("/proc/net/dev", procfs::parse_net_dev);
        // Right behind the bytes, which become a rate by it.
        Self { at: clock(), cpu, net }
    }

    fn parse(at: HostTime, texts: &Texts<'_>) -> Self {
        Self {
            at,
            cpu: understood(procfs::parse_stat(texts.stat)),
            net: understood(procfs::parse_net_dev(texts.net_dev)),
        }
    }
}

const TOO_SOON: &str = "no time has passed since the last reading";

fn cpu_percent(before: &Counters, after: &Counters) -> Reading<f32> {
    match (&before.cpu, &after.cpu) {
        (Ok(before), Ok(after)) => {
            procfs::busy_percent(*before, *after).map_or_else(|| Reading::failed(TOO_SOON), Reading::Value)
        }
        (_, Err(error)) | (Err(error), Ok(_)) => Reading::failed(error),
    }
}

/// Bytes a second.
fn traffic(before: &Counters, after: &Counters) -> Reading<Traffic> {
    let micros = after.at.0.saturating_sub(before.at.0);
    match (&before.net, &after.net) {
        (Ok(_), Ok(_)) if micros == 0 => Reading::failed(TOO_SOON),
        (Ok(before), Ok(after)) => {
            let moved = procfs::moved(before, after);
            let a_second = |bytes: u64| (bytes as f64 * 1e6 / micros as f64).round() as u64;
            Reading::Value(Traffic { rx: a_second(moved.rx), tx: a_second(moved.tx) })
        }
        (_, Err(error)) | (Err(error), Ok(_)) => Reading::failed(error),
    }
}

fn read<T>(path: &'static str, parse: impl Fn(&str) -> Result<T, ProcError>) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    understood(parse(&text))
}

fn understood<T>(parsed: Result<T, ProcError>) -> Result<T, String> {
    parsed.map_err(|error| error.to_string())
}

fn reading<T>(result: Result<T, String>) -> Reading<T> {
    result.map_or_else(Reading::failed, Reading::Value)
}

/// Where the kernel names no boot (some sandboxes), all boots look alike: `unknown`.
fn boot() -> String {
    boot_id().ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(at: u64, total: u64, idle: u64, rx: u64) -> Counters {
        Counters {
            at: HostTime(at),
            cpu: Ok(CpuTicks { total, idle }),
            net: Ok(BTreeMap::from([("eth0".to_owned(), Traffic { rx, tx: 2 * rx })])),
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let (before, after) = (counters(1_000_000, 1000, 900, 500), counters(1_500_000, 1100, 950, 1500));
        assert_eq!(cpu_percent(&before, &after), Reading::Value(50.0));
        assert_eq!(traffic(&before, &after), Reading::Value(Traffic { rx: 2000, tx: 4000 }));
    }

    #[test]
    fn an_unknown_rate_is_no_zero() {
        let one = counters(1_000_000, 1000, 900, 500);
        assert_eq!(cpu_percent(&one, &one), Reading::failed(TOO_SOON));
        assert_eq!(traffic(&one, &one), Reading::failed(TOO_SOON));
        let broken = Counters {
            at: HostTime(2_000_000),
            cpu: Err("/proc/stat: no usable cpu line".to_owned()),
            net: Err("/proc/net/dev: no usable header".to_owned()),
        };
        assert_eq!(cpu_percent(&one, &broken), Reading::failed("/proc/stat: no usable cpu line"));
        assert_eq!(cpu_percent(&broken, &one), Reading::failed("/proc/stat: no usable cpu line"));
        assert_eq!(traffic(&one, &broken), Reading::failed("/proc/net/dev: no usable header"));
    }

    #[test]
    fn this_host_answers() {
        let facts = HostFacts::read(Some("10.0.0.1 50022 10.0.0.13 22"));
        assert!(!facts.hostname.is_empty() && !facts.kernel.is_empty() && !facts.user.is_empty());
        assert!(facts.cpus >= 1);
        let total = *facts.memory_total.value().unwrap();
        let mut meter = HostMeter::start(|| HostTime(0));
        let live = meter.sample(|| HostTime(1_000_000));
        let used = *live.memory_used.value().unwrap();
        assert!(used > 0 && used <= total, "{used} of {total}");
        assert!(live.load.value().is_some());
        assert!(live.net_rx.value().is_some());
    }
}
