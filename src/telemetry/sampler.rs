//! One host's facts and samples: GPUs and the host itself put together, each call in bounded time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::host::{HostFacts, HostMeter};
use super::reader::GpuReader;
use super::{HostClock, events};
use crate::domain::gpu::event::GpuEvent;
use crate::domain::host::{HostInfo, HostSample};
use crate::domain::time::HostTime;

/// What a [`Sampler`] reads, and how long it waits.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// NVML's library; `None` lets the loader find `libnvidia-ml.so.1`.
    pub nvml_lib: Option<PathBuf>,
    /// The environment variable `SSH_CONNECTION`, where there is one.
    pub ssh_connection: Option<String>,
    /// How long [`Sampler::start`] waits for NVML, which takes seconds to wake GPUs without persistence mode.
    pub start_deadline: Duration,
    /// How long [`Sampler::sample`] waits for NVML.
    pub sample_deadline: Duration,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            nvml_lib: None,
            ssh_connection: None,
            start_deadline: Duration::from_secs(5),
            sample_deadline: Duration::from_millis(800),
        }
    }
}

/// Reads one host. It blocks, for the times of its config at most: call it from a thread that may wait.
///
/// NVML can block for ever. Then the host's own values and those of its other GPUs still come, those of the GPU in question
/// say for how long NVML has been silent, and only the first sample of such a silence takes the whole deadline.
pub struct Sampler {
    library: PathBuf,
    host: HostFacts,
    meter: HostMeter,
    gpus: GpuReader,
}

impl Sampler {
    /// Starts to read, by this clock. Never fails: what can't be read is said in the facts and samples.
    pub fn start(config: SamplerConfig, clock: impl Fn() -> HostTime) -> Self {
        let library = config.nvml_lib.unwrap_or_else(|| PathBuf::from("libnvidia-ml.so.1"));
        Self {
            library: library.clone(),
            host: HostFacts::read(config.ssh_connection.as_deref()),
            meter: HostMeter::start(clock),
            gpus: GpuReader::start(library, config.start_deadline, config.sample_deadline),
        }
    }

    /// The facts as known now.
    ///
    /// They change when NVML answers after the start's deadline, or when a driver that was absent comes: compare
    /// after each sample and send them again when they differ.
    pub fn info(&self) -> HostInfo {
        let host = self.host.clone();
        let facts = self.gpus.facts().clone();
        HostInfo {
            hostname: host.hostname,
            kernel: host.kernel,
            arch: host.arch,
            user: host.user,
            cpus: host.cpus,
            memory_total: host.memory_total,
            boot_id: host.boot_id,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            agent_build: None,
            banner: None,
            login: None,
            addresses: host.addresses,
            ssh_server_address: host.ssh_server_address,
            ssh_client_address: host.ssh_client_address,
            gpus: self.gpus.gpus(),
            gpu_absence: facts.absence,
            driver: facts.driver,
            cuda_driver: facts.cuda_driver,
            nccl: facts.nccl,
            topology: facts.topology,
        }
    }

    /// What tells the events of the GPUs as they come, for a thread of its own: it may block for ever. It ends when the
    /// listener that it is given returns `false`; an empty list is told now and then to ask for that.
    pub fn events(&self) -> impl FnOnce(&mut dyn FnMut(Vec<GpuEvent>) -> bool) + Send + 'static {
        let library = self.library.clone();
        move |tell| events::watch(&library, tell)
    }

    /// The values now, by this clock. Rates (CPU, network) cover the time since the last call, or since the start.
    pub fn sample(&mut self, clock: impl Fn() -> HostTime + Send + Sync + 'static) -> HostSample {
        let clock: HostClock = Arc::new(clock);
        let now = clock();
        let asked = self.gpus.ask(now, &clock);
        let host = self.meter.sample(&*clock);
        HostSample {
            cpu_percent: host.cpu_percent,
            memory_used: host.memory_used,
            load: host.load,
            net_rx: host.net_rx,
            net_tx: host.net_tx,
            gpus: self.gpus.collect(asked, now, &clock),
        }
    }
}
