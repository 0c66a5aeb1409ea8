//! What is done on a host: compare, stage, assemble beside the tree, switch.
//!
//! ```text
//! <parent>/NAME                  the folder
//! <parent>/.NAME.hvtui/          lock, record of what syncs brought, staged contents; 0700
//! <parent>/.NAME.hvtui-HASH-N    a tree that is being assembled, or one that processes still use
//! ```
//!
//! [`Target`] does it in three steps, under one lock: [`Target::open`], [`Target::compare`], [`Target::switch`].
//! Why it is done so: docs/decisions/sync.md.

mod assemble;
mod in_use;
mod journal;
mod old;
mod place;
mod plan;
mod record;

use std::path::{Path, PathBuf};

pub use place::Place;
use plan::Plan;
use record::Record;

use super::blobs::Store;
use super::error::SyncError;
use super::manifest::{Kind, Manifest};
use crate::domain::sync::Digest;

/// A folder of a host while it is synced.
#[derive(Debug)]
pub struct Target {
    place: Place,
    /// None where nothing may be written.
    lock: Option<place::Lock>,
    record: Record,
    /// What a person should know.
    notes: Vec<String>,
    compared: Option<(Manifest, Plan)>,
    /// Bytes that the comparison found missing.
    needed: u64,
    /// The machine that this is.
    machine: String,
}

/// What a host lacks, and what the switch would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Entries of the manifest whose content is wanted, and how many bytes of each are there.
    pub missing: Vec<(u32, u64)>,
    /// Files and symlinks that are new or change.
    pub changed: u64,
    /// Files that go.
    pub deleted: u64,
    /// Bytes to be sent.
    pub bytes: u64,
}

/// What there is after a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    /// Name of the manifest of what is there, of the files that were copied.
    pub tree: Digest,
    /// Whether anything was changed.
    pub switched: bool,
    /// What a person should know, a sentence each.
    pub notes: Vec<String>,
}

impl Target {
    /// The folder; `None` while another sync of it is under way. With `dry` nothing is written or waited for.
    /// `machine` names this machine among those that share its file systems.
    pub fn open(place: &Place, machine: &str, dry: bool) -> Result<Option<Self>, SyncError> {
        let mut notes = Vec::new();
        let lock = if dry {
            None
        } else {
            let Some(lock) = place.lock()? else { return Ok(None) };
            journal::recover(place, &mut notes)?;
            old::take_notes(place, &mut notes);
            old::bring(place, machine, &mut notes);
            Some(lock)
        };
        let record = Record::load(place);
        let place = place.clone();
        Ok(Some(Self { place, lock, record, notes, compared: None, needed: 0, machine: machine.to_owned() }))
    }

    /// Whether this very tree is there, unchanged; `None` where it is not, or not known to be. With `delete` what
    /// earlier syncs brought must be gone, too.
    pub fn present(&mut self, tree: Digest, delete: bool) -> Option<Switched> {
        let has_more = delete && self.record.brought.iter().any(|brought| brought.is_left);
        if has_more || self.record.tree() != Some(tree) || self.record.differing(&self.place.target).is_some()
        {
            return None;
        }
        Some(Switched { tree, switched: false, notes: std::mem::take(&mut self.notes) })
    }

    /// Where contents are staged.
    pub fn store(&self) -> Store {
        Store::new(self.place.blobs())
    }

    /// What the folder lacks of this manifest. Refuses what has no room.
    pub fn compare(&mut self, manifest: Manifest, delete: bool) -> Result<Comparison, SyncError> {
        let plan = plan::plan(&self.place.target, &manifest, &self.record, delete)?;
        let store = self.store();
        let mut comparison =
            Comparison { changed: plan.changed, deleted: plan.deleted.len() as u64, ..Comparison::default() };
        for (index, entry) in (0..).zip(manifest.entries()) {
            let Kind::File { size, hash, .. } = entry.kind else { continue };
            if plan.wanted.get(&hash) != Some(&index) {
                continue;
            }
            let held = store.held(hash, size);
            comparison.bytes += size - held;
            if held < size || (size == 0 && !store.path_of(hash).exists()) {
                comparison.missing.push((index, held));
            }
        }
        if self.lock.is_some() {
            self.place.check_room(comparison.bytes)?;
        }
        self.needed = comparison.bytes;
        self.compared = Some((manifest, plan));
        Ok(comparison)
    }

