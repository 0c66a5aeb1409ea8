//! Two clocks, never mixed: the client's wall clock, and each host's own monotonic clock.

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};

/// A moment on the client's clock: microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Stamp(pub i64);

/// A moment on one host's `CLOCK_MONOTONIC`, in microseconds. All ranks of a host share it; between
/// hosts it means nothing until a [`super::clock_fit::ClockFit`] has placed it on the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct HostTime(pub u64);

/// A clock for stamps that cost next to nothing: counts ticks of a fixed length from any origin.
#[derive(Debug, Clone, Copy)]
pub struct Ticker {
    /// Reads the count.
    pub read: fn() -> u64,
    /// Nanoseconds a tick.
    pub nanos: f64,
}

impl Ticker {
    /// The count now.
    #[inline]
    pub fn now(self) -> u64 {
        (self.read)()
    }

    /// Nanoseconds between two counts.
    #[inline]
    pub fn between(self, earlier: u64, later: u64) -> u64 {
        (later.saturating_sub(earlier) as f64 * self.nanos) as u64
    }
}

impl Stamp {
    /// Microseconds from `earlier` to this moment; negative when `earlier` is later.
    pub fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Seconds from `earlier` to this moment.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.micros_since(earlier) as f64 / 1e6
    }

    /// As every JSON and CSV has it: RFC 3339, UTC, milliseconds.
    pub fn rfc3339(self) -> String {
        let at = DateTime::from_timestamp_micros(self.0).unwrap_or_default();
        at.to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// This moment, `micros` later.
    #[must_use]
    pub fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}
