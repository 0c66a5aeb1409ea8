//! The gradients of a network, in buckets that leave for the other ranks while the rest is still being computed.
//!
//! A bucket is a run of whole layers, counted from the last, whose gradient is complete first. It is closed when it
//! has reached its size, so that a great layer goes with the small ones behind it. The buckets lie in memory that
//! the ranks of a host work on directly.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use super::model::sink::ranges;
use crate::collective::{
    Buffer, Collective, CollectiveError, Communicator, Element, OpTiming, Reduce, Work, f16,
};

/// Which layers' gradients are reduced together, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketOptions {
    /// Bytes from which on the first bucket is closed. It is small, so that the first allreduce begins early.
    pub first: usize,
    /// Bytes from which on the others are.
    pub others: usize,
    /// Half as many bytes: 16-bit floating point on the way, with this factor before it, so that sums over samples stay
    /// below its 65,504. `None`: 32 bits.
    pub half: Option<f32>,
    /// Whether buckets leave as soon as they are complete, or all at the end.
    pub overlap: bool,
}

impl Default for BucketOptions {
    fn default() -> Self {
        Self { first: 1 << 20, others: 25 << 20, half: None, overlap: true }
    }
}

/// Which layers travel together: ranges of layers, in the order in which they leave.
pub(super) fn plan(layers: &[usize], bucket_options: &BucketOptions) -> Vec<Range<usize>> {
    let mut buckets = Vec::new();
    let (mut end, mut bytes) = (layers.len(), 0);
    for (at, len) in layers.iter().enumerate().rev() {
        bytes += len * size_of::<f32>();
        let limit = if buckets.is_empty() { bucket_options.first } else { bucket_options.others };
        if bytes >= limit || at == 0 {
            buckets.push(at..end);
            (end, bytes) = (at, 0);
        }
    }
    buckets
}

/// All gradients of one rank.
#[derive(Debug)]
pub struct Gradients {
    /// Parameters of each layer.
    layers: Vec<Range<usize>>,
    /// The bucket of each layer.
    bucket_of: Vec<usize>,
    buckets: Vec<Bucket>,
    /// What travels beside the gradients when the first bucket has no room for it in 32 bits.
    totals: Option<Slot<f32>>,
    bucket_options: BucketOptions,
}

/// Values that travel beside the gradients: the sum of the losses, and the number of samples.
pub(super) const TOTALS: usize = 2;

impl Gradients {
    /// For layers with so many parameters each; the memory is the group's.
    pub fn new(
        layers: &[usize],
        bucket_options: BucketOptions,
        ranks: &mut dyn Communicator,
    ) -> Result<Self, CollectiveError> {
        let (runs, layers) = (plan(layers, &bucket_options), ranges(layers));
        let mut bucket_of = vec![0; layers.len()];
        let mut buckets = Vec::with_capacity(runs.len());
        for (at, run) in runs.into_iter().enumerate() {
            bucket_of[run.clone()].fill(at);
            let params = layers[run.start].start..layers[run.end - 1].end;
            let room = if at == 0 && bucket_options.half.is_none() { TOTALS } else { 0 };
            let half = match bucket_options.half {
                Some(scale) => Some((Slot::Here(ranks.buffer(params.len())?), scale)),
                None => None,
            };
            let sums = Slot::Here(ranks.buffer(params.len() + room)?);
            buckets.push(Bucket { missing: run.len(), layers: run.len(), left: false, params, sums, half });
        }
        let totals = match bucket_options.half {
            Some(_) => Some(Slot::Here(ranks.buffer(TOTALS)?)),
            None => None,
        };
        Ok(Self { layers, bucket_of, buckets, totals, bucket_options })
    }

    /// Each part of the parameters with its gradient.
    pub(super) fn parts(&mut self) -> impl Iterator<Item = (Range<usize>, &[f32])> {
        self.buckets.iter_mut().map(|bucket| {
            let range = bucket.params.clone();
            let sums = &bucket.sums.here()[..range.len()];
            (range, sums)
        })
    }

