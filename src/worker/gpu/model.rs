//! What a replica asks of the model that it trains.

use super::busy::BusyModel;
use super::error::GpuError;
use super::net::Net;
use crate::worker::model::cnn::Pattern;

/// Values that lie behind the gradients: the sum of the losses, and the number of samples.
pub(super) const TOTALS: usize = 2;

/// What is trained. Everything is begun on the card's stream, and nothing is waited for.
pub(super) enum Model {
    Net(Box<Net>),
    Busy(BusyModel),
}

impl Model {
    /// Samples that there is memory for.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Net(net) => net.batch(),
            Self::Busy(_) => usize::MAX,
        }
    }

    /// Begins the copy of a batch to the GPU; a model without images looks at the number of labels alone.
    ///
    /// # Safety
    /// Both live and aren't written until the stream has come past the copies.
    #[expect(unsafe_code, reason = "copies that go on after the call")]
    pub(super) unsafe fn load(&mut self, images: &[f32], labels: &[u8]) -> Result<(), GpuError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Net(net) => unsafe { net.load(images, labels) },
            Self::Busy(busy) => {
                busy.load(labels.len());
                Ok(())
            }
        }
    }

    /// Begins the forward pass of the loaded batch: loss and counts lie in [`Model::own`] and [`Model::totals`] then.
    /// Without a `pattern` nothing is dropped.
    pub(super) fn forward(&mut self, pattern: Option<Pattern>) -> Result<(), GpuError> {
        match self {
            Self::Net(net) => net.forward(pattern),
            Self::Busy(busy) => busy.forward(),
        }
    }

    /// Begins the backward pass of the last forward pass, the last layer first. `ready` is called with each layer when
    /// its gradient's work is on the stream.
    pub(super) fn backward(
        &mut self,
        ready: &mut dyn FnMut(usize) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        match self {
            Self::Net(net) => net.backward(ready),
            Self::Busy(busy) => busy.backward(ready),
        }
    }

    /// Where the sums of loss and samples lie.
    pub(super) fn totals(&self) -> u64 {
        match self {
            Self::Net(net) => net.totals(),
            Self::Busy(busy) => busy.totals(),
        }
    }

    /// Where this rank's loss lies, and how many it has right.
    pub(super) fn own(&self) -> u64 {
        match self {
            Self::Net(net) => net.own(),
            Self::Busy(busy) => busy.own(),
        }
    }

    /// Something failed: none of its memory is waited for, or freed.
    pub(super) fn abandon(&mut self) {
        match self {
            Self::Net(net) => net.abandon(),
            Self::Busy(busy) => busy.abandon(),
        }
    }
}
