//! One size on one buffer: check, warm up, time each call, and what all ranks make of it.

use super::pattern::{self, Number};
use super::subject::Subject;
use crate::clock::host_nanos;
use crate::collective::{Collective, CollectiveError, Reduce};

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

/// Measures allreduces of `memory` on all ranks; every rank gets the same figures.
///
/// Where calls can be begun before the former ones are done, the mean is that of calls begun in a row, as nccl-tests has
/// it; p50 and min are of calls that were waited for one by one.
pub(super) fn measure<S: Subject, T: Number>(
    ranks: &mut S,
    memory: &mut S::Memory<T>,
    plan: &Plan,
) -> Result<Figures, CollectiveError> {
    let wrong = check(ranks, memory, plan)?;
    // Sums of zeros stay finite, however often they are summed.
    ranks.write(memory, |data| data.fill(T::default()))?;
    let calls = match plan.iterations {
        Some(calls) => calls.max(1),
        None => affordable(ranks, memory, plan)?,
    };
    for _ in 0..plan.warmup.unwrap_or(calls / 2) {
        call(ranks, memory, plan)?;
    }
    ranks.with(|ranks| ranks.barrier())?;
    let mut times = Vec::with_capacity(calls as usize);
    for _ in 0..calls {
        times.push(call(ranks, memory, plan)?);
    }
    let mut all = times.iter().sum::<u64>();
    // a buffer that is rewritten before each call can't be in a row
    if !plan.fresh {
        ranks.with(|ranks| ranks.barrier())?;
        let start = host_nanos();
        if ranks.in_a_row(memory, plan.how, calls)? {
            all = host_nanos().saturating_sub(start);
        }
    }
    times.sort_unstable();
    let mut mean = [all as f64 / calls as f64];
    let mut slowest = [times[times.len() / 2] as f64, times[0] as f64];
    ranks.with(|ranks| {
        ranks.allreduce(&mut mean, Reduce::Mean)?;
        ranks.allreduce(&mut slowest, Reduce::Max)
    })?;
    let [mean, p50, min] = [mean[0], slowest[0], slowest[1]].map(|nanos| nanos / 1e3);
    Ok(Figures { calls, mean, p50, min, wrong })
}

/// One call, and its time in ns.
fn call<S: Subject, T: Number>(
    ranks: &mut S,
    memory: &mut S::Memory<T>,
    plan: &Plan,
) -> Result<u64, CollectiveError> {
    if plan.fresh {
        // as a backward pass does; the barrier keeps the writing of slower ranks out of the time
        ranks.write(memory, |data| data.fill(T::from_small(1.0)))?;
        ranks.with(|ranks| ranks.barrier())?;
    }
    let start = host_nanos();
    ranks.allreduce(memory, plan.how)?;
    Ok(host_nanos().saturating_sub(start))
}

fn check<S: Subject, T: Number>(
    ranks: &mut S,
    memory: &mut S::Memory<T>,
    plan: &Plan,
) -> Result<Option<u64>, CollectiveError> {
    let (rank, world) = ranks.with(|ranks| (ranks.rank(), ranks.world()));
    let mut wrong = [0_i64];
    for _ in 0..plan.checks {
        ranks.write(memory, |data| pattern::fill(data, rank))?;
        ranks.allreduce(memory, plan.how)?;
        wrong[0] += ranks.read(memory, |data| pattern::wrong(data, world, plan.how))? as i64;
    }
    if plan.checks == 0 {
        return Ok(None);
    }
    ranks.with(|ranks| ranks.allreduce(&mut wrong, Reduce::Sum))?;
    Ok(Some(wrong[0].unsigned_abs()))
}

/// How many calls fit the budget, as rank 0 sees it.
fn affordable<S: Subject, T: Number>(
    ranks: &mut S,
    memory: &mut S::Memory<T>,
    plan: &Plan,
) -> Result<u64, CollectiveError> {
    let mut tries = [0; TRIES];
    for time in &mut tries {
        *time = call(ranks, memory, plan)?;
    }
    tries.sort_unstable();
    let calls = (plan.budget / tries[TRIES / 2].max(1)).clamp(*CALLS.start(), *CALLS.end());
    let mut agreed = [calls as i64];
    ranks.with(|ranks| ranks.broadcast(0, &mut agreed))?;
    Ok(agreed[0].unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::super::subject::OnHosts;
    use super::*;
    use crate::collective::Solo;

    const PLAN: Plan =
        Plan { how: Reduce::Sum, iterations: Some(9), warmup: Some(1), budget: 0, fresh: true, checks: 2 };

    fn measured<T: Number>(count: usize, plan: &Plan) -> Figures {
        let mut ranks = OnHosts(Box::new(Solo));
        let mut memory = ranks.private::<T>(count).unwrap();
        measure(&mut ranks, &mut memory, plan).unwrap()
    }

    #[test]
    fn a_group_of_one_is_right_and_takes_some_time() {
        let figures = measured::<f32>(100, &PLAN);
        assert_eq!((figures.calls, figures.wrong), (9, Some(0)));
        assert!(figures.min <= figures.p50 && figures.min <= figures.mean, "{figures:?}");
    }

    #[test]
    fn without_a_budget_there_are_few_calls_and_nothing_is_checked_unasked() {
        let plan = Plan { iterations: None, checks: 0, ..PLAN };
        let figures = measured::<i64>(3, &plan);
        assert_eq!((figures.calls, figures.wrong), (7, None));
    }
}
