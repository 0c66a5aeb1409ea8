//! Which process has a lock, by the kernel's lists of locks and of open files. Knows nothing of notes.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{AtFlags, major, minor, statat};

use super::claim::lock_file;
use super::place::LeaseDir;
use crate::clock;
use crate::domain::ids::GpuUuid;
use crate::domain::text::sanitize;
use crate::domain::time::HostTime;
use crate::filelock::flocks;
use crate::procs::identity::Stat;
use crate::procs::{memory, table};

/// Characters of a command line that are told.
const COMMAND: usize = 120;
/// Open files of a process that are looked through. A process of a stranger may have as many as it likes.
const FILES: usize = 4096;

/// The lock file of a GPU as it is there now.
pub(super) struct LockFile {
    /// Its name in the directory of leases.
    pub(super) name: String,
    /// Device and inode, as the kernel's lists name it.
    pub(super) at: (u32, u32, u64),
}

impl LockFile {
    pub(super) fn of(dir: &LeaseDir, gpu: &GpuUuid) -> Option<Self> {
        let name = lock_file(dir, gpu).ok()?;
        let stat = statat(&dir.fd, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self { name, at: (major(stat.st_dev), minor(stat.st_dev), stat.st_ino) })
    }

    /// Whether a process has its lock open, be it one that another process took. The error is that its open files can't be
    /// seen, as those of other users without root's right to trace, or are too many.
    pub(super) fn is_locked_by(&self, pid: u32) -> io::Result<bool> {
        let process = Path::new("/proc").join(pid.to_string());
        for (number, open) in std::fs::read_dir(process.join("fd"))?.flatten().enumerate() {
            if number == FILES {
                return Err(io::Error::other("it has too many files open"));
            }
            // What a driver tells of its device may take long; only files are asked about.
            let is_file = |path: &Path| {
                path.is_absolute() && (!path.starts_with("/dev") || path.starts_with("/dev/shm"))
            };
            if !seen(std::fs::read_link(open.path()))?.is_some_and(|path| is_file(&path)) {
                continue;
            }
            let told = seen(std::fs::read_to_string(process.join("fdinfo").join(open.file_name())))?;
            if told.is_some_and(|told| self.is_locked_in(&told)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file of `/proc/PID/fdinfo` has its lock: `lock:`, then a line as those of `/proc/locks`.
    fn is_locked_in(&self, told: &str) -> bool {
        let locks: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("lock:")).collect();
        let locks = locks.join("\n");
        ["WRITE", "READ"].iter().any(|kind| flocks(&locks, kind).contains_key(&self.at))
    }

    /// Another process than this one that has its lock, of those whose open files can be seen and are reached in time. Reads
    /// the whole process table.
    pub(super) fn keeper(&self, until: HostTime) -> Option<u32> {
        let pids = table::all().into_iter().map(|process| process.pid);
        let mut pids = pids.take_while(|_| clock::host_now() < until);
        pids.find(|pid| *pid != std::process::id() && self.is_locked_by(*pid).is_ok_and(|has| has))
    }
}

/// `None` of a file that was closed meanwhile; the error is that it is not ours to see. Who may list the open files of a process
/// need not be allowed to read them: root in a container.
fn seen<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        read => Ok(read.ok()),
    }
}

/// What a process was started with, in words that can be shown.
pub(super) fn command(pid: u32) -> Option<String> {
    let name = || Some(format!("[{}]", Stat::read(pid).ok()?.name));
    let words = memory::command_words(pid, COMMAND).or_else(name)?;
    Some(sanitize(&words).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_read_is_unknown_and_what_was_closed_is_no_lock() {
        assert_eq!(seen(Ok(1)).unwrap(), Some(1));
        assert_eq!(seen::<u32>(Err(ErrorKind::NotFound.into())).unwrap(), None);
        assert!(seen::<u32>(Err(ErrorKind::PermissionDenied.into())).is_err());
    }

    #[test]
    fn a_lock_is_found_in_what_the_kernel_tells_of_an_open_file() {
        let file = LockFile { name: "GPU-1.lock".to_owned(), at: (0, 0x1b, 358) };
        let told = |lock: &str| format!("pos:\t0\nflags:\t0100001\nmnt_id:\t30\nino:\t358\n{lock}");
        for kind in ["WRITE", "READ"] {
            // of another namespace of processes it has the number 0
            for pid in [0, 18_822] {
                let lock = format!("lock:\t1: FLOCK  ADVISORY  {kind} {pid} 00:1b:358 0 EOF\n");
                assert!(file.is_locked_in(&told(&lock)), "{lock}");
            }
        }
        for lock in [
            "",
            "lock:\t1: FLOCK  ADVISORY  WRITE 7 00:1c:358 0 EOF\n",
            "lock:\t1: FLOCK  ADVISORY  WRITE 7 00:1b:359 0 EOF\n",
            "lock:\t1: POSIX  ADVISORY  WRITE 7 00:1b:358 0 EOF\n",
        ] {
            assert!(!file.is_locked_in(&told(lock)), "{lock}");
        }
    }
}
