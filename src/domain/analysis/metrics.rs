//! The numbers that a job reports by names of its own: of each the first, the least, the greatest and the last. Of many ranks the
//! lowest that tells it speaks for all.

use std::collections::BTreeMap;

use serde::Serialize;

/// Names that are told apart: a job may make them up for ever.
const NAMES: usize = 256;

/// What a run reported under one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricFigures {
    /// The name.
    pub name: String,
    /// The lowest rank that told it, which these are the numbers of; in a training of processes within ranks, the process.
    pub rank: u32,
    /// How many numbers.
    pub count: u64,
    /// The first.
    pub first: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
    /// The last.
    pub last: f64,
    /// The last one's step, where it was told.
    pub last_step: Option<u64>,
}

/// What was reported so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics(BTreeMap<String, MetricFigures>);

impl Metrics {
    /// Takes a number in; one that is none is passed over.
    pub(super) fn take(&mut self, rank: u32, name: &str, value: f64, step: Option<u64>) {
        if !value.is_finite() {
            return;
        }
        let begin = || MetricFigures {
            name: name.to_owned(),
            rank,
            count: 0,
            first: value,
            least: value,
            greatest: value,
            last: value,
            last_step: step,
        };
        let Some(known) = self.0.get_mut(name) else {
            if self.0.len() < NAMES {
                self.0.insert(name.to_owned(), MetricFigures { count: 1, ..begin() });
            }
            return;
        };
        if rank > known.rank {
            return;
        }
        if rank < known.rank {
            *known = begin();
        }
        known.count += 1;
        known.least = known.least.min(value);
        known.greatest = known.greatest.max(value);
        (known.last, known.last_step) = (value, step);
    }

    /// By their names.
    pub(super) fn figures(self) -> Vec<MetricFigures> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_rank_that_tells_a_number_speaks_for_all() {
        let mut metrics = Metrics::default();
        for (rank, name, value) in
            [(3, "lr", 9.0), (1, "lr", 0.1), (2, "lr", 7.0), (1, "lr", 0.05), (0, "x", 1.0)]
        {
            metrics.take(rank, name, value, Some(5));
        }
        metrics.take(1, "lr", f64::NAN, None);
        metrics.take(1, "lr", 0.08, Some(7));
        let [lr, x] = &metrics.figures()[..] else { panic!("two names") };
        let numbers = (lr.rank, lr.count, lr.first, lr.least, lr.greatest, lr.last, lr.last_step);
        assert_eq!(numbers, (1, 3, 0.1, 0.05, 0.1, 0.08, Some(7)));
        assert_eq!((x.name.as_str(), x.rank, x.count), ("x", 0, 1));
    }

    #[test]
    fn names_that_are_made_up_for_ever_fill_no_memory() {
        let mut metrics = Metrics::default();
        (0..1000).for_each(|number| metrics.take(0, &format!("{number:04}"), 1.0, None));
        assert_eq!(metrics.figures().len(), NAMES);
    }
}
