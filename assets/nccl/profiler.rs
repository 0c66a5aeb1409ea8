//! hvtui's NCCL profiler plugin: tells how long each collective took on the GPU, by the profiler interface of NCCL 2.27 and
//! later (`ncclProfiler_v4`, `_v5`, `_v6`; `src/include/plugin/profiler/` of NVIDIA/nccl).
//!
//! `build.rs` compiles this one file to `libnccl-profiler-hvtui.so`; it is no part of the crate. It uses `core` and, by their
//! names, a few functions of the C library that the process has already: it is linked with nothing, so that it loads
//! wherever NCCL does.
//!
//! What holds whatever NCCL calls: nothing blocks on NCCL's threads (they write to atomics; a thread of this plugin writes
//! the report), no memory is allocated, no handle is ever followed as a pointer, nothing panics, and each call answers
//! `ncclSuccess`. The design is in docs/decisions/nccl-timings.md, the lines in docs/formats/report.md.

#![no_std]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// `ncclSuccess`.
const SUCCESS: c_int = 0;
/// Types of events, bits of the mask: the low byte alone is read, which is all of it in version 4, and 0 in later versions
/// for the types above.
const GROUP: u8 = 1;
const COLLECTIVE: u8 = 1 << 1;
const KERNEL_CHANNEL: u8 = 1 << 6;
/// The state `ncclProfilerKernelChStop`.
const KERNEL_CHANNEL_STOP: c_int = 22;

/// Communicators at one time; of further ones nothing is told.
const COMMS: usize = 1024;
/// Collectives that have begun and are not written yet; of further ones nothing is told. A power of 2.
const SLOTS: usize = 1024;
/// Lines a second; where there are more collectives, each 2^k-th is told.
const LINES: u64 = 64;
/// How often lines are written, nanoseconds.
const WRITE_EVERY: u64 = 50_000_000;
const SECOND: u64 = 1_000_000_000;
/// A collective that ran on fewer channels than NCCL had announced is told after so long without another.
const SETTLED: u64 = SECOND;
/// A collective that has not ended for so long makes room.
const FORGOTTEN: u64 = 600 * SECOND;
/// The longest line.
const LINE: usize = 512;
const BUFFER: usize = 16 * 1024;
const PATH: usize = 4096;

const O_WRONLY: c_int = 1;
const O_CREAT: c_int = 0o100;
const O_APPEND: c_int = 0o2000;
const O_CLOEXEC: c_int = 0o2_000_000;
const CLOCK_REALTIME: c_int = 0;
const CLOCK_MONOTONIC: c_int = 1;
const SIG_SETMASK: c_int = 2;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

type Signals = [u64; 16];

// What both glibc and musl have for 64-bit Linux, with their types' sizes.
unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn getpid() -> c_int;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
    fn close(file: c_int) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    fn nanosleep(time: *const Timespec, left: *mut Timespec) -> c_int;
    fn sigfillset(signals: *mut Signals) -> c_int;
    fn pthread_sigmask(how: c_int, new: *const Signals, old: *mut Signals) -> c_int;
    fn pthread_create(
        thread: *mut usize,
        attributes: *const c_void,
        run: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_detach(thread: usize) -> c_int;
    fn sem_init(semaphore: *mut [u64; 4], shared: c_int, value: u32) -> c_int;
    fn sem_post(semaphore: *mut [u64; 4]) -> c_int;
    fn sem_timedwait(semaphore: *mut [u64; 4], until: *const Timespec) -> c_int;
    fn abort() -> !;
}

/// Nothing here panics: a test sees that the compiler has found this unreachable.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: has no precondition.
    unsafe { abort() }
}

/// What all events begin with.
#[repr(C)]
struct Event {
    kind: u8,
    parent: *mut c_void,
    rank: c_int,
}

/// `ncclProfileColl`.
#[repr(C)]
struct CollectiveEvent {
    event: Event,
    seq: u64,
    func: *const c_char,
    send: *const c_void,
    receive: *const c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
    channels: u8,
}

/// `ncclProfileKernelCh`.
#[repr(C)]
struct KernelChannelEvent {
    event: Event,
    channel: u8,
    timer: u64,
}

