//! Who starts the ranks of a host where hvtui doesn't: a launcher such as mpirun on the first host, and on the other
//! hosts a node that carries out the launcher's orders.
//!
//! Plain data; knows nothing of processes. How mpirun's command line is built stands in [`super::mpirun`], how a
//! launcher's tagged output is split in [`super::tags`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::mpirun::MpiPlan;
use super::tags::TagStyle;

/// The variable that holds the port on which the first host waits for the nodes of the others.
pub const NODE_PORT: &str = "HVTUI_NODE_PORT";
/// The variable that names the run directory to whatever a launcher starts on a host.
pub const RUN_DIR: &str = "HVTUI_RUN_DIR";
/// For hvtui's `ssh`: what the launcher calls its own host.
pub const SSH_HERE: &str = "HVTUI_SSH_HERE";
/// For hvtui's `ssh`: the names of the nodes, joined by commas. Another host is none of the run's, and real ssh's.
pub const SSH_NODES: &str = "HVTUI_SSH_NODES";
/// torchrun's variable for the folder of its logs. Where a launcher has it, it is set to one in the run directory, which
/// goes with the launcher.
pub const TORCH_LOGS: &str = "PET_LOG_DIR";
/// The variable that names hvtui's own binary on a host.
pub const EXE: &str = "HVTUI_EXE";

/// What a host's supervisor starts beside, or instead of, the ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The launcher itself.
    Launcher(Launcher),
    /// A node that waits for the orders of the launcher on another host.
    Node(Node),
}

/// A program that starts ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launcher {
    /// What is executed.
    pub program: Program,
    /// Variables added to the agent's environment, for the launcher alone.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory; the home directory when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The names of the nodes that must be connected before it starts: what the launcher calls these hosts.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// How its output is split into ranks, where its ranks are no children of this host's supervisor. Without it each
    /// rank is started by the launcher as `hvtui rank-shim`, and its rank-wrap does the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<TagStyle>,
    /// What it calls its own host, where it is given a whole line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The nodes of the ranks that are on other hosts, where this launcher's output is split: what it says of them is
    /// handed on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub elsewhere: BTreeMap<Rank, String>,
}

/// What a launcher executes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// An MPI's mpirun, whose command line depends on what it says its version is.
    Mpi(MpiPlan),
    /// This program with these arguments.
    Argv(Vec<String>),
}

/// A host that carries out the orders of a launcher on another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What the launcher calls this host.
    pub name: String,
    /// Programs that the launcher starts here by name: `orted`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Variables added to the agent's environment, for what the launcher starts.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether it stands for this host's ranks, because the launcher's output is split into ranks: it writes what they
    /// print and how they ended, as the launcher tells it.
    #[serde(default)]
    pub stands: bool,
}

impl Engine {
    /// Whether each rank has a rank-wrap that waits for the launcher to start it.
    pub fn seats_ranks(&self) -> bool {
        !matches!(
            self,
            Self::Launcher(Launcher { tags: Some(_), .. }) | Self::Node(Node { stands: true, .. })
        )
    }

    /// Variables for the launcher or the node.
    pub fn env(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Launcher(launcher) => &launcher.env,
            Self::Node(node) => &node.env,
        }
    }

    /// The programs that must be found on the host.
    pub fn needs(&self) -> Vec<&str> {
        match self {
            Self::Launcher(Launcher { program: Program::Mpi(plan), .. }) => {
                // what is before it finds it
                vec![plan.before.first().unwrap_or(&plan.program).as_str()]
            }
            Self::Launcher(Launcher { program: Program::Argv(argv), .. }) => {
                argv.first().map(String::as_str).into_iter().collect()
            }
            Self::Node(node) => node.needs.iter().map(String::as_str).collect(),
        }
    }

    /// For messages: `mpirun`, `the node`.
    pub fn name(&self) -> String {
        match self {
            Self::Launcher(launcher) => {
                let program = match &launcher.program {
                    Program::Mpi(plan) => Some(&plan.program),
                    Program::Argv(argv) => argv.first(),
                };
                let program = program.map_or("the launcher", String::as_str);
                program.rsplit('/').next().unwrap_or(program).to_owned()
            }
            Self::Node(_) => "the node".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpirun_is_found_by_what_stands_before_it() {
        let engine = |before: &[&str]| {
            let before = before.iter().map(|word| (*word).to_owned()).collect();
            let plan = MpiPlan {
                program: "mpirun".to_owned(),
                world: 2,
                hosts: Vec::new(),
                interface: None,
                options: Vec::new(),
                before,
                line: Vec::new(),
            };
            Engine::Launcher(Launcher {
                program: Program::Mpi(plan),
                env: BTreeMap::new(),
                cwd: None,
                nodes: Vec::new(),
                tags: None,
                name: String::new(),
                elsewhere: BTreeMap::new(),
            })
        };
        assert_eq!(engine(&[]).needs(), ["mpirun"]);
        let behind = engine(&["uv", "run"]);
        assert_eq!((behind.needs(), behind.name().as_str()), (vec!["uv"], "mpirun"));
    }
}
