//! The numbers that a job reports by names of its own: of each the first, the least, the greatest and the last. Of many ranks the
//! lowest that tells it speaks for all. Those that are not finite are counted apart, for a run may have gone wrong there.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::figures::{RunAnalysis, Span};
use super::finding::{Finding, Place};
use crate::domain::time::Stamp;
use crate::domain::units::{counted, metric};

/// Names that are told apart: a job may make them up for ever.
const NAMES: usize = 256;
/// What a name weighs whose last number is not finite: one of a loss, as a run that went wrong; and another one.
const LOSS_ENDS: f64 = 3.0;
const ENDS: f64 = 1.0;
/// One that was not finite for a while.
const PASSED: f64 = 0.05;
/// So many more names are told beside it.
const MORE: usize = 3;

/// What a run reported under one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricFigures {
    /// The name.
    pub name: String,
    /// The lowest rank that told it, which these are the numbers of; in a training of processes within ranks, the process.
    pub rank: u32,
    /// How many finite numbers, which all figures but `not_finite` are of.
    pub count: u64,
    /// The first.
    pub first: Option<f64>,
    /// The least.
    pub least: Option<f64>,
    /// The greatest.
    pub greatest: Option<f64>,
    /// The last.
    pub last: Option<f64>,
    /// The last one's step, where it was told.
    pub last_step: Option<u64>,
    /// Those that are not finite, where there are any.
    pub not_finite: Option<NotFinite>,
}

/// Numbers that are not finite: NaN and the infinities.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotFinite {
    /// How many.
    pub count: u64,
    /// The first and the last step of the newest of them in a row, where they were told.
    pub from_step: Option<u64>,
    /// See `from_step`.
    pub to_step: Option<u64>,
    /// The last number, where it is none of the finite ones: `NaN`, `inf`, `-inf`.
    #[serde(deserialize_with = "word")]
    pub ends_as: Option<Word>,
    /// When the newest in a row began.
    #[serde(skip)]
    pub from: Stamp,
}

impl MetricFigures {
    fn new(rank: u32, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rank,
            count: 0,
            first: None,
            least: None,
            greatest: None,
            last: None,
            last_step: None,
            not_finite: None,
        }
    }

    fn take(&mut self, at: Stamp, value: f64, step: Option<u64>) {
        if !value.is_finite() {
            let begin = NotFinite { count: 0, from_step: step, to_step: step, ends_as: None, from: at };
            let known = self.not_finite.get_or_insert_with(|| begin.clone());
            if known.ends_as.is_none() {
                *known = NotFinite { count: known.count, ..begin };
            }
            known.count += 1;
            known.to_step = step;
            known.ends_as = Some(words(value));
            return;
        }
        if let Some(known) = &mut self.not_finite {
            known.ends_as = None;
        }
        self.count += 1;
        self.first = self.first.or(Some(value));
        self.least = Some(self.least.map_or(value, |least| least.min(value)));
        self.greatest = Some(self.greatest.map_or(value, |greatest| greatest.max(value)));
        (self.last, self.last_step) = (Some(value), step);
    }

    /// The last number in the words of `number`, and its step: one that is not finite, too.
    pub fn ends(&self, number: impl Fn(f64) -> String) -> (Option<String>, Option<u64>) {
        match &self.not_finite {
            Some(NotFinite { ends_as: Some(words), to_step, .. }) => (Some((*words).to_owned()), *to_step),
            _ => (self.last.map(number), self.last_step),
        }
    }
}

/// One of [`WORDS`].
type Word = &'static str;

const WORDS: [Word; 3] = ["NaN", "inf", "-inf"];

fn words(value: f64) -> Word {
    let [nan, above, below] = WORDS;
    match value {
        _ if value.is_nan() => nan,
        _ if value > 0.0 => above,
        _ => below,
    }
}

fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Word>, D::Error> {
    let told = Option::<String>::deserialize(from)?;
    Ok(told.and_then(|told| WORDS.into_iter().find(|word| *word == told)))
}

/// What was reported so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub(super) struct Metrics(BTreeMap<String, MetricFigures>);

/// The same as it is kept: with the moments that figures leave out, from [`NotFinite::from`].
type Kept = Vec<(MetricFigures, Option<Stamp>)>;