const _: () = {
    assert!(offset_of!(Event, parent) == 8 && offset_of!(Event, rank) == 16);
    assert!(offset_of!(CollectiveEvent, seq) == 24 && offset_of!(CollectiveEvent, func) == 32);
    assert!(offset_of!(CollectiveEvent, count) == 56 && offset_of!(CollectiveEvent, root) == 64);
    assert!(offset_of!(CollectiveEvent, datatype) == 72 && offset_of!(CollectiveEvent, channels) == 80);
    assert!(offset_of!(KernelChannelEvent, channel) == 24 && offset_of!(KernelChannelEvent, timer) == 32);
};

type Init4 = extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Init5 = extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

/// `ncclProfiler_vN_t`.
#[repr(C)]
pub struct Profiler<Init> {
    name: *const c_char,
    init: Init,
    start_event: extern "C" fn(*mut c_void, *mut *mut c_void, *const c_void) -> c_int,
    stop_event: extern "C" fn(*mut c_void) -> c_int,
    record_event_state: extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int,
    finalize: extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: it is never changed, and what it points to neither.
unsafe impl<Init> Sync for Profiler<Init> {}

impl<Init> Profiler<Init> {
    const fn new(init: Init) -> Self {
        Self { name: c"hvtui".as_ptr(), init, start_event, stop_event, record_event_state, finalize }
    }
}

/// NCCL 2.27.
#[unsafe(export_name = "ncclProfiler_v4")]
pub static V4: Profiler<Init4> = Profiler::new(init_v4);
/// NCCL 2.28.
#[unsafe(export_name = "ncclProfiler_v5")]
pub static V5: Profiler<Init5> = Profiler::new(init);
/// NCCL 2.29 and later.
#[unsafe(export_name = "ncclProfiler_v6")]
pub static V6: Profiler<Init5> = Profiler::new(init);

/// A communicator. Its context is its place in the table, counted from 1.
struct Comm {
    used: AtomicU32,
    id: AtomicU64,
    ranks: AtomicU32,
    rank: AtomicU32,
}

impl Comm {
    const NONE: Self = Self {
        used: AtomicU32::new(0),
        id: AtomicU64::new(0),
        ranks: AtomicU32::new(0),
        rank: AtomicU32::new(0),
    };
}

/// A collective that has begun. Who has brought `word` from free to claimed fills it in; as long as it is busy, NCCL's
/// threads add the times of its channels; the writer frees it.
struct Slot {
    /// A generation, and in the low byte the state.
    word: AtomicU64,
    comm: AtomicU64,
    ranks: AtomicU32,
    comm_rank: AtomicU32,
    seq: AtomicU64,
    bytes: AtomicU64,
    /// NCCL's names for function and type. It has them in its own memory for as long as it is loaded, and so has this the
    /// letters of them alone.
    func: Name,
    datatype: Name,
    channels: AtomicU32,
    /// Each how many-th collective is told.
    every: AtomicU32,
    /// When it was claimed, and when the last end of a channel was seen: nanoseconds of `CLOCK_MONOTONIC`.
    claimed: AtomicU64,
    seen: AtomicU64,
    /// First start and last end, nanoseconds of the GPU's `globaltimer`.
    first: AtomicU64,
    last: AtomicU64,
    /// Channels that have begun and ended, a bit each.
    started: AtomicU64,
    stopped: AtomicU64,
}

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const BUSY: u64 = 2;
const DONE: u64 = 3;

impl Slot {
    const NEW: Self = Self {
        word: AtomicU64::new(FREE),
        comm: AtomicU64::new(0),
        ranks: AtomicU32::new(0),
        comm_rank: AtomicU32::new(0),
        seq: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        func: Name::NONE,
        datatype: Name::NONE,
        channels: AtomicU32::new(0),
        every: AtomicU32::new(0),
        claimed: AtomicU64::new(0),
        seen: AtomicU64::new(0),
        first: AtomicU64::new(0),
        last: AtomicU64::new(0),
        started: AtomicU64::new(0),
        stopped: AtomicU64::new(0),
    };
}

/// Up to 16 letters and digits.
struct Name([AtomicU64; 2]);

impl Name {
    const NONE: Self = Self([AtomicU64::new(0), AtomicU64::new(0)]);

    fn set(&self, name: &[u8]) {
        for (word, part) in self.0.iter().zip([name, name.get(8..).unwrap_or_default()]) {
            let mut letters = [0; 8];
            for (letter, byte) in letters.iter_mut().zip(part) {
                *letter = *byte;
            }
            word.store(u64::from_le_bytes(letters), Relaxed);
        }
    }

