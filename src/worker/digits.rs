//! `digits`: a small CNN on the 8×8 digits. The last 360 are held out and never trained on.

use super::data::{self, PIXELS};
use super::error::WorkerError;
use super::model::cnn::{Cnn, Pattern, Shape};
use super::model::optimizer::Optimizer;
use super::task::{Batch, Defaults, Score, Task, own_part};

const HELD_OUT: usize = 360;
const SHAPE: Shape = Shape { side: 8, filters: [32, 64], hidden: 64, classes: 10, dropout: [0.25, 0.5] };
/// Images evaluated at once: bounds memory, not the result.
const EVALUATED: usize = 128;

/// Data, model, and the loaded batch.
pub(super) struct Digits {
    data: data::Digits,
    net: Cnn<f32>,
    images: Vec<f32>,
    labels: Vec<u8>,
    pattern: Pattern,
}

impl Digits {
    pub(super) fn new(threads: usize) -> Result<Self, WorkerError> {
        Ok(Self {
            data: data::digits()?,
            net: Cnn::new(SHAPE, threads),
            images: Vec::new(),
            labels: Vec::new(),
            pattern: Pattern { seed: 0, first: 0 },
        })
    }
}

impl Task for Digits {
    fn name(&self) -> &'static str {
        "digits"
    }

    fn defaults(&self) -> Defaults {
        Defaults { epochs: 30, batch: 32, rate: 1e-3 }
    }

    fn samples(&self) -> usize {
        self.data.labels.len() - HELD_OUT
    }

    fn initialise(&self, seed: u64) -> Vec<f32> {
        self.net.initialise(seed)
    }

    fn optimizer(&self, rate: f32, params: usize) -> Optimizer {
        Optimizer::adam(rate, params)
    }

    fn load(&mut self, batch: &Batch<'_>) {
        self.images.clear();
        self.labels.clear();
        for sample in batch.samples {
            self.images.extend_from_slice(&self.data.images[sample * PIXELS..][..PIXELS]);
            self.labels.push(self.data.labels[*sample]);
        }
        self.pattern = Pattern { seed: batch.seed, first: batch.first };
    }

    fn forward(&mut self, params: &[f32]) -> f64 {
        self.net.forward(params, &self.images, &self.labels, Some(self.pattern)).0
    }

    fn backward(&mut self, params: &[f32], gradient: &mut [f32]) {
        self.net.backward(params, &self.images, gradient);
    }

    fn metric(&self) -> &'static str {
        "accuracy"
    }

    fn evaluate(&mut self, params: &[f32], rank: u32, world: u32) -> Score {
        let own = own_part(self.samples(), HELD_OUT, rank, world);
        let count = own.len();
        let mut right = 0;
        let labels = self.data.labels[own.clone()].chunks(EVALUATED);
        for (images, labels) in self.data.images[own.start * PIXELS..].chunks(EVALUATED * PIXELS).zip(labels)
        {
            right += self.net.forward(params, &images[..labels.len() * PIXELS], labels, None).1;
        }
        Score { sum: right as f64, count }
    }
}
