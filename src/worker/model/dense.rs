//! A fully connected layer over a whole batch, on the calling thread.

use super::matmul::{Store, View, multiply};
use super::real::Real;

/// The shape of a dense layer. Parameters: weights `[inputs][outputs]`, then biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dense {
    /// Values in.
    pub inputs: usize,
    /// Values out.
    pub outputs: usize,
}

impl Dense {
    /// Weights and biases.
    pub fn params(self) -> usize {
        (self.inputs + 1) * self.outputs
    }

    /// `output = input · weights + bias`, `[batch][outputs]`.
    pub fn forward<T: Real>(self, params: &[T], input: &[T], output: &mut [T]) {
        let (weights, bias) = params.split_at(self.inputs * self.outputs);
        let batch = output.len() / self.outputs;
        output.chunks_exact_mut(self.outputs).for_each(|row| row.copy_from_slice(bias));
        let input = View::rows(input, batch, self.inputs, self.inputs);
        multiply(
            output,
            self.outputs,
            Store::Add,
            input,
            View::rows(weights, self.inputs, self.outputs, self.outputs),
        );
    }

    /// The gradients: added to `param_gradient`, and put into `input_gradient` when there is one.
    pub fn backward<T: Real>(
        self,
        params: &[T],
        input: &[T],
        gradient: &[T],
        param_gradient: &mut [T],
        input_gradient: Option<&mut [T]>,
    ) {
        let batch = gradient.len() / self.outputs;
        let (weight_gradient, bias_gradient) = param_gradient.split_at_mut(self.inputs * self.outputs);
        let input = View::rows(input, batch, self.inputs, self.inputs);
        let by_row = View::rows(gradient, batch, self.outputs, self.outputs);
        multiply(weight_gradient, self.outputs, Store::Add, input.transposed(), by_row);
        for row in gradient.chunks_exact(self.outputs) {
            bias_gradient.iter_mut().zip(row).for_each(|(bias, value)| *bias += *value);
        }
        if let Some(input_gradient) = input_gradient {
            let weights = View::rows(params, self.inputs, self.outputs, self.outputs);
            multiply(input_gradient, self.inputs, Store::Replace, by_row, weights.transposed());
        }
    }
}

/// `max(value, 0)`, in place.
pub fn relu<T: Real>(values: &mut [T]) {
    for value in values {
        *value = if *value > T::ZERO { *value } else { T::ZERO };
    }
}

/// Stops the gradient where [`relu`] (or dropout) gave zero, and multiplies it by `scale` elsewhere.
pub fn backward_relu<T: Real>(output: &[T], gradient: &mut [T], scale: T) {
    for (gradient, output) in gradient.iter_mut().zip(output) {
        *gradient = if *output > T::ZERO { *gradient * scale } else { T::ZERO };
    }
}
