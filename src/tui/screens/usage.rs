//! Who has a GPU, as the screens show it: what `domain::occupancy` says, our own runs, and for how long it was idle.

use std::collections::BTreeMap;

use crate::domain::gpu::{GpuInfo, GpuSample};
use crate::domain::idle::idle_us;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::occupancy::{FreeMemory, Occupancy};
use crate::domain::run::{Placement, Slot};
use crate::domain::run_status::RunInventory;
use crate::domain::text::sanitize;
use crate::domain::world::{HostState, World};
use crate::tui::screens::Model;

/// Who has a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuUse {
    /// Not in use.
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
    /// MIG mode is on: it is cut into so many slices, each a GPU of its own.
    Divided(u32),
    /// A process computes on it.
    Busy,
    /// A process holds it and has not computed for so many microseconds, at least.
    HeldIdle(i64),
    /// It is in use, and no process is seen on it; in words.
    Unseen(String),
    /// Not known, and why.
    Unknown(String),
}

/// The slots of all live runs.
#[derive(Debug, Default)]
pub struct Leases<'a> {
    gpus: BTreeMap<(&'a HostId, &'a GpuUuid), &'a RunId>,
    cpus: BTreeMap<&'a HostId, u32>,
    model: Option<&'a Model>,
}

impl<'a> Leases<'a> {
    /// Of the runs that this client follows, and of those that the hosts tell of.
    pub fn of(model: &'a Model) -> Self {
        let mut leases = Self { model: Some(model), ..Self::of_world(&model.world) };
        if !model.is_replay() {
            leases.add_heard(&model.inventory, &model.world);
        }
        leases
    }

    /// Runs that no client here follows take CPU slots too: where their ranks go on. Of GPUs the leases tell.
    fn add_heard(&mut self, inventory: &'a RunInventory, world: &World) {
        for (run, shares) in inventory.shares.iter().filter(|(run, _)| !world.runs.contains_key(run)) {
            let Some(spec) = inventory.spec(run) else { continue };
            for (host, share) in shares.iter().filter(|(_, share)| share.live) {
                let takes = |placement: &&Placement| {
                    placement.host == share.host
                        && matches!(placement.slot, Slot::Cpu { .. })
                        && !share.exits.contains_key(&placement.rank)
                };
                let count = spec.placements.iter().filter(takes).count();
                *self.cpus.entry(host).or_default() += u32::try_from(count).unwrap_or(u32::MAX);
            }
        }
    }

