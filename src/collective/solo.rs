//! A group of one: every operation is already done.

use super::communicator::{Communicator, OpTiming};
use super::error::CollectiveError;

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

    fn transport(&self) -> &'static str {
        "none"
    }

    fn allreduce_sum(&mut self, _data: &mut [f32]) -> Result<OpTiming, CollectiveError> {
        Ok(OpTiming::default())
    }

    fn broadcast(&mut self, root: u32, _data: &mut [f32]) -> Result<OpTiming, CollectiveError> {
        if root == 0 {
            Ok(OpTiming::default())
        } else {
            Err(CollectiveError::NoSuchRank { rank: root, world: 1 })
        }
    }

    fn barrier(&mut self) -> Result<OpTiming, CollectiveError> {
        Ok(OpTiming::default())
    }
}
