//! Whether a GPU is free, and if not, what was seen on it: the one definition that placement, keys, filters, counts and
//! commands share. Pure; must not know who asks.
//!
//! A GPU is free when it is not leased, its process list can be read and is empty, and at most a little of its memory
//! is in use. What is not known is not free, neither is one with MIG mode on (its slices may be), nor one that has
//! fallen off the bus.

use super::gpu::{GpuInfo, GpuProcess, GpuSample, Reading, mig};
use super::lease::{Lease, Leases};
use super::time::HostTime;
use super::units;

/// From this many percent on, a GPU that can tell nothing of its memory is computing.
const COMPUTING_UTIL: u32 = 5;

/// How much memory may be in use on a free GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeMemory {
    /// So much of all it has.
    Percent(u8),
    /// So many bytes.
    Bytes(u64),
}

impl Default for FreeMemory {
    fn default() -> Self {
        Self::Percent(5)
    }
}

impl FreeMemory {
    /// In bytes; `None` where it depends on a total that is not known.
    fn limit(self, total: Option<u64>) -> Option<u64> {
        match self {
            Self::Percent(percent) => total.map(|total| (total / 100).saturating_mul(u64::from(percent))),
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// What is on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occupancy<'a> {
    /// Nothing.
    Free,
    /// It is held for a run, or by its lock.
    Leased {
        /// The lease.
        lease: &'a Lease,
        /// What computes on it, as far as that is known.
        processes: &'a [GpuProcess],
    },
    /// MIG mode is on: ranks are placed on its slices, so many.
    Divided(u32),
    /// It has fallen off the bus: what it tells otherwise does not count.
    OffBus,
    /// These processes, at least one.
    Processes(&'a [GpuProcess]),
    /// It is in use, and no process is seen on it.
    Unseen {
        /// Memory in use, bytes, where the GPU tells.
        used: Option<u64>,
        /// Its memory, bytes, where it tells.
        total: Option<u64>,
        /// Utilisation in percent, where it tells.
        util: Option<u32>,
    },
    /// Something that decides is not known.
    Unknown {
        /// What, and why: `process list: insufficient permissions`.
        why: String,
    },
}

impl<'a> Occupancy<'a> {
    /// What is on a GPU, by its host's leases and its newest sample.
    pub fn of(
        gpu: &GpuInfo,
        leases: Option<&'a Leases>,
        sample: Option<&'a GpuSample>,
        free_memory: FreeMemory,
    ) -> Self {
        let processes = sample.map(|sample| &sample.processes);
        let seen = processes.and_then(Reading::value).map_or(&[][..], Vec::as_slice);
        // An agent tells leases before its first sample, so their absence beside a sample means that there are none.
        if let Some(lease) = leases.and_then(|leases| leases.of(&gpu.uuid)) {
            return Self::Leased { lease, processes: seen };
        }
        if let Some(slices) = gpu.slices {
            return Self::Divided(slices);
        }
        if !seen.is_empty() {
            return Self::Processes(seen);
        }
        let Some(sample) = sample else { return Self::unknown("no values of it have come") };
        // Before what is not known: memory in use decides whatever the process list would say.
        if let Some(unseen) = unseen(sample, free_memory) {
            return unseen;
        }
        let why = unknown("process list", &sample.processes)
            .or_else(|| failed("memory", &sample.memory_used))
            .or_else(|| limit_unknown(sample, free_memory));
        if let Some(why) = why {
            return Self::Unknown { why };
        }
        match leases.and_then(|leases| leases.fault.as_deref()) {
            Some(fault) => Self::unknown(&format!("leases: {fault}")),
            None => Self::Free,
        }
    }

    /// The same by what has happened to the GPU: one that has fallen off the bus is not free.
    #[must_use]
    pub fn unless_off_bus(self, is_off_bus: bool) -> Self {
        if is_off_bus && self.is_free() { Self::OffBus } else { self }
    }

    fn unknown(why: &str) -> Self {
        Self::Unknown { why: why.to_owned() }
    }

    /// Whether ranks may be placed on it.
    pub fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }

    /// Whether all that is on it is known to be of `user`, as whom hvtui works there.
    pub fn is_own(&self, user: &str) -> bool {
        let own = |processes: &[GpuProcess]| {
            processes.iter().all(|process| process.user.value().is_some_and(|name| name == user))
        };
        match self {
            Self::Leased { lease, processes } => lease.own && own(processes),
            Self::Processes(processes) => own(processes),
            Self::Free | Self::Divided(_) | Self::OffBus | Self::Unseen { .. } | Self::Unknown { .. } => {
                false
            }
        }
    }

    /// Who or what is on it. `age` says how long ago a moment of the host's clock was.
    pub fn words(&self, age: &dyn Fn(HostTime) -> Option<String>) -> String {
        match self {
            Self::Free => "free".to_owned(),
            Self::Leased { lease, processes } => {
                let age = lease.since.and_then(age).map(|age| format!(" for {age}")).unwrap_or_default();
                let what = process_words(processes).map(|words| format!(": {words}")).unwrap_or_default();
                format!("leased by {}{age}{what}", lease.holder())
            }
            Self::Divided(slices) => mig::words(*slices),
            Self::OffBus => "it has fallen off the bus".to_owned(),
            Self::Processes(processes) => process_words(processes).unwrap_or_default(),
            Self::Unseen { used, total, util } => {
                let memory = used.map(|used| match total {
                    Some(total) => memory_words(used, *total),
                    None => format!("{}iB of memory", units::bytes(used)),
                });
                let util = util.map(|util| format!("{util} %"));
                let what: Vec<String> = memory.into_iter().chain(util).collect();
                format!(
                    "{} in use by a process that is not visible to you, perhaps in a container",
                    what.join(" and ")
                )
            }
            Self::Unknown { why } => format!("it is not known whether it is free: {why}"),
        }
    }

    /// Who or what is on it, without the age and the processes: the same words for each GPU of one holder.
    pub fn who(&self) -> String {
        match self {
            Self::Leased { lease, .. } => format!("leased by {}", lease.holder()),
            Self::Processes([first, ..]) => user_of(first).to_owned(),
            other => other.words(&|_| None),
        }
    }

    /// Whether it is known who has it.
    pub fn has_holder(&self) -> bool {
        matches!(self, Self::Leased { .. } | Self::Processes(_))
    }
}

/// What to do about GPUs that others have.
pub const WAIT_FOR_THEM: &str = "wait for them with --wait";

/// Why ranks are not placed on the GPU at `place`, from the words for what is on it.
pub fn refusal(place: &str, words: &str, has_holder: bool) -> String {
    if has_holder { format!("{place} is busy: {words}") } else { format!("{place}: {words}") }
}

/// In use beyond the limit, though no process is seen.
fn unseen(sample: &GpuSample, free_memory: FreeMemory) -> Option<Occupancy<'static>> {
    let util = sample.util.value().copied();
    let total = sample.memory_total.value().copied();
    let in_use = match &sample.memory_used {
        Reading::Value(used) => free_memory.limit(total).is_some_and(|limit| *used > limit),
        // GPUs that share the host's memory have none of their own to tell of, and never will: for them the process
        // list decides, and that nothing computes. A reading that failed is another thing: it is not known.
        Reading::Unsupported => util.is_some_and(|util| util >= COMPUTING_UTIL),
        Reading::Failed { .. } => false,
    };
    let used = sample.memory_used.value().copied();
    in_use.then_some(Occupancy::Unseen { used, total, util })
}

fn unknown<T>(what: &str, reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Value(_) => None,
        Reading::Failed { error } => Some(format!("{what}: {error}")),
        Reading::Unsupported => Some(format!("{what}: the driver does not tell it")),
    }
}

