//! The plugin's thread, which appends the collectives that have ended to the report.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::collectives::{BUSY, DONE, FREE, LOST, NEXT, Name, SLOT, SLOTS, Slot};
use crate::libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, O_APPEND, O_CLOEXEC, O_CREAT, O_WRONLY, SECOND, SIG_SETMASK, Signals,
    close, getenv, getpid, nanosleep, now, open, pthread_create, pthread_detach, pthread_sigmask, sem_init,
    sem_post, sem_timedwait, sigfillset, timespec, write,
};

/// How often lines are written, nanoseconds.
const WRITE_EVERY: u64 = 50_000_000;
/// A collective that ran on fewer channels than NCCL had announced is told after so long without another.
const SETTLED: u64 = SECOND;
/// A collective that has not ended for so long makes room.
const FORGOTTEN: u64 = 600 * SECOND;
/// The longest line.
const LINE: usize = 512;
const BUFFER: usize = 16 * 1024;
const PATH: usize = 4096;

/// The process that has the writer's thread; -1 while it is started, 0 before.
static WRITER_OF: AtomicI32 = AtomicI32::new(0);
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

/// Has the lines written, and waits for that 200 ms at most.
pub(crate) fn flush() {
    // SAFETY: has no precondition.
    if unsafe { getpid() } != WRITER_OF.load(Acquire) {
        return;
    }
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
pub(crate) fn is_there() -> bool {
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
    let names =
        [c"RANK", c"HOROVOD_RANK", c"OMPI_COMM_WORLD_RANK", c"PMI_RANK", c"SLURM_PROCID", c"HVTUI_RANK"];
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
                let written = if healed { write(file, self.bytes.as_ptr().cast(), self.length) } else { -1 };
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
