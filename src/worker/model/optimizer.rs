//! How a gradient changes the parameters.

/// A rule with its state, over the flat parameter buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    rule: Rule,
    /// Steps begun.
    steps: u32,
    /// What the rule remembers of each parameter, one buffer after the other.
    memory: Vec<Vec<f32>>,
}

/// How a parameter follows its gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// Gradient descent with momentum. Remembers the last change.
    Sgd {
        /// Share of the last change that is kept.
        momentum: f32,
    },
    /// Adam (Kingma and Ba, 2015), with Keras's epsilon. Remembers the running means of the gradient and of its square.
    Adam,
}

/// Share of Adam's running mean of the gradient that is kept.
pub const BETA_MEAN: f32 = 0.9;
/// Share of Adam's running mean of the gradient's square that is kept.
pub const BETA_SQUARE: f32 = 0.999;
/// Keeps Adam from dividing by zero.
pub const EPSILON: f32 = 1e-7;

/// How far one step goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSize {
    /// The learning rate.
    pub learning_rate: f32,
    /// What each value of the gradient counts: 1 / samples where it is their sum.
    pub gradient_scale: f32,
}

impl Rule {
    /// Buffers that it needs, each as long as the parameters.
    pub fn buffers(self) -> usize {
        match self {
            Self::Sgd { .. } => 1,
            Self::Adam => 2,
        }
    }

    /// `sgd`, `adam`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Adam => "adam",
        }
    }

    /// Adam's rate in its `steps`-th step, with both means' bias taken out; other rules' rate as it is.
    pub fn rate(self, rate: f32, steps: u32) -> f32 {
        match self {
            Self::Sgd { .. } => rate,
            Self::Adam => {
                let steps = i32::try_from(steps).unwrap_or(i32::MAX);
                rate * (1.0 - BETA_SQUARE.powi(steps)).sqrt() / (1.0 - BETA_MEAN.powi(steps))
            }
        }
    }
}

impl Optimizer {
    /// A rule for `params` parameters, which has seen nothing yet.
    pub fn new(rule: Rule, params: usize) -> Self {
        Self { rule, steps: 0, memory: vec![vec![0.0; params]; rule.buffers()] }
    }

    /// Its rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Steps begun, and what it remembers.
    pub fn memory(&self) -> (u32, &[Vec<f32>]) {
        (self.steps, &self.memory)
    }

    /// Goes on from what another one remembered; says no to what is not of its shape.
    pub fn recall(&mut self, steps: u32, memory: &[Vec<f32>]) -> bool {
        let fits = memory.len() == self.memory.len()
            && memory.iter().zip(&self.memory).all(|(new, own)| new.len() == own.len());
        if fits {
            self.steps = steps;
            self.memory.clone_from_slice(memory);
        }
        fits
    }

    /// A step begins; [`Optimizer::update`] follows for each part of the parameters.
    pub fn begin(&mut self) {
        self.steps = self.steps.saturating_add(1);
    }

    /// Moves a part of the parameters, which begins at `first`, along its gradient.
    pub fn update(&mut self, first: usize, params: &mut [f32], gradient: &[f32], step_size: StepSize) {
        let (rate, scale) = (self.rule.rate(step_size.learning_rate, self.steps), step_size.gradient_scale);
        let mut memory = self.memory.iter_mut().map(|buffer| &mut buffer[first..first + params.len()]);
        match (self.rule, memory.next(), memory.next()) {
            (Rule::Sgd { momentum }, Some(velocity), _) => {
                for ((param, gradient), velocity) in params.iter_mut().zip(gradient).zip(velocity) {
                    *velocity = momentum * *velocity - rate * scale * gradient;
                    *param += *velocity;
                }
            }
            (Rule::Adam, Some(mean), Some(square)) => {
                let state = mean.iter_mut().zip(square.iter_mut());
                for ((param, gradient), (mean, square)) in params.iter_mut().zip(gradient).zip(state) {
                    let gradient = gradient * scale;
                    *mean += (gradient - *mean) * (1.0 - BETA_MEAN);
                    *square += (gradient * gradient - *square) * (1.0 - BETA_SQUARE);
                    *param -= rate * *mean / (square.sqrt() + EPSILON);
                }
            }
            _ => {}
        }
    }

    /// A whole step along the gradient of all parameters.
    pub fn step(&mut self, params: &mut [f32], gradient: &[f32], step_size: StepSize) {
        self.begin();
        self.update(0, params, gradient, step_size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adam_s_first_steps_are_the_paper_s() {
        // The first step is the rate itself, against the gradient's sign, whatever its size.
        let mut params = [1.0, 1.0, 1.0];
        let mut adam = Optimizer::new(Rule::Adam, 3);
        let step_size = StepSize { learning_rate: 0.1, gradient_scale: 0.5 };
        adam.step(&mut params, &[2.0, -200.0, 0.0], step_size);
        assert!((params[0] - 0.9).abs() < 1e-5 && (params[1] - 1.1).abs() < 1e-5, "{params:?}");
        assert!((params[2] - 1.0).abs() < f32::EPSILON);
        // Second step by hand: m = 0.9·0.1 + 0.1·3, v = 0.999·0.001 + 0.001·9, both unbiased.
        adam.step(&mut params, &[6.0, 0.0, 0.0], step_size);
        let (m, v) = ((0.09 + 0.3) / 0.19_f64, (0.000_999 + 0.009) / 0.001_999_f64);
        assert!((f64::from(params[0]) - (0.9 - 0.1 * m / v.sqrt())).abs() < 1e-5, "{params:?}");
    }

    #[test]
    fn momentum_carries_on() {
        let mut params = [0.0];
        let mut sgd = Optimizer::new(Rule::Sgd { momentum: 0.5 }, 1);
        sgd.step(&mut params, &[4.0], StepSize { learning_rate: 0.5, gradient_scale: 0.25 });
        sgd.step(&mut params, &[0.0], StepSize { learning_rate: 0.5, gradient_scale: 1.0 });
        assert!((params[0] + 0.75).abs() < 1e-6);
    }

    #[test]
    fn parts_are_the_whole_and_a_memory_can_be_resumed() {
        for rule in [Rule::Adam, Rule::Sgd { momentum: 0.9 }] {
            let gradient = [0.5, -0.25, 3.0];
            let step_size = StepSize { learning_rate: 0.01, gradient_scale: 0.5 };
            let (mut whole, mut parts) = ([1.0; 3], [1.0; 3]);
            let (mut one, mut two) = (Optimizer::new(rule, 3), Optimizer::new(rule, 3));
            for _ in 0..2 {
                one.step(&mut whole, &gradient, step_size);
                two.begin();
                two.update(2, &mut parts[2..], &gradient[2..], step_size);
                two.update(0, &mut parts[..2], &gradient[..2], step_size);
            }
            assert_eq!((whole, &one), (parts, &two));
            let mut third = Optimizer::new(rule, 3);
            let (steps, memory) = one.memory();
            assert!(third.recall(steps, memory));
            assert_eq!(third, one);
            assert!(!third.recall(9, &[vec![0.0; 2]]));
            assert_eq!(third, one);
        }
    }
}
