//! Which rank came when to a step's allreduce: puts the steps of all ranks together.
//!
//! Who came last is judged by the waits, as everywhere ([`last_in`]): for that no clocks are compared. Where
//! a rank tells several waits of a step, the last one counts, which ends with the step's gradients.

use std::collections::BTreeMap;

use super::selection::Span;
use crate::domain::last_in::{HostClock, last_in};
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainer_keys::TrainerId;

/// Parts of steps that some ranks have told and others not. What a client has caught up with comes rank by rank, thousands of steps
/// apart.
const MOST_PARTS: usize = 1 << 18;

/// A rank's part in an allreduce. Times are nanoseconds since the Unix epoch by the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) id: TrainerId,
    /// Its step.
    pub(super) step: Span,
    /// When it came.
    pub(super) came: i64,
    /// When it left.
    left: i64,
    /// When it waited and when it moved bytes, as far as it tells.
    spans: [Option<Span>; 2],
    /// The last thing that it began to compute before it came.
    pub(super) before: Option<Span>,
    /// How long it waited in the whole step, microseconds.
    wait_us: u64,
    clock: HostClock,
}

impl Arrival {
    /// What it did first, waiting or moving bytes.
    pub(super) fn first(&self) -> Option<Span> {
        self.spans.into_iter().flatten().find(is_some_time)
    }

    /// What it did from when all ranks were there: it moved bytes, if it tells of that.
    pub(super) fn last(&self) -> Option<Span> {
        self.spans.into_iter().rev().flatten().find(is_some_time)
    }
}

fn is_some_time((from, to): &Span) -> bool {
    from < to
}

/// A step's allreduce, of which all ranks have told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allreduce {
    pub(super) step: u64,
    /// In the order of the ranks.
    pub(super) arrivals: Vec<Arrival>,
}

impl Allreduce {
    /// The rank that came last; `None` where another one may have been that.
    pub(super) fn last(&self) -> Option<&Arrival> {
        let waits: Vec<_> = self.arrivals.iter().map(|arrival| (arrival.wait_us, arrival.clock)).collect();
        self.arrivals.get(last_in(&waits)?)
    }

    /// When each rank came to it by the waits that they tell: before the last one by how much longer it waited. So no clocks are
    /// compared. Those that may all have been the last one came together.
    pub(super) fn arrivals_by_waits(&self) -> Vec<(i64, TrainerId)> {
        let Some(last) = self.arrivals.iter().min_by_key(|arrival| arrival.wait_us) else {
            return Vec::new();
        };
        let is_sure = self.last().is_some();
        let before = |arrival: &Arrival| {
            let us = arrival.wait_us.saturating_sub(last.wait_us);
            let is_before = is_sure || us >= u64::from(arrival.clock.unsure_to(last.clock));
            let us = if is_before { i64::try_from(us).unwrap_or(i64::MAX) } else { 0 };
            last.came.saturating_sub(us.saturating_mul(1_000))
        };
        let mut all: Vec<_> = self.arrivals.iter().map(|arrival| (before(arrival), arrival.id)).collect();
        all.sort_unstable();
        all
    }

    /// From the first arrival to the last departure.
    pub(super) fn span(&self) -> Option<Span> {
        let came = self.arrivals.iter().map(|arrival| arrival.came).min()?;
        Some((came, self.arrivals.iter().map(|arrival| arrival.left).max()?))
    }
}

/// The steps that are not whole yet.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    open: BTreeMap<u64, BTreeMap<TrainerId, Option<Arrival>>>,
    last: BTreeMap<TrainerId, u64>,
}

impl Meetings {
    /// Takes in a step of one of `world` ranks; gives its allreduce once all have told theirs.
    pub(super) fn take(
        &mut self,
        world: usize,
        (id, clock): (TrainerId, HostClock),
        timing: &StepTiming,
        span: Span,
    ) -> Option<Allreduce> {
        if id.rank.0 as usize >= world {
            return None;
        }
        // ranks that were started again count from 1
        if self.last.insert(id, timing.step).is_some_and(|last| timing.step <= last) {
            self.open.clear();
        }
        let parts = self.open.entry(timing.step).or_default();
        parts.insert(id, arrival((id, clock), timing, span));
        if parts.len() < world {
            while self.open.len() > MOST_PARTS / world.max(1) {
                self.open.pop_first();
            }
            return None;
        }
        let arrivals = self.open.remove(&timing.step)?.into_values().collect::<Option<Vec<_>>>()?;
        // ranks tell their steps in order: what is older can't become whole any more
        self.open = self.open.split_off(&timing.step);
        Some(Allreduce { step: timing.step, arrivals })
    }
}

