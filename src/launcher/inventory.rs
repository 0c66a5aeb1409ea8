//! What a plan needs to know of each host, gathered from the hosts file and from what the host's agent told.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::config::{HostConfig, SlotCount};
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::host::{HostInfo, HostSample, InterfaceAddress};
use crate::domain::ids::HostId;
use crate::domain::lease::Leases;
use crate::domain::run::{Slot, Spool};
use crate::domain::time::HostTime;

/// A host as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Its name.
    pub id: HostId,
    /// What ranks can be placed on, in index order.
    pub slots: Vec<Slot>,
    /// Slots that somebody holds or computes on, by index.
    pub busy: BTreeMap<u32, Holder>,
    /// Variables that the hosts file sets for ranks there.
    pub env: BTreeMap<String, String>,
    /// Where ranks start unless the launch says otherwise.
    pub workdir: Option<String>,
    /// How much of what its ranks print is kept.
    pub spool: Spool,
    /// After how many milliseconds of silence its ranks are ended, if ever.
    pub max_silence_ms: Option<u64>,
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
    /// Where its GPU leases lie; its own choice when absent.
    pub lease_dir: Option<String>,
    /// Its place among all machines, by which every client leases the GPUs of several hosts in the same order: its boot
    /// id, then its first GPU where several share a kernel.
    pub machine: (String, String),
}

/// Who has a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who, for which run, for how long, by which process.
    pub words: String,
    /// Whether everybody on it is the user as whom hvtui works there.
    pub own: bool,
}

impl HostFacts {
    /// A host whose agent told its facts. `sample` is its newest one, for who is busy. `here` is the
    /// directory in which ranks on this machine start when the hosts file names none.
    pub fn present(config: &HostConfig, info: &HostInfo, sample: Option<&HostSample>, here: &str) -> Self {
        let slots = slots(config.slots, info);
        let mut env = config.env.clone();
        if slots.iter().all(|slot| matches!(slot, Slot::Cpu { .. })) && !info.gpus.is_empty() {
            // CPU slots were asked for: without this, every rank would see every GPU.
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), String::new());
        }
        let busy = match sample {
            Some(sample) => {
                sample.gpus.iter().filter_map(|gpu| Some((gpu.index, computing(gpu, info)?))).collect()
            }
            None => BTreeMap::new(),
        };
        let local = config.is_local();
        let first_gpu = info.gpus.iter().map(|gpu| gpu.uuid.to_string()).min();
        Self {
            id: config.id.clone(),
            busy: busy.into_iter().filter(|(index, _)| has_gpu(&slots, *index)).collect(),
            slots,
            env,
            workdir: config.workdir.clone().or_else(|| local.then(|| here.to_owned())),
            spool: config.spool,
            max_silence_ms: config.max_silence_ms,
            interface: config.interface.clone(),
            addresses: info.addresses.clone(),
            ssh_server_address: info.ssh_server_address.map(|ip| ip.to_canonical()),
            ssh_client_address: info.ssh_client_address.map(|ip| ip.to_canonical()),
            local,
            absent: None,
            lease_dir: config.lease_dir.clone(),
            machine: (info.boot_id.clone(), first_gpu.unwrap_or_default()),
        }
    }

    /// Adds who holds its GPUs for runs. `age` says for how long, of a moment of the host's clock.
    #[must_use]
    pub fn with_leases(mut self, leases: &Leases, age: impl Fn(HostTime) -> Option<String>) -> Self {
        for slot in &self.slots {
            let Slot::Gpu { index, uuid } = slot else { continue };
            let Some(lease) = leases.of(uuid) else { continue };
            let age = lease.since.and_then(&age).map(|age| format!(" for {age}")).unwrap_or_default();
            let process = self.busy.remove(index);
            let what = process.as_ref().map(|process| format!(": {}", process.words)).unwrap_or_default();
            let words = format!("leased by {}{age}{what}", lease.holder());
            let own = lease.own && process.is_none_or(|process| process.own);
            self.busy.insert(*index, Holder { words, own });
        }
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

    /// A host that can't take ranks now, with the reason in a lowercase sentence.
    pub fn absent(config: &HostConfig, reason: impl Into<String>) -> Self {
        Self {
            id: config.id.clone(),
            slots: Vec::new(),
            busy: BTreeMap::new(),
            env: BTreeMap::new(),
            workdir: None,
            spool: config.spool,
            max_silence_ms: config.max_silence_ms,
            interface: None,
            addresses: Vec::new(),
            ssh_server_address: None,
            ssh_client_address: None,
            local: config.is_local(),
            absent: Some(reason.into()),
            lease_dir: None,
            machine: (String::new(), String::new()),
        }
    }
}

/// What ranks can be placed on: with `auto`, each GPU that can be read, or each CPU where there is no GPU.
pub fn slots(count: SlotCount, info: &HostInfo) -> Vec<Slot> {
    match count {
        SlotCount::Cpus(count) => cpu_slots(count),
        SlotCount::Auto if info.gpus.is_empty() => cpu_slots(info.cpus),
        SlotCount::Auto => {
            let usable = info.gpus.iter().filter(|gpu| gpu.uuid.is_readable());
            usable.map(|gpu| Slot::Gpu { index: gpu.index, uuid: gpu.uuid.clone() }).collect()
        }
    }
}

fn cpu_slots(count: u32) -> Vec<Slot> {
    (0..count).map(|index| Slot::Cpu { index }).collect()
}

fn has_gpu(slots: &[Slot], wanted: u32) -> bool {
    slots.iter().any(|slot| matches!(slot, Slot::Gpu { index, .. } if *index == wanted))
}

/// Who computes on a GPU; `None` when it is free or nothing is known.
fn computing(gpu: &GpuSample, info: &HostInfo) -> Option<Holder> {
    let Reading::Value(processes) = &gpu.processes else { return None };
    let process = processes.first()?;
    let user = process.user.value().map_or("someone", String::as_str);
    let command = process.command.value().map_or("", String::as_str);
    let words = format!("{user} {command} (pid {})", process.pid).replace("  ", " ");
    let own = processes.iter().all(|process| process.user.value() == Some(&info.user));
    Some(Holder { words, own })
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
