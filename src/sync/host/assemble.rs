//! Makes the new tree beside the old one and puts it in its place in one step of the file system.
//!
//! A folder that no sync brought (outputs, checkpoints) must have one place for the job that runs in the old tree and for
//! the new one. It can't be in both, so it moves, and a symlink stays behind. Both changes are one exchange of two names,
//! and neither name ever leads nowhere: the symlink goes `up to the top of the tree it is in, through `.hvtui-peer` into the
//! other tree, down to the same path`. At its place in the new tree it leads to the old one; exchanged with the folder, at
//! its place in the old tree, it leads to the new one.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use super::beside;
use super::in_use;
use super::journal::{Switch, making, through_peer};
use super::old;
use super::place::Place;
use super::plan::{Plan, Step};
use super::record::{self, Record};
use crate::domain::sync::Digest;
use crate::sha256;
use crate::sync::blobs::Store;
use crate::sync::error::SyncError;
use crate::sync::manifest::Manifest;
use crate::sync::names::PEER;

/// Behind the name of a tree: where the folder is while an exchange is done in steps.
const SWAP: &str = ".swap";
/// Threads that write new files to the disk.
const FLUSHERS: usize = 8;

/// Makes the tree and switches to it. On an error the folder is as it was.
pub(super) fn assemble(
    place: &Place,
    manifest: &Manifest,
    plan: &Plan,
    store: &Store,
    notes: &mut Vec<String>,
) -> Result<Record, SyncError> {
    let tree = manifest.digest().to_string();
    let name = place.free_name(tree.get(..12).unwrap_or_default());
    let new = place.parent.join(&name);
    let mark = making(place, &name);
    // of a tree of this name that has gone: with them this one would pass for one that was switched to, or that is unused
    drop(fs::remove_file(old::list_of(place, &name)));
    old::forget_free(place, &name);
    File::create(&mark).map_err(SyncError::io("write", &mark))?;
    let made = make(place, manifest, plan, store, &new).and_then(|Made { record, moves, mut fresh }| {
        let moved = moves.first().map(|path| place.target.join(path));
        if let Some((path, pid)) = moved.zip(in_use::mounted_for(&place.target)) {
            return Err(SyncError::InUse { path, pid });
        }
        let ino = fs::metadata(&new).map_err(SyncError::io("look at", &new))?.ino();
        let switch = Switch { name: name.clone(), ino, moves };
        fresh.extend([record.save_next(place)?, switch.save(place)?, new.clone()]);
        flush(&fresh)?;
        // on the disk only behind the switch: a tree that has a list was switched to
        old::save_list(place, &name, &plan.seen)?;
        fs::remove_file(&mark).map_err(SyncError::io("remove", &mark))?;
        Ok((record, switch))
    });
    let (record, switch) = made.inspect_err(|_| discard(place, &name))?;
    match exchange(&new, &place.target) {
        Ok(Exchanged::AtOnce) => {}
        Ok(Exchanged::InSteps) => notes.push(format!(
            "the file system of {} can't exchange two folders at once: it was away for a moment",
            place.target.display()
        )),
        Err(error) => {
            // What an exchange in steps has left half done the next sync puts back, by what is written down of it.
            if fs::symlink_metadata(beside(&new, SWAP)).is_err() {
                discard(place, &name);
            }
            return Err(SyncError::io("replace", &place.target)(error));
        }
    }
    after_switch(place, &switch, notes);
    let next = place.own.join(record::NEXT);
    fs::rename(&next, place.own.join(record::FILE)).map_err(SyncError::io("rename", &next))?;
    Switch::forget(place);
    Ok(record)
}

/// Removes a tree that does not become the folder.
fn discard(place: &Place, name: &str) {
    Switch::forget(place);
    drop(fs::remove_file(old::list_of(place, name)));
    drop(fs::remove_file(place.own.join(record::NEXT)));
    let tree = place.parent.join(name);
    if let Err(error) = fs::remove_dir_all(&tree)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(tree = %tree.display(), %error, "a tree that was not finished stays");
        return;
    }
    drop(fs::remove_file(making(place, name)));
}

