//! The ranks of one host: the barrier of each operation, and how one reaches the values of another.

use std::io;

use super::super::element::{DType, Reduce};
use super::super::error::CollectiveError;
use super::super::kernels::{self, Finish};
use super::arena::{Arena, Block, View};
use super::board::{Board, OpDescriptor, PRIVATE, SMALL};
use super::machine::copy;
use super::wait::{Flag, Patience};

/// Called every 20 ms while a rank waits: whether the group still lives.
pub(in crate::collective) trait Look {
    /// `missing`: for which ranks of the host, by their places there, it waits; none if they have just come. An error
    /// ends the wait.
    fn look(&mut self, missing: &[usize]) -> Result<(), CollectiveError>;
}

/// Why ranks of a host can't go on together.
#[derive(Debug)]
pub(in crate::collective) enum BarrierError {
    /// This one, by its place on the host, does something else.
    Diverged(usize, OpDescriptor),
    /// It names memory that is not in its arena.
    Garbled(usize),
    /// Its memory can't be mapped here.
    Unmapped(io::Error),
    /// The wait ended with this.
    Failed(CollectiveError),
}

/// One rank's end of its host.
pub(in crate::collective) struct Host {
    pub(super) board: Board,
    arena: Arena,
    /// All ranks' arenas, this one's too.
    arenas: Vec<View>,
    pub(super) me: usize,
    /// How to wait.
    pub(in crate::collective) patience: Patience,
    /// Whether raising a flag takes a fence.
    fence: bool,
    /// Calls made.
    step: u32,
    /// Parts finished.
    pub(super) finished: u32,
    /// Where each rank's values lie in the operation under way.
    places: Vec<*mut u8>,
}

// SAFETY: `places` point into mappings that this value owns, and are only used within one operation.
#[expect(unsafe_code, reason = "pointers that are not tied to a thread")]
unsafe impl Send for Host {}

impl Host {
    pub(super) fn new(board: Board, arena: Arena, arenas: Vec<View>, me: usize, patience: Patience) -> Self {
        let places = Vec::with_capacity(arenas.len());
        Self { board, arena, arenas, me, patience, fence: true, step: 0, finished: 0, places }
    }

    /// How many ranks.
    pub(in crate::collective) fn ranks(&self) -> usize {
        self.arenas.len()
    }

    /// This rank's place.
    pub(in crate::collective) fn me(&self) -> usize {
        self.me
    }

    /// Memory that all ranks of the host can reach.
    pub(in crate::collective) fn allocate(&self, bytes: usize) -> io::Result<Block> {
        self.arena.allocate(bytes)
    }

    /// Where `start` lies for the others: an offset in the arena, or [`PRIVATE`].
    pub(in crate::collective) fn place_of(&self, start: *const u8, bytes: usize) -> u64 {
        self.arena.offset_of(start, bytes).map_or(PRIVATE, |offset| offset as u64)
    }

    /// The group is broken: `bytes` bytes from `start` on, if they lie in the arena, are this rank's alone from now on.
    pub(in crate::collective) fn withdraw(&self, start: *mut u8, bytes: usize) {
        self.arena.withdraw(start, bytes);
    }

    /// The group is broken: who sleeps on this host looks around at once; who is just about to, when it next wakes.
    pub(in crate::collective) fn wake_all(&self) {
        self.board.wake_all();
    }

    /// Says what this rank does, with `small` values beside it, and waits until all ranks of the host have done so.
    #[inline]
    #[expect(unsafe_code, reason = "writes to this rank's own part of the board")]
    pub(in crate::collective) fn barrier(
        &mut self,
        descriptor: OpDescriptor,
        small: &[u8],
        look: &mut dyn Look,
    ) -> Result<(), BarrierError> {
        self.step = self.step.wrapping_add(1);
        let step = self.step;
        if !small.is_empty() {
            // SAFETY: `small` asserts the length; no rank reads this half of the board until the flag is raised, nor
            // still, by the rule of turns.
            unsafe {
                let to = self.board.small(self.me, step, small.len());
                copy(small.as_ptr(), to, small.len());
            }
        }
        self.board.publish(self.me, step, descriptor);
        self.board.called(self.me, step).raise(step, self.fence);
        for rank in 0..self.ranks() {
            if rank == self.me {
                continue;
            }
            self.board
                .called(rank, step)
                .wait(step, self.patience, &mut || {
                    look.look(&self.missing(|one| self.board.called(one, step), step))
                })
                .map_err(BarrierError::Failed)?;
            let theirs = self.board.descriptor(rank, step);
            if (theirs.kind, theirs.len) != (descriptor.kind, descriptor.len) {
                return Err(BarrierError::Diverged(rank, theirs));
            }
        }
        if step == 1 {
            self.fence = self.board.wants_fences();
        }
        Ok(())
    }

