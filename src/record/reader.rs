//! Opens a recording, whole or not, and gives its envelopes back in order.
//!
//! Opening walks the file once and checks every chunk, so what is wrong is known before anything is
//! shown; afterwards each chunk can be read by itself.
//!
//! Time in a recording is the running maximum of the envelopes' times in the order of their sequence
//! numbers. Where the client's clock was set back, that keeps «before» and «after» the same by time
//! and by number, which a playhead needs.

use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};

use super::chunk;
use super::error::Error;
use super::format::{Channel, ChunkNote};
use super::integrity::Integrity;
use super::scan::{self, Bytes, Found, Walk};
use crate::domain::event::{Envelope, Event};
use crate::domain::ids::Rank;
use crate::domain::run::{RunOutcome, RunSpec, RunStage};
use crate::domain::time::Stamp;
use crate::domain::world::LoggedLine;

/// A recording that is open for reading.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    bytes: Bytes,
    chunks: Vec<Entry>,
    spec: Option<RunSpec>,
    integrity: Integrity,
}

/// Where a chunk lies and what it spans.
#[derive(Debug, Clone)]
struct Entry {
    at: u64,
    length: usize,
    note: ChunkNote,
    /// Recording time: never before the chunk that precedes it.
    start: Stamp,
    end: Stamp,
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
        let mut bytes = Bytes::open(path)?;
        let data = scan::check_head(&mut bytes, path)?;
        let mut reader = Self {
            path: path.to_owned(),
            bytes,
            chunks: Vec::new(),
            spec: None,
            integrity: Integrity::Complete,
        };
        reader.scan(data).map_err(Error::file(path))?;
        Ok(reader)
    }

    fn scan(&mut self, from: u64) -> std::io::Result<()> {
        let mut walk = Walk::new(from);
        let (mut bad, mut first_bad, mut bad_bytes) = (0, None, 0);
        let mut broken = None;
        let mut closed = false;
        while let Some(found) = walk.next(&mut self.bytes)? {
            // a break in the middle is damage; one that nothing follows is a cut
            if let Some(at) = broken.take() {
                bad += 1;
                first_bad.get_or_insert(at);
            }
            match found {
                Found::Chunk(at, length) => {
                    if !self.take_chunk(at, length)? {
                        bad += 1;
                        first_bad.get_or_insert(at);
                        // looking again costs time; a file made to cost it gets no second look
                        if bad_bytes <= self.bytes.length() {
                            walk.distrust(&mut self.bytes, at)?;
                        }
                        bad_bytes += length as u64;
                    }
                }
                Found::Broken(at) => broken = Some(at),
                Found::Closed => closed = true,
            }
        }
        self.integrity = match (first_bad, broken, closed) {
            (Some(at_byte), cut, _) => Integrity::Damaged { chunks: bad, at_byte, cut: cut.is_some() },
            (None, Some(at_byte), _) => {
                Integrity::Cut { at_byte, until: self.chunks.last().map(|chunk| chunk.end) }
            }
            (None, None, true) if scan::footer(&mut self.bytes)?.is_some() => Integrity::Complete,
            (None, None, _) => Integrity::NotClosed,
        };
        Ok(())
    }

    /// Takes a chunk into the index if it checks out.
    fn take_chunk(&mut self, at: u64, length: usize) -> std::io::Result<bool> {
        let Ok((note, spec)) = chunk::head(&self.bytes.read(at, length)?) else { return Ok(false) };
        let (after, floor) = match self.chunks.last() {
            Some(last) => (Some(last.note.last_seq), last.end),
            None => (None, note.start),
        };
        if after.is_some_and(|after| note.first_seq <= after) {
            return Ok(false);
        }
        if self.spec.is_none() {
            self.spec = spec;
        }
        let (start, end) = (note.start.max(floor), note.end.max(floor));
        self.chunks.push(Entry { at, length, note, start, end });
        Ok(true)
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

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.length()
    }

    /// How many envelopes its chunks say they hold.
    pub fn envelope_count(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.note.envelopes).sum()
    }

    /// How many chunks can be read.
    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Recording time at which a chunk begins and ends.
    pub(super) fn chunk_span(&self, chunk: usize) -> Option<(Stamp, Stamp)> {
        self.chunks.get(chunk).map(|chunk| (chunk.start, chunk.end))
    }

    /// The first chunk that may hold something at `time` or later.
    fn chunk_at(&self, time: Stamp) -> usize {
        self.chunks.partition_point(|chunk| chunk.end < time)
    }

    /// All envelopes of one chunk in order.
    pub(super) fn load(&self, chunk: usize) -> Result<Vec<Timed>, Error> {
        self.load_some(chunk, |_| true)
    }

    fn load_some(&self, chunk: usize, wants: impl Fn(Channel) -> bool) -> Result<Vec<Timed>, Error> {
        let Some(entry) = self.chunks.get(chunk) else { return Ok(Vec::new()) };
        let bad = |reason: String| Error::Chunk { offset: entry.at, reason };
        let record = self.bytes.read(entry.at, entry.length).map_err(Error::file(&self.path))?;
        let decoded = chunk::decode(&record, wants).map_err(bad)?;
        let numbers = entry.note.first_seq..=entry.note.last_seq;
        if decoded.envelopes.iter().any(|envelope| !numbers.contains(&envelope.seq)) {
            return Err(bad("its events are not those that its note tells".into()));
        }
        let mut time = entry.start;
        let timed = decoded.envelopes.into_iter().map(|envelope| {
            time = time.max(envelope.at).min(entry.end);
            Timed { time, envelope }
        });
        Ok(timed.collect())
    }

    /// The envelopes whose recording time lies in `range`, in order. A chunk that can no longer be read
    /// gives one error, then the next chunk follows.
    pub fn envelopes(&self, range: impl RangeBounds<Stamp>) -> Envelopes<'_> {
        self.select(range, |_| true)
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
            Ok(Envelope { at, event: Event::LogPrinted { line }, .. }) if wanted(line.rank) => {
                Some(Ok(LoggedLine { at, line, gap: false }))
            }
            Ok(Envelope { at, event: Event::LogGap { gap }, .. }) if wanted(gap.rank) => {
                Some(Ok(LoggedLine::of_gap(at, &gap)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn select(
        &self,
        range: impl RangeBounds<Stamp>,
        wants: impl Fn(Channel) -> bool + 'static,
    ) -> Envelopes<'_> {
        let from = range.start_bound().cloned();
        let first = match from {
            Bound::Included(time) | Bound::Excluded(time) => self.chunk_at(time),
            Bound::Unbounded => 0,
        };
        Envelopes {
            reader: self,
            next: first,
            range: (from, range.end_bound().cloned()),
            wants: Box::new(wants),
            loaded: Vec::new().into_iter(),
        }
    }
}

/// Envelopes in order, read chunk by chunk.
pub struct Envelopes<'a> {
    reader: &'a Reader,
    next: usize,
    range: (Bound<Stamp>, Bound<Stamp>),
    wants: Box<dyn Fn(Channel) -> bool>,
    loaded: std::vec::IntoIter<Timed>,
}

