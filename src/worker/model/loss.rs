//! Losses, as sums over the samples of a batch: what is divided by, and over how many ranks, is the caller's.

use super::real::Real;

/// Softmax and cross-entropy. Replaces each row of `logits` by the gradient of the row's loss; the sum of losses, and
/// how many rows had their greatest logit at the label.
pub fn softmax_cross_entropy<T: Real>(logits: &mut [T], classes: usize, labels: &[u8]) -> (f64, usize) {
    let (mut loss, mut right) = (0.0, 0);
    for (row, label) in logits.chunks_exact_mut(classes).zip(labels) {
        let label = usize::from(*label);
        // Subtracting the maximum changes nothing but keeps exp from overflowing.
        let (mut best, mut best_at) = (row[0], 0);
        for (at, value) in row.iter().enumerate() {
            if *value > best {
                (best, best_at) = (*value, at);
            }
        }
        right += usize::from(best_at == label);
        let of_label = (row[label] - best).wide();
        let mut sum = T::ZERO;
        for value in row.iter_mut() {
            *value = (*value - best).exp();
            sum += *value;
        }
        loss += sum.wide().ln() - of_label;
        for value in row.iter_mut() {
            *value = *value / sum;
        }
        row[label] = row[label] - T::ONE;
    }
    (loss, right)
}

/// Squared error. Replaces `outputs` by the gradient; the sum of squares.
pub fn squared_error<T: Real>(outputs: &mut [T], targets: &[T]) -> f64 {
    let mut loss = 0.0;
    for (output, target) in outputs.iter_mut().zip(targets) {
        let error = *output - *target;
        loss += error.wide() * error.wide();
        *output = error + error;
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::super::differences::{assert_slopes, slopes};
    use super::*;

    #[test]
    fn gradients_are_differences() {
        let logits = [0.3_f64, -1.0, 2.0, 0.1, 0.2, -0.7];
        let labels = [1, 0];
        let loss = |values: &[f64]| softmax_cross_entropy(&mut values.to_vec(), 3, &labels).0;
        let mut gradient = logits;
        let (_, right) = softmax_cross_entropy(&mut gradient, 3, &labels);
        assert_eq!(right, 0);
        for at in 0..6 {
            let (mut up, mut down) = (logits, logits);
            up[at] += 1e-6;
            down[at] -= 1e-6;
            assert!(((loss(&up) - loss(&down)) / 2e-6 - gradient[at]).abs() < 1e-7);
        }
        let (outputs, targets) = ([0.3_f64, -1.0, 2.0, 0.1], [1.0, 0.5, 2.0, -3.0]);
        let slopes = slopes(&outputs, |outputs| squared_error(&mut outputs.to_vec(), &targets));
        let mut gradient = outputs;
        squared_error(&mut gradient, &targets);
        assert_slopes("squared error", &gradient, &slopes);
        let mut outputs = [1.0, 4.0];
        assert!((squared_error(&mut outputs, &[3.0, 3.5]) - 4.25).abs() < 1e-12);
        assert!((outputs[0] + 4.0_f64).abs() < 1e-12 && (outputs[1] - 1.0_f64).abs() < 1e-12);
    }

    #[test]
    fn great_logits_do_not_overflow() {
        let (loss, right) = softmax_cross_entropy(&mut [1e4_f32, -1e4], 2, &[0]);
        assert!(loss.abs() < 1e-6 && right == 1);
        assert!(softmax_cross_entropy(&mut [1e4_f32, -1e4], 2, &[1]).0 > 1e4);
    }
}
