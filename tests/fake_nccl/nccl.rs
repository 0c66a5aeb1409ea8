//! NCCL's functions.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::gpu::{Work, gpu};
use crate::meet::Meeting;
use crate::{cuda, script};

const OK: c_int = 0;
const SYSTEM_ERROR: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;

/// What a communicator is doing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Busy {
    /// Ends with this code after so many polls.
    Until(i32, c_int),
    Forever,
    /// Has ended with this code.
    Over(c_int),
}

struct Comm {
    world: c_int,
    rank: c_int,
    busy: Busy,
    launched: u32,
    registered: BTreeSet<usize>,
}

/// Memory that is registered anywhere.
static REGISTERED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

#[repr(C)]
pub struct Id([u8; 128]);

#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    unsafe { version.write(script::number("FAKE_NCCL_VERSION", 22_705)) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    match code {
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        _ => c"scripted error",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_: *mut c_void) -> *const c_char {
    c"net.cc:1 scripted reason\n".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut Id) -> c_int {
    script::log("id");
    if script::variable("FAKE_NCCL_ID") == "error" {
        return SYSTEM_ERROR;
    }
    unsafe { id.write(Id(std::array::from_fn(|at| at as u8 ^ 0x5a))) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut *mut c_void,
    world: c_int,
    id: Id,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    let config = unsafe { &*config };
    let right_id = id.0.iter().enumerate().all(|(at, byte)| *byte == at as u8 ^ 0x5a);
    let right =
        (config.size, config.magic, config.blocking) == (24, 0xcafe_beef, 0) && config.version == 21_400;
    if !right || !right_id || !cuda::has_context() {
        return INVALID_ARGUMENT;
    }
    script::log(&format!("init {rank} of {world}"));
    let polls = script::number("FAKE_NCCL_POLLS", 3);
    let init = script::variable("FAKE_NCCL_INIT");
    let busy = match init.as_str() {
        "refused" => return SYSTEM_ERROR,
        "never" => Busy::Forever,
        "error" => Busy::Until(polls, SYSTEM_ERROR),
        other if other == format!("error-{rank}") => Busy::Until(polls, SYSTEM_ERROR),
        _ => Busy::Until(polls, OK),
    };
    let new = Box::new(Comm { world, rank, busy, launched: 0, registered: BTreeSet::new() });
    unsafe { comm.write(Box::into_raw(new).cast()) };
    IN_PROGRESS
}

/// # Safety
/// `comm` is one of ours, and only this thread uses it.
unsafe fn of<'a>(comm: *mut c_void) -> &'a mut Comm {
    unsafe { &mut *comm.cast() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: *mut c_void, state: *mut c_int) -> c_int {
    let comm = unsafe { of(comm) };
    if let Busy::Until(polls, code) = comm.busy {
        comm.busy = if polls == 0 { Busy::Over(code) } else { Busy::Until(polls - 1, code) };
    }
    let code = match comm.busy {
        Busy::Over(code) => code,
        Busy::Until(..) | Busy::Forever => IN_PROGRESS,
    };
    unsafe { state.write(code) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: *mut c_void) -> c_int {
    script::log(&format!("abort {}", unsafe { of(comm) }.rank));
    if script::variable("FAKE_NCCL_ABORT") == "hang" {
        script::hang();
    }
    gpu().abort();
    unsafe { drop_comm(comm) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(comm: *mut c_void) -> c_int {
    let comm = unsafe { of(comm) };
    script::log(&format!("finalize {}", comm.rank));
    if comm.busy != Busy::Over(OK) {
        return INVALID_USAGE;
    }
    comm.busy = Busy::Until(2, OK);
    IN_PROGRESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: *mut c_void) -> c_int {
    script::log(&format!("destroy {}", unsafe { of(comm) }.rank));
    if unsafe { of(comm) }.busy != Busy::Over(OK) {
        return INVALID_USAGE;
    }
    unsafe { drop_comm(comm) };
    OK
}

/// # Safety
/// `comm` is one of ours, and never used again.
unsafe fn drop_comm(comm: *mut c_void) {
    let comm = unsafe { Box::from_raw(comm.cast::<Comm>()) };
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|at| !comm.registered.contains(at));
}

/// Puts an operation on its stream, which does `work` to the values.
unsafe fn launch(name: &str, comm: *mut c_void, at: usize, count: usize, work: Work, stream: usize) -> c_int {
    let comm = unsafe { of(comm) };
    if comm.busy != Busy::Over(OK) || !cuda::has_context() {
        // The library says that nothing may be called before the last call has settled.
        script::log("called too early");
        return INVALID_USAGE;
    }
    let start = comm.registered.range(..=at).next_back().copied();
    let end = start.and_then(|start| Some(start + *gpu().memory.get(&start)?));
    let kind = if end.is_some_and(|end| at < end) { "registered" } else { "plain" };
    script::log(&format!("{name} {count} {kind}"));
    comm.launched += 1;
    let run = script::variable("FAKE_NCCL_RUN");
    let work = if run == "never" { Work::Never } else { work };
    let mut gpu = gpu();
    gpu.put(stream, work);
    gpu.put(stream, Work::Spend { ns: 1_000_000 });
    if run == "error" {
        gpu.put(stream, Work::Never);
        comm.busy = Busy::Until(4, REMOTE_ERROR);
        return OK;
    }
    // The first one makes its connections first.
    if comm.launched == 1 {
        comm.busy = Busy::Until(2, OK);
        return IN_PROGRESS;
    }
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: usize,
    to: usize,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: *mut c_void,
    stream: usize,
) -> c_int {
    // In place, of 32-bit floats: what the tests use.
    if from != to || dtype != 7 {
        return INVALID_ARGUMENT;
    }
    let Comm { world, rank, launched, .. } = *unsafe { of(comm) };
    let work = match Meeting::of(world, rank, launched, op) {
        Some(meeting) => Work::Meet(meeting.over(to, count)),
        None => Work::Scale { at: to, count, by: if op == 0 { world as f32 } else { 1.0 } },
    };
    unsafe { launch("allreduce", comm, to, count, work, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    from: usize,
    to: usize,
    count: usize,
    dtype: c_int,
    _: c_int,
    comm: *mut c_void,
    stream: usize,
) -> c_int {
    if from != to || dtype != 7 {
        return INVALID_ARGUMENT;
    }
    unsafe { launch("broadcast", comm, to, count, Work::Scale { at: to, count, by: 1.0 }, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(at: *mut usize, bytes: usize) -> c_int {
    script::log("ncclMemAlloc");
    unsafe { at.write(cuda::allocate(bytes)) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(at: usize) -> c_int {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).contains(&at);
    script::log(if registered { "freed while registered" } else { "ncclMemFree" });
    if cuda::free(at) { OK } else { INVALID_ARGUMENT }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    comm: *mut c_void,
    at: usize,
    _: usize,
    handle: *mut usize,
) -> c_int {
    let comm = unsafe { of(comm) };
    let known = gpu().memory.contains_key(&at);
    let script = script::variable("FAKE_NCCL_REGISTER");
    let fails = script == "error" || script == format!("error-{}", comm.rank);
    if !known || comm.busy != Busy::Over(OK) || fails {
        return INVALID_ARGUMENT;
    }
    comm.registered.insert(at);
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).insert(at);
    unsafe { handle.write(at) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDeregister(comm: *mut c_void, handle: usize) -> c_int {
    script::log("deregister");
    unsafe { of(comm) }.registered.remove(&handle);
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    OK
}
