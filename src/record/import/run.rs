//! The run that an import makes: what was asked for, and what stands for what a trace does not tell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::error::Error;
use super::target::Place;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::options::RunOptions;
use crate::domain::run::{JobKind, Placement, RunSpec, Slot};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;

/// From 2000 to 2100, microseconds since the Unix epoch: what lies outside is the moment of no run.
const MOMENTS: std::ops::Range<i64> = 946_684_800_000_000..4_102_444_800_000_000;

/// Whether a run can have been then.
pub(super) fn is_moment(at: Stamp) -> bool {
    MOMENTS.contains(&at.0)
}

/// What is imported, and where to.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Files, or folders of files.
    pub files: &'a [PathBuf],
    /// The run's name; that of the first file when absent.
    pub name: Option<&'a str>,
    /// Of a trace that no known program wrote: the name of the slices that are its steps; found by itself when absent.
    pub step: Option<&'a str>,
    /// Where its recording is put.
    pub place: Place<'a>,
    /// The moment of the import: stands for that of the run where the trace does not tell it.
    pub now: Stamp,
    /// Makes the run's id its own.
    pub random: u128,
}

impl Asked<'_> {
    /// The run of a trace; `about` says what that is and whose clock it has.
    pub(super) fn spec(
        &self,
        kind: JobKind,
        about: &str,
        placements: Vec<Placement>,
        created: Stamp,
    ) -> RunSpec {
        let millis = u64::try_from(created.0 / 1_000).unwrap_or_default();
        let files: Vec<String> = self.files.iter().map(|path| path.display().to_string()).collect();
        let source = match &files[..] {
            [one] => one.clone(),
            [first, more @ ..] => format!("{first} and {} more", more.len()),
            [] => String::new(),
        };
        let options =
            RunOptions { imported: Some(format!("{about}, from {source}")), ..RunOptions::default() };
        RunSpec {
            id: RunId::new(millis, self.random),
            name: self.name.map_or_else(|| self.default_name(), str::to_owned),
            kind,
            command: ["hvtui".to_owned(), "import".to_owned()].into_iter().chain(files).collect(),
            env: BTreeMap::new(),
            workdir: None,
            placements,
            created,
            options,
            code: None,
        }
    }

    /// The first file's name without its endings.
    fn default_name(&self) -> String {
        let name = self.first().file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let mut stem = &name[..];
        for end in [".gz", ".zst", ".json", ".pt.trace", ".trace"] {
            stem = stem.strip_suffix(end).unwrap_or(stem);
        }
        let stem = if stem.is_empty() { "imported" } else { stem };
        sanitize(stem).into_owned()
    }

    fn first(&self) -> &Path {
        self.files.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Nothing of a run is in the files.
    pub(super) fn nothing(&self, what: &str) -> Error {
        Error::foreign(self.first(), what)
    }
}

/// Places of ranks of which it is not told where they ran.
pub(super) fn unknown_places(ranks: u32, host: &HostId) -> Vec<Placement> {
    let place = |rank: u32| Placement {
        rank: Rank(rank),
        host: host.clone(),
        local_rank: rank,
        slot: Slot::Cpu { index: rank },
        more: Vec::new(),
    };
    (0..ranks).map(place).collect()
}
