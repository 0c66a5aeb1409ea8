//! What the ranks of a host synchronise by: words in shared memory, the kernel's help with them, and copies.
//!
//! It decides nothing. `tests/loom` puts a module of its own in its place, with which the protocol is tried in the
//! orders that processors and kernel allow.

use std::sync::OnceLock;
use std::time::Duration;

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use rustix::event::Timespec;
pub(super) use rustix::thread::sched_yield;
use rustix::thread::{MembarrierCommand, futex, membarrier};

/// The bytes of a chunk: several stay in a core's cache.
pub(super) const CHUNK: usize = 256 << 10;

/// Asks the kernel to put a barrier into this process whenever a sleeper of any process wants one. Whether it can.
pub(super) fn allow_barriers() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// A barrier in all processes that allow it. Where it fails, so did [`allow_barriers`], and raisers use fences.
#[cold]
pub(super) fn barrier_everywhere() {
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}

/// Sleeps while `word` is `seen`, `most` at most (below a second). Woken, timed out, interrupted, changed in between: the
/// caller can't tell, and looks again.
pub(super) fn sleep(word: &AtomicU32, seen: u32, most: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

/// Wakes all that sleep at `word`.
#[cold]
pub(super) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Copies `bytes` bytes.
///
/// # Safety
/// `from` can be read and `to` written for as many bytes, which do not overlap, and no other rank writes to either or reads
/// from `to`.
#[inline]
#[expect(unsafe_code, reason = "copies between pointers")]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: what the caller promises.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
}
