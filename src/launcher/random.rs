//! What a launch takes from the system's random numbers: the run's id and its secret.

use ring::rand::{SecureRandom, SystemRandom};

use crate::clock;
use crate::domain::ids::RunId;
use crate::launch::error::{LaunchError, LaunchFault};

/// A new run's id.
pub(super) fn run_id() -> Result<RunId, LaunchError> {
    let mut random = [0; 16];
    fill(&mut random)?;
    let unix_ms = u64::try_from(clock::now().0 / 1000).unwrap_or_default();
    Ok(RunId::new(unix_ms, u128::from_le_bytes(random)))
}

/// A run's secret: 256 bits from the system, as 64 hexadecimal digits.
pub(super) fn secret() -> Result<String, LaunchError> {
    let mut bytes = [0; 32];
    fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")))
}

fn fill(bytes: &mut [u8]) -> Result<(), LaunchError> {
    let no_random = |_| LaunchError::new(LaunchFault::Internal, "the system gives no random numbers");
    SystemRandom::new().fill(bytes).map_err(no_random)
}
