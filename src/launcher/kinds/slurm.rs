//! Ranks that Slurm starts.

use super::{Kind, STARTED};
use crate::domain::run::RunStage;
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind slurm`.
pub(super) struct Slurm;

impl Kind for Slurm {
    fn complete(&self, _: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        Err(LaunchError::usage("kind slurm can not be started yet"))
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }
}
