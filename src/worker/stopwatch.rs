//! Cuts a step into phases.

use crate::clock::host_now;
use crate::collective::OpTiming;
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, Spans, StepTiming};

/// The clock of one step. Phases follow each other without gaps.
pub(super) struct Stopwatch {
    start: HostTime,
    /// Where the last phase ended, µs from the start.
    at: u32,
    spans: Spans,
    hidden: u32,
}

impl Stopwatch {
    /// Begins now.
    pub(super) fn start() -> Self {
        Self { start: host_now(), at: 0, spans: Spans::default(), hidden: 0 }
    }

    fn now(&self) -> u32 {
        micros(host_now().0.saturating_sub(self.start.0))
    }

    /// Ends a phase now; it began where the one before ended.
    pub(super) fn end(&mut self, phase: Phase) {
        let now = self.now();
        self.push(phase, now);
    }

    /// All operations of a step, some of which may have been begun long before, are over now.
    pub(super) fn end_operations(&mut self, timings: &[OpTiming]) {
        let now = self.now();
        let Exposed { wait, hidden } = exposed(timings, u64::from(now.saturating_sub(self.at)) * 1000);
        let waited = self.at.saturating_add(micros(wait / 1000)).min(now);
        self.push(Phase::Wait, waited);
        self.push(Phase::Transfer, now);
        self.hidden = micros(hidden / 1000);
    }

    fn push(&mut self, phase: Phase, until: u32) {
        self.spans.push(PhaseSpan { phase, start_us: self.at, dur_us: until.saturating_sub(self.at) });
        self.at = until;
    }

    /// The step is over.
    pub(super) fn finish(self, step: u64, loss: Option<f32>, samples: usize) -> StepTiming {
        StepTiming {
            step,
            start: self.start,
            dur_us: self.at,
            loss,
            samples: samples as u32,
            spans: self.spans,
            hidden_us: self.hidden,
        }
    }
}

/// What of the operations' time the rank stood still for, ns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exposed {
    /// Waiting for another rank.
    pub(super) wait: u64,
    /// What passed while it computed.
    pub(super) hidden: u64,
}

/// Operations are done one after the other, and the last has just ended: what they took longer than the rank stood still,
/// `still`, was hidden, the first ones' time before the last ones'.
pub(super) fn exposed(timings: &[OpTiming], still: u64) -> Exposed {
    let (mut left, mut wait, mut all) = (still, 0, 0_u64);
    for timing in timings.iter().rev() {
        left = left.saturating_sub(timing.transfer);
        let waited = timing.wait.min(left);
        wait += waited;
        left -= waited;
        all = all.saturating_add(timing.wait).saturating_add(timing.transfer);
    }
    Exposed { wait, hidden: all.saturating_sub(still - left) }
}

fn micros(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_the_time_that_the_rank_stood_still_was_hidden() {
        let op = |wait, transfer| OpTiming { wait, transfer };
        // Nothing behind anything: one operation on the caller's thread, and a little around it.
        assert_eq!(exposed(&[op(70, 20)], 95), Exposed { wait: 70, hidden: 0 });
        // The second operation's transfer and half of its wait are all that was left when the rank had computed.
        let two = [op(500, 300), op(40, 60)];
        assert_eq!(exposed(&two, 80), Exposed { wait: 20, hidden: 820 });
        // All of the second, and the end of the first's transfer.
        assert_eq!(exposed(&two, 200), Exposed { wait: 40, hidden: 700 });
        assert_eq!(exposed(&two, 0), Exposed { wait: 0, hidden: 900 });
        assert_eq!(exposed(&[], 10), Exposed { wait: 0, hidden: 0 });
    }
}
