//! What may be done to have an agent on a host. Knows nothing of how it is done.

use std::sync::Arc;
use std::time::Duration;

use super::agents::Agents;
use super::binary::AgentBinary;

/// What may be done to have an agent on a host, and what to do without one.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The binaries that can be put there.
    pub agents: Arc<Agents>,
    /// A binary that is installed on the host: started as it is, nothing is put there. Absolute, or from `~/` on.
    pub agent_path: Option<String>,
    /// A folder on the host that may hold the agent, tried after the usual ones. Absolute, or from `~/` on.
    pub cache_dir: Option<String>,
    /// Whether a binary may be put on the host.
    pub install: bool,
    /// Where no agent can be had: telemetry of the host's own tools instead, at this pace. `None`: an error.
    pub telemetry: Option<TelemetryAsk>,
}

/// What a host without an agent is asked to tell of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryAsk {
    /// Time between two readings; whole seconds.
    pub every: Duration,
    /// What is asked of each GPU, in nvidia-smi's words joined by commas.
    pub gpu_fields: &'static str,
    /// What is asked of each process on a GPU, in nvidia-smi's words joined by commas.
    pub app_fields: &'static str,
}

impl Deployment {
    /// These binaries, put there when they are absent.
    pub fn new(agents: Arc<Agents>) -> Self {
        Self { agents, agent_path: None, cache_dir: None, install: true, telemetry: None }
    }
}

impl From<&AgentBinary> for Deployment {
    fn from(binary: &AgentBinary) -> Self {
        Self::new(Arc::new(Agents::only(binary.clone())))
    }
}

impl From<&Self> for Deployment {
    fn from(deployment: &Self) -> Self {
        deployment.clone()
    }
}
