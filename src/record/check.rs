//! Checks the files of a recording: which are whole, and what is missing where they are not.

use std::path::{Path, PathBuf};

use mcap::MAGIC;
use mcap::records::op;

use super::chunk;
use super::closing::newest_kept;
use super::error::Error;
use super::far_steps::{self, Gather};
use super::format::ChunkNote;
use super::loss::{self, Loss};
use super::reader::OUT_OF_ORDER;
use super::repair::Plan;
use super::scan::{self, Bytes};
use super::segments;
use super::summary::Summary;
use super::survey::{Fault, Survey};
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;

/// A checked recording.
#[derive(Debug)]
pub struct Check {
    /// The run, as far as the recording tells.
    pub spec: Option<RunSpec>,
    /// Its files in order.
    pub files: Vec<FileCheck>,
    /// What is missing between its good chunks.
    pub losses: Vec<Loss>,
    /// Steps that lie far outside of the run: of all chunks.
    pub far_steps: far_steps::Found,
}

/// One checked file.
#[derive(Debug)]
pub struct FileCheck {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// How it is.
    pub state: FileState,
    /// Good chunks.
    pub chunks: u64,
    /// Events in them.
    pub events: u64,
    /// Chunks that are as they were written and that this version can't read: where, and why.
    pub unreadable: Vec<(u64, String)>,
    /// What a repaired copy would hold.
    pub(super) plan: Plan,
}

/// How a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// Closed, and every check holds.
    Whole,
    /// A client writes it now.
    Written,
    /// Every chunk is good, and the end that other programs look for is missing: its client was killed.
    NotClosed,
    /// Every chunk is good; the index at the end or between the chunks is not.
    BadIndex,
    /// Cut before the first event: nothing was recorded in it.
    Empty,
    /// It ends in the middle of a record.
    Cut {
        /// Where the last whole record ends, bytes from the start of the file.
        at_byte: u64,
        /// The last moment that could be read.
        until: Option<Stamp>,
    },
    /// Parts of it are not what was written.
    Damaged {
        /// How many places.
        places: u64,
        /// Where the first ones are, and what is wrong there.
        first: Vec<(u64, String)>,
        /// Whether it is cut at its end as well.
        cut: bool,
    },
    /// A later version wrote it.
    Later {
        /// Its format.
        found: u32,
    },
    /// It is something else.
    NotARecording,
    /// It can't be read.
    Unreadable(String),
}

impl FileState {
    /// Whether [`super::closing::repair`] has something to do.
    pub fn is_repairable(&self) -> bool {
        matches!(
            self,
            Self::NotClosed | Self::BadIndex | Self::Empty | Self::Cut { .. } | Self::Damaged { .. }
        )
    }

    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Whole | Self::Written)
    }
}

/// A good chunk.
#[derive(Debug)]
pub(super) struct Good {
    pub(super) file: usize,
    pub(super) at: u64,
    pub(super) length: usize,
    pub(super) note: ChunkNote,
}

/// What is gathered on the way through the files.
#[derive(Default)]
struct Gathered {
    spec: Option<RunSpec>,
    good: Vec<Good>,
    /// Bad places: file and byte.
    bad: Vec<(usize, u64)>,
    open: Vec<Option<Bytes>>,
    /// The steps, where those that lie far outside of the run are looked for.
    steps: Option<Gather>,
}

/// What is said of a recording in which there is nothing, and what helps.
pub fn nothing(first: &Path) -> String {
    if let Some(kept) = newest_kept(first) {
        return format!(
            "empty; nothing of it could be saved by a repair: the damaged file is kept as {}",
            kept.display()
        );
    }
    format!(
        "empty; no event could be written (a full disk), or its client was killed before the first one: `hvtui runs prune` deletes it \
         by its age, or delete {}",
        first.display()
    )
}

impl Check {
    /// Whether nothing is recorded in it: the disk was full, or its client was killed before the first events were written.
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(FileCheck::is_empty)
    }
}

impl FileCheck {
    /// Whether there is no chunk in it, good or bad. One that is cut may hold the beginning of one.
    pub fn is_empty(&self) -> bool {
        let may_be = matches!(
            self.state,
            FileState::Whole
                | FileState::NotClosed
                | FileState::BadIndex
                | FileState::Empty
                | FileState::Cut { .. }
        );
        may_be && self.chunks == 0
    }
}

/// Checks the recording that begins with `first`. While it is written, its last file is left alone.
pub fn check(first: &Path, is_written: bool) -> Check {
    let mut gathered = Gathered { steps: Some(Gather::default()), ..Gathered::default() };
    let mut files = Vec::new();
    let paths = segments::of(first);
    for (number, path) in paths.iter().enumerate() {
        let mut file = gathered.file(path, true);
        if is_written && number + 1 == paths.len() && !matches!(file.state, FileState::Unreadable(_)) {
            file.state = FileState::Written;
        }
        files.push(file);
    }
    let losses = loss::between(&gathered.good, &gathered.bad, &gathered.open);
    let first = gathered.good.first().map(|chunk| chunk.note.start);
    let far_steps = match (gathered.steps, &gathered.spec) {
        (Some(steps), Some(spec)) => steps.judge(spec, first.unwrap_or(spec.created)),
        _ => far_steps::Found::default(),
    };
    Check { spec: gathered.spec, files, losses, far_steps }
}

