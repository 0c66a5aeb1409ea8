//! Small neural networks by hand: layers, losses and optimizers over plain slices.
//!
//! Knows nothing of ranks, files or time. All parameters of a network lie in one flat buffer and all gradients in
//! another of the same layout, so that a broadcast is one call, an allreduce is one call, and so is an optimizer step.
//! Everything is written for any [`Real`](real::Real): training uses `f32`; the finite-difference tests use `f64`, where a wrong
//! gradient can't hide behind rounding.
//!
//! Images are NHWC: `[row][column][channel]`, as Keras has them.

pub mod cnn;
pub mod conv;
pub mod dense;
#[cfg(test)]
mod differences;
pub mod dropout;
pub mod loss;
pub mod matmul;
pub mod optimizer;
pub mod parallel;
pub mod pool;
pub mod real;
pub mod sink;
