//! How much the length of one step tells of that of the next.

use serde::{Deserialize, Serialize};

/// How much each of a row of numbers tells of the next: the autocorrelation of lag 1.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Correlation {
    count: f64,
    sum: f64,
    squares: f64,
    products: f64,
    last: Option<f64>,
    /// What is subtracted of each, so that sums of squares keep their digits.
    shift: Option<f64>,
}

impl Correlation {
    pub(super) fn add(&mut self, value: f64) {
        let value = value - *self.shift.get_or_insert(value);
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
        self.products += self.last.map_or(0.0, |last| last * value);
        self.last = Some(value);
    }

    /// (1 + r) / (1 − r), from 1 to 39: by so much the variance of a mean is greater than without dependence.
    pub(super) fn dependence(&self) -> f64 {
        if self.count < 3.0 {
            return 1.0;
        }
        let mean = self.sum / self.count;
        let variance = self.squares / self.count - mean * mean;
        let covariance = self.products / (self.count - 1.0) - mean * mean;
        let r = if variance > 0.0 { (covariance / variance).clamp(0.0, 0.95) } else { 0.0 };
        (1.0 + r) / (1.0 - r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_come_in_runs_tell_less() {
        let dependence = |values: &[f64]| {
            let mut correlation = Correlation::default();
            for value in values {
                correlation.add(*value);
            }
            correlation.dependence()
        };
        let alternating: Vec<f64> = (0..100).map(|at| f64::from(at % 2)).collect();
        let two_halves: Vec<f64> = (0..100).map(|at| f64::from(at / 50)).collect();
        assert!((dependence(&alternating) - 1.0).abs() < 1e-9);
        assert!(dependence(&two_halves) > 20.0);
        assert!((dependence(&[5.0; 10]) - 1.0).abs() < 1e-9);
    }
}