/// A tree that was made.
struct Made {
    /// What it holds.
    record: Record,
    /// The folders that it gets at the switch.
    moves: Vec<PathBuf>,
    /// What must come to the disk before the switch.
    fresh: Vec<PathBuf>,
}

/// Makes the tree.
fn make(
    place: &Place,
    manifest: &Manifest,
    plan: &Plan,
    store: &Store,
    new: &Path,
) -> Result<Made, SyncError> {
    let old = &place.target;
    fs::DirBuilder::new().mode(0o700).create(new).map_err(SyncError::io("make", new))?;
    let mut folders =
        vec![(new.to_owned(), fs::metadata(old).map_or(0o755, |meta| meta.mode() & 0o7777 | 0o700))];
    let mut moves = Vec::new();
    let mut fresh: Vec<PathBuf> = Vec::new();
    let mut placed: HashMap<Digest, PathBuf> = HashMap::new();
    let (mut linked, mut has_linked) = (plan.linked(), false);
    for step in &plan.steps {
        match step {
            Step::Dir { path, mode } => {
                let to = new.join(path);
                fs::DirBuilder::new().mode(0o700).create(&to).map_err(SyncError::io("make", &to))?;
                folders.push((to, *mode));
            }
            Step::Link { path, seen } => {
                let (from, to) = (old.join(path), new.join(path));
                let is_first = !mem::replace(&mut has_linked, true);
                if link(&from, &to).is_err() {
                    // a file system without hard links
                    fs::copy(&from, &to).map_err(SyncError::io("copy", &from))?;
                    linked.remove(path.as_path());
                    fresh.push(to);
                } else if is_first && fs::symlink_metadata(&to).is_ok_and(|meta| meta.ino() != seen.ino()) {
                    // a file system that shows each link as a file of its own
                    linked.clear();
                }
            }
            Step::Put { path, mode, hash, from } => {
                let to = new.join(path);
                let source = from.as_ref().map(|from| old.join(from)).or_else(|| placed.get(hash).cloned());
                if let Some(source) = source {
                    fs::copy(&source, &to).map_err(SyncError::io("copy", &source))?;
                    let (copied, _) = sha256::of_file_in_tree(&to, |_| {}).map_err(SyncError::from)?;
                    if copied != *hash {
                        // a job has written to it since it was compared
                        return Err(SyncError::Changed { name: *hash });
                    }
                } else {
                    let staged = store.path_of(*hash);
                    fs::rename(&staged, &to).map_err(SyncError::io("rename", &staged))?;
                    placed.insert(*hash, to.clone());
                }
                fs::set_permissions(&to, Permissions::from_mode(*mode))
                    .map_err(SyncError::io("set the mode of", &to))?;
                fresh.push(to);
            }
            Step::Symlink { path, target } => {
                let to = new.join(path);
                symlink(target, &to).map_err(SyncError::io("make", &to))?;
            }
            Step::Share { path } => {
                let (from, to) = (old.join(path), new.join(path));
                match link(&from, &to) {
                    // one that went away meanwhile is gone
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::NOSPC | Errno::DQUOT) => {
                        return Err(SyncError::io("link", &to)(Errno::NOSPC.into()));
                    }
                    // of another owner, or a file system without hard links: it moves as folders do
                    Err(_) => moves.push(path.clone()),
                }
            }
            Step::Move { path } => moves.push(path.clone()),
        }
    }
    if !moves.is_empty() {
        let peer = Path::new("..").join(new.file_name().unwrap_or_default());
        symlink(peer, new.join(PEER)).map_err(SyncError::io("make", new))?;
    }
    for path in &moves {
        let to = new.join(path);
        symlink(through_peer(path), &to).map_err(SyncError::io("make", &to))?;
    }
    for (folder, mode) in folders.iter().rev() {
        fs::set_permissions(folder, Permissions::from_mode(*mode))
            .map_err(SyncError::io("set the mode of", folder))?;
    }
    let record = Record::of(new, manifest, &plan.leftovers, &linked)?;
    Ok(Made { record, moves, fresh })
}