    /// A step begins: nothing is in them.
    pub(super) fn clear(&mut self) {
        for bucket in &mut self.buckets {
            bucket.sums.here().fill(0.0);
            (bucket.missing, bucket.left) = (bucket.layers, false);
        }
    }

    /// Where the gradient of a layer is to be added.
    pub(super) fn layer(&mut self, layer: usize) -> &mut [f32] {
        let bucket = &mut self.buckets[self.bucket_of[layer]];
        let (params, from) = (&self.layers[layer], bucket.params.start);
        &mut bucket.sums.here()[params.start - from..params.end - from]
    }

    /// What travels beside the gradients. To be set before the first bucket is full.
    pub(super) fn totals(&mut self) -> Option<&mut [f32; TOTALS]> {
        let place = match &mut self.totals {
            Some(own) => own.here(),
            None => self.buckets.first_mut()?.sums.here(),
        };
        place.last_chunk_mut()
    }

    /// The gradient of a layer is complete. A bucket that is full leaves, unless it is the only one: there is nothing to
    /// hide it behind.
    pub(super) fn ready(
        &mut self,
        layer: usize,
        ranks: &mut dyn Communicator,
    ) -> Result<(), CollectiveError> {
        let at = self.bucket_of[layer];
        let stays = self.buckets.len() == 1 || !self.bucket_options.overlap;
        let bucket = &mut self.buckets[at];
        bucket.missing = bucket.missing.saturating_sub(1);
        if bucket.missing > 0 || stays {
            return Ok(());
        }
        bucket.leave(ranks)?;
        match &mut self.totals {
            Some(totals) if at == 0 => totals.send(ranks),
            _ => Ok(()),
        }
    }

    /// Returns when everything is here, summed up over all ranks: where the time of each operation went.
    pub(super) fn collect(&mut self, ranks: &mut dyn Communicator) -> Result<Vec<OpTiming>, CollectiveError> {
        let mut timings = Vec::with_capacity(self.buckets.len() + 1);
        for (at, bucket) in self.buckets.iter_mut().enumerate() {
            timings.push(bucket.arrive(ranks)?);
            if let Some(totals) = self.totals.as_mut().filter(|_| at == 0) {
                timings.push(totals.finish(ranks)?);
            }
        }
        Ok(timings)
    }
}

/// Layers that travel together.
#[derive(Debug)]
struct Bucket {
    params: Range<usize>,
    layers: usize,
    /// Layers whose gradient is not complete.
    missing: usize,
    /// Whether its operation was begun in this step.
    left: bool,
    sums: Slot<f32>,
    /// What travels instead of the sums, and the factor before it.
    half: Option<(Slot<f16>, f32)>,
}

impl Bucket {
    fn leave(&mut self, ranks: &mut dyn Communicator) -> Result<(), CollectiveError> {
        self.left = true;
        match &mut self.half {
            None => self.sums.send(ranks),
            Some((half, scale)) => {
                narrow(self.sums.here(), half.here(), *scale);
                half.send(ranks)
            }
        }
    }

    fn arrive(&mut self, ranks: &mut dyn Communicator) -> Result<OpTiming, CollectiveError> {
        match &mut self.half {
            None => self.sums.finish(ranks),
            Some((half, scale)) => {
                if !self.left {
                    narrow(self.sums.here(), half.here(), *scale);
                }
                let timing = half.finish(ranks)?;
                widen(half.here(), self.sums.here(), *scale);
                Ok(timing)
            }
        }
    }
}

/// Values converted at once: they stay in the nearest cache.
const PIECE: usize = 1024;

fn narrow(from: &[f32], to: &mut [f16], scale: f32) {
    let mut scaled = [0.0; PIECE];
    for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
        let scaled = &mut scaled[..to.len()];
        scaled.iter_mut().zip(from).for_each(|(scaled, from)| *scaled = from * scale);
        // A slice at a time, for which the processor has instructions.
        to.convert_from_f32_slice(scaled);
    }
}

fn widen(from: &[f16], to: &mut [f32], scale: f32) {
    let back = 1.0 / scale;
    for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
        let to = &mut to[..from.len()];
        from.convert_to_f32_slice(to);
        for value in to.iter_mut() {
            *value *= back;
        }
    }
}

