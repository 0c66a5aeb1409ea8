//! What two runs are compared by, and how each is read off a run.

use serde::Serialize;

use crate::domain::analysis::RunAnalysis;
use crate::domain::analysis::histogram::Estimate;
use crate::domain::timing::Phase;
use crate::domain::units::{bytes, rate, short_duration_us};

/// In what a metric is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Microseconds.
    Us,
    /// So many a second.
    PerSecond,
    /// A plain number.
    Number,
    /// Percent: a change of it is in percentage points.
    Percent,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// A value for people.
    pub fn words(self, value: f64) -> String {
        match self {
            Self::Us => short_duration_us(value.max(0.0) as u64),
            Self::PerSecond => rate(value),
            Self::Number if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) => format!("{value:.3e}"),
            Self::Number => format!("{value:.4}"),
            Self::Percent => format!("{value:.1} %"),
            Self::Bytes => bytes(value.max(0.0) as u64),
        }
    }

    /// A change for people: `+1.2 ms`.
    pub fn change_words(self, change: f64) -> String {
        let words = self.words(change.abs());
        // of what is rounded to nothing there is no sign
        let is_nothing = !words.chars().any(|letter| ('1'..='9').contains(&letter));
        match (is_nothing, change < 0.0) {
            (true, _) => words,
            (false, true) => format!("−{words}"),
            (false, false) => format!("+{words}"),
        }
    }
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name, as `--fail-if` has it.
    pub name: &'static str,
    /// What its numbers are.
    pub unit: Unit,
    /// It is of the whole run, not of the steps that both have.
    pub whole: bool,
    pub(super) get: fn(&RunAnalysis) -> Option<Estimate>,
}

/// A number without an interval.
fn plain(value: f64) -> Option<Estimate> {
    value.is_finite().then_some(Estimate { value, low: value, high: value, few: None })
}

fn phase(run: &RunAnalysis, phase: Phase) -> Option<Estimate> {
    run.estimates.phases[phase.index()]
}

const fn of_steps(name: &'static str, unit: Unit, get: fn(&RunAnalysis) -> Option<Estimate>) -> Metric {
    Metric { name, unit, whole: false, get }
}

const fn of_run(name: &'static str, unit: Unit, get: fn(&RunAnalysis) -> Option<Estimate>) -> Metric {
    Metric { name, unit, whole: true, get }
}

/// All metrics, in the order in which they are shown.
pub static METRICS: [Metric; 22] = [
    of_steps("p50", Unit::Us, |run| run.estimates.length[0]),
    of_steps("p95", Unit::Us, |run| run.estimates.length[1]),
    of_steps("p99", Unit::Us, |run| run.estimates.length[2]),
    of_steps("mean", Unit::Us, |run| plain(run.steps.length?.mean_us)),
    of_steps("max", Unit::Us, |run| plain(run.steps.length?.max_us.into())),
    of_run("first-step", Unit::Us, |run| plain(run.steps.warm_up_us?.into())),
    of_steps("data", Unit::Us, |run| phase(run, Phase::Data)),
    of_steps("forward", Unit::Us, |run| phase(run, Phase::Forward)),
    of_steps("backward", Unit::Us, |run| phase(run, Phase::Backward)),
    of_steps("wait", Unit::Us, |run| phase(run, Phase::Wait)),
    of_steps("transfer", Unit::Us, |run| phase(run, Phase::Transfer)),
    of_steps("optimizer", Unit::Us, |run| phase(run, Phase::Optimizer)),
    of_steps("other", Unit::Us, |run| phase(run, Phase::Other)),
    of_steps("exposed", Unit::Us, |run| run.estimates.exposed),
    of_steps("overlap", Unit::Percent, |run| plain(run.steps.overlap? * 100.0)),
    of_steps("samples/s", Unit::PerSecond, |run| plain(run.samples?.per_s)),
    of_steps("loss", Unit::Number, |run| plain(run.loss?.last)),
    of_run("last-loss", Unit::Number, |run| plain(run.loss?.last)),
    of_run("least-loss", Unit::Number, |run| plain(run.loss?.least)),
    of_run("duration", Unit::Us, |run| plain(run.duration_us.filter(|_| run.part.is_none())? as f64)),
    of_run("gpu-util", Unit::Percent, |run| {
        let known: Vec<f64> = run.gpus.iter().filter_map(|gpu| gpu.util_mean).collect();
        plain(known.iter().sum::<f64>() / known.len() as f64)
    }),
    of_run("gpu-memory", Unit::Bytes, |run| {
        plain(run.gpus.iter().filter_map(|gpu| gpu.memory_peak).max()? as f64)
    }),
];

/// The metric of this name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
