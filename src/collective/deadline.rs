//! Deadlines on a clock that is passed in.

use rustix::event::Timespec;

use crate::domain::time::HostTime;

/// Reads the host's monotonic clock, in microseconds.
pub type Clock = fn() -> HostTime;

/// A moment by which something must be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    clock: Clock,
    at: u64,
}

impl Deadline {
    /// `micros` from now.
    pub(super) fn after(clock: Clock, micros: u64) -> Self {
        Self { clock, at: clock().0.saturating_add(micros) }
    }

    /// The earlier of this and `micros` from now.
    pub(super) fn within(self, micros: u64) -> Self {
        Self { clock: self.clock, at: self.at.min((self.clock)().0.saturating_add(micros)) }
    }

    /// This, `micros` later.
    pub(super) fn later(self, micros: u64) -> Self {
        Self { at: self.at.saturating_add(micros), ..self }
    }

    /// The clock that it is read on.
    pub(super) fn clock(self) -> Clock {
        self.clock
    }

    /// Microseconds that remain; 0 when it has passed.
    pub(super) fn remaining(self) -> u64 {
        self.at.saturating_sub((self.clock)().0)
    }

    /// Whether it has passed.
    pub(super) fn passed(self) -> bool {
        self.remaining() == 0
    }

    /// What remains, as `poll` wants it: rounded up, so that a passed wait means a passed deadline.
    pub(super) fn timespec(self) -> Timespec {
        let micros = self.remaining().saturating_add(1);
        Timespec {
            tv_sec: i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: (micros % 1_000_000 * 1_000) as _,
        }
    }
}