    fn get(&self) -> impl Iterator<Item = u8> + '_ {
        let letters = self.0.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        letters.take_while(|letter| *letter != 0)
    }
}

static COMM: [Comm; COMMS] = [const { Comm::NONE }; COMMS];
static SLOT: [Slot; SLOTS] = [const { Slot::NEW }; SLOTS];
/// The slot that is tried next.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Collectives of which nothing was or will be told, but by intent.
static LOST: AtomicU64 = AtomicU64::new(0);
/// The process that has the writer's thread; -1 while it is started, 0 before.
static WRITER_OF: AtomicI32 = AtomicI32::new(0);
/// When the second began in which collectives are counted, and how many there were.
static SECOND_BEGAN: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
/// Each 2^k-th collective is told.
static THINNED: AtomicU32 = AtomicU32::new(0);
/// How often the lines were asked for at once, and which of that has been done.
static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);
/// The number of the rank in its training; `u32::MAX` where nothing says it.
static RANK: AtomicU32 = AtomicU32::new(u32::MAX);

struct Shared<T>(UnsafeCell<T>);
// SAFETY: each says who may use it when.
unsafe impl<T> Sync for Shared<T> {}

/// The report's path. Written before the writer's thread is made, read by that alone.
static REPORT: Shared<[u8; PATH]> = Shared(UnsafeCell::new([0; PATH]));
/// Wakes the writer. Made before its thread; afterwards only given to the C library, which synchronises it.
static WAKE: Shared<[u64; 4]> = Shared(UnsafeCell::new([0; 4]));

/// Handles are numbers that look like no address: a mark, what it is, a channel, a generation, a slot.
mod handle {
    const MARK: u64 = 0x4856;
    pub(crate) const GROUP: u64 = 1;
    pub(crate) const COLLECTIVE: u64 = 2;
    pub(crate) const CHANNEL: u64 = 3;
    /// How much of a slot's generation a handle has.
    pub(crate) const GENERATIONS: u64 = 0xff_ffff;

    pub(crate) fn of(kind: u64, channel: u64, generation: u64, slot: u64) -> u64 {
        MARK << 48 | kind << 44 | channel << 36 | (generation & GENERATIONS) << 12 | slot
    }

    /// Channel, generation and slot, if it is one of ours of this kind.
    pub(crate) fn read(handle: u64, kind: u64) -> Option<(u64, u64, usize)> {
        let ours = handle >> 44 == MARK << 4 | kind;
        ours.then_some((handle >> 36 & 0xff, handle >> 12 & GENERATIONS, (handle & 0xfff) as usize))
    }
}

/// Whether it is the generation that a handle names, in this state.
fn is_now(word: u64, generation: u64, state: u64) -> bool {
    word & 0xff == state && word >> 8 & handle::GENERATIONS == generation
}

fn now(clock: c_int) -> u64 {
    let mut time = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: `time` is writable.
    unsafe { clock_gettime(clock, &mut time) };
    (time.seconds as u64).wrapping_mul(SECOND).wrapping_add(time.nanos as u64)
}

fn timespec(nanos: u64) -> Timespec {
    Timespec { seconds: (nanos / SECOND) as i64, nanos: (nanos % SECOND) as i64 }
}

extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: *const c_void,
) -> c_int {
    init(context, id, mask, name, nodes, ranks, rank, log)
}

extern "C" fn init(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    _name: *const c_char,
    _nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    if context.is_null() || mask.is_null() {
        return SUCCESS;
    }
    // SAFETY: NCCL's, for a pointer.
    unsafe { *context = null_mut() };
    if !has_writer() {
        return SUCCESS;
    }
    let free = |comm: &Comm| comm.used.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
    let Some((place, comm)) = COMM.iter().enumerate().find(|(_, comm)| free(comm)) else {
        return SUCCESS;
    };
    comm.id.store(id, Relaxed);
    comm.ranks.store(u32::try_from(ranks).unwrap_or(0), Relaxed);
    comm.rank.store(u32::try_from(rank).unwrap_or(0), Relaxed);
    comm.used.store(2, Release);
    // SAFETY: NCCL's, for a pointer; the mask is one number for the process, which other threads read meanwhile.
    unsafe {
        *context = (place + 1) as *mut c_void;
        (*mask.cast::<AtomicI32>()).store(c_int::from(COLLECTIVE | KERNEL_CHANNEL), Relaxed);
    }
    SUCCESS
}

