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

/// The wall clock and the host's clock at one moment, and how many microseconds it may be off.
pub fn both() -> (Stamp, HostTime, u64) {
    let (took, (at, host)) = surest(|| {
        let (before, at, after) = (host_now(), now(), host_now());
        let took = after.0.saturating_sub(before.0);
        (took, (at, HostTime(before.0 + took / 2)))
    });
    (at, host, took.div_ceil(2) + 1)
}

/// Of several readings of two clocks the one that took the least: a thread that loses its processor between the two has read two
/// moments.
fn surest<T>(read: impl Fn() -> (u64, T)) -> (u64, T) {
    let first = read();
    (0..15).map(|_| read()).fold(first, |best, next| if next.0 < best.0 { next } else { best })
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
    let both = || {
        let (_, (nanos, ticks)) = surest(|| {
            let (before, nanos, after) = (tsc(), host_nanos(), tsc());
            let took = after.saturating_sub(before);
            (took, (nanos, before + took / 2))
        });
        (nanos, ticks)
    };
    let (begin, first) = both();
    while host_nanos() - begin < 2_000_000 {
        std::hint::spin_loop();
    }
    let (end, last) = both();
    let ticks = last.checked_sub(first).filter(|ticks| *ticks > 0)?;
    Some(Ticker { read: tsc, nanos: (end - begin) as f64 / ticks as f64 })
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
