//! Questions of a person to a host, and their answers: where processes are, what a launch would find, and that what a run has
//! left goes.

use serde::{Deserialize, Serialize};

use crate::domain::collectives::HostCollectives;
use crate::domain::ids::{HostId, RunId};
use crate::domain::preflight::Finding;
use crate::domain::run::HostRun;
use crate::domain::stacks::ProcessStacks;

/// Whose stacks are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskStacks {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// Those of every thread: only a look from outside tells them.
    #[serde(default)]
    pub threads: bool,
}

/// What the processes of a run on one host are doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// Each process of a rank that has not ended.
    pub of: Vec<ProcessStacks>,
    /// Why none could be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether those of every thread were asked for; agents before this field say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<bool>,
    /// Which collectives its processes have called; with the last message, of runs whose ranks record that.
    #[serde(default, skip_serializing_if = "HostCollectives::is_empty")]
    pub collectives: HostCollectives,
    /// Whether nothing more comes.
    pub last: bool,
}

/// What became of a request to delete what a run has left on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// Why it is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A launch that is still being written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskPreflight {
    /// The number that its answer bears.
    pub ask: u64,
    /// The host's share of it.
    pub spec: HostRun,
    /// Whether the folder that the ranks work in is copied at the start.
    #[serde(default)]
    pub copied: bool,
}

/// What a launch would find on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preflight {
    /// The number of the question.
    pub ask: u64,
    /// The host's name in it.
    pub host: HostId,
    /// What it found.
    pub findings: Vec<Finding>,
}
