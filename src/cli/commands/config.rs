//! `hvtui config template`.

use std::process::ExitCode;

use crate::cli::errors::{Failure, to_stdout};

/// Prints a commented hosts file that works as it stands.
pub fn template() -> Result<ExitCode, Failure> {
    to_stdout(crate::config::template())?;
    Ok(ExitCode::SUCCESS)
}
