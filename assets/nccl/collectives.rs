//! The collectives that have begun, in memory that is there from the start, written to by atomics alone.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::libc::{CLOCK_MONOTONIC, SECOND, now};
use crate::{CollectiveEvent, KernelChannelEvent};

/// Communicators at one time; of further ones nothing is told.
const COMMS: usize = 1024;
/// Collectives that have begun and are not written yet; of further ones nothing is told. A power of 2.
pub(crate) const SLOTS: usize = 1024;
/// Lines a second; where there are more collectives, each 2^k-th is told.
const LINES: u64 = 64;

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
pub(crate) struct Slot {
    /// A generation, and in the low byte the state.
    pub(crate) word: AtomicU64,
    pub(crate) comm: AtomicU64,
    pub(crate) ranks: AtomicU32,
    pub(crate) comm_rank: AtomicU32,
    pub(crate) seq: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// The letters of NCCL's names for function and type.
    pub(crate) func: Name,
    pub(crate) datatype: Name,
    pub(crate) channels: AtomicU32,
    /// Each how many-th collective is told.
    pub(crate) every: AtomicU32,
    /// When it was claimed, and when the last end of a channel was seen: nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) claimed: AtomicU64,
    pub(crate) seen: AtomicU64,
    /// First start and last end, nanoseconds of the GPU's `globaltimer`.
    pub(crate) first: AtomicU64,
    pub(crate) last: AtomicU64,
    /// Channels that have begun and ended, a bit each.
    pub(crate) started: AtomicU64,
    pub(crate) stopped: AtomicU64,
}

pub(crate) const FREE: u64 = 0;
const CLAIMED: u64 = 1;
pub(crate) const BUSY: u64 = 2;
pub(crate) const DONE: u64 = 3;

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
pub(crate) struct Name([AtomicU64; 2]);

impl Name {
    pub(crate) const NONE: Self = Self([AtomicU64::new(0), AtomicU64::new(0)]);

    fn set(&self, name: &[u8]) {
        for (word, part) in self.0.iter().zip([name, name.get(8..).unwrap_or_default()]) {
            let mut letters = [0; 8];
            for (letter, byte) in letters.iter_mut().zip(part) {
                *letter = *byte;
            }
            word.store(u64::from_le_bytes(letters), Relaxed);
        }
    }

    pub(crate) fn get(&self) -> impl Iterator<Item = u8> + '_ {
        let letters = self.0.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        letters.take_while(|letter| *letter != 0)
    }
}

static COMM: [Comm; COMMS] = [const { Comm::NONE }; COMMS];
pub(crate) static SLOT: [Slot; SLOTS] = [const { Slot::NEW }; SLOTS];
/// The slot that is tried next.
pub(crate) static NEXT: AtomicU32 = AtomicU32::new(0);
/// Collectives of which nothing was or will be told, but by intent.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);
/// When the second began in which collectives are counted, and how many there were.
static SECOND_BEGAN: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
/// Each 2^k-th collective is told.
static THINNED: AtomicU32 = AtomicU32::new(0);
/// Handles are numbers that look like no address: a mark, what it is, a channel, a generation, a slot.
pub(crate) mod handle {
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

/// A communicator joins; its context.
pub(crate) fn join(id: u64, ranks: c_int, rank: c_int) -> Option<usize> {
    let free = |comm: &Comm| comm.used.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
    let (place, comm) = COMM.iter().enumerate().find(|(_, comm)| free(comm))?;
    comm.id.store(id, Relaxed);
    comm.ranks.store(u32::try_from(ranks).unwrap_or(0), Relaxed);
    comm.rank.store(u32::try_from(rank).unwrap_or(0), Relaxed);
    comm.used.store(2, Release);
    Some(place + 1)
}

/// A communicator is no more. Whether it was one.
pub(crate) fn leave(context: *mut c_void) -> bool {
    comm(context).is_some_and(|comm| comm.used.compare_exchange(2, 0, AcqRel, Relaxed).is_ok())
}

fn comm(context: *mut c_void) -> Option<&'static Comm> {
    let comm = COMM.get((context as usize).wrapping_sub(1))?;
    (comm.used.load(Acquire) == 2).then_some(comm)
}

/// A collective is put on a stream. Its handle.
///
/// # Safety
/// `event` is one.
pub(crate) unsafe fn collective(context: *mut c_void, event: *const CollectiveEvent) -> Option<u64> {
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
    let Some((place, slot, generation)) = (0..8).find_map(|more| claim(turn.wrapping_add(more) % SLOTS))
    else {
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
        let least =
            if a_second >> thinned > u128::from(LINES) / 2 { thinned } else { thinned.saturating_sub(1) };
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

/// A channel of a collective begins on the GPU. Its handle.
///
/// # Safety
/// `event` is one.
pub(crate) unsafe fn channel_begins(event: *const KernelChannelEvent) -> Option<u64> {
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

/// A channel of a collective has ended on the GPU.
pub(crate) fn channel_ends(event: u64, timer: u64) -> Option<()> {
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
