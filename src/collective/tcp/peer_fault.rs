//! What ends an operation half way, with the rank that this one waits for.

use super::super::error::CollectiveError;
use super::super::op::OpId;

/// What is the matter with another rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::collective) enum PeerFaultKind {
    /// Its connection closed.
    Lost,
    /// It does not take part in time.
    Stuck,
    /// It sent what belongs to no such operation: what was seen.
    Garbled(String),
    /// It is in this operation instead.
    Diverged(OpId),
}

/// «I can't go on because of that rank.»
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::collective) struct PeerFault {
    /// The rank complained of.
    pub(in crate::collective) about: u32,
    /// What is the matter with it.
    pub(in crate::collective) kind: PeerFaultKind,
    /// Frames that this rank had moved: the less, the nearer it is to the cause.
    pub(in crate::collective) progress: u64,
}

/// Why an operation ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::collective) enum Broken {
    /// This rank saw it first: it is to be told to rank 0, which knows who began it.
    #[error("rank {} is to blame: {:?}", .0.about, .0.kind)]
    PeerFault(PeerFault),
    /// Others saw it; nothing is to be added.
    #[error(transparent)]
    Told(#[from] CollectiveError),
}

impl PeerFault {
    /// As an error, seen after `progress` frames.
    pub(super) fn broken(about: u32, kind: PeerFaultKind, progress: u64) -> Broken {
        Broken::PeerFault(Self { about, kind, progress })
    }
}
