//! Cuts a step into phases.

use crate::clock::host_now;
use crate::collective::OpTiming;
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, StepTiming};

/// The clock of one step. Phases follow each other without gaps.
pub(super) struct Stopwatch {
    start: HostTime,
    /// Where the last phase ended, µs from the start.
    at: u32,
    spans: Vec<PhaseSpan>,
}

impl Stopwatch {
    /// Begins now.
    pub(super) fn start() -> Self {
        Self { start: host_now(), at: 0, spans: Vec::with_capacity(Phase::ALL.len()) }
    }

    fn now(&self) -> u32 {
        micros(host_now().0.saturating_sub(self.start.0))
    }

    /// Ends a phase now; it began where the one before ended.
    pub(super) fn end(&mut self, phase: Phase) {
        let now = self.now();
        self.push(phase, now);
    }

    /// Ends an allreduce now: waiting first, then transfer.
    pub(super) fn end_operation(&mut self, timing: OpTiming) {
        let now = self.now();
        let waited = self.at.saturating_add(micros(timing.wait / 1000)).min(now);
        self.push(Phase::Wait, waited);
        self.push(Phase::Transfer, now);
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
            hidden_us: 0,
        }
    }
}

fn micros(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
