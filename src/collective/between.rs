//! Operations between hosts, after the barrier: what leaders exchange, and what goes around the rings.

use std::ops::Range;

use super::config::GroupConfig;
use super::connect::Layout;
use super::element::{DType, Reduce, Span};
use super::error::CollectiveError;
use super::job::{Job, Task};
use super::kernels::Finish;
use super::op::OpKind;
use super::shm::{Host, part};
use super::tcp::{DeadlineState, Fold, HostRing, SliceHandler};

/// How leaders join the `len` bytes that they bring, and how many bytes they exchange for that: reductions by their own
/// rule, the rest as bits among zeros. Bits are joined as integers, for which zeros may follow them.
pub(super) fn joined(task: Task, len: usize) -> (Fold, usize) {
    match task.op.kind {
        OpKind::Allgather { .. } | OpKind::Broadcast { .. } => {
            let fold = Fold { dtype: DType::I64, how: Reduce::Sum, finish: Finish::Keep };
            (fold, len.next_multiple_of(DType::I64.size()))
        }
        _ => (task.fold, len),
    }
}

/// Puts among zeros what one rank that is alone on its host brings to the leaders.
pub(super) fn placed(task: Task, bytes: &[u8], all: &mut [u8], config: &GroupConfig) {
    let own = task.brought(config.rank as usize, config.world as usize, bytes.len());
    all[own.clone()].copy_from_slice(&bytes[own]);
}

/// Puts among zeros what the ranks of a host bring together.
pub(super) fn gathered(host: &mut Host, layout: &Layout, task: Task, all: &mut [u8], config: &GroupConfig) {
    let len = all.len();
    if matches!(task.op.kind, OpKind::Allreduce { .. } | OpKind::ReduceScatter { .. }) {
        host.reduce_small((task.fold.dtype, task.fold.how), Finish::Keep, all, 0, len);
        return;
    }
    let (at, _) = layout.place(config.rank);
    for (place, rank) in layout.hosts[at].iter().enumerate() {
        let theirs = task.brought(*rank as usize, config.world as usize, len);
        host.copy_small(place, &mut all[theirs.clone()], theirs.start, len);
    }
}

/// One slice of a buffer, on its way around the hosts.
struct Slice<'a, 'b> {
    host: Option<&'a Host>,
    /// This rank's own memory of the slice, on which no other works.
    memory: Span,
    /// Where the slice begins in the buffer.
    from: usize,
    what: (DType, Reduce),
    /// Whether the ranks of a host are to be added up first.
    reduces: bool,
    job: &'a mut Job<'b>,
}

impl SliceHandler for Slice<'_, '_> {
    #[expect(unsafe_code, reason = "the slice that this rank drives")]
    fn memory(&mut self) -> &mut [u8] {
        // SAFETY: of this rank's values nothing else works on the slices it drives; `prepare` and `finish`, which reach the
        // same bytes by pointers, are not called while the result is borrowed.
        unsafe { self.memory.bytes() }
    }

    fn prepare(&mut self, range: Range<usize>) {
        if let Some(host) = self.host
            && self.reduces
        {
            host.reduce_into_own(self.what, Finish::Keep, self.from + range.start..self.from + range.end);
        }
    }

    fn finish(&mut self, range: Range<usize>) {
        if let Some(host) = self.host {
            host.spread(self.from + range.start..self.from + range.end);
        }
    }

    fn tick(&mut self) -> Result<DeadlineState, CollectiveError> {
        self.job.tick()
    }
}

/// Many bytes between hosts: each driver takes its slices around, and then the host's ranks wait for each other.
pub(super) fn large(
    mut host: Option<&mut Host>,
    rings: &mut [(usize, HostRing)],
    task: Task,
    values: Span,
    job: &mut Job<'_>,
) -> Result<(), CollectiveError> {
    let Task { op, fold } = task;
    let slices = job.layout.slices();
    let world = job.config.world as usize;
    let mine = job.layout.place(job.config.rank);
    // The root's host gathers what its root brings before the slices start from there.
    if let (OpKind::Broadcast { root, .. }, Some(host)) = (op.kind, host.as_deref_mut()) {
        let (at, place) = job.layout.place(root);
        if at == mine.0 {
            host.broadcast_direct(place, values.len(), job)?;
        }
    }
    if let (OpKind::Allgather { .. }, Some(host)) = (op.kind, host.as_deref_mut()) {
        let ranks = job.layout.hosts[mine.0].clone();
        host.allgather_direct(&|place| task.chunk(ranks[place] as usize, world), job)?;
    }
    for (slice, ring) in rings {
        let range = part(*slice, slices, values.len());
        let memory = values.part(range.clone());
        let what = (fold.dtype, fold.how);
        let reduces = matches!(op.kind, OpKind::Allreduce { .. } | OpKind::ReduceScatter { .. });
        let layout = job.layout;
        let mut handler = Slice { host: host.as_deref(), memory, from: range.start, what, reduces, job };
        let outcome = match op.kind {
            OpKind::Barrier => Ok(()),
            OpKind::Allreduce { .. } | OpKind::ReduceScatter { .. } => ring.allreduce(op, fold, &mut handler),
            OpKind::Broadcast { root, .. } => ring.broadcast(op, layout.place(root).0, &mut handler),
            OpKind::Allgather { .. } => {
                let clip = |rank: &u32| {
                    let bytes = task.chunk(*rank as usize, world);
                    let (start, end) = (bytes.start.max(range.start), bytes.end.min(range.end));
                    (start < end).then(|| start - range.start..end - range.start)
                };
                let blocks: Vec<Vec<Range<usize>>> =
                    layout.hosts.iter().map(|ranks| ranks.iter().filter_map(clip).collect()).collect();
                ring.allgather(op, &blocks, &mut handler)
            }
        };
        outcome.map_err(|broken| job.broken(broken))?;
    }
    match host {
        Some(host) => host.sync(job),
        None => Ok(()),
    }
}
