//! What the plugin calls of the C library, under the names and with the types that both glibc and musl have for 64-bit Linux.

use core::ffi::{c_char, c_int, c_void};

pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) const O_WRONLY: c_int = 1;
pub(crate) const O_CREAT: c_int = 0o100;
pub(crate) const O_APPEND: c_int = 0o2000;
pub(crate) const O_CLOEXEC: c_int = 0o2_000_000;
pub(crate) const CLOCK_REALTIME: c_int = 0;
pub(crate) const CLOCK_MONOTONIC: c_int = 1;
pub(crate) const SIG_SETMASK: c_int = 2;

#[repr(C)]
pub(crate) struct Timespec {
    pub(crate) seconds: i64,
    pub(crate) nanos: i64,
}

pub(crate) type Signals = [u64; 16];

unsafe extern "C" {
    pub(crate) fn getenv(name: *const c_char) -> *const c_char;
    pub(crate) fn getpid() -> c_int;
    pub(crate) fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    pub(crate) fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
    pub(crate) fn close(file: c_int) -> c_int;
    pub(crate) fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    pub(crate) fn nanosleep(time: *const Timespec, left: *mut Timespec) -> c_int;
    pub(crate) fn sigfillset(signals: *mut Signals) -> c_int;
    pub(crate) fn pthread_sigmask(how: c_int, new: *const Signals, old: *mut Signals) -> c_int;
    pub(crate) fn pthread_create(
        thread: *mut usize,
        attributes: *const c_void,
        run: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    pub(crate) fn pthread_detach(thread: usize) -> c_int;
    pub(crate) fn sem_init(semaphore: *mut [u64; 4], shared: c_int, value: u32) -> c_int;
    pub(crate) fn sem_post(semaphore: *mut [u64; 4]) -> c_int;
    pub(crate) fn sem_timedwait(semaphore: *mut [u64; 4], until: *const Timespec) -> c_int;
    pub(crate) fn abort() -> !;
}

/// Nanoseconds of a clock.
pub(crate) fn now(clock: c_int) -> u64 {
    let mut time = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: `time` is writable.
    unsafe { clock_gettime(clock, &mut time) };
    (time.seconds as u64).wrapping_mul(SECOND).wrapping_add(time.nanos as u64)
}

pub(crate) fn timespec(nanos: u64) -> Timespec {
    Timespec { seconds: (nanos / SECOND) as i64, nanos: (nanos % SECOND) as i64 }
}
