//! Takes the locks of a host's ranks: all or none. In the order of the GPUs' names, so that of several runs that
//! want the same GPUs one gets all of them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, statat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::lock_record::LockRecord;
use super::note::{self, Draft, Note, is_file};
use super::place::{LeaseDir, PREFIX};
use super::{LeaseError, look, shared_lease, socket_lock};
use crate::clock;
use crate::domain::ids::{GpuUuid, Rank};
use crate::domain::lease::Lease;
use crate::domain::run::HostRun;
use crate::domain::text::os_text;
use crate::procs::identity::Identity;
use crate::procs::status::user_name;

/// A lock's file may be replaced by its owner while it is being locked; not for ever.
const TRIES: u32 = 10;
/// A holder writes its note right after it has the lock, and anew when it hands the lock over: how often and how long it
/// is waited for, a second in all. A holder on a busy host has taken more than a tenth of that.
const NOTE_TRIES: u32 = 50;
pub(super) const NOTE_PAUSE: Duration = Duration::from_millis(20);

/// The locks of a host's ranks that no rank-wrap has yet. What is not handed over is given back at its end.
#[derive(Debug, Default)]
pub struct Claims {
    dir: Option<LeaseDir>,
    held: BTreeMap<GpuUuid, Claim>,
}

#[derive(Debug)]
struct Claim {
    gpu: GpuUuid,
    rank: Rank,
    hold: Hold,
    /// Of a MIG slice the lock of its GPU, which it has in common with the other slices.
    whole: Option<OwnedFd>,
    /// Its name among the kernel's sockets.
    name: OwnedFd,
    note: Note,
}

/// How a rank has its GPU.
#[derive(Debug)]
enum Hold {
    /// By the GPU's lock.
    Lock(OwnedFd),
    /// Beside another run of the same user.
    Shared(LockRecord),
}

/// Takes every lock that a host's share of a run needs, or none.
pub fn claim(spec: &HostRun) -> Result<Claims, LeaseError> {
    if spec.leases.held.is_empty() {
        return Ok(Claims::default());
    }
    let dir = LeaseDir::open(spec.leases.dir.as_deref())?;
    let mut claims = Claims { dir: None, held: BTreeMap::new() };
    let taken = take(&dir, spec, &mut claims.held);
    claims.dir = Some(dir);
    taken.map(|()| claims)
}

fn take(dir: &LeaseDir, spec: &HostRun, held: &mut BTreeMap<GpuUuid, Claim>) -> Result<(), LeaseError> {
    let process = own_process()?;
    for (gpu, rank) in &spec.leases.held {
        let note = new_note(spec, *rank, process.clone());
        let slice_of = spec.leases.slice_of.get(gpu);
        let whole = slice_of.map(|whole| beside_slices(dir, whole)).transpose()?;
        let (how, name) = hold(dir, gpu, slice_of, &note, spec.leases.share)?;
        held.insert(gpu.clone(), Claim { gpu: gpu.clone(), rank: *rank, hold: how, whole, name, note });
    }
    Ok(())
}

/// The lock of a GPU for one of its slices: others get it for theirs, and nothing gets the whole.
fn beside_slices(dir: &LeaseDir, whole: &GpuUuid) -> Result<OwnedFd, LeaseError> {
    for _ in 0..NOTE_TRIES {
        if let Some(lock) = lock(dir, whole, FlockOperation::NonBlockingLockShared)? {
            return Ok(lock);
        }
        if let Some(first) = holder(dir, whole) {
            return Err(LeaseError::Busy(look::named(dir, vec![first])));
        }
        // It was given back just now, or a process that was forked meanwhile has a copy of it for a moment.
        std::thread::sleep(NOTE_PAUSE);
    }
    Err(LeaseError::Busy(look::named(dir, vec![Lease::unknown(whole.clone())])))
}

