//! What a plan needs to know of each host, gathered from the hosts file and from what the host's agent told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::config::{HostConfig, SlotCount};
use crate::domain::environment::EnvironmentPlan;
use crate::domain::filter::Exclusion;
use crate::domain::gpu::event::{GpuEvents, all_faults};
use crate::domain::gpu::health::{Severity, Unreadable};
use crate::domain::gpu::topology::Topology;
use crate::domain::gpu::{GpuInfo, Reading, mig};
use crate::domain::host::{GpuAbsence, HostInfo, HostSample, InterfaceAddress};
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::lease::Leases;
use crate::domain::occupancy::Occupancy;
use crate::domain::run::{Slot, Spool};
use crate::domain::time::{HostTime, Stamp};

/// A host as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Its name.
    pub id: HostId,
    /// What ranks can be placed on, in index order.
    pub slots: Vec<Slot>,
    /// Slots that are not free, by index.
    pub busy: BTreeMap<u32, Holder>,
    /// CPU slots that live runs have, by index: they are taken last.
    pub in_use: BTreeSet<u32>,
    /// GPUs on which results, or which themselves, are at risk, by index, and why.
    pub at_risk: BTreeMap<u32, String>,
    /// The models of its GPUs, by index.
    pub models: BTreeMap<u32, String>,
    /// How its GPUs are connected, and their indices in the order of that.
    pub topology: Option<(Topology, Vec<u32>)>,
    /// Of its MIG slices the GPU that each is a slice of.
    pub slice_of: BTreeMap<GpuUuid, GpuUuid>,
    /// GPUs that take no ranks because MIG mode is on, by index and by UUID, each with the reason.
    pub divided: BTreeMap<String, String>,
    /// GPUs that take no ranks because they can't be read, by index, each with what it does: `is lost`.
    pub lost: BTreeMap<u32, &'static str>,
    /// Why none of its slots is a GPU, where none is.
    pub no_gpu: Option<String>,
    /// Whether that is a fault of its GPU driver: the host may have GPUs that can't be used.
    pub driver_fails: bool,
    /// GPUs that the filter of the launch leaves out, by index, and why.
    pub left_out: BTreeMap<u32, Exclusion>,
    /// Variables that the hosts file sets for ranks there.
    pub env: BTreeMap<String, String>,
    /// Where ranks start unless the launch says otherwise.
    pub workdir: Option<String>,
    /// How much of what its ranks print is kept.
    pub spool: Spool,
    /// After how many milliseconds of silence its ranks are ended, if ever.
    pub max_silence_ms: Option<u64>,
    /// Whether hvtui's hooks are put into the Pythons of its ranks.
    pub python_hooks: bool,
    /// The network interface that the hosts file names for ranks.
    pub interface: Option<String>,
    /// Its addresses by interface, loopback left out.
    pub addresses: Vec<InterfaceAddress>,
    /// The address by which ssh reached it.
    pub ssh_server_address: Option<IpAddr>,
    /// The address from which ssh came.
    pub ssh_client_address: Option<IpAddr>,
    /// Whether it is this machine, reached without ssh.
    pub local: bool,
    /// Why nothing can be placed there now; `None` when it is up.
    pub absent: Option<String>,
    /// What the hosts file says is activated there.
    pub environment: EnvironmentPlan,
    /// Where its GPU leases lie; its own choice when absent.
    pub lease_dir: Option<String>,
    /// Its container engine, where the hosts file names one.
    pub container: Option<String>,
    /// Its place among all machines, by which every client leases the GPUs of several hosts in the same order: its boot
    /// id, then its first GPU where several share a kernel.
    pub machine: (String, String),
}

/// What speaks against a slot that can be taken, the better first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotState {
    /// Nothing.
    Sound,
    /// Its GPU is at risk.
    AtRisk,
    /// The same user has it, or of a CPU slot a live run.
    Shared,
}

/// Who has a slot, or what was seen on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who, for which run, for how long, by which process.
    pub words: String,
    /// The same without what differs from slot to slot of one holder.
    pub who: String,
    /// Whether the words name who has it.
    pub named: bool,
    /// Whether everybody on it is the user as whom hvtui works there.
    pub own: bool,
    /// Whether its GPU has fallen off the bus: it is free no more before the host is rebooted.
    pub gone: bool,
}

