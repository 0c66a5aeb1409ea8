//! What a training job asks of a collective, whatever carries the bytes.

use std::ops::Range;

use super::buffer::{Buffer, Work};
use super::element::{Element, Reduce, Values};
use super::error::CollectiveError;
use super::flight::Flight;
use super::op::{OpTiming, Transport};

/// A group of ranks that act together. Calls must be made by all ranks, in the same order, with the same
/// lengths, kinds and ways of reduction; who diverges is named to all. After an error the group is unusable, because
/// what is in flight is unknown: start the run anew.
///
/// Jobs use the typed methods of [`Collective`], which every communicator has.
pub trait Communicator: Send {
    /// This rank's number, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn world(&self) -> u32;

    /// How bytes travel.
    fn transport(&self) -> Transport;

    /// Replaces the values by their reduction over all ranks; bit-equal on all ranks, in an order of addition that
    /// depends on the placement of the ranks and the length alone.
    fn allreduce_values(&mut self, values: Values<'_>, how: Reduce) -> Result<OpTiming, CollectiveError>;

    /// Like an allreduce, but only this rank's [`chunk`] is sure to hold the result; the rest is undefined.
    fn reduce_scatter_values(&mut self, values: Values<'_>, how: Reduce)
    -> Result<OpTiming, CollectiveError>;

    /// Replaces every rank's [`chunk`] of the values by that rank's.
    fn allgather_values(&mut self, values: Values<'_>) -> Result<OpTiming, CollectiveError>;

    /// Replaces the values by rank `root`'s.
    fn broadcast_values(&mut self, root: u32, values: Values<'_>) -> Result<OpTiming, CollectiveError>;

    /// Returns when all ranks have called it.
    fn barrier(&mut self) -> Result<OpTiming, CollectiveError>;

    /// Memory of `bytes` bytes, zeroed, that the other ranks of this host can work on directly, if there are such:
    /// values in it need no copy.
    fn allocate(&mut self, bytes: usize) -> Result<Buffer<u8>, CollectiveError>;

    /// Begins an allreduce that goes on while the caller computes. The buffer comes back from [`Work::wait`].
    /// Operations are done in the order in which they were begun; any other call waits for them first.
    fn begin(
        &mut self,
        buffer: Buffer<u8>,
        dtype: super::DType,
        how: Reduce,
    ) -> Result<Work, CollectiveError>;

    /// The last operations of this rank.
    fn flight(&mut self) -> Flight;
}

/// The typed calls: what jobs use.
pub trait Collective: Communicator {
    /// Replaces `data` by its reduction over all ranks; bit-equal on all ranks.
    fn allreduce<T: Element>(&mut self, data: &mut [T], how: Reduce) -> Result<OpTiming, CollectiveError> {
        self.allreduce_values(Values::of(data), how)
    }

    /// Reduces over all ranks and leaves each rank its [`chunk`] of the result, which is returned as a range.
    fn reduce_scatter<T: Element>(
        &mut self,
        data: &mut [T],
        how: Reduce,
    ) -> Result<(Range<usize>, OpTiming), CollectiveError> {
        let own = chunk(self.rank() as usize, self.world() as usize, data.len());
        Ok((own, self.reduce_scatter_values(Values::of(data), how)?))
    }

    /// Every rank ends with every rank's [`chunk`].
    fn allgather<T: Element>(&mut self, data: &mut [T]) -> Result<OpTiming, CollectiveError> {
        self.allgather_values(Values::of(data))
    }

    /// Replaces `data` by rank `root`'s.
    fn broadcast<T: Element>(&mut self, root: u32, data: &mut [T]) -> Result<OpTiming, CollectiveError> {
        self.broadcast_values(root, Values::of(data))
    }

    /// Zeroed memory for `len` values that needs no copy on its way to the other ranks of this host.
    fn buffer<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, CollectiveError> {
        Ok(self.allocate(len.saturating_mul(size_of::<T>()))?.cast())
    }

    /// Begins an allreduce of `buffer`; see [`Communicator::begin`].
    fn allreduce_begin<T: Element>(
        &mut self,
        buffer: Buffer<T>,
        how: Reduce,
    ) -> Result<Work<T>, CollectiveError> {
        Ok(self.begin(buffer.cast(), T::DTYPE, how)?.cast())
    }
}

impl<C: Communicator + ?Sized> Collective for C {}

/// The values that belong to one rank when `len` values are dealt to `world` ranks: lengths differ by one at most, the
/// first ranks have the longer ones.
pub fn chunk(rank: usize, world: usize, len: usize) -> Range<usize> {
    let (base, longer) = (len / world, len % world);
    let start = rank * base + rank.min(longer);
    start..start + base + usize::from(rank < longer)
}
