//! What a thread asks of the kernel's scheduler. Needs no privilege, and changes nothing of other processes' shares.
//!
//! A thread that wakes for a moment and sleeps again competes with ranks that compute all the time. Linux (since 6.12) lets
//! it ask for short turns: it then gets the same share of the processor in more and smaller parts, and above all its
//! turn comes soon after it wakes. Older kernels take the wish and do nothing.

use std::mem::size_of;

/// A turn as short as the kernel grants.
const TURN_NS: u64 = 100_000;
/// `SCHED_FLAG_RESET_ON_FORK`: what this thread starts doesn't inherit the wish.
const NOT_INHERITED: u64 = 1;

/// `struct sched_attr` of `<linux/sched/types.h>`, in its first version.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Who shares a thread's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// This thread alone.
    ThisThread,
    /// This thread, and those that it starts while this holds.
    ItsThreadsToo,
}

/// Asks that this thread's turn comes soon whenever it wakes; its priority stays what it is. Where the kernel refuses,
/// nothing is lost but the time.
pub fn short_turns(who: For) {
    let Some(mut wish) = now() else { return };
    // 0: SCHED_OTHER. Any other class was chosen on purpose.
    if wish.policy == 0 {
        wish.runtime = TURN_NS;
        wish.flags = if who == For::ThisThread { NOT_INHERITED } else { 0 };
        ask(&wish);
    }
}

/// `sched_getattr` of this thread.
#[expect(unsafe_code, reason = "a system call for which there is no safe wrapper")]
fn now() -> Option<Attributes> {
    let mut found = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `size` bytes, which are plain numbers of ours.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut found, size, 0) };
    found.size = u32::try_from(size).ok()?;
    (done == 0).then_some(found)
}

/// `sched_setattr` of this thread.
#[expect(unsafe_code, reason = "a system call for which there is no safe wrapper")]
fn ask(wish: &Attributes) {
    // SAFETY: the kernel only reads, `size` bytes that are there.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(wish), 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_of_one_thread_and_keeps_its_priority() {
        std::thread::spawn(|| {
            let before = now().unwrap();
            short_turns(For::ItsThreadsToo);
            let heir = std::thread::spawn(|| now().unwrap().runtime).join().unwrap();
            short_turns(For::ThisThread);
            let after = now().unwrap();
            let other = std::thread::spawn(|| now().unwrap()).join().unwrap();
            assert_eq!((before.policy, before.nice), (after.policy, after.nice));
            // an older kernel knows no turns: 0 for all
            assert!(after.runtime == TURN_NS || after.runtime == before.runtime, "{after:?}");
            assert_eq!((heir, other.runtime), (after.runtime, before.runtime));
            assert_eq!(other.flags, 0);
        })
        .join()
        .unwrap();
    }
}
