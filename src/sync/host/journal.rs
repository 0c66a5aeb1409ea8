//! A switch that is under way, written down so that one that was cut is finished or undone by the next sync.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::assemble;
use super::old;
use super::place::Place;
use super::record;
use crate::sync::error::SyncError;

/// Name of the file beside the folder.
const FILE: &str = "switch";
/// Before the name of a tree that is being made.
const MAKING: &str = "making-";

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Switch {
    /// Name of the new tree beside the folder before the switch, of the old one after it.
    pub(super) name: String,
    /// Inode of the new tree: it is done when the folder has it.
    pub(super) ino: u64,
    /// Folders that change their tree.
    pub(super) moves: Vec<PathBuf>,
}

impl Switch {
    /// Writes it down; gives the file, which is not flushed.
    pub(super) fn save(&self, place: &Place) -> Result<PathBuf, SyncError> {
        let path = place.own.join(FILE);
        let mut text = format!("{}\0{}\0", self.name, self.ino).into_bytes();
        for path in &self.moves {
            text.extend_from_slice(path.as_os_str().as_bytes());
            text.push(0);
        }
        fs::write(&path, text).map_err(SyncError::io("write", &path))?;
        Ok(path)
    }

    fn load(place: &Place) -> Option<Self> {
        let bytes = fs::read(place.own.join(FILE)).ok()?;
        let mut parts = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let name = String::from_utf8(parts.next()?.to_vec()).ok()?;
        let ino = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let moves = parts.map(|part| PathBuf::from(OsString::from_vec(part.to_vec()))).collect();
        // what it names is written to: only what a switch would have named
        let is_ours = name.starts_with(&format!(".{}.hvtui-", place.name)) && !name.contains('/');
        is_ours.then_some(Self { name, ino, moves })
    }

    /// It is done.
    pub(super) fn forget(place: &Place) {
        let path = place.own.join(FILE);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a switch that is done is still written down");
        }
    }
}

/// Finishes or undoes a switch that was cut, and removes trees that never became the folder.
pub(super) fn recover(place: &Place, notes: &mut Vec<String>) -> Result<(), SyncError> {
    if let Some(switch) = Switch::load(place) {
        assemble::undo_half_exchange(place, &switch.name)?;
        let is_it = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.ino() == switch.ino);
        let is_done = is_it(&place.target);
        if is_done {
            notes.push(format!(
                "the last sync to {} was cut in its switch: finished it",
                place.target.display()
            ));
            assemble::after_switch(place, &switch, notes);
            let next = place.own.join(record::NEXT);
            if next.exists() {
                fs::rename(&next, place.own.join(record::FILE)).map_err(SyncError::io("rename", &next))?;
            }
        } else if is_it(&place.parent.join(&switch.name)) {
            let new = place.parent.join(&switch.name);
            fs::remove_dir_all(&new).map_err(SyncError::io("remove", &new))?;
            drop(fs::remove_file(old::list_of(place, &switch.name)));
        } else if fs::symlink_metadata(place.parent.join(&switch.name)).is_ok() {
            // The folder is another one since: what lies beside it may be the only copy of a job's outputs.
            let fault = "tells of a sync that was cut, and the folder has been replaced since: bring over what you miss from the \
                         folder that this file names first, then remove both";
            return Err(SyncError::Target { path: place.own.join(FILE), fault: fault.to_owned() });
        }
        Switch::forget(place);
    }
    forget_marks(place);
    for tree in trees(place).iter().filter(|tree| !old::list_of(place, tree).exists()) {
        let path = place.parent.join(tree);
        if making(place, tree).exists() {
            // never switched to
            fs::remove_dir_all(&path).map_err(SyncError::io("remove", &path))?;
            drop(fs::remove_file(making(place, tree)));
        } else {
            notes.push(format!(
                "{} is an older tree of which nothing is known any more: it stays; remove it when nothing works in it",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Stands beside a tree as long as it is being made.
pub(super) fn making(place: &Place, tree: &str) -> PathBuf {
    place.own.join(format!("{MAKING}{tree}"))
}

/// Names of this user's trees beside the folder. Where several users write to the parent folder, an entry of another
/// user may have such a name: it can't be removed, and it is no tree of this folder.
pub(super) fn trees(place: &Place) -> Vec<String> {
    let prefix = format!(".{}.hvtui-", place.name);
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(&place.parent).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_named = name.starts_with(&prefix) && is_tree(&name, &prefix);
        let is_ours = || entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
        (is_named && is_ours()).then_some(name)
    });
    names.collect()
}

/// Removes the marks of trees that are not there, or are another user's. Lists stay: a file system of the net may say for a
/// while that a tree is not there.
fn forget_marks(place: &Place) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(&place.own).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let tree = name.to_str().and_then(|name| name.strip_prefix(MAKING));
        let is_stale = tree.is_some_and(|tree| match fs::symlink_metadata(place.parent.join(tree)) {
            Ok(meta) => meta.uid() != user,
            Err(error) => error.kind() == ErrorKind::NotFound,
        });
        if is_stale {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// `HASH-N` behind the prefix: nothing else is ever taken for a tree.
fn is_tree(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix).unwrap_or_default();
    rest.split_once('-').is_some_and(|(hash, number)| {
        hash.len() == 12
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The path from the top of a tree to its place in the other one.
pub(super) fn through_peer(path: &Path) -> PathBuf {
    let ups = path.components().count().saturating_sub(1);
    let mut link = PathBuf::new();
    (0..ups).for_each(|_| link.push(".."));
    link.push(crate::sync::names::PEER);
    link.push(path);
    link
}
