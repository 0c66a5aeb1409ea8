//! A note that counts while it is locked: a ticket of the queue, a run beside another one on its owner's GPU. The
//! process that puts it there locks the file before it has its name, so each reader sees it locked, and death ends
//! it. No other process ever wants the lock: to try it for a moment does no harm.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::LeaseError;
use super::claim::own_uid;
use super::note::{self, Draft};
use super::place::LeaseDir;
use crate::domain::text::os_text;
use crate::procs::identity::Identity;

/// A record may be read while it is written anew.
const READ_TRIES: u32 = 3;
const READ_PAUSE: Duration = Duration::from_millis(1);

/// What names the process that stands behind it.
pub(super) trait OfProcess {
    fn process(&self) -> &Identity;
}

/// A record of ours, locked as long as this or a copy of its descriptor lives.
#[derive(Debug)]
pub(super) struct LockRecord {
    file: String,
    fd: OwnedFd,
}

impl LockRecord {
    pub(super) fn put<T: Serialize>(dir: &LeaseDir, file: &str, value: &T) -> Result<Self, LeaseError> {
        let put = || {
            let draft = Draft::write(dir, file, value)?;
            flock(draft.file(), FlockOperation::NonBlockingLockExclusive)?;
            let fd = OwnedFd::from(draft.file().try_clone()?);
            draft.publish()?;
            Ok(fd)
        };
        let failed = |e: std::io::Error| LeaseError::Place { path: dir.path_of(file), detail: os_text(&e) };
        Ok(Self { file: file.to_owned(), fd: put().map_err(failed)? })
    }

    /// A record that another process of ours has put there and handed over.
    pub(super) fn received(file: String, fd: OwnedFd) -> Self {
        Self { file, fd }
    }

    /// Says something else in the same file, whose lock stays. In one write.
    pub(super) fn say<T: Serialize>(&self, value: &T) -> std::io::Result<()> {
        let mut bytes = serde_json::to_vec(value)?;
        let long = usize::try_from(fstat(&self.fd)?.st_size).unwrap_or_default();
        // what was longer before must not show behind it
        bytes.resize(bytes.len().max(long), b' ');
        rustix::io::pwrite(&self.fd, &bytes, 0)?;
        Ok(())
    }

    pub(super) fn remove(&self, dir: &LeaseDir) {
        remove(dir, &self.file, &self.fd);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Reads a record of a user that counts. One of ours that counts no more is removed.
pub(super) fn read<T: DeserializeOwned + OfProcess>(dir: &LeaseDir, name: &str, uid: u32) -> Option<T> {
    let file = note::open(dir, name, uid)?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {}
        Err(_) => return None,
        Ok(()) => {
            if uid == own_uid() {
                remove(dir, name, &file);
            }
            return None;
        }
    }
    let value: T = parse(&file)?;
    // Another user may lock what we have left behind: that alone must not make it count.
    let process = value.process();
    (note::is_users(process, uid) || note::is_hidden(process.pid)).then_some(value)
}

/// Removes this very record: another process may have put its own in the place of it meanwhile.
fn remove(dir: &LeaseDir, name: &str, record: impl AsFd) {
    if note::is_file(dir, name, record) {
        note::remove(dir, name);
    }
}

fn parse<T: DeserializeOwned>(file: &File) -> Option<T> {
    for _ in 0..READ_TRIES {
        if let Some(value) = note::parse(file) {
            return Some(value);
        }
        std::thread::sleep(READ_PAUSE);
    }
    None
}
