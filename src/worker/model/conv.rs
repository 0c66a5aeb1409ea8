//! 3×3 convolution, stride 1, no padding, of one image, without copying patches.
//!
//! In an NHWC image of width `w` with `c` channels the three pixels of one kernel row are `3c` neighbouring values. So
//! the patches of kernel row `ky` are a matrix that is already there: row `p` begins at pixel `p + ky·w`, and rows
//! overlap. The product of that view with the kernel row's weights `[3c][f]`, added up over the three kernel rows, is
//! the convolution at *every* pixel `p`, in the width of the input; the last two columns mix two image rows and are
//! ignored. Such an output is called *wide*: [`Conv::wide_rows`] pixels of `f` values.
//!
//! The gradient for the input is a convolution of the same form: pixel `p` gathers from the wide gradient's pixels
//! `p - ky·w - kx`, so the view's rows are windows of three pixels again, with the weights flipped and transposed. It
//! needs zeros around the wide gradient: [`Conv::margin`] pixels before it and after it, and in its ignored columns.

use super::matmul::{Store, View, multiply};
use super::real::Real;

/// Side of the kernel.
pub const KERNEL: usize = 3;

/// The shape of a convolution layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv {
    /// Side of the square input, pixels.
    pub side: usize,
    /// Input channels.
    pub channels: usize,
    /// Output channels.
    pub filters: usize,
}

impl Conv {
    /// Weights, `[3][3][channels][filters]`.
    pub fn weights(self) -> usize {
        KERNEL * KERNEL * self.channels * self.filters
    }

    /// Side of the output, pixels.
    pub fn output_side(self) -> usize {
        self.side + 1 - KERNEL
    }

    /// Pixels of a wide output: up to the last one that counts.
    pub fn wide_rows(self) -> usize {
        (self.output_side() - 1) * self.side + self.output_side()
    }

    /// Zero pixels that the input gradient needs on both sides of the wide gradient.
    pub fn margin(self) -> usize {
        (KERNEL - 1) * (self.side + 1)
    }

    /// Values of a wide gradient with its margins.
    pub fn wide_gradient_len(self) -> usize {
        (self.wide_rows() + 2 * self.margin()) * self.filters
    }

    fn kernel_row(self) -> usize {
        KERNEL * self.channels
    }

    /// `wide = input * weights`, without bias.
    pub fn forward<T: Real>(self, input: &[T], weights: &[T], wide: &mut [T]) {
        for ky in 0..KERNEL {
            let patches = self.patches(input, ky);
            let row = &weights[ky * self.kernel_row() * self.filters..];
            let row = View::rows(row, self.kernel_row(), self.filters, self.filters);
            let mode = if ky == 0 { Store::Replace } else { Store::Add };
            multiply(wide, self.filters, mode, patches, row);
        }
    }