/// Checks one file by itself. `decode`: also whether this version can read what its chunks hold.
pub(super) fn file(path: &Path, decode: bool) -> FileCheck {
    Gathered::default().file(path, decode)
}

impl Gathered {
    fn file(&mut self, path: &Path, decode: bool) -> FileCheck {
        let mut file = FileCheck {
            path: path.to_owned(),
            bytes: std::fs::metadata(path).map_or(0, |about| about.len()),
            state: FileState::Whole,
            chunks: 0,
            events: 0,
            unreadable: Vec::new(),
            plan: Plan::default(),
        };
        self.open.push(None);
        let opened = Bytes::open(path).and_then(|mut bytes| {
            file.bytes = bytes.length();
            file.state = self.state(&mut file, &mut bytes, decode)?;
            Ok(bytes)
        });
        match opened {
            Ok(bytes) => {
                if let Some(last) = self.open.last_mut() {
                    *last = Some(bytes);
                }
            }
            Err(Error::NotARecording(_) | Error::OtherMcap(_)) => file.state = FileState::NotARecording,
            Err(Error::Newer { found, .. }) => file.state = FileState::Later { found },
            Err(Error::File { source, .. }) => file.state = FileState::Unreadable(source.to_string()),
            Err(error) => file.state = FileState::Unreadable(error.to_string()),
        }
        file
    }

    fn state(&mut self, file: &mut FileCheck, bytes: &mut Bytes, decode: bool) -> Result<FileState, Error> {
        let path = file.path.clone();
        let says = || Error::file(&path);
        let is_named_so = path.extension().is_some_and(|end| end == "mcap");
        if is_named_so && is_begun(bytes).map_err(says())? {
            return Ok(FileState::Empty);
        }
        let data = scan::check_head(bytes, &path)?;
        file.plan.head = scan::head_length(bytes, data).map_err(says())?;
        file.plan.metadata = scan::metadata(bytes, data).map_err(says())?;
        let number = self.open.len().saturating_sub(1);
        let survey = Survey::new(bytes, data, |at, record| self.take(file, (number, at), record, decode));
        let survey = survey.map_err(says())?;
        // the summary, where it is whole, tells whether a chunk is missing
        let summary = Summary::read(bytes).map_err(says())?;
        let is_all_there = summary.as_ref().is_some_and(|summary| summary.chunks == Some(file.chunks));
        if !is_all_there {
            self.bad.extend(survey.faults.iter().map(|fault| (number, fault.at)));
        }
        let until = || self.good.iter().rev().find(|chunk| chunk.file == number).map(|chunk| chunk.note.end);
        Ok(match (survey.bad, survey.cut, survey.closed) {
            (1.., _, _) if is_all_there => FileState::BadIndex,
            (places @ 1.., cut, _) => {
                let first = survey.faults.into_iter().map(|Fault { at, reason }| (at, reason)).collect();
                FileState::Damaged { places, first, cut: cut.is_some() }
            }
            (0, Some(at_byte), _) => FileState::Cut { at_byte, until: until() },
            (0, None, false) => FileState::NotClosed,
            (0, None, true) if summary.is_some_and(|summary| summary.is_data_whole) => FileState::Whole,
            (0, None, true) => FileState::BadIndex,
        })
    }

    fn take(
        &mut self,
        of: &mut FileCheck,
        (file, at): (usize, u64),
        record: &[u8],
        decode: bool,
    ) -> Result<(), String> {
        let (note, spec) = chunk::head(record)?;
        if self.good.last().is_some_and(|last| note.first_seq <= last.note.last_seq) {
            return Err(OUT_OF_ORDER.to_owned());
        }
        if self.spec.is_none() {
            self.spec = spec;
        }
        if let (Some(steps), Some(spec)) = (&mut self.steps, &self.spec) {
            steps.of_run(spec);
        }
        if decode {
            match (chunk::decode(record, |_| true), &mut self.steps) {
                (Ok(decoded), Some(steps)) => steps.take_all(&decoded.envelopes),
                (Ok(_), None) => {}
                (Err(reason), _) => of.unreadable.push((at, reason)),
            }
        }
        of.chunks += 1;
        of.events += note.envelopes;
        of.plan.chunks.push((at, record.len()));
        self.good.push(Good { file, at, length: record.len(), note });
        Ok(())
    }
}

/// Whether the file is no more than the beginning of one, cut within its first bytes.
fn is_begun(bytes: &mut Bytes) -> std::io::Result<bool> {
    let start = bytes.peek(0, MAGIC.len() + chunk::RECORD_HEAD)?;
    let (magic, header) = start.split_at(start.len().min(MAGIC.len()));
    if !MAGIC.starts_with(magic) {
        return Ok(false);
    }
    let Some((opcode, length)) = header.split_first() else { return Ok(true) };
    let Some((length, _)) = length.split_first_chunk::<8>() else { return Ok(*opcode == op::HEADER) };
    let end = u64::from_le_bytes(*length).saturating_add(start.len() as u64);
    // a header is two short texts
    Ok(*opcode == op::HEADER && u64::from_le_bytes(*length) < 1024 && end > bytes.length())
}
