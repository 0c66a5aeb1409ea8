//! How a gradient changes the parameters.

/// A rule with its state, over the flat parameter buffer.
#[derive(Debug, Clone)]
pub enum Optimizer {
    /// Gradient descent with momentum.
    Sgd {
        /// Learning rate.
        rate: f32,
        /// Share of the last change that is kept.
        momentum: f32,
        /// The last change.
        velocity: Vec<f32>,
    },
    /// Adam (Kingma and Ba, 2015), with Keras's epsilon.
    Adam {
        /// Learning rate.
        rate: f32,
        /// Steps done.
        steps: i32,
        /// Running mean of the gradient.
        mean: Vec<f32>,
        /// Running mean of its square.
        square: Vec<f32>,
    },
}

const BETA_MEAN: f32 = 0.9;
const BETA_SQUARE: f32 = 0.999;
const EPSILON: f32 = 1e-7;

impl Optimizer {
    /// Gradient descent with momentum for `params` parameters.
    pub fn sgd(rate: f32, momentum: f32, params: usize) -> Self {
        Self::Sgd { rate, momentum, velocity: vec![0.0; params] }
    }

    /// Adam for `params` parameters.
    pub fn adam(rate: f32, params: usize) -> Self {
        Self::Adam { rate, steps: 0, mean: vec![0.0; params], square: vec![0.0; params] }
    }

    /// One step along `gradient`, every value of which counts `scale` times.
    pub fn step(&mut self, params: &mut [f32], gradient: &[f32], scale: f32) {
        match self {
            Self::Sgd { rate, momentum, velocity } => {
                for ((param, gradient), velocity) in params.iter_mut().zip(gradient).zip(velocity) {
                    *velocity = *momentum * *velocity - *rate * scale * gradient;
                    *param += *velocity;
                }
            }
            Self::Adam { rate, steps, mean, square } => {
                *steps += 1;
                let (lost_mean, lost_square) = (1.0 - BETA_MEAN.powi(*steps), 1.0 - BETA_SQUARE.powi(*steps));
                let rate = *rate * lost_square.sqrt() / lost_mean;
                let state = mean.iter_mut().zip(square.iter_mut());
                for ((param, gradient), (mean, square)) in params.iter_mut().zip(gradient).zip(state) {
                    let gradient = gradient * scale;
                    *mean += (gradient - *mean) * (1.0 - BETA_MEAN);
                    *square += (gradient * gradient - *square) * (1.0 - BETA_SQUARE);
                    *param -= rate * *mean / (square.sqrt() + EPSILON);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adam_s_first_steps_are_the_paper_s() {
        // The first step is the rate itself, against the gradient's sign, whatever its size.
        let mut params = [1.0, 1.0, 1.0];
        let mut adam = Optimizer::adam(0.1, 3);
        adam.step(&mut params, &[2.0, -200.0, 0.0], 0.5);
        assert!((params[0] - 0.9).abs() < 1e-5 && (params[1] - 1.1).abs() < 1e-5, "{params:?}");
        assert!((params[2] - 1.0).abs() < f32::EPSILON);
        // Second step by hand: m = 0.9·0.1 + 0.1·3, v = 0.999·0.001 + 0.001·9, both unbiased.
        adam.step(&mut params, &[6.0, 0.0, 0.0], 0.5);
        let (m, v) = ((0.09 + 0.3) / 0.19_f64, (0.000_999 + 0.009) / 0.001_999_f64);
        assert!((f64::from(params[0]) - (0.9 - 0.1 * m / v.sqrt())).abs() < 1e-5, "{params:?}");
    }

    #[test]
    fn momentum_carries_on() {
        let mut params = [0.0];
        let mut sgd = Optimizer::sgd(0.5, 0.5, 1);
        sgd.step(&mut params, &[4.0], 0.25);
        sgd.step(&mut params, &[0.0], 1.0);
        assert!((params[0] + 0.75).abs() < 1e-6);
    }
}
