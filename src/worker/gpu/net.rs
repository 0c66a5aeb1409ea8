//! The network of `model::cnn` on a GPU: the same layers, the same dropout patterns, parameters and gradients in the same places.
//!
//! Everything is begun on the card's stream and nothing is waited for. Each kernel's result depends on its input alone.

use std::rc::Rc;

use cudarc::driver::result;

use super::card::Card;
use super::error::GpuError;
use super::kernels::{
    BiasRelu, ColumnSums, ConvFirst, ConvFirstGradient, DropoutArgs, Gather, Kernel, Patches, Pool,
    ReluGradient, Softmax, SumParts, Total, Unpool,
};
use super::memory::Memory;
use super::model::TOTALS;
use super::plan::{Dims, PIXELS, Plan, ROWS};
use super::product::{self, Matrix, Sizes};
use crate::collective::nccl::{DeviceBuffer, cuda};
use crate::worker::model::cnn::{Pattern, Shape};
use crate::worker::model::dropout::{Dropout, hash};

/// A network with the values of its last batch.
pub(super) struct Net {
    card: Rc<Card>,
    shape: Shape,
    dims: Dims,
    plan: Plan,
    /// Where each layer's parameters begin, and where they end.
    layers: [u64; 5],
    memory: Memory,
    params: DeviceBuffer,
    gradient: DeviceBuffer,
    batch: usize,
    /// Images of the last batch, and whether some of its values were dropped.
    count: u32,
    dropped: bool,
}

