//! What the ring works on, and how values become one.

use std::ops::Range;

use super::super::element::{DType, Reduce};
use super::super::error::CollectiveError;
use super::super::kernels::{self, Finish};

/// How two buffers become one.
#[derive(Debug, Clone, Copy)]
pub(in crate::collective) struct Fold {
    /// What the values are.
    pub(in crate::collective) dtype: DType,
    /// How they are reduced.
    pub(in crate::collective) how: Reduce,
    /// What is done to the reduction at the end.
    pub(in crate::collective) finish: Finish,
}

impl Fold {
    /// `later` becomes `earlier ⊕ later`; when these are the `last` two, the end is made too.
    pub(super) fn combine(self, later: &mut [u8], earlier: &[u8], last: bool) {
        let finish = if last { self.finish } else { Finish::Keep };
        kernels::combine(self.dtype, self.how, finish, later, earlier);
    }
}

/// Whether there is still time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collective) enum DeadlineState {
    /// Go on waiting.
    NotReached,
    /// The deadline has passed: blame whom you wait for.
    Passed,
}

/// One rank's slice of the buffer, in bytes.
pub(in crate::collective) trait SliceHandler {
    /// The slice, aligned to its values. Results end here.
    fn memory(&mut self) -> &mut [u8];
    /// Called once for each range to which this host contributes, before it is first used: puts the host's own
    /// reduction of it there.
    fn prepare(&mut self, range: Range<usize>);
    /// Called once for each range, when it is final: hands it on to the other ranks of this host.
    fn finish(&mut self, range: Range<usize>);
    /// Called at least every 20 ms while the operation lasts: verdicts, deadlines.
    fn tick(&mut self) -> Result<DeadlineState, CollectiveError>;
}
