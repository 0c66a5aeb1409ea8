//! Reads an append-only file piece by piece from a given byte on, and waits for a directory to change.
//!
//! The beginning of the file may be cut off at any moment: what is gone is told as a gap, and no byte that is
//! handed out comes from the hole.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::redact::Before;
use super::sightings::Sightings;
use crate::clock;
use crate::domain::log::GapReason;
use crate::domain::time::HostTime;
use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;
use crate::supervise::spool::kept_from;
use crate::wire::chunk::CHUNK_BYTES;

/// After so long without a byte the program waits: what it writes in one go is there by then.
const LATE: Duration = Duration::from_secs(1);

/// One file that grows at its end; it need not be there yet.
#[derive(Debug)]
pub(super) struct Tail {
    name: String,
    file: Option<File>,
    offset: u64,
    /// How much of what is there at the beginning is wanted; all when `None`.
    last: Option<u64>,
    sightings: Sightings,
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// These bytes, from this offset on.
    Data(u64, Bytes),
    /// Nothing from the first offset to the second.
    Gap(u64, u64, GapReason),
}

impl Piece {
    /// How far it goes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Data(_, data) => data.len() as u64,
            Self::Gap(from, to, _) => to - from,
        }
    }
}

impl Tail {
    /// Will read from `offset` on; of what is there by then, only about the `last` bytes.
    pub(super) fn new(name: String, offset: u64, last: Option<u64>) -> Self {
        Self { name, file: None, offset, last, sightings: Sightings::default() }
    }

    /// The next piece; `None` at the end of what is there now.
    pub(super) fn next_piece(&mut self, dir: &RunDir) -> Result<Option<Piece>, SuperviseError> {
        if self.file.is_none() {
            self.file = dir.read(&self.name)?;
        }
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let failed = |source| SuperviseError::Io { doing: "read", path: dir.path().join(&self.name), source };
        let begin = self.offset;
        let mut piece = vec![0; CHUNK_BYTES];
        let read = file.read_at(&mut piece, begin).map_err(failed)?;
        if read == 0 {
            return Ok(None);
        }
        // After the reading: what was cut meanwhile may have been read as zeros.
        let kept = kept_from(file, begin).map_err(failed)?;
        if kept > begin {
            self.offset = kept;
            return Ok(Some(Piece::Gap(begin, kept, GapReason::NotKept)));
        }
        if let Some(last) = self.last.take() {
            let to = line_near(file, last).map_err(failed)?;
            if to > begin {
                self.offset = to;
                return Ok(Some(Piece::Gap(begin, to, GapReason::NotRead)));
            }
        }
        piece.truncate(read);
        self.offset += read as u64;
        Ok(Some(Piece::Data(begin, piece.into())))
    }

    /// Up to so many bytes before `offset`, as far as they are kept.
    pub(super) fn before(&self, dir: &RunDir, offset: u64, most: usize) -> Result<Before, SuperviseError> {
        let wanted = offset.saturating_sub(most as u64);
        let Some(file) = self.file.as_ref().filter(|_| wanted < offset) else {
            return Ok(Before::default());
        };
        let failed = |source| SuperviseError::Io { doing: "read", path: dir.path().join(&self.name), source };
        let mut bytes = vec![0; (offset - wanted) as usize];
        file.read_exact_at(&mut bytes, wanted).map_err(failed)?;
        // After the reading: what was cut meanwhile may have been read as zeros.
        let kept = kept_from(file, wanted).map_err(failed)?.min(offset);
        Ok(Before { bytes: Bytes::from(bytes).slice((kept - wanted) as usize..), torn: kept > wanted })
    }

    /// The next byte to be read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether nothing was written for [`LATE`]. Where the file's clock is not this host's it may say so too early.
    pub(super) fn is_late(&self) -> bool {
        let written = self.file.as_ref().and_then(|file| file.metadata().ok()?.modified().ok());
        written.is_none_or(|at| at.elapsed().map_or(true, |since| since >= LATE))
    }

