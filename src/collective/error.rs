//! Everything that can go wrong between ranks, with the rank that is to blame.

use std::net::SocketAddr;

use super::op::OpId;

/// Why a meeting or an operation failed. Names operation, sequence number and the rank concerned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// The configuration can't be right.
    #[error("{0}")]
    Config(String),
    /// A rank number outside the group.
    #[error("there is no rank {rank} among {world} ranks")]
    NoSuchRank {
        /// The number asked for.
        rank: u32,
        /// Ranks in the group.
        world: u32,
    },
    /// A port could not be opened.
    #[error("rank {rank} can't listen on {address}: {reason}")]
    Listen {
        /// This rank.
        rank: u32,
        /// Where.
        address: String,
        /// The system's words.
        reason: String,
    },
    /// A name has no address.
    #[error("MASTER_ADDR '{name}' has no address here: {reason}")]
    Resolve {
        /// The name.
        name: String,
        /// The system's words.
        reason: String,
    },
    /// Ranks did not come to the rendezvous in time.
    #[error("{} did not come to the rendezvous on {address} within {seconds} s; look at their logs, and whether they can reach that address", ranks_text(.ranks))]
    Missing {
        /// Those not seen.
        ranks: Vec<u32>,
        /// Rank 0's address.
        address: String,
        /// The deadline.
        seconds: u64,
    },
    /// A rank could not be reached in time.
    #[error("rank {from} could not reach rank {to} on {address} within {seconds} s: {reason}")]
    Unreachable {
        /// This rank.
        from: u32,
        /// The other.
        to: u32,
        /// Its address.
        address: SocketAddr,
        /// The deadline.
        seconds: u64,
        /// What the last attempt ended with.
        reason: String,
    },
    /// The other side does not accept this rank's proof.
    #[error(
        "rank {to} on {address} refused rank {from}: HVTUI_SECRET, WORLD_SIZE or RANK differ from what it expects"
    )]
    Refused {
        /// This rank.
        from: u32,
        /// The other.
        to: u32,
        /// Its address.
        address: SocketAddr,
    },
    /// A rank went away.
    #[error("{op}: rank {rank} is gone (its connection closed); its log says why")]
    PeerLost {
        /// The operation under way.
        op: OpId,
        /// Who went.
        rank: u32,
    },
    /// A rank did not take part in time.
    #[error(
        "{op}: {} did not take part within {seconds} s: stuck, stopped, or still at an earlier step", ranks_text(.ranks)
    )]
    Stalled {
        /// The operation under way.
        op: OpId,
        /// Who is late; at least one.
        ranks: Vec<u32>,
        /// The deadline.
        seconds: u64,
    },
    /// Ranks do different things.
    #[error("rank {rank} is in {theirs}, but rank {other} in {ours}: the ranks have diverged")]
    Diverged {
        /// Who differs.
        rank: u32,
        /// What it does.
        theirs: OpId,
        /// From whom it differs.
        other: u32,
        /// What that one does.
        ours: OpId,
    },
    /// A rank sent bytes that make no sense.
    #[error("{op}: rank {rank} sent what belongs to no such operation ({what})")]
    Garbled {
        /// The operation under way.
        op: OpId,
        /// Who sent it.
        rank: u32,
        /// What was seen.
        what: String,
    },
    /// The group ended while an operation of it was under way.
    #[error("the group was dropped before this operation was done")]
    Abandoned,
    /// The system refused something on this side.
    #[error("rank {rank}: {what}: {reason}")]
    System {
        /// This rank.
        rank: u32,
        /// What was tried.
        what: &'static str,
        /// The system's words.
        reason: String,
    },
}

impl CollectiveError {
    /// The rank to blame, where there is one.
    pub fn culprit(&self) -> Option<u32> {
        match self {
            Self::Missing { ranks, .. } | Self::Stalled { ranks, .. } => ranks.first().copied(),
            Self::Unreachable { to, .. } | Self::Refused { to, .. } => Some(*to),
            Self::PeerLost { rank, .. } | Self::Diverged { rank, .. } | Self::Garbled { rank, .. } => {
                Some(*rank)
            }
            Self::Config(_)
            | Self::Abandoned
            | Self::NoSuchRank { .. }
            | Self::Listen { .. }
            | Self::Resolve { .. }
            | Self::System { .. } => None,
        }
    }
}

fn ranks_text(ranks: &[u32]) -> String {
    let names: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    let more = ranks.len().saturating_sub(8);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("rank{} {}{tail}", if ranks.len() == 1 { "" } else { "s" }, names.join(", "))
}