/// Takes a GPU's lock and its name: two locks, of which each excludes others where the other one can't. Of a slice the
/// name stands below that of its GPU.
fn hold(
    dir: &LeaseDir,
    gpu: &GpuUuid,
    slice_of: Option<&GpuUuid>,
    note: &Note,
    share: bool,
) -> Result<(Hold, OwnedFd), LeaseError> {
    let busy = |holder: Lease| Err(LeaseError::Busy(look::named(dir, vec![holder])));
    let mut tries = 0;
    let mut of_whole = None;
    let first = loop {
        // Written before the lock is tried, so that who sees the lock sees the note. Information only: without
        // it the GPU is held all the same.
        let draft = Draft::write(dir, &note_file(dir, gpu, own_uid()), note);
        let mut unseen = None;
        if let Some(fd) = lock(dir, gpu, FlockOperation::NonBlockingLockExclusive)? {
            match socket_lock::take(dir, gpu, slice_of, share)? {
                // The lock's file was removed while it was held, or the name goes a moment after the lock.
                Err(other) => unseen = Some(other),
                Ok(name) => {
                    let _ = draft.and_then(Draft::publish);
                    return match left_beside(dir, gpu, share) {
                        None => Ok((Hold::Lock(fd), name)),
                        Some(other) => {
                            // while the lock is still held, so that no other process has it
                            note::remove(dir, &note_file(dir, gpu, own_uid()));
                            busy(other)
                        }
                    };
                }
            }
        }
        // Where the name of the whole was in the way, lock and name of the slice may be ours, which we have just let go, also the
        // next time: they stay for as long as a process that was forked meanwhile has its copies of them.
        of_whole = unseen.clone().filter(|other| other.gpu != *gpu).or(of_whole);
        match holder(dir, gpu).filter(|first| of_whole.is_none() || first.run.is_some()) {
            Some(first) => break first,
            // It was given back just now: there is no holder that could be named, and none to refuse for.
            None if tries < NOTE_TRIES => {
                tries += 1;
                std::thread::sleep(NOTE_PAUSE);
            }
            None => {
                let other = of_whole.or(unseen).or_else(|| look::in_common(dir, gpu));
                break other.unwrap_or_else(|| Lease::unknown(gpu.clone()));
            }
        }
    };
    if !(share && first.own) {
        return busy(first);
    }
    let record = shared_lease::put(dir, gpu, note)?;
    // It may have ended before our record was there, and another user may have come and not seen it: then it is
    // theirs. A process that comes after the record sees it.
    if let Some(first) = holder(dir, gpu).filter(|first| !first.own && first.user.is_some()) {
        record.remove(dir);
        return busy(first);
    }
    let name = socket_lock::name_beside(dir, gpu, &note.run, note.rank);
    if let Some(name) = socket_lock::take_name(dir, gpu, &name)? {
        return Ok((Hold::Shared(record), name));
    }
    record.remove(dir);
    busy(first)
}

/// A run that uses a GPU beside one that has ended. Called with the lock held: no new one comes but those of our own.
fn left_beside(dir: &LeaseDir, gpu: &GpuUuid, share: bool) -> Option<Lease> {
    let mut found = None;
    for _ in 0..NOTE_TRIES {
        found = look::beside_on(dir, gpu).into_iter().find(|lease| !(share && lease.own));
        // one of another user's that came too late for the GPU goes at once
        if found.as_ref().is_none_or(|lease| lease.own) {
            break;
        }
        std::thread::sleep(NOTE_PAUSE);
    }
    found
}

fn own_process() -> Result<Identity, LeaseError> {
    Identity::own().map_err(|e| LeaseError::NoPlace(os_text(&e)))
}

fn new_note(spec: &HostRun, rank: Rank, process: Identity) -> Note {
    Note { process, run: spec.run.clone(), name: spec.name.clone(), rank, since: clock::host_now() }
}

impl Claims {
    /// The GPUs, each with what holds it: what a supervisor is handed. A GPU stands there twice, a MIG slice three times.
    pub fn descriptors(&self) -> impl Iterator<Item = (&GpuUuid, BorrowedFd<'_>)> {
        self.held.iter().flat_map(|(gpu, claim)| claim.descriptors().map(move |fd| (gpu, fd)))
    }

    /// What another process of this run has taken and handed over. It is checked that each is the lock that it should
    /// be, and no GPU may be missing.
    pub fn received(spec: &HostRun, got: Vec<(GpuUuid, OwnedFd)>) -> Result<Self, LeaseError> {
        if spec.leases.held.is_empty() {
            return Ok(Self::default());
        }
        let dir = LeaseDir::open(spec.leases.dir.as_deref())?;
        let process = own_process()?;
        let mut got = got;
        let mut held = BTreeMap::new();
        for (gpu, rank) in &spec.leases.held {
            let lost = || LeaseError::Lost(gpu.clone());
            let slice_of = spec.leases.slice_of.get(gpu);
            let whole_file = slice_of.map(|whole| lock_file(&dir, whole)).transpose()?;
            let mut take = |file: &dyn Fn(&OwnedFd) -> bool| {
                let at = got.iter().position(|(of, fd)| of == gpu && file(fd))?;
                Some(got.swap_remove(at).1)
            };
            let whole = match &whole_file {
                Some(file) => Some(take(&|fd| is_file(&dir, file, fd)).ok_or_else(lost)?),
                None => None,
            };
            let names = [
                socket_lock::name(&dir, gpu, slice_of),
                socket_lock::name_beside(&dir, gpu, &spec.run, *rank),
            ];
            let name = take(&|fd| names.iter().any(|name| socket_lock::is(fd, name))).ok_or_else(lost)?;
            let fd = take(&|_| true).ok_or_else(lost)?;
            let beside = shared_lease::file(&dir, gpu, &spec.run, *rank);
            let how = if is_file(&dir, &lock_file(&dir, gpu)?, &fd) {
                Hold::Lock(fd)
            } else if is_file(&dir, &beside, &fd) {
                Hold::Shared(LockRecord::received(beside, fd))
            } else {
                return Err(lost());
            };
            let note = new_note(spec, *rank, process.clone());
            let claim = Claim { gpu: gpu.clone(), rank: *rank, hold: how, whole, name, note };
            claim.tell(&dir, &process);
            held.insert(gpu.clone(), claim);
        }
        Ok(Self { dir: Some(dir), held })
    }

