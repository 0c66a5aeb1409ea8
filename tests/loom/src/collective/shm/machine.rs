//! Stands for `src/collective/shm/machine.rs`: loom's words at the addresses of those that lie in shared memory.
//!
//! - `AtomicU32` is one of loom's: a load gives any value that its ordering allows.
//! - Loom takes operations that are `SeqCst` for acquire and release, which would find faults that there are not. A fence is
//!   put between a write that is `SeqCst` and the next load that is, and nowhere else.
//! - Bytes, and `AtomicU64`, which is only used in turns, are followed by lines of 128: one that is read or written by a rank
//!   which can't know that others have done what they do there is a fault.
//! - The futex is a mutex and a condition variable; the kernel compares the word under its own lock, so does this.
//! - `membarrier` puts a fence into each other rank before its next operation on a word, and goes on when all have had it.
//!   One that sleeps or has not begun or has ended has none to come: the kernel's scheduling is one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{self, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, ThreadId, yield_now};

use super::mapping;

pub(super) use std::sync::atomic::{Ordering, compiler_fence};

/// As many lines as the most ranks of a model.
pub(super) const CHUNK: usize = 3 * LINE;
/// Accesses to bytes of one line are one.
const LINE: usize = 128;

thread_local! {
    /// Of the order that is tried. All of loom's threads run on one.
    static STATE: RefCell<State> = RefCell::default();
}

#[derive(Default)]
struct State {
    ranks: Vec<Rank>,
    /// Ranks run, so no word or line can be made any more: who made it would be known to no other.
    begun: bool,
    words: BTreeMap<usize, Rc<atomic::AtomicU32>>,
    lines: BTreeMap<usize, Rc<UnsafeCell<()>>>,
    sleepers: BTreeMap<usize, Rc<Sleepers>>,
    /// Sleep ends by itself.
    timeouts: bool,
}

/// A futex.
struct Sleepers {
    bucket: Mutex<()>,
    woken: Condvar,
}

struct Rank {
    thread: ThreadId,
    barriers: bool,
    /// A barrier is to come.
    interrupted: bool,
    doing: Doing,
    /// Its last write is `SeqCst`.
    ordered: bool,
}

#[derive(PartialEq)]
enum Doing {
    Runs,
    /// At the word of this address.
    Sleeps(usize),
    /// Has been woken, and will run.
    Wakes,
}

fn state<T>(with: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(with)
}

/// This rank; `None` for the one who prepares the model.
fn rank<T>(with: impl FnOnce(&mut Rank) -> T) -> Option<T> {
    let own = thread::current().id();
    state(|state| state.ranks.iter_mut().find(|rank| rank.thread == own).map(with))
}

/// A new order.
pub(super) fn begin(timeouts: bool) {
    mapping::forget();
    let _ = STATE.replace(State { timeouts, ..State::default() });
}

/// All words and lines are there; ranks may run.
pub(super) fn prepared() {
    state(|state| state.begun = true);
}

/// This thread is a rank, until [`leave`].
pub(super) fn enter(barriers: bool) {
    let thread = thread::current().id();
    fence(Ordering::SeqCst);
    state(|state| {
        state.ranks.push(Rank { thread, barriers, interrupted: false, doing: Doing::Runs, ordered: false });
    });
}

/// This rank does nothing more.
pub(super) fn leave() {
    fence(Ordering::SeqCst);
    let own = thread::current().id();
    state(|state| state.ranks.retain(|rank| rank.thread != own));
}

/// Waits until so many ranks sleep.
pub(super) fn until_asleep(ranks: usize) {
    let sleeps = |rank: &&Rank| matches!(rank.doing, Doing::Sleeps(_));
    while state(|state| state.ranks.iter().filter(sleeps).count()) < ranks {
        interrupt();
        yield_now();
    }
}

/// Takes the barrier that another rank has asked for.
fn interrupt() {
    if rank(|rank| std::mem::take(&mut rank.interrupted)) == Some(true) {
        fence(Ordering::SeqCst);
    }
}

pub(super) fn allow_barriers() -> bool {
    rank(|rank| rank.barriers).unwrap_or(true)
}

pub(super) fn barrier_everywhere() {
    let own = thread::current().id();
    fence(Ordering::SeqCst);
    let asked: Vec<ThreadId> = state(|state| {
        let others = state
            .ranks
            .iter_mut()
            .filter(|rank| rank.thread != own && rank.barriers && rank.doing == Doing::Runs);
        others
            .map(|rank| {
                rank.interrupted = true;
                rank.thread
            })
            .collect()
    });
    let waits = || {
        state(|state| {
            state
                .ranks
                .iter()
                .any(|rank| rank.interrupted && rank.doing == Doing::Runs && asked.contains(&rank.thread))
        })
    };
    while waits() {
        interrupt();
        yield_now();
    }
    fence(Ordering::SeqCst);
}

