//! The only place that reads time. Everything else takes it as an argument.

use std::time::Duration;

use crate::domain::time::{HostTime, Stamp};

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

/// The same clock in nanoseconds, for what is over within microseconds.
pub fn host_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