    /// Another process of this run has them all, and tells about them.
    pub fn passed_on(mut self) {
        self.held.clear();
    }

    /// Starts a rank-wrap that inherits the locks of its rank, if it has any, and no others.
    pub fn inherit<T, E>(&self, rank: Rank, start: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.inherit_of(|of| of == rank, start)
    }

    /// Starts a process that inherits every lock: it stands for all ranks.
    pub fn inherit_all<T, E>(&self, start: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.inherit_of(|_| true, start)
    }

    /// Starts a process that inherits the locks of these ranks alone.
    fn inherit_of<T, E>(
        &self,
        of: impl Fn(Rank) -> bool,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        // These fail for a descriptor that is closed, which none is. A program that starts without its lock still
        // runs; its GPU then counts as free.
        let set = |flags: FdFlags| {
            for claim in self.held.values().filter(|claim| of(claim.rank)) {
                for fd in claim.descriptors() {
                    let _ = fcntl_setfd(fd, flags);
                }
            }
        };
        set(FdFlags::empty());
        let started = start();
        set(FdFlags::CLOEXEC);
        started
    }

    /// The rank-wrap has its locks: ours go, and their notes name the rank-wrap.
    pub fn handed_over(&mut self, rank: Rank, wrap: &Identity) {
        let Some(dir) = &self.dir else { return };
        self.held.retain(|_, claim| {
            if claim.rank == rank {
                claim.tell(dir, wrap);
            }
            claim.rank != rank
        });
    }
}

impl Claim {
    /// What holds it.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let locks = std::iter::once(self.hold.fd()).chain(self.whole.as_ref().map(AsFd::as_fd));
        locks.chain([self.name.as_fd()])
    }

    /// Names the process that holds it from now on.
    fn tell(&self, dir: &LeaseDir, process: &Identity) {
        let note = Note { process: process.clone(), ..self.note.clone() };
        let _ = match &self.hold {
            Hold::Lock(_) => note::write(dir, &note_file(dir, &self.gpu, own_uid()), &note),
            Hold::Shared(record) => record.say(&note),
        };
    }
}

impl Hold {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Lock(fd) => fd.as_fd(),
            Self::Shared(record) => record.fd(),
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        let Some(dir) = &self.dir else { return };
        for claim in self.held.values() {
            match &claim.hold {
                Hold::Lock(_) => forget(dir, &note_file(dir, &claim.gpu, own_uid())),
                Hold::Shared(record) => record.remove(dir),
            }
        }
    }
}

/// Takes this process's notes away. Called while the locks are still held, so that they are of no one else.
pub fn retire(spec: &HostRun, rank: Rank) {
    let mut own = spec.leases.held.iter().filter(|(_, of)| **of == rank).peekable();
    if own.peek().is_none() {
        return;
    }
    let Ok(dir) = LeaseDir::open(spec.leases.dir.as_deref()) else { return };
    for (gpu, _) in own {
        note::remove(&dir, &shared_lease::file(&dir, gpu, &spec.run, rank));
        forget(&dir, &note_file(&dir, gpu, own_uid()));
    }
}

/// Removes a note that names this process, or one that has died.
fn forget(dir: &LeaseDir, file: &str) {
    let written: Option<Note> = note::read(dir, file, own_uid());
    if written.is_some_and(|note| note.process.pid == std::process::id() || !note.process.alive()) {
        note::remove(dir, file);
    }
}

/// `None` when it is held.
fn lock(dir: &LeaseDir, gpu: &GpuUuid, how: FlockOperation) -> Result<Option<OwnedFd>, LeaseError> {
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
        match flock(&fd, how) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(e) => return Err(fault(os_text(&e.into()))),
        }
        // A file that was removed meanwhile locks nothing.
        if is_file(dir, &name, &fd) {
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
        .map_or(String::new(), |stat| format!(": {} has put it there", user_name(stat.st_uid)))
}

/// Who has a lock that we did not get; `None` when it is not held any more. Its note may be on its way.
fn holder(dir: &LeaseDir, gpu: &GpuUuid) -> Option<Lease> {
    let mut found = None;
    for _ in 0..NOTE_TRIES {
        found = look::look(dir, std::slice::from_ref(gpu)).held.pop();
        if found.as_ref().is_none_or(|lease| lease.run.is_some()) {
            break;
        }
        std::thread::sleep(NOTE_PAUSE);
    }
    found
}

pub(super) fn lock_file(dir: &LeaseDir, gpu: &GpuUuid) -> Result<String, LeaseError> {
    let uuid = gpu.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if uuid.is_empty() || uuid.len() > 80 || !uuid.chars().all(plain) {
        return Err(LeaseError::BadName(uuid.chars().take(80).collect()));
    }
    Ok(lock_name(dir.prefix, gpu))
}

fn lock_name(prefix: &str, gpu: &GpuUuid) -> String {
    format!("{prefix}{gpu}.lock")
}

/// The file whose lock is a GPU's lease, in a folder of the system's ([`super::USUAL`]).
pub fn usual_lock(gpu: &GpuUuid) -> String {
    lock_name(PREFIX, gpu)
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