fn comm(context: *mut c_void) -> Option<&'static Comm> {
    let comm = COMM.get((context as usize).wrapping_sub(1))?;
    (comm.used.load(Acquire) == 2).then_some(comm)
}

extern "C" fn start_event(context: *mut c_void, handle: *mut *mut c_void, event: *const c_void) -> c_int {
    if handle.is_null() {
        return SUCCESS;
    }
    let given = if event.is_null() {
        0
    } else {
        // SAFETY: NCCL's, an event of the kind that it says it is.
        unsafe {
            match (*event.cast::<Event>()).kind {
                // 2.27 tells of collectives only within a group that has a handle
                GROUP => handle::of(handle::GROUP, 0, 0, 0),
                COLLECTIVE => collective(context, event.cast()).unwrap_or(0),
                KERNEL_CHANNEL => channel_begins(event.cast()).unwrap_or(0),
                _ => 0,
            }
        }
    };
    // SAFETY: NCCL's, for a pointer.
    unsafe { *handle = given as *mut c_void };
    SUCCESS
}

/// A collective is put on a stream.
///
/// # Safety
/// `event` is one.
unsafe fn collective(context: *mut c_void, event: *const CollectiveEvent) -> Option<u64> {
    let comm = comm(context)?;
    let now = now(CLOCK_MONOTONIC);
    // SAFETY: as above.
    let (seq, count, channels) = unsafe { ((*event).seq, (*event).count, (*event).channels) };
    let every = thin(now);
    // alike on all ranks, and what is left of more is left of less too; the numbers are mixed, because a program's
    // collectives repeat themselves
    if mix(seq) & (every - 1) != 0 {
        return None;
    }
    let turn = NEXT.fetch_add(1, Relaxed) as usize;
    let claim = |place: usize| {
        let slot = SLOT.get(place)?;
        let word = slot.word.load(Relaxed);
        let claimed = (word | 0xff).wrapping_add(1) | CLAIMED;
        let free = word & 0xff == FREE;
        let ours = free && slot.word.compare_exchange(word, claimed, Acquire, Relaxed).is_ok();
        ours.then_some((place, slot, claimed >> 8))
    };
    let Some((place, slot, generation)) = (0..8).find_map(|more| claim(turn.wrapping_add(more) % SLOTS)) else {
        LOST.fetch_add(1, Relaxed);
        return None;
    };
    slot.comm.store(comm.id.load(Relaxed), Relaxed);
    slot.ranks.store(comm.ranks.load(Relaxed), Relaxed);
    slot.comm_rank.store(comm.rank.load(Relaxed), Relaxed);
    slot.seq.store(seq, Relaxed);
    // SAFETY: texts of NCCL, or null.
    let (func, datatype) = unsafe { (letters((*event).func, b""), letters((*event).datatype, b"nccl")) };
    slot.func.set(&func);
    slot.bytes.store((count as u64).saturating_mul(size_of(&datatype)), Relaxed);
    slot.datatype.set(&datatype);
    slot.channels.store(u32::from(channels), Relaxed);
    slot.every.store(u32::try_from(every).unwrap_or(u32::MAX), Relaxed);
    slot.claimed.store(now, Relaxed);
    slot.seen.store(0, Relaxed);
    slot.first.store(u64::MAX, Relaxed);
    slot.last.store(0, Relaxed);
    slot.started.store(0, Relaxed);
    slot.stopped.store(0, Relaxed);
    slot.word.store(generation << 8 | BUSY, Release);
    Some(handle::of(handle::COLLECTIVE, 0, generation, place as u64))
}

/// Counts a collective; each how many-th is told.
fn thin(now: u64) -> u64 {
    let mut thinned = THINNED.load(Relaxed);
    let began = SECOND_BEGAN.load(Relaxed);
    let past = now.wrapping_sub(began);
    if past >= SECOND && SECOND_BEGAN.compare_exchange(began, now, Relaxed, Relaxed).is_ok() {
        let counted = COUNTED.swap(0, Relaxed);
        let a_second = u128::from(counted) * u128::from(SECOND) / u128::from(past.max(1));
        let least = if a_second >> thinned > u128::from(LINES) / 2 { thinned } else { thinned.saturating_sub(1) };
        THINNED.store(least, Relaxed);
        thinned = least;
    }
    let counted = COUNTED.fetch_add(1, Relaxed);
    if counted >> thinned > LINES && thinned < 31 {
        thinned += 1;
        THINNED.fetch_max(thinned, Relaxed);
    }
    1 << thinned
}