    /// Reads them off the world.
    fn of_world(world: &'a World) -> Self {
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

    /// How much memory may be in use on a free GPU of a host.
    pub fn free_memory(&self, host: &HostId) -> FreeMemory {
        self.model
            .and_then(|model| model.hosts.of(host))
            .map_or_else(FreeMemory::default, |entry| entry.free_memory)
    }

    /// Whether a GPU has fallen off the bus, acknowledged or not.
    pub(super) fn is_off_bus(&self, state: &HostState, gpu: &GpuInfo) -> bool {
        self.model.is_some_and(|model| state.is_off_bus(gpu, model.moment()))
    }

    /// How many CPU slots of a host are taken by live runs.
    pub fn cpus(&self, host: &HostId) -> u32 {
        self.cpus.get(host).copied().unwrap_or(0)
    }
}

/// Who has the GPU at `place` of a host's list.
pub fn gpu_use(host: &HostId, state: &HostState, place: usize, leases: &Leases<'_>) -> GpuUse {
    let Some(gpu) = state.info.as_ref().and_then(|info| info.gpus.get(place)) else {
        return GpuUse::Unknown("the host has not told of it".to_owned());
    };
    if let Some(run) = leases.gpu(host, &gpu.uuid) {
        return GpuUse::Run(run.clone());
    }
    let sample = state.latest().and_then(|(_, sample)| sample.gpus.get(place));
    let occupancy = Occupancy::of(gpu, state.leases.as_ref(), sample, leases.free_memory(host))
        .unless_off_bus(leases.is_off_bus(state, gpu));
    match &occupancy {
        Occupancy::Free if !gpu.uuid.is_readable() => {
            GpuUse::Unknown("it did not tell what it is".to_owned())
        }
        Occupancy::Free => GpuUse::Free,
        Occupancy::OffBus => GpuUse::Unknown(occupancy.words(&|_| None)),
        Occupancy::Leased { lease, .. } => {
            let user = sanitize(lease.user.as_deref().unwrap_or("someone")).into_owned();
            let name = lease.name.as_deref().unwrap_or_default();
            let run =
                lease.run.as_ref().map(|run| sanitize(&format!("run {} {name}", run.short())).into_owned());
            GpuUse::Leased { user, run, own: lease.own }
        }
        Occupancy::Divided(slices) => GpuUse::Divided(*slices),
        Occupancy::Processes(_) => match idle_us(state, place) {
            Some(idle) => GpuUse::HeldIdle(idle),
            None => GpuUse::Busy,
        },
        Occupancy::Unseen { .. } => GpuUse::Unseen(sanitize(&occupancy.words(&|_| None)).into_owned()),
        Occupancy::Unknown { why } => GpuUse::Unknown(sanitize(why).into_owned()),
    }
}

/// The GPUs of a host that ranks can be placed on now, with their places in its list: what `f` picks, and what is counted
/// as free.
pub fn free_gpus<'a>(
    model: &'a Model,
    host: &'a HostId,
    leases: &'a Leases<'_>,
) -> impl Iterator<Item = (usize, &'a GpuInfo)> {
    let state = model.world.hosts.get(host).filter(|state| state.is_up());
    let state = state.filter(|_| model.configured_slots(host).is_none());
    state.into_iter().flat_map(move |state| {
        let gpus = state.info.as_ref().map_or(&[][..], |info| &info.gpus);
        let free = move |place: usize| gpu_use(host, state, place, leases) == GpuUse::Free;
        gpus.iter().enumerate().filter(move |(place, gpu)| free(*place) && gpu.uuid.is_readable())
    })
}

/// Used share of a GPU's memory, 0..=1.
pub fn memory_share(sample: &GpuSample) -> Option<f64> {
    let (used, total) = (sample.memory_used.value()?, sample.memory_total.value()?);
    (*total > 0).then(|| *used as f64 / *total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run_status, rank_exit, run_spec};
    use crate::domain::ids::Rank;
    use crate::domain::run::{RankExit, RunSpec};
    use crate::domain::run_status::HostRunStatus;
    use crate::domain::time::{HostTime, Stamp};

    #[test]
    fn runs_that_no_client_here_follows_take_their_slots() {
        let run = RunId::new(1, 1);
        let place = |rank, host: &str, slot| Placement {
            rank: Rank(rank),
            host: host.into(),
            local_rank: 0,
            slot,
            more: Vec::new(),
        };
        let cpu = |index| Slot::Cpu { index };
        let spec = RunSpec {
            id: run.clone(),
            name: "theirs".to_owned(),
            created: Stamp(1),
            ..run_spec(vec![
                place(0, "their-a", cpu(0)),
                place(1, "their-a", cpu(1)),
                place(2, "b", cpu(0)),
                place(3, "their-a", Slot::Gpu { index: 0, uuid: "GPU-0".into() }),
            ])
        };
        let share = |host: &str, live| HostRunStatus {
            run: run.clone(),
            host: host.into(),
            name: spec.name.clone(),
            spec: Some(Box::new(spec.clone())),
            ..host_run_status(live)
        };
        let mut model = Model::live(Vec::new(), Stamp(1), 0);
        let (a, b) = (HostId::from("a"), HostId::from("b"));
        model.inventory.take(&a, vec![share("their-a", true)], true);
        model.inventory.take(&b, vec![share("b", false)], true);
        let taken = |model: &Model| [Leases::of(model).cpus(&a), Leases::of(model).cpus(&b)];
        assert_eq!(taken(&model), [2, 0], "under the name that the host has here; ended ones take none");
        let exit = RankExit { t: HostTime(1), ..rank_exit(0) };
        let mut one_left = share("their-a", true);
        one_left.exits.insert(Rank(1), exit);
        model.inventory.take(&a, vec![one_left], true);
        assert_eq!(taken(&model), [1, 0]);
    }
}