/// What is known of the GPUs of a host now.
pub struct Now<'a> {
    /// Its newest sample.
    pub sample: Option<&'a HostSample>,
    /// What has happened to its GPUs, and the moment it is.
    pub events: Option<(&'a GpuEvents, Stamp)>,
    /// Up to when a person has acknowledged the events of a GPU, where the screen shows it so.
    pub acknowledged: &'a BTreeMap<GpuUuid, Stamp>,
    /// Its leases.
    pub leases: Option<&'a Leases>,
    /// How long ago a moment of its clock was, in words.
    pub age: &'a dyn Fn(HostTime) -> Option<String>,
}

impl HostFacts {
    /// A host whose agent told its facts. `here` is the directory in which ranks on this machine start when the hosts
    /// file names none.
    pub fn present(config: &HostConfig, info: &HostInfo, now: &Now<'_>, here: &str) -> Self {
        let slots = slots(config.slots, info);
        let mut env = config.env.clone();
        if slots.iter().all(|slot| matches!(slot, Slot::Cpu { .. })) && !info.gpus.is_empty() {
            // CPU slots were asked for: without this, every rank would see every GPU.
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), String::new());
        }
        let local = config.is_local();
        let first_gpu = info.gpus.iter().map(|gpu| gpu.uuid.to_string()).min();
        Self {
            id: config.id.clone(),
            busy: slots
                .iter()
                .filter_map(|slot| Some((slot.index(), holder(slot, config, info, now)?)))
                .collect(),
            no_gpu: no_gpu(&slots, config.slots, info),
            driver_fails: driver_fails(config.slots, info),
            slots,
            at_risk: at_risk(info, now),
            models: info.gpus.iter().map(|gpu| (gpu.index, gpu.model().to_owned())).collect(),
            topology: info
                .topology
                .clone()
                .map(|topology| (topology, mig::whole(&info.gpus).map(|gpu| gpu.index).collect())),
            slice_of: slices(info),
            divided: divided(info),
            lost: lost(config.slots, info),
            left_out: BTreeMap::new(),
            in_use: BTreeSet::new(),
            env,
            workdir: config.workdir.clone().or_else(|| local.then(|| here.to_owned())),
            spool: config.spool,
            max_silence_ms: config.max_silence_ms,
            python_hooks: config.python_hooks,
            interface: config.interface.clone(),
            addresses: info.addresses.clone(),
            ssh_server_address: info.ssh_server_address.map(|ip| ip.to_canonical()),
            ssh_client_address: info.ssh_client_address.map(|ip| ip.to_canonical()),
            local,
            absent: None,
            environment: config.environment.clone(),
            lease_dir: config.lease_dir.clone(),
            container: config.container.clone(),
            machine: (info.boot_id.clone(), first_gpu.unwrap_or_default()),
        }
    }

    /// The host as a launch sees it that hides each GPU: its CPUs are what ranks are placed on.
    pub(super) fn without_gpus(mut self, info: &HostInfo) -> Self {
        if self.slots.iter().any(|slot| matches!(slot, Slot::Gpu { .. })) {
            self.slots = cpu_slots(info.cpus);
            self.busy.clear();
            self.lost.clear();
            self.no_gpu = Some("the launch hides its GPUs".to_owned());
        }
        // it asks for CPU slots
        self.driver_fails = false;
        self
    }

    /// Slots that can be taken now: the free ones, then with `share` those that the same user has.
    pub fn usable(&self, share: bool) -> Vec<Slot> {
        if self.absent.is_some() {
            return Vec::new();
        }
        let holder = |slot: &&Slot| self.busy.get(&slot.index());
        let free = self.slots.iter().filter(|slot| holder(slot).is_none());
        let own = self.slots.iter().filter(|slot| share && holder(slot).is_some_and(|holder| holder.own));
        free.chain(own).cloned().collect()
    }

    /// The numbers of those of these slots of it that have fallen off the bus.
    pub(super) fn off_bus(&self, slots: &[Slot]) -> Vec<u32> {
        let is_gone = |index: &u32| self.busy.get(index).is_some_and(|holder| holder.gone);
        slots.iter().map(Slot::index).filter(is_gone).collect()
    }

    /// Takes `count` of these slots of it, in their order: shared ones go first, then GPUs at risk, then the last.
    pub fn narrow(&self, slots: &mut Vec<Slot>, count: usize) {
        while slots.len() > count {
            let worst = slots.iter().map(|slot| self.slot_state(slot)).max();
            let last = slots.iter().rposition(|slot| Some(self.slot_state(slot)) == worst);
            slots.remove(last.unwrap_or(slots.len() - 1));
        }
    }

    /// How readily a slot that can be taken is.
    pub fn slot_state(&self, slot: &Slot) -> SlotState {
        let is_in_use = matches!(slot, Slot::Cpu { index } if self.in_use.contains(index));
        if is_in_use || self.busy.contains_key(&slot.index()) {
            SlotState::Shared
        } else if self.risk(slot).is_some() {
            SlotState::AtRisk
        } else {
            SlotState::Sound
        }
    }

    /// Why the GPU of a slot is at risk, if it is.
    pub fn risk(&self, slot: &Slot) -> Option<&str> {
        let is_gpu = matches!(slot, Slot::Gpu { .. });
        self.at_risk.get(&slot.index()).filter(|_| is_gpu).map(String::as_str)
    }

    /// Whether the filter of the launch lets this GPU through, now or when nothing is on it any more.
    pub fn could_pass(&self, slot: &Slot) -> bool {
        self.left_out.get(&slot.index()).is_none_or(|exclusion| !exclusion.for_good)
    }

    /// A host that can't take ranks now, with the reason in a lowercase sentence.
    pub fn absent(config: &HostConfig, reason: impl Into<String>) -> Self {
        Self {
            id: config.id.clone(),
            slots: Vec::new(),
            busy: BTreeMap::new(),
            at_risk: BTreeMap::new(),
            models: BTreeMap::new(),
            topology: None,
            slice_of: BTreeMap::new(),
            divided: BTreeMap::new(),
            lost: BTreeMap::new(),
            no_gpu: None,
            driver_fails: false,
            left_out: BTreeMap::new(),
            in_use: BTreeSet::new(),
            env: BTreeMap::new(),
            workdir: None,
            spool: config.spool,
            max_silence_ms: config.max_silence_ms,
            python_hooks: config.python_hooks,
            interface: None,
            addresses: Vec::new(),
            ssh_server_address: None,
            ssh_client_address: None,
            local: config.is_local(),
            absent: Some(reason.into()),
            environment: EnvironmentPlan::default(),
            lease_dir: None,
            container: None,
            machine: (String::new(), String::new()),
        }
    }
}

