//! Where a network's values lie in one block of the GPU's memory, and how much that is. Pure.

use super::error::GpuError;
use super::product::PARTS;
use crate::worker::model::cnn::Shape;

/// Pixels whose part of the first convolution's gradient one thread sums.
pub(super) const PIXELS: u32 = 256;
/// Rows whose sum is one part of a column's.
pub(super) const ROWS: u32 = 128;

/// The numbers of a shape that kernels ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Dims {
    pub(super) side: u32,
    pub(super) filters: [u32; 2],
    /// Sides of the convolutions' outputs.
    pub(super) out: [u32; 2],
    /// Side of the pooled image.
    pub(super) half: u32,
    /// Values of a pooled image.
    pub(super) flat: u32,
    pub(super) hidden: u32,
    pub(super) classes: u32,
}

impl Dims {
    /// Those of a shape whose channels and hidden values are multiples of 4.
    pub(super) fn new(shape: &Shape) -> Self {
        let out = [shape.side - 2, shape.side - 4].map(|side| side as u32);
        let (filters, half) = (shape.filters.map(|filters| filters as u32), out[1] / 2);
        Self {
            side: shape.side as u32,
            filters,
            out,
            half,
            flat: half * half * filters[1],
            hidden: shape.hidden as u32,
            classes: shape.classes as u32,
        }
    }

    /// Parameters of each layer, as `Cnn::layers` has them.
    pub(super) fn layers(&self) -> [usize; 4] {
        let [one, two] = self.filters.map(|filters| filters as usize);
        let (flat, hidden, classes) = (self.flat as usize, self.hidden as usize, self.classes as usize);
        [10 * one, (9 * one + 1) * two, (flat + 1) * hidden, (hidden + 1) * classes]
    }

    /// Values of an image's patches for the second convolution: the most that a kernel has a thread for, a quarter each.
    fn patches(&self) -> usize {
        self.out[1].pow(2) as usize * 9 * self.filters[0] as usize
    }
}

/// What lies where, from the block's start, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) images: u64,
    pub(super) labels: u64,
    /// The first convolution's output, then its gradient.
    pub(super) first: u64,
    /// What the second convolution multiplies, then its gradient.
    pub(super) patches: u64,
    /// The second convolution's output, then its gradient.
    pub(super) wide: u64,
    pub(super) pooled: u64,
    pub(super) winner: u64,
    pub(super) pooled_gradient: u64,
    pub(super) hidden: u64,
    pub(super) hidden_gradient: u64,
    /// Logits, then their gradient.
    pub(super) logits: u64,
    pub(super) losses: u64,
    pub(super) right: u64,
    /// This rank's loss, and how many it has right.
    pub(super) own: u64,
    /// Sums of parts.
    pub(super) parts: u64,
    /// Of all.
    pub(super) bytes: usize,
}

impl Plan {
    /// For `batch` images at once.
    pub(super) fn new(dims: &Dims, batch: usize) -> Self {
        let mut bytes = 0;
        let mut take = |len: usize, size: usize| {
            let at = bytes;
            // Aligned as the driver's own memory.
            bytes += (len * size).next_multiple_of(256);
            at as u64
        };
        let Dims { side, filters: [one, two], out, flat, hidden, classes, half } = *dims;
        let square = |side: u32| (side * side) as usize;
        let pixels = batch * square(out[0]);
        let parts_of = |rows: usize, each: u32| rows.div_ceil(each as usize);
        let parts = (parts_of(pixels, PIXELS) * 10 * one as usize)
            .max(parts_of(batch * square(half), ROWS) * two as usize)
            .max(parts_of(batch, ROWS) * hidden.max(classes) as usize)
            .max(PARTS);
        let mut plan = Self {
            images: take(batch * square(side), 4),
            labels: take(batch, 1),
            first: take(pixels * one as usize, 4),
            patches: take(batch * dims.patches(), 4),
            wide: take(batch * square(out[1]) * two as usize, 4),
            pooled: take(batch * flat as usize, 4),
            winner: take(batch * flat as usize, 1),
            pooled_gradient: take(batch * flat as usize, 4),
            hidden: take(batch * hidden as usize, 4),
            hidden_gradient: take(batch * hidden as usize, 4),
            logits: take(batch * classes as usize, 4),
            losses: take(batch, 4),
            right: take(batch, 4),
            own: take(2, 4),
            parts: take(parts, 4),
            bytes: 0,
        };
        plan.bytes = bytes;
        plan
    }

    /// The most images whose kernels' threads can be counted.
    pub(super) fn most(dims: &Dims) -> usize {
        (1 << 31) / (dims.patches() / 4).max(dims.flat as usize).max(1)
    }

    /// Whether `batch` images fit where `fixed` bytes are needed besides; else what does.
    pub(super) fn check(
        dims: &Dims,
        batch: usize,
        fixed: usize,
        free: usize,
        total: usize,
    ) -> Result<Self, GpuError> {
        let most = Self::most(dims);
        if batch > most {
            return Err(GpuError::Batch { batch, most });
        }
        let plan = Self::new(dims, batch);
        if plan.bytes + fixed <= free {
            return Ok(plan);
        }
        let fits = |batch: usize| Self::new(dims, batch).bytes + fixed <= free;
        // The greatest that fits lies between one that does and one that doesn't.
        let (mut low, mut high) = (0, batch);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if fits(middle) { low = middle } else { high = middle }
        }
        let wanted = plan.bytes + fixed;
        Err(GpuError::Memory { batch, wanted, free, total, fits: (low > 0).then_some(low) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MNIST: Shape =
        Shape { side: 28, filters: [32, 64], hidden: 128, classes: 10, dropout: [0.25, 0.5] };

    #[test]
    fn the_mnist_network_has_its_sizes() {
        let dims = Dims::new(&MNIST);
        assert_eq!((dims.out, dims.half, dims.flat), ([26, 24], 12, 9216));
        assert_eq!(dims.layers(), [320, 18_496, 1_179_776, 1_290]);
        let plan = Plan::new(&dims, 128);
        // Mostly the patches: 128 · 576 · 288 values.
        assert!((120 << 20..160 << 20).contains(&plan.bytes), "{}", plan.bytes);
        assert_eq!((plan.images, plan.labels, plan.first % 256), (0, 128 * 784 * 4, 0));
    }

    #[test]
    fn a_batch_that_fits_is_named_and_fits() {
        let dims = Dims::new(&MNIST);
        let (fixed, free) = (20 << 20, 1 << 30);
        let error = Plan::check(&dims, 4096, fixed, free, 2 << 30).unwrap_err();
        let GpuError::Memory { fits: Some(fits), wanted, .. } = error else { panic!("{error}") };
        assert!(wanted > free && Plan::check(&dims, fits, fixed, free, 2 << 30).is_ok());
        assert!(Plan::check(&dims, fits + 1, fixed, free, 2 << 30).is_err());
        let text = error.to_string();
        assert!(
            text.contains("has 1.0 G free of 2.0 G, and a batch of 4096 on this rank wants 3."),
            "{text}"
        );
        assert!(text.ends_with(&format!("a batch of {fits} fits")), "{text}");
        let error = Plan::check(&dims, 1, fixed, 1 << 20, 2 << 30).unwrap_err();
        assert!(error.to_string().contains("not even a batch of 1 fits"), "{error}");
        let most = Plan::most(&dims);
        assert!((10_000..100_000).contains(&most));
        assert!(matches!(
            Plan::check(&dims, most + 1, 0, usize::MAX, usize::MAX),
            Err(GpuError::Batch { .. })
        ));
    }
}
