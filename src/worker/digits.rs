//! `digits`: a small CNN on the 8×8 digits. The last 360 are held out and never trained on.
//!
//! A digit lies on a canvas with a margin, so that the convolutions see its edges too, and in training it is moved by
//! up to one pixel each way, because 1,437 digits of a few writers are little to learn from.

use super::data::{self, PIXELS};
use super::error::WorkerError;
use super::model::cnn::{Cnn, Pattern, Shape};
use super::model::dropout::hash;
use super::model::optimizer::Optimizer;
use super::task::{Batch, Defaults, Score, Task, own_part};

const HELD_OUT: usize = 360;
/// Side of a digit, pixels.
const SIDE: usize = 8;
/// Empty pixels around it.
const MARGIN: usize = 2;
const CANVAS: usize = SIDE + 2 * MARGIN;
const SHAPE: Shape = Shape { side: CANVAS, filters: [32, 64], hidden: 64, classes: 10, dropout: [0.25, 0.5] };
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

impl Digits {
    /// Adds a sample to the batch, its upper left corner at `[row, column]` of the canvas.
    fn paint(&mut self, sample: usize, [row, column]: [usize; 2]) {
        let start = self.images.len();
        self.images.resize(start + CANVAS * CANVAS, 0.0);
        let canvas = &mut self.images[start..];
        let digit = &self.data.images[sample * PIXELS..][..PIXELS];
        for (y, line) in digit.chunks_exact(SIDE).enumerate() {
            canvas[(row + y) * CANVAS + column..][..SIDE].copy_from_slice(line);
        }
        self.labels.push(self.data.labels[sample]);
    }

    fn clear(&mut self) {
        self.images.clear();
        self.labels.clear();
    }
}

impl Task for Digits {
    fn name(&self) -> &'static str {
        "digits"
    }

    fn defaults(&self) -> Defaults {
        Defaults { epochs: 40, batch: 32, rate: 1e-3 }
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
        self.clear();
        let key = hash(batch.seed, 0);
        for (place, sample) in (batch.first..).zip(batch.samples) {
            let draw = hash(key, place as u64);
            let moved = [draw as u32 % 3, (draw >> 32) as u32 % 3].map(|way| MARGIN + way as usize - 1);
            self.paint(*sample, moved);
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
        let own: Vec<usize> = own_part(self.samples(), HELD_OUT, rank, world).collect();
        let mut right = 0;
        for some in own.chunks(EVALUATED) {
            self.clear();
            for sample in some {
                self.paint(*sample, [MARGIN, MARGIN]);
            }
            right += self.net.forward(params, &self.images, &self.labels, None).1;
        }
        Score { sum: right as f64, count: own.len() }
    }
}
