//! Who holds which GPU, read and not tried: a lock that is taken for a moment to see whether it is free would
//! make another launch fail. So the notes are read, and `/proc/locks` for locks without one.

use rustix::fs::Dir;

use super::LeaseError;
use super::claim::{NOTE_PAUSE, note_file, own_uid};
use super::locker::{self, LockFile};
use super::note::{self, Note};
use super::place::LeaseDir;
use super::socket_lock::{self, Names};
use super::{queue, shared_lease};
use crate::clock;
use crate::domain::ids::GpuUuid;
use crate::domain::lease::{Lease, Leases};
use crate::domain::run::HostRun;
use crate::domain::time::HostTime;
use crate::filelock::{Flocks, flocks};
use crate::procs::identity::Stat;
use crate::procs::status::user_name;

/// How often a lock without a note is looked at again.
const LOOKS: u32 = 5;
/// How long holders without a name are looked for, all of a refusal together, microseconds: a launch waits for it.
const SEARCH_US: u64 = 3_000_000;

/// What is told as the command of a process that took a lock and has ended: another one keeps the lock.
const ENDED: &str = "[has ended]";

/// The leases of these GPUs, each by its own lock, and the host's queue.
pub fn look(dir: &LeaseDir, gpus: &[GpuUuid]) -> Leases {
    let mut seen = look_once(dir, gpus);
    for _ in 0..LOOKS {
        // the holder of a lock puts its note there at once
        if seen.held.iter().all(|lease| lease.run.is_some()) {
            break;
        }
        std::thread::sleep(NOTE_PAUSE);
        seen = look_once(dir, gpus);
    }
    seen
}

fn look_once(dir: &LeaseDir, gpus: &[GpuUuid]) -> Leases {
    // The queue first: who leaves it for a lease is seen in one of the two.
    let queue = queue::read(dir, &names(dir));
    let locks = std::fs::read_to_string("/proc/locks").map(|text| flocks(&text, "WRITE")).unwrap_or_default();
    let sockets = Names::read();
    // After the locks: what a holder wrote before it had its lock is there by then.
    let names = names(dir);
    let mut leases = Leases { queue, ..Leases::default() };
    for gpu in gpus {
        let mut beside = shared_lease::read(dir, gpu, &names).into_iter();
        // where the first one has ended, the next one beside it holds it
        leases.held.extend(lease(dir, gpu, &names, &locks, &sockets).or_else(|| beside.next()));
        leases.beside.extend(beside);
    }
    leases
}

/// The leases on a GPU beside the one that has its lock.
pub(super) fn beside_on(dir: &LeaseDir, gpu: &GpuUuid) -> Vec<Lease> {
    shared_lease::read(dir, gpu, &names(dir))
}

/// Whether the GPUs of a host's share are free, before anything is taken.
pub fn check(spec: &HostRun) -> Result<(), LeaseError> {
    if spec.leases.held.is_empty() {
        return Ok(());
    }
    let dir = LeaseDir::open(spec.leases.dir.as_deref())?;
    let gpus: Vec<GpuUuid> = spec.leases.held.keys().cloned().collect();
    let mut held = look(&dir, &gpus).held;
    // a launch that is asked for again has them already
    held.retain(|lease| !(spec.leases.share && lease.own) && lease.run.as_ref() != Some(&spec.run));
    if held.is_empty() {
        return Ok(());
    }
    Err(LeaseError::Busy(named(&dir, held)))
}

fn names(dir: &LeaseDir) -> Vec<String> {
    let Ok(entries) = Dir::read_from(&dir.fd) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()));
    names.filter(|name| name.starts_with(dir.prefix)).collect()
}

