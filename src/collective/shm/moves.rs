//! Moving many bytes between the ranks of one host, after a barrier.
//!
//! **Direct**: every rank's values lie in its arena, so rank `r` reads its part of all buffers and writes the result into
//! all of them: each byte is read once and written once, by the one rank whose part it is.
//!
//! **Staged**: values lie in memory of their rank's own, so they are carried chunk by chunk over the board, in chunks
//! that stay in a core's cache. Of two ranks each reads the other's chunk; of more, each reduces its part of a chunk, and
//! all copy the parts together.

use std::ops::Range;

use super::super::communicator::chunk;
use super::super::element::{DType, Reduce};
use super::super::error::CollectiveError;
use super::super::kernels::{self, Finish};
use super::host::{Host, Look, constant};
use super::machine::{CHUNK, copy};

/// Parts of a buffer are cut at whole cache lines, so that no two ranks write to one.
const LINE: usize = 128;

/// The bytes of which `rank` takes care when `bytes` bytes are dealt among `ranks`.
pub(in crate::collective) fn part(rank: usize, ranks: usize, bytes: usize) -> Range<usize> {
    let lines = chunk(rank, ranks, bytes.div_ceil(LINE));
    (lines.start * LINE).min(bytes)..(lines.end * LINE).min(bytes)
}

impl Host {
    /// Reduces `range` (in bytes) of the located values of all ranks into all of them.
    #[expect(unsafe_code, reason = "works on the values of other ranks")]
    fn reduce_into_all(&self, (dtype, how): (DType, Reduce), finish: Finish, range: Range<usize>) {
        let all: Vec<*mut u8> = self.places().iter().map(|place| place.wrapping_add(range.start)).collect();
        // SAFETY: all ranks have passed the barrier of this operation and work each on a range of its own; each pointer is within
        // the arena that `locate` has checked; targets are the sources.
        unsafe { kernels::reduce(dtype, how, finish, constant(&all), &all, range.len() / dtype.size()) };
    }

    /// Reduces `range` of the located values of all ranks into this rank's own.
    #[expect(unsafe_code, reason = "reads the values of other ranks")]
    pub(in crate::collective) fn reduce_into_own(
        &self,
        (dtype, how): (DType, Reduce),
        finish: Finish,
        range: Range<usize>,
    ) {
        let all: Vec<*mut u8> = self.places().iter().map(|place| place.wrapping_add(range.start)).collect();
        let own = [all[self.me]];
        // SAFETY: as in `reduce_into_all`; nothing else works on this range.
        unsafe { kernels::reduce(dtype, how, finish, constant(&all), &own, range.len() / dtype.size()) };
    }

    /// Copies `range` of this rank's located values into those of all others.
    #[expect(unsafe_code, reason = "writes the values of other ranks")]
    pub(in crate::collective) fn spread(&self, range: Range<usize>) {
        let own = self.places()[self.me].wrapping_add(range.start);
        for (rank, place) in self.places().iter().enumerate() {
            if rank != self.me {
                // SAFETY: as in `reduce_into_all`; buffers of different ranks lie in different arenas.
                unsafe { copy(own, place.add(range.start), range.len()) };
            }
        }
    }

    /// Copies `range` of `rank`'s located values into this rank's own.
    #[expect(unsafe_code, reason = "reads the values of another rank")]
    fn fetch(&self, rank: usize, range: Range<usize>) {
        if rank != self.me {
            let (own, theirs) = (self.places()[self.me], self.places()[rank]);
            // SAFETY: as in `spread`.
            unsafe { copy(theirs.add(range.start), own.add(range.start), range.len()) };
        }
    }

    /// Allreduce of located values: two barriers, one pass.
    pub(in crate::collective) fn allreduce_direct(
        &mut self,
        what: (DType, Reduce),
        finish: Finish,
        bytes: usize,
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        self.reduce_into_all(what, finish, part(self.me, self.ranks(), bytes));
        self.sync(look)
    }

    /// Reduce-scatter of located values: `own` is this rank's chunk, in bytes.
    pub(in crate::collective) fn reduce_scatter_direct(
        &mut self,
        what: (DType, Reduce),
        finish: Finish,
        own: Range<usize>,
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        self.reduce_into_own(what, finish, own);
        self.sync(look)
    }