fn slices(info: &HostInfo) -> BTreeMap<GpuUuid, GpuUuid> {
    let whole = |index: u32| info.gpus.iter().find(|gpu| gpu.index == index);
    let of = |slice: &GpuInfo| Some((slice.uuid.clone(), whole(slice.parent?)?.uuid.clone()));
    info.gpus.iter().filter_map(of).collect()
}

/// The worst that is wrong with each GPU on which results, or which itself, are at risk.
fn at_risk(info: &HostInfo, now: &Now<'_>) -> BTreeMap<u32, String> {
    let live = now.sample.map_or(&[][..], |sample| &sample.gpus);
    let of = |gpu: &GpuInfo| {
        let live = live.iter().find(|live| live.index == gpu.index)?;
        let acknowledged = now.acknowledged.get(&gpu.uuid).copied();
        let worst = all_faults(now.events, gpu, live, acknowledged).into_iter().next();
        let worst = worst.filter(|fault| fault.severity == Severity::Act)?;
        Some((gpu.index, worst.words))
    };
    info.gpus.iter().filter_map(of).collect()
}

fn divided(info: &HostInfo) -> BTreeMap<String, String> {
    let names = |gpu: &GpuInfo| Some((gpu.slices?, [gpu.index.to_string(), gpu.uuid.to_string()]));
    let each = info.gpus.iter().filter_map(names);
    each.flat_map(|(slices, names)| names.map(|name| (name, mig::words(slices)))).collect()
}

