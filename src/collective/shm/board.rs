//! The board: the small memory that all ranks of a host share, where each says what it does and leaves small values.
//!
//! ```text
//! head      one line: the number of ranks, and how they wake each other
//! a rank    call[2]   what it is about to do, by parity of the step; small values beside it
//!           done      how many steps of moving bytes it has finished
//!           stage[2]  chunks of values that lie in memory of its own, by parity of the chunk
//! ```
//! Two calls by turns are enough: no rank makes call `k + 2` before everyone has seen all calls `k + 1`, which
//! everyone makes after it has read all calls `k`.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use super::machine::{self, AtomicU32, AtomicU64, CHUNK, Ordering};
use super::mapping::{self, Mapping};
use super::wait::Flag;

/// The most bytes that travel with a call.
pub(in crate::collective) const SMALL: usize = 64 << 10;

/// What one rank says; equal on all ranks but for `place`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collective) struct OpDescriptor {
    /// The kind's code.
    pub(in crate::collective) kind: u64,
    /// Values.
    pub(in crate::collective) len: u64,
    /// Where in the rank's arena they lie; [`PRIVATE`] if elsewhere.
    pub(in crate::collective) place: u64,
}

/// The values lie in memory that only their rank can reach.
pub(in crate::collective) const PRIVATE: u64 = u64::MAX;

#[repr(C, align(128))]
struct Head {
    ranks: AtomicU32,
    /// A rank can't have barriers put into it, or can't order them: all use fences.
    fences: AtomicU32,
}

/// A call's first cache line has room for a few values: who has fetched the flag has them too.
#[repr(C, align(128))]
struct Call {
    flag: Flag,
    kind: AtomicU64,
    len: AtomicU64,
    place: AtomicU64,
    near: UnsafeCell<[u8; NEAR]>,
    small: Apart<UnsafeCell<[u8; SMALL]>>,
}

/// The bytes that lie beside the flag.
const NEAR: usize = 32;

/// Alone on its cache lines (128: processors fetch them in pairs).
#[repr(C, align(128))]
struct Apart<T>(T);

#[repr(C, align(4096))]
struct Rank {
    calls: [Call; 2],
    done: Apart<Flag>,
    /// Rank `leader` only: what came of a step that leaders did for all.
    go: Apart<Flag>,
    stages: [[u8; CHUNK]; 2],
    results: [[u8; CHUNK]; 2],
}

/// The board, mapped.
pub(in crate::collective) struct Board {
    file: OwnedFd,
    mapping: Mapping,
    ranks: usize,
}

impl Board {
    /// A new one.
    pub(super) fn create(ranks: usize) -> io::Result<Self> {
        let bytes = size_of::<Rank>() * (ranks + 1);
        let file = mapping::create("hvtui-board", bytes)?;
        let board = Self { mapping: Mapping::of(&file, 0, bytes)?, file, ranks };
        board.head().ranks.store(ranks as u32, Ordering::SeqCst);
        board.choose_fences();
        Ok(board)
    }

    /// The one that a leader made.
    pub(super) fn of(file: OwnedFd, ranks: usize) -> io::Result<Self> {
        let foreign = || io::Error::other("the shared memory is made for another group");
        let bytes = size_of::<Rank>() * (ranks + 1);
        if mapping::length(&file)? != bytes {
            return Err(foreign());
        }
        let board = Self { mapping: Mapping::of(&file, 0, bytes)?, file, ranks };
        if board.head().ranks.load(Ordering::SeqCst) != ranks as u32 {
            return Err(foreign());
        }
        board.choose_fences();
        Ok(board)
    }

    fn choose_fences(&self) {
        if !machine::allow_barriers() {
            self.head().fences.store(1, Ordering::SeqCst);
        }
    }

    /// Whether one of the ranks needs fences. Known after the first barrier.
    pub(super) fn wants_fences(&self) -> bool {
        self.head().fences.load(Ordering::SeqCst) != 0
    }

