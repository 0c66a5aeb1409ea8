//! What one rank tells of one step, until all ranks have told it.

use serde::{Deserialize, Serialize};

use super::what_if::BEFORE;
use crate::domain::clock_check::Passage;
use crate::domain::last_in::HostClock;
use crate::domain::timing::Phase;
use crate::domain::trainer_keys::TrainerId;

/// What one rank tells of one step.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
pub(super) struct Part {
    pub(super) id: TrainerId,
    pub(super) dur_us: u32,
    pub(super) phases: [u32; Phase::COUNT],
    pub(super) hidden_us: u32,
    pub(super) samples: u32,
    pub(super) loss: Option<f32>,
    /// The first of the rank's process: it warms up.
    pub(super) warm: bool,
    /// Since its last step, where hooks tell its steps: what no step tells. Part of [`Phase::Other`].
    pub(super) gap_us: u32,
    /// It tells how long it waited.
    pub(super) waits: bool,
    /// Hooks tell it: its wait may be transfer, too.
    pub(super) hooks: bool,
    pub(super) told: bool,
    /// Whether it counts: what is told outside of the span that is looked at is only known.
    pub(super) counts: bool,
    pub(super) clock: HostClock,
    /// How it went through the allreduce by the client's clock, where the job itself tells that.
    pub(super) passage: Option<Passage>,
    /// What the rank did from the allreduce before to this one, as [`BEFORE`].
    pub(super) before: [u32; BEFORE.len()],
}

impl Part {
    /// The time in which its phases lie.
    pub(super) fn phased_us(&self) -> u64 {
        u64::from(self.dur_us) + u64::from(self.gap_us)
    }

    pub(super) fn wait_us(&self) -> u32 {
        self.phases[Phase::Wait.index()]
    }

    /// While a signal had stopped it, it waited for none.
    pub(super) fn was_stopped(&mut self) {
        self.phases[Phase::Other.index()] += std::mem::take(&mut self.phases[Phase::Wait.index()]);
    }

    /// Of the wait that hooks tell, so much was moving bytes.
    pub(super) fn moved(&mut self, least: u32) {
        if self.hooks {
            let moved = least.min(self.wait_us());
            self.phases[Phase::Wait.index()] -= moved;
            self.phases[Phase::Transfer.index()] += moved;
        }
    }
}
