//! Reads an append-only file piece by piece from a given byte on, and waits for a directory to change.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;
use crate::wire::message::CHUNK_BYTES;

/// One file that grows at its end; it need not be there yet.
#[derive(Debug)]
pub(super) struct Tail {
    name: String,
    file: Option<File>,
    offset: u64,
}

impl Tail {
    /// Will read from `offset` on.
    pub(super) fn new(name: String, offset: u64) -> Self {
        Self { name, file: None, offset }
    }

    /// The next piece and where it begins; `None` at the end of what is there now.
    pub(super) fn next_piece(&mut self, dir: &RunDir) -> Result<Option<(u64, Bytes)>, SuperviseError> {
        if self.file.is_none() {
            self.file = dir.read(&self.name)?;
        }
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let mut piece = vec![0; CHUNK_BYTES];
        let read = file.read_at(&mut piece, self.offset).map_err(|source| SuperviseError::Io {
            doing: "read",
            path: dir.path().join(&self.name),
            source,
        })?;
        if read == 0 {
            return Ok(None);
        }
        piece.truncate(read);
        let begin = self.offset;
        self.offset += read as u64;
        Ok(Some((begin, piece.into())))
    }

    /// The next byte to be read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads again from an earlier byte on.
    pub(super) fn rewind(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// How many bytes that are there now were not read yet.
    pub(super) fn behind(&self, dir: &RunDir) -> u64 {
        let length = match &self.file {
            Some(file) => file.metadata().map(|meta| meta.len()).ok(),
            None => std::fs::symlink_metadata(dir.path().join(&self.name)).map(|meta| meta.len()).ok(),
        };
        length.unwrap_or(0).saturating_sub(self.offset)
    }
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

    #[test]
    fn every_byte_comes_once_and_in_order() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let mut tail = Tail::new("rank-0.out".to_owned(), 3);
        assert_eq!((tail.next_piece(&dir).unwrap(), tail.behind(&dir)), (None, 0));
        let watcher = Watcher::new(dir.path());
        let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        dir.append("rank-0.out").unwrap().write_all(&bytes).unwrap();
        watcher.wait(Duration::from_secs(600));
        assert_eq!(tail.behind(&dir), 99_997);
        let mut seen = Vec::new();
        while let Some((begin, piece)) = tail.next_piece(&dir).unwrap() {
            assert_eq!(begin as usize, 3 + seen.len());
            assert!(piece.len() <= CHUNK_BYTES);
            seen.extend_from_slice(&piece);
        }
        assert_eq!(seen, &bytes[3..]);
        assert_eq!(tail.behind(&dir), 0);
    }
}
