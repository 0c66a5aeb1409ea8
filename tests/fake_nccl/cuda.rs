//! The driver's functions.

use std::alloc::Layout;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::gpu::{Work, gpu};
use crate::script;

type Code = c_uint;
const OK: Code = 0;
const OUT_OF_MEMORY: Code = 2;
const NO_DEVICE: Code = 100;
const INVALID_DEVICE: Code = 101;
const NOT_READY: Code = 600;
const NOT_PERMITTED: Code = 800;

/// # Safety
/// `at` may be written.
unsafe fn put<T>(at: *mut T, value: T) -> Code {
    // SAFETY: the caller's promise.
    unsafe { at.write(value) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_: c_uint) -> Code {
    if count() == 0 { NO_DEVICE } else { OK }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    unsafe { put(version, script::number("FAKE_CUDA_VERSION", 13_000)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_: Code, text: *mut *const c_char) -> Code {
    unsafe { put(text, c"CUDA_ERROR_SCRIPTED".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_: Code, text: *mut *const c_char) -> Code {
    unsafe { put(text, c"a scripted error".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Code {
    if !(0..count()).contains(&ordinal) {
        return INVALID_DEVICE;
    }
    unsafe { put(device, ordinal) }
}

fn count() -> c_int {
    script::number("FAKE_CUDA_COUNT", 8)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(number: *mut c_int) -> Code {
    unsafe { put(number, count()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut u8, room: c_int, _: c_int) -> Code {
    let text = c"Scripted GPU".to_bytes_with_nul();
    if text.len() > room as usize {
        return INVALID_DEVICE;
    }
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name, text.len()) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, which: c_uint, _: c_int) -> Code {
    // 75 and 76: the compute capability.
    let one = match which {
        75 => script::number("FAKE_CUDA_CAPABILITY", 9),
        76 => 0,
        _ => 1,
    };
    unsafe { put(value, one) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> Code {
    unsafe { put(uuid, [device as u8 + 200; 16]) }
}

// A context is the device's number plus one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> Code {
    unsafe { put(context, device as usize + 1) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> Code {
    OK
}

thread_local! {
    static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Whether this thread has a context.
pub(crate) fn has_context() -> bool {
    CURRENT.get() != 0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> Code {
    CURRENT.set(context);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> Code {
    unsafe { put(context, CURRENT.get()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Code {
    let all = gpu().drain_all();
    ended(all)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Code {
    unsafe {
        put(least, 0);
        put(greatest, -5)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut usize, _: c_uint) -> Code {
    unsafe { put(stream, gpu().new_stream()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut usize, _: c_uint, priority: c_int) -> Code {
    script::log(&format!("stream of priority {priority}"));
    unsafe { put(stream, gpu().new_stream()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: usize) -> Code {
    gpu().drain(stream);
    OK
}

/// A wait that never ends hangs, as the driver's does.
fn ended(all: bool) -> Code {
    if all { OK } else { script::hang() }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: usize) -> Code {
    let all = gpu().drain(stream);
    ended(all)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _: c_uint) -> Code {
    gpu().wait_for(stream, event);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, _: c_uint) -> Code {
    unsafe { put(event, gpu().new_event()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: usize) -> Code {
    gpu().drop_event(event);
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: usize, stream: usize) -> Code {
    gpu().record(event, stream);
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: usize) -> Code {
    if gpu().query(event) { OK } else { NOT_READY }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: usize) -> Code {
    let all = gpu().finish(event);
    ended(all)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, from: usize, to: usize) -> Code {
    unsafe { put(ms, gpu().elapsed(from, to)) }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).unwrap_or(Layout::new::<u64>())
}

/// Memory with other values than zeros, so that code that needs zeros must ask for them.
pub(crate) fn allocate(bytes: usize) -> usize {
    // SAFETY: callers ask for at least one byte.
    let at = unsafe { std::alloc::alloc(layout(bytes)) };
    if !at.is_null() {
        // SAFETY: just allocated with this length.
        unsafe { at.write_bytes(0xaa, bytes) };
    }
    gpu().memory.insert(at as usize, bytes);
    at as usize
}

/// False when there is no such memory.
pub(crate) fn free(at: usize) -> bool {
    let mut gpu = gpu();
    // As the driver does it: nothing is freed under work that is under way.
    let all = gpu.drain_all();
    let Some(bytes) = gpu.memory.remove(&at) else { return false };
    if all {
        // SAFETY: from `allocate`, with this length, and not freed before.
        unsafe { std::alloc::dealloc(at as *mut u8, layout(bytes)) };
    }
    true
}

/// Bytes of the card, and how many of them are free.
fn room() -> (usize, usize) {
    let all = script::variable("FAKE_CUDA_MEMORY").parse().unwrap_or(80 << 30);
    let used: usize = gpu().memory.values().sum();
    (all, all.saturating_sub(used))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, all: *mut usize) -> Code {
    let room = room();
    unsafe {
        put(all, room.0);
        put(free, room.1)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(at: *mut usize, bytes: usize, _: c_uint) -> Code {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 4096) else { return OUT_OF_MEMORY };
    // Never given back: the driver's would be, and a scripted process is short.
    unsafe { put(at, std::alloc::alloc_zeroed(layout) as usize) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(_: usize) -> Code {
    // As the driver does it.
    let all = gpu().drain_all();
    ended(all)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(at: usize, value: u8, bytes: usize, stream: usize) -> Code {
    gpu().put(stream, Work::Set { at, value, bytes });
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(at: *mut usize, bytes: usize) -> Code {
    script::log("cuMemAlloc");
    if bytes > room().1 {
        return OUT_OF_MEMORY;
    }
    unsafe { put(at, allocate(bytes)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(at: usize) -> Code {
    script::log("cuMemFree");
    if free(at) { OK } else { 1 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(at: usize, value: u8, bytes: usize) -> Code {
    unsafe { std::ptr::write_bytes(at as *mut u8, value, bytes) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(_: *mut c_void, bytes: usize, _: c_uint) -> Code {
    script::log(&format!("pin {bytes}"));
    if script::variable("FAKE_CUDA_PIN") == "error" { NOT_PERMITTED } else { OK }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(_: *mut c_void) -> Code {
    script::log("unpin");
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> Code {
    gpu().put(stream, Work::Copy { to, from, bytes });
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> Code {
    gpu().put(stream, Work::Copy { to, from, bytes });
    OK
}
