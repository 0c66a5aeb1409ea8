//! The network of the digits jobs: two convolutions, max-pooling and two dense layers, with `ReLU` and dropout.
//!
//! The convolutions work on groups of images, side by side on several threads; the gradient of their parameters is
//! summed per group and then over groups in order. The dense layers take the batch in one product on the calling
//! thread. So the bits of the result don't depend on the number of threads.

use std::ops::Range;

use super::conv::Conv;
use super::dense::{self, Dense};
use super::dropout::{Dropout, hash, uniform};
use super::loss::softmax_cross_entropy;
use super::parallel::for_each;
use super::pool;
use super::real::Real;
use super::sink::{Sink, ranges};

/// Images a group.
const GROUP: usize = 8;

/// What such a network looks like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Side of the square input images, pixels; one channel.
    pub side: usize,
    /// Channels after each convolution; the second a multiple of 4.
    pub filters: [usize; 2],
    /// Width of the hidden dense layer, a multiple of 4.
    pub hidden: usize,
    /// Classes.
    pub classes: usize,
    /// Share of values dropped after pooling and after the hidden layer.
    pub dropout: [f64; 2],
}

/// Which dropout pattern a batch gets.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// The run's seed and the step's number, hashed together by the caller.
    pub seed: u64,
    /// Place of the first image within the whole batch of all ranks.
    pub first: usize,
}

/// What a thread needs for one image at a time.
struct Scratch<T> {
    wide: [Vec<T>; 2],
    wide_gradient: [Vec<T>; 2],
    gradient: Vec<T>,
}

/// A network with the intermediate values of the last batch.
pub struct Cnn<T> {
    shape: Shape,
    conv: [Conv; 2],
    dense: [Dense; 2],
    /// Where each layer's parameters lie: conv 1, conv 2 (weights, then biases), dense 1, dense 2.
    layout: Vec<Range<usize>>,
    scratch: Vec<Scratch<T>>,
    flipped: Vec<T>,
    first: Vec<T>,
    pooled: Vec<T>,
    winner: Vec<u8>,
    hidden: Vec<T>,
    /// Logits, then their gradient.
    logits: Vec<T>,
    pooled_gradient: Vec<T>,
    hidden_gradient: Vec<T>,
    group_gradients: Vec<T>,
    dropped: bool,
}

impl<T: Real> Cnn<T> {
    /// A network of this shape that works with `threads` threads.
    pub fn new(shape: Shape, threads: usize) -> Self {
        let one = Conv { side: shape.side, channels: 1, filters: shape.filters[0] };
        let two = Conv { side: one.output_side(), channels: one.filters, filters: shape.filters[1] };
        let flat = pool::pooled_side(two).pow(2) * two.filters;
        let conv = [one, two];
        let dense = [
            Dense { inputs: flat, outputs: shape.hidden },
            Dense { inputs: shape.hidden, outputs: shape.classes },
        ];
        let layers =
            [one.weights() + one.filters, two.weights() + two.filters, dense[0].params(), dense[1].params()];
        let layout = ranges(&layers);
        let zeros = |len| vec![T::ZERO; len];
        let scratch = (0..threads.max(1))
            .map(|_| Scratch {
                wide: conv.map(|conv| zeros(conv.wide_rows() * conv.filters)),
                wide_gradient: conv.map(|conv| zeros(conv.wide_gradient_len())),
                gradient: zeros(two.side * two.side * two.channels),
            })
            .collect();
        Self {
            shape,
            conv,
            dense,
            layout,
            scratch,
            flipped: zeros(two.weights()),
            first: Vec::new(),
            pooled: Vec::new(),
            winner: Vec::new(),
            hidden: Vec::new(),
            logits: Vec::new(),
            pooled_gradient: Vec::new(),
            hidden_gradient: Vec::new(),
            group_gradients: Vec::new(),
            dropped: false,
        }
    }

    /// How many parameters it has.
    pub fn params(&self) -> usize {
        self.layout[3].end
    }

    /// Parameters of each layer: convolutions 1 and 2, dense layers 1 and 2.
    pub fn layers(&self) -> Vec<usize> {
        self.layout.iter().map(Range::len).collect()
    }

    /// Fresh parameters: uniform within ±√(6 / (inputs + outputs)) (Glorot and Bengio, 2010), biases zero.
    pub fn initialise(&self, seed: u64) -> Vec<T> {
        let [one, two] = self.conv;
        let weights = [one.weights(), two.weights(), self.dense[0].inputs * self.dense[0].outputs]
            .into_iter()
            .chain([self.dense[1].inputs * self.dense[1].outputs]);
        let fans = [9 * (1 + one.filters), 9 * (two.channels + two.filters)]
            .into_iter()
            .chain(self.dense.map(|dense| dense.inputs + dense.outputs));
        let mut params = vec![T::ZERO; self.params()];
        for ((range, count), fan) in self.layout.iter().zip(weights).zip(fans) {
            let limit = (6.0 / fan as f64).sqrt();
            for (at, weight) in params.iter_mut().enumerate().skip(range.start).take(count) {
                *weight = T::of((2.0 * uniform(seed, at as u64) - 1.0) * limit);
            }
        }
        params
    }

