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

#[cfg(test)]
mod tests {
    use super::super::differences::{assert_slopes, slopes};
    use super::super::dropout::{Dropout, uniform};
    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<f64> {
        (0..len).map(|at| uniform(seed, at as u64) - 0.5).collect()
    }

    fn dot(one: &[f64], two: &[f64]) -> f64 {
        one.iter().zip(two).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn a_dense_layer_s_gradients_are_its_differences() {
        const BATCH: usize = 5;
        let dense = Dense { inputs: 4, outputs: 3 };
        let (params, input) = (noise(1, dense.params()), noise(2, BATCH * 4));
        // the loss is a weighted sum of the outputs: their gradient is the weights
        let weights = noise(3, BATCH * 3);
        let loss = |params: &[f64], input: &[f64]| {
            let mut output = vec![9.0; BATCH * 3];
            dense.forward(params, input, &mut output);
            dot(&output, &weights)
        };
        let (mut by_params, mut by_input) = (vec![1.0; params.len()], vec![9.0; input.len()]);
        dense.backward(&params, &input, &weights, &mut by_params, Some(&mut by_input));
        // added to what was there, not put in its place
        let by_params: Vec<f64> = by_params.iter().map(|value| value - 1.0).collect();
        let (slopes_of_params, slopes_of_input) =
            (slopes(&params, |params| loss(params, &input)), slopes(&input, |input| loss(&params, input)));
        let (weights_of, biases_of) = (0..12, 12..15);
        assert_slopes("weight", &by_params[weights_of.clone()], &slopes_of_params[weights_of]);
        assert_slopes("bias", &by_params[biases_of.clone()], &slopes_of_params[biases_of]);
        assert_slopes("input", &by_input, &slopes_of_input);
        let mut without = vec![1.0; params.len()];
        dense.backward(&params, &input, &weights, &mut without, None);
        let without: Vec<f64> = without.iter().map(|value| value - 1.0).collect();
        assert_eq!(without, by_params);
    }

    #[test]
    fn the_gradients_of_relu_and_dropout_are_their_differences() {
        let (values, weights) = (noise(4, 41), noise(5, 41));
        for rate in [None, Some(0.0), Some(0.25), Some(0.5)] {
            let dropout = rate.map(|rate| Dropout::new(rate, 6));
            let forward = |values: &[f64]| {
                let mut output = values.to_vec();
                relu(&mut output);
                if let Some(dropout) = dropout {
                    dropout.apply(8, &mut output);
                }
                output
            };
            let output = forward(&values);
            let kept = output.iter().filter(|value| **value > 0.0).count();
            assert!(kept > 5 && kept < 36, "{rate:?} keeps {kept}");
            let mut gradient = weights.clone();
            backward_relu(&output, &mut gradient, dropout.map_or(1.0, Dropout::scale));
            let slopes = slopes(&values, |values| dot(&forward(values), &weights));
            assert_slopes(&format!("relu, dropout {rate:?}"), &gradient, &slopes);
        }
    }
}
