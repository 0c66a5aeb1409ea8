//! `p95>+5%`: what must not have changed so much from one run to the other.

use std::ops::Range;

use unicode_width::UnicodeWidthStr;

use super::metric::{METRICS, Metric, Unit, metric};
use super::{Compared, Side, compared};

/// A condition on the change of one metric.
#[derive(Debug, Clone)]
pub struct Condition {
    text: String,
    metric: &'static Metric,
    more: bool,
    or_equal: bool,
    limit: Limit,
}

/// By how much.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// A share of the first run's value.
    Share(f64),
    /// In the metric's unit.
    Absolute(f64),
}

/// Why a text is no condition, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConditionError {
    /// Which bytes of the text it is about.
    pub at: Range<usize>,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

impl ConditionError {
    /// The text with carets below what is meant, and the reason behind them.
    pub fn pointed(&self, text: &str) -> String {
        let before = text.get(..self.at.start).map_or(0, UnicodeWidthStr::width);
        let width = text.get(self.at.clone()).map_or(0, UnicodeWidthStr::width).max(1);
        format!("{text}\n{}{} {}", " ".repeat(before), "^".repeat(width), self.reason)
    }
}

/// What a condition comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds: the metric has changed so much.
    Holds(String),
    /// It does not hold.
    No(String),
    /// It can't be told: one of the runs does not have the metric, or too few steps for it.
    Unknown(String),
}

/// Where the parts of a number's unit lie: factors of the metric's own unit.
fn factor(unit: Unit, suffix: &str) -> Option<f64> {
    let of = match unit {
        Unit::Us => match suffix {
            "us" | "µs" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            "m" | "min" => 60e6,
            "h" => 3600e6,
            _ => return None,
        },
        Unit::Bytes => match suffix.trim_end_matches("iB").trim_end_matches('B') {
            "" => 1.0,
            "K" => f64::from(1 << 10),
            "M" => f64::from(1 << 20),
            "G" => f64::from(1 << 30),
            _ => return None,
        },
        Unit::PerSecond if suffix == "/s" => 1.0,
        Unit::PerSecond | Unit::Number | Unit::Percent => {
            if suffix.is_empty() {
                1.0
            } else {
                return None;
            }
        }
    };
    Some(of)
}

fn example(unit: Unit) -> &'static str {
    match unit {
        Unit::Us => "+5% or +5ms",
        Unit::PerSecond => "-3% or -100",
        Unit::Number => "+1% or +0.01",
        Unit::Percent => "-5% or -2 (percentage points)",
        Unit::Bytes => "+5% or +1G",
    }
}

impl Condition {
    /// Reads one: a metric, `>` or `<`, a sign, a number, and `%` or a unit.
    ///
    /// # Errors
    /// With the place in the text, and the metrics there are where it names none of them.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let error = |at: Range<usize>, reason: String| Err(ConditionError { at, reason });
        let Some(at) = text.find(['<', '>']) else {
            return error(text.len()..text.len(), "a comparison is missing: write it as p95>+5%".to_owned());
        };
        let name = text[..at].trim();
        let Some(metric) = metric(name) else {
            let start = text.len() - text.trim_start().len();
            let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
            let reason = format!("not a metric; these are: {}", names.join(" "));
            return error(start..start + name.len(), reason);
        };
        let more = text[at..].starts_with('>');
        let rest = &text[at + 1..];
        let or_equal = rest.starts_with('=');
        let rest = rest.strip_prefix('=').unwrap_or(rest).trim();
        let start = text.trim_end().len() - rest.len();
        let unit = metric.unit;
        if !rest.starts_with(['+', '-', '−']) {
            let reason = format!("a change has a sign: write {}", example(unit));
            return error(start..start + rest.len(), reason);
        }
        let sign = if rest.starts_with('+') { 1.0 } else { -1.0 };
        let unsigned = rest.trim_start_matches(['+', '-', '−']);
        let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(digits);
        let at_number = start + rest.len() - unsigned.len();
        let Ok(value) = number.parse::<f64>() else {
            return error(
                at_number..at_number + number.len(),
                format!("not a number: write {}", example(unit)),
            );
        };
        let suffix = suffix.trim_start();
        let limit = if suffix == "%" {
            Limit::Share(sign * value / 100.0)
        } else if let Some(factor) = factor(unit, suffix) {
            Limit::Absolute(sign * value * factor)
        } else {
            let from = start + rest.len() - suffix.len();
            let reason = format!("not a unit of {name}: write {}", example(unit));
            return error(from..from + suffix.len(), reason);
        };
        Ok(Self { text: text.trim().to_owned(), metric, more, or_equal, limit })
    }

    /// Whether it holds. A change whose interval contains none does not count, unless no change at all would hold.
    pub fn judge(&self, a: &Side, b: &Side) -> Verdict {
        self.verdict(&compared(self.metric, a, b))
    }

    fn verdict(&self, compared: &Compared) -> Verdict {
        let text = &self.text;
        let change = match self.limit {
            Limit::Share(_) => compared.relative,
            Limit::Absolute(_) => compared.change,
        };
        let (Some(change), Some(a), Some(b)) = (change, compared.a, compared.b) else {
            let missing = match (compared.a, compared.b) {
                (None, None) => "both runs lack it",
                (None, _) => "run A lacks it",
                (_, None) => "run B lacks it",
                _ => "it can't be compared",
            };
            return Verdict::Unknown(format!("{text}: {missing}"));
        };
        if let Some(few) = &compared.few {
            return Verdict::Unknown(format!("{text}: too few steps: {few}"));
        }
        let (Limit::Share(limit) | Limit::Absolute(limit)) = self.limit;
        let beyond = if self.more { change > limit } else { change < limit };
        let beyond = beyond || self.or_equal && (change - limit).abs() < f64::EPSILON;
        let unit = compared.unit;
        let changed = match self.limit {
            Limit::Share(_) => signed_percent(change),
            Limit::Absolute(_) => unit.change_words(change),
        };
        let words = format!("{text}: {} to {} ({changed})", unit.words(a), unit.words(b));
        let without_change = if self.more { limit < 0.0 } else { limit > 0.0 };
        if beyond && compared.same && compared.interval.is_some() && !without_change {
            Verdict::No(format!("{words}, not significant"))
        } else if beyond {
            let most = if self.more { "at most" } else { "at least" };
            let limit = match self.limit {
                Limit::Share(limit) => signed_percent(limit),
                Limit::Absolute(limit) => unit.change_words(limit),
            };
            Verdict::Holds(format!("{words}, where {most} {limit} passes"))
        } else {
            Verdict::No(words)
        }
    }
}

/// `+5.2 %`.
pub(crate) fn signed_percent(share: f64) -> String {
    let sign = if share < 0.0 { '−' } else { '+' };
    format!("{sign}{:.1} %", share.abs() * 100.0)
}
