//! Walks a recording from chunk to chunk, whatever has become of it: summary or none, cut anywhere,
//! bytes flipped. Where the chain of lengths breaks, it looks for the next chunk by its look.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use flate2::Crc;
use mcap::MAGIC;
use mcap::records::op;

use super::chunk::{self, RECORD_HEAD};
use super::error::Error;
use super::format::{ChunkNote, FORMAT, MAX_RECORD, PROFILE};
use crate::domain::time::Stamp;

/// Name length and name of the compression that every chunk of ours carries, at a fixed place.
const SIGNATURE: &[u8] = b"\x04\0\0\0zstd";
const SIGNATURE_AT: usize = RECORD_HEAD + 8 + 8 + 8 + 4;
/// From the start of a chunk record to its compressed bytes.
const CHUNK_HEAD: usize = SIGNATURE_AT + SIGNATURE.len() + 8;
const WINDOW: usize = 256 << 10;
/// So much is read at least.
const LEAST_READ: usize = 4 << 10;
/// The first chunk begins before this byte.
const LONGEST_BEGINNING: usize = 4 << 10;

/// A file read through one moving window.
#[derive(Debug)]
pub(super) struct Bytes {
    file: File,
    length: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Bytes {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::file(path))?;
        let meta = file.metadata().map_err(Error::file(path))?;
        if !meta.is_file() {
            return Err(Error::NotARecording(path.to_owned()));
        }
        Ok(Self { file, length: meta.len(), window: Vec::new(), window_at: 0 })
    }

    /// The file's length when it was opened; a live recording grows behind it, unseen.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The file has grown; what follows its old end can be read now.
    pub(super) fn grow(&mut self) -> std::io::Result<()> {
        self.length = self.file.metadata()?.len();
        Ok(())
    }

    /// When it was written to last.
    pub(super) fn written(&self) -> std::io::Result<Stamp> {
        let since = self.file.metadata()?.modified()?.duration_since(UNIX_EPOCH);
        Ok(Stamp(since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))))
    }

    /// The CRC-32 of all of it.
    pub(super) fn crc(&self) -> std::io::Result<u32> {
        let mut crc = Crc::new();
        let mut buffer = vec![0; WINDOW];
        let mut at = 0;
        while at < self.length {
            let count = usize::try_from(self.length - at).unwrap_or(usize::MAX).min(buffer.len());
            self.file.read_exact_at(&mut buffer[..count], at)?;
            crc.update(&buffer[..count]);
            at += count as u64;
        }
        Ok(crc.sum())
    }

    /// Up to `count` bytes from `at`; fewer at the end of the file.
    pub(super) fn peek(&mut self, at: u64, count: usize) -> std::io::Result<&[u8]> {
        let in_window =
            at >= self.window_at && at + count as u64 <= self.window_at + self.window.len() as u64;
        if !in_window {
            let left = usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX);
            // a walk from chunk to chunk looks at their heads alone
            self.window.resize(count.max(LEAST_READ).min(left), 0);
            self.window_at = at;
            let read = read_up_to(&self.file, &mut self.window, at)?;
            self.window.truncate(read);
        }
        let from = usize::try_from(at - self.window_at).unwrap_or(usize::MAX).min(self.window.len());
        Ok(&self.window[from..self.window.len().min(from + count)])
    }

    /// The `count` bytes from `at`, past the window.
    pub(super) fn read(&self, at: u64, count: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Opcode and whole length of the record at `at`, if there is one that a writer could have made and
/// that lies in the file.
fn record_at(bytes: &mut Bytes, at: u64) -> std::io::Result<Option<(u8, u64)>> {
    let head = bytes.peek(at, RECORD_HEAD)?;
    let Some((&[opcode], rest)) = head.split_first_chunk::<1>() else { return Ok(None) };
    let Some((body, _)) = rest.split_first_chunk::<8>() else { return Ok(None) };
    let body = u64::from_le_bytes(*body);
    let known = (op::HEADER..=op::DATA_END).contains(&opcode) || opcode >= 0x80;
    let sane = known
        && body <= MAX_RECORD as u64
        && at + RECORD_HEAD as u64 + body <= bytes.length()
        && (opcode != op::CHUNK
            || chunk_length(bytes.peek(at, CHUNK_HEAD)?) == Some(RECORD_HEAD as u64 + body));
    let sane =
        sane && (opcode != op::MESSAGE_INDEX || is_message_index(bytes.peek(at, RECORD_HEAD + 6)?, body));
    Ok(sane.then(|| (opcode, RECORD_HEAD as u64 + body)))
}

/// The whole length of the chunk record that `head` begins, by the two lengths it carries: they must
/// agree, and do not in a chunk that was never finished (it says `u64::MAX`).
fn chunk_length(head: &[u8]) -> Option<u64> {
    if head.first() != Some(&op::CHUNK) {
        return None;
    }
    let number = |from: usize| Some(u64::from_le_bytes(head.get(from..from + 8)?.try_into().ok()?));
    let body = number(1)?;
    let compressed = number(CHUNK_HEAD - 8)?;
    let fits = head.get(SIGNATURE_AT..SIGNATURE_AT + SIGNATURE.len()) == Some(SIGNATURE)
        && body <= MAX_RECORD as u64
        && number(SIGNATURE_AT - 12)? <= MAX_RECORD as u64
        && body.checked_sub((CHUNK_HEAD - RECORD_HEAD) as u64) == Some(compressed);
    fits.then(|| RECORD_HEAD as u64 + body)
}

fn is_message_index(head: &[u8], body: u64) -> bool {
    head.get(RECORD_HEAD + 2..RECORD_HEAD + 6)
        .and_then(|entries| entries.try_into().ok())
        .is_some_and(|entries| u64::from(u32::from_le_bytes(entries)) + 6 == body)
}

/// Checks that the file is a recording of a version that is read here; gives where its data begins. Of one whose beginning is damaged
/// that is where the file begins, and its first chunk tells the version.
pub(super) fn check_head(bytes: &mut Bytes, path: &Path) -> Result<u64, Error> {
    let told = whole_head(bytes, path);
    if !matches!(told, Err(Error::NotARecording(_) | Error::OtherMcap(_) | Error::Newer { .. })) {
        return told;
    }
    let Some(note) = first_note(bytes).map_err(Error::file(path))? else { return told };
    match note.format.filter(|format| *format > FORMAT) {
        Some(found) => Err(Error::Newer { path: path.to_owned(), found }),
        None => Ok(0),
    }
}

/// The note of the chunk of ours that lies where the first one does, whatever stands before it.
fn first_note(bytes: &mut Bytes) -> std::io::Result<Option<ChunkNote>> {
    let heads = bytes.peek(0, LONGEST_BEGINNING)?.windows(CHUNK_HEAD);
    let Some(at) = heads.map(chunk_length).position(|length| length.is_some()) else { return Ok(None) };
    let at = at as u64;
    let Some((_, length)) = record_at(bytes, at)? else { return Ok(None) };
    Ok(chunk::head(&bytes.read(at, length as usize)?).ok().map(|(note, _)| note))
}

fn whole_head(bytes: &mut Bytes, path: &Path) -> Result<u64, Error> {
    let not_ours = || Error::NotARecording(path.to_owned());
    if bytes.peek(0, MAGIC.len()).map_err(Error::file(path))? != MAGIC {
        return Err(not_ours());
    }
    let at = MAGIC.len() as u64;
    let Some((op::HEADER, length)) = record_at(bytes, at).map_err(Error::file(path))? else {
        return Err(not_ours());
    };
    let header =
        bytes.read(at + RECORD_HEAD as u64, length as usize - RECORD_HEAD).map_err(Error::file(path))?;
    let mut texts = &*header;
    match take_text(&mut texts) {
        Some(profile) if profile != PROFILE => return Err(Error::OtherMcap(path.to_owned())),
        profile => profile.ok_or_else(not_ours)?,
    };
    // the library behind the profile, and nothing more
    if take_text(&mut texts).is_none() || !texts.is_empty() {
        return Err(not_ours());
    }
    let after = at + length;
    if let Some((op::METADATA, length)) = record_at(bytes, after).map_err(Error::file(path))? {
        let metadata = bytes
            .read(after + RECORD_HEAD as u64, length as usize - RECORD_HEAD)
            .map_err(Error::file(path))?;
        if let Some(found) = format_version(&metadata).filter(|found| *found > FORMAT) {
            return Err(Error::Newer { path: path.to_owned(), found });
        }
    }
    Ok(after)
}

/// How long magic and header are, with the data from `data` on; 0 where the header is not as a writer makes it.
pub(super) fn head_length(bytes: &mut Bytes, data: u64) -> std::io::Result<usize> {
    let length = usize::try_from(data).unwrap_or(0);
    let head = bytes.read(0, length)?;
    let mut texts = head.get(MAGIC.len() + RECORD_HEAD..).unwrap_or_default();
    let is_whole = take_text(&mut texts).is_some() && take_text(&mut texts).is_some() && texts.is_empty();
    Ok(if is_whole { length } else { 0 })
}

/// Our metadata record at `at`, and how long it is; `None` where it is not as a writer makes it.
pub(super) fn metadata(bytes: &mut Bytes, at: u64) -> std::io::Result<Option<(u64, usize)>> {
    let Some((op::METADATA, length)) = record_at(bytes, at)? else { return Ok(None) };
    let length = usize::try_from(length).unwrap_or(0);
    let body = bytes.read(at + RECORD_HEAD as u64, length.saturating_sub(RECORD_HEAD))?;
    Ok(is_metadata(&body).then_some((at, length)))
}

fn is_metadata(mut body: &[u8]) -> bool {
    let is_ours = take_text(&mut body) == Some(PROFILE);
    let Some((length, mut map)) = body.split_first_chunk::<4>() else { return false };
    let mut is_whole = is_ours && u32::from_le_bytes(*length) as usize == map.len();
    while is_whole && !map.is_empty() {
        is_whole = take_text(&mut map).is_some() && take_text(&mut map).is_some();
    }
    is_whole
}

/// A string as MCAP writes it: length u32, bytes.
fn take_text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    let (length, rest) = from.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *from = rest;
    std::str::from_utf8(text).ok()
}