    fn patches<T: Real>(self, input: &[T], ky: usize) -> View<'_, T> {
        View::rows(
            &input[ky * self.side * self.channels..],
            self.wide_rows(),
            self.kernel_row(),
            self.channels,
        )
    }

    /// Adds to `gradient` (of the weights) what this image gives. `wide_gradient` has its margins.
    pub fn backward_weights<T: Real>(self, input: &[T], wide_gradient: &[T], gradient: &mut [T]) {
        let wide = &wide_gradient[self.margin() * self.filters..];
        let wide = View::rows(wide, self.wide_rows(), self.filters, self.filters);
        for (ky, gradient) in gradient.chunks_exact_mut(self.kernel_row() * self.filters).enumerate() {
            multiply(gradient, self.filters, Store::Add, self.patches(input, ky).transposed(), wide);
        }
    }

    /// The weights as [`Conv::backward_input`] wants them: `[3][3][filters][channels]`, columns flipped.
    pub fn flip<T: Real>(self, weights: &[T], flipped: &mut [T]) {
        let (c, f) = (self.channels, self.filters);
        for (tap, pixel) in weights.chunks_exact(c * f).enumerate() {
            let (ky, kx) = (tap / KERNEL, tap % KERNEL);
            let target = &mut flipped[(ky * KERNEL + KERNEL - 1 - kx) * f * c..][..f * c];
            for (channel, row) in pixel.chunks_exact(f).enumerate() {
                for (filter, weight) in row.iter().enumerate() {
                    target[filter * c + channel] = *weight;
                }
            }
        }
    }

    /// The gradient for the input, `[side][side][channels]`.
    pub fn backward_input<T: Real>(self, wide_gradient: &[T], flipped: &[T], gradient: &mut [T]) {
        let (c, f) = (self.channels, self.filters);
        for ky in 0..KERNEL {
            // Pixel p gathers from p - ky·side - 2 … p - ky·side; the margin makes that never negative.
            let first = self.margin() - ky * self.side - (KERNEL - 1);
            let windows = View::rows(&wide_gradient[first * f..], self.side * self.side, KERNEL * f, f);
            let row = View::rows(&flipped[ky * KERNEL * f * c..], KERNEL * f, c, c);
            let mode = if ky == 0 { Store::Replace } else { Store::Add };
            multiply(gradient, c, mode, windows, row);
        }
    }

    /// `output[y][x] = max(wide[y][x] + bias, 0)`, compact.
    pub fn bias_relu<T: Real>(self, wide: &[T], bias: &[T], output: &mut [T]) {
        let line = self.output_side() * self.filters;
        for (y, output) in output.chunks_exact_mut(line).enumerate() {
            let wide = &wide[y * self.side * self.filters..][..line];
            for (output, wide) in output.chunks_exact_mut(self.filters).zip(wide.chunks_exact(self.filters)) {
                for ((output, wide), bias) in output.iter_mut().zip(wide).zip(bias) {
                    let value = *wide + *bias;
                    *output = if value > T::ZERO { value } else { T::ZERO };
                }
            }
        }
    }

    /// The gradient of [`Conv::bias_relu`]: into the wide gradient (whose other values stay zero), and added to the
    /// bias gradient. `output` is what the forward pass gave.
    pub fn backward_bias_relu<T: Real>(
        self,
        output: &[T],
        gradient: &[T],
        wide_gradient: &mut [T],
        bias_gradient: &mut [T],
    ) {
        let line = self.output_side() * self.filters;
        let wide_gradient = &mut wide_gradient[self.margin() * self.filters..];
        for (y, (output, gradient)) in output.chunks_exact(line).zip(gradient.chunks_exact(line)).enumerate()
        {
            let wide = &mut wide_gradient[y * self.side * self.filters..][..line];
            // Two plain loops rather than one of both: each becomes vector code.
            for (wide, (output, gradient)) in wide.iter_mut().zip(output.iter().zip(gradient)) {
                *wide = if *output > T::ZERO { *gradient } else { T::ZERO };
            }
            for pixel in wide.chunks_exact(self.filters) {
                for (bias, value) in bias_gradient.iter_mut().zip(pixel) {
                    *bias += *value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dropout::uniform;
    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<f64> {
        (0..len).map(|i| uniform(seed, i as u64) - 0.5).collect()
    }

    /// The definition, in six loops.
    fn direct(conv: Conv, input: &[f64], weights: &[f64]) -> Vec<f64> {
        let (s, c, f, o) = (conv.side, conv.channels, conv.filters, conv.output_side());
        let mut output = vec![0.0; o * o * f];
        for (y, x, k) in (0..o).flat_map(|y| (0..o).flat_map(move |x| (0..f).map(move |k| (y, x, k)))) {
            for (dy, dx, i) in (0..3).flat_map(|a| (0..3).flat_map(move |b| (0..c).map(move |i| (a, b, i)))) {
                output[(y * o + x) * f + k] +=
                    input[((y + dy) * s + x + dx) * c + i] * weights[((dy * 3 + dx) * c + i) * f + k];
            }
        }
        output
    }

    #[test]
    fn forward_is_the_definition_and_both_gradients_are_its_differences() {
        let conv = Conv { side: 6, channels: 2, filters: 3 };
        let (input, weights) = (noise(1, 72), noise(2, conv.weights()));
        let o = conv.output_side();
        let mut wide = vec![9.0; conv.wide_rows() * 3];
        conv.forward(&input, &weights, &mut wide);
        let zero = [0.0; 3];
        let mut output = vec![0.0; o * o * 3];
        let bias = noise(3, 3);
        conv.bias_relu(&wide, &bias, &mut output);
        let loss_weights = noise(4, o * o * 3);
        let loss = |input: &[f64], weights: &[f64], bias: &[f64]| -> f64 {
            direct(conv, input, weights)
                .iter()
                .enumerate()
                .map(|(i, v)| (v + bias[i % 3]).max(0.0) * loss_weights[i])
                .sum()
        };
        for (got, raw) in output.iter().zip(direct(conv, &input, &weights).iter().zip(bias.iter().cycle())) {
            assert!((got - (raw.0 + raw.1).max(0.0)).abs() < 1e-12);
        }
        let mut wide_gradient = vec![0.0; conv.wide_gradient_len()];
        let mut bias_gradient = zero;
        conv.backward_bias_relu(&output, &loss_weights, &mut wide_gradient, &mut bias_gradient);
        let mut weight_gradient = vec![0.0; weights.len()];
        conv.backward_weights(&input, &wide_gradient, &mut weight_gradient);
        let mut flipped = vec![0.0; weights.len()];
        conv.flip(&weights, &mut flipped);
        let mut input_gradient = vec![0.0; input.len()];
        conv.backward_input(&wide_gradient, &flipped, &mut input_gradient);
        let h = 1e-6;
        let nudged = |values: &[f64], at: usize, by: f64| {
            let mut values = values.to_vec();
            values[at] += by;
            values
        };
        for (at, gradient) in weight_gradient.iter().enumerate() {
            let slope = (loss(&input, &nudged(&weights, at, h), &bias)
                - loss(&input, &nudged(&weights, at, -h), &bias))
                / (2.0 * h);
            assert!((slope - gradient).abs() < 1e-6, "weight {at}: {slope} {gradient}");
        }
        for (at, gradient) in input_gradient.iter().enumerate() {
            let slope = (loss(&nudged(&input, at, h), &weights, &bias)
                - loss(&nudged(&input, at, -h), &weights, &bias))
                / (2.0 * h);
            assert!((slope - gradient).abs() < 1e-6, "input {at}: {slope} {gradient}");
        }
        for (at, gradient) in bias_gradient.iter().enumerate() {
            let slope = (loss(&input, &weights, &nudged(&bias, at, h))
                - loss(&input, &weights, &nudged(&bias, at, -h)))
                / (2.0 * h);
            assert!((slope - gradient).abs() < 1e-6, "bias {at}: {slope} {gradient}");
        }
    }
}
