//! How the playhead of a replay moves while it plays. Pure: time is an argument.

use crate::domain::time::Stamp;

/// Real time that one call may add at most: after a suspended laptop the playhead goes on where it was.
const LONGEST_TICK_US: i64 = 1_000_000;

/// How the playhead moves.
#[derive(Debug)]
pub(super) struct Motion {
    pub(super) playing: bool,
    /// It has come to the end of what may go on: it plays on with that.
    pub(super) waits: bool,
    pub(super) eighths: i64,
    /// Eighths of a microsecond left over by the last move.
    rest: i64,
    pub(super) last: Option<Stamp>,
}

impl Default for Motion {
    /// It stands still, and plays at the speed at which all happened.
    fn default() -> Self {
        Self { playing: false, waits: false, eighths: 8, rest: 0, last: None }
    }
}

impl Motion {
    /// Forgets the last call, so that the next one moves nothing.
    pub(super) fn halt(&mut self) {
        self.last = None;
        self.rest = 0;
    }

    /// Microseconds of recording that passed since the last call.
    pub(super) fn advance(&mut self, now: Stamp) -> i64 {
        let last = self.last.replace(now).unwrap_or(now);
        let passed = now.micros_since(last).clamp(0, LONGEST_TICK_US);
        let eighths = passed * self.eighths + self.rest;
        self.rest = eighths % 8;
        eighths / 8
    }
}
