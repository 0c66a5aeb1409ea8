//! What a filter looks at, gathered from what is known of a host.

use crate::domain::gpu::event::{GpuEvents, all_faults};
use crate::domain::gpu::health::Fault;
use crate::domain::gpu::{GpuInfo, GpuSample};
use crate::domain::idle::is_idle;
use crate::domain::ids::RunId;
use crate::domain::lease::Lease;
use crate::domain::occupancy::{FreeMemory, Occupancy};
use crate::domain::time::Stamp;
use crate::domain::world::HostState;

/// One GPU of a host, or a host without any.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The host's name.
    pub host: &'a str,
    /// Its labels in the hosts file.
    pub labels: &'a [String],
    /// The GPU.
    pub gpu: Option<GpuSubject<'a>>,
}

/// A GPU as a filter sees it.
#[derive(Debug, Clone, Copy)]
pub struct GpuSubject<'a> {
    /// Its facts.
    pub info: &'a GpuInfo,
    /// Its newest sample.
    pub sample: Option<&'a GpuSample>,
    /// Its lease.
    pub lease: Option<&'a Lease>,
    /// A run of this client on it that the host need not have told of, and its name.
    pub run: Option<(&'a RunId, &'a str)>,
    /// Whether ranks may be placed on it; what is not known is not free.
    pub free: bool,
    /// Whether something is on it, where that is known.
    pub held: Option<bool>,
    /// Whether it is held and has not computed for long, where that is known.
    pub idle: Option<bool>,
    /// For how long what is on it has been there, microseconds.
    pub age_us: Option<u64>,
    /// What has happened to the GPUs of its host, and the moment.
    pub events: Option<(&'a GpuEvents, Stamp)>,
}

impl<'a> GpuSubject<'a> {
    /// The GPU at `place` of a host's list, as it is `now`; `run` is the run of this client that is on it.
    pub fn of(
        state: &'a HostState,
        place: usize,
        free_memory: FreeMemory,
        run: Option<(&'a RunId, &'a str)>,
        now: Stamp,
    ) -> Option<Self> {
        let info = state.info.as_ref()?.gpus.get(place)?;
        let latest = state.latest().and_then(|(at, sample)| Some((at, sample.gpus.get(place)?)));
        let sample = latest.map(|(_, sample)| sample);
        let leases = state.leases.as_ref();
        let lease = leases.and_then(|leases| leases.of(&info.uuid));
        let held_since = lease.and_then(|lease| state.clock.stamp(lease.since?));
        let is_off_bus = state.is_off_bus(info, now);
        let occupancy = Occupancy::of(info, leases, sample, free_memory).unless_off_bus(is_off_bus);
        let held = match occupancy {
            _ if run.is_some() => Some(true),
            Occupancy::Free | Occupancy::Divided(_) | Occupancy::OffBus => Some(false),
            Occupancy::Leased { .. } | Occupancy::Processes(_) | Occupancy::Unseen { .. } => Some(true),
            Occupancy::Unknown { .. } => None,
        };
        let idle = is_idle(state, place);
        let free = occupancy.is_free() && run.is_none() && state.is_up() && info.uuid.is_readable();
        Some(Self {
            info,
            sample,
            lease,
            run,
            free,
            held,
            idle,
            age_us: age_us(latest, held_since, now),
            events: Some((&state.gpu_events, now)),
        })
    }

    /// What is wrong with it: what has happened to it within the last hour, and what its values say. `None` without values.
    pub fn faults(&self) -> Option<Vec<Fault>> {
        Some(all_faults(self.events, self.info, self.sample?, None))
    }
}

/// For how long what is on a GPU has been there: its oldest process as of the sample that came then, else its lease.
pub(super) fn age_us(sample: Option<(Stamp, &GpuSample)>, leased: Option<Stamp>, now: Stamp) -> Option<u64> {
    let since = |from: Stamp| u64::try_from(now.micros_since(from)).unwrap_or(0);
    let processes = sample.and_then(|(_, sample)| sample.processes.value()).into_iter().flatten();
    let oldest = processes.filter_map(|process| process.age_s.value()).max();
    match (oldest, sample) {
        (Some(seconds), Some((at, _))) => Some(seconds.saturating_mul(1_000_000).saturating_add(since(at))),
        _ => leased.map(since),
    }
}
