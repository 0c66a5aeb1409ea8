//! The optimizer on the GPU: one kernel over all parameters, and what it remembers of them.

use super::card::Card;
use super::error::GpuError;
use super::kernels::{Adam, Descend};
use super::memory::Memory;
use crate::collective::nccl::{clear, cuda};
use crate::worker::model::optimizer::{BETA_MEAN, BETA_SQUARE, EPSILON, Rule};

/// A rule for parameters that lie one after the other.
pub(super) struct GpuOptimizer {
    rule: Rule,
    pub(super) steps: u32,
    memory: Vec<Memory>,
    params: usize,
}

/// Where a step finds what it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) params: u64,
    pub(super) gradient: u64,
    /// The number of samples that the gradient is a sum over.
    pub(super) count: u64,
}

impl GpuOptimizer {
    /// Which has seen nothing yet.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn new(rule: Rule, params: usize, card: &Card) -> Result<Self, GpuError> {
        let mut memory = Vec::new();
        for _ in 0..rule.buffers() {
            let buffer = Memory::new(card.context(), 4 * params).map_err(cuda("allocate memory"))?;
            // SAFETY: the buffer's own bytes, which nothing uses yet.
            unsafe { clear(buffer.start(), 4 * params) }?;
            memory.push(buffer);
        }
        Ok(Self { rule, steps: 0, memory, params })
    }

    /// Something failed: none of its memory is waited for, or freed.
    pub(super) fn abandon(&mut self) {
        self.memory.iter_mut().for_each(Memory::abandon);
    }

    /// Addresses of what it remembers.
    pub(super) fn memory(&self) -> Vec<u64> {
        self.memory.iter().map(Memory::start).collect()
    }

    /// Begins a step.
    ///
    /// # Safety
    /// The places are memory of the card for as many parameters as were told, and live until the stream has done it.
    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    pub(super) unsafe fn step(&mut self, card: &Card, at: Places, rate: f32) -> Result<(), GpuError> {
        self.steps = self.steps.saturating_add(1);
        let (rate, threads) = (self.rule.rate(rate, self.steps), self.params as u32);
        let Places { params, gradient, count } = at;
        let memory = self.memory();
        // SAFETY: the caller's promise, and buffers of the same length.
        match (self.rule, memory.as_slice()) {
            (Rule::Sgd { momentum }, &[velocity]) => unsafe {
                card.launch(&Descend { params, gradient, velocity, count, threads, rate, momentum })
            },
            (Rule::Adam, &[mean, square]) => unsafe {
                card.launch(&Adam {
                    params,
                    gradient,
                    mean,
                    square,
                    count,
                    threads,
                    rate,
                    keep_mean: BETA_MEAN,
                    keep_square: BETA_SQUARE,
                    epsilon: EPSILON,
                })
            },
            _ => Ok(()),
        }
    }
}
