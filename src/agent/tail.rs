//! Reads an append-only file piece by piece from a given byte on, and waits for a directory to change.
//!
//! The beginning of the file may be cut off at any moment: what is gone is told as a gap, and no byte that is
//! handed out comes from the hole. It may be emptied, too: then there is a gap, and what stands in it since comes from its beginning.
//! Offsets are [numbers](Numbering) of bytes.

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
use crate::domain::ids::Rank;
use crate::domain::log::{GapReason, Stream};
use crate::domain::time::HostTime;
use crate::supervise::SuperviseError;
use crate::supervise::numbering::Numbering;
use crate::supervise::rundir::RunDir;
use crate::supervise::spool::kept_from;
use crate::supervise::times;
use crate::wire::chunk::CHUNK_BYTES;
use crate::wire::message::Follow;

/// After so long without a byte the program waits: what it writes in one go is there by then.
const LATE: Duration = Duration::from_secs(1);

/// One file that grows at its end; it need not be there yet.
#[derive(Debug)]
pub(super) struct Tail {
    name: String,
    file: Option<File>,
    numbering: Numbering,
    offset: u64,
    /// Of what was read of it the host may have lost the end.
    outlived_reboot: bool,
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
        let (numbering, sightings) = (Numbering::default(), Sightings::default());
        Self { name, file: None, numbering, offset, outlived_reboot: false, last, sightings }
    }

    /// The host was rebooted since its rank was started: that it ends before what was read of it does not tell that it was emptied.
    pub(super) fn outlive_reboot(&mut self) {
        self.outlived_reboot = true;
    }

    /// Opens it as soon as it is there.
    fn open(&mut self, dir: &RunDir) -> Result<(), SuperviseError> {
        if self.file.is_none() {
            self.file = dir.read(&self.name)?;
            self.numbering = Numbering::open(dir, &self.name);
        }
        Ok(())
    }

    /// Looks whether it was emptied: then the next byte to be read is one before its beginning.
    fn look(&mut self, dir: &RunDir) -> Result<(), SuperviseError> {
        let Some(file) = &self.file else { return Ok(()) };
        // who wants none of it has read none
        let read_to = if self.offset < Follow::NOTHING && !self.outlived_reboot { self.offset } else { 0 };
        let looked = self.numbering.look(dir, file, read_to);
        looked.map_err(|e| self.failed(dir, e))
    }

    /// The next piece; `None` at the end of what is there now.
    pub(super) fn next_piece(&mut self, dir: &RunDir) -> Result<Option<Piece>, SuperviseError> {
        self.open(dir)?;
        let (from, mut piece) = (self.offset, vec![0; CHUNK_BYTES]);
        let read = match (&self.file, from.checked_sub(self.numbering.begin())) {
            (None, _) => return Ok(None),
            (Some(_), None) => 0,
            (Some(file), Some(at)) => file.read_at(&mut piece, at).map_err(|e| self.failed(dir, e))?,
        };
        // After the reading: what was emptied meanwhile may have been read from its middle.
        self.look(dir)?;
        let (Some(file), begin) = (&self.file, self.numbering.begin()) else { return Ok(None) };
        if from < begin {
            self.offset = begin;
            return Ok(Some(Piece::Gap(from, begin, GapReason::Emptied)));
        }
        if read == 0 {
            return Ok(None);
        }
        // After the reading: what was cut meanwhile may have been read as zeros.
        let kept = begin + kept_from(file, from - begin).map_err(|e| self.failed(dir, e))?;
        if kept > from {
            self.offset = kept;
            return Ok(Some(Piece::Gap(from, kept, GapReason::NotKept)));
        }
        if let Some(last) = self.last.take() {
            let to = begin + line_near(file, last).map_err(|e| self.failed(dir, e))?;
            if to > from {
                self.offset = to;
                return Ok(Some(Piece::Gap(from, to, GapReason::NotRead)));
            }
        }
        piece.truncate(read);
        self.offset += read as u64;
        Ok(Some(Piece::Data(from, piece.into())))
    }

    fn failed(&self, dir: &RunDir, source: std::io::Error) -> SuperviseError {
        SuperviseError::Io { doing: "read", path: dir.path().join(&self.name), source }
    }

    /// Up to so many bytes before `offset`, as far as they are kept.
    pub(super) fn before(&self, dir: &RunDir, offset: u64, most: usize) -> Result<Before, SuperviseError> {
        let begin = self.numbering.begin();
        let wanted = offset.saturating_sub(most as u64).max(begin);
        // what was emptied away may have been the beginning of a value
        let is_torn = begin > 0 && wanted == begin;
        let Some(file) = self.file.as_ref().filter(|_| wanted < offset) else {
            return Ok(Before { torn: is_torn, ..Before::default() });
        };
        let mut bytes = vec![0; (offset - wanted) as usize];
        file.read_exact_at(&mut bytes, wanted - begin).map_err(|e| self.failed(dir, e))?;
        // After the reading: what was cut meanwhile may have been read as zeros.
        let kept = begin + kept_from(file, wanted - begin).map_err(|e| self.failed(dir, e))?;
        let kept = kept.min(offset);
        let torn = is_torn || kept > wanted;
        Ok(Before { bytes: Bytes::from(bytes).slice((kept - wanted) as usize..), torn })
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
        let end = self.numbering.begin().saturating_add(self.length(dir).unwrap_or(0));
        end.saturating_sub(self.offset)
    }

    fn length(&self, dir: &RunDir) -> std::io::Result<u64> {
        match &self.file {
            Some(file) => file.metadata().map(|meta| meta.len()),
            None => std::fs::symlink_metadata(dir.path().join(&self.name)).map(|meta| meta.len()),
        }
    }

    /// Looks how long it is, so that what is read of it later has the time of this look.
    pub(super) fn see(&mut self, dir: &RunDir) {
        if self.open(dir).is_err() {
            return;
        }
        let length = self.file.as_ref().map_or(Ok(0), |file| file.metadata().map(|meta| meta.len()));
        if let Some(end) = length.ok().and_then(|length| self.numbering.grown(length)) {
            // after the look: it was so long by then
            self.sightings.see(end, clock::host_now());
        }
    }

    /// Its rank ended at `end`, and writes no more.
    pub(super) fn see_end(&mut self, dir: &RunDir, end: HostTime) {
        // its last words may be the first in a file that they have emptied; an error is told by who reads it
        let _ = self.open(dir).and_then(|()| self.look(dir));
        self.see(dir);
        self.sightings.end(end);
    }

    /// By when the bytes from `from` up to `to` were there, as far as they came since the first look, each moment with how long the
    /// file was then. Nothing before `from` is asked for again.
    fn seen(&mut self, from: u64, to: u64) -> Vec<(u64, HostTime)> {
        self.sightings.forget(from);
        self.sightings.moments(from, to)
    }

    /// By when the bytes from `from` up to `to` of what a rank has printed were there: by what was seen, before that by what its
    /// supervisor has noted. The rank ended at `end`.
    pub(super) fn moments(
        &mut self,
        dir: &RunDir,
        (rank, stream): (Rank, Stream),
        (from, to): (u64, u64),
        end: Option<HostTime>,
    ) -> Vec<(u64, HostTime)> {
        self.see(dir);
        // how long it was at the first look
        let seen_from = self.sightings.begin().clamp(from, to);
        let noted =
            if from < seen_from { times::moments(dir, rank, stream, from, seen_from) } else { Vec::new() };
        let noted = noted.into_iter().map(|(length, t)| (length.min(seen_from), times::not_behind(t, end)));
        noted.chain(self.seen(seen_from, to)).collect()
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
    fn what_is_written_after_an_emptying_comes_whole_behind_a_gap() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let write_anew = |text: &str| std::fs::write(dir.path().join("f"), text).unwrap();
        let new = |offset| Tail::new("f".to_owned(), offset, None);
        let gap = |from, to| Piece::Gap(from, to, GapReason::Emptied);
        let data = |from, text: &'static str| Piece::Data(from, Bytes::from_static(text.as_bytes()));
        write_anew("step 1\n");
        let (mut tail, mut deaf) = (new(0), new(Follow::NOTHING));
        let next = |tail: &mut Tail| tail.next_piece(&dir).unwrap();
        assert_eq!(next(&mut tail), Some(data(0, "step 1\n")));
        assert_eq!((next(&mut tail), next(&mut deaf)), (None, None));
        // as long as it was, and longer
        write_anew("step 2\n");
        assert_eq!(next(&mut tail), Some(gap(7, 8)));
        assert_eq!((tail.behind(&dir), next(&mut tail)), (7, Some(data(8, "step 2\n"))));
        write_anew("then step 3\n");
        assert_eq!(next(&mut tail), Some(gap(15, 16)));
        assert_eq!(next(&mut tail), Some(data(16, "then step 3\n")));
        dir.append("f").unwrap().write_all(b"more\n").unwrap();
        let before = tail.before(&dir, 28, 99).unwrap();
        assert!(before.torn && before.bytes == b"then step 3\n"[..]);
        assert!(!tail.before(&dir, 28, 5).unwrap().torn && tail.before(&dir, 16, 5).unwrap().torn);
        assert_eq!((next(&mut tail), next(&mut tail)), (Some(data(28, "more\n")), None));
        assert_eq!((next(&mut deaf), next(&mut deaf)), (None, None), "who wants none is told none");
        // last words, found when the end is
        write_anew("bye\n");
        tail.see_end(&dir, clock::host_now());
        assert_eq!(tail.behind(&dir), 5);
        assert_eq!((next(&mut tail), next(&mut tail)), (Some(gap(33, 34)), Some(data(34, "bye\n"))));
        // others that come later: from the beginning, after a lost link, and where all was read
        for from in [0, 30] {
            let mut later = new(from);
            assert_eq!((next(&mut later), next(&mut later)), (Some(gap(from, 34)), Some(data(34, "bye\n"))));
        }
        assert_eq!(next(&mut new(38)), None);
        // and one that finds by its own offset that the file was emptied since
        write_anew("x\n");
        let mut later = new(38);
        assert_eq!((next(&mut later), next(&mut later)), (Some(gap(38, 39)), Some(data(39, "x\n"))));
        assert_eq!((next(&mut tail), next(&mut tail)), (Some(gap(38, 39)), Some(data(39, "x\n"))));
    }

    #[test]
    fn a_file_that_has_lost_its_end_with_a_reboot_is_not_told_anew() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        std::fs::write(dir.path().join("f"), "step 1\n").unwrap();
        let mut tail = Tail::new("f".to_owned(), 14, None);
        tail.outlive_reboot();
        assert_eq!((tail.next_piece(&dir).unwrap(), tail.behind(&dir)), (None, 0));
        assert!(!dir.has("f.emptied"));
        tail.rewind(0);
        assert_eq!(rest(&mut tail, &dir, 0), b"step 1\n");
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
