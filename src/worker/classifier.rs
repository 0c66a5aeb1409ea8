//! The jobs that classify images: a CNN on the CPU.

use super::images::Images;
use super::model::cnn::{Cnn, Pattern, Shape};
use super::model::dropout::hash;
use super::model::optimizer::Rule;
use super::model::sink::Sink;
use super::task::{Batch, Defaults, Score, Task, own_part};

/// Images evaluated at once: bounds memory, not the result.
const EVALUATED: usize = 128;

/// What sets one such job apart from another.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) defaults: Defaults,
}

/// Images, network, and the loaded batch.
pub(super) struct Classifier<I> {
    kind: Kind,
    source: I,
    net: Cnn<f32>,
    pixels: Vec<f32>,
    labels: Vec<u8>,
    pattern: Pattern,
}

impl<I: Images> Classifier<I> {
    pub(super) fn new(kind: Kind, source: I, threads: usize) -> Self {
        let net = Cnn::new(kind.shape, threads);
        let pattern = Pattern { seed: 0, first: 0 };
        Self { kind, source, net, pixels: Vec::new(), labels: Vec::new(), pattern }
    }

    /// Puts samples into the batch, each with what `draw` says of it.
    fn paint(&mut self, samples: &[usize], draw: impl Fn(usize) -> Option<u64>) {
        let len = self.source.side() * self.source.side();
        self.labels.clear();
        self.pixels.clear();
        self.pixels.resize(samples.len() * len, 0.0);
        for ((at, sample), pixels) in samples.iter().enumerate().zip(self.pixels.chunks_exact_mut(len)) {
            self.source.paint(*sample, draw(at), pixels);
            self.labels.push(self.source.label(*sample));
        }
    }
}

impl<I: Images> Task for Classifier<I> {
    fn name(&self) -> &'static str {
        self.kind.name
    }

    fn defaults(&self) -> Defaults {
        self.kind.defaults
    }

    fn samples(&self) -> usize {
        self.source.training()
    }

    fn layers(&self) -> Vec<usize> {
        self.net.layers()
    }

    fn initialise(&self, seed: u64) -> Vec<f32> {
        self.net.initialise(seed)
    }

    fn rule(&self) -> Rule {
        Rule::Adam
    }

    fn load(&mut self, batch: &Batch<'_>) {
        let key = hash(batch.seed, 0);
        self.paint(batch.samples, |at| Some(hash(key, (batch.first + at) as u64)));
        self.pattern = Pattern { seed: batch.seed, first: batch.first };
    }

    fn forward(&mut self, params: &[f32]) -> f64 {
        self.net.forward(params, &self.pixels, &self.labels, Some(self.pattern)).0
    }

    fn backward(&mut self, params: &[f32], gradient: &mut dyn Sink<f32>) {
        self.net.backward(params, &self.pixels, gradient);
    }

    fn metric(&self) -> &'static str {
        "accuracy"
    }

    fn evaluate(&mut self, params: &[f32], rank: u32, world: u32) -> Score {
        let own: Vec<usize> = own_part(self.source.training(), self.source.held_out(), rank, world).collect();
        let mut right = 0;
        for some in own.chunks(EVALUATED) {
            self.paint(some, |_| None);
            right += self.net.forward(params, &self.pixels, &self.labels, None).1;
        }
        Score { sum: right as f64, count: own.len() }
    }
}
