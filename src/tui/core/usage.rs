//! Who has a GPU: free, busy, held without use, or taken by one of our runs.

use std::collections::BTreeMap;

use crate::domain::gpu::GpuSample;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::run::Slot;
use crate::domain::text::sanitize;
use crate::domain::world::{HostState, World};

/// A GPU whose memory is used beyond this share without a visible process is not free.
const UNSEEN_MEMORY_SHARE: f64 = 0.05;
/// Below this many percent a GPU counts as idle.
const IDLE_UTIL: u32 = 2;
/// A GPU that has been idle for less than this is not called so, microseconds.
const IDLE_AFTER_US: i64 = 60_000_000;

/// Who has a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuUse {
    /// Nobody.
    Free,
    /// One of the live runs.
    Run(RunId),
    /// A run of another client holds it.
    Leased {
        /// Its user.
        user: String,
        /// The run's short id and name, where it is a run's.
        run: Option<String>,
        /// Whether it is the user's own.
        own: bool,
    },
    /// A process computes on it.
    Busy,
    /// A process holds it and has not computed for so many microseconds, at least.
    HeldIdle(i64),
    /// Not known.
    Unknown,
}

/// The slots of all live runs.
#[derive(Debug, Default)]
pub struct Leases<'a> {
    gpus: BTreeMap<(&'a HostId, &'a GpuUuid), &'a RunId>,
    cpus: BTreeMap<&'a HostId, u32>,
}

impl<'a> Leases<'a> {
    /// Reads them off the world.
    pub fn of(world: &'a World) -> Self {
        let mut leases = Self::default();
        for (id, run) in world.runs.iter().filter(|(_, run)| run.is_live()) {
            for placement in &run.spec.placements {
                match &placement.slot {
                    Slot::Gpu { uuid, .. } => {
                        leases.gpus.insert((&placement.host, uuid), id);
                    }
                    Slot::Cpu { .. } => *leases.cpus.entry(&placement.host).or_default() += 1,
                }
            }
        }
        leases
    }

    /// The run that has a GPU.
    pub fn gpu(&self, host: &HostId, uuid: &GpuUuid) -> Option<&'a RunId> {
        self.gpus.get(&(host, uuid)).copied()
    }

    /// How many CPU slots of a host are taken by live runs.
    pub fn cpus(&self, host: &HostId) -> u32 {
        self.cpus.get(host).copied().unwrap_or(0)
    }
}

/// Who has the GPU at `place` of a host's list.
pub fn gpu_use(host: &HostId, state: &HostState, place: usize, leases: &Leases<'_>) -> GpuUse {
    let uuid = state.info.as_ref().and_then(|info| info.gpus.get(place)).map(|gpu| &gpu.uuid);
    if let Some(run) = uuid.and_then(|uuid| leases.gpu(host, uuid)) {
        return GpuUse::Run(run.clone());
    }
    if let Some(lease) = uuid.and_then(|uuid| state.leases.as_ref()?.of(uuid)) {
        let user = sanitize(lease.user.as_deref().unwrap_or("someone")).into_owned();
        let name = lease.name.as_deref().unwrap_or_default();
        let run = lease.run.as_ref().map(|run| sanitize(&format!("run {} {name}", run.short())).into_owned());
        return GpuUse::Leased { user, run, own: lease.own };
    }
    let Some(sample) = state.latest().and_then(|(_, sample)| sample.gpus.get(place)) else {
        return GpuUse::Unknown;
    };
    match sample.processes.value() {
        Some(processes) if !processes.is_empty() => match idle_us(state, place) {
            Some(idle) if idle >= IDLE_AFTER_US => GpuUse::HeldIdle(idle),
            _ => GpuUse::Busy,
        },
        Some(_) if memory_share(sample).is_some_and(|share| share > UNSEEN_MEMORY_SHARE) => GpuUse::Busy,
        Some(_) => GpuUse::Free,
        None => GpuUse::Unknown,
    }
}

/// Used share of a GPU's memory, 0..=1.
pub fn memory_share(sample: &GpuSample) -> Option<f64> {
    let (used, total) = (sample.memory_used.value()?, sample.memory_total.value()?);
    (*total > 0).then(|| *used as f64 / *total as f64)
}

fn idle_us(state: &HostState, place: usize) -> Option<i64> {
    let (last, _) = state.latest()?;
    let first = state
        .samples
        .iter()
        .rev()
        .take_while(|(_, sample)| {
            let util = sample.gpus.get(place).and_then(|gpu| gpu.util.value());
            util.is_some_and(|util| *util < IDLE_UTIL)
        })
        .last()?;
    Some(last.micros_since(first.0))
}
