//! What a training job asks of a collective, whatever carries the bytes.

use std::fmt;

use super::error::CollectiveError;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// Every rank ends with the sum (or mean) over ranks.
    Allreduce,
    /// Every rank ends with the values of this rank.
    Broadcast {
        /// Whose values.
        root: u32,
    },
    /// Nobody goes on before all have come.
    Barrier,
}

/// One operation: equal on all ranks, or they have diverged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpId {
    /// What it does.
    pub kind: OpKind,
    /// The how-manieth operation of this communicator, from 1.
    pub seq: u64,
    /// Values in the buffer.
    pub len: u64,
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OpKind::Allreduce => write!(f, "allreduce #{} of {} values", self.seq, self.len),
            OpKind::Broadcast { root } => {
                write!(f, "broadcast #{} of {} values from rank {root}", self.seq, self.len)
            }
            OpKind::Barrier => write!(f, "barrier #{}", self.seq),
        }
    }
}

/// Where the time of one operation went, on this rank, in microseconds.
///
/// `wait` is the time from this rank's call until it knows that every rank has made the same call; it is
/// measured on this rank's own clock alone, and ends with rank 0's «go», so it contains one control round
/// trip (tens of microseconds on one host). The last rank to arrive therefore has a `wait` near zero, and every
/// other rank's `wait` is how long it was kept. `transfer` is the rest: moving and adding bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpTiming {
    /// Waiting for the last rank to arrive, µs.
    pub wait: u64,
    /// Moving and adding bytes, µs.
    pub transfer: u64,
}

/// A group of ranks that act together. Calls must be made by all ranks, in the same order, with the same
/// lengths; after an error the group is unusable, because what is in flight is unknown: start the run anew.
pub trait Communicator: Send {
    /// This rank's number, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn world(&self) -> u32;

    /// How bytes travel: `none`, `tcp`.
    fn transport(&self) -> &'static str;

    /// Replaces `data` by its sum over all ranks; bit-equal on all ranks, in an order of addition that depends on
    /// the world size and the length alone.
    fn allreduce_sum(&mut self, data: &mut [f32]) -> Result<OpTiming, CollectiveError>;

    /// Replaces `data` by its mean over all ranks; bit-equal on all ranks.
    fn allreduce_mean(&mut self, data: &mut [f32]) -> Result<OpTiming, CollectiveError> {
        let timing = self.allreduce_sum(data)?;
        let world = self.world() as f32;
        for value in data {
            *value /= world;
        }
        Ok(timing)
    }

    /// Replaces `data` by rank `root`'s.
    fn broadcast(&mut self, root: u32, data: &mut [f32]) -> Result<OpTiming, CollectiveError>;

    /// Returns when all ranks have called it.
    fn barrier(&mut self) -> Result<OpTiming, CollectiveError>;
}
