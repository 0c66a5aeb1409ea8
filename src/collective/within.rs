//! Operations within one host, after their barrier.

use super::element::Span;
use super::error::CollectiveError;
use super::job::Task;
use super::op::OpKind;
use super::shm::{Host, Look};

/// All ranks are here, and their small values on the board.
pub(super) fn small(host: &mut Host, task: Task, bytes: &mut [u8], me: usize) {
    let Task { op, fold } = task;
    let (what, len, ranks) = ((fold.dtype, fold.how), bytes.len(), host.ranks());
    match op.kind {
        OpKind::Barrier => {}
        OpKind::Allreduce { .. } => host.reduce_small(what, fold.finish, bytes, 0, len),
        OpKind::ReduceScatter { .. } => {
            let own = task.chunk(me, ranks);
            host.reduce_small(what, fold.finish, &mut bytes[own.clone()], own.start, len);
        }
        OpKind::Allgather { .. } => {
            for rank in (0..ranks).filter(|rank| *rank != me) {
                let theirs = task.chunk(rank, ranks);
                host.copy_small(rank, &mut bytes[theirs.clone()], theirs.start, len);
            }
        }
        OpKind::Broadcast { root, .. } => {
            if root as usize != me {
                host.copy_small(root as usize, bytes, 0, len);
            }
        }
    }
}

/// Many bytes on one host.
#[expect(unsafe_code, reason = "values that no other rank works on are a slice")]
pub(super) fn large(
    host: &mut Host,
    task: Task,
    values: Span,
    located: bool,
    look: &mut dyn Look,
) -> Result<(), CollectiveError> {
    let Task { op, fold } = task;
    let (what, ranks) = ((fold.dtype, fold.how), host.ranks());
    match op.kind {
        OpKind::Barrier => Ok(()),
        OpKind::Allreduce { .. } if located => host.allreduce_direct(what, fold.finish, values.len(), look),
        // SAFETY: what is not located is worked on by its rank alone.
        OpKind::Allreduce { .. } => host.allreduce_staged(what, fold.finish, unsafe { values.bytes() }, look),
        OpKind::ReduceScatter { .. } => {
            let own = task.chunk(host.me(), ranks);
            host.reduce_scatter_direct(what, fold.finish, own, look)
        }
        OpKind::Allgather { .. } => host.allgather_direct(&|rank| task.chunk(rank, ranks), look),
        OpKind::Broadcast { root, .. } => host.broadcast_direct(root as usize, values.len(), look),
    }
}
