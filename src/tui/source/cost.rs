//! What recording costs, measured between two looks.

use crate::domain::recording_cost::RecordingCost;
use crate::domain::time::HostTime;
use crate::record::Status;
use crate::tui::core::Msg;

/// It is told so often, microseconds.
const EVERY_US: u64 = 5_000_000;

/// Looks at the recorders.
#[derive(Debug, Default)]
pub(super) struct CostMeter {
    /// When it last looked, and what all had taken by then: microseconds of a processor and bytes.
    last: Option<(HostTime, u64, u64)>,
    told: bool,
}

impl CostMeter {
    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: HostTime) -> bool {
        self.last.is_none_or(|(at, ..)| now.0.saturating_sub(at.0) >= EVERY_US)
    }

    /// What recorders that are at work cost, where that is news; once also that there is none any more.
    pub(super) fn look(&mut self, now: HostTime, all: impl Iterator<Item = Status>) -> Option<Msg> {
        let (mut cpu_us, mut bytes, mut recordings) = (0, 0, 0);
        let (mut dropped, mut waiting, mut is_full) = (0, 0, false);
        // one that has failed is told by itself, and writes nothing
        for status in all {
            dropped += status.dropped;
            if status.error.is_some() {
                continue;
            }
            recordings += 1;
            is_full |= status.left_out.is_some();
            (cpu_us, bytes) = (cpu_us + status.cpu_us, bytes + status.bytes);
            waiting += status.waiting;
        }
        let before = self.last.replace((now, cpu_us, bytes));
        if recordings == 0 {
            return std::mem::take(&mut self.told).then_some(Msg::RecordingCosts(None));
        }
        let (at, cpu_before, bytes_before) = before?;
        // one has ended meanwhile, and its part with it
        let (cpu, written) = (cpu_us.checked_sub(cpu_before)?, bytes.checked_sub(bytes_before)?);
        let us = now.0.saturating_sub(at.0).max(1) as f64;
        self.told = true;
        let (cores, bytes_per_s) = (cpu as f64 / us, written as f64 * 1e6 / us);
        let cost = RecordingCost { recordings, cores, bytes_per_s, dropped, waiting, is_full };
        Some(Msg::RecordingCosts(Some(cost)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_was_taken_between_two_looks() {
        let mut meter = CostMeter::default();
        let second = |at: u64| HostTime(at * 1_000_000);
        let status = |cpu_us, bytes| Status { cpu_us, bytes, ..Status::default() };
        assert!(meter.is_due(second(1)));
        assert_eq!(meter.look(second(1), std::iter::empty()), None);
        assert!(!meter.is_due(second(2)) && meter.is_due(second(6)));
        meter.look(second(6), [status(1_000, 500)].into_iter());
        let told = meter.look(second(16), [status(21_000, 100_500)].into_iter());
        let Some(Msg::RecordingCosts(Some(cost))) = told else { panic!("{told:?}") };
        assert_eq!((cost.recordings, cost.cores, cost.bytes_per_s), (1, 0.002, 10_000.0));
        assert_eq!(meter.look(second(21), [status(7, 7)].into_iter()), None, "another one");
        assert_eq!(meter.look(second(26), std::iter::empty()), Some(Msg::RecordingCosts(None)));
        assert_eq!(meter.look(second(31), std::iter::empty()), None, "said once");
        let failed = || Status { error: Some("disk full".to_owned()), ..Status::default() };
        assert_eq!(meter.look(second(36), [failed()].into_iter()), None, "it writes nothing");
        assert_eq!(meter.look(second(41), [failed()].into_iter()), None);
    }
}
