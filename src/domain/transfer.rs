//! Parts the wait that hooks report into waiting and moving bytes.
//!
//! From outside an allreduce only its whole length is seen. The rank that came last did not wait, so what it took is
//! what moving the bytes took, and the others waited for the rest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::timing::{Phase, PhaseSpan, Spans, StepTiming};

/// Steps that some have reported and others not. What a client has caught up with comes rank by rank, thousands of steps apart.
const MOST_OPEN: usize = 8192;

/// The least wait of each step until all have reported it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct LeastWait {
    /// By step: how many have reported it, and the least of what they waited, microseconds.
    open: BTreeMap<u64, (usize, u64)>,
}

impl LeastWait {
    /// Takes in a step of one of `count`; gives the least wait when all have reported it.
    pub(crate) fn step(&mut self, count: usize, timing: &StepTiming) -> Option<u64> {
        let totals = timing.phase_totals();
        if count < 2 || totals[Phase::Transfer.index()] > 0 {
            return None;
        }
        let (told, least) = self.open.entry(timing.step).or_insert((0, u64::MAX));
        *told += 1;
        *least = (*least).min(totals[Phase::Wait.index()]);
        let whole = (*told >= count).then_some(*least);
        if whole.is_some() {
            // Reports come in order: what is older can't become whole any more.
            self.open = self.open.split_off(&timing.step);
            self.open.pop_first();
        } else if self.open.len() > MOST_OPEN {
            self.open.pop_first();
        }
        whole.filter(|least| *least > 0)
    }
}

/// Makes `transfer` of the last `least` microseconds of a step's wait.
pub(crate) fn part(timing: &mut StepTiming, least: u64) {
    let mut left = u32::try_from(least).unwrap_or(u32::MAX);
    let mut spans = Spans::default();
    for span in timing.spans.iter().rev() {
        if span.phase != Phase::Wait || left == 0 {
            spans.push(*span);
            continue;
        }
        let moved = left.min(span.dur_us);
        left -= moved;
        let waited = span.dur_us - moved;
        let start_us = span.start_us.saturating_add(waited);
        spans.push(PhaseSpan { phase: Phase::Transfer, start_us, dur_us: moved });
        if waited > 0 {
            spans.push(PhaseSpan { dur_us: waited, ..*span });
        }
    }
    spans.reverse();
    timing.spans = spans;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::step_timing;
    use crate::domain::time::HostTime;

    fn step(number: u64, spans: &[(Phase, u32)]) -> StepTiming {
        let mut at = 0;
        let mut span = |(phase, dur_us): &(Phase, u32)| {
            let span = PhaseSpan { phase: *phase, start_us: at, dur_us: *dur_us };
            at += dur_us;
            span
        };
        let spans = spans.iter().map(&mut span).collect();
        StepTiming { start: HostTime(1), samples: 1, spans, ..step_timing(number, at) }
    }

    #[test]
    fn what_the_last_one_took_is_transfer_for_all() {
        let mut least = LeastWait::default();
        let early = step(1, &[(Phase::Backward, 10), (Phase::Wait, 50), (Phase::Optimizer, 2)]);
        let late = step(1, &[(Phase::Backward, 52), (Phase::Wait, 8), (Phase::Optimizer, 2)]);
        assert_eq!(least.step(2, &early), None);
        assert_eq!(least.step(2, &late), Some(8));
        let phases = |mut timing: StepTiming| {
            part(&mut timing, 8);
            let of = |span: &PhaseSpan| (span.phase, span.start_us, span.dur_us);
            timing.spans.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(
            phases(early),
            [
                (Phase::Backward, 0, 10),
                (Phase::Wait, 10, 42),
                (Phase::Transfer, 52, 8),
                (Phase::Optimizer, 60, 2)
            ]
        );
        assert_eq!(
            phases(late),
            [(Phase::Backward, 0, 52), (Phase::Transfer, 52, 8), (Phase::Optimizer, 60, 2)]
        );
        let twice = step(2, &[(Phase::Wait, 5), (Phase::Backward, 1), (Phase::Wait, 5)]);
        assert_eq!(
            phases(twice),
            [(Phase::Wait, 0, 2), (Phase::Transfer, 2, 3), (Phase::Backward, 5, 1), (Phase::Transfer, 6, 5)]
        );
    }

    #[test]
    fn a_step_that_tells_its_transfer_or_that_one_never_reports_is_left_alone() {
        let mut least = LeastWait::default();
        let own = step(1, &[(Phase::Wait, 5), (Phase::Transfer, 5)]);
        assert_eq!((least.step(2, &own), least.step(2, &own)), (None, None));
        for number in 0..1000 {
            assert_eq!(least.step(2, &step(number, &[(Phase::Wait, 5)])), None);
        }
        assert!(least.open.len() <= MOST_OPEN);
        assert_eq!(least.step(2, &step(999, &[(Phase::Wait, 7)])), Some(5));
        assert!(least.open.is_empty());
    }
}