fn failed<T>(what: &str, reading: &Reading<T>) -> Option<String> {
    unknown(what, reading).filter(|_| matches!(reading, Reading::Failed { .. }))
}

/// Memory in use that can't be held against a limit.
fn limit_unknown(sample: &GpuSample, free_memory: FreeMemory) -> Option<String> {
    let total = sample.memory_total.value().copied();
    sample.memory_used.value().filter(|_| free_memory.limit(total).is_none())?;
    unknown("memory", &sample.memory_total)
}

fn user_of(process: &GpuProcess) -> &str {
    process.user.value().map_or("someone", String::as_str)
}

/// The first process, and how many more there are.
fn process_words(processes: &[GpuProcess]) -> Option<String> {
    let first = processes.first()?;
    let user = user_of(first);
    let command = first.command.value().map_or("", String::as_str);
    let more = if processes.len() > 1 { format!(" and {} more", processes.len() - 1) } else { String::new() };
    let origin = first.origin().map(|origin| format!(", {origin}")).unwrap_or_default();
    Some(format!("{user} {command} (pid {}{origin}){more}", first.pid).replace("  ", " "))
}

/// `18 of 45 GiB`.
fn memory_words(used: u64, total: u64) -> String {
    let words = units::bytes_of(used, total).replacen('/', " of ", 1);
    if words.ends_with('B') { words } else { format!("{words}iB") }
}

#[cfg(test)]
#[path = "occupancy_tests.rs"]
mod tests;
