//! hvtui's NCCL profiler plugin: tells how long each collective took on the GPU, by the profiler interface of NCCL 2.27 and
//! later (`ncclProfiler_v4`, `_v5`, `_v6`; `src/include/plugin/profiler/` of NVIDIA/nccl).
//!
//! `build.rs` compiles this file and those beside it to `libnccl-profiler-hvtui.so`; they are no part of the crate. They use
//! `core` and, by their names, a few functions of the C library that the process has already: it is linked with nothing, so
//! that it loads wherever NCCL does.
//!
//! What holds whatever NCCL calls: nothing blocks on NCCL's threads (they write to atomics; a thread of this plugin writes
//! the report), no memory is allocated, no handle is ever followed as a pointer, nothing panics, and each call answers
//! `ncclSuccess`. The design is in docs/decisions/nccl-timings.md, the lines in docs/formats/report.md.

#![no_std]

mod collectives;
mod libc;
mod writer;

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;

use collectives::{channel_begins, channel_ends, collective, handle};

/// `ncclSuccess`.
const SUCCESS: c_int = 0;
/// Types of events, bits of the mask: the low byte alone is read, which is all of it in version 4, and 0 in later versions
/// for the types above.
const GROUP: u8 = 1;
const COLLECTIVE: u8 = 1 << 1;
const KERNEL_CHANNEL: u8 = 1 << 6;
/// The state `ncclProfilerKernelChStop`.
const KERNEL_CHANNEL_STOP: c_int = 22;

/// Nothing here panics: a test sees that the compiler has found this unreachable.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: has no precondition.
    unsafe { libc::abort() }
}

/// What all events begin with.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) kind: u8,
    pub(crate) parent: *mut c_void,
    pub(crate) rank: c_int,
}

/// `ncclProfileColl`.
#[repr(C)]
pub(crate) struct CollectiveEvent {
    pub(crate) event: Event,
    pub(crate) seq: u64,
    pub(crate) func: *const c_char,
    pub(crate) send: *const c_void,
    pub(crate) receive: *const c_void,
    pub(crate) count: usize,
    pub(crate) root: c_int,
    pub(crate) datatype: *const c_char,
    pub(crate) channels: u8,
}

/// `ncclProfileKernelCh`.
#[repr(C)]
pub(crate) struct KernelChannelEvent {
    pub(crate) event: Event,
    pub(crate) channel: u8,
    pub(crate) timer: u64,
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
    if !writer::is_there() {
        return SUCCESS;
    }
    let Some(given) = collectives::join(id, ranks, rank) else { return SUCCESS };
    // SAFETY: NCCL's, for a pointer; the mask is one number for the process, which other threads read meanwhile.
    unsafe {
        *context = given as *mut c_void;
        (*mask.cast::<AtomicI32>()).store(c_int::from(COLLECTIVE | KERNEL_CHANNEL), Relaxed);
    }
    SUCCESS
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

extern "C" fn record_event_state(event: *mut c_void, state: c_int, arguments: *const c_void) -> c_int {
    if state == KERNEL_CHANNEL_STOP && !arguments.is_null() {
        // SAFETY: NCCL's; of this state they begin with the time.
        channel_ends(event as u64, unsafe { arguments.cast::<u64>().read_unaligned() });
    }
    SUCCESS
}

/// Of a collective this means that it is enqueued, of a channel that its end was recorded.
extern "C" fn stop_event(_event: *mut c_void) -> c_int {
    SUCCESS
}

extern "C" fn finalize(context: *mut c_void) -> c_int {
    if collectives::leave(context) {
        writer::flush();
    }
    SUCCESS
}
