//! Steps under way: the host's memory that each copies from and to, and the events between its phases.

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, DriverError};

use super::card::Card;

use super::memory::Pinned;

/// Where a step stands on the GPU: at the end of each phase.
pub(super) const PHASES: usize = 5;

/// What one step needs of the host until the GPU is done with it.
pub(super) struct Slot {
    pub(super) images: Pinned<f32>,
    pub(super) labels: Pinned<u8>,
    /// This rank's loss, how many it has right; loss and samples of all ranks.
    pub(super) numbers: Pinned<f32>,
    pub(super) ends: [CudaEvent; PHASES],
}

impl Slot {
    /// For `batch` images of `pixels`.
    pub(super) fn new(card: &Card, batch: usize, pixels: usize) -> Result<Self, DriverError> {
        let context = card.context();
        Ok(Self {
            images: Pinned::new(context, batch * pixels)?,
            labels: Pinned::new(context, batch)?,
            numbers: Pinned::new(context, 4)?,
            ends: [event(card)?, event(card)?, event(card)?, event(card)?, event(card)?],
        })
    }

    /// The GPU has done all of the step.
    pub(super) fn done(&self) -> &CudaEvent {
        &self.ends[PHASES - 1]
    }
}

/// An event with a time; who waits for it sleeps.
pub(super) fn event(card: &Card) -> Result<CudaEvent, DriverError> {
    card.context().new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))
}