    /// Its file.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    fn at<T>(&self, offset: usize) -> NonNull<T> {
        // The first rank's record starts one record in: the head has the first to itself.
        debug_assert!(self.mapping.holds(offset, size_of::<T>()));
        #[expect(unsafe_code, reason = "an address within the mapping")]
        // SAFETY: all callers pass offsets of records of ranks below `ranks`.
        unsafe {
            self.mapping.start().add(offset).cast()
        }
    }

    #[expect(unsafe_code, reason = "a shared record made of atomics")]
    fn head(&self) -> &Head {
        // SAFETY: within the mapping, aligned, valid for any bytes; only atomics are used through it.
        unsafe { self.at::<Head>(0).as_ref() }
    }

    #[inline]
    fn record(&self, rank: usize) -> *mut Rank {
        assert!(rank < self.ranks);
        self.at::<Rank>(size_of::<Rank>() * (rank + 1)).as_ptr()
    }

    #[inline]
    #[expect(unsafe_code, reason = "a shared record made of atomics")]
    fn call(&self, rank: usize, step: u32) -> &Call {
        // SAFETY: as in `head`; the values beside the flag, which others write, are in cells.
        unsafe { &(*self.record(rank)).calls[(step & 1) as usize] }
    }

    /// Raised to the number of a step when the rank has made its call.
    #[inline]
    pub(super) fn called(&self, rank: usize, step: u32) -> &Flag {
        &self.call(rank, step).flag
    }

    /// Writes what `rank` is about to do at `step`; raising [`Board::called`] shows it.
    #[inline]
    pub(super) fn publish(&self, rank: usize, step: u32, descriptor: OpDescriptor) {
        let call = self.call(rank, step);
        call.kind.store(descriptor.kind, Ordering::Relaxed);
        call.len.store(descriptor.len, Ordering::Relaxed);
        call.place.store(descriptor.place, Ordering::Relaxed);
    }

    /// What `rank` published for `step`, once its flag is raised.
    #[inline]
    pub(super) fn descriptor(&self, rank: usize, step: u32) -> OpDescriptor {
        let call = self.call(rank, step);
        OpDescriptor {
            kind: call.kind.load(Ordering::Relaxed),
            len: call.len.load(Ordering::Relaxed),
            place: call.place.load(Ordering::Relaxed),
        }
    }

    /// Room for `bytes` bytes, [`SMALL`] at most, that travel with the call.
    #[inline]
    #[expect(unsafe_code, reason = "the address of a field")]
    pub(super) fn small(&self, rank: usize, step: u32, bytes: usize) -> *mut u8 {
        assert!(bytes <= SMALL);
        // SAFETY: only an address is computed.
        unsafe {
            let call = &raw mut (*self.record(rank)).calls[(step & 1) as usize];
            if bytes <= NEAR { (&raw mut (*call).near).cast() } else { (&raw mut (*call).small).cast() }
        }
    }

    /// Raised to a count of finished steps.
    #[inline]
    #[expect(unsafe_code, reason = "a shared record made of atomics")]
    pub(super) fn done(&self, rank: usize) -> &Flag {
        // SAFETY: as in `head`.
        unsafe { &(*self.record(rank)).done.0 }
    }

    /// Raised by the leader to a step that the leaders have done.
    #[inline]
    #[expect(unsafe_code, reason = "a shared record made of atomics")]
    pub(super) fn go(&self) -> &Flag {
        // SAFETY: as in `head`; the leader is rank 0 of the host.
        unsafe { &(*self.record(0)).go.0 }
    }

    /// [`CHUNK`] bytes for a chunk of a rank's own values.
    #[expect(unsafe_code, reason = "the address of a field")]
    pub(super) fn stage(&self, rank: usize, chunk: usize) -> *mut u8 {
        // SAFETY: only an address is computed.
        unsafe { (&raw mut (*self.record(rank)).stages[chunk & 1]).cast() }
    }

    /// [`CHUNK`] bytes for results that a rank has made.
    #[expect(unsafe_code, reason = "the address of a field")]
    pub(super) fn results(&self, rank: usize, chunk: usize) -> *mut u8 {
        // SAFETY: only an address is computed.
        unsafe { (&raw mut (*self.record(rank)).results[chunk & 1]).cast() }
    }

    /// Wakes everyone, to look around: the group is broken.
    pub(super) fn wake_all(&self) {
        for rank in 0..self.ranks {
            for step in 0..2 {
                self.called(rank, step).wake();
            }
            self.done(rank).wake();
        }
        self.go().wake();
    }
}
