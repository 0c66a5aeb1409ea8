//! What a rank costs in single steps: how much of it comes again and again, and in which part of the run.

use serde::{Deserialize, Serialize};

use super::by_step::ByStep;
use super::figures::Span;
use crate::domain::series::Merge;

/// So many steps are left out at most where they outweigh all others.
const LONE: usize = 3;
/// So often it must have cost something: a share of the steps, and a number of them.
const RECURS_IN: f64 = 0.05;
const RECURS_LEAST: f64 = 3.0;
/// Points of the series by step.
const POINTS: usize = 240;
/// In so many parts a run is looked at.
const PARTS: usize = 24;
/// So much of all lies in the part that is told, and that part is no more than so much of the run, ..
const WITHIN: f64 = 0.8;
const PART_OF_RUN: f64 = 0.6;
/// .. or the run has so many parts before or behind it in which a step costs less than so much of what it does there, and more of
/// them than twice the longest pause within.
const OUTSIDE: usize = 2;
const QUIET: f64 = 0.25;

/// Sums over the steps in which a rank cost something.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Gains {
    pub(super) us: u64,
    pub(super) steps: u64,
    squares: f64,
    /// The greatest, the greatest first.
    most: [u32; LONE],
}

impl Gains {
    /// What one step cost; nothing is passed over.
    pub(super) fn add(&mut self, us: u32) {
        if us == 0 {
            return;
        }
        self.us += u64::from(us);
        self.steps += 1;
        self.squares += f64::from(us).powi(2);
        let mut us = us;
        for kept in &mut self.most {
            if us > *kept {
                std::mem::swap(kept, &mut us);
            }
        }
    }

    /// What comes again and again in a run of so many steps, without single steps that outweigh the others: a stall is no habit.
    /// `None` where it does not recur.
    pub(super) fn recurring(&self, of: u64) -> Option<u64> {
        let wanted = (of as f64 * RECURS_IN).max(RECURS_LEAST);
        if (self.steps as f64) < wanted {
            return None;
        }
        let (mut us, mut squares) = (self.us as f64, self.squares);
        for left_out in 0..=LONE {
            // how many equal steps would cost as much: of n equal ones n, where one outweighs all others 1
            let equal = us * us / squares.max(1.0);
            if equal >= (wanted / 2.0).max(RECURS_LEAST) * 0.999 {
                return Some(us as u64);
            }
            let most = f64::from(*self.most.get(left_out)?);
            (us, squares) = ((us - most).max(0.0), (squares - most * most).max(0.0));
        }
        None
    }
}

/// What a rank cost in some steps.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Cost(u64);

impl Merge for Cost {
    fn merge(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// What a rank cost, by step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CostSeries {
    points: ByStep<Cost>,
    last: u64,
}

impl Default for CostSeries {
    fn default() -> Self {
        Self { points: ByStep::new(POINTS), last: 0 }
    }
}

impl CostSeries {
    /// A step that cost so much: others of the run may cost nothing.
    pub(super) fn add(&mut self, step: u64, us: u64) {
        self.points.at(step).merge(&Cost(us));
        self.last = self.last.max(step);
    }