    /// Allgather of located values: `chunk_of` says which bytes a rank brings.
    pub(in crate::collective) fn allgather_direct(
        &mut self,
        chunk_of: &dyn Fn(usize) -> Range<usize>,
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        for rank in 0..self.ranks() {
            self.fetch(rank, chunk_of(rank));
        }
        self.sync(look)
    }

    /// Broadcast of located values from the rank at place `root`.
    pub(in crate::collective) fn broadcast_direct(
        &mut self,
        root: usize,
        bytes: usize,
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        self.fetch(root, 0..bytes);
        self.sync(look)
    }

    /// Allreduce of values in memory of the rank's own.
    pub(in crate::collective) fn allreduce_staged(
        &mut self,
        what: (DType, Reduce),
        finish: Finish,
        values: &mut [u8],
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        if self.ranks() == 2 {
            self.staged_pair(what, finish, values, look)
        } else {
            self.staged_many(what, finish, values, look)
        }
    }

    /// One barrier a chunk: both reduce the whole chunk, each into its own memory.
    #[expect(unsafe_code, reason = "reads and writes the board's stages")]
    fn staged_pair(
        &mut self,
        (dtype, how): (DType, Reduce),
        finish: Finish,
        values: &mut [u8],
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        let other = 1 - self.me;
        for (index, chunk) in values.chunks_mut(CHUNK).enumerate() {
            // SAFETY: a stage is written by its rank alone; the other has read the chunk of two turns ago before it
            // finished the part of one turn ago, which this rank has waited for.
            unsafe { copy(chunk.as_ptr(), self.board.stage(self.me, index), chunk.len()) };
            self.finish_part();
            self.wait_all(look)?;
            let (own, theirs) = (chunk.as_ptr(), self.board.stage(other, index).cast_const());
            let sources = if self.me == 0 { [own, theirs] } else { [theirs, own] };
            let count = chunk.len() / dtype.size();
            // SAFETY: the other rank has finished writing its chunk; the target is one of the sources.
            unsafe { kernels::reduce(dtype, how, finish, &sources, &[chunk.as_mut_ptr()], count) };
        }
        // The stages may be written again by the next operation only when both have read the last chunks.
        self.sync(look)
    }

    /// Two barriers a chunk, each of which overlaps with the copying of the next chunk.
    #[expect(unsafe_code, reason = "reads and writes the board's stages")]
    fn staged_many(
        &mut self,
        (dtype, how): (DType, Reduce),
        finish: Finish,
        values: &mut [u8],
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        let chunks: Vec<Range<usize>> =
            (0..values.len()).step_by(CHUNK).map(|start| start..(start + CHUNK).min(values.len())).collect();
        let (me, ranks) = (self.me, self.ranks());
        for (index, chunk) in chunks.iter().enumerate() {
            // SAFETY: this rank's own stage; its chunk of two turns ago was reduced by all before they finished the
            // second part of that turn.
            unsafe {
                let from = values[chunk.clone()].as_ptr();
                copy(from, self.board.stage(me, index), chunk.len());
            }
            self.sync(look)?;
            let own = part(me, ranks, chunk.len());
            let sources: Vec<*const u8> = (0..ranks)
                .map(|rank| self.board.stage(rank, index).wrapping_add(own.start).cast_const())
                .collect();
            let target = self.board.results(me, index);
            // SAFETY: all ranks have staged this chunk; results are this rank's own, and were copied by all two turns ago
            // before they finished the first part of one turn ago.
            unsafe { kernels::reduce(dtype, how, finish, &sources, &[target], own.len() / dtype.size()) };
            self.sync(look)?;
            for rank in 0..ranks {
                let theirs = part(rank, ranks, chunk.len());
                let from = self.board.results(rank, index);
                let to = values[chunk.start + theirs.start..].as_mut_ptr();
                // SAFETY: all ranks have finished their results of this chunk.
                unsafe { copy(from, to, theirs.len()) };
            }
        }
        self.sync(look)
    }
}