fn lease(dir: &LeaseDir, gpu: &GpuUuid, names: &[String], locks: &Flocks, sockets: &Names) -> Option<Lease> {
    let file = LockFile::of(dir, gpu).filter(|file| names.contains(&file.name));
    let owner = sockets.holder(dir, gpu);
    if file.is_none() && owner.is_none() {
        return None;
    }
    let locker = file.as_ref().and_then(|file| locks.get(&file.at).copied());
    let head = format!("{}{gpu}.", dir.prefix);
    let uids = names.iter().filter_map(|name| name.strip_prefix(&head)?.strip_suffix(".json")?.parse().ok());
    let notes = uids.filter_map(|uid| Some((uid, note::read::<Note>(dir, &note_file(dir, gpu, uid), uid)?)));
    // Between its lock and its note a holder may be given no processor for as long as the host likes.
    let draft = locker.and_then(|pid| note::draft::<Note>(dir, names, &head, pid));
    let draft = draft.filter(|(_, note)| locker == Some(note.process.pid));
    let (mut unseen, mut is_anothers) = (None, false);
    for (uid, note) in notes.chain(draft) {
        if note::is_users(&note.process, uid) {
            return Some(note::told(gpu, uid, note));
        }
        // the processes of others may be hidden from us: then the lock's own pid decides
        if locker == Some(note.process.pid) && note::uid_of(note.process.pid).is_none() {
            unseen = Some(note::told(gpu, uid, note));
        } else if locker == Some(note.process.pid) && !note.process.alive() {
            // who took the lock wrote this, and the number is another process's by now
            is_anothers = true;
        }
    }
    if unseen.is_some() {
        return unseen;
    }
    // Who took the lock may have ended, and the lock's file may be gone: the kernel knows whose the name is.
    let told = owner.map(|uid| socket_lock::lease(gpu, uid));
    let by_lock = file.zip(locker).map(|(file, pid)| by_pid(gpu, &file, pid, is_anothers));
    by_lock.filter(|lease| lease.user.is_some() || told.is_none()).or(told)
}

/// A holder that keeps a GPU's lock from us by having it in common with others: slices of it, or anyone who can open the
/// file. It has no note, and nothing that `--share` could share.
pub(super) fn in_common(dir: &LeaseDir, gpu: &GpuUuid) -> Option<Lease> {
    let by_lock = || {
        let file = LockFile::of(dir, gpu)?;
        let locks = flocks(&std::fs::read_to_string("/proc/locks").ok()?, "READ");
        let pid = *locks.get(&file.at)?;
        Some(by_pid(gpu, &file, pid, false))
    };
    let by_lock = by_lock();
    let part = || Names::read().below(&socket_lock::name(dir, gpu, None), false);
    let told = by_lock.as_ref().filter(|lease| lease.user.is_some()).cloned();
    let told = told.or_else(|| part().map(|uid| socket_lock::lease(gpu, uid))).or(by_lock);
    told.map(|lease| Lease { own: false, ..lease })
}

/// What is known of a lock that counts without a note. `is_anothers`: the process that has this number started after that which took
/// the lock, as its note tells.
pub(super) fn by_pid(gpu: &GpuUuid, file: &LockFile, pid: u32, is_anothers: bool) -> Lease {
    let has_lock = || file.is_locked_by(pid).is_ok_and(|has| has);
    if has_ended(pid) || (is_anothers && !has_lock()) {
        return Lease { pid: Some(pid), command: Some(ENDED.to_owned()), ..Lease::unknown(gpu.clone()) };
    }
    // The kernel tells who took it. That process may have left it to another one, and its number may be another's.
    if file.is_locked_by(pid).is_ok_and(|has| !has) {
        return Lease::unknown(gpu.clone());
    }
    let uid = note::uid_of(pid);
    let command = uid.and_then(|_| locker::command(pid));
    let (user, own) = (uid.map(user_name), uid == Some(own_uid()));
    Lease { user, own, pid: Some(pid), command, ..Lease::unknown(gpu.clone()) }
}

/// Whether no process has this number, as far as this one may see: in the kernel's list it stays with a lock that was left to another
/// process. 0 is one of another namespace.
fn has_ended(pid: u32) -> bool {
    pid != 0 && !note::is_hidden(pid) && !Stat::read(pid).is_ok_and(|stat| stat.runs())
}

/// For a refusal: holders without a name are looked for among all processes whose open files can be seen.
pub(super) fn named(dir: &LeaseDir, leases: Vec<Lease>) -> Vec<Lease> {
    let until = HostTime(clock::host_now().0 + SEARCH_US);
    let named = |lease: Lease| {
        if lease.user.is_some() || lease.run.is_some() {
            return lease;
        }
        let found = || {
            let file = LockFile::of(dir, &lease.gpu)?;
            Some(by_pid(&lease.gpu, &file, file.keeper(until)?, false))
        };
        found().filter(|found| found.user.is_some()).unwrap_or(lease)
    };
    leases.into_iter().map(named).collect()
}
