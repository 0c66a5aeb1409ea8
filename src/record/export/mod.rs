//! Recordings in other programs' shapes.
//!
//! `selection` decides what is exported. `survey` finds what must be known before anything is written. `pass` reads the recording and gives it with its time on one clock (`align`)
//! and the ranks' steps put together (`allreduce`). `out` counts what is written. A format is a file with a [`Format`]
//! and a line in [`FORMATS`]. What has rows is a `table`, which several formats write. `kernels` puts kernel traces together, which come from no recording.

mod align;
mod allreduce;
mod asciicast;
mod chrome;
mod csv;
mod horovod;
mod json_values;
mod jsonl;
pub mod kernels;
mod mcap_rows;
mod out;
mod parquet_file;
mod parting;
mod pass;
mod prometheus;
mod selection;
mod survey;
mod table;
mod table_gpus;
mod table_steps;
mod tensorboard;
mod told;

use std::io::Write;

pub use align::Clocks;
pub(super) use align::Gather as GatherClocks;
pub use pass::Exported;
pub use selection::{BadSteps, Selection, StepRange};
pub(super) use survey::during;

use super::error::Error;
use super::reader::Reader;

/// All formats, in the order of the help.
pub const FORMATS: [&Format; 11] = [
    &chrome::FORMAT,
    &horovod::FORMAT,
    &csv::STEPS,
    &csv::GPUS,
    &jsonl::FORMAT,
    &parquet_file::STEPS,
    &parquet_file::GPUS,
    &tensorboard::FORMAT,
    &prometheus::FORMAT,
    &mcap_rows::FORMAT,
    &asciicast::FORMAT,
];

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
    /// A file of bytes.
    File,
    /// A file of bytes in a folder, which its reader is given. Readers know the file by how its name begins.
    Folder {
        /// How it begins.
        prefix: &'static str,
    },
}

impl Target {
    /// The name of the file in its folder, by when the recording begins and the run: the same for the same run.
    pub fn file_name(self, reader: &Reader) -> Option<String> {
        let Self::Folder { prefix } = self else { return None };
        let (start, _) = reader.range().unwrap_or_default();
        let run = reader.spec().map_or("unknown", |spec| spec.id.short());
        Some(format!("{prefix}.{:010}.hvtui-{run}", start.0.div_euclid(1_000_000)))
    }
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

    /// Writes what `selection` takes of a recording. It is read twice: of all chunks the clocks and the steps, then from the first chunk to
    /// the last one that may hold something of it. Of those before the selected time the steps are read, for what comes before says by whom
    /// they were told and who was late; everything else of the chunks alone that lie in it. `told` is given the share that is read, percent
    /// by percent, from 0 to 1.
    ///
    /// # Errors
    /// [`Error::Write`] when `to` can't be written.
    pub fn export(
        &self,
        reader: &Reader,
        to: &mut dyn Write,
        selection: &Selection,
        told: &mut dyn FnMut(f64),
    ) -> Result<Exported, Error> {
        pass::export(reader, to, &mut *(self.sink)(), selection, told)
    }
}
