//! Trees that were replaced and that processes may still be at work in.
//!
//! What a job creates in one of them after the switch belongs to the folder: it is linked or moved into the present
//! tree each time a sync looks ([`bring`]). A tree goes when no process of any machine that uses the folder is in it
//! ([`retire`]).

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, linkat};

use super::assemble::{exchange, point_back};
use super::in_use;
use super::journal::{through_peer, trees};
use super::place::Place;
use crate::sync::error::SyncError;
use crate::sync::names::PEER;

/// Before the name of a tree whose list it is.
pub(super) const LIST: &str = "old-";

/// Where it stands what a tree held when it was replaced.
pub(super) fn list_of(place: &Place, tree: &str) -> PathBuf {
    place.own.join(format!("{LIST}{tree}"))
}

/// Stands for it that no process of a machine is in a tree.
fn free_of(place: &Place, tree: &str, machine: &str) -> PathBuf {
    place.own.join(format!("free-{tree}-{machine}"))
}

/// Writes down what a tree holds that is about to be replaced: paths and inodes.
pub(super) fn save_list(place: &Place, tree: &str, seen: &[(PathBuf, u64)]) -> Result<(), SyncError> {
    let path = list_of(place, tree);
    let mut text = Vec::new();
    for (path, ino) in seen {
        text.extend_from_slice(ino.to_string().as_bytes());
        text.push(b' ');
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
    }
    let write =
        || File::create(&path).and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_data()));
    write().map_err(SyncError::io("write", &path))
}

fn load_list(place: &Place, tree: &str) -> io::Result<HashMap<PathBuf, u64>> {
    let bytes = fs::read(list_of(place, tree))?;
    let lines = bytes.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    let line = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        let ino = std::str::from_utf8(line.get(..at)?).ok()?.parse().ok()?;
        Some((PathBuf::from(OsString::from_vec(line.get(at + 1..)?.to_vec())), ino))
    };
    lines.map(|bytes| line(bytes).ok_or_else(|| io::Error::from(ErrorKind::InvalidData))).collect()
}

/// Brings what is new in old trees into the present one. What can't be done now is done by the next look.
pub(super) fn bring(place: &Place, machine: &str, notes: &mut Vec<String>) {
    let gone = place.mark(machine);
    let trees = trees(place);
    if !gone.is_empty() && !trees.is_empty() {
        notes.push(format!(
            "old trees of {} no longer wait for {}: no sync there for a year",
            place.target.display(),
            gone.join(", ")
        ));
    }
    for tree in trees {
        sweep(place, &tree, false, notes);
    }
}

/// Removes the old trees that no process of any machine uses any more. It takes its time with many processes or files:
/// the client that waits for a sync is told first. Where it can't be seen who uses them, they stay.
pub(super) fn retire(place: &Place, machine: &str, notes: &mut Vec<String>) {
    let trees = trees(place);
    if trees.is_empty() {
        return;
    }
    let paths: Vec<PathBuf> = trees.iter().map(|tree| place.parent.join(tree)).collect();
    let machines = place.machines().ok().filter(|machines| machines.iter().any(|one| one == machine));
    let (Some(machines), Ok(users)) = (machines, in_use::users(&paths)) else {
        tracing::warn!(folder = %place.target.display(), "who uses its old trees can't be seen: they stay");
        return;
    };
    for ((tree, path), user) in trees.iter().zip(&paths).zip(users) {
        let free = |machine: &str| free_of(place, tree, machine);
        if let Some(pid) = user {
            drop(fs::remove_file(free(machine)));
            tracing::debug!(tree = %path.display(), pid, "an old tree is in use");
            continue;
        }
        // on a file system that several machines have, each looks at its own processes
        drop(fs::write(free(machine), ""));
        let is_free = machines.iter().all(|machine| free(machine).exists());
        if is_free && sweep(place, tree, true, notes) {
            remove(place, tree, path);
        }
    }
}

/// One look at an old tree; gives whether all that is new in it was brought into the present one. A tree of which no list
/// is there stays as it is.
fn sweep(place: &Place, tree: &str, ends: bool, notes: &mut Vec<String>) -> bool {
    let Ok(seen) = load_list(place, tree) else { return false };
    let mut sweep = Sweep { place, old: &place.parent.join(tree), seen: &seen, ends, notes, failed: false };
    sweep.dir(Path::new(""));
    !sweep.failed
}

fn remove(place: &Place, tree: &str, path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::warn!(tree = %path.display(), %error, "an old tree stays");
        return;
    }
    drop(fs::remove_file(list_of(place, tree)));
    forget_free(place, tree);
}

