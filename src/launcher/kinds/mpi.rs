//! Ranks that an MPI launcher on the hosts starts.

use super::{Kind, STARTED};
use crate::domain::run::RunStage;
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// `--kind mpi`.
pub(super) struct Mpi;

impl Kind for Mpi {
    fn complete(&self, _: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        Err(LaunchError::usage("kind mpi can not be started yet"))
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }
}