/// Values that are here or on their way.
#[derive(Debug)]
enum Slot<T> {
    Here(Buffer<T>),
    Away(Work<T>),
    /// Their operation has failed.
    Lost,
}

impl<T: Element> Slot<T> {
    fn here(&mut self) -> &mut [T] {
        match self {
            Self::Here(buffer) => buffer,
            Self::Away(_) | Self::Lost => &mut [],
        }
    }

    /// Their operation begins.
    fn send(&mut self, ranks: &mut dyn Communicator) -> Result<(), CollectiveError> {
        if let Self::Here(buffer) = std::mem::replace(self, Self::Lost) {
            *self = Self::Away(ranks.allreduce_begin(buffer, Reduce::Sum)?);
        }
        Ok(())
    }

    /// They are here, reduced. What was not sent goes now, on this thread.
    fn finish(&mut self, ranks: &mut dyn Communicator) -> Result<OpTiming, CollectiveError> {
        match std::mem::replace(self, Self::Lost) {
            Self::Here(mut buffer) => {
                let timing = ranks.allreduce(&mut buffer, Reduce::Sum)?;
                *self = Self::Here(buffer);
                Ok(timing)
            }
            Self::Away(pending) => {
                let (buffer, timing) = pending.wait()?;
                *self = Self::Here(buffer);
                Ok(timing)
            }
            Self::Lost => Err(CollectiveError::Abandoned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Solo;

    const SMALL: BucketOptions = BucketOptions { first: 40, others: 100, half: None, overlap: true };

    #[test]
    fn buckets_are_runs_of_whole_layers_from_the_last() {
        let runs = |layers: &[usize]| plan(layers, &SMALL);
        // 4 bytes a parameter; a bucket is closed when it has reached its size.
        assert_eq!(runs(&[10, 20, 5, 3, 4]), [2..5, 0..2]);
        assert_eq!(runs(&[10, 30, 5, 3, 4]), [2..5, 1..2, 0..1]);
        assert_eq!(runs(&[10, 20, 300, 3]), [2..4, 0..2]);
        assert_eq!(runs(&[1]).len(), 1);
        assert!(runs(&[]).is_empty());
        // The MNIST network: the great dense layer leaves first, with the small one behind it.
        assert_eq!(plan(&[320, 18_496, 1_179_776, 1_290], &BucketOptions::default()), [2..4, 0..2]);
    }

    #[test]
    fn values_go_and_come_back_in_both_widths() {
        for half in [None, Some(0.25)] {
            for overlap in [true, false] {
                let bucket_options = BucketOptions { half, overlap, ..SMALL };
                let mut gradients = Gradients::new(&[3, 30, 9], bucket_options, &mut Solo).unwrap();
                assert_eq!(gradients.buckets.len(), 2);
                for step in 1..3_u8 {
                    gradients.clear();
                    *gradients.totals().unwrap() = [0.5, 7.0];
                    for layer in [2, 1, 0] {
                        gradients
                            .layer(layer)
                            .iter_mut()
                            .for_each(|value| *value += f32::from(step) + layer as f32);
                        gradients.ready(layer, &mut Solo).unwrap();
                    }
                    assert_eq!(
                        gradients.collect(&mut Solo).unwrap().len(),
                        if half.is_some() { 3 } else { 2 }
                    );
                    assert_eq!(
                        gradients.totals().unwrap().map(f32::to_bits),
                        [0.5_f32, 7.0].map(f32::to_bits)
                    );
                    let mut all = [0.0; 42];
                    for (range, sums) in gradients.parts() {
                        all[range].copy_from_slice(sums);
                    }
                    let expected = |at: usize| {
                        f32::from(step)
                            + if at < 3 {
                                0.0
                            } else if at < 33 {
                                1.0
                            } else {
                                2.0
                            }
                    };
                    assert!(
                        all.iter().enumerate().all(|(at, value)| value.to_bits() == expected(at).to_bits()),
                        "{all:?}"
                    );
                }
            }
        }
    }
}
