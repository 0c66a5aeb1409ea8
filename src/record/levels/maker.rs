//! Makes the blocks of all levels of the chunks that are folded, one after the other. Each step is taken in once: the blocks of a level
//! are made of those of the one below.

use std::io;

use super::grid::{BUCKETS_US, IN_A_BLOCK};
use crate::domain::phase_buckets::PhaseBuckets;
use crate::record::block;
use crate::record::reader::{Reader, Timed};

/// A block that has fewer steps for each of its points is not worth it: to read the steps takes no longer.
const STEPS_A_POINT: u64 = 3;
/// Quick to write, as states.
const LEVEL: i32 = 1;

/// The blocks that are being made.
#[derive(Debug)]
pub(in crate::record) struct Maker {
    /// The chunk that is to be given next.
    next: usize,
    levels: [Making; BUCKETS_US.len()],
}

#[derive(Debug)]
struct Making {
    /// Its first chunk; `None` where that was not given.
    first: Option<usize>,
    buckets: PhaseBuckets,
}

/// A block that has all its chunks.
#[derive(Debug)]
pub(in crate::record) struct Block {
    /// The level.
    pub(in crate::record) level: usize,
    /// Its first chunk.
    pub(in crate::record) first: usize,
    /// The chunk behind its last one.
    pub(in crate::record) behind: usize,
    buckets: PhaseBuckets,
}

impl Default for Maker {
    fn default() -> Self {
        let levels = BUCKETS_US.map(|us| Making { first: None, buckets: PhaseBuckets::new(us) });
        Self { next: 0, levels }
    }
}

impl Maker {
    /// Takes a chunk in; gives the blocks that end before it. One that was not expected begins anew, the last one again is passed over.
    pub(in crate::record) fn take(
        &mut self,
        reader: &Reader,
        chunk: usize,
        envelopes: &[Timed],
    ) -> Vec<Block> {
        if self.next == chunk + 1 {
            return Vec::new();
        }
        if self.next != chunk {
            *self = Self::default();
        }
        self.next = chunk + 1;
        let mut whole = Vec::new();
        for level in 0..BUCKETS_US.len() {
            if begins_block(reader, level, chunk) {
                whole.extend(self.end(level, chunk));
                self.levels[level].first = Some(chunk);
            }
        }
        let [finest, ..] = &mut self.levels;
        if finest.first.is_some() {
            for timed in envelopes {
                finest.buckets.take(&timed.envelope);
            }
        }
        whole
    }

    /// The block of a level that is being made, which ends before a chunk; the one of the next level has it then.
    fn end(&mut self, level: usize, behind: usize) -> Option<Block> {
        let making = &mut self.levels[level];
        let first = making.first.take()?;
        let buckets = std::mem::replace(&mut making.buckets, PhaseBuckets::new(BUCKETS_US[level]));
        if let Some(next) = self.levels.get_mut(level + 1).filter(|next| next.first.is_some()) {
            next.buckets.merge(&buckets);
        }
        (!buckets.is_cut()).then_some(Block { level, first, behind, buckets })
    }
}

/// Whether a block of a level begins with a chunk: it is the first one that begins so late.
fn begins_block(reader: &Reader, level: usize, chunk: usize) -> bool {
    let begin = reader.range().unwrap_or_default().0;
    let block = |chunk| {
        let (start, _) = reader.chunk_span(chunk)?;
        Some(start.micros_since(begin) / (IN_A_BLOCK * BUCKETS_US[level]))
    };
    chunk.checked_sub(1).is_none_or(|before| block(before) != block(chunk))
}

impl Block {
    /// Whether it saves something.
    pub(in crate::record) fn is_worth_it(&self) -> bool {
        self.buckets.steps() >= STEPS_A_POINT * self.buckets.count() as u64 && self.buckets.count() > 0
    }

    /// As it is kept.
    pub(in crate::record) fn pack(&self) -> io::Result<Vec<u8>> {
        zstd::encode_all(&*block::buckets::encode(&self.buckets), LEVEL)
    }
}
