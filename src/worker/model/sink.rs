//! Where a network puts its gradients, layer by layer.

use std::ops::Range;

/// Takes the gradients of a network's layers, which its backward pass completes from the last to the first.
pub trait Sink<T> {
    /// Where the gradient of a layer is to be added.
    ///
    /// # Panics
    /// If there is no such layer, or if it was said to be [`ready`](Sink::ready).
    fn at(&mut self, layer: usize) -> &mut [T];

    /// The gradient of this layer is complete: it may leave, and is not read again in this step.
    fn ready(&mut self, layer: usize);
}

/// All layers one after the other in plain memory.
pub struct Flat<'a, T> {
    gradient: &'a mut [T],
    layers: Vec<Range<usize>>,
}

impl<'a, T> Flat<'a, T> {
    /// For layers with so many parameters each.
    pub fn new(gradient: &'a mut [T], layers: &[usize]) -> Self {
        Self { gradient, layers: ranges(layers) }
    }
}

impl<T> Sink<T> for Flat<'_, T> {
    fn at(&mut self, layer: usize) -> &mut [T] {
        &mut self.gradient[self.layers[layer].clone()]
    }

    fn ready(&mut self, _layer: usize) {}
}

/// Where layers with so many parameters each lie, one after the other.
pub fn ranges(layers: &[usize]) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |len: &usize| {
        end += len;
        end - len..end
    };
    layers.iter().map(range).collect()
}
