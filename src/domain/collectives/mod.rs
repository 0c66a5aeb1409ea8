//! What the ranks of a run have called of their collectives, and where they differ: told by the flight recorder in torch
//! ([`dump`]) and by NCCL's RAS ([`ras`]), judged by [`verdict`]. Names of collectives and process groups, and numbers:
//! nothing else of a dump or an answer comes here.

pub mod dump;
pub mod ras;
pub mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::{HostId, Rank};
use super::run::RunSpec;
use super::time::Stamp;
use ras::RasAnswer;

/// Programs that put what they start into a container, where the run's directory may not be.
const CONTAINERS: [&str; 10] = [
    "apptainer",
    "singularity",
    "docker",
    "podman",
    "nerdctl",
    "enroot",
    "shifter",
    "udocker",
    "ch-run",
    "nvidia-docker",
];
/// Processes that are kept of one host.
pub const PROCESSES: usize = 1024;
/// What is kept of what a host told of its processes, bytes of memory, about.
const BYTES: usize = 4 << 20;

/// Whether the ranks of a run get a flight recorder: those with a GPU do. In a container torch would not find the
/// folder for its pipe, and ends when it can't make it.
pub fn are_recorded(spec: &RunSpec) -> bool {
    spec.placements.iter().any(|placement| placement.gpus().next().is_some())
        && !spec.command.iter().any(|word| is_container(word))
}

fn is_container(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    CONTAINERS.contains(&name) || name.starts_with("--container-image")
}

/// What a host has found out about the collectives of its part of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCollectives {
    /// Its processes that have a flight recorder, or should have one.
    pub processes: Vec<ProcessCollectives>,
    /// What NCCL says of the whole run, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ras: Option<RasAnswer>,
}

impl HostCollectives {
    /// Every text in it that a process or NCCL has written.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let of_processes = self.processes.iter_mut().flat_map(|process| {
            let groups = process.groups.iter_mut().flat_map(GroupCalls::texts_mut);
            groups.chain(&mut process.lacks)
        });
        let of_nccl = self.ras.iter_mut().flat_map(|answer| {
            let functions = answer.differences.iter_mut().map(|one| &mut one.function);
            std::iter::once(&mut answer.version).chain(functions)
        });
        of_processes.chain(of_nccl)
    }

    /// Roughly the bytes of memory that it takes.
    pub fn weight(&self) -> usize {
        let groups = self.processes.iter().flat_map(|process| &process.groups);
        let groups: usize = groups.map(|group| 128 + group.members.len() + 128 * group.calls.len()).sum();
        groups + 128 * self.processes.len() + self.ras.as_ref().map_or(0, |answer| 512 * answer.weight())
    }

    /// Whether it tells nothing at all.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.ras.is_none()
    }
}

/// The collectives of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCollectives {
    /// The rank.
    pub rank: Rank,
    /// Its number in the training, where that is not the rank's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// What it has called in each process group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupCalls>,
    /// Whether its recorder still had its first call: then a group that is not here has had none.
    #[serde(default)]
    pub is_whole: bool,
    /// Why there is nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

impl ProcessCollectives {
    /// `3`, `0·3` of a process within rank 0.
    pub fn name(&self) -> String {
        match self.worker {
            None => self.rank.to_string(),
            Some(worker) => format!("{}·{worker}", self.rank),
        }
    }

    /// Its number in the training.
    pub fn number(&self) -> u32 {
        self.worker.unwrap_or(self.rank.0)
    }
}

/// The newest calls of one process in one process group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCalls {
    /// The group's name, mostly a number.
    pub name: String,
    /// What the program calls it; `default_pg` for the group of all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Who is in it, by number in the training: `0-3, 6`. Empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub members: String,
    /// The number of its last collective, from 1; 0 before the first.
    pub last: u64,
    /// Calls around the first one that has not ended, and the last one.
    pub calls: Vec<Call>,
}

impl GroupCalls {
    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let calls = self.calls.iter_mut().flat_map(|call| [&mut call.name, &mut call.dtype]);
        [&mut self.name, &mut self.description].into_iter().chain(calls)
    }
}

/// One call of a collective.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its number in the group, from 1. Sends and receives are counted apart.
    pub number: u64,
    /// What was called, as torch names it: `all_reduce`.
    pub name: String,
    /// How far it is.
    pub state: CallState,
    /// Whether it is a send or a receive between two.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_p2p: bool,
    /// Numbers that went in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<u64>,
    /// Their type: `f32`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dtype: String,
    /// Further calls that travel under the same number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How far a call is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It was called, and nothing is known of its beginning.
    #[default]
    Scheduled,
    /// The GPU has begun it.
    Started,
    /// It has ended.
    Done,
}

/// What was told last of the collectives of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    hosts: BTreeMap<HostId, (Stamp, HostCollectives)>,
    words: Vec<String>,
}

/// Answers that are older than the newest one by more than this tell of another moment, microseconds.
const SAME_MOMENT_US: i64 = 30_000_000;

impl Collected {
    /// Takes what a host has told of a run of so many ranks, in place of what it told before. Of a process that tells
    /// nothing any more, for it has ended, what it told stays.
    pub fn take(&mut self, at: Stamp, host: &HostId, mut told: HostCollectives, ranks: u32) {
        if let Some((_, before)) = self.hosts.remove(host) {
            let name = |process: &ProcessCollectives| (process.rank, process.worker);
            for process in before.processes.into_iter().filter(|process| process.lacks.is_none()) {
                let has_room = told.processes.len() < PROCESSES && told.weight() < BYTES;
                match told.processes.iter_mut().find(|now| name(now) == name(&process)) {
                    Some(now) if now.lacks.is_some() => *now = process,
                    None if has_room => told.processes.push(process),
                    _ => {}
                }
            }
            told.processes.sort_by_key(name);
            told.ras = told.ras.or(before.ras);
        }
        self.hosts.insert(host.clone(), (at, told));
        self.words = self.judged(ranks);
    }

    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// What of it belongs to the moment of the newest answer.
    fn newest(&self) -> impl Iterator<Item = &HostCollectives> {
        let newest = self.hosts.values().map(|(at, _)| *at).max().unwrap_or_default();
        let is_new = move |at: Stamp| newest.micros_since(at) <= SAME_MOMENT_US;
        self.hosts.values().filter(move |(at, _)| is_new(*at)).map(|(_, told)| told)
    }

    /// The processes that told something, or why they do not.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessCollectives> {
        self.newest().flat_map(|told| &told.processes)
    }

    /// What NCCL says of a run of so many ranks, by the host that knows most.
    pub fn ras(&self) -> Option<&RasAnswer> {
        self.newest().filter_map(|told| told.ras.as_ref()).max_by_key(|answer| answer.weight())
    }

    /// Where the ranks differ, in sentences; none where nothing waits.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    fn judged(&self, ranks: u32) -> Vec<String> {
        let by_torch = verdict::of(self.processes(), ranks).into_iter().map(|verdict| verdict.text);
        let by_nccl = self.ras().and_then(|answer| answer.words(ranks));
        by_torch.chain(by_nccl.map(|words| format!("NCCL RAS: {words}"))).collect()
    }
}

#[cfg(test)]
mod tests;