impl Net {
    /// With memory for `batch` images at once. `params` has the layers one after the other, `gradient` the same and
    /// [`TOTALS`] behind them.
    pub(super) fn new(
        card: Rc<Card>,
        shape: Shape,
        batch: usize,
        params: DeviceBuffer,
        gradient: DeviceBuffer,
    ) -> Result<Self, GpuError> {
        let dims = Dims::new(&shape);
        let (free, total) = card.context().mem_get_info().map_err(cuda("ask for free memory"))?;
        let plan = Plan::check(&dims, batch, 0, free, total)?;
        let memory = Memory::new(card.context(), plan.bytes).map_err(|error| match error.0 {
            // In pieces, or taken by another process since.
            cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let fits = (batch > 1).then_some(batch / 2);
                GpuError::Memory { batch, wanted: plan.bytes, free, total, fits }
            }
            _ => cuda("allocate memory")(error).into(),
        })?;
        let mut layers = [0; 5];
        for (at, len) in dims.layers().into_iter().enumerate() {
            layers[at + 1] = layers[at] + len as u64;
        }
        let len = layers[4] as usize;
        debug_assert!(params.bytes() == len * 4 && gradient.bytes() == (len + TOTALS) * 4);
        let (count, dropped) = (0, false);
        Ok(Self { card, shape, dims, plan, layers, memory, params, gradient, batch, count, dropped })
    }

    /// Something failed: none of its memory is waited for, or freed.
    pub(super) fn abandon(&mut self) {
        self.memory.abandon();
    }

    /// Images that there is memory for.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Where its values lie, for tests.
    #[cfg(test)]
    pub(super) fn plan(&self) -> Plan {
        self.plan
    }

    /// Address of a value of the plan.
    pub(super) fn at(&self, offset: u64) -> u64 {
        self.memory.start() + offset
    }

    /// Address of a value of the parameters.
    fn param(&self, at: u64) -> u64 {
        self.params.pointer() + 4 * at
    }

    /// Address of a value of the gradients.
    fn slope(&self, at: u64) -> u64 {
        self.gradient.pointer() + 4 * at
    }

    /// Where the sums of loss and samples lie.
    pub(super) fn totals(&self) -> u64 {
        self.slope(self.layers[4])
    }

    /// Where this rank's loss lies, and how many it has right.
    pub(super) fn own(&self) -> u64 {
        self.at(self.plan.own)
    }

    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    fn go<K: Kernel>(&self, kernel: &K) -> Result<(), GpuError> {
        // SAFETY: the addresses are of this network's memory, which is as long as the plan for `batch` images says, and
        // `load` lets no more images in. All work on it is on the card's stream; what is freed waits for it.
        unsafe { self.card.launch(kernel) }
    }

    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    fn multiply(&self, left: Matrix, right: Matrix, to: u64, sizes: [u32; 3]) -> Result<(), GpuError> {
        let [rows, columns, inner] = sizes;
        let parts = self.at(self.plan.parts);
        // SAFETY: as in `go`.
        unsafe { product::multiply(&self.card, left, right, to, parts, Sizes { rows, columns, inner }) }
    }

    /// Begins the copy of a batch to the GPU.
    ///
    /// # Safety
    /// Both live and aren't written until the stream has come past the copies.
    ///
    /// # Panics
    /// If there are more images than there is memory for.
    #[expect(unsafe_code, reason = "copies that go on after the call")]
    pub(super) unsafe fn load(&mut self, images: &[f32], labels: &[u8]) -> Result<(), GpuError> {
        let pixels = (self.dims.side * self.dims.side) as usize;
        assert!(
            labels.len() <= self.batch && images.len() == labels.len() * pixels,
            "a batch of another size"
        );
        self.count = labels.len() as u32;
        if labels.is_empty() {
            return Ok(());
        }
        self.card.context().bind_to_thread().map_err(cuda("use the GPU"))?;
        let stream = self.card.stream.cu_stream();
        // SAFETY: both have room, and the caller's promise.
        let begun = unsafe {
            result::memcpy_htod_async(self.at(self.plan.images), images, stream)
                .and_then(|()| result::memcpy_htod_async(self.at(self.plan.labels), labels, stream))
        };
        Ok(begun.map_err(cuda("copy a batch to the GPU"))?)
    }

    fn dropout(rate: f64, pattern: Option<Pattern>, which: u64, values: u32) -> DropoutArgs {
        let Some(pattern) = pattern else { return DropoutArgs { seed: 0, first: 0, dropped: 0, scale: 1.0 } };
        let dropout = Dropout::new(rate, hash(pattern.seed, which));
        let first = (pattern.first * values as usize / 4) as u64;
        DropoutArgs {
            seed: dropout.seed(),
            first,
            dropped: dropout.dropped().into(),
            scale: dropout.scale() as f32,
        }
    }

    /// Begins the forward pass of the loaded batch: loss and counts lie in [`Net::own`] and [`Net::totals`] then. Without a
    /// `pattern` nothing is dropped.
    pub(super) fn forward(&mut self, pattern: Option<Pattern>) -> Result<(), GpuError> {
        let Dims { side, filters: [one, two], out, half, flat, hidden, classes } = self.dims;
        let (count, plan) = (self.count, self.plan);
        self.dropped = pattern.is_some();
        let [pooling, hiding] = self.shape.dropout;
        if count > 0 {
            let first = self.at(plan.first);
            self.go(&ConvFirst {
                images: self.at(plan.images),
                params: self.param(0),
                output: first,
                threads: count * out[0] * out[0] * (one / 4),
                side,
                out: out[0],
                quads: one / 4,
            })?;
            let (patches, wide) = (self.at(plan.patches), self.at(plan.wide));
            let pixels = count * out[1] * out[1];
            self.go(&Patches {
                input: first,
                patches,
                threads: pixels * 9 * (one / 4),
                side: out[0],
                out: out[1],
                quads: one / 4,
            })?;
            let weights = Matrix::rows(self.param(self.layers[1]), two);
            self.multiply(Matrix::rows(patches, 9 * one), weights, wide, [pixels, two, 9 * one])?;
            self.go(&Pool {
                wide,
                bias: self.param(self.layers[2] - u64::from(two)),
                pooled: self.at(plan.pooled),
                winner: self.at(plan.winner),
                dropout: Self::dropout(pooling, pattern, 1, flat),
                threads: count * flat / 4,
                out: out[1],
                half,
                quads: two / 4,
            })?;
            let weights = Matrix::rows(self.param(self.layers[2]), hidden);
            let values = self.at(plan.hidden);
            self.multiply(Matrix::rows(self.at(plan.pooled), flat), weights, values, [count, hidden, flat])?;
            self.go(&BiasRelu {
                values,
                bias: self.param(self.layers[3] - u64::from(hidden)),
                dropout: Self::dropout(hiding, pattern, 2, hidden),
                threads: count * hidden / 4,
                quads: hidden / 4,
            })?;
            let weights = Matrix::rows(self.param(self.layers[3]), classes);
            let logits = self.at(plan.logits);
            self.multiply(Matrix::rows(values, hidden), weights, logits, [count, classes, hidden])?;
            self.go(&Softmax {
                logits,
                bias: self.param(self.layers[4] - u64::from(classes)),
                labels: self.at(plan.labels),
                losses: self.at(plan.losses),
                right: self.at(plan.right),
                threads: count,
                classes,
            })?;
        }
        self.go(&Total {
            losses: self.at(plan.losses),
            right: self.at(plan.right),
            own: self.own(),
            sums: self.totals(),
            threads: 1,
            rows: count,
        })
    }

    /// Begins the backward pass of the last [`Net::forward`], the last layer first. `ready` is called with each layer when
    /// its gradient's work is on the stream.
    pub(super) fn backward(
        &mut self,
        ready: &mut dyn FnMut(usize) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        if self.count == 0 {
            self.clear()?;
            return (0..4).rev().try_for_each(ready);
        }
        let Dims { filters: [one, two], out, half, flat, hidden, classes, .. } = self.dims;
        let (count, plan, layers) = (self.count, self.plan, self.layers);
        let scale = |rate: f64| if self.dropped { Dropout::new(rate, 0).scale() as f32 } else { 1.0 };
        let [pooling, hiding] = self.shape.dropout.map(scale);

        let logits = Matrix::rows(self.at(plan.logits), classes);
        let values = Matrix::rows(self.at(plan.hidden), hidden);
        self.multiply(values.transposed(), logits, self.slope(layers[3]), [hidden, classes, count])?;
        self.column_sums(logits.at, count, classes, layers[4] - u64::from(classes))?;
        ready(3)?;
        let weights = Matrix::rows(self.param(layers[3]), classes);
        let gradient = Matrix::rows(self.at(plan.hidden_gradient), hidden);
        self.multiply(logits, weights.transposed(), gradient.at, [count, hidden, classes])?;
        self.go(&ReluGradient {
            output: values.at,
            gradient: gradient.at,
            threads: count * hidden,
            scale: hiding,
        })?;

        let pooled = Matrix::rows(self.at(plan.pooled), flat);
        self.multiply(pooled.transposed(), gradient, self.slope(layers[2]), [flat, hidden, count])?;
        self.column_sums(gradient.at, count, hidden, layers[3] - u64::from(hidden))?;
        ready(2)?;
        let weights = Matrix::rows(self.param(layers[2]), hidden);
        let pooled_gradient = self.at(plan.pooled_gradient);
        self.multiply(gradient, weights.transposed(), pooled_gradient, [count, flat, hidden])?;
        self.go(&ReluGradient {
            output: pooled.at,
            gradient: pooled_gradient,
            threads: count * flat,
            scale: pooling,
        })?;

        let pixels = count * out[1] * out[1];
        let wide = Matrix::rows(self.at(plan.wide), two);
        self.go(&Unpool {
            gradient: pooled_gradient,
            winner: self.at(plan.winner),
            wide: wide.at,
            threads: pixels * (two / 4),
            out: out[1],
            half,
            quads: two / 4,
        })?;
        let patches = Matrix::rows(self.at(plan.patches), 9 * one);
        self.multiply(patches.transposed(), wide, self.slope(layers[1]), [9 * one, two, pixels])?;
        // Each pooled value's gradient went to one wide value.
        self.column_sums(pooled_gradient, count * half * half, two, layers[2] - u64::from(two))?;
        ready(1)?;
        let weights = Matrix::rows(self.param(layers[1]), two);
        self.multiply(wide, weights.transposed(), patches.at, [pixels, 9 * one, two])?;
        self.go(&Gather {
            patches: patches.at,
            output: self.at(plan.first),
            gradient: self.at(plan.first),
            threads: count * out[0] * out[0] * (one / 4),
            side: out[0],
            out: out[1],
            quads: one / 4,
        })?;
        self.conv_first_gradient()?;
        ready(0)
    }

    fn conv_first_gradient(&self) -> Result<(), GpuError> {
        let Dims { side, filters: [filters, _], out: [out, _], .. } = self.dims;
        let (pixels, parts) = (self.count * out * out, self.at(self.plan.parts));
        let count = pixels.div_ceil(PIXELS);
        self.go(&ConvFirstGradient {
            images: self.at(self.plan.images),
            gradient: self.at(self.plan.first),
            parts,
            threads: count * 10 * filters,
            side,
            out,
            filters,
            pixels,
            chunk: PIXELS,
        })?;
        self.go(&SumParts { parts, sum: self.slope(0), threads: 10 * filters, count })
    }

    /// Begins to sum the columns of a matrix into the gradients at `to`.
    fn column_sums(&self, values: u64, rows: u32, columns: u32, to: u64) -> Result<(), GpuError> {
        let (count, sum) = (rows.div_ceil(ROWS), self.slope(to));
        let parts = if count > 1 { self.at(self.plan.parts) } else { sum };
        self.go(&ColumnSums { values, parts, threads: count * columns, columns, rows, chunk: ROWS })?;
        if count > 1 {
            self.go(&SumParts { parts, sum, threads: columns, count })?;
        }
        Ok(())
    }

    /// A gradient of no samples.
    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    fn clear(&self) -> Result<(), GpuError> {
        self.card.context().bind_to_thread().map_err(cuda("use the GPU"))?;
        let bytes = 4 * self.layers[4] as usize;
        // SAFETY: the gradients, without what lies behind them.
        let begun = unsafe { result::memset_d8_async(self.slope(0), 0, bytes, self.card.stream.cu_stream()) };
        Ok(begun.map_err(cuda("clear the gradient"))?)
    }
}
