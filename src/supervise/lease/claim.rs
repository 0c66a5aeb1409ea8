//! Takes the locks of a host's ranks: all or none. In the order of the GPUs' names, so that of several runs that
//! want the same GPUs one gets all of them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, statat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::note::{self, Draft, Note};
use super::place::LeaseDir;
use super::{LeaseError, look};
use crate::clock;
use crate::domain::ids::{GpuUuid, Rank};
use crate::domain::lease::Lease;
use crate::domain::run::HostRun;
use crate::supervise::identity::Identity;
use crate::supervise::os_text;

/// A lock's file may be replaced by its owner while it is being locked; not for ever.
const TRIES: u32 = 10;
/// A holder writes its note right after it has the lock: how often and how long it is waited for.
const NOTE_TRIES: u32 = 5;
pub(super) const NOTE_PAUSE: Duration = Duration::from_millis(20);

/// The locks of a host's ranks that no rank-wrap has yet. What is not handed over is given back at its end.
#[derive(Debug, Default)]
pub struct Claims {
    dir: Option<LeaseDir>,
    held: BTreeMap<Rank, Claim>,
}

#[derive(Debug)]
struct Claim {
    gpu: GpuUuid,
    fd: OwnedFd,
    note: Note,
}

/// Takes every lock that a host's share of a run needs, or none.
pub fn claim(spec: &HostRun) -> Result<Claims, LeaseError> {
    let plan = &spec.leases;
    if plan.gpus.is_empty() {
        return Ok(Claims::default());
    }
    let dir = LeaseDir::open(plan.dir.as_deref())?;
    let mut held = BTreeMap::new();
    let taken = take(&dir, spec, &mut held);
    let claims = Claims { dir: Some(dir), held };
    taken.map(|()| claims)
}

fn take(dir: &LeaseDir, spec: &HostRun, held: &mut BTreeMap<Rank, Claim>) -> Result<(), LeaseError> {
    let process = Identity::own().map_err(|e| LeaseError::NoPlace(os_text(&e)))?;
    let mut wanted: Vec<(&GpuUuid, Rank)> = spec.leases.gpus.iter().map(|(rank, gpu)| (gpu, *rank)).collect();
    wanted.sort();
    for (gpu, rank) in wanted {
        let (run, name, since) = (spec.run.clone(), spec.name.clone(), clock::host_now());
        let note = Note { process: process.clone(), run, name, rank, since };
        // Written before the lock is tried, so that who sees the lock sees the note. Information only: without
        // it the GPU is held all the same.
        let draft = Draft::write(dir, &note_file(dir, gpu, own_uid()), &note);
        let Some(fd) = lock(dir, gpu)? else {
            let holder = holder(dir, gpu);
            if spec.leases.share && holder.own {
                continue;
            }
            return Err(LeaseError::Busy(vec![holder]));
        };
        let _ = draft.and_then(Draft::publish);
        held.insert(rank, Claim { gpu: gpu.clone(), fd, note });
    }
    Ok(())
}

impl Claims {
    /// Starts a rank-wrap that inherits the lock of its rank, if it has one, and nobody else's.
    pub fn inherit<T, E>(&self, rank: Rank, start: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let Some(claim) = self.held.get(&rank) else { return start() };
        // These fail for a descriptor that is closed, which this one is not. A program that starts without its
        // lock still runs; its GPU then counts as free.
        let _ = fcntl_setfd(&claim.fd, FdFlags::empty());
        let started = start();
        let _ = fcntl_setfd(&claim.fd, FdFlags::CLOEXEC);
        started
    }

    /// The rank-wrap has its lock: ours goes, and its note names the rank-wrap.
    pub fn handed_over(&mut self, rank: Rank, wrap: &Identity) {
        if let (Some(claim), Some(dir)) = (self.held.remove(&rank), &self.dir) {
            let note = Note { process: wrap.clone(), ..claim.note };
            let _ = note::write(dir, &note_file(dir, &claim.gpu, own_uid()), &note);
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        for claim in self.held.values() {
            if let Some(dir) = &self.dir {
                note::remove(dir, &note_file(dir, &claim.gpu, own_uid()));
            }
        }
    }
}

/// Takes this process's note away. Called while the lock is still held, so that it is nobody else's.
pub fn retire(spec: &HostRun, rank: Rank) {
    let Some(gpu) = spec.leases.gpus.get(&rank) else { return };
    let Ok(dir) = LeaseDir::open(spec.leases.dir.as_deref()) else { return };
    let file = note_file(&dir, gpu, own_uid());
    let written: Option<Note> = note::read(&dir, &file, own_uid());
    if written.is_some_and(|note| note.process.pid == std::process::id()) {
        note::remove(&dir, &file);
    }
}

/// `None` when somebody has it.
fn lock(dir: &LeaseDir, gpu: &GpuUuid) -> Result<Option<OwnedFd>, LeaseError> {
    let name = lock_file(dir, gpu)?;
    let fault = |detail: String| LeaseError::File { gpu: gpu.clone(), path: dir.path_of(&name), detail };
    for _ in 0..TRIES {
        let fd = match open(dir, &name) {
            Ok(fd) => fd,
            Err(Errno::LOOP) => {
                return Err(fault("is a symbolic link: whose it is, it must go".to_owned()));
            }
            Err(Errno::ACCESS) => return Err(fault(format!("can't be opened{}", whose(dir, &name)))),
            Err(e) => return Err(fault(os_text(&e.into()))),
        };
        let stat = fstat(&fd).map_err(|e| fault(os_text(&e.into())))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(fault(format!("is no regular file{}", whose(dir, &name))));
        }
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(e) => return Err(fault(os_text(&e.into()))),
        }
        // A file that was removed meanwhile locks nothing.
        let there = statat(&dir.fd, &name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)) {
            return Ok(Some(fd));
        }
    }
    Err(fault("is replaced again and again".to_owned()))
}

/// Opens a lock's file to read, which is all that a lock needs; makes it where it is not there. Opened for
/// creation only when it is absent: kernels refuse that for the files of others in sticky directories.
fn open(dir: &LeaseDir, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    loop {
        match openat(&dir.fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        match openat(&dir.fd, name, flags | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(0o644)) {
            Ok(fd) => {
                // whatever our umask is, others must be able to lock it
                fchmod(&fd, Mode::from_raw_mode(0o644))?;
                return Ok(fd);
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
}

fn whose(dir: &LeaseDir, name: &str) -> String {
    statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(String::new(), |stat| format!(": {} has put it there", note::user_name(stat.st_uid)))
}

/// Who has a lock that we did not get. Its note may be on its way.
fn holder(dir: &LeaseDir, gpu: &GpuUuid) -> Lease {
    let mut found = None;
    for _ in 0..NOTE_TRIES {
        found = look::look(dir, std::slice::from_ref(gpu)).held.pop();
        if found.as_ref().is_some_and(|lease| lease.run.is_some()) {
            break;
        }
        std::thread::sleep(NOTE_PAUSE);
    }
    found.unwrap_or_else(|| look::unknown(gpu))
}

pub(super) fn lock_file(dir: &LeaseDir, gpu: &GpuUuid) -> Result<String, LeaseError> {
    let uuid = gpu.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if uuid.is_empty() || uuid.len() > 80 || !uuid.chars().all(plain) {
        return Err(LeaseError::BadName(uuid.chars().take(80).collect()));
    }
    Ok(format!("{}{uuid}.lock", dir.prefix))
}

pub(super) fn note_file(dir: &LeaseDir, gpu: &GpuUuid, uid: u32) -> String {
    format!("{}{gpu}.{uid}.json", dir.prefix)
}

pub(super) fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
