//! Whether what the ranks of a run did agrees with what pings say of its hosts' clocks. Pure.
//!
//! No rank leaves an allreduce before the last one has come to it. Where ranks of one host seem to have left before a rank of
//! another came, by more than both clocks are sure of, the clocks are apart: by at least that much. It is believed of several steps.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::ids::HostId;
use super::time::Stamp;
use super::timing::{Phase, StepTiming};

/// How many of the newest steps are looked at.
pub const WINDOW: usize = 64;
/// So many of them must contradict, and at least one of so many.
const LEAST: usize = 5;
const LEAST_SHARE: usize = 8;
/// So many of those must show as much as is told.
const SHOWN_BY: usize = 3;
/// What is less is not told, microseconds: it is no more than a drift since the last ping.
const SLACK_US: i64 = 500;

/// How a rank went through the allreduce that ends a step, by the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Which host it is on.
    pub host: usize,
    /// What the host's clock is sure of, microseconds.
    pub unsure_us: u32,
    came: Stamp,
    left: Stamp,
}

impl Passage {
    /// Of a step that began at `start`; `None` where it does not tell how long it waited.
    pub fn new(host: usize, unsure_us: u32, start: Stamp, timing: &StepTiming) -> Option<Self> {
        let came =
            timing.spans.iter().filter(|span| span.phase == Phase::Wait).map(|span| span.start_us).max()?;
        let is_of_it = |phase: Phase| matches!(phase, Phase::Wait | Phase::Transfer);
        let ends = timing.spans.iter().filter(|span| is_of_it(span.phase));
        let left = ends.map(|span| span.start_us.saturating_add(span.dur_us)).max()?;
        let at = |us: u32| start.plus_micros(us.into());
        Some(Self { host, unsure_us, came: at(came), left: at(left) })
    }
}

/// Two hosts of which one step says that their clocks can't both be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Contradiction {
    behind: usize,
    ahead: usize,
    us: u64,
}

/// Two clocks that are apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClocksApart<Host = HostId> {
    /// The host whose ranks seem to leave too early.
    pub behind: Host,
    /// The host whose ranks seem to come too late.
    pub ahead: Host,
    /// By at least so much, microseconds.
    pub us: u64,
    /// So many steps show that.
    pub steps: usize,
    /// Of so many that were looked at.
    pub of: usize,
}

impl ClocksApart<usize> {
    /// The same with the names of the hosts.
    pub fn named(self, hosts: &[HostId]) -> Option<ClocksApart> {
        let (behind, ahead) = (hosts.get(self.behind)?.clone(), hosts.get(self.ahead)?.clone());
        Some(ClocksApart { behind, ahead, us: self.us, steps: self.steps, of: self.of })
    }
}

/// The newest steps of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ClockCheck {
    /// Of each, what contradicts.
    recent: VecDeque<Vec<Contradiction>>,
}

impl ClockCheck {
    /// Takes in a step that all of these ranks went through together.
    pub fn take(&mut self, ranks: &[Passage]) {
        let (last, first) =
            (ranks.iter().max_by_key(|rank| rank.came), ranks.iter().min_by_key(|rank| rank.left));
        let (Some(last), Some(first)) = (last, first) else { return };
        if ranks.iter().all(|rank| rank.host == last.host) {
            return;
        }
        // a clock that is ahead contradicts all others, and so does one that is behind
        let pairs = ranks.iter().flat_map(|rank| [(rank, last), (first, rank)]);
        let mut found: Vec<Contradiction> =
            pairs.filter_map(|(left, came)| contradiction(left, came)).collect();
        found.sort_unstable_by_key(|one| (one.behind, one.ahead, std::cmp::Reverse(one.us)));
        found.dedup_by_key(|one| (one.behind, one.ahead));
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(found);
    }

    /// The two clocks that the newest steps show to be the furthest apart.
    pub fn apart(&self) -> Option<ClocksApart<usize>> {
        let of = self.recent.len();
        let mut pairs: BTreeMap<(usize, usize), Vec<u64>> = BTreeMap::new();
        for one in self.recent.iter().flatten() {
            pairs.entry((one.behind, one.ahead)).or_default().push(one.us);
        }
        pairs.retain(|_, told| told.len() >= LEAST && told.len() * LEAST_SHARE >= of);
        let apart = pairs.into_iter().filter_map(|((behind, ahead), mut told)| {
            told.sort_unstable_by_key(|us| std::cmp::Reverse(*us));
            let us = *told.get(SHOWN_BY - 1)?;
            Some(ClocksApart { behind, ahead, us, steps: told.len(), of })
        });
        apart.max_by_key(|apart| apart.us)
    }
}

