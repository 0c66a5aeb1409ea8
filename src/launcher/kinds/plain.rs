//! Any command: its environment tells its rank, and hvtui knows nothing else of it.

use super::{Kind, STARTED};
use crate::domain::run::RunStage;
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind plain`.
pub(super) struct Plain;

impl Kind for Plain {
    fn complete(&self, _: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }
}