/// A rank's part in the allreduce of a step; `None` where it does not tell.
fn arrival((id, clock): (TrainerId, HostClock), timing: &StepTiming, step: Span) -> Option<Arrival> {
    let place = |us: u32| step.0.saturating_add(i64::from(us) * 1_000);
    let of = |phase: Phase| timing.spans.iter().rfind(move |span| span.phase == phase);
    let spans = [Phase::Wait, Phase::Transfer].map(|phase| {
        let span = of(phase)?;
        Some((place(span.start_us), place(span.start_us.saturating_add(span.dur_us))))
    });
    let (came, _) = spans.into_iter().flatten().next()?;
    let left = spans.into_iter().flatten().map(|(_, left)| left).max()?;
    let computing = timing.spans.iter().filter(|span| !matches!(span.phase, Phase::Wait | Phase::Transfer));
    let computing =
        computing.map(|span| (place(span.start_us), place(span.start_us.saturating_add(span.dur_us))));
    let before = computing.filter(|span| is_some_time(span) && span.0 < came).max();
    let wait_us = timing.phase_totals()[Phase::Wait.index()];
    Some(Arrival { id, step, came, left, spans, before, wait_us, clock })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::step_timing;
    use crate::domain::ids::Rank;
    use crate::domain::timing::PhaseSpan;

    fn timing(step: u64, spans: &[(Phase, u32, u32)]) -> StepTiming {
        let span = |(phase, start_us, dur_us): &(Phase, u32, u32)| PhaseSpan {
            phase: *phase,
            start_us: *start_us,
            dur_us: *dur_us,
        };
        StepTiming { spans: spans.iter().map(span).collect(), ..step_timing(step, 100) }
    }

    /// A rank of a run on one host.
    fn here(rank: u32) -> (TrainerId, HostClock) {
        (Rank(rank).into(), HostClock::default())
    }

    #[test]
    fn of_two_that_may_have_been_the_last_none_is() {
        let last = |unsure_us: u32| {
            let mut meetings = Meetings::default();
            let mut whole = None;
            for (rank, wait_us) in [(0, 900), (1, 60), (2, 10)] {
                let timing = timing(4, &[(Phase::Wait, 1_000 - wait_us, wait_us)]);
                let clock = HostClock { host: rank as usize, unsure_us };
                whole = meetings.take(3, (Rank(rank).into(), clock), &timing, (0, 1_000_000));
            }
            let whole = whole.unwrap();
            let came: Vec<(i64, u32)> =
                whole.arrivals_by_waits().iter().map(|(came, id)| (*came, id.number)).collect();
            (whole.last().map(|arrival| arrival.id.number), came)
        };
        assert_eq!(last(25), (Some(2), vec![(100_000, 0), (940_000, 1), (990_000, 2)]));
        assert_eq!(
            last(26),
            (None, vec![(100_000, 0), (990_000, 1), (990_000, 2)]),
            "50 µs are less than 52"
        );
    }

    #[test]
    fn the_rank_with_the_least_wait_came_last() {
        let mut meetings = Meetings::default();
        let early = timing(4, &[(Phase::Wait, 10, 60), (Phase::Transfer, 70, 9)]);
        let late = timing(4, &[(Phase::Backward, 9, 60), (Phase::Data, 0, 9), (Phase::Transfer, 71, 9)]);
        assert_eq!(meetings.take(2, here(0), &early, (1_000, 101_000)), None);
        assert_eq!(meetings.take(2, here(7), &early, (1_000, 101_000)), None, "it is none of them");
        let whole = meetings.take(2, here(1), &late, (2_000, 102_000)).unwrap();
        assert_eq!(whole.last().map(|arrival| (arrival.id.rank, arrival.came)), Some((Rank(1), 73_000)));
        assert_eq!(whole.span(), Some((11_000, 82_000)));
        let by_waits: Vec<(i64, u32)> =
            whole.arrivals_by_waits().iter().map(|(came, id)| (*came, id.number)).collect();
        assert_eq!(by_waits, [(13_000, 0), (73_000, 1)], "60 µs of wait, by whichever clock");
        let [early, late] = &whole.arrivals[..] else { panic!("{whole:?}") };
        assert_eq!((early.first(), early.last()), (Some((11_000, 71_000)), Some((71_000, 80_000))));
        assert_eq!((late.first(), late.last()), (Some((73_000, 82_000)), Some((73_000, 82_000))));
        assert_eq!((early.before, late.before), (None, Some((11_000, 71_000))), "what it began last");
    }

    #[test]
    fn a_step_that_a_rank_does_not_tell_of_is_none_and_a_new_attempt_begins_anew() {
        let mut meetings = Meetings::default();
        let waits = |step| timing(step, &[(Phase::Wait, 10, 60)]);
        let span = (0, 100_000);
        assert_eq!(meetings.take(2, here(0), &waits(1), span), None);
        assert_eq!(meetings.take(2, here(1), &timing(1, &[(Phase::Forward, 0, 9)]), span), None);
        assert_eq!(meetings.take(2, here(0), &waits(2), span), None);
        // both are started again
        assert_eq!(meetings.take(2, here(0), &waits(1), span), None);
        assert_eq!(meetings.take(2, here(1), &waits(2), span), None, "rank 0's was of the attempt before");
    }
}
