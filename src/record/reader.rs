//! Opens a recording, whole or not, and gives its envelopes back in order.
//!
//! Opening walks the file once and checks every chunk, so what is wrong is known before anything is
//! shown; afterwards each chunk can be read by itself.
//!
//! Time in a recording is the running maximum of the envelopes' times in the order of their sequence
//! numbers. Where the client's clock was set back, that keeps «before» and «after» the same by time
//! and by number, which a playhead needs.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::chunk;
use super::envelopes::Envelopes;
use super::error::Error;
use super::format::{Channel, ChunkNote};
use super::heads::{Head, Heads};
use super::index::{FileSum, Index};
use super::integrity::Integrity;
use super::packed::Packed;
use super::scan::{self, Bytes, Found, RecordScanner};
use super::segments;
use super::survey::Survey;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::Rank;
use crate::domain::outcome::{RunOutcome, before_end};
use crate::domain::run::{RunSpec, RunStage};
use crate::domain::time::Stamp;
use crate::domain::trained::Trained;
use crate::domain::world::LoggedLine;

/// Why a chunk is bad that is not later than the one before it.
pub(super) const OUT_OF_ORDER: &str = "its events are not later than those before it";

/// A recording that is open for reading.
#[derive(Debug)]
pub struct Reader {
    files: Vec<Part>,
    chunks: Vec<Entry>,
    spec: Option<RunSpec>,
    integrity: Integrity,
    /// Spans in which no client recorded it.
    unattended: Vec<(Stamp, Stamp)>,
    /// Spans whose chunks can't be read.
    lost: Vec<(Stamp, Stamp)>,
    /// What its files were told by, where it was opened by an index that an earlier walk has left.
    indexed_by: Option<Vec<FileSum>>,
}

/// One file of the recording.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: Bytes,
    /// Where its data begin.
    data: u64,
}

impl Part {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let mut bytes = Bytes::open(&path)?;
        let data = scan::check_head(&mut bytes, &path)?;
        Ok(Self { path, bytes, data })
    }

    /// One that follows another. A client that was killed as it attached has left the beginning of a file.
    fn begun(path: PathBuf) -> Result<Option<Self>, Error> {
        match Self::open(path) {
            Err(Error::NotARecording(_) | Error::OtherMcap(_)) => Ok(None),
            part => part.map(Some),
        }
    }
}

/// Where a chunk lies and what it spans.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    file: usize,
    at: u64,
    length: usize,
    note: ChunkNote,
    /// How many envelopes lie before it.
    before: u64,
    /// Recording time: never before the chunk that precedes it.
    start: Stamp,
    end: Stamp,
}

impl Entry {
    /// In which of the files it lies.
    pub(super) fn file(&self) -> usize {
        self.file
    }

    /// Where it ends there.
    pub(super) fn end(&self) -> u64 {
        self.at.saturating_add(self.length as u64)
    }
}

/// An envelope with its time in the recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// The running maximum of the envelopes' times.
    pub time: Stamp,
    /// The envelope as it was recorded.
    pub envelope: Envelope,
}

