//! hvtui's own workers: they report when they have met and when a step is done.

use super::Kind;
use crate::domain::run::RunStage;
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind native`.
pub(super) struct Native;

impl Kind for Native {
    fn complete(&self, _: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn stages(&self, world: u32) -> &'static [RunStage] {
        if world > 1 {
            &[RunStage::Start, RunStage::Rendezvous, RunStage::FirstStep, RunStage::Training]
        } else {
            super::STARTED
        }
    }
}