    /// Sum of the losses of a batch, and how many are classified right. Keeps what [`Cnn::backward`] needs. Without a
    /// `pattern` nothing is dropped.
    pub fn forward(
        &mut self,
        params: &[T],
        images: &[T],
        labels: &[u8],
        pattern: Option<Pattern>,
    ) -> (f64, usize) {
        let [one, two] = self.conv;
        let pixels = self.shape.side * self.shape.side;
        let (count, flat) = (labels.len(), self.dense[0].inputs);
        let first_len = two.side * two.side * one.filters;
        self.dropped = pattern.is_some();
        self.first.resize(count * first_len, T::ZERO);
        self.pooled.resize(count * flat, T::ZERO);
        self.winner.resize(count * flat, 0);
        let pieces: Vec<_> = images
            .chunks(GROUP * pixels)
            .zip(self.first.chunks_mut(GROUP * first_len))
            .zip(self.pooled.chunks_mut(GROUP * flat).zip(self.winner.chunks_mut(GROUP * flat)))
            .enumerate()
            .collect();
        let (weights_one, bias_one) = params[self.layout[0].clone()].split_at(one.weights());
        let (weights_two, bias_two) = params[self.layout[1].clone()].split_at(two.weights());
        let drop_pooled = pattern.map(|p| (Dropout::new(self.shape.dropout[0], hash(p.seed, 1)), p.first));
        for_each(&mut self.scratch, pieces, |scratch, (group, ((images, first), (pooled, winner)))| {
            let each = images
                .chunks_exact(pixels)
                .zip(first.chunks_exact_mut(first_len))
                .zip(pooled.chunks_exact_mut(flat).zip(winner.chunks_exact_mut(flat)));
            for (at, ((image, first), (pooled, winner))) in each.enumerate() {
                one.forward(image, weights_one, &mut scratch.wide[0]);
                one.bias_relu(&scratch.wide[0], bias_one, first);
                two.forward(first, weights_two, &mut scratch.wide[1]);
                pool::forward(two, &scratch.wide[1], bias_two, pooled, winner);
                if let Some((dropout, first_of_batch)) = drop_pooled {
                    let place = (first_of_batch + group * GROUP + at) * flat;
                    dropout.apply(place as u64, pooled);
                }
            }
        });
        self.hidden.resize(count * self.shape.hidden, T::ZERO);
        self.dense[0].forward(&params[self.layout[2].clone()], &self.pooled, &mut self.hidden);
        dense::relu(&mut self.hidden);
        if let Some(pattern) = pattern {
            let dropout = Dropout::new(self.shape.dropout[1], hash(pattern.seed, 2));
            dropout.apply((pattern.first * self.shape.hidden) as u64, &mut self.hidden);
        }
        self.logits.resize(count * self.shape.classes, T::ZERO);
        self.dense[1].forward(&params[self.layout[3].clone()], &self.hidden, &mut self.logits);
        softmax_cross_entropy(&mut self.logits, self.shape.classes, labels)
    }