fn link(from: &Path, to: &Path) -> Result<(), Errno> {
    linkat(CWD, from, CWD, to, AtFlags::empty())
}

/// Writes new files and folders to the disk, several at a time: a disk takes many at once as fast as one.
fn flush(files: &[PathBuf]) -> Result<(), SyncError> {
    let part = files.len().div_ceil(FLUSHERS).max(1);
    let sync = |path: &PathBuf| {
        File::open(path).and_then(|file| file.sync_all()).map_err(SyncError::io("flush", path))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            files.chunks(part).map(|part| scope.spawn(move || part.iter().try_for_each(sync))).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => Err(SyncError::Stopped),
        });
        joined.collect()
    })
}

/// How two names changed places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchanged {
    AtOnce,
    InSteps,
}

/// Exchanges two names, or gives the first the second's place where there is nothing.
pub(super) fn exchange(new: &Path, target: &Path) -> io::Result<Exchanged> {
    match renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(Exchanged::AtOnce),
        Err(Errno::NOENT) if fs::symlink_metadata(target).is_err() => {
            fs::rename(new, target).map(|()| Exchanged::AtOnce)
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => exchange_in_steps(new, target),
        Err(error) => Err(error.into()),
    }
}

/// The same where the file system can't: the target is away for a moment.
fn exchange_in_steps(new: &Path, target: &Path) -> io::Result<Exchanged> {
    let aside = beside(new, SWAP);
    fs::rename(target, &aside)?;
    if let Err(error) = fs::rename(new, target) {
        fs::rename(&aside, target)?;
        return Err(error);
    }
    fs::rename(&aside, new).map(|()| Exchanged::InSteps)
}

/// Puts the folder back that an exchange in steps was cut behind.
pub(super) fn undo_half_exchange(place: &Place, name: &str) -> Result<(), SyncError> {
    let new = place.parent.join(name);
    let aside = beside(&new, SWAP);
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    if !is_there(&aside) {
        return Ok(());
    }
    let back = if is_there(&place.target) { &new } else { &place.target };
    fs::rename(&aside, back).map_err(SyncError::io("rename", &aside))
}

/// Moves the folders that change their tree, once the new one is in its place. What can't move stays where it is, and
/// is reached through its symlink.
pub(super) fn after_switch(place: &Place, switch: &Switch, notes: &mut Vec<String>) {
    if switch.moves.is_empty() {
        return;
    }
    let old = place.parent.join(&switch.name);
    point_back(place, &old);
    let mut stay = 0;
    for path in &switch.moves {
        let (here, there) = (place.target.join(path), old.join(path));
        // done already where a switch is finished later
        let is_link = fs::read_link(&here).is_ok_and(|link| link == through_peer(path));
        if !is_link {
            continue;
        }
        match fs::symlink_metadata(&there) {
            // the process that made it has removed it since
            Err(error) if error.kind() == ErrorKind::NotFound => drop(fs::remove_file(&here)),
            _ => {
                if let Err(error) = exchange(&there, &here) {
                    stay += 1;
                    notes.push(format!(
                        "{} could not move into the new tree and stays beside it: {error}",
                        path.display()
                    ));
                }
            }
        }
    }
    if stay == 0 {
        drop(fs::remove_file(place.target.join(PEER)));
    }
}

/// Lets what is left in an old tree lead to the present one.
pub(super) fn point_back(place: &Place, old: &Path) {
    if let Err(error) = symlink(Path::new("..").join(&place.name), old.join(PEER))
        && error.kind() != ErrorKind::AlreadyExists
    {
        tracing::warn!(tree = %old.display(), %error, "an old tree does not lead to the present one");
    }
}
