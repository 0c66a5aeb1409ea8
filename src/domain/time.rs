//! Two clocks, never mixed: the client's wall clock, and each host's own monotonic clock.

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

impl Stamp {
    /// Microseconds from `earlier` to this moment; negative when `earlier` is later.
    pub fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Seconds from `earlier` to this moment.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.micros_since(earlier) as f64 / 1e6
    }

    /// This moment, `micros` later.
    #[must_use]
    pub fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}
