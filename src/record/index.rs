//! Where the chunks of a recording lie, kept beside it: opening it again need not unpack each chunk to look for its note.
//!
//! It is believed only while each file of the recording is what it was, byte for byte, by its length and its CRC-32. So whatever
//! has happened to a file since is found as it is found without an index.

use std::io::Read;

use serde::{Deserialize, Serialize};

use super::cache::{About, Cache};
use super::reader::Entry;
use super::scan::Bytes;
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;

/// The largest index, unpacked.
const LONGEST: u64 = 256 << 20;
const LEVEL: i32 = 1;

/// What a file of a recording is told by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSum {
    length: u64,
    crc: u32,
}

impl FileSum {
    /// Of a file as it is; `None` where it can't be read.
    pub(super) fn of(file: &Bytes) -> Option<Self> {
        Some(Self { length: file.length(), crc: file.crc().ok()? })
    }

    /// How many bytes it had.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

/// What a walk through all files has found. Nothing in them was damaged.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Index {
    pub(super) chunks: Vec<Entry>,
    pub(super) spec: Option<RunSpec>,
    pub(super) unattended: Vec<(Stamp, Stamp)>,
}

impl Index {
    /// That of these files, where there is one, and what they are told by.
    pub(super) fn of(cache: &mut Cache, files: &[&Bytes]) -> Option<(Self, Vec<FileSum>)> {
        let fits = |record: &&super::cache::Record| match &record.about {
            About::Index(sums) => {
                sums.len() == files.len()
                    && sums.iter().zip(files).all(|(sum, file)| sum.length == file.length())
            }
            About::State(_) | About::Steps(_) | About::Report(_) | About::Phases { .. } => false,
        };
        let record = cache.records().iter().rfind(fits)?.clone();
        let About::Index(sums) = &record.about else { return None };
        let is_same = |(sum, file): (&FileSum, &&Bytes)| file.crc().is_ok_and(|crc| crc == sum.crc);
        if !sums.iter().zip(files).all(is_same) {
            return None;
        }
        let mut unpacked = Vec::new();
        zstd::Decoder::new(&*cache.data(&record)?).ok()?.take(LONGEST).read_to_end(&mut unpacked).ok()?;
        let index: Self = rmp_serde::from_slice(&unpacked).ok()?;
        let lies_in =
            |entry: &Entry| files.get(entry.file()).is_some_and(|file| entry.end() <= file.length());
        index.chunks.iter().all(lies_in).then(|| (index, sums.clone()))
    }

    /// Keeps it, for files that are told by these.
    pub(super) fn keep(&self, cache: &mut Cache, sums: Vec<FileSum>) {
        let data = rmp_serde::to_vec_named(self).ok().and_then(|data| zstd::encode_all(&*data, LEVEL).ok());
        if let Some(data) = data {
            cache.add(About::Index(sums), &data);
        }
    }
}