    /// Reads again from an earlier byte on.
    pub(super) fn rewind(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Goes on about `last` bytes before the end.
    pub(super) fn hurry(&mut self, last: u64) {
        self.last = Some(last);
    }

    /// How many bytes that are there now were not read yet.
    pub(super) fn behind(&self, dir: &RunDir) -> u64 {
        self.length(dir).unwrap_or(0).saturating_sub(self.offset)
    }

    fn length(&self, dir: &RunDir) -> std::io::Result<u64> {
        match &self.file {
            Some(file) => file.metadata().map(|meta| meta.len()),
            None => std::fs::symlink_metadata(dir.path().join(&self.name)).map(|meta| meta.len()),
        }
    }

    /// Looks how long it is, so that what is read of it later has the time of this look.
    pub(super) fn see(&mut self, dir: &RunDir) {
        let length = match self.length(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            length => length,
        };
        if let Ok(length) = length {
            // after the look: it was so long by then
            self.sightings.see(length, clock::host_now());
        }
    }

    /// Its rank ended at `end`, and writes no more.
    pub(super) fn see_end(&mut self, dir: &RunDir, end: HostTime) {
        self.see(dir);
        self.sightings.end(end);
    }

    /// By when the bytes from `from` up to `to` were there, as far as they came since the first look, each moment with how long the
    /// file was then. Nothing before `from` is asked for again.
    pub(super) fn seen(&mut self, from: u64, to: u64) -> Vec<(u64, HostTime)> {
        self.sightings.forget(from);
        self.sightings.moments(from, to)
    }

    /// How long it was at the first look.
    pub(super) fn seen_from(&self) -> u64 {
        self.sightings.begin()
    }
}

/// Where a line begins about `last` bytes before the end; the very byte when no line begins soon behind it.
fn line_near(file: &File, last: u64) -> std::io::Result<u64> {
    let at = file.metadata()?.len().saturating_sub(last);
    if at == 0 {
        return Ok(0);
    }
    let mut piece = vec![0; CHUNK_BYTES];
    // with the byte before: a line may begin right there
    let read = file.read_at(&mut piece, at - 1)?;
    let end = piece.iter().take(read).position(|byte| *byte == b'\n');
    Ok(end.map_or(at, |end| at + end as u64))
}

/// Tells when something in a directory changes.
#[derive(Debug)]
pub(super) struct Watcher {
    inotify: Option<OwnedFd>,
}

/// Between looks where the kernel has no inotify instance to spare.
const POLL: Duration = Duration::from_millis(20);

impl Watcher {
    /// Watches from now on: what happens between this call and the first [`Self::wait`] is not missed.
    pub(super) fn new(directory: &Path) -> Self {
        let events = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .and_then(|fd| inotify::add_watch(&fd, directory, events).map(|_| fd))
            .ok();
        Self { inotify }
    }

    /// Returns when something has changed, and at the latest after `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let Some(fd) = &self.inotify else {
            return std::thread::sleep(POLL.min(limit));
        };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit));
        let mut events = [0; 4096];
        while rustix::io::read(fd, &mut events).is_ok_and(|read| read > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::domain::ids::{HostId, RunId};
    use crate::supervise::spool::{self, BLOCK};

    #[test]
    fn every_byte_comes_once_and_in_order() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let mut tail = Tail::new("rank-0.out".to_owned(), 3, None);
        assert_eq!((tail.next_piece(&dir).unwrap(), tail.behind(&dir)), (None, 0));
        let watcher = Watcher::new(dir.path());
        let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        dir.append("rank-0.out").unwrap().write_all(&bytes).unwrap();
        watcher.wait(Duration::from_secs(600));
        assert_eq!(tail.behind(&dir), 99_997);
        assert_eq!(rest(&mut tail, &dir, 3), &bytes[3..]);
        assert_eq!(tail.behind(&dir), 0);
    }

    /// All that comes now, without a gap.
    fn rest(tail: &mut Tail, dir: &RunDir, from: usize) -> Vec<u8> {
        let mut seen = Vec::new();
        while let Some(piece) = tail.next_piece(dir).unwrap() {
            let Piece::Data(begin, data) = piece else { panic!("{piece:?}") };
            assert_eq!(begin as usize, from + seen.len());
            assert!(data.len() <= CHUNK_BYTES);
            seen.extend_from_slice(&data);
        }
        seen
    }

    #[test]
    fn what_was_cut_is_a_gap_and_never_zeros() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        if !spool::can_cut(&dir).unwrap() {
            return;
        }
        let bytes = vec![b'x'; 5 * BLOCK as usize];
        dir.append("f").unwrap().write_all(&bytes).unwrap();
        let file = File::options().write(true).open(dir.path().join("f")).unwrap();
        let mut tail = Tail::new("f".to_owned(), 0, None);
        assert!(matches!(tail.next_piece(&dir).unwrap(), Some(Piece::Data(0, _))));
        spool::cut(&file, 2 * BLOCK).unwrap();
        let gap = Piece::Gap(CHUNK_BYTES as u64, 2 * BLOCK, GapReason::NotKept);
        assert_eq!(tail.next_piece(&dir).unwrap(), Some(gap));
        assert_eq!(rest(&mut tail, &dir, 2 * BLOCK as usize), &bytes[2 * BLOCK as usize..]);
        // what lies behind the cut is what it wants: no gap
        let mut later = Tail::new("f".to_owned(), 4 * BLOCK, None);
        assert_eq!(rest(&mut later, &dir, 4 * BLOCK as usize).len() as u64, BLOCK);
    }

    #[test]
    fn the_last_bytes_begin_with_a_line() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        dir.append("f").unwrap().write_all(&b"0123456\n".repeat(1000)).unwrap();
        for (last, from) in [(100, 7904), (96, 7904), (95, 7912), (8000, 0), (9999, 0)] {
            let mut tail = Tail::new("f".to_owned(), 0, Some(last));
            if from > 0 {
                assert_eq!(tail.next_piece(&dir).unwrap(), Some(Piece::Gap(0, from, GapReason::NotRead)));
            }
            assert_eq!(rest(&mut tail, &dir, from as usize).len() as u64, 8000 - from);
        }
        let mut near = Tail::new("f".to_owned(), 7990, Some(100));
        assert_eq!(rest(&mut near, &dir, 7990).len(), 10, "what is nearer than that is not passed over");
    }
}