    /// Adds the gradient of the last [`Cnn::forward`]'s loss to `gradient`, whose layers are [`Cnn::layers`]. `images`
    /// are the same as there.
    pub fn backward(&mut self, params: &[T], images: &[T], gradient: &mut dyn Sink<T>) {
        let [one, two] = self.conv;
        let scale = |rate: f64| T::of(if self.dropped { Dropout::new(rate, 0).scale() } else { 1.0 });
        let (scale_pooled, scale_hidden) = (scale(self.shape.dropout[0]), scale(self.shape.dropout[1]));
        self.hidden_gradient.resize(self.hidden.len(), T::ZERO);
        self.pooled_gradient.resize(self.pooled.len(), T::ZERO);
        let last = self.layout[3].clone();
        self.dense[1].backward(
            &params[last],
            &self.hidden,
            &self.logits,
            gradient.at(3),
            Some(&mut self.hidden_gradient),
        );
        gradient.ready(3);
        // A dropped value is zero too, so ReLU's rule stops its gradient as well.
        dense::backward_relu(&self.hidden, &mut self.hidden_gradient, scale_hidden);
        let middle = self.layout[2].clone();
        self.dense[0].backward(
            &params[middle],
            &self.pooled,
            &self.hidden_gradient,
            gradient.at(2),
            Some(&mut self.pooled_gradient),
        );
        gradient.ready(2);
        dense::backward_relu(&self.pooled, &mut self.pooled_gradient, scale_pooled);

        let (pixels, flat) = (self.shape.side * self.shape.side, self.dense[0].inputs);
        let (first_len, conv_params) = (two.side * two.side * one.filters, self.layout[1].end);
        two.flip(&params[self.layout[1].clone()][..two.weights()], &mut self.flipped);
        self.group_gradients.clear();
        self.group_gradients.resize(images.len().div_ceil(GROUP * pixels) * conv_params, T::ZERO);
        let pieces: Vec<_> = images
            .chunks(GROUP * pixels)
            .zip(self.first.chunks(GROUP * first_len))
            .zip(self.pooled_gradient.chunks(GROUP * flat).zip(self.winner.chunks(GROUP * flat)))
            .zip(self.group_gradients.chunks_exact_mut(conv_params))
            .collect();
        let (flipped, split) = (&self.flipped, self.layout[0].end);
        for_each(&mut self.scratch, pieces, |scratch, (((images, first), (pooled, winner)), gradient)| {
            let (gradient_one, gradient_two) = gradient.split_at_mut(split);
            let (weights_one, bias_one) = gradient_one.split_at_mut(one.weights());
            let (weights_two, bias_two) = gradient_two.split_at_mut(two.weights());
            let each = images
                .chunks_exact(pixels)
                .zip(first.chunks_exact(first_len))
                .zip(pooled.chunks_exact(flat).zip(winner.chunks_exact(flat)));
            for ((image, first), (pooled, winner)) in each {
                let [wide_one, wide_two] = &mut scratch.wide_gradient;
                pool::backward(two, pooled, winner, wide_two, bias_two);
                two.backward_weights(first, wide_two, weights_two);
                two.backward_input(wide_two, flipped, &mut scratch.gradient);
                one.backward_bias_relu(first, &scratch.gradient, wide_one, bias_one);
                one.backward_weights(image, wide_one, weights_one);
            }
        });
        for layer in [1, 0] {
            let (part, sums) = (self.layout[layer].clone(), gradient.at(layer));
            for group in self.group_gradients.chunks_exact(conv_params) {
                sums.iter_mut().zip(&group[part.clone()]).for_each(|(sum, value)| *sum += *value);
            }
            gradient.ready(layer);
        }
    }
}

#[cfg(test)]
mod parity;
#[cfg(test)]
mod tests {
    use super::super::sink::Flat;
    use super::*;

    const SHAPE: Shape = Shape { side: 8, filters: [4, 8], hidden: 12, classes: 5, dropout: [0.25, 0.5] };

    fn batch<T: Real>(count: usize) -> (Vec<T>, Vec<u8>) {
        let images = (0..count * 64).map(|i| T::of(uniform(5, i as u64))).collect();
        (images, (0..count).map(|i| (i * 3 % 5) as u8).collect())
    }

    #[test]
    fn the_whole_net_s_gradient_is_its_difference() {
        let (images, labels) = batch::<f64>(11);
        for pattern in [None, Some(Pattern { seed: 3, first: 20 })] {
            let mut net = Cnn::<f64>::new(SHAPE, 2);
            let mut params = net.initialise(9);
            // Biases off zero, so that their gradients are looked at away from ReLU's corner.
            params.iter_mut().enumerate().for_each(|(i, p)| *p += 0.05 * (uniform(8, i as u64) - 0.5));
            let (loss, _) = net.forward(&params, &images, &labels, pattern);
            assert!(loss > 0.0);
            let mut gradient = vec![0.0; params.len()];
            let layers = net.layers();
            net.backward(&params, &images, &mut Flat::new(&mut gradient, &layers));
            let h = 1e-6;
            for at in (0..params.len()).step_by(7) {
                let mut at_loss = |by: f64| {
                    let mut moved = params.clone();
                    moved[at] += by;
                    net.forward(&moved, &images, &labels, pattern).0
                };
                let slope = (at_loss(h) - at_loss(-h)) / (2.0 * h);
                assert!(
                    (slope - gradient[at]).abs() < 1e-5 * (1.0 + slope.abs()),
                    "{at}: {slope} {}",
                    gradient[at]
                );
            }
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let (images, labels) = batch::<f32>(37);
        let pattern = Some(Pattern { seed: 1, first: 0 });
        let results: Vec<Vec<u32>> = [1, 2, 3, 5]
            .into_iter()
            .map(|threads| {
                let mut net = Cnn::<f32>::new(SHAPE, threads);
                let params = net.initialise(4);
                let mut gradient = vec![0.0; params.len()];
                net.forward(&params, &images, &labels, pattern);
                let layers = net.layers();
                net.backward(&params, &images, &mut Flat::new(&mut gradient, &layers));
                gradient.iter().map(|value| value.to_bits()).collect()
            })
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
