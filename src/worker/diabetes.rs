//! `diabetes`: linear regression on the standardised columns, by full-batch gradient descent with momentum.
//!
//! The columns are correlated: the loss's curvature differs by a factor of about 470 between directions. Momentum 0.9
//! makes the slowest direction shrink by 1.7 % a step at a rate of 0.1, so a few hundred steps reach the least-squares
//! optimum (mse 2859.70) to well within a hundredth.

use super::data::{self, FEATURES};
use super::error::WorkerError;
use super::model::dense::Dense;
use super::model::loss::squared_error;
use super::model::optimizer::Rule;
use super::model::sink::Sink;
use super::task::{Batch, Defaults, Score, Task, own_part};

const LAYER: Dense = Dense { inputs: FEATURES, outputs: 1 };

/// Data, and the loaded batch.
pub(super) struct Diabetes {
    data: data::Diabetes,
    features: Vec<f32>,
    targets: Vec<f32>,
    /// Predictions, then the gradient of their loss.
    outputs: Vec<f32>,
}

impl Diabetes {
    pub(super) fn new() -> Result<Self, WorkerError> {
        Ok(Self { data: data::diabetes()?, features: Vec::new(), targets: Vec::new(), outputs: Vec::new() })
    }
}

impl Task for Diabetes {
    fn name(&self) -> &'static str {
        "diabetes"
    }

    fn defaults(&self) -> Defaults {
        Defaults { epochs: 800, batch: self.samples(), rate: 0.1 }
    }

    fn samples(&self) -> usize {
        self.data.targets.len()
    }

    fn layers(&self) -> Vec<usize> {
        vec![LAYER.params()]
    }

    /// The loss is convex: where it starts does not matter.
    fn initialise(&self, _seed: u64) -> Vec<f32> {
        vec![0.0; LAYER.params()]
    }

    fn rule(&self) -> Rule {
        Rule::Sgd { momentum: 0.9 }
    }

    fn load(&mut self, batch: &Batch<'_>) {
        self.features.clear();
        self.targets.clear();
        for sample in batch.samples {
            self.features.extend_from_slice(&self.data.features[sample * FEATURES..][..FEATURES]);
            self.targets.push(self.data.targets[*sample]);
        }
    }

    fn forward(&mut self, params: &[f32]) -> f64 {
        self.outputs.resize(self.targets.len(), 0.0);
        LAYER.forward(params, &self.features, &mut self.outputs);
        squared_error(&mut self.outputs, &self.targets)
    }

    fn backward(&mut self, params: &[f32], gradient: &mut dyn Sink<f32>) {
        LAYER.backward(params, &self.features, &self.outputs, gradient.at(0), None);
        gradient.ready(0);
    }

    fn metric(&self) -> &'static str {
        "mse"
    }

    fn evaluate(&mut self, params: &[f32], rank: u32, world: u32) -> Score {
        let own = own_part(0, self.samples(), rank, world);
        let mut outputs = vec![0.0; own.len()];
        LAYER.forward(params, &self.data.features[own.start * FEATURES..own.end * FEATURES], &mut outputs);
        Score { sum: squared_error(&mut outputs, &self.data.targets[own.clone()]), count: own.len() }
    }
}