fn lost(count: SlotCount, info: &HostInfo) -> BTreeMap<u32, &'static str> {
    let does = |gpu: &GpuInfo| match &gpu.pci {
        Reading::Failed { error } => match Unreadable::by(error) {
            Unreadable::Lost => "is lost",
            Unreadable::NoAnswer => "gives no answer",
            Unreadable::Other(_) => "is unreadable",
        },
        Reading::Value(_) | Reading::Unsupported => "is unreadable",
    };
    let gone = info.gpus.iter().filter(|gpu| count == SlotCount::Auto && !gpu.uuid.is_readable());
    gone.map(|gpu| (gpu.index, does(gpu))).collect()
}

fn no_gpu(slots: &[Slot], count: SlotCount, info: &HostInfo) -> Option<String> {
    if slots.iter().any(|slot| matches!(slot, Slot::Gpu { .. })) {
        return None;
    }
    let of_gpu = |gpu: &GpuInfo| gpu.slices.map_or_else(|| gpu.name.clone(), mig::words);
    Some(match (count, info.gpus.first()) {
        (SlotCount::Cpus(_), Some(_)) => "the hosts file gives it CPU slots".to_owned(),
        (_, Some(gpu)) => of_gpu(gpu),
        (_, None) => info.gpu_absence.as_ref().map_or_else(|| "no GPU".to_owned(), GpuAbsence::words),
    })
}

/// Whether the CPU slots of a host stand for GPUs whose driver fails, not for what the hosts file says.
fn driver_fails(count: SlotCount, info: &HostInfo) -> bool {
    let fails = info.gpu_absence.as_ref().is_some_and(|absence| absence.reason.is_fault());
    count == SlotCount::Auto && info.gpus.is_empty() && fails
}

/// What ranks can be placed on: with `auto`, each GPU or MIG slice that can be read, or each CPU where there is no GPU.
pub fn slots(count: SlotCount, info: &HostInfo) -> Vec<Slot> {
    match count {
        SlotCount::Cpus(count) => cpu_slots(count),
        SlotCount::Auto if info.gpus.is_empty() => cpu_slots(info.cpus),
        SlotCount::Auto => {
            let usable = info.gpus.iter().filter(|gpu| gpu.takes_ranks());
            usable.map(|gpu| Slot::Gpu { index: gpu.index, uuid: gpu.uuid.clone() }).collect()
        }
    }
}

fn cpu_slots(count: u32) -> Vec<Slot> {
    (0..count).map(|index| Slot::Cpu { index }).collect()
}

/// Who has a slot; `None` when it is free. A CPU slot always is.
fn holder(slot: &Slot, config: &HostConfig, info: &HostInfo, now: &Now<'_>) -> Option<Holder> {
    let Slot::Gpu { index, uuid } = slot else { return None };
    let gpu = info.gpus.iter().find(|gpu| gpu.uuid == *uuid)?;
    let sample = now.sample.and_then(|sample| sample.gpus.iter().find(|gpu| gpu.index == *index));
    let whole = info.gpus.iter().find(|whole| Some(whole.index) == gpu.parent);
    let is_gone = |gpu: &GpuInfo| now.events.is_some_and(|(events, at)| events.is_off_bus(&gpu.uuid, at));
    // the driver says so too of one whose event was not seen
    let is_lost = sample.is_some_and(|sample| Unreadable::of(sample) == Some(Unreadable::Lost));
    let is_off_bus = is_lost || is_gone(gpu) || whole.is_some_and(is_gone);
    let occupancy = Occupancy::of(gpu, now.leases, sample, config.free_memory).unless_off_bus(is_off_bus);
    let mut words = occupancy.words(now.age);
    if is_off_bus && occupancy.has_holder() {
        words = format!("{words}, and {}", Occupancy::OffBus.words(now.age));
    }
    // Of a GPU whose lease is older than its slices none of them can be taken, by its holder neither.
    let is_whole_leased =
        whole.zip(now.leases).is_some_and(|(whole, leases)| leases.of(&whole.uuid).is_some());
    (!occupancy.is_free()).then(|| Holder {
        words,
        who: occupancy.who(),
        named: occupancy.has_holder(),
        own: occupancy.is_own(&info.user) && !is_whole_leased && !is_off_bus,
        gone: is_off_bus,
    })
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
