//! Two runs side by side: the same metrics over the steps that both have, how sure their difference is, and what differs in
//! what was run. Pure.

mod by_step;
mod condition;
mod metric;

use serde::Serialize;

use crate::domain::analysis::histogram::Estimate;
use crate::domain::analysis::{Fact, RunAnalysis, Window};
use crate::domain::units::counted;

pub use by_step::{BySteps, Part, StepBucket};
pub use condition::{Condition, ConditionError, Verdict};
pub use metric::{METRICS, Metric, Unit, metric};

/// A change whose interval reaches no further than this share of the first run's value is no change.
const SAME_WITHIN: f64 = 0.10;

/// What is known of one run: all of it, and the steps that the other one has as well.
#[derive(Debug)]
pub struct Side {
    /// The whole run.
    pub whole: RunAnalysis,
    /// Of the steps that both have; `None` where it is the whole run.
    pub common: Option<RunAnalysis>,
}

impl Side {
    fn common(&self) -> &RunAnalysis {
        self.common.as_ref().unwrap_or(&self.whole)
    }
}

/// A metric of both runs.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// `p95`.
    pub name: &'static str,
    /// In which unit its numbers are.
    pub unit: Unit,
    /// The first run's.
    pub a: Option<f64>,
    /// The second run's.
    pub b: Option<f64>,
    /// `b` − `a`.
    pub change: Option<f64>,
    /// The same as a share of `a`.
    pub relative: Option<f64>,
    /// In which the true change lies, 95 times of 100; `None` where one number alone is known, or too few steps are.
    pub interval: Option<(f64, f64)>,
    /// The interval contains no change, or both are equal.
    pub same: bool,
    /// The interval contains no change, and a large one as well: it reaches beyond a tenth of `a`.
    pub unsure: bool,
    /// One of the runs has too few steps for an interval of this metric.
    pub too_few_steps: bool,
    /// Which, and how many it needs.
    #[serde(skip)]
    few: Option<String>,
}

/// A fact that is not the same in both runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `env LR`.
    pub name: String,
    /// The first run's value.
    pub a: Option<String>,
    /// The second run's.
    pub b: Option<String>,
}

/// Two runs side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The metrics that one of them has at least.
    pub metrics: Vec<Compared>,
    /// What differs in what was run.
    pub differences: Vec<Difference>,
    /// What limits the comparison, in sentences.
    pub notes: Vec<String>,
    /// Their common steps side by side, and where the runs part; `None` where they have none.
    pub by_steps: Option<BySteps>,
}

/// The steps that both runs have; `None` where there are none.
pub fn common_steps(a: &RunAnalysis, b: &RunAnalysis) -> Option<Window> {
    let from = a.steps.first?.max(b.steps.first?);
    let to = a.steps.last?.min(b.steps.last?);
    (from <= to).then_some(Window { from, to })
}

/// Compares two runs.
pub fn compare(a: &Side, b: &Side) -> Comparison {
    let metrics = METRICS.iter().map(|metric| compared(metric, a, b));
    Comparison {
        metrics: metrics.filter(|metric| metric.a.is_some() || metric.b.is_some()).collect(),
        differences: differences(&a.whole.facts, &b.whole.facts),
        notes: notes(a, b),
        by_steps: common_steps(&a.whole, &b.whole)
            .map(|common| by_step::by_steps(a.common(), b.common(), common)),
    }
}

/// One metric of both.
pub(crate) fn compared(metric: &Metric, a: &Side, b: &Side) -> Compared {
    let of = |side: &Side| (metric.get)(if metric.whole { &side.whole } else { side.common() });
    let is_comparable = metric.whole || common_steps(&a.whole, &b.whole).is_some();
    let (of_a, of_b) = (of(a), of(b));
    let both = of_a.zip(of_b).filter(|_| is_comparable);
    let change = both.map(|(a, b)| b.value - a.value);
    // a run beside itself: nothing is estimated
    let is_itself = change == Some(0.0) && a.whole.run == b.whole.run;
    let few = both.filter(|_| !is_itself).and_then(|(a, b)| few_words(a, b));
    let too_few_steps = few.is_some();
    let interval = both
        .filter(|(a, b)| !is_itself && !too_few_steps && (a.low < a.high || b.low < b.high))
        .map(|(a, b)| interval_of(a, b));
    let same = match interval {
        Some((low, high)) => low <= 0.0 && 0.0 <= high,
        None => change == Some(0.0),
    };
    let reach = interval.map_or(0.0, |(low, high)| high.max(-low));
    let limit = of_a.map_or(0.0, |a| a.value.abs() * SAME_WITHIN);
    Compared {
        name: metric.name,
        unit: metric.unit,
        a: of_a.map(|a| a.value),
        b: of_b.map(|b| b.value),
        change,
        relative: both.filter(|(a, _)| a.value != 0.0).map(|(a, b)| (b.value - a.value) / a.value.abs()),
        interval,
        same,
        unsure: same && reach > limit,
        too_few_steps,
        few,
    }
}