fn format_version(mut metadata: &[u8]) -> Option<u32> {
    if take_text(&mut metadata)? != PROFILE {
        return None;
    }
    let mut map = metadata.get(4..)?;
    while !map.is_empty() {
        let (key, value) = (take_text(&mut map)?, take_text(&mut map)?);
        if key == "format" {
            return value.parse().ok();
        }
    }
    None
}

/// What the scanner came upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A whole chunk record: where, and its length. Its content is not checked yet.
    Chunk(u64, usize),
    /// Bytes from here on fit no record, up to the next chunk or the end.
    Broken(u64),
    /// The data ended as a writer ends it; behind it lies the summary.
    Closed,
}

/// Finds the records of a file, one after the other.
#[derive(Debug)]
pub(super) struct RecordScanner {
    at: u64,
    /// The record before: where to look again when what follows it makes no sense.
    before: u64,
    done: bool,
}

impl RecordScanner {
    pub(super) fn new(at: u64) -> Self {
        Self { at, before: at, done: false }
    }

    /// The next finding; `None` at the end of the file.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> std::io::Result<Option<Found>> {
        while !self.done && self.at < bytes.length() {
            let Some((opcode, length)) = record_at(bytes, self.at)? else {
                let broken = self.at;
                let from = self.before.max(self.at.saturating_sub(MAX_RECORD as u64)) + 1;
                match next_chunk(bytes, from)? {
                    Some(at) => self.at = at,
                    None => self.done = true,
                }
                self.before = self.at;
                return Ok(Some(Found::Broken(broken)));
            };
            let here = self.at;
            self.before = here;
            self.at += length;
            match opcode {
                op::CHUNK => return Ok(Some(Found::Chunk(here, length as usize))),
                op::DATA_END => {
                    self.done = true;
                    return Ok(Some(Found::Closed));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Says that the chunk just found is bad, so that its length is not to be trusted either.
    pub(super) fn resync_after(&mut self, bytes: &mut Bytes, chunk: u64) -> std::io::Result<()> {
        if let Some(at) = next_chunk(bytes, chunk + 1)? {
            self.at = at;
            self.before = at;
        }
        Ok(())
    }
}

/// Where the next thing that looks like a whole chunk begins, at `from` or behind it.
fn next_chunk(bytes: &mut Bytes, from: u64) -> std::io::Result<Option<u64>> {
    let mut at = from;
    loop {
        let window = bytes.peek(at, WINDOW)?;
        if window.len() < CHUNK_HEAD {
            return Ok(None);
        }
        let hit = window.windows(CHUNK_HEAD).position(|head| chunk_length(head).is_some());
        match hit {
            Some(hit) => {
                let found = at + hit as u64;
                if record_at(bytes, found)?.is_some() {
                    return Ok(Some(found));
                }
                at = found + 1;
            }
            None => at += (window.len() - CHUNK_HEAD + 1) as u64,
        }
    }
}

/// The last chunk records of the file, last first: found by their look from the end, so that a list of
/// runs need not walk each file.
pub(super) fn chunks_from_end(bytes: &mut Bytes, limit: usize) -> std::io::Result<Vec<(u64, usize)>> {
    let mut found = Vec::new();
    let mut end = data_end(bytes)?;
    while end > 0 && found.len() < limit {
        let from = end.saturating_sub((WINDOW - CHUNK_HEAD) as u64);
        let span = usize::try_from(end - from).unwrap_or(0) + CHUNK_HEAD - 1;
        let window = bytes.peek(from, span)?;
        let heads: Vec<u64> = window
            .windows(CHUNK_HEAD)
            .enumerate()
            .filter(|(_, head)| chunk_length(head).is_some())
            .map(|(at, _)| from + at as u64)
            .collect();
        for at in heads.into_iter().rev() {
            if let Some((op::CHUNK, length)) = record_at(bytes, at)? {
                found.push((at, length as usize));
            }
        }
        end = from;
    }
    found.truncate(limit);
    Ok(found)
}

/// Where the data ends: before the summary, if the file was closed, else the end of the file.
fn data_end(bytes: &mut Bytes) -> std::io::Result<u64> {
    Ok(footer(bytes)?.filter(|at| *at > 0 && *at < bytes.length()).unwrap_or(bytes.length()))
}

/// Where the summary begins, if the file ends as a closed one does.
pub(super) fn footer(bytes: &mut Bytes) -> std::io::Result<Option<u64>> {
    const FOOTER: usize = RECORD_HEAD + 8 + 8 + 4;
    let length = FOOTER + MAGIC.len();
    let Some(at) = bytes.length().checked_sub(length as u64) else { return Ok(None) };
    let tail = bytes.peek(at, length)?;
    let Some((footer, magic)) = tail.split_at_checked(FOOTER) else { return Ok(None) };
    let start = footer.get(RECORD_HEAD..RECORD_HEAD + 8).and_then(|start| start.try_into().ok());
    Ok(start.map(u64::from_le_bytes).filter(|_| footer.first() == Some(&op::FOOTER) && magic == MAGIC))
}
