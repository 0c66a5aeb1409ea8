//! Why a launch does not become a run. Exit codes are chosen by the command line alone.

use crate::domain::ids::HostId;

/// A launch that did not become a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LaunchError {
    /// What sort of reason.
    pub fault: LaunchFault,
    /// Lowercase sentence with the remedy.
    pub reason: String,
}

/// What keeps a launch from becoming a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchFault {
    /// It asks for what is not there, or contradicts itself.
    Usage,
    /// A host can't be reached.
    Unreachable,
    /// A host key or a credential was refused.
    Permission,
    /// A check of the doctor that it rests on is red.
    Unfit,
    /// Slots are held: the same may be possible later. Which ones and by whom, without a remedy.
    Busy(String),
    /// Nothing is wrong: hosts have not answered yet.
    Waiting,
    /// A fault of hvtui or of this machine.
    Internal,
}

impl LaunchError {
    /// A launch that can't be done for such a reason.
    pub fn new(fault: LaunchFault, reason: impl Into<String>) -> Self {
        Self { fault, reason: reason.into() }
    }

    /// A launch that can't be decided while these hosts have not answered.
    pub fn waiting_for(hosts: &[HostId]) -> Self {
        let hosts: Vec<&str> = hosts.iter().map(HostId::as_str).collect();
        Self::new(LaunchFault::Waiting, format!("waiting for {}", hosts.join(", ")))
    }

    /// A launch that asks for what is not there.
    pub fn usage(reason: impl Into<String>) -> Self {
        Self::new(LaunchFault::Usage, reason)
    }

    /// Whether nothing is wrong but that hosts have not answered yet.
    pub fn is_waiting(&self) -> bool {
        self.fault == LaunchFault::Waiting
    }

    /// Who has the slots, when that is all that is wrong.
    pub fn busy(&self) -> Option<&str> {
        match &self.fault {
            LaunchFault::Busy(held) => Some(held),
            _ => None,
        }
    }
}
