//! `hvtui train`: this process is one rank of hvtui's own training jobs.

use std::process::ExitCode;

use crate::cli::args::TrainArgs;
use crate::cli::errors::{Code, Failure};
use crate::worker::{self, WorkerError};

/// Exit code of a rank that failed at its work, as of most programs.
const FAILED: u8 = 1;

/// Trains.
pub fn run(args: &TrainArgs) -> Result<ExitCode, Failure> {
    match worker::run(&args.options(), &mut std::io::stdout()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ (WorkerError::UnknownJob { .. } | WorkerError::Option { .. })) => {
            Err(Failure::new(Code::Usage, error.to_string()))
        }
        Err(error) => {
            crate::cli::errors::note(&error.to_string());
            Ok(ExitCode::from(FAILED))
        }
    }
}