/// The finaliser of MurmurHash3 by Austin Appleby.
fn mix(seq: u64) -> u64 {
    let seq = (seq ^ seq >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let seq = (seq ^ seq >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    seq ^ seq >> 33
}

/// The first letters and digits of a text, without `before`.
///
/// # Safety
/// `text` is a text or null.
unsafe fn letters(text: *const c_char, before: &[u8]) -> [u8; 16] {
    let mut letters = [0; 16];
    if text.is_null() {
        return letters;
    }
    let at = |place: usize| {
        // SAFETY: up to the zero at its end.
        unsafe { *text.add(place) as u8 }
    };
    let skipped = before.iter().enumerate().all(|(place, letter)| at(place) == *letter);
    let skipped = if skipped { before.len() } else { 0 };
    for (place, letter) in letters.iter_mut().enumerate() {
        let next = at(skipped + place);
        if !next.is_ascii_alphanumeric() {
            break;
        }
        *letter = next;
    }
    letters
}

/// Bytes of an element of NCCL's type: its name ends with its bits, but for `Float8e4m3` and the like.
fn size_of(datatype: &[u8; 16]) -> u64 {
    let has = |name: &[u8]| datatype.windows(name.len()).any(|part| part == name);
    match () {
        () if has(b"64") => 8,
        () if has(b"32") => 4,
        () if has(b"16") => 2,
        () if has(b"8") => 1,
        () => 0,
    }
}

/// A channel of a collective begins on the GPU.
///
/// # Safety
/// `event` is one.
unsafe fn channel_begins(event: *const KernelChannelEvent) -> Option<u64> {
    // SAFETY: as above.
    let (parent, channel, timer) = unsafe { ((*event).event.parent, (*event).channel, (*event).timer) };
    let (_, generation, place) = handle::read(parent as u64, handle::COLLECTIVE)?;
    let slot = SLOT.get(place)?;
    if !is_now(slot.word.load(Acquire), generation, BUSY) || channel > 63 {
        return None;
    }
    slot.first.fetch_min(timer, Relaxed);
    slot.started.fetch_or(1 << channel, Relaxed);
    Some(handle::of(handle::CHANNEL, u64::from(channel), generation, place as u64))
}

extern "C" fn record_event_state(event: *mut c_void, state: c_int, arguments: *const c_void) -> c_int {
    if state == KERNEL_CHANNEL_STOP && !arguments.is_null() {
        // SAFETY: NCCL's; of this state they begin with the time.
        channel_ends(event as u64, unsafe { arguments.cast::<u64>().read_unaligned() });
    }
    SUCCESS
}

/// A channel of a collective has ended on the GPU.
fn channel_ends(event: u64, timer: u64) -> Option<()> {
    let (channel, generation, place) = handle::read(event, handle::CHANNEL)?;
    let slot = SLOT.get(place)?;
    let word = slot.word.load(Acquire);
    if !is_now(word, generation, BUSY) || channel > 63 {
        return None;
    }
    slot.last.fetch_max(timer, Relaxed);
    slot.seen.fetch_max(now(CLOCK_MONOTONIC), Relaxed);
    let bit = 1 << channel;
    let before = slot.stopped.fetch_or(bit, AcqRel);
    if before & bit == 0 && (before | bit).count_ones() == slot.channels.load(Relaxed) {
        let done = word & !0xff | DONE;
        let _ = slot.word.compare_exchange(word, done, AcqRel, Relaxed);
    }
    Some(())
}

/// Of a collective this means that it is enqueued, of a channel that its end was recorded.
extern "C" fn stop_event(_event: *mut c_void) -> c_int {
    SUCCESS
}

extern "C" fn finalize(context: *mut c_void) -> c_int {
    if let Some(comm) = comm(context) {
        comm.used.store(0, Release);
        // SAFETY: has no precondition.
        let ours = unsafe { getpid() } == WRITER_OF.load(Acquire);
        if ours {
            flush();
        }
    }
    SUCCESS
}

/// Has the lines written, and waits for that 200 ms at most.
fn flush() {
    let asked = ASKED.fetch_add(1, AcqRel).wrapping_add(1);
    // SAFETY: made before the thread, and there is one.
    unsafe { sem_post(WAKE.0.get()) };
    for _ in 0..200 {
        if ANSWERED.load(Acquire) >= asked {
            return;
        }
        // SAFETY: the first is readable, the second may be null.
        unsafe { nanosleep(&timespec(1_000_000), null_mut()) };
    }
}

/// Whether there is a report to write to; starts the writer's thread at first, and in a process that was forked off.
fn has_writer() -> bool {
    // SAFETY: has no precondition.
    let process = unsafe { getpid() };
    let before = WRITER_OF.load(Acquire);
    if before == process {
        return true;
    }
    if before == -1 || WRITER_OF.compare_exchange(before, -1, AcqRel, Relaxed).is_err() {
        // another thread starts it: of this communicator nothing is told unless that is quick
        for _ in 0..100 {
            if WRITER_OF.load(Acquire) == process {
                return true;
            }
            // SAFETY: as in `flush`.
            unsafe { nanosleep(&timespec(1_000_000), null_mut()) };
        }
        return false;
    }
    let started = start_writer().is_some();
    WRITER_OF.store(if started { process } else { 0 }, Release);
    started
}

fn start_writer() -> Option<()> {
    let path = variable(c"HVTUI_REPORT")?;
    // SAFETY: there is no writer, and this thread alone makes one.
    let kept = unsafe { &mut *REPORT.0.get() };
    if path.to_bytes().is_empty() || path.to_bytes().len() >= kept.len() {
        return None;
    }
    *kept = [0; PATH];
    for (kept, byte) in kept.iter_mut().zip(path.to_bytes()) {
        *kept = *byte;
    }
    let names = [
        c"RANK",
        c"HOROVOD_RANK",
        c"OMPI_COMM_WORLD_RANK",
        c"PMI_RANK",
        c"SLURM_PROCID",
        c"HVTUI_RANK",
    ];
    let number = |text: &CStr| {
        text.to_bytes().iter().try_fold(0u32, |number, digit| {
            let digit = digit.is_ascii_digit().then_some(u32::from(*digit & 0xf))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    };
    let set = names.into_iter().filter_map(variable).find(|text| !text.to_bytes().is_empty());
    RANK.store(set.and_then(number).unwrap_or(u32::MAX), Relaxed);
    // the mask of signals is inherited: none of the program's may end up in this thread
    let (mut all, mut before, mut thread): (Signals, Signals, usize) = ([0; 16], [0; 16], 0);
    // SAFETY: all of it is ours and large enough; the semaphore has no user yet.
    unsafe {
        if sem_init(WAKE.0.get(), 0, 0) != 0 {
            return None;
        }
        sigfillset(&mut all);
        pthread_sigmask(SIG_SETMASK, &all, &mut before);
        let made = pthread_create(&mut thread, null(), write_lines, null_mut());
        pthread_sigmask(SIG_SETMASK, &before, null_mut());
        if made != 0 {
            return None;
        }
        pthread_detach(thread);
    }
    Some(())
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a text, or null; read before anything of the program can change it.
    unsafe {
        let value = getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// The writer's thread: never ends.
extern "C" fn write_lines(_: *mut c_void) -> *mut c_void {
    let mut lines = Lines { bytes: [0; BUFFER], length: 0, count: 0, told: 0, is_torn: false };
    loop {
        let until = timespec(now(CLOCK_REALTIME).wrapping_add(WRITE_EVERY));
        // SAFETY: made before this thread.
        unsafe { sem_timedwait(WAKE.0.get(), &until) };
        let asked = ASKED.load(Acquire);
        let first = NEXT.load(Relaxed) as usize;
        let now = now(CLOCK_MONOTONIC);
        for place in 0..SLOTS {
            if let Some(slot) = SLOT.get(first.wrapping_add(place) % SLOTS) {
                lines.take(slot, now);
            }
        }
        lines.write();
        ANSWERED.store(asked, Release);
    }
}

/// Lines that are not written yet.
struct Lines {
    bytes: [u8; BUFFER],
    length: usize,
    /// How many, and how many lost ones they tell of.
    count: u64,
    told: u64,
    /// What was written last ends within a line.
    is_torn: bool,
}

impl Lines {
    /// Takes a collective that has ended, and frees its slot.
    fn take(&mut self, slot: &Slot, now: u64) {
        let word = slot.word.load(Acquire);
        let (started, stopped) = (slot.started.load(Relaxed), slot.stopped.load(Relaxed));
        let quiet = now.saturating_sub(slot.seen.load(Relaxed).max(slot.claimed.load(Relaxed)));
        let is_over = match word & 0xff {
            DONE => true,
            BUSY if stopped != 0 && started == stopped && quiet > SETTLED => true,
            BUSY if quiet > FORGOTTEN => false,
            _ => return,
        };
        let (first, last) = (slot.first.load(Relaxed), slot.last.load(Relaxed));
        if is_over && first < last {
            self.line(slot, first, last - first);
        } else {
            LOST.fetch_add(1, Relaxed);
        }
        slot.word.store(word & !0xff | FREE, Release);
    }

    fn line(&mut self, slot: &Slot, first: u64, took: u64) {
        if self.length + LINE > BUFFER {
            self.write();
        }
        let began = slot.seen.load(Relaxed).saturating_sub(took) / 1000;
        self.text(br#"{"kind":"collective","#);
        let rank = RANK.load(Relaxed);
        if rank != u32::MAX {
            self.number(br#""rank":"#, u64::from(rank));
            self.text(b",");
        }
        self.text(br#""comm":""#);
        let comm = slot.comm.load(Relaxed);
        for digit in (0..16).rev() {
            let digit = (comm >> (4 * digit) & 0xf) as u8;
            self.text(&[if digit < 10 { b'0' + digit } else { b'a' - 10 + digit }]);
        }
        self.number(br#"","ranks":"#, u64::from(slot.ranks.load(Relaxed)));
        self.number(br#","comm_rank":"#, u64::from(slot.comm_rank.load(Relaxed)));
        self.text(br#","func":""#);
        self.name(&slot.func);
        self.number(br#"","seq":"#, slot.seq.load(Relaxed));
        self.number(br#","bytes":"#, slot.bytes.load(Relaxed));
        self.text(br#","datatype":""#);
        self.name(&slot.datatype);
        self.number(br#"","t":"#, began);
        self.number(br#","dur_ns":"#, took);
        self.number(br#","gpu_ns":"#, first);
        self.number(br#","every":"#, u64::from(slot.every.load(Relaxed)));
        let lost = LOST.swap(0, Relaxed);
        if lost > 0 {
            self.number(br#","lost":"#, lost);
        }
        self.text(b"}\n");
        self.count += 1;
        self.told += lost;
    }

    fn text(&mut self, text: &[u8]) {
        let Some(room) = self.bytes.get_mut(self.length..) else { return };
        for (place, byte) in room.iter_mut().zip(text) {
            *place = *byte;
            self.length += 1;
        }
    }

    fn name(&mut self, name: &Name) {
        for letter in name.get() {
            self.text(&[letter]);
        }
    }

    fn number(&mut self, before: &[u8], number: u64) {
        self.text(before);
        let mut digits = [0; 20];
        let (mut left, mut used) = (number, 0);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
            used += 1;
            if left == 0 {
                break;
            }
        }
        for digit in digits.iter().skip(20 - used) {
            self.text(&[*digit]);
        }
    }

    /// Appends the lines to the report. It is opened each time: programs close descriptors that they do not know, and open
    /// other files under their numbers. What can't be written is counted and dropped.
    fn write(&mut self) {
        if self.length == 0 {
            return;
        }
        // SAFETY: the path is whole since before this thread was made; the lines are readable.
        let written = unsafe {
            let file = open(REPORT.0.get().cast(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600);
            if file < 0 {
                -1
            } else {
                // a line that was cut stays one that is not understood
                let healed = !self.is_torn || write(file, c"\n".as_ptr().cast(), 1) == 1;
                let written =
                    if healed { write(file, self.bytes.as_ptr().cast(), self.length) } else { -1 };
                self.is_torn &= !healed;
                close(file);
                written
            }
        };
        let whole = usize::try_from(written).unwrap_or(0);
        if whole < self.length {
            let kept = self.bytes.iter().take(whole).filter(|byte| **byte == b'\n').count() as u64;
            self.is_torn |= whole > 0 && self.bytes.get(whole - 1) != Some(&b'\n');
            LOST.fetch_add(self.count.saturating_sub(kept).saturating_add(self.told), Relaxed);
        }
        (self.length, self.count, self.told) = (0, 0, 0);
    }
}

