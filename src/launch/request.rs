//! What a person asks for when launching: made by the command line and the Launch screen, turned into a
//! [`super::plan::LaunchPlan`] by the launcher once the hosts' slots are known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::remark::Remark;
use crate::domain::filter::Filter;
use crate::domain::ids::HostId;
use crate::domain::options::RunOptions;
use crate::domain::run::{JobKind, Placement, RunSpec, Slot};
use crate::domain::sync::Code;

/// The variable by which a process sees its GPUs. In a run's own variables it is empty where the launch hides them all.
pub const GPU_MASK: &str = "CUDA_VISIBLE_DEVICES";

/// A launch as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// `--name`.
    pub name: Option<String>,
    /// `--kind`; guessed from the command when absent.
    pub kind: Option<JobKind>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Where the ranks go.
    pub place: PlacementSpec,
    /// `--env`, values resolved.
    pub env: BTreeMap<String, String>,
    /// `--workdir`.
    pub workdir: Option<String>,
    /// How it is started otherwise.
    #[serde(default)]
    pub options: RunOptions,
    /// What is done when its GPUs are held.
    #[serde(default)]
    pub on_busy: OnBusy,
    /// What is done where its hosts lack what it rests on.
    #[serde(default)]
    pub on_red: OnRed,
    /// Whether it is a launcher's line that is started as it is: it takes no other number of ranks.
    #[serde(default)]
    pub single: bool,
    /// Whether it only asks something, such as `mpirun --version`: it takes no slot.
    #[serde(default)]
    pub query: bool,
    /// Which slots its ranks take where they are counted by host.
    #[serde(default)]
    pub only: Only,
    /// The `CUDA_VISIBLE_DEVICES` of a line: which slots its ranks take on a host with GPUs, where the launch names none
    /// itself; empty where it hides each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_mask: Option<String>,
    /// What the user should know about what was written, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    /// Which code it will execute, as far as that is known before its hosts are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The run that it launches once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
}

/// A past run whose code is compared with that of now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// The run, as people write it.
    pub run: String,
    /// What it executed.
    pub code: Code,
    /// A file on this machine that lists what was synced for it, where there is one.
    pub tree: Option<String>,
}

impl LaunchRequest {
    /// A launch of a command that says nothing else.
    pub fn of(command: Vec<String>) -> Self {
        Self {
            name: None,
            kind: None,
            command,
            place: PlacementSpec::Count(None),
            env: BTreeMap::new(),
            workdir: None,
            options: RunOptions::default(),
            on_busy: OnBusy::default(),
            on_red: OnRed::default(),
            single: false,
            query: false,
            only: Only::Any,
            gpu_mask: None,
            remarks: Vec::new(),
            code: None,
            since: None,
        }
    }

    /// Whether its ranks are to see no GPU: they take CPU slots, on hosts with GPUs too.
    pub fn hides_gpus(&self) -> bool {
        self.gpu_mask.as_ref().is_some_and(String::is_empty)
    }

    /// The GPUs that its line names, in this order; empty where it names none, or hides all.
    pub fn masked(&self) -> Vec<SlotName> {
        let list = self.gpu_mask.iter().flat_map(|mask| mask.split(','));
        list.filter_map(super::names::slot_name).collect()
    }

    /// How many ranks of `each` GPUs they are, where it names some.
    pub fn ranks_of_mask(&self, each: u32) -> Option<u32> {
        let gpus = self.masked().len() as u32;
        (gpus > 0).then(|| (gpus / each.max(1)).max(1))
    }

    /// The launch of a run once more: the same command on the same slots. Values of secret variables are looked up anew.
    pub fn again(spec: &RunSpec) -> Self {
        let pick = |placement: &Placement| {
            let host = placement.host.clone();
            let name = |slot: &Slot| match slot {
                Slot::Gpu { uuid, .. } => SlotName::Uuid(uuid.to_string()),
                Slot::Cpu { index } => SlotName::Index(*index),
            };
            placement.slots().map(|slot| Pick { host: host.clone(), slot: name(slot) }).collect::<Vec<_>>()
        };
        let mut env = spec.env.clone();
        let hides = env.remove(GPU_MASK).is_some_and(|mask| mask.is_empty());
        let place = if hides {
            // by number they would be the GPUs that it hid
            let ranks_on =
                |host: &HostId| spec.placements.iter().filter(|one| one.host == *host).count() as u32;
            let hosts = spec.hosts().into_iter().map(|host| (host.clone(), ranks_on(&host)));
            PlacementSpec::Hosts { hosts: hosts.collect(), np: None }
        } else {
            PlacementSpec::Picks(spec.placements.iter().flat_map(pick).collect())
        };
        Self {
            name: Some(spec.name.clone()),
            kind: Some(spec.kind),
            place,
            env,
            gpu_mask: hides.then(String::new),
            workdir: spec.workdir.clone(),
            options: spec.options.clone(),
            single: spec.options.delegate.as_ref().is_some_and(|launcher| !launcher.line.is_empty()),
            ..Self::of(spec.command.clone())
        }
    }
}

