//! A step's phases from the durations between its events on the GPU. Pure.
//!
//! A step lasts from the end of the one before to its own, on the GPU's clock, so that the phases make up the whole of it: what the GPU
//! waits for the host to bring a batch is the phase `data`.

use crate::collective::OpTiming;
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, StepTiming};
use crate::worker::stopwatch::exposed;

/// What a step tells besides its durations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) number: u64,
    pub(super) loss: Option<f32>,
    pub(super) samples: usize,
}

/// The GPU's time as the host's: where the last known step ended, µs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline {
    at: f64,
}

impl Timeline {
    /// The GPU has nothing to do at this moment of the host.
    pub(super) fn new(now: HostTime) -> Self {
        Self { at: now.0 as f64 }
    }

    /// The next step: milliseconds of data, forward, backward, standing still for other ranks, and optimizer; and what its
    /// operations took.
    pub(super) fn step(&mut self, told: Told, ms: [f32; 5], operations: &[OpTiming]) -> StepTiming {
        let start = self.at;
        let mut ends = [0; 5];
        for (end, ms) in ends.iter_mut().zip(ms) {
            self.at += f64::from(ms.max(0.0)) * 1e3;
            *end = (self.at - start) as u32;
        }
        let [data, forward, backward, together, whole] = ends;
        let still = exposed(operations, u64::from(together - backward) * 1000);
        let waited = backward + ((still.wait / 1000) as u32).min(together - backward);
        let phases = [
            (Phase::Data, data),
            (Phase::Forward, forward),
            (Phase::Backward, backward),
            (Phase::Wait, waited),
            (Phase::Transfer, together),
            (Phase::Optimizer, whole),
        ];
        let mut at = 0;
        let spans = phases.map(|(phase, until)| {
            let span = PhaseSpan { phase, start_us: at, dur_us: until - at };
            at = until;
            span
        });
        StepTiming {
            step: told.number,
            start: HostTime(start as u64),
            dur_us: whole,
            loss: told.loss,
            samples: told.samples as u32,
            spans: spans.into(),
            hidden_us: u32::try_from(still.hidden / 1000).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_make_up_the_step_and_steps_follow_each_other() {
        let mut timeline = Timeline::new(HostTime(1_000_000));
        let told = |number| Told { number, loss: Some(0.5), samples: 64 };
        // 300 µs of operations, of which 100 stood in the way: 60 of transfer, and 40 of 100 that were waited.
        let operations =
            [OpTiming { wait: 0, transfer: 140_000 }, OpTiming { wait: 100_000, transfer: 60_000 }];
        let first = timeline.step(told(1), [0.1, 0.2004, 0.3004, 0.1, 0.05], &operations);
        assert_eq!((first.start, first.dur_us, first.hidden_us), (HostTime(1_000_000), 750, 200));
        assert_eq!(first.phase_totals(), [100, 200, 300, 40, 60, 50, 0]);
        assert_eq!(first.phase_totals().iter().sum::<u64>(), u64::from(first.dur_us));
        assert!(first.spans.windows(2).all(|pair| pair[0].start_us + pair[0].dur_us == pair[1].start_us));
        // Nothing is lost where a step ends between two microseconds.
        let second = timeline.step(told(2), [0.0004, 0.0, 0.0, 0.0, 0.0], &[]);
        assert_eq!((second.start, second.dur_us), (HostTime(1_000_750), 0));
        let third = timeline.step(told(3), [0.0004, 0.0, 0.0, 0.0, 0.0], &[]);
        assert_eq!(third.start, HostTime(1_000_751));
    }
}
