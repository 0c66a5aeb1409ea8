//! The job `synthetic` on a GPU: one thread that is busy for as long as was asked for, and gradients whose sum is known.
//!
//! The CPU's does arithmetic, so that the sums over ranks compete with it for the core. On a GPU they hardly do: a kernel that
//! waits for the card's clock takes the time that was asked for on every card.

use std::rc::Rc;

use cudarc::driver::result;

use super::card::Card;
use super::error::GpuError;
use super::kernels::{Kernel, Slopes, Spin};
use super::memory::Memory;
use super::model::TOTALS;
use crate::collective::nccl::{DeviceBuffer, clear, cuda};
use crate::worker::model::sink::ranges;
use crate::worker::task::Busy;

/// Its gradients, and how long it computes.
pub(super) struct BusyModel {
    card: Rc<Card>,
    busy: Busy,
    layers: Vec<std::ops::Range<usize>>,
    gradient: DeviceBuffer,
    own: Memory,
    samples: usize,
}

impl BusyModel {
    /// `gradient` has the layers one after the other, and [`TOTALS`] values behind them.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn new(
        card: Rc<Card>,
        busy: Busy,
        layers: &[usize],
        gradient: DeviceBuffer,
    ) -> Result<Self, GpuError> {
        let own = Memory::new(card.context(), 4 * TOTALS).map_err(cuda("allocate memory"))?;
        // SAFETY: the buffer's own bytes, which nothing uses yet.
        unsafe { clear(own.start(), 4 * TOTALS) }?;
        Ok(Self { card, busy, layers: ranges(layers), gradient, own, samples: 0 })
    }

    pub(super) fn load(&mut self, samples: usize) {
        self.samples = samples;
    }

    pub(super) fn totals(&self) -> u64 {
        self.gradient.pointer() + 4 * self.layers.last().map_or(0, |last| last.end as u64)
    }

    pub(super) fn own(&self) -> u64 {
        self.own.start()
    }

    pub(super) fn abandon(&mut self) {
        self.own.abandon();
    }

    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    fn go<K: Kernel>(&self, kernel: &K) -> Result<(), GpuError> {
        // SAFETY: the addresses are of the gradients, which this keeps; all work on them is on the card's stream or joined
        // to it.
        unsafe { self.card.launch(kernel) }
    }

    fn spin(&self, nanoseconds: u64) -> Result<(), GpuError> {
        // A rank without samples has nothing to do.
        let threads = u32::from(nanoseconds > 0 && self.samples > 0);
        self.go(&Spin { nanoseconds, threads })
    }

    /// No loss, and the number of samples.
    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    pub(super) fn forward(&self) -> Result<(), GpuError> {
        self.card.context().bind_to_thread().map_err(cuda("use the GPU"))?;
        // SAFETY: the first of the values behind the gradients.
        unsafe { result::memset_d8_async(self.totals(), 0, 4, self.card.stream.cu_stream()) }
            .map_err(cuda("clear memory"))?;
        let samples = self.samples as f32;
        self.go(&Slopes { values: self.totals() + 4, threads: 1, period: 1, samples })?;
        self.spin(self.busy.compute.as_nanos() as u64 / 3)
    }

    pub(super) fn backward(
        &self,
        ready: &mut dyn FnMut(usize) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let whole = self.busy.compute.as_nanos() as u64;
        let each = (whole - whole / 3) / self.layers.len().max(1) as u64;
        for (layer, values) in self.layers.iter().enumerate().rev() {
            self.spin(each)?;
            self.go(&Slopes {
                values: self.gradient.pointer() + 4 * values.start as u64,
                threads: values.len() as u32,
                period: self.busy.period as u32,
                samples: self.samples as f32,
            })?;
            ready(layer)?;
        }
        Ok(())
    }
}