/// What is done where the doctor's checks that a launch rests on are red.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRed {
    /// The hosts are not asked: that was done already, or is not wanted.
    #[default]
    Unasked,
    /// It is not started.
    Refuse,
    /// It is started, and what is red is told.
    Ignore,
}

/// Which slots a rank may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Only {
    /// Those that the host has.
    #[default]
    Any,
    /// GPUs: `--nproc-per-node=gpu`.
    Gpus,
    /// CPU slots: `--nproc-per-node=cpu`.
    Cpus,
}

impl Only {
    /// Whether a slot is one of them.
    pub fn holds(self, slot: &Slot) -> bool {
        match self {
            Self::Any => true,
            Self::Gpus => matches!(slot, Slot::Gpu { .. }),
            Self::Cpus => matches!(slot, Slot::Cpu { .. }),
        }
    }
}

/// What a launch does when its GPUs are in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnBusy {
    /// `--share`: GPUs that the same user holds may be used too.
    pub share: bool,
    /// `--wait`: it starts when they are free.
    pub wait: Option<Patience>,
}

/// How long a launch waits for its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Patience {
    /// Until they are free.
    Endless,
    /// So many seconds.
    Seconds(u32),
}

/// In the place of a host's number of slots: all that it has.
pub const ALL_SLOTS: u32 = 0;

/// In the place of a host's number of slots: those that are free when the ranks are placed.
pub const FREE_SLOTS: u32 = u32::MAX;

/// Where the ranks of a launch go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlacementSpec {
    /// `-np N`: free slots of the first host in file order that holds all ranks, else the first N over all hosts, all GPUs
    /// or all CPU slots; every GPU when `None`, every CPU slot where there is no GPU.
    Count(Option<u32>),
    /// `-H a:2,b:2` or a host file: so many slots on each host, in this order; `np` of them when given.
    Hosts {
        /// Host and number of slots; [`ALL_SLOTS`] for those it has, [`FREE_SLOTS`] for the free ones (`--gpus a`).
        hosts: Vec<(HostId, u32)>,
        /// `-np`, when given beside it.
        np: Option<u32>,
    },
    /// `--nnodes N --nproc-per-node M`: the first N hosts in file order with M free slots that are not at risk, then those
    /// with M free slots.
    Nodes {
        /// Hosts.
        nodes: u32,
        /// Ranks on each; one on every free slot when `None`.
        each: Option<u32>,
    },
    /// `--free N`: the N free GPUs that suit each other best, of those that pass a filter.
    Free {
        /// Ranks.
        ranks: u32,
        /// How many of them on each host exactly.
        #[serde(default)]
        per_host: Option<u32>,
        /// `--filter`.
        #[serde(default)]
        filter: Filter,
    },
    /// Slots picked one by one: `--gpus a:0,1;b:GPU-uuid`, or the picks of the Cluster screen.
    Picks(Vec<Pick>),
}

impl PlacementSpec {
    /// The hosts that it names, each once.
    pub fn named(&self) -> Vec<HostId> {
        let mut ids: Vec<HostId> = match self {
            Self::Hosts { hosts, .. } => hosts.iter().map(|(id, _)| id.clone()).collect(),
            Self::Picks(picks) => picks.iter().map(|pick| pick.host.clone()).collect(),
            Self::Count(_) | Self::Nodes { .. } | Self::Free { .. } => Vec::new(),
        };
        ids.dedup();
        ids
    }
}

/// One picked slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pick {
    /// Its host.
    pub host: HostId,
    /// Which of its slots.
    pub slot: SlotName,
}

/// How a person names a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SlotName {
    /// By GPU index or CPU slot number.
    Index(u32),
    /// By GPU UUID.
    Uuid(String),
}