    /// Where most of it lies, in a run of these steps; `None` where it is spread over the run.
    pub(super) fn span(&self, (first, last): (u64, u64)) -> Option<Span> {
        let width = self.points.width();
        let steps = last.checked_sub(first)? + 1;
        let part = steps.div_ceil(PARTS as u64).max(1);
        if steps < 8 {
            return None;
        }
        let mut parts = vec![0.0; steps.div_ceil(part) as usize];
        for (step, cost) in self.points.points() {
            let at = (step.clamp(first, last) - first) / part;
            parts[at as usize] += cost.0 as f64;
        }
        let all: f64 = parts.iter().sum();
        let (from, to) = densest(&parts, all * WITHIN)?;
        let usual = parts[from..=to].iter().sum::<f64>() / (to - from + 1) as f64;
        let grown = |part: &&f64| **part >= usual / 2.0;
        let from = from - parts[..from].iter().rev().take_while(grown).count();
        let to = to + parts[to + 1..].iter().take_while(grown).count();
        let is_small = (to - from + 1) as f64 <= parts.len() as f64 * PART_OF_RUN;
        if !is_small && !has_an_end(&parts, from, to, usual * QUIET) {
            return None;
        }
        let range = first + from as u64 * part..first + (to as u64 + 1) * part;
        let floor = usual / part as f64 / 2.0;
        let costs_much = |(step, cost): (u64, &Cost)| {
            // the last point may hold fewer steps
            let held = last.saturating_add(1).saturating_sub(step).clamp(1, width);
            (step, cost.0 as f64 >= floor * held as f64)
        };
        let points: Vec<(u64, bool)> = self.points.points().map(costs_much).collect();
        let matters = |(step, matters): &(u64, bool)| *matters && range.contains(step);
        let begin = points.iter().position(matters)?;
        let end = points.iter().rposition(matters)?;
        // it may begin and end within a part of which less than half belongs to it
        let more =
            |points: &mut dyn Iterator<Item = &(u64, bool)>| points.take_while(|point| point.1).count();
        let begin = begin - more(&mut points[..begin].iter().rev());
        let end = end + more(&mut points[end + 1..].iter());
        Some(Span {
            from_step: points[begin].0.max(first),
            to_step: (points[end].0 + width - 1).min(self.last).min(last),
        })
    }
}

/// Whether what lies in these parts had not begun yet before them, or was over behind them: the run goes on for long there, and a
/// part costs less than `quiet`.
fn has_an_end(parts: &[f64], from: usize, to: usize, quiet: f64) -> bool {
    let is_quiet = |part: &f64| *part < quiet;
    let pauses = parts[from..=to].split(|part| !is_quiet(part)).map(<[f64]>::len);
    let wanted = OUTSIDE + 2 * pauses.max().unwrap_or(0);
    let is_outside = |parts: &[f64]| {
        parts.len() >= wanted && is_quiet(&(parts.iter().sum::<f64>() / parts.len().max(1) as f64))
    };
    is_outside(&parts[..from]) || is_outside(&parts[to + 1..])
}

/// The fewest parts in a row that hold so much, the first and the last of them.
fn densest(parts: &[f64], least: f64) -> Option<(usize, usize)> {
    if least <= 0.0 {
        return None;
    }
    let (mut from, mut sum, mut best) = (0, 0.0, None::<(usize, usize)>);
    for (to, part) in parts.iter().enumerate() {
        sum += part;
        while sum - parts[from] >= least && from < to {
            sum -= parts[from];
            from += 1;
        }
        if sum >= least * (1.0 - 1e-9) && best.is_none_or(|(a, b)| to - from < b - a) {
            best = Some((from, to));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(each: impl IntoIterator<Item = u32>) -> Gains {
        let mut gains = Gains::default();
        each.into_iter().for_each(|us| gains.add(us));
        gains
    }

    #[test]
    fn a_stall_is_no_habit_and_hides_none() {
        let stall = 3_000_000;
        let jitter = || (0..38).map(|at| 100 + at * 10);
        let alone = gains(jitter().chain([stall]));
        // what is left is the jitter
        assert!(alone.recurring(199).is_none_or(|us| us < 20_000));
        let late = std::iter::repeat_n(30_000, 40);
        assert_eq!(gains(late.clone().chain([stall])).recurring(199), Some(1_200_000));
        assert_eq!(gains(late.clone()).recurring(199), Some(1_200_000));
        assert_eq!(gains(late).recurring(2000), None, "in 2 % of the steps");
        assert_eq!(gains([stall, stall, stall]).recurring(50), Some(9_000_000));
        assert_eq!(gains([stall, stall, stall]).recurring(100), None);
        assert_eq!(gains([stall, 5]).recurring(10), None);
    }

    #[test]
    fn the_part_of_the_run_is_told_where_there_is_one() {
        let of = |is_late: &dyn Fn(u64) -> bool, steps: u64| {
            let mut series = CostSeries::default();
            for step in 2..=steps {
                series.add(step, if is_late(step) { 20_000 } else { 40 });
            }
            series.span((2, steps)).map(|span| (span.from_step, span.to_step))
        };
        let (from, to) = of(&|step| (1500..=2500).contains(&step), 4000).unwrap();
        assert!((1480..=1520).contains(&from) && (2480..=2530).contains(&to), "{from} {to}");
        assert_eq!(of(&|step| step % 5 == 0, 200), None, "all along");
        assert_eq!(of(&|_| true, 4000), None);
        let (from, to) = of(&|step| step > 100 && step % 5 == 0, 200).unwrap();
        assert!((101..=106).contains(&from) && to >= 199, "{from} {to}");
        assert_eq!(of(&|_| true, 5), None);
    }

    #[test]
    fn what_lasts_for_most_of_the_run_is_told_where_it_begins_or_ends() {
        let of = |is_late: &dyn Fn(u64) -> bool, steps: u64| {
            let mut series = CostSeries::default();
            for step in 2..=steps {
                let jitter = u64::from(step % 4 == 0) * 1_000;
                series.add(step, if is_late(step) { 20_000 - jitter } else { 40 + jitter / 20 });
            }
            series.span((2, steps)).map(|span| (span.from_step, span.to_step))
        };
        for (begins, steps, unsure) in [(21, 96, 0), (51, 480, 1), (101, 640, 3), (1001, 4000, 9)] {
            let (from, to) = of(&|step| step >= begins, steps).unwrap();
            assert!(from.abs_diff(begins) <= unsure && to == steps, "{begins} of {steps}: {from} to {to}");
        }
        let (from, to) = of(&|step| step <= 400, 480).unwrap();
        assert!(from == 2 && to.abs_diff(400) <= 1, "{from} {to}");
        // now and then all along: what lies before the first time is a pause as any other
        assert_eq!(of(&|step| step % 300 == 0, 2400), None);
        assert_eq!(of(&|step| step % 300 > 150, 2400), None);
        assert_eq!(of(&|step| step > 10, 480), None, "it may as well have begun with the run");
    }
}