/// Where it stands what a person should know of trees that went after the sync was told to be done.
fn untold(place: &Place) -> PathBuf {
    place.own.join("untold")
}

/// Keeps notes for the next sync or [`super::tidy`].
pub(super) fn keep_notes(place: &Place, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    let path = untold(place);
    let mut all = fs::read(&path).unwrap_or_default();
    for note in notes {
        // what is seen at each look is said once
        if !all.split(|byte| *byte == 0).any(|kept| kept == note.as_bytes()) {
            all.extend(note.bytes().chain([0]));
        }
    }
    if let Err(error) = fs::write(&path, all) {
        tracing::warn!(path = %path.display(), %error, ?notes, "notes are not kept");
    }
}

/// The notes that were kept.
pub(super) fn take_notes(place: &Place, notes: &mut Vec<String>) {
    let path = untold(place);
    let Ok(all) = fs::read(&path) else { return };
    let all = String::from_utf8_lossy(&all);
    for note in all.split('\0').filter(|note| !note.is_empty()) {
        if !notes.iter().any(|known| known == note) {
            notes.push(note.to_owned());
        }
    }
    drop(fs::remove_file(path));
}

/// Removes what machines have noted of a tree that is gone.
pub(super) fn forget_free(place: &Place, tree: &str) {
    let prefix = format!("free-{tree}-");
    for entry in fs::read_dir(&place.own).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// One look at an old tree.
struct Sweep<'a> {
    place: &'a Place,
    old: &'a Path,
    seen: &'a HashMap<PathBuf, u64>,
    /// Whether it goes: then what differs is kept under another name.
    ends: bool,
    notes: &'a mut Vec<String>,
    /// Whether something could not be brought over.
    failed: bool,
}

impl Sweep<'_> {
    fn dir(&mut self, path: &Path) {
        // What can't be read now may be something new: the tree does not go then.
        let Ok(entries) = fs::read_dir(self.old.join(path)) else {
            self.failed = true;
            return;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.failed = true;
                continue;
            };
            let path = path.join(entry.file_name());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_known = self.seen.get(&path) == Some(&entry.ino());
            if path == Path::new(PEER) || (is_known && !is_dir) {
                continue;
            }
            let full = entry.path();
            if fs::read_link(&full).is_ok_and(|link| link == through_peer(&path)) {
                continue;
            }
            let here = self.place.target.join(&path);
            if fs::read_link(&here).is_ok_and(|link| link == through_peer(&path)) {
                // it could not move at the switch, and is nowhere else
                self.failed = true;
                continue;
            }
            let here = fs::symlink_metadata(here).ok();
            if is_known || (is_dir && here.as_ref().is_some_and(fs::Metadata::is_dir)) {
                self.dir(&path);
            } else if here.as_ref().is_some_and(|here| here.ino() == entry.ino()) {
                // linked by an earlier look
            } else if let Err(error) = self.bring(&path, is_dir, here.is_some()) {
                self.failed = true;
                if self.ends {
                    self.notes.push(format!("{} stays: {error}", full.display()));
                }
            }
        }
    }

    /// Brings one thing that a job created in the old tree since the switch into the present one.
    fn bring(&mut self, path: &Path, is_dir: bool, is_taken: bool) -> io::Result<()> {
        let (from, to) = (self.old.join(path), self.place.target.join(path));
        if is_taken && !self.ends {
            return Ok(());
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        if is_taken {
            let to = free_beside(&to);
            fs::rename(&from, &to)?;
            self.notes.push(format!(
                "a job in the old tree has written another {}: it is kept as {}",
                path.display(),
                to.display()
            ));
            return Ok(());
        }
        if !is_dir && linkat(CWD, &from, CWD, &to, AtFlags::empty()).is_ok() {
            return Ok(());
        }
        if self.ends {
            return fs::rename(&from, &to);
        }
        // as at the switch: see `super::assemble`
        let peer = self.place.target.join(PEER);
        symlink(Path::new("..").join(self.old.file_name().unwrap_or_default()), &peer)?;
        point_back(self.place, self.old);
        let moved = symlink(through_peer(path), &to).and_then(|()| exchange(&from, &to));
        if moved.is_err() {
            drop(fs::remove_file(&to));
        }
        fs::remove_file(&peer)?;
        moved.map(drop)
    }
}

/// `NAME.hvtui-1` and so on: the first that is free.
fn free_beside(path: &Path) -> PathBuf {
    let names = (1..).map(|number: u32| super::beside(path, &format!(".hvtui-{number}")));
    names.into_iter().find(|name| fs::symlink_metadata(name).is_err()).unwrap_or_default()
}
