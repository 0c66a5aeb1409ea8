//! Who holds a GPU for a run, and who waits for one: what a host's agent tells every client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gpu::GpuInfo;
use super::ids::{GpuUuid, Rank, RunId};
use super::time::HostTime;

/// A GPU that is held for a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The GPU.
    pub gpu: GpuUuid,
    /// Login name of its holder, the uid where it has none; `None` when that is unknown.
    pub user: Option<String>,
    /// Whether it belongs to the user under whom the agent runs.
    pub own: bool,
    /// The process that holds it.
    #[serde(default)]
    pub pid: Option<u32>,
    /// What that process was started with, where no run is told; `[has ended]` where it took the lock and another one keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The run, where the holder says so.
    #[serde(default)]
    pub run: Option<RunId>,
    /// The run's name.
    #[serde(default)]
    pub name: Option<String>,
    /// The rank.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// Since when, on the host's clock.
    #[serde(default)]
    pub since: Option<HostTime>,
}

impl Lease {
    /// A lease of which nothing is known.
    pub fn unknown(gpu: impl Into<GpuUuid>) -> Self {
        Self {
            gpu: gpu.into(),
            user: None,
            own: false,
            pid: None,
            command: None,
            run: None,
            name: None,
            rank: None,
            since: None,
        }
    }

    /// `li for run 7QK2 (mnist)`, without what is not known; `li (pid 7: python3 hold.py)` where no run is told.
    pub fn holder(&self) -> String {
        let user = self.user.as_deref().unwrap_or("someone");
        let run = self.run.as_ref().map(|run| format!(" for run {}", run.short())).unwrap_or_default();
        let name = self.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let pid = self.pid.filter(|_| self.run.is_none());
        let command = self.command.as_ref().map(|command| format!(": {command}")).unwrap_or_default();
        let pid = pid.map(|pid| format!(" (pid {pid}{command})")).unwrap_or_default();
        format!("{user}{run}{name}{pid}")
    }
}

/// A launch that waits until GPUs are free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Its id: the smaller one came first.
    pub id: RunId,
    /// Login name of who waits.
    pub user: String,
    /// Whether it is the user under whom the agent runs.
    pub own: bool,
    /// The name of the run that shall start.
    pub name: String,
    /// The GPUs that it may take.
    pub gpus: Vec<GpuUuid>,
}

/// All leases of a host, and its queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// GPUs that are held, at most one entry each.
    #[serde(default)]
    pub held: Vec<Lease>,
    /// Runs that use GPUs beside the one that holds them, of the same user (`--share`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Lease>,
    /// Who waits, first come first.
    #[serde(default)]
    pub queue: Vec<Ticket>,
    /// Why leases can't be told or taken there, with the remedy.
    #[serde(default)]
    pub fault: Option<String>,
}

impl Leases {
    /// The lease of a GPU.
    pub fn of(&self, gpu: &GpuUuid) -> Option<&Lease> {
        self.held.iter().find(|lease| lease.gpu == *gpu)
    }

    /// The holder of a GPU has its MIG slices too: the lease may be older than they are.
    pub fn extend_to_slices(&mut self, gpus: &[GpuInfo]) {
        for slice in gpus {
            let whole = gpus.iter().find(|gpu| Some(gpu.index) == slice.parent);
            if let Some(lease) =
                whole.filter(|_| self.of(&slice.uuid).is_none()).and_then(|gpu| self.of(&gpu.uuid))
            {
                let lease = Lease { gpu: slice.uuid.clone(), ..lease.clone() };
                self.held.push(lease);
            }
        }
    }
}

/// What one host's share of a run needs held before it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasePlan {
    /// Where the host's lease files lie; the host's own choice when absent.
    #[serde(default)]
    pub dir: Option<String>,
    /// Whether GPUs that are held by the same user already may be used too.
    #[serde(default)]
    pub share: bool,
    /// The GPUs, each with the rank that it is for.
    #[serde(default)]
    pub held: BTreeMap<GpuUuid, Rank>,
    /// Of those that are MIG slices the GPU that each is a slice of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slice_of: BTreeMap<GpuUuid, GpuUuid>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slices_of_a_gpu_that_is_leased_are_leased() {
        let lease = |gpu: &str, pid| Lease { pid: Some(pid), ..Lease::unknown(gpu) };
        let gpu =
            |index, uuid: &str, parent| GpuInfo { uuid: uuid.into(), parent, ..GpuInfo::unknown(index) };
        let gpus = [
            gpu(0, "GPU-0", None),
            gpu(100, "MIG-0", Some(0)),
            gpu(101, "MIG-1", Some(0)),
            gpu(1, "GPU-1", None),
            gpu(200, "MIG-2", Some(1)),
        ];
        let held = vec![lease("GPU-0", 7), lease("MIG-1", 8)];
        let mut leases = Leases { held, ..Leases::default() };
        leases.extend_to_slices(&gpus);
        let pid = |uuid: &str| leases.of(&uuid.into()).and_then(|lease| lease.pid);
        assert_eq!(
            gpus.each_ref().map(|gpu| pid(gpu.uuid.as_str())),
            [Some(7), Some(7), Some(8), None, None]
        );
    }

    #[test]
    fn a_holder_is_told_as_far_as_it_is_known() {
        let mut lease = Lease::unknown("GPU-1");
        assert_eq!(lease.holder(), "someone");
        lease.user = Some("li".to_owned());
        lease.pid = Some(7);
        assert_eq!(lease.holder(), "li (pid 7)");
        lease.command = Some("python3 hold.py".to_owned());
        assert_eq!(lease.holder(), "li (pid 7: python3 hold.py)");
        let run = RunId::new(1, 2);
        lease.name = Some("mnist".to_owned());
        lease.run = Some(run.clone());
        assert_eq!(lease.holder(), format!("li for run {} (mnist)", run.short()));
    }
}
