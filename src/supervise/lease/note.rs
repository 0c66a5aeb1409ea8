//! The note beside a lock: which run holds it. A note is believed only as far as the kernel vouches for it: it is
//! its file's owner's word, about a process of that owner that lives.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::claim::own_uid;
use super::place::LeaseDir;
use crate::domain::ids::{GpuUuid, Rank, RunId};
use crate::domain::lease::Lease;
use crate::domain::time::HostTime;
use crate::procs::identity::Identity;
use crate::procs::status;

/// No note is longer.
const LIMIT: u64 = 64 * 1024;

/// For whom a lock is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The process that has the lock.
    pub(super) process: Identity,
    /// The run.
    pub(super) run: RunId,
    /// Its name.
    pub(super) name: String,
    /// The rank.
    pub(super) rank: Rank,
    /// Since when.
    pub(super) since: HostTime,
}

/// `hvtui-GPU-1.1000.json.4711.0`: what is written until it gets its name.
fn draft_name(name: &str) -> String {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    format!("{name}.{}.{}", std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed))
}

/// Whether a file of this name in a folder of leases was to get another one: none is there once all is over.
pub fn is_draft(name: &str) -> bool {
    let numbered = |name: &str| name.rsplit_once('.').is_some_and(|(_, end)| end.parse::<u64>().is_ok());
    numbered(name) && name.rsplit_once('.').is_some_and(|(inner, _)| numbered(inner))
}

/// Writes a file that everybody may read, in the place of our last one. A file or link that another user has put
/// there stays, and is an error.
pub(super) fn write<T: Serialize>(dir: &LeaseDir, name: &str, value: &T) -> std::io::Result<()> {
    Draft::write(dir, name, value)?.publish()
}

/// A file that is written and not yet in its place: what is left to do then is one call. Gone when it is dropped.
pub(super) struct Draft<'d> {
    dir: &'d LeaseDir,
    name: String,
    temporary: String,
    file: File,
}

impl<'d> Draft<'d> {
    pub(super) fn write<T: Serialize>(dir: &'d LeaseDir, name: &str, value: &T) -> std::io::Result<Self> {
        let temporary = draft_name(name);
        // one that an earlier process of this number has left
        let _ = unlinkat(&dir.fd, &temporary, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&dir.fd, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let mut draft = Self { dir, name: name.to_owned(), temporary, file };
        draft.file.write_all(&serde_json::to_vec(value)?)?;
        rustix::fs::fchmod(&draft.file, Mode::from_raw_mode(0o644))?;
        Ok(draft)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn publish(self) -> std::io::Result<()> {
        Ok(renameat(&self.dir.fd, &self.temporary, &self.dir.fd, &self.name)?)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // a published one is not there any more
        let _ = unlinkat(&self.dir.fd, &self.temporary, AtFlags::empty());
    }
}

/// What a process has written for one of these names that begin with `head`, and has not put in its place yet; with whose
/// it is. `None` where there are several: of which of them it has the lock is not told.
pub(super) fn draft<T: DeserializeOwned>(
    dir: &LeaseDir,
    names: &[String],
    head: &str,
    process: u32,
) -> Option<(u32, T)> {
    let uid = |name: &String| {
        let (uid, of) = name.strip_prefix(head)?.split_once(".json.")?;
        let (pid, _) = of.split_once('.')?;
        (pid.parse() == Ok(process)).then(|| uid.parse::<u32>().ok())?
    };
    let mut drafts = names.iter().filter_map(|name| Some((uid(name)?, name)));
    let (uid, name) = drafts.next().filter(|_| drafts.next().is_none())?;
    Some((uid, read(dir, name, uid)?))
}

/// Reads what `uid` wrote there; `None` for anything else.
pub(super) fn read<T: DeserializeOwned>(dir: &LeaseDir, name: &str, uid: u32) -> Option<T> {
    parse(&open(dir, name, uid)?)
}

/// Opens what `uid` wrote there; `None` for anything else.
pub(super) fn open(dir: &LeaseDir, name: &str, uid: u32) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&dir.fd, name, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    let ours = stat.st_uid == uid && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    ours.then(|| File::from(file))
}

/// What a note says, from its beginning on.
pub(super) fn parse<T: DeserializeOwned>(mut file: &File) -> Option<T> {
    file.rewind().ok()?;
    let mut bytes = Vec::new();
    file.take(LIMIT).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// What the note of a user tells.
pub(super) fn told(gpu: &GpuUuid, uid: u32, note: Note) -> Lease {
    Lease {
        gpu: gpu.clone(),
        user: Some(status::user_name(uid)),
        own: uid == own_uid(),
        pid: Some(note.process.pid),
        command: None,
        run: Some(note.run),
        name: Some(note.name.chars().take(64).collect()),
        rank: Some(note.rank),
        since: Some(note.since),
    }
}

/// Whether an open file is the one of this name.
pub(super) fn is_file(dir: &LeaseDir, name: &str, fd: impl AsFd) -> bool {
    let there = statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW);
    let open = fstat(fd);
    matches!((there, open), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// Removes a note of ours.
pub(super) fn remove(dir: &LeaseDir, name: &str) {
    let _ = unlinkat(&dir.fd, name, AtFlags::empty());
}

/// Whether a process lives and is this user's.
pub(super) fn is_users(process: &Identity, uid: u32) -> bool {
    process.alive() && uid_of(process.pid) == Some(uid)
}

/// Whether a process may live without our seeing it: `/proc` hides those of others.
pub(super) fn is_hidden(pid: u32) -> bool {
    uid_of(1).is_none() && uid_of(pid).is_none()
}

/// The real uid of a process; `None` where it is not visible.
pub(super) fn uid_of(pid: u32) -> Option<u32> {
    status::real_uid(pid).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_told_from_a_note_and_a_lock() {
        assert!(is_draft(&draft_name("hvtui-GPU-1.1000.json")));
        for name in ["hvtui-GPU-1.1000.json", "hvtui-GPU-1.lock", "GPU-1.1000", "python3.11.2x"] {
            assert!(!is_draft(name), "{name}");
        }
    }
}
