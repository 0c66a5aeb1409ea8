//! The report file: one line a report, each by one append, so that a reader never sees half of one in the middle.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::WorkerError;
use crate::domain::report::Report;

/// Writes reports, or nothing where none are wanted.
pub(super) struct Reporter {
    file: Option<(PathBuf, File)>,
}

impl Reporter {
    /// Appends to `path`; without one, reports go nowhere.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, WorkerError> {
        let file = path
            .map(|path| {
                let opened = OpenOptions::new().append(true).create(true).open(path);
                opened.map(|file| (path.to_owned(), file)).map_err(|source| failed(path, source))
            })
            .transpose()?;
        Ok(Self { file })
    }

    /// Appends one report.
    pub(super) fn report(&mut self, report: &Report) -> Result<(), WorkerError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut line = serde_json::to_vec(report).map_err(|error| failed(path, error.into()))?;
        line.push(b'\n');
        file.write_all(&line).map_err(|source| failed(path, source))
    }
}

fn failed(path: &Path, source: std::io::Error) -> WorkerError {
    WorkerError::Report { path: path.display().to_string(), source }
}
