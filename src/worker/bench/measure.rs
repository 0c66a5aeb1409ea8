//! One size on one buffer: check, warm up, time each call, and what all ranks make of it.

use super::pattern::{self, Number};
use crate::clock::host_nanos;
use crate::collective::{Collective, CollectiveError, Communicator, Reduce};

/// Calls whose middle one tells how long a call takes, where the number of calls is not given.
const TRIES: usize = 5;
/// The number of timed calls, where it is not given.
const CALLS: std::ops::RangeInclusive<u64> = 7..=2000;

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) how: Reduce,
    /// Timed calls; `None`: as many as fit the budget.
    pub(super) iterations: Option<u64>,
    /// Calls before them; `None`: half as many.
    pub(super) warmup: Option<u64>,
    /// Time for the timed calls of one size, ns.
    pub(super) budget: u64,
    /// Rewrite the buffer before each call.
    pub(super) fresh: bool,
    /// Calls whose results are checked.
    pub(super) checks: u32,
}

/// What a size cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// Timed calls.
    pub(super) calls: u64,
    /// Mean of a call over calls and ranks, µs.
    pub(super) mean: f64,
    /// Middle of the calls, on the rank where it is greatest, µs.
    pub(super) p50: f64,
    /// Shortest of the calls, on the rank where it is greatest, µs.
    pub(super) min: f64,
    /// Wrong values over all ranks; `None`: not looked at.
    pub(super) wrong: Option<u64>,
}

/// Measures allreduces of `data` on all ranks; every rank gets the same figures.
pub(super) fn measure<T: Number>(
    ranks: &mut dyn Communicator,
    data: &mut [T],
    plan: &Plan,
) -> Result<Figures, CollectiveError> {
    let wrong = check(ranks, data, plan)?;
    // Sums of zeros stay finite, however often they are summed.
    data.fill(T::default());
    let calls = match plan.iterations {
        Some(calls) => calls.max(1),
        None => affordable(ranks, data, plan)?,
    };
    for _ in 0..plan.warmup.unwrap_or(calls / 2) {
        call(ranks, data, plan)?;
    }
    ranks.barrier()?;
    let mut times = Vec::with_capacity(calls as usize);
    for _ in 0..calls {
        times.push(call(ranks, data, plan)?);
    }
    times.sort_unstable();
    let mut mean = [times.iter().sum::<u64>() as f64 / calls as f64];
    let mut slowest = [times[times.len() / 2] as f64, times[0] as f64];
    ranks.allreduce(&mut mean, Reduce::Mean)?;
    ranks.allreduce(&mut slowest, Reduce::Max)?;
    let [mean, p50, min] = [mean[0], slowest[0], slowest[1]].map(|nanos| nanos / 1e3);
    Ok(Figures { calls, mean, p50, min, wrong })
}

/// One call, and its time in ns.
fn call<T: Number>(
    ranks: &mut dyn Communicator,
    data: &mut [T],
    plan: &Plan,
) -> Result<u64, CollectiveError> {
    if plan.fresh {
        // as a backward pass does; the barrier keeps the writing of slower ranks out of the time
        data.fill(T::from_small(1.0));
        ranks.barrier()?;
    }
    let start = host_nanos();
    ranks.allreduce(data, plan.how)?;
    Ok(host_nanos().saturating_sub(start))
}

fn check<T: Number>(
    ranks: &mut dyn Communicator,
    data: &mut [T],
    plan: &Plan,
) -> Result<Option<u64>, CollectiveError> {
    let mut wrong = [0_i64];
    for _ in 0..plan.checks {
        pattern::fill(data, ranks.rank());
        ranks.allreduce(data, plan.how)?;
        wrong[0] += pattern::wrong(data, ranks.world(), plan.how) as i64;
    }
    if plan.checks == 0 {
        return Ok(None);
    }
    ranks.allreduce(&mut wrong, Reduce::Sum)?;
    Ok(Some(wrong[0].unsigned_abs()))
}

/// How many calls fit the budget, as rank 0 sees it.
fn affordable<T: Number>(
    ranks: &mut dyn Communicator,
    data: &mut [T],
    plan: &Plan,
) -> Result<u64, CollectiveError> {
    let mut tries = [0; TRIES];
    for time in &mut tries {
        *time = call(ranks, data, plan)?;
    }
    tries.sort_unstable();
    let calls = (plan.budget / tries[TRIES / 2].max(1)).clamp(*CALLS.start(), *CALLS.end());
    let mut agreed = [calls as i64];
    ranks.broadcast(0, &mut agreed)?;
    Ok(agreed[0].unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Solo;

    const PLAN: Plan =
        Plan { how: Reduce::Sum, iterations: Some(9), warmup: Some(1), budget: 0, fresh: true, checks: 2 };

    #[test]
    fn a_group_of_one_is_right_and_takes_some_time() {
        let figures = measure(&mut Solo, &mut [0_f32; 100], &PLAN).unwrap();
        assert_eq!((figures.calls, figures.wrong), (9, Some(0)));
        assert!(figures.min <= figures.p50 && figures.min <= figures.mean, "{figures:?}");
    }

    #[test]
    fn without_a_budget_there_are_few_calls_and_nothing_is_checked_unasked() {
        let plan = Plan { iterations: None, checks: 0, ..PLAN };
        let figures = measure(&mut Solo, &mut [0_i64; 3], &plan).unwrap();
        assert_eq!((figures.calls, figures.wrong), (7, None));
    }
}