/// Whether one rank seems to have left before the other came, by more than their clocks are sure of.
fn contradiction(left: &Passage, came: &Passage) -> Option<Contradiction> {
    let us = came.came.micros_since(left.left);
    let is_sure = us - i64::from(left.unsure_us) - i64::from(came.unsure_us) >= SLACK_US;
    (left.host != came.host && is_sure).then(|| Contradiction {
        behind: left.host,
        ahead: came.host,
        us: us.unsigned_abs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;
    use crate::domain::timing::{PhaseSpan, Spans};

    /// A step of 20 ms before its allreduce, in which a rank waits and moves bytes for so many milliseconds.
    fn step(wait: u32, transfer: u32) -> StepTiming {
        let span = |phase, start_us, dur_us| PhaseSpan { phase, start_us, dur_us };
        let (wait, transfer) = (wait * 1000, transfer * 1000);
        let spans = Spans::from([
            span(Phase::Forward, 0, 20_000),
            span(Phase::Wait, 20_000, wait),
            span(Phase::Transfer, 20_000 + wait, transfer),
        ]);
        StepTiming { step: 1, start: HostTime(0), dur_us: 0, loss: None, samples: 0, spans, hidden_us: 0 }
    }

    /// So many steps of two hosts whose ranks do the same; the clock of the second is ahead by `off_us`.
    fn run(steps: i64, off_us: i64, unsure_us: u32, transfer: u32) -> Option<ClocksApart<usize>> {
        let mut check = ClockCheck::default();
        for number in 0..steps {
            let start = Stamp(1_000_000 * number);
            let other = start.plus_micros(off_us);
            let passage = |host, start| Passage::new(host, unsure_us, start, &step(1, transfer)).unwrap();
            check.take(&[passage(0, start), passage(0, start), passage(1, other)]);
        }
        check.apart()
    }

    #[test]
    fn clocks_that_are_right_contradict_nothing() {
        assert_eq!(run(100, 0, 50, 0), None);
        assert_eq!(run(100, 2_000, 50, 5), None, "an allreduce of 6 ms hides what is less");
        assert_eq!(run(100, 5_000, 2_000, 0), None, "the clocks are not sure of it");
        assert_eq!(run(4, 90_000, 50, 0), None, "of four steps nothing is believed");
    }

    #[test]
    fn clocks_that_are_apart_are_told_with_the_least_they_can_be_apart() {
        let ahead = ClocksApart { behind: 0, ahead: 1, us: 8_000, steps: 64, of: 64 };
        assert_eq!(run(100, 10_000, 50, 1), Some(ahead));
        let behind = run(10, -30_000, 50, 1).unwrap();
        assert_eq!((behind.behind, behind.ahead, behind.us, behind.of), (1, 0, 28_000, 10));
        let hosts = [HostId::from("a"), HostId::from("b")];
        assert_eq!(behind.named(&hosts).unwrap().ahead, HostId::from("a"));
    }

    #[test]
    fn a_few_steps_after_a_clock_was_set_are_not_all() {
        let mut check = ClockCheck::default();
        for number in 0..100 {
            let start = Stamp(1_000_000 * number);
            let off_us = if number < 90 { 0 } else { 50_000 };
            let passage = |host, start| Passage::new(host, 0, start, &step(0, 0)).unwrap();
            check.take(&[passage(0, start), passage(1, start.plus_micros(off_us))]);
            assert_eq!(check.apart().is_some(), number >= 97, "{number}");
        }
    }

    /// Whichever hosts the others are, in each step.
    #[test]
    fn one_clock_of_many_is_named_with_how_often_it_was_seen_with_the_other() {
        for (off_us, named) in [(40_000, (0, 7)), (-40_000, (7, 0))] {
            let mut check = ClockCheck::default();
            for number in 0..100_i64 {
                let start = Stamp(1_000_000 * number);
                // by turns another of the hosts comes last
                let late = |host: i64| if number % 8 == host { 100 } else { 0 };
                let passages: Vec<Passage> = (0..8)
                    .map(|host| {
                        let off = if host == 7 { off_us } else { late(host) };
                        Passage::new(host as usize, 0, start.plus_micros(off), &step(0, 1)).unwrap()
                    })
                    .collect();
                check.take(&passages);
            }
            let apart = check.apart().unwrap();
            assert_eq!((apart.steps, apart.of), (64, 64), "{apart:?}");
            assert!([apart.behind, apart.ahead].contains(&7) && apart.us >= 38_000, "{apart:?}");
            assert_eq!(apart.ahead == 7, named.1 == 7);
        }
    }

    #[test]
    fn one_host_and_steps_without_waits_tell_nothing() {
        let mut check = ClockCheck::default();
        let passage = Passage::new(0, 0, Stamp(0), &step(1, 1)).unwrap();
        (0..20).for_each(|_| check.take(&[passage, Passage { came: Stamp(90_000), ..passage }]));
        (0..20).for_each(|_| check.take(&[]));
        assert_eq!(check.apart(), None);
        assert_eq!(Passage::new(0, 0, Stamp(0), &StepTiming { spans: Spans::default(), ..step(1, 1) }), None);
    }
}
