//! `hvtui bench`: measures hvtui's own parts.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::args::BenchCommand;
use crate::cli::errors::{Code, Failure};
use crate::worker::{WorkerError, bench};

/// Exit code of a measurement that failed, as of a rank's.
const FAILED: u8 = 1;

/// Measures.
pub fn run(command: &BenchCommand) -> Result<ExitCode, Failure> {
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut out = std::io::stdout();
    let measured = match command {
        BenchCommand::Allreduce(args) => bench::run(&args.options(), &own, &mut out),
        BenchCommand::Link(args) => bench::links(&args.options(), &own, &mut out),
    };
    match measured {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ WorkerError::Option { .. }) => Err(Failure::new(Code::Usage, error.to_string())),
        Err(error) => {
            crate::cli::errors::note(&error.to_string());
            Ok(ExitCode::from(FAILED))
        }
    }
}
