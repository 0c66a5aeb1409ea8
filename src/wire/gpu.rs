//! What an agent tells of its host's GPUs beside facts and samples.

use serde::{Deserialize, Serialize};

use crate::domain::gpu::event::GpuEvent;

/// What happened to a host's GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEventsTold {
    /// In the order in which they happened.
    pub events: Vec<GpuEvent>,
}