pub(super) fn sleep(word: &AtomicU32, seen: u32, _: Duration) {
    let (value, sleepers) = (word.word(), sleepers(word));
    let bucket = sleepers.bucket.lock().unwrap();
    if value.load(Ordering::Relaxed) != seen {
        return;
    }
    if state(|state| state.timeouts) {
        drop(bucket);
        yield_now();
        return;
    }
    fence(Ordering::SeqCst);
    rank(|rank| (rank.interrupted, rank.doing) = (false, Doing::Sleeps(word.address())));
    drop(sleepers.woken.wait(bucket).unwrap());
    rank(|rank| (rank.interrupted, rank.doing) = (false, Doing::Runs));
    fence(Ordering::SeqCst);
}

pub(super) fn wake(word: &AtomicU32) {
    interrupt();
    let sleepers = sleepers(word);
    let _bucket = sleepers.bucket.lock().unwrap();
    state(|state| {
        let woken = state.ranks.iter_mut().filter(|rank| rank.doing == Doing::Sleeps(word.address()));
        woken.for_each(|rank| rank.doing = Doing::Wakes);
    });
    sleepers.woken.notify_all();
}

fn sleepers(word: &AtomicU32) -> Rc<Sleepers> {
    state(|state| {
        let begun = state.begun;
        let made = state.sleepers.entry(word.address()).or_insert_with(|| {
            assert!(!begun, "a futex that the model has not prepared");
            Rc::new(Sleepers { bucket: Mutex::new(()), woken: Condvar::new() })
        });
        Rc::clone(made)
    })
}

pub(super) fn spin_loop() {}

pub(super) fn sched_yield() {
    yield_now();
}

/// A word of shared memory. Its value is loom's; here lies the zero with which it begins.
#[repr(transparent)]
pub(super) struct AtomicU32(u32);

impl AtomicU32 {
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn word(&self) -> Rc<atomic::AtomicU32> {
        interrupt();
        state(|state| {
            let begun = state.begun;
            let made = state.words.entry(self.address()).or_insert_with(|| {
                assert!(!begun, "a word that the model has not prepared");
                Rc::new(atomic::AtomicU32::new(0))
            });
            Rc::clone(made)
        })
    }

    fn written(ordering: Ordering) {
        rank(|rank| rank.ordered = ordering == Ordering::SeqCst);
    }

    pub(super) fn load(&self, ordering: Ordering) -> u32 {
        let word = self.word();
        if ordering == Ordering::SeqCst && rank(|rank| std::mem::take(&mut rank.ordered)) == Some(true) {
            fence(Ordering::SeqCst);
        }
        word.load(ordering)
    }

    pub(super) fn store(&self, value: u32, ordering: Ordering) {
        self.word().store(value, ordering);
        Self::written(ordering);
    }

    pub(super) fn swap(&self, value: u32, ordering: Ordering) -> u32 {
        let before = self.word().swap(value, ordering);
        Self::written(ordering);
        before
    }

    pub(super) fn fetch_add(&self, value: u32, ordering: Ordering) -> u32 {
        let before = self.word().fetch_add(value, ordering);
        Self::written(ordering);
        before
    }

    pub(super) fn fetch_sub(&self, value: u32, ordering: Ordering) -> u32 {
        let before = self.word().fetch_sub(value, ordering);
        Self::written(ordering);
        before
    }
}

/// Eight bytes that are written and read in turns.
#[repr(transparent)]
pub(super) struct AtomicU64(std::cell::Cell<u64>);

impl AtomicU64 {
    pub(super) fn load(&self, _: Ordering) -> u64 {
        will_read(self.0.as_ptr().cast(), size_of::<u64>());
        self.0.get()
    }

    pub(super) fn store(&self, value: u64, _: Ordering) {
        will_write(self.0.as_ptr().cast(), size_of::<u64>());
        self.0.set(value);
    }
}

#[expect(unsafe_code, reason = "copies between pointers")]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    will_read(from, bytes);
    will_write(to, bytes);
    // SAFETY: what the caller promises.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
}

/// The lines of a range that ranks share, made before they run.
pub(super) fn prepare(start: *const u8, bytes: usize) {
    lines(start, bytes).for_each(drop);
}

/// Bytes are about to be read. What is a rank's own is not followed.
pub(crate) fn will_read(start: *const u8, bytes: usize) {
    lines(start, bytes).for_each(|line| line.with(|_| ()));
}

/// Bytes are about to be written.
pub(crate) fn will_write(start: *const u8, bytes: usize) {
    lines(start, bytes).for_each(|line| line.with_mut(|_| ()));
}

fn lines(start: *const u8, bytes: usize) -> impl Iterator<Item = Rc<UnsafeCell<()>>> {
    let shared = bytes > 0 && mapping::is_shared(start as usize);
    let (first, end) =
        (start as usize / LINE, if shared { (start as usize + bytes).div_ceil(LINE) } else { 0 });
    (first..end).map(|line| {
        state(|state| {
            let begun = state.begun;
            let made = state.lines.entry(line).or_insert_with(|| {
                assert!(!begun, "bytes that the model has not prepared");
                Rc::new(UnsafeCell::new(()))
            });
            Rc::clone(made)
        })
    })
}
