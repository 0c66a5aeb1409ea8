//! The GPU's gradients on their way: as `gradients` does it on the CPU, with the same buckets, but in one buffer.

use std::ops::Range;

use super::card::Card;
use super::error::GpuError;
use super::kernels::{Compress, Expand};
use super::model::TOTALS;
use crate::collective::nccl::{DeviceBuffer, DeviceGroup, DeviceWork};
use crate::collective::{DType, Reduce};
use crate::worker::gradients::{BucketOptions, plan};
use crate::worker::model::sink::ranges;

/// Layers that travel together.
struct Bucket {
    params: Range<usize>,
    layers: usize,
    /// Layers whose gradient is not complete.
    missing: usize,
}

/// All buckets of a rank, and the operations of this step.
pub(super) struct Buckets {
    all: Vec<Bucket>,
    bucket_of: Vec<usize>,
    gradient: DeviceBuffer,
    /// What travels instead of the gradients, and the factor before it.
    halves: Option<(DeviceBuffer, f32)>,
    overlap: bool,
    /// Buckets whose operation was begun in this step, in that order.
    started: Vec<(usize, Vec<DeviceWork>)>,
}

impl Buckets {
    /// Bytes of the GPU's memory that they need.
    pub(super) fn bytes(params: usize, bucket_options: &BucketOptions) -> usize {
        4 * (params + TOTALS) + if bucket_options.half.is_some() { 2 * params } else { 0 }
    }

    /// For layers with so many parameters each; the memory is the group's.
    pub(super) fn new(
        layers: &[usize],
        bucket_options: &BucketOptions,
        group: &mut DeviceGroup,
    ) -> Result<Self, GpuError> {
        let (runs, layers) = (plan(layers, bucket_options), ranges(layers));
        let mut bucket_of = vec![0; layers.len()];
        let mut buckets = Vec::with_capacity(runs.len());
        for (at, run) in runs.into_iter().enumerate() {
            bucket_of[run.clone()].fill(at);
            let params = layers[run.start].start..layers[run.end - 1].end;
            buckets.push(Bucket { params, layers: run.len(), missing: run.len() });
        }
        let params = layers.last().map_or(0, |last| last.end);
        let gradient = group.allocate(4 * (params + TOTALS))?;
        let halves = match bucket_options.half {
            Some(scale) => Some((group.allocate(2 * params)?, scale)),
            None => None,
        };
        Ok(Self {
            all: buckets,
            bucket_of,
            gradient,
            halves,
            overlap: bucket_options.overlap,
            started: Vec::new(),
        })
    }

    /// The gradients of all layers, and [`TOTALS`] behind them.
    pub(super) fn gradient(&self) -> &DeviceBuffer {
        &self.gradient
    }

    /// Something failed: none of its memory is waited for, or freed.
    pub(super) fn abandon(&self) {
        std::mem::forget((self.gradient.clone(), self.halves.clone()));
    }

    /// The work of a layer's gradient is on the stream. The allreduce of a bucket that is full is started behind it.
    pub(super) fn ready(
        &mut self,
        layer: usize,
        card: &Card,
        group: &mut DeviceGroup,
    ) -> Result<(), GpuError> {
        let at = self.bucket_of[layer];
        let bucket = &mut self.all[at];
        bucket.missing = bucket.missing.saturating_sub(1);
        if bucket.missing == 0 && self.overlap { self.start_allreduce(at, card, group) } else { Ok(()) }
    }

    /// The backward pass is on the stream: what has not been started is started.
    pub(super) fn rest(&mut self, card: &Card, group: &mut DeviceGroup) -> Result<(), GpuError> {
        for at in 0..self.all.len() {
            if !self.started.iter().any(|(started, _)| *started == at) {
                self.start_allreduce(at, card, group)?;
            }
            self.all[at].missing = self.all[at].layers;
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    fn start_allreduce(&mut self, at: usize, card: &Card, group: &mut DeviceGroup) -> Result<(), GpuError> {
        let Range { start, end } = self.all[at].params;
        // The totals lie behind the last layer, which is in the first bucket, and always go in 32 bits.
        let behind = if at == 0 { TOTALS } else { 0 };
        let mut in_flight = Vec::with_capacity(2);
        let mut send = |range| {
            in_flight.push(group.allreduce(&range, Reduce::Sum, &card.stream)?);
            Ok::<_, GpuError>(())
        };
        match &self.halves {
            None => send(self.gradient.range(4 * start..4 * (end + behind), DType::F32)?)?,
            Some((halves, scale)) => {
                let kernel = Compress {
                    values: self.gradient.pointer() + 4 * start as u64,
                    halves: halves.pointer() + 2 * start as u64,
                    threads: (end - start) as u32,
                    scale: *scale,
                };
                // SAFETY: both buffers hold all layers, and what is still to be done with these halves is behind this
                // stream's wait for the operation before.
                unsafe { card.launch(&kernel) }?;
                send(halves.range(2 * start..2 * end, DType::F16)?)?;
                if behind > 0 {
                    send(self.gradient.range(4 * end..4 * (end + behind), DType::F32)?)?;
                }
            }
        }
        self.started.push((at, in_flight));
        Ok(())
    }

    /// Puts the end of all operations before whatever is put on the stream from now on. The last one's number.
    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    pub(super) fn join(&mut self, card: &Card, group: &mut DeviceGroup) -> Result<u64, GpuError> {
        let mut last = 0;
        for (at, mut in_flight) in self.started.drain(..) {
            for work in &mut in_flight {
                group.join(work, &card.stream)?;
                last = work.seq();
            }
            let Some((halves, scale)) = &self.halves else { continue };
            let Range { start, end } = self.all[at].params;
            let kernel = Expand {
                halves: halves.pointer() + 2 * start as u64,
                values: self.gradient.pointer() + 4 * start as u64,
                threads: (end - start) as u32,
                scale: *scale,
            };
            // SAFETY: as in `start_allreduce`; the operation is before it on the stream.
            unsafe { card.launch(&kernel) }?;
        }
        Ok(last)
    }
}
