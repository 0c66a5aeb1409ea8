//! One operation: its name, and where its time went.

use std::fmt;

use super::element::{DType, Reduce};

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Every rank ends with the reduction over ranks.
    Allreduce {
        /// Of what.
        dtype: DType,
        /// In which way.
        how: Reduce,
    },
    /// Every rank ends with its chunk of the reduction.
    ReduceScatter {
        /// Of what.
        dtype: DType,
        /// In which way.
        how: Reduce,
    },
    /// Every rank ends with every rank's chunk.
    Allgather {
        /// Of what.
        dtype: DType,
    },
    /// Every rank ends with the values of this rank.
    Broadcast {
        /// Whose values.
        root: u32,
        /// Of what.
        dtype: DType,
    },
    /// No rank goes on before all have come.
    Barrier,
}

/// One operation: equal on all ranks, or they have diverged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpId {
    /// What it does.
    pub kind: OpKind,
    /// The how-manieth operation of this communicator, from 1.
    pub seq: u64,
    /// Values in the buffer.
    pub len: u64,
}

impl OpKind {
    /// `allreduce`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce { .. } => "allreduce",
            Self::ReduceScatter { .. } => "reduce-scatter",
            Self::Allgather { .. } => "allgather",
            Self::Broadcast { .. } => "broadcast",
            Self::Barrier => "barrier",
        }
    }

    /// What its values are; a barrier has none.
    pub const fn dtype(self) -> Option<DType> {
        match self {
            Self::Allreduce { dtype, .. }
            | Self::ReduceScatter { dtype, .. }
            | Self::Allgather { dtype }
            | Self::Broadcast { dtype, .. } => Some(dtype),
            Self::Barrier => None,
        }
    }

    /// In eight bytes: what two ranks compare.
    pub(super) fn code(self) -> u64 {
        let (tag, dtype, how, root) = match self {
            Self::Allreduce { dtype, how } => (1, dtype as u8, how as u8, 0),
            Self::ReduceScatter { dtype, how } => (2, dtype as u8, how as u8, 0),
            Self::Allgather { dtype } => (3, dtype as u8, 0, 0),
            Self::Broadcast { root, dtype } => (4, dtype as u8, 0, root),
            Self::Barrier => (5, 0, 0, 0),
        };
        u64::from(root) << 32 | u64::from(how) << 16 | u64::from(dtype) << 8 | tag
    }

    /// From its eight bytes, if they are one.
    pub(super) fn from_code(code: u64) -> Option<Self> {
        let dtype = DType::from_code((code >> 8) as u8);
        let how = Reduce::from_code((code >> 16) as u8);
        let kind = match code as u8 {
            1 => Self::Allreduce { dtype: dtype?, how: how? },
            2 => Self::ReduceScatter { dtype: dtype?, how: how? },
            3 => Self::Allgather { dtype: dtype? },
            4 => Self::Broadcast { root: (code >> 32) as u32, dtype: dtype? },
            5 => Self::Barrier,
            _ => return None,
        };
        (kind.code() == code).then_some(kind)
    }
}

impl OpId {
    /// Bytes that each rank brings.
    pub fn bytes(&self) -> u64 {
        self.kind.dtype().map_or(0, |dtype| self.len.saturating_mul(dtype.size() as u64))
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, seq, len } = self;
        write!(f, "{} #{seq}", kind.name())?;
        match kind {
            OpKind::Allreduce { dtype, how } | OpKind::ReduceScatter { dtype, how } => {
                write!(f, " ({how}) of {len} {dtype} values")
            }
            OpKind::Allgather { dtype } => write!(f, " of {len} {dtype} values"),
            OpKind::Broadcast { root, dtype } => write!(f, " of {len} {dtype} values from rank {root}"),
            OpKind::Barrier => Ok(()),
        }
    }
}

/// Where the time of one operation went, on this rank, in nanoseconds.
///
/// `wait` is the time from this rank's call until it knows that every rank has made the same call. The last
/// rank to come therefore has a `wait` near zero (one message), and every other rank's is how long it was kept: who
/// made whom wait shows in these numbers alone, without comparing clocks. `transfer` is the rest: moving and adding
/// bytes. Small values travel with the call itself, and have no transfer of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpTiming {
    /// Waiting for the last rank to come, ns.
    pub wait: u64,
    /// Moving and adding bytes, ns.
    pub transfer: u64,
}

/// How bytes travel between the ranks of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// There is one rank.
    None,
    /// All ranks are on one host and share memory.
    Shm,
    /// Every rank is on a host of its own.
    Tcp,
    /// Shared memory within a host, TCP between hosts.
    ShmTcp,
    /// GPUs by NVIDIA's library.
    Nccl,
}

impl Transport {
    /// `none`, `shm`, `tcp`, `shm+tcp`, `nccl`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::ShmTcp => "shm+tcp",
            Self::Nccl => "nccl",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> Vec<OpKind> {
        let mut all = vec![OpKind::Barrier];
        for dtype in DType::ALL {
            all.extend(Reduce::ALL.map(|how| OpKind::Allreduce { dtype, how }));
            all.extend(Reduce::ALL.map(|how| OpKind::ReduceScatter { dtype, how }));
            all.push(OpKind::Allgather { dtype });
            all.extend([0, 1, u32::MAX].map(|root| OpKind::Broadcast { root, dtype }));
        }
        all
    }

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        for kind in kinds() {
            assert_eq!(OpKind::from_code(kind.code()), Some(kind));
        }
        let mut codes: Vec<u64> = kinds().into_iter().map(OpKind::code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), kinds().len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_kind_or_none(code: u64) {
            if let Some(kind) = OpKind::from_code(code) {
                prop_assert_eq!(kind.code(), code);
            }
        }
    }

    #[test]
    fn an_operation_is_named_for_people() {
        let kind = OpKind::Allreduce { dtype: DType::F32, how: Reduce::Sum };
        assert_eq!(OpId { kind, seq: 7, len: 3 }.to_string(), "allreduce #7 (sum) of 3 f32 values");
        assert_eq!(OpId { kind: OpKind::Barrier, seq: 1, len: 0 }.to_string(), "barrier #1");
    }
}