impl Reader {
    /// Opens and checks a recording. Works on a file that is still being written: it is then read up to
    /// its last finished chunk.
    ///
    /// # Errors
    /// When the file can't be read, is no recording, or is of a later format. Damage is no error:
    /// see [`Reader::integrity`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut files = vec![Part::open(path.to_owned())?];
        for path in segments::behind(path, path) {
            files.extend(Part::begun(path)?);
        }
        let mut reader = Self {
            files: Vec::new(),
            chunks: Vec::new(),
            spec: None,
            integrity: Integrity::Complete,
            unattended: Vec::new(),
            lost: Vec::new(),
            indexed_by: None,
        };
        let bytes: Vec<&Bytes> = files.iter().map(|part| &part.bytes).collect();
        if let Some((index, sums)) = Cache::of(path).and_then(|mut cache| Index::of(&mut cache, &bytes)) {
            let Index { chunks, spec, unattended } = index;
            return Ok(Self { files, chunks, spec, unattended, indexed_by: Some(sums), ..reader });
        }
        let mut surveys = Vec::new();
        for part in files {
            surveys.push(reader.take_file(part)?);
        }
        reader.judge(&surveys);
        reader.find_lost(0, &surveys);
        Ok(reader)
    }

    /// Takes in what was written to the last file since, and the files of clients that have gone on behind it.
    ///
    /// # Errors
    /// When a file can't be read.
    pub(super) fn read_on(&mut self) -> Result<(), Error> {
        let Some(mut part) = self.files.pop() else { return Ok(()) };
        // looked for before the last one is read: where another follows, nothing is added to that any more
        let behind = segments::behind(&self.files.first().unwrap_or(&part).path, &part.path);
        let file = self.files.len();
        let last = self.chunks.last().filter(|last| last.file == file);
        let from = last.map_or(part.data, Entry::end);
        let grown = part.bytes.grow().and_then(|()| {
            Survey::walk(&mut part.bytes, from, |bytes, at, length| {
                self.take_chunk(file, bytes, (at, length), None)
            })
        });
        let grown = grown.map_err(Error::file(&part.path));
        self.files.push(part);
        let mut surveys = vec![grown?];
        for part in behind.into_iter().filter_map(|path| Part::begun(path).transpose()) {
            surveys.push(self.take_file(part?)?);
            self.indexed_by = None;
        }
        if !matches!(self.integrity, Integrity::Damaged { .. }) {
            self.judge(&surveys);
        }
        self.find_lost(file, &surveys);
        Ok(())
    }

    /// Takes in all of a file that follows the others.
    fn take_file(&mut self, mut part: Part) -> Result<Survey, Error> {
        let file = self.files.len();
        let survey = Heads::read(&mut part.bytes, part.data).and_then(|mut heads| {
            Survey::walk(&mut part.bytes, part.data, |bytes, at, length| {
                self.take_chunk(file, bytes, (at, length), heads.take(at, length))
            })
        });
        let survey = survey.map_err(Error::file(&part.path))?;
        self.files.push(part);
        Ok(survey)
    }

    /// Whether it was opened by an index that an earlier walk has left.
    pub(super) fn is_indexed(&self) -> bool {
        self.indexed_by.is_some()
    }

    /// What its files are told by from what they were at another time; `None` where one can't be read.
    pub(super) fn sums(&self) -> Option<Vec<FileSum>> {
        let known = self.indexed_by.as_ref().filter(|sums| self.is_as_long_as(sums));
        known.cloned().or_else(|| self.files.iter().map(|part| FileSum::of(&part.bytes)).collect())
    }

    /// Whether its files are as long as those that are told by these.
    pub(super) fn is_as_long_as(&self, sums: &[FileSum]) -> bool {
        let lengths = self.files.iter().map(|part| part.bytes.length());
        sums.iter().map(FileSum::length).eq(lengths)
    }

    /// Keeps where the chunks lie, if nothing is written to it any more and nothing of it is lost. `sums` as [`Reader::sums`].
    pub(super) fn keep_index(&self, cache: &mut Cache, sums: impl FnOnce() -> Option<Vec<FileSum>>) {
        if self.integrity == Integrity::Complete
            && !self.is_indexed()
            && let Some(sums) = sums()
        {
            let (chunks, spec, unattended) =
                (self.chunks.clone(), self.spec.clone(), self.unattended.clone());
            Index { chunks, spec, unattended }.keep(cache, sums);
        }
    }

    /// How whole all files are together. A file that another one follows may be cut: the client that attached
    /// to the run has read again what it lost.
    fn judge(&mut self, surveys: &[Survey]) {
        let Some(last) = surveys.last() else { return };
        let chunks = surveys.iter().map(|survey| survey.bad).sum();
        let first_bad = surveys.iter().find_map(|survey| Some(survey.faults.first()?.at));
        self.integrity = match (first_bad, last.cut, last.closed) {
            (Some(at_byte), cut, _) => Integrity::Damaged { chunks, at_byte, cut: cut.is_some() },
            (None, Some(at_byte), _) => {
                Integrity::Cut { at_byte, until: self.chunks.last().map(|chunk| chunk.end) }
            }
            (None, None, true) => Integrity::Complete,
            (None, None, false) => Integrity::NotClosed,
        };
    }

    /// Finds the times that are lost in files from this one on: between the good chunks beside each fault, unless their events
    /// follow each other.
    fn find_lost(&mut self, first: usize, surveys: &[Survey]) {
        let faults = (first..)
            .zip(surveys)
            .flat_map(|(file, survey)| survey.faults.iter().map(move |fault| (file, fault.at)));
        for fault in faults {
            let next = self.chunks.partition_point(|chunk| (chunk.file, chunk.at) < fault);
            let before = next.checked_sub(1).and_then(|last| self.chunks.get(last));
            let (Some(before), Some(behind)) = (before, self.chunks.get(next)) else { continue };
            let span = (before.end, behind.start);
            let is_whole = behind.note.first_seq == before.note.last_seq.saturating_add(1);
            if !is_whole && !self.lost.contains(&span) {
                self.lost.push(span);
            }
        }
    }

    /// Takes a chunk into the index if it checks out. `head`: what stands at its beginning, where that was read already.
    fn take_chunk(
        &mut self,
        file: usize,
        bytes: &Bytes,
        (at, length): (u64, usize),
        head: Option<Head>,
    ) -> std::io::Result<Result<(), String>> {
        let is_first = self.chunks.last().is_some_and(|last| last.file != file);
        let record = if is_first || head.is_none() { bytes.read(at, length)? } else { Vec::new() };
        let head = head.unwrap_or_else(|| chunk::head(&record));
        let taken = head.and_then(|head| self.take_head(file, (at, length), head));
        if is_first && let Ok((floor, start)) = taken {
            let (from, to) = unattended(&record).unwrap_or((floor, start));
            self.unattended.extend((from < to).then_some((from, to)));
        }
        Ok(taken.map(drop))
    }

    /// Takes a chunk into the index; gives when the one before it ends and when it begins.
    fn take_head(
        &mut self,
        file: usize,
        (at, length): (u64, usize),
        (note, spec): (ChunkNote, Option<RunSpec>),
    ) -> Result<(Stamp, Stamp), String> {
        let (after, floor) = match self.chunks.last() {
            Some(last) => (Some(last.note.last_seq), last.end),
            None => (None, note.start),
        };
        if after.is_some_and(|after| note.first_seq <= after) {
            return Err(OUT_OF_ORDER.to_owned());
        }
        if self.spec.is_none() {
            self.spec = spec;
        }
        let (start, end) = (note.start.max(floor), note.end.max(floor));
        let before = self.envelopes_before(self.chunks.len());
        self.chunks.push(Entry { file, at, length, note, before, start, end });
        Ok((floor, start))
    }

    /// Whether nothing is recorded in it, and nothing was: its client was killed before the first event.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && !matches!(self.integrity, Integrity::Damaged { .. })
    }

    /// How whole the file is.
    pub fn integrity(&self) -> &Integrity {
        &self.integrity
    }

    /// The run that was recorded; `None` when the chunk that tells it is lost.
    pub fn spec(&self) -> Option<&RunSpec> {
        self.spec.as_ref()
    }

    /// The stage of the run when the recording ends.
    pub fn stage(&self) -> Option<RunStage> {
        self.chunks.last()?.note.stage
    }

    /// How the run ended, as far as the recording tells.
    pub fn outcome(&self) -> Option<&RunOutcome> {
        self.chunks.last()?.note.outcome.as_ref()
    }

    /// First and last moment; `None` for a recording that holds no event.
    pub fn range(&self) -> Option<(Stamp, Stamp)> {
        Some((self.chunks.first()?.start, self.chunks.last()?.end))
    }

    /// Spans of the run in which no client recorded it: as the client tells that attached to it, or between the end of one file
    /// and the beginning of the next.
    pub fn unattended(&self) -> Vec<(Stamp, Stamp)> {
        let mut spans = self.unattended.clone();
        if let Some(end) = self.outcome().and_then(|outcome| outcome.at) {
            before_end(&mut spans, end);
        }
        spans
    }

    /// Spans of which what was recorded can't be read, between chunks that can.
    pub fn lost(&self) -> &[(Stamp, Stamp)] {
        &self.lost
    }

    /// Its first file.
    pub fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |part| &part.path)
    }

    /// Size of its files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|part| part.bytes.length()).sum()
    }

    /// When its last file was written to, by the clock of where that lies.
    pub(super) fn written(&self) -> Option<Stamp> {
        self.files.last()?.bytes.written().ok()
    }

    /// How many envelopes its chunks say they hold.
    pub fn envelope_count(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.note.envelopes).sum()
    }

    /// The note of a chunk.
    pub(super) fn note(&self, chunk: usize) -> Option<&ChunkNote> {
        self.chunks.get(chunk).map(|chunk| &chunk.note)
    }

    /// How many chunks can be read.
    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// What tells a chunk from every other: its sequence numbers, where it lies, and its length.
    pub(super) fn identity(&self, chunk: usize) -> Option<(u64, u64, u64, usize)> {
        let chunk = self.chunks.get(chunk)?;
        Some((chunk.note.first_seq, chunk.note.last_seq, chunk.at, chunk.length))
    }

    /// How many envelopes lie before a chunk.
    pub(super) fn envelopes_before(&self, chunk: usize) -> u64 {
        let through = |last: &Entry| last.before.saturating_add(last.note.envelopes);
        self.chunks.get(chunk).map_or_else(|| self.chunks.last().map_or(0, through), |chunk| chunk.before)
    }

    /// Recording time at which a chunk begins and ends.
    pub(super) fn chunk_span(&self, chunk: usize) -> Option<(Stamp, Stamp)> {
        self.chunks.get(chunk).map(|chunk| (chunk.start, chunk.end))
    }

    /// The first chunk that may hold something at `time` or later.
    pub(super) fn chunk_at(&self, time: Stamp) -> usize {
        self.chunks.partition_point(|chunk| chunk.end < time)
    }

    /// All envelopes of one chunk in order.
    pub(super) fn load(&self, chunk: usize) -> Result<Vec<Timed>, Error> {
        self.load_some(chunk, |_| true)
    }

    /// Those of the channels that `wants` picks. All others are looked at, too: they tell when the playhead comes to these.
    pub(super) fn load_some(
        &self,
        chunk: usize,
        wants: impl Fn(Channel) -> bool,
    ) -> Result<Vec<Timed>, Error> {
        self.packed(chunk)?.map_or_else(|| Ok(Vec::new()), |packed| packed.timed(wants))
    }

    /// The same without the moments at which the playhead comes to them, which take all of the chunk to be known.
    pub(super) fn load_untimed(
        &self,
        chunk: usize,
        wants: impl Fn(Channel) -> bool,
    ) -> Result<Vec<Envelope>, Error> {
        self.packed(chunk)?.map_or_else(|| Ok(Vec::new()), |packed| packed.envelopes(wants, None))
    }

    /// A chunk that is not taken apart; `None` where there is none of this number.
    pub(super) fn packed(&self, chunk: usize) -> Result<Option<Packed>, Error> {
        let Some(entry) = self.chunks.get(chunk) else { return Ok(None) };
        let Some(part) = self.files.get(entry.file) else { return Ok(None) };
        let record = part.bytes.read(entry.at, entry.length).map_err(Error::file(&part.path))?;
        Ok(Some(Packed {
            path: part.path.clone(),
            offset: entry.at,
            numbers: entry.note.first_seq..=entry.note.last_seq,
            span: (entry.start, entry.end),
            record,
        }))
    }

    /// The envelopes whose recording time lies in `range`, in order. A chunk that can no longer be read
    /// gives one error, then the next chunk follows.
    pub fn envelopes(&self, range: impl RangeBounds<Stamp>) -> Envelopes<'_> {
        self.select(range, |_| true)
    }

    /// The numbers of the processes that train within ranks.
    pub fn workers(&self) -> BTreeSet<u32> {
        let envelopes = self.select(.., |_| true).filter_map(Result::ok);
        let worker = |envelope: Envelope| match envelope.origin {
            Origin::Worker(_, _, worker) => Some(worker),
            _ => None,
        };
        envelopes.filter_map(worker).collect()
    }

    /// The lines that ranks printed, in order, and those that stand for missing bytes: of one rank, or of all.
    pub fn log(&self, rank: Option<Rank>) -> impl Iterator<Item = Result<LoggedLine, Error>> + '_ {
        let wanted = move |of: Rank| rank.is_none_or(|rank| rank == of);
        let envelopes = self.select(.., move |channel| match channel {
            Channel::Log(of) => wanted(Rank(of)),
            // ranks beyond the log channels
            Channel::Event => true,
            _ => false,
        });
        envelopes.filter_map(move |envelope| match envelope {
            Ok(envelope) => LoggedLine::of(&envelope).filter(|line| wanted(line.line.rank)).map(Ok),
            Err(error) => Some(Err(error)),
        })
    }

    pub(super) fn select(
        &self,
        range: impl RangeBounds<Stamp>,
        wants: impl Fn(Channel) -> bool + 'static,
    ) -> Envelopes<'_> {
        let from = range.start_bound().cloned();
        let first = match from {
            Bound::Included(time) | Bound::Excluded(time) => self.chunk_at(time),
            Bound::Unbounded => 0,
        };
        Envelopes::new(self, first, (from, range.end_bound().cloned()), wants)
    }
}

