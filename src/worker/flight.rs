//! What a rank leaves behind when its group fails: the table of its last operations, beside its report file.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::WorkerError;
use crate::collective::{CollectiveError, Communicator};

/// Writes the flight record after `error` and says where it is. Without a report file there is no place for it. That
/// it can't be written is only said: the failure that it tells of counts for more.
pub(super) fn keep(
    ranks: &mut dyn Communicator,
    error: &CollectiveError,
    report: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), WorkerError> {
    let Some(path) = report.map(beside) else { return Ok(()) };
    let (rank, world) = (ranks.rank(), ranks.world());
    let text = format!("rank {rank} of {world}: {error}\n\n{}", ranks.flight().table());
    let told = match std::fs::write(&path, text) {
        Ok(()) => format!("the last operations of this rank are in {}", path.display()),
        Err(error) => {
            format!("the last operations of this rank can't be written to {}: {error}", path.display())
        }
    };
    writeln!(out, "{told}").and_then(|()| out.flush()).map_err(WorkerError::Output)
}

fn beside(report: &Path) -> PathBuf {
    let mut name = report.as_os_str().to_owned();
    name.push(".flight");
    name.into()
}
