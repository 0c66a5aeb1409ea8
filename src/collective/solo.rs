//! A group of one: every operation is already done.

use super::buffer::{self, Buffer, Work};
use super::communicator::Communicator;
use super::element::{DType, Reduce, Values};
use super::error::CollectiveError;
use super::flight::Flight;
use super::op::{OpTiming, Transport};

/// The communicator of a single-process run. No network, no waiting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Solo;

impl Communicator for Solo {
    fn rank(&self) -> u32 {
        0
    }

    fn world(&self) -> u32 {
        1
    }

    fn transport(&self) -> Transport {
        Transport::None
    }

    fn allreduce_values(&mut self, _: Values<'_>, _: Reduce) -> Result<OpTiming, CollectiveError> {
        Ok(OpTiming::default())
    }

    fn reduce_scatter_values(&mut self, _: Values<'_>, _: Reduce) -> Result<OpTiming, CollectiveError> {
        Ok(OpTiming::default())
    }

    fn allgather_values(&mut self, _: Values<'_>) -> Result<OpTiming, CollectiveError> {
        Ok(OpTiming::default())
    }

    fn broadcast_values(&mut self, root: u32, _: Values<'_>) -> Result<OpTiming, CollectiveError> {
        if root == 0 {
            Ok(OpTiming::default())
        } else {
            Err(CollectiveError::NoSuchRank { rank: root, world: 1 })
        }
    }

    fn barrier(&mut self) -> Result<OpTiming, CollectiveError> {
        Ok(OpTiming::default())
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer<u8>, CollectiveError> {
        Ok(buffer::heap(bytes))
    }

    fn begin(&mut self, buffer: Buffer<u8>, _: DType, _: Reduce) -> Result<Work, CollectiveError> {
        Ok(Work::done(Ok((buffer, OpTiming::default()))))
    }

    fn flight(&mut self) -> Flight {
        Flight::default()
    }
}