/// What the chunk that begins a later file tells of the time before.
fn unattended(record: &[u8]) -> Option<(Stamp, Stamp)> {
    let events = chunk::decode(record, |channel| channel == Channel::Event).ok()?.envelopes;
    events.into_iter().find_map(|envelope| match envelope.event {
        Event::Attached { since, until } => Some((since?, until?)),
        _ => None,
    })
}

/// What a list of runs shows of a recording.
#[derive(Debug)]
pub(super) struct RecordingSummary {
    pub(super) spec: RunSpec,
    pub(super) last: ChunkNote,
    pub(super) bytes: u64,
    pub(super) damage: Option<String>,
}

/// Said of a recording in which no chunk can be read.
pub(super) const NO_CHUNK: &str = "no whole chunk";
/// How many chunks a summary looks at from either end of the file.
const GLANCE_CHUNKS: usize = 16;

/// Looks at both ends of a recording without reading what lies between.
pub(super) fn summarize(path: &Path) -> Result<RecordingSummary, Error> {
    let files = segments::of(path);
    let mut open = Vec::new();
    let mut spec = None;
    let mut any = false;
    for path in &files {
        let mut bytes = Bytes::open(path)?;
        match scan::check_head(&mut bytes, path) {
            Ok(data) => {
                if spec.is_none() {
                    let told = first_spec(&mut bytes, data).map_err(Error::file(path))?;
                    any |= told.0;
                    spec = told.1;
                }
                open.push((path, bytes, data));
            }
            Err(Error::NotARecording(_) | Error::OtherMcap(_)) if !open.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    let offset = open.first().map_or(0, |(_, _, data)| *data);
    let unreadable = |reason: &str| Error::Chunk { path: path.to_owned(), offset, reason: reason.to_owned() };
    let Some(spec) = spec else {
        return Err(unreadable(if any { "it does not tell which run it is of" } else { NO_CHUNK }));
    };
    let size = open.iter().map(|(_, bytes, _)| bytes.length()).sum();
    let mut newest: Option<(ChunkNote, Integrity)> = None;
    // Each client tells what it has recorded itself.
    let mut parts = Vec::new();
    let mut stood = None;
    for (path, bytes, _) in &mut open {
        let Some((mut note, integrity)) = last_note(bytes).map_err(Error::file(path))? else { continue };
        parts.extend(note.trained.take());
        stood = note.stood.take().or(stood);
        newest = Some((note, integrity));
    }
    let (mut last, integrity) = newest.ok_or_else(|| unreadable("no whole chunk"))?;
    (last.trained, last.stood) = (Trained::of_parts(parts), stood);
    Ok(RecordingSummary { spec, last, bytes: size, damage: integrity.damage() })
}

/// Whether a file begins with a chunk that can be read, and the run that is told there.
fn first_spec(bytes: &mut Bytes, data: u64) -> std::io::Result<(bool, Option<RunSpec>)> {
    let mut scanner = RecordScanner::new(data);
    let mut any = false;
    for _ in 0..GLANCE_CHUNKS {
        let Some(found) = scanner.next(bytes)? else { break };
        if let Found::Chunk(at, length) = found
            && let Ok((_, told)) = chunk::head(&bytes.read(at, length)?)
        {
            any = true;
            if told.is_some() {
                return Ok((any, told));
            }
        }
    }
    Ok((any, None))
}

/// The note of a file's last chunk and how whole the end of the file is; `None` where no chunk can be read.
fn last_note(bytes: &mut Bytes) -> std::io::Result<Option<(ChunkNote, Integrity)>> {
    let mut bad = 0_u64;
    for (at, length) in scan::chunks_from_end(bytes, GLANCE_CHUNKS)? {
        let Ok((last, _)) = chunk::head(&bytes.read(at, length)?) else {
            bad += 1;
            continue;
        };
        let after = at + length as u64;
        let mut tail = RecordScanner::new(after);
        let integrity = match tail.next(bytes)? {
            _ if bad > 0 => Integrity::Damaged { chunks: bad, at_byte: after, cut: false },
            Some(Found::Broken(at_byte)) => Integrity::Cut { at_byte, until: Some(last.end) },
            _ => Integrity::NotClosed,
        };
        return Ok(Some((last, integrity)));
    }
    Ok(None)
}
