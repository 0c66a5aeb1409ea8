//! Where two runs part: in which of their common steps one of them is slower, and in which phase. The steps are looked at in
//! buckets, by the median of each; most of the difference must lie in a part of the run for that part to be told.

use serde::Serialize;

use crate::domain::analysis::{RunAnalysis, StepPoint, Window};
use crate::domain::timing::Phase;

/// In so many buckets the common steps are looked at.
const BUCKETS: u64 = 64;
/// With fewer of them that both runs tell nothing is said.
const LEAST: usize = 8;
/// So much of the difference lies in the part that is told, which is no more than so much of the run, ..
const WITHIN: f64 = 0.8;
const PART_OF_RUN: f64 = 0.6;
/// .. and is by so much slower, as a share of the other one's steps.
const SLOWER: f64 = 0.05;
/// The phase that makes up so much of it is named.
const OF_PHASE: f64 = 0.5;

/// Steps of both runs by their number.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BySteps {
    /// The median step of each bucket, microseconds; `None` where a run has told none there.
    pub buckets: Vec<StepBucket>,
    /// Where one of them is slower for a part of the run.
    pub part: Option<Part>,
}

/// Some steps that both runs may have told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepBucket {
    /// The first of them.
    pub from_step: u64,
    /// The last of them.
    pub to_step: u64,
    /// The first run's median step, microseconds.
    pub a_us: Option<u32>,
    /// The second run's.
    pub b_us: Option<u32>,
}

/// A part of the run in which the second one is slower than the first, or faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    /// Its first step.
    pub from_step: u64,
    /// Its last step.
    pub to_step: u64,
    /// By how much, as a share of the first run's steps; negative where the second one is faster.
    pub relative: f64,
    /// In which phase most of it lies, where one does.
    pub phase: Option<Phase>,
}

impl Part {
    /// `B is slower in steps 2001 to 6100: +18 %, in data`.
    pub fn words(&self) -> String {
        let Self { from_step, to_step, relative, phase } = *self;
        let (how, sign) = if relative < 0.0 { ("faster", '−') } else { ("slower", '+') };
        let by = relative.abs() * 100.0;
        let phase = phase.map_or_else(String::new, |phase| format!(", in {}", phase.name()));
        format!("B is {how} in steps {from_step} to {to_step}: {sign}{by:.0} %{phase}")
    }
}

/// The steps that both runs have, bucket by bucket.
pub(super) fn by_steps(a: &RunAnalysis, b: &RunAnalysis, common: Window) -> BySteps {
    let (from, count) = (common.from, common.to.saturating_sub(common.from).saturating_add(1));
    // a bucket is not narrower than what is kept of the runs
    let kept = [a, b].map(|run| run.charts.steps.width()).into_iter().max().unwrap_or(1);
    let width = count.div_ceil(BUCKETS).max(kept);
    let bounds = (0..count.div_ceil(width)).map(|at| {
        let of = |at: u64| from.saturating_add(at.saturating_mul(width));
        (of(at), of(at.saturating_add(1)))
    });
    let points = |run: &RunAnalysis, (from, to): (u64, u64)| run.charts.steps.between(from, to);
    let told: Vec<_> = bounds.map(|bounds| (bounds, points(a, bounds), points(b, bounds))).collect();
    let median = |point: &Option<StepPoint>| point.as_ref()?.lengths.quantile(0.5);
    let buckets = told.iter().map(|((from, behind), a, b)| StepBucket {
        from_step: *from,
        to_step: behind.saturating_sub(1).min(common.to),
        a_us: median(a),
        b_us: median(b),
    });
    let buckets: Vec<StepBucket> = buckets.collect();
    let span = part_of(&buckets);
    let part = span.map(|(first, last, relative)| {
        let part = &told[first..=last];
        let a = mean_phases(part.iter().filter_map(|(_, a, _)| a.as_ref()));
        let b = mean_phases(part.iter().filter_map(|(.., b)| b.as_ref()));
        let (from_step, to_step) = (buckets[first].from_step, buckets[last].to_step);
        Part { from_step, to_step, relative, phase: a.zip(b).and_then(|(a, b)| main_phase(&a, &b)) }
    });
    BySteps { buckets, part }
}

/// The first and the last bucket of the shortest part in which most of the difference lies, and how large that is there. `None` where it
/// is spread over the run, or little.
fn part_of(buckets: &[StepBucket]) -> Option<(usize, usize, f64)> {
    let both: Vec<(usize, f64, f64)> = buckets
        .iter()
        .enumerate()
        .filter_map(|(at, one)| Some((at, f64::from(one.a_us?), f64::from(one.b_us?))))
        .collect();
    if both.len() < LEAST {
        return None;
    }
    let sum: f64 = both.iter().map(|(_, a, b)| b - a).sum();
    // what the one that is slower on the whole is slower by
    let excess: Vec<f64> = both.iter().map(|(_, a, b)| ((b - a) * sum.signum()).max(0.0)).collect();
    let wanted = excess.iter().sum::<f64>() * WITHIN;
    let mut shortest: Option<(usize, usize)> = None;
    let (mut first, mut within) = (0, 0.0);
    for last in 0..excess.len() {
        within += excess[last];
        while first < last && within - excess[first] >= wanted {
            within -= excess[first];
            first += 1;
        }
        if within >= wanted && shortest.is_none_or(|(from, to)| last - first < to - from) {
            shortest = Some((first, last));
        }
    }
    let (mut first, mut last) = shortest?;
    // what is beside it and differs as much belongs to it
    let alike = excess[first..=last].iter().sum::<f64>() / (last - first + 1) as f64 / 2.0;
    while first > 0 && excess[first - 1] > alike {
        first -= 1;
    }
    while excess.get(last + 1).is_some_and(|next| *next > alike) {
        last += 1;
    }
    let part = &both[first..=last];
    let (a, b) = part.iter().fold((0.0, 0.0), |(a, b), one| (a + one.1, b + one.2));
    let relative = if a > 0.0 { (b - a) / a } else { 0.0 };
    let is_part = part.len() as f64 <= both.len() as f64 * PART_OF_RUN;
    (is_part && relative.abs() >= SLOWER).then(|| (both[first].0, both[last].0, relative))
}

/// Microseconds a phase of a second of the steps; `None` where no phases are told.
fn mean_phases<'a>(points: impl Iterator<Item = &'a StepPoint>) -> Option<Shares> {
    let (mut phases, mut step_us, mut length) = ([0.0; Phase::COUNT], 0.0, (0.0, 0_u64));
    for point in points {
        phases.iter_mut().zip(point.phases).for_each(|(sum, us)| *sum += us as f64);
        step_us += point.step_us as f64;
        let count = point.lengths.count();
        length = (length.0 + point.lengths.mean().unwrap_or(0.0) * count as f64, length.1 + count);
    }
    let told: f64 = phases.iter().sum();
    let mean_us = length.0 / length.1.max(1) as f64;
    (told > 0.0 && step_us > 0.0).then(|| phases.map(|us| us / step_us * mean_us))
}

/// What each phase takes of a mean step, microseconds.
type Shares = [f64; Phase::COUNT];

/// The phase that makes up most of what a mean step is longer by.
fn main_phase(a: &Shares, b: &Shares) -> Option<Phase> {
    let more = b.iter().sum::<f64>() - a.iter().sum::<f64>();
    let of = |phase: Phase| (b[phase.index()] - a[phase.index()]) * more.signum();
    let most = Phase::ALL.into_iter().max_by(|one, other| of(*one).total_cmp(&of(*other)))?;
    (of(most) >= more.abs() * OF_PHASE).then_some(most)
}
