//! 2×2 max-pooling over a convolution's wide output, together with its bias and `ReLU`.
//!
//! Together, because the maximum commutes with both: only a quarter of the values get a bias and a `ReLU`, and one byte a
//! pooled value is all that the backward pass must know of the convolution's output.

use super::conv::Conv;
use super::real::Real;

/// Side of the pooled image; an odd last row and column are left out.
pub fn pooled_side(conv: Conv) -> usize {
    conv.output_side() / 2
}

/// `pooled = relu(max of 2×2 of (wide + bias))`; `winner` is which of the four it was.
pub fn forward<T: Real>(conv: Conv, wide: &[T], bias: &[T], pooled: &mut [T], winner: &mut [u8]) {
    let (f, line) = (conv.filters, pooled_side(conv) * conv.filters);
    let lines = pooled.chunks_exact_mut(line).zip(winner.chunks_exact_mut(line)).enumerate();
    for (y, (pooled, winner)) in lines {
        let pixels = pooled.chunks_exact_mut(f).zip(winner.chunks_exact_mut(f)).enumerate();
        for (x, (pooled, winner)) in pixels {
            let pixel = |dy: usize, dx: usize| &wide[((2 * y + dy) * conv.side + 2 * x + dx) * f..][..f];
            let (nw, ne, sw, se) = (pixel(0, 0), pixel(0, 1), pixel(1, 0), pixel(1, 1));
            let (bias, pooled, winner) = (&bias[..f], &mut pooled[..f], &mut winner[..f]);
            for k in 0..f {
                let (top, top_at) = if ne[k] > nw[k] { (ne[k], 1) } else { (nw[k], 0) };
                let (low, low_at) = if se[k] > sw[k] { (se[k], 3) } else { (sw[k], 2) };
                let (best, best_at) = if low > top { (low, low_at) } else { (top, top_at) };
                let value = best + bias[k];
                pooled[k] = if value > T::ZERO { value } else { T::ZERO };
                winner[k] = best_at;
            }
        }
    }
}

/// The gradient of [`forward`], except for `ReLU`'s rule: `gradient` is zero already where `pooled` was. Into the wide
/// gradient (all values that pooling looked at are written, the others stay zero), and added to the bias gradient.
pub fn backward<T: Real>(
    conv: Conv,
    gradient: &[T],
    winner: &[u8],
    wide_gradient: &mut [T],
    bias_gradient: &mut [T],
) {
    let (f, line) = (conv.filters, pooled_side(conv) * conv.filters);
    let wide_gradient = &mut wide_gradient[conv.margin() * f..];
    let bias = &mut bias_gradient[..f];
    for (y, (gradient, winner)) in gradient.chunks_exact(line).zip(winner.chunks_exact(line)).enumerate() {
        let (upper, lower) = wide_gradient[2 * y * conv.side * f..].split_at_mut(conv.side * f);
        let pairs = upper.chunks_exact_mut(2 * f).zip(lower.chunks_exact_mut(2 * f));
        for ((upper, lower), (gradient, winner)) in
            pairs.zip(gradient.chunks_exact(f).zip(winner.chunks_exact(f)))
        {
            let ((nw, ne), (sw, se)) = (upper.split_at_mut(f), lower.split_at_mut(f));
            let (nw, ne, sw, se) = (&mut nw[..f], &mut ne[..f], &mut sw[..f], &mut se[..f]);
            let (gradient, winner) = (&gradient[..f], &winner[..f]);
            for k in 0..f {
                let (value, place) = (gradient[k], u32::from(winner[k]));
                let only = |at: u32| if place == at { value } else { T::ZERO };
                nw[k] = only(0);
                ne[k] = only(1);
                sw[k] = only(2);
                se[k] = only(3);
                bias[k] += value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dense::backward_relu;
    use super::super::dropout::uniform;
    use super::*;

    #[test]
    fn the_gradient_goes_to_the_winner_and_is_the_difference() {
        // Output side 5: the last row and column are not pooled.
        let conv = Conv { side: 7, channels: 1, filters: 2 };
        let noise =
            |seed, len: usize| -> Vec<f64> { (0..len).map(|i| uniform(seed, i as u64) - 0.6).collect() };
        let (wide, bias, weights) = (noise(1, conv.wide_rows() * 2), vec![-0.2, 0.3], noise(3, 8));
        let run = |wide: &[f64], bias: &[f64]| {
            let (mut pooled, mut winner) = (vec![0.0; 8], vec![0; 8]);
            forward(conv, wide, bias, &mut pooled, &mut winner);
            (pooled.iter().zip(&weights).map(|(a, b)| a * b).sum::<f64>(), pooled, winner)
        };
        let (_, pooled, winner) = run(&wide, &bias);
        assert!(pooled.contains(&0.0) && pooled.iter().any(|value| *value > 0.0));
        let mut gradient = weights.clone();
        backward_relu(&pooled, &mut gradient, 1.0);
        let mut wide_gradient = vec![0.0; conv.wide_gradient_len()];
        let mut bias_gradient = vec![0.0; 2];
        backward(conv, &gradient, &winner, &mut wide_gradient, &mut bias_gradient);
        let h = 1e-6;
        let slope = |wide_at: Option<usize>, bias_at: Option<usize>| {
            let shifted = |by: f64| {
                let (mut wide, mut bias) = (wide.clone(), bias.clone());
                if let Some(at) = wide_at {
                    wide[at] += by;
                }
                if let Some(at) = bias_at {
                    bias[at] += by;
                }
                run(&wide, &bias).0
            };
            (shifted(h) - shifted(-h)) / (2.0 * h)
        };
        for at in 0..wide.len() {
            assert!((slope(Some(at), None) - wide_gradient[conv.margin() * 2 + at]).abs() < 1e-6, "{at}");
        }
        for (at, gradient) in bias_gradient.iter().enumerate() {
            assert!((slope(None, Some(at)) - gradient).abs() < 1e-6, "bias {at}");
        }
        let margin = conv.margin() * 2;
        assert!(wide_gradient[..margin].iter().all(|v| *v == 0.0));
        assert!(wide_gradient[margin + wide.len()..].iter().all(|v| *v == 0.0));
    }
}
