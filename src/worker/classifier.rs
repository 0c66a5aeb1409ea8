//! The jobs that classify images: a CNN on the CPU.

use super::images::{Images, Painter};
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

    /// Puts samples into the batch.
    fn paint(&mut self, samples: &[usize], draws: Option<(u64, usize)>) {
        let (mut pixels, mut labels) = (std::mem::take(&mut self.pixels), std::mem::take(&mut self.labels));
        pixels.resize(samples.len() * self.pixels(), 0.0);
        labels.resize(samples.len(), 0);
        self.fill(samples, draws, &mut pixels, &mut labels);
        (self.pixels, self.labels) = (pixels, labels);
    }
}

impl<I: Images> Painter for Classifier<I> {
    fn shape(&self) -> Shape {
        self.kind.shape
    }

    fn held_out(&self) -> usize {
        self.source.held_out()
    }

    fn pixels(&self) -> usize {
        self.source.side() * self.source.side()
    }

    fn fill(&self, samples: &[usize], draws: Option<(u64, usize)>, pixels: &mut [f32], labels: &mut [u8]) {
        let images = pixels.chunks_exact_mut(self.pixels()).zip(labels);
        for ((at, sample), (pixels, label)) in samples.iter().enumerate().zip(images) {
            let draw = draws.map(|(key, first)| hash(key, (first + at) as u64));
            self.source.paint(*sample, draw, pixels);
            *label = self.source.label(*sample);
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

    fn source(&self) -> Option<String> {
        self.source.source()
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
        self.paint(batch.samples, Some((hash(batch.seed, 0), batch.first)));
        self.pattern = Pattern { seed: batch.seed, first: batch.first };
    }

    fn forward(&mut self, params: &[f32]) -> f64 {
        self.net.forward(params, &self.pixels, &self.labels, Some(self.pattern)).0
    }

    fn backward(&mut self, params: &[f32], gradient: &mut dyn Sink<f32>) {
        self.net.backward(params, &self.pixels, gradient);
    }

    fn painter(&self) -> Option<&dyn Painter> {
        Some(self)
    }

    fn metric(&self) -> &'static str {
        "accuracy"
    }

    fn evaluate(&mut self, params: &[f32], rank: u32, world: u32) -> Score {
        let own: Vec<usize> = own_part(self.source.training(), self.source.held_out(), rank, world).collect();
        let mut right = 0;
        for some in own.chunks(EVALUATED) {
            self.paint(some, None);
            right += self.net.forward(params, &self.pixels, &self.labels, None).1;
        }
        Score { sum: right as f64, count: own.len() }
    }
}
