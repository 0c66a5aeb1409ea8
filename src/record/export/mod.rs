//! Recordings in other programs' shapes.
//!
//! `selection` decides what is exported, `pass` reads the recording and gives it with its time on one clock (`align`),
//! `out` counts what is written. A format is a file with a [`Format`] and a line in [`FORMATS`]. `kernels` puts kernel
//! traces together, which come from no recording.

mod align;
mod chrome;
pub mod kernels;
mod out;
mod pass;
mod selection;

use std::io::Write;

pub use pass::Exported;
pub use selection::{BadSteps, Selection, StepRange};

use super::error::Error;
use super::reader::Reader;

/// All formats, in the order of the help.
pub const FORMATS: [&Format; 1] = [&chrome::FORMAT];

/// A format that a recording can be exported to.
pub struct Format {
    /// Lowercase name, as on the command line.
    pub name: &'static str,
    /// What it is for, as in the help.
    pub about: &'static str,
    /// What it is written to.
    pub target: Target,
    sink: fn() -> Box<dyn pass::Sink>,
}

/// What a format is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A file of text.
    Text,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Format").field(&self.name).finish()
    }
}

impl Format {
    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Writes what `selection` takes of a recording.
    ///
    /// # Errors
    /// [`Error::Write`] when `to` can't be written.
    pub fn export(
        &self,
        reader: &Reader,
        to: &mut dyn Write,
        selection: &Selection,
    ) -> Result<Exported, Error> {
        pass::export(reader, to, &mut *(self.sink)(), selection)
    }
}
