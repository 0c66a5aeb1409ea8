//! Who came last to the allreduce of a step, and how much later than the others: from the waits alone, for all ranks leave it
//! together.

use serde::{Deserialize, Serialize};

use super::part::Part;
use super::what_if::BEFORE;
use crate::domain::last_in::last_in;
use crate::domain::series::Merge;
use crate::domain::timing::Phase;

/// How late a rank was over some steps: how much less than a typical rank it waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Late {
    sum_us: f64,
    steps: u32,
}

impl Late {
    pub(super) fn of(us: i64) -> Self {
        Self { sum_us: us as f64, steps: 1 }
    }

    /// Mean of a step, microseconds; negative where it was early. `None` where nothing is known.
    pub fn mean_us(self) -> Option<f64> {
        (self.steps > 0).then(|| self.sum_us / f64::from(self.steps))
    }
}

impl Merge for Late {
    fn merge(&mut self, other: &Self) {
        self.sum_us += other.sum_us;
        self.steps = self.steps.saturating_add(other.steps);
    }
}

/// What the waits of one step tell.
#[derive(Debug, PartialEq)]
pub(super) struct Judged {
    /// The place of the part that came last; `None` where the second last came so soon before it that it may have been that.
    pub(super) last: Option<usize>,
    /// How long the second last waited for it: so much shorter the step would be without its lateness.
    pub(super) caused_us: u32,
    /// How much less than a typical rank each waited.
    pub(super) late_us: Vec<i64>,
}

/// `None` where there are fewer than two ranks, or one of them doesn't tell how long it waited.
pub(super) fn judge(parts: &[Part]) -> Option<Judged> {
    if parts.len() < 2 || parts.iter().any(|part| !part.waits) {
        return None;
    }
    let by_host: Vec<_> = parts.iter().map(|part| (u64::from(part.wait_us()), part.clock)).collect();
    let last = last_in(&by_host);
    let mut waits: Vec<u32> = parts.iter().map(Part::wait_us).collect();
    waits.sort_unstable();
    let typical = i64::from(waits[waits.len() / 2]);
    let late_us = parts.iter().map(|part| typical - i64::from(part.wait_us())).collect();
    Some(Judged { last, caused_us: waits[1] - waits[0], late_us })
}

/// How much longer than a typical other rank each took for what lies before the allreduce, as [`BEFORE`].
pub(super) fn excess(parts: &[Part]) -> Vec<[i64; BEFORE.len()]> {
    let mut all = vec![[0; BEFORE.len()]; parts.len()];
    if parts.len() < 2 {
        return all;
    }
    let middle = (parts.len() - 1) / 2;
    for place in 0..BEFORE.len() {
        let mut sorted: Vec<u32> = parts.iter().map(|part| part.before[place]).collect();
        sorted.sort_unstable();
        for (excess, part) in all.iter_mut().zip(parts) {
            let own = part.before[place];
            // the upper median of the others
            let typical = if own <= sorted[middle] { sorted[middle + 1] } else { sorted[middle] };
            excess[place] = i64::from(own) - i64::from(typical);
        }
    }
    all
}

/// Parts the waits that hooks tell: the rank that came last did not wait, so what it took is what moving the bytes took.
pub(super) fn part_waits(parts: &mut [Part]) {
    if parts.len() < 2 || parts.iter().any(|part| part.phases[Phase::Transfer.index()] > 0) {
        return;
    }
    let least = parts.iter().map(Part::wait_us).min().unwrap_or(0);
    for part in parts {
        part.moved(least);
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::analysis::fixtures::{Told, spec, timing};
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::event::{Event, Origin};
    use crate::domain::ids::HostId;
    use crate::domain::time::HostTime;

    #[test]
    fn a_lead_is_judged_by_what_a_message_takes_at_its_time() {
        let mut spec = spec(2);
        spec.placements[1].host = HostId::from("gpu-b");
        let mut told = Told::new(spec);
        // the way to the hosts is quick at first, and slow after an outage of an hour
        for (from, rtt_us) in [(0, 400), (3_600, 9_000)] {
            for second in from..from + 30 {
                for host in ["gpu-a", "gpu-b"] {
                    let host_time = HostTime(second * 1_000_000);
                    let sample = ClockSample { host_time, offset_us: 0, rtt_us };
                    told.tell(Origin::Host(HostId::from(host)), Event::ClockSampled { sample });
                }
            }
            // the second one is last, by 2 ms
            for step in from + 2..from + 12 {
                told.step(0, timing(step, [10, 20, 30, 2, 10, 10]));
                told.step(1, timing(step, [12, 20, 30, 0, 10, 10]));
            }
        }
        let run = told.analyzer.finish(None);
        assert_eq!((run.steps.judged, run.ranks[1].last_in), (20, Some(10)), "the 10 before the outage");
    }
}
