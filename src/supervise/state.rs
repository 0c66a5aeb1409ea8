//! What the files of a run directory hold, and their names.
//!
//! Each fact has one writer: the supervisor writes [`State`], [`StopMark`] and the spec; a rank-wrap writes
//! its rank's [`Started`] and exit. Agents only read, but for the [numbers](super::numbering) of a file that its rank has emptied.
//! None of them holds a secret.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::time::HostTime;
use crate::procs::identity::Identity;

/// The run's share of this host: a `HostRun`.
pub const SPEC: &str = "spec.json";
/// Where the supervisor is: a [`State`]. Its creation claims the run, once and for all.
pub const STATE: &str = "state.json";
/// There once the ranks were told to stop: a [`StopMark`].
pub const STOP: &str = "stop.json";
/// Touched as long as a client follows a run that may be silent for a limited time.
pub const ATTENDED: &str = "attended";
/// What the host and its GPUs did, see [`samples`](super::samples).
pub const SAMPLES: &str = "host.samples";
/// What the supervisor has to say.
pub const LOG: &str = "supervisor.log";

/// `rank-3.out`: a file that the rank appends to.
pub fn stream_file(rank: Rank, stream: Stream) -> String {
    format!("rank-{rank}.{}", stream.extension())
}

/// `rank-3.times`: how long the rank's output was at which moment, see [`times`](super::times).
pub fn times_file(rank: Rank) -> String {
    format!("rank-{rank}.times")
}

/// `started-3.json`: the rank's process, a [`Started`].
pub fn started_file(rank: Rank) -> String {
    format!("started-{rank}.json")
}

/// `exit-3.json`: how the rank ended, a `RankExit`.
pub fn exit_file(rank: Rank) -> String {
    format!("exit-{rank}.json")
}

/// `hidden-3.json`: where the rank's files hold values of secret variables, a
/// [`Hidden`](super::secrets::Hidden).
pub fn hidden_file(rank: Rank) -> String {
    format!("hidden-{rank}.json")
}

/// The version of this hvtui, as [`State::version`] has it.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where a supervisor is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// How far it has come.
    pub phase: Phase,
    /// The supervisor's process.
    pub supervisor: Identity,
    /// Each rank's rank-wrap.
    pub wraps: BTreeMap<Rank, Identity>,
    /// Processes that even KILL did not end: they hang in the kernel.
    #[serde(default)]
    pub left: Vec<String>,
    /// How many supervisors the run had before this one.
    #[serde(default)]
    pub generation: u64,
    /// The control group of the ranks, where there is one.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// The wrapper of the launcher or the node that starts the ranks, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Identity>,
    /// Which hvtui the supervisor is of: the one to use where another can't read the run's files. Empty in the files of those
    /// that did not tell.
    #[serde(default)]
    pub version: String,
}

#[cfg(test)]
impl State {
    /// That of a run without ranks.
    pub(crate) fn of_test(phase: Phase, supervisor: Identity) -> Self {
        let (wraps, left) = (BTreeMap::new(), Vec::new());
        let version = VERSION.to_owned();
        Self { phase, supervisor, wraps, left, generation: 0, cgroup: None, engine: None, version }
    }
}

/// How far a supervisor has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It starts the ranks.
    Starting,
    /// Every rank-wrap was started.
    Running,
    /// The ranks were told to stop.
    Stopping,
    /// Nothing of the run is left, but for [`State::left`].
    Ended,
}

/// A rank's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The process.
    pub process: Identity,
    /// When it was started.
    pub t: HostTime,
    /// Whether it was born in the run's control group, as all that it starts then is.
    #[serde(default)]
    pub grouped: bool,
}

/// That the ranks were told to stop, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopMark {
    /// For people: `rank 1 failed: exit 3`.
    pub why: String,
    /// When.
    pub t: HostTime,
    /// Without grace: by KILL alone.
    #[serde(default)]
    pub now: bool,
    /// Ranks that had ended before; those of earlier versions tell none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Rank>,
}