/// In which the true change of a length of time lies, in its unit: that of the ratio of both values, by which the first one is
/// multiplied. Percentiles and their intervals by order statistics stay what they are in logarithms, where the ratio is a difference of
/// two estimates: Zou and Donner, Statistics in Medicine 27 (2008), MOVER. So a change to less than nothing, or to nothing, is in no
/// interval. Where one of the values may be 0 there is no ratio, and the interval is that of the difference.
fn interval_of(a: Estimate, b: Estimate) -> (f64, f64) {
    let spans = |a: Estimate, b: Estimate| {
        let change = b.value - a.value;
        let below = (b.value - b.low).hypot(a.high - a.value);
        let above = (b.high - b.value).hypot(a.value - a.low);
        (change - below, change + above)
    };
    if a.low > 0.0 && b.low > 0.0 {
        let ln = |of: Estimate| Estimate { value: of.value.ln(), low: of.low.ln(), high: of.high.ln(), ..of };
        let (low, high) = spans(ln(a), ln(b));
        (a.value * low.exp_m1(), a.value * high.exp_m1())
    } else {
        let (low, high) = spans(a, b);
        (low.max(-a.value), high)
    }
}

/// `run A has 12 and needs 72, run B has 40 and needs 72`: of which run there are too few steps for an interval.
fn few_words(a: Estimate, b: Estimate) -> Option<String> {
    let sides = [("A", a), ("B", b)].into_iter();
    let few = sides.filter_map(|(name, of)| {
        let (count, needed) = of.few?;
        Some(format!("run {name} has {count} and needs {needed}"))
    });
    let words: Vec<String> = few.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn differences(a: &[Fact], b: &[Fact]) -> Vec<Difference> {
    let value = |facts: &[Fact], name: &str| {
        facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone())
    };
    let only_b = b.iter().filter(|fact| value(a, &fact.name).is_none());
    let names = a.iter().chain(only_b).map(|fact| &fact.name);
    names
        .map(|name| Difference { name: name.clone(), a: value(a, name), b: value(b, name) })
        .filter(|difference| difference.a != difference.b)
        .collect()
}

fn notes(a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    let has_warm_up = [a, b].iter().any(|side| side.common().steps.warm_up_us.is_some());
    let (a, b) = (&a.whole, &b.whole);
    let sides = [("A", a), ("B", b)];
    let without: Vec<&str> =
        sides.iter().filter(|(_, run)| run.steps.last.is_none()).map(|(name, _)| *name).collect();
    match without[..] {
        [] => {}
        [one] => notes.push(format!("run {one} told no steps: nothing of the steps is compared")),
        _ => notes.push("neither run told steps: only times and telemetry are compared".to_owned()),
    }
    if without.is_empty() {
        match common_steps(a, b) {
            None => notes.push("the runs have no step in common: steps are not compared".to_owned()),
            Some(Window { from, to }) => {
                let has = |run: &RunAnalysis| run.steps.first == Some(from) && run.steps.last == Some(to);
                if !has(a) || !has(b) {
                    let without = if has_warm_up { " without the first, which warms up" } else { "" };
                    notes.push(format!(
                        "steps {from} to {to}, those that both runs have, are compared{without}"
                    ));
                }
            }
        }
    }
    if a.world != b.world {
        notes.push(format!(
            "A has {}, B has {}: a step is not the same work",
            counted(u64::from(a.world), "rank"),
            b.world
        ));
    }
    for (name, run) in sides {
        if run.live {
            notes.push(format!("run {name} goes on"));
        } else if run.outcome.is_none() {
            notes.push(format!("no end of run {name} is recorded"));
        } else if run.success == Some(false) {
            notes
                .push(format!("run {name} did not succeed: {}", run.outcome.as_deref().unwrap_or("unknown")));
        }
        if run.restarts > 0 {
            notes.push(format!("run {name} was started again {} times", run.restarts));
        }
        if let Some(damage) = &run.gaps.damage {
            notes.push(format!("recording of run {name}: {damage}"));
        }
    }
    notes
}

#[cfg(test)]
mod tests;