impl Iterator for Envelopes<'_> {
    type Item = Result<Envelope, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let range = self.range;
            if let Some(timed) = self.loaded.by_ref().find(|timed| range.contains(&timed.time)) {
                return Some(Ok(timed.envelope));
            }
            let (start, _) = self.reader.chunk_span(self.next)?;
            let over = match self.range.1 {
                Bound::Included(end) => start > end,
                Bound::Excluded(end) => start >= end,
                Bound::Unbounded => false,
            };
            if over {
                return None;
            }
            let loaded = self.reader.load_some(self.next, &self.wants);
            self.next += 1;
            match loaded {
                Ok(loaded) => self.loaded = loaded.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// What a list of runs shows of a recording.
#[derive(Debug)]
pub(super) struct Glance {
    pub(super) spec: RunSpec,
    pub(super) last: ChunkNote,
    pub(super) bytes: u64,
    pub(super) damage: Option<String>,
}

/// How many chunks a glance looks at from either end of the file.
const GLANCE_CHUNKS: usize = 16;

/// Looks at both ends of a recording without reading what lies between.
pub(super) fn glance(path: &Path) -> Result<Glance, Error> {
    let mut bytes = Bytes::open(path)?;
    let data = scan::check_head(&mut bytes, path)?;
    let file = Error::file;
    let mut walk = Walk::new(data);
    let mut spec = None;
    let mut first = None;
    for _ in 0..GLANCE_CHUNKS {
        let Some(found) = walk.next(&mut bytes).map_err(file(path))? else { break };
        if let Found::Chunk(at, length) = found
            && let Ok((note, told)) = chunk::head(&bytes.read(at, length).map_err(file(path))?)
        {
            first.get_or_insert(note);
            spec = told;
            if spec.is_some() {
                break;
            }
        }
    }
    let unreadable = |reason: &str| Error::Chunk { offset: data, reason: reason.to_owned() };
    let Some(spec) = spec else {
        let reason = if first.is_some() { "it does not tell which run it is of" } else { "no whole chunk" };
        return Err(unreadable(reason));
    };
    let mut end = None;
    let mut bad = 0_u64;
    for (at, length) in scan::chunks_from_end(&mut bytes, GLANCE_CHUNKS).map_err(file(path))? {
        match chunk::head(&bytes.read(at, length).map_err(file(path))?) {
            Ok((note, _)) => {
                end = Some((at + length as u64, note));
                break;
            }
            Err(_) => bad += 1,
        }
    }
    let (after, last) = end.ok_or_else(|| unreadable("no whole chunk"))?;
    let mut tail = Walk::new(after);
    let integrity = match tail.next(&mut bytes).map_err(file(path))? {
        _ if bad > 0 => Integrity::Damaged { chunks: bad, at_byte: after, cut: false },
        Some(Found::Broken(at_byte)) => Integrity::Cut { at_byte, until: Some(last.end) },
        _ => Integrity::NotClosed,
    };
    Ok(Glance { spec, last, bytes: bytes.length(), damage: integrity.damage() })
}