impl From<Metrics> for Kept {
    fn from(metrics: Metrics) -> Self {
        let with_from = |figures: MetricFigures| {
            let from = figures.not_finite.as_ref().map(|not| not.from);
            (figures, from)
        };
        metrics.0.into_values().map(with_from).collect()
    }
}

impl From<Kept> for Metrics {
    fn from(kept: Kept) -> Self {
        let whole = |(mut figures, from): (MetricFigures, Option<Stamp>)| {
            if let Some((not, from)) = figures.not_finite.as_mut().zip(from) {
                not.from = from;
            }
            (figures.name.clone(), figures)
        };
        Self(kept.into_iter().map(whole).collect())
    }
}

impl Metrics {
    /// Takes a number in.
    pub(super) fn take(&mut self, rank: u32, name: &str, (at, step): (Stamp, Option<u64>), value: f64) {
        if !self.0.contains_key(name) {
            if self.0.len() >= NAMES {
                return;
            }
            self.0.insert(name.to_owned(), MetricFigures::new(rank, name));
        }
        let Some(known) = self.0.get_mut(name) else { return };
        if rank < known.rank {
            *known = MetricFigures::new(rank, name);
        }
        if rank == known.rank {
            known.take(at, value, step);
        }
    }

    /// By their names.
    pub(super) fn figures(self) -> Vec<MetricFigures> {
        self.0.into_values().collect()
    }
}

