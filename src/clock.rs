//! The only place that reads time. Everything else takes it as an argument.

use std::sync::OnceLock;
use std::time::Duration;

use crate::domain::time::{HostTime, Stamp, Ticker};

/// The wall clock of this process: microseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Stamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Stamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// This host's `CLOCK_MONOTONIC`: the same for all its processes.
pub fn host_now() -> HostTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    HostTime(time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000)
}

/// How long this thread has run on a processor, microseconds.
pub fn thread_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

/// A clock for stamps of some nanoseconds' cost: the processor's own counter where the kernel trusts it too, else
/// `CLOCK_MONOTONIC`. Takes two milliseconds once in a process, to learn the counter's rate.
pub fn ticker() -> Ticker {
    static TICKER: OnceLock<Ticker> = OnceLock::new();
    *TICKER.get_or_init(|| counter().unwrap_or(Ticker { read: host_nanos, nanos: 1.0 }))
}

/// This host's `CLOCK_MONOTONIC` in nanoseconds, for what is over within microseconds.
pub fn host_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(target_arch = "x86_64")]
fn counter() -> Option<Ticker> {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if source.ok()?.trim() != "tsc" {
        return None;
    }
    let (begin, first) = both();
    while host_nanos() - begin < 2_000_000 {
        std::hint::spin_loop();
    }
    let (end, last) = both();
    let ticks = last.checked_sub(first).filter(|ticks| *ticks > 0)?;
    Some(Ticker { read: tsc, nanos: (end - begin) as f64 / ticks as f64 })
}

/// Both clocks at one moment: nanoseconds and ticks. The reading of several that took the least time, for a thread that loses
/// its processor between the two clocks would have a rate that is wrong for as long as the process lives.
#[cfg(target_arch = "x86_64")]
fn both() -> (u64, u64) {
    let read = || {
        let (before, nanos, after) = (tsc(), host_nanos(), tsc());
        let took = after.saturating_sub(before);
        (took, (nanos, before + took / 2))
    };
    let first = read();
    (0..15).map(|_| read()).fold(first, |best, next| if next.0 < best.0 { next } else { best }).1
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "an instruction that every processor of this kind has")]
fn tsc() -> u64 {
    // SAFETY: reads a counter, has no other effect.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> Option<Ticker> {
    None
}