    /// The ranks whose flag has not come to `wanted`.
    #[cold]
    fn missing<'a>(&'a self, flag: impl Fn(usize) -> &'a Flag, wanted: u32) -> Vec<usize> {
        (0..self.ranks()).filter(|rank| !flag(*rank).reached(wanted)).collect()
    }

    /// The values that `rank` has put beside its call.
    #[inline]
    pub(super) fn small_of(&self, rank: usize, bytes: usize) -> *const u8 {
        self.board.small(rank, self.step, bytes)
    }

    /// Reduces the small values of all ranks into `target`, in order of ranks.
    #[inline]
    #[expect(unsafe_code, reason = "reads what others have put on the board")]
    pub(in crate::collective) fn reduce_small(
        &mut self,
        (dtype, how): (DType, Reduce),
        finish: Finish,
        target: &mut [u8],
        from: usize,
        bytes: usize,
    ) {
        assert!(from + target.len() <= bytes && bytes <= SMALL);
        self.places.clear();
        for rank in 0..self.ranks() {
            self.places.push(self.small_of(rank, bytes).wrapping_add(from).cast_mut());
        }
        let count = target.len() / dtype.size();
        // SAFETY: every rank has raised its flag for this step, so its values are there, and stay until all have
        // raised the flag of the next; `target` is none of them.
        unsafe {
            kernels::reduce(dtype, how, finish, constant(&self.places), &[target.as_mut_ptr()], count);
        }
    }

    /// Copies the small values of `rank`, of which there are `bytes`, from `from` on.
    #[expect(unsafe_code, reason = "reads what others have put on the board")]
    pub(in crate::collective) fn copy_small(
        &self,
        rank: usize,
        target: &mut [u8],
        from: usize,
        bytes: usize,
    ) {
        assert!(from + target.len() <= bytes && bytes <= SMALL);
        // SAFETY: as in `reduce_small`.
        unsafe {
            let source = self.small_of(rank, bytes).add(from);
            copy(source, target.as_mut_ptr(), target.len());
        }
    }

    /// Finds where the values of all ranks lie, of which this rank's lie at `own`. `false` when those of one are private.
    /// After a barrier.
    pub(in crate::collective) fn locate(&mut self, own: *mut u8, bytes: usize) -> Result<bool, BarrierError> {
        self.places.clear();
        for rank in 0..self.ranks() {
            let place = self.board.descriptor(rank, self.step).place;
            if place == PRIVATE {
                return Ok(false);
            }
            if rank == self.me {
                self.places.push(own);
                continue;
            }
            let offset = usize::try_from(place).map_err(|_| BarrierError::Garbled(rank))?;
            let at = self.arenas[rank].at(offset, bytes).map_err(BarrierError::Unmapped)?;
            self.places.push(at.ok_or(BarrierError::Garbled(rank))?);
        }
        Ok(true)
    }

    /// Where the located values of all ranks lie.
    pub(super) fn places(&self) -> &[*mut u8] {
        &self.places
    }

    /// Says that this rank has finished a part, and waits until all have.
    pub(in crate::collective) fn sync(&mut self, look: &mut dyn Look) -> Result<(), CollectiveError> {
        self.finish_part();
        self.wait_all(look)
    }

    /// Says that this rank has finished a part.
    #[inline]
    pub(super) fn finish_part(&mut self) {
        self.finished = self.finished.wrapping_add(1);
        self.board.done(self.me).raise(self.finished, self.fence);
    }

    /// Waits until all ranks have finished as many parts as this one.
    #[inline]
    pub(super) fn wait_all(&mut self, look: &mut dyn Look) -> Result<(), CollectiveError> {
        for rank in 0..self.ranks() {
            if rank != self.me {
                let wanted = self.finished;
                let mut look = || look.look(&self.missing(|one| self.board.done(one), wanted));
                self.board.done(rank).wait(wanted, self.patience, &mut look)?;
            }
        }
        Ok(())
    }

    /// The leader (place 0): lets the others of the host go on, with `small` for them if there is any.
    #[expect(unsafe_code, reason = "writes to the leader's own part of the board")]
    pub(in crate::collective) fn let_go(&mut self, small: &[u8]) {
        if !small.is_empty() {
            assert!(small.len() <= SMALL);
            // SAFETY: results are the leader's to write; the others have read those of two steps ago before they made
            // this step's call.
            unsafe {
                let to = self.board.results(0, self.step as usize);
                copy(small.as_ptr(), to, small.len());
            }
        }
        self.board.go().raise(self.step, self.fence);
    }

    /// The others: wait until the leader lets them go, and take what it has for them.
    #[expect(unsafe_code, reason = "reads what the leader has put on the board")]
    pub(in crate::collective) fn wait_for_go(
        &mut self,
        small: &mut [u8],
        look: &mut dyn Look,
    ) -> Result<(), CollectiveError> {
        self.board.go().wait(self.step, self.patience, &mut || look.look(&[0]))?;
        assert!(small.len() <= SMALL);
        // SAFETY: the leader wrote it before it raised the flag, and writes there again two steps later.
        unsafe {
            copy(self.board.results(0, self.step as usize), small.as_mut_ptr(), small.len());
        }
        Ok(())
    }
}

/// The same pointers, to read from.
#[expect(unsafe_code, reason = "pointers to read and to write have one layout")]
pub(super) fn constant(pointers: &[*mut u8]) -> &[*const u8] {
    // SAFETY: `*mut u8` and `*const u8` have the same layout, and the slice's length does not change.
    unsafe { std::slice::from_raw_parts(pointers.as_ptr().cast(), pointers.len()) }
}