/// A name whose numbers are not finite, the gravest and of those the first; other such names stand beside it.
pub(super) fn finding<'a>(run: &'a RunAnalysis) -> Option<Finding> {
    let weight = |figures: &MetricFigures, not: &NotFinite| match not.ends_as {
        Some(_) if figures.name.to_lowercase().contains("loss") => LOSS_ENDS,
        Some(_) => ENDS,
        None => PASSED,
    };
    let of = |figures: &'a MetricFigures| {
        figures.not_finite.as_ref().map(|not| (weight(figures, not), figures, not))
    };
    let mut found: Vec<_> = run.metrics.iter().filter_map(of).collect();
    found.sort_by(|(a, _, one), (b, _, other)| b.total_cmp(a).then(one.from.cmp(&other.from)));
    let ((weight, figures, not), others) = found.split_first()?;
    let from =
        |not: &NotFinite| not.from_step.map_or_else(String::new, |step| format!(" from step {step} on"));
    let words = match (not.ends_as, not.from_step.zip(not.to_step)) {
        (Some(word), _) => format!("{} is {word}{}", figures.name, from(not)),
        (None, Some((from, to))) if from == to => format!("{} was not finite at step {from}", figures.name),
        (None, Some((from, to))) => format!("{} was not finite in steps {from} to {to}", figures.name),
        (None, None) => format!("{} was not finite for a while", figures.name),
    };
    let all = counted(figures.count.saturating_add(not.count), "number");
    let last = match (figures.last, figures.last_step) {
        (None, _) => "none is finite".to_owned(),
        (Some(last), None) => format!("the last finite one is {}", metric(last)),
        (Some(last), Some(step)) => format!("the last finite one is {}, at step {step}", metric(last)),
    };
    let mut evidence = format!("{} of {all} not finite; {last}", not.count);
    if !others.is_empty() {
        let named = others.iter().take(MORE).map(|(_, figures, not)| match not.ends_as {
            Some(word) => format!("{} is {word}{}", figures.name, from(not)),
            None => format!("{} was not finite for a while", figures.name),
        });
        evidence += "\n";
        evidence += &named.collect::<Vec<_>>().join("; ");
        if let Some(more) = others.len().checked_sub(MORE).filter(|more| *more > 0) {
            evidence = format!("{evidence}; and {}", counted(more, "more name"));
        }
    }
    let span = not.from_step.zip(not.to_step).map(|(from_step, to_step)| Span { from_step, to_step });
    let finding = Finding::new(*weight, words, evidence).seen_at(Place::At(not.from));
    Some(Finding { span, ..finding })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(numbers: impl IntoIterator<Item = (u32, &'static str, f64, Option<u64>)>) -> Metrics {
        let mut metrics = Metrics::default();
        for (second, (rank, name, value, step)) in (0..).zip(numbers) {
            metrics.take(rank, name, (Stamp(second * 1_000_000), step), value);
        }
        metrics
    }

    #[test]
    fn the_lowest_rank_that_tells_a_number_speaks_for_all() {
        let numbers = [(3, "lr", 9.0), (1, "lr", 0.1), (2, "lr", f64::NAN), (1, "lr", 0.05), (0, "x", 1.0)];
        let numbers = numbers.map(|(rank, name, value)| (rank, name, value, Some(5)));
        let metrics = told(numbers.into_iter().chain([(1, "lr", 0.08, Some(7))]));
        let [lr, x] = &metrics.figures()[..] else { panic!("two names") };
        let numbers = (lr.rank, lr.count, lr.first, lr.least, lr.greatest, lr.last, lr.last_step);
        assert_eq!(numbers, (1, 3, Some(0.1), Some(0.05), Some(0.1), Some(0.08), Some(7)));
        assert_eq!((x.name.as_str(), x.rank, x.count, &lr.not_finite), ("x", 0, 1, &None));
    }

    #[test]
    fn a_loss_that_becomes_nan_is_told_from_its_first_nan_on() {
        let loss = |step: u64| if step < 600 { 2.5 - step as f64 / 1000.0 } else { f64::NAN };
        let numbers = (0..=990).step_by(10).flat_map(|step| {
            let norm = if (300..900).contains(&step) { f64::INFINITY } else { 1.0 };
            [(0, "train/loss", loss(step), Some(step)), (0, "grad_norm", norm, Some(step))]
        });
        let metrics = told(numbers).figures();
        let [norm, loss] = &metrics[..] else { panic!("two names") };
        let not = loss.not_finite.as_ref().unwrap();
        assert_eq!(
            (not.count, not.from_step, not.to_step, not.ends_as),
            (40, Some(600), Some(990), Some("NaN"))
        );
        assert_eq!((loss.count, loss.last.is_some(), loss.last_step), (60, true, Some(590)));
        assert_eq!(loss.ends(|value| value.to_string()), (Some("NaN".to_owned()), Some(990)));
        assert_eq!(norm.ends(|value| value.to_string()), (Some("1".to_owned()), Some(990)));
        let mut run = crate::domain::analysis::fixtures::late_run(10, 0);
        run.metrics = metrics;
        let found = finding(&run).unwrap();
        assert_eq!(found.words, "train/loss is NaN from step 600 on");
        assert_eq!(
            found.evidence,
            "40 of 100 numbers not finite; the last finite one is 1.9100, at step 590\ngrad_norm was not finite for a while"
        );
        assert_eq!(found.place, Some(Place::At(Stamp(120_000_000))));
        assert_eq!(found.span, Some(Span { from_step: 600, to_step: 990 }));
        run.metrics.pop();
        assert_eq!(finding(&run).unwrap().words, "grad_norm was not finite in steps 300 to 890");
        run.metrics.clear();
        assert_eq!(finding(&run), None);
    }

    #[test]
    fn a_number_that_is_never_finite_has_no_figures_and_is_told() {
        let metrics = told([(0, "loss", f64::NAN, None), (0, "loss", f64::NEG_INFINITY, None)]).figures();
        let [loss] = &metrics[..] else { panic!("one name") };
        assert_eq!((loss.count, loss.first, loss.last), (0, None, None));
        assert_eq!(loss.ends(|value| value.to_string()), (Some("-inf".to_owned()), None));
        let mut run = crate::domain::analysis::fixtures::late_run(10, 0);
        run.metrics = metrics;
        let found = finding(&run).unwrap();
        assert_eq!(
            (found.words.as_str(), found.evidence.as_str()),
            ("loss is -inf", "2 of 2 numbers not finite; none is finite")
        );
    }

    #[test]
    fn names_that_are_made_up_for_ever_fill_no_memory() {
        let mut metrics = Metrics::default();
        (0..1000).for_each(|number| metrics.take(0, &format!("{number:04}"), (Stamp(0), None), 1.0));
        assert_eq!(metrics.figures().len(), NAMES);
    }
}
