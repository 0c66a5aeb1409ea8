//! Locks of files (`flock`): waited for no longer than is said, and who holds one. Knows nothing of what they guard.
//!
//! A home folder may lie on another machine. What is asked of a file there may take as long as that machine likes: this
//! is for threads that may wait, never for those of the runtime.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use rustix::io::Errno;

/// How long a lock is waited for. A program that writes a line holds it for milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long between two looks.
const STEP: Duration = Duration::from_millis(20);

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Someone else has it.
    #[error("it is locked by {by} for more than {} s: end that, or wait for it, and try again", after.as_secs_f32())]
    Held {
        /// The program and its process, as far as this machine knows them.
        by: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The file system's words.
    #[error("it can't be locked: {}", io::Error::from(*.0))]
    System(Errno),
}

/// Locks an open file for us alone, until it is closed; waits for others for `patience`.
pub fn exclusive(file: impl AsFd, patience: Duration) -> Result<(), LockError> {
    let mut left = patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if left.is_zero() => {
                return Err(LockError::Held { by: holder(file.as_fd()), after: patience });
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let step = STEP.min(left);
                std::thread::sleep(step);
                left = left.saturating_sub(step);
            }
            Err(error) => return Err(LockError::System(error)),
        }
    }
}

/// Gives a lock back at once. Closing the file alone would leave it with a process that is just being started from this one: until
/// it becomes its program, it has the file open too.
pub fn give_back(file: impl AsFd) {
    if let Err(error) = flock(file, FlockOperation::Unlock) {
        tracing::debug!(%error, "a lock is left to the closing of its file");
    }
}

/// Who has the lock of a file, in words.
fn holder(file: BorrowedFd<'_>) -> String {
    let pid = || {
        let stat = fstat(file).ok()?;
        let text = std::fs::read_to_string("/proc/locks").ok()?;
        let key = (major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
        ["WRITE", "READ"].iter().find_map(|kind| flocks(&text, kind).get(&key).copied())
    };
    let Some(pid) = pid().filter(|pid| *pid != 0) else {
        return "a process that can't be seen from here (on another machine or in another container)"
            .to_owned();
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = crate::domain::text::sanitize(name.trim()).into_owned();
    format!("{} (pid {pid})", if name.is_empty() { "a process" } else { &name })
}

/// Who has taken which `flock`, by device and inode.
pub type Flocks = BTreeMap<(u32, u32, u64), u32>;

/// Reads `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 fe:01:131 0 EOF`, those of one kind, `WRITE` for one holder alone or
/// `READ` in common. Lines with `->` wait and hold nothing.
pub fn flocks(text: &str, kind: &str) -> Flocks {
    let lock = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, of_kind, pid, file, ..] = words[..] else { return None };
        if of_kind != kind {
            return None;
        }
        let mut parts = file.split(':');
        let major = u32::from_str_radix(parts.next()?, 16).ok()?;
        let minor = u32::from_str_radix(parts.next()?, 16).ok()?;
        Some(((major, minor, parts.next()?.parse().ok()?), pid.parse().ok()?))
    };
    text.lines().filter_map(lock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_locks_is_read() {
        let text = "1: FLOCK  ADVISORY  WRITE 1234 fe:01:131 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 99 fe:01:131 0 EOF\n\
                    2: POSIX  ADVISORY  WRITE 5 fe:01:132 0 EOF\n3: FLOCK  ADVISORY  READ 6 fe:01:133 0 EOF\nodd\n";
        assert_eq!(flocks(text, "WRITE"), BTreeMap::from([((0xfe, 1, 131), 1234)]));
        assert_eq!(flocks(text, "READ"), BTreeMap::from([((0xfe, 1, 133), 6)]));
    }

    #[test]
    fn a_lock_that_another_has_ends_with_its_name_and_is_ours_when_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let open = || std::fs::File::create(folder.path().join("file")).unwrap();
        let (ours, theirs) = (open(), open());
        exclusive(&theirs, Duration::ZERO).unwrap();
        let error = exclusive(&ours, Duration::from_millis(100)).unwrap_err().to_string();
        assert!(error.contains(&format!("(pid {}) for more than 0.1 s", std::process::id())), "{error}");
        // a process that is being started has it open too
        let copy = theirs.try_clone().unwrap();
        give_back(&theirs);
        drop(theirs);
        exclusive(&ours, Duration::ZERO).unwrap();
        drop(copy);
    }
}