    /// Puts the new tree in the place of the old one. All that was missing is staged.
    pub fn switch(&mut self) -> Result<Switched, SyncError> {
        let mut notes = std::mem::take(&mut self.notes);
        let switched = self.switch_noting(&mut notes);
        if switched.is_err() {
            self.notes = notes;
            return switched;
        }
        switched.map(|switched| Switched { notes: [notes, switched.notes].concat(), ..switched })
    }

    /// The notes that are given are of the plan alone.
    fn switch_noting(&mut self, notes: &mut Vec<String>) -> Result<Switched, SyncError> {
        let Some((manifest, plan)) = self.compared.take().filter(|_| self.lock.is_some()) else {
            return Err(SyncError::Stopped);
        };
        let switched = !plan.is_same;
        let mut store = self.store();
        self.record = if switched {
            let done = assemble::assemble(&self.place, &manifest, &plan, &store, notes);
            if done.as_ref().is_err_and(SyncError::is_full) {
                // what is staged holds room that running jobs need now
                store.clear();
            }
            done.map_err(|error| self.place.full(error, self.needed, "; what was copied so far is removed"))?
        } else {
            let record = Record::of(&self.place.target, &manifest, &plan.leftovers, &plan.linked())?;
            record.save(&self.place)?;
            record
        };
        store.clear();
        // what a job has created in the old tree since it was read
        old::bring(&self.place, &self.machine, notes);
        if let Some((path, fault)) = self.record.differing(&self.place.target) {
            return Err(SyncError::Differs { target: self.place.target.clone(), path, fault });
        }
        // what is told is the name of what is there: all of it was looked at
        let tree = self.record.tree().ok_or(SyncError::Stopped)?;
        Ok(Switched { tree, switched, notes: plan.notes() })
    }

    /// Keeps what could not be told for the next sync.
    pub fn tell_later(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }

    /// Removes the trees that were replaced and are not used any more. It takes its time with many files: the client that
    /// waits for the sync is told first. What a person should know of it is told by the next sync, or [`tidy`].
    pub fn remove_unused(self) {
        if self.lock.is_some() {
            let mut notes = Vec::new();
            old::retire(&self.place, &self.machine, &mut notes);
            old::keep_notes(&self.place, &notes);
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.place.target
    }

    /// What to say when staging runs out of room; what is staged goes.
    pub fn no_room(&mut self, error: SyncError) -> SyncError {
        if !error.is_full() {
            return error;
        }
        self.store().clear();
        self.place.full(error, self.needed, "; what was copied so far is removed")
    }
}

/// What was to be told and was not is told by the next sync, or [`tidy`].
impl Drop for Target {
    fn drop(&mut self) {
        if self.lock.is_some() {
            old::keep_notes(&self.place, &self.notes);
        }
    }
}

/// Keeps what could not be told for the next sync, or [`tidy`].
pub fn keep_notes(place: &Place, notes: &[String]) {
    old::keep_notes(place, notes);
}

/// Looks after the old trees of a folder: what jobs have created in them comes into the present one, and those that
/// no process uses go. Does nothing while a sync is under way. Gives what a person should know.
pub fn tidy(place: &Place, machine: &str) -> Vec<String> {
    let mut notes = Vec::new();
    if place.own.is_dir()
        && let Ok(Some(_lock)) = place.lock()
        && journal::recover(place, &mut notes).is_ok()
    {
        old::take_notes(place, &mut notes);
        old::bring(place, machine, &mut notes);
        old::retire(place, machine, &mut notes);
    }
    notes
}

/// A path with another name behind its last one.
fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
