//! What the new tree is made of: each thing of the manifest, and each that no sync brought. Reads the folder, changes
//! nothing.
//!
//! An entry that is not of the manifest stays at its path for programs that know it there: files are linked into the
//! new tree, whole folders are moved into it at the switch ([`super::assemble`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::journal::through_peer;
use super::record::{Brought, Record, Seen};
use crate::domain::sync::Digest;
use crate::sha256;
use crate::sync::error::SyncError;
use crate::sync::manifest::{Entry, Kind, Manifest};
use crate::sync::names::PEER;

/// One thing of the new tree; its folder comes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A folder.
    Dir { path: PathBuf, mode: u32 },
    /// The very file of the old tree, as it was seen.
    Link { path: PathBuf, seen: Seen },
    /// A file whose content is staged, or in the old tree at `from`.
    Put { path: PathBuf, mode: u32, hash: Digest, from: Option<PathBuf> },
    /// A symlink.
    Symlink { path: PathBuf, target: String },
    /// A file or the like that no sync brought: the very one of the old tree.
    Share { path: PathBuf },
    /// A folder that no sync brought: it changes its tree at the switch.
    Move { path: PathBuf },
}

/// How the new tree is made.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// What the old tree holds: a path and its inode. What a job creates there later is not in it.
    pub(super) seen: Vec<(PathBuf, u64)>,
    /// Contents that must come, with the first entry that wants each.
    pub(super) wanted: HashMap<Digest, u32>,
    pub(super) changed: u64,
    pub(super) deleted: Vec<PathBuf>,
    /// What had been changed on the host and is replaced.
    overwritten: Vec<PathBuf>,
    /// What `--sync-delete` would take away, but was changed on the host.
    spared: Vec<PathBuf>,
    /// What earlier syncs brought and this one doesn't, still there.
    pub(super) leftovers: Vec<Brought>,
    /// Whether the folder is this tree already.
    pub(super) is_same: bool,
}

impl Plan {
    /// The files that the new tree shares with the old one.
    pub(super) fn linked(&self) -> HashMap<&Path, Seen> {
        let linked = self.steps.iter().filter_map(|step| match step {
            Step::Link { path, seen } => Some((path.as_path(), *seen)),
            _ => None,
        });
        linked.collect()
    }

    /// What a person should know of it.
    pub(super) fn notes(&self) -> Vec<String> {
        let words = |paths: &[PathBuf], what: &str| {
            let first = paths.first()?;
            let more = if paths.len() > 1 { format!(" and {} more", paths.len() - 1) } else { String::new() };
            Some(format!("{}{more} {what}", first.display()))
        };
        let replaced = words(&self.overwritten, "had been changed there and was replaced by the sync");
        let spared = words(&self.spared, "was changed there: --sync-delete lets it stay");
        replaced.into_iter().chain(spared).collect()
    }
}

/// Reads the folder and decides.
pub(super) fn plan(
    target: &Path,
    manifest: &Manifest,
    record: &Record,
    delete: bool,
) -> Result<Plan, SyncError> {
    let mut brought = HashMap::new();
    let mut by_hash = HashMap::new();
    let mut above = HashSet::new();
    for one in &record.brought {
        let path = Path::new(one.entry.path.as_str());
        brought.insert(path, one);
        above.extend(path.ancestors().skip(1));
        if let Kind::File { hash, .. } = one.entry.kind {
            by_hash.insert(hash, one);
        }
    }
    let mut wanted: HashMap<&Path, Vec<(u32, &Entry)>> = HashMap::new();
    for (index, entry) in (0..).zip(manifest.entries()) {
        let parent = Path::new(entry.path.as_str()).parent().unwrap_or(Path::new(""));
        wanted.entry(parent).or_default().push((index, entry));
    }
    let device = fs::metadata(target).ok().map(|meta| meta.dev());
    let mut planner = Planner {
        target,
        brought,
        by_hash,
        above,
        wanted,
        delete,
        device,
        plan: Plan { is_same: true, ..Plan::default() },
    };
    planner.dir(Path::new(""), device.is_some())?;
    let mut plan = planner.plan;
    plan.is_same &= device.is_some();
    Ok(plan)
}

struct Planner<'a> {
    target: &'a Path,
    brought: HashMap<&'a Path, &'a Brought>,
    by_hash: HashMap<Digest, &'a Brought>,
    /// Folders that hold something that a sync brought.
    above: HashSet<&'a Path>,
    wanted: HashMap<&'a Path, Vec<(u32, &'a Entry)>>,
    delete: bool,
    device: Option<u64>,
    plan: Plan,
}

impl Planner<'_> {
    /// A folder of the manifest; `there` if the host has it.
    fn dir(&mut self, path: &Path, there: bool) -> Result<(), SyncError> {
        let mut have = if there { self.read(path)? } else { BTreeMap::new() };
        for (index, entry) in self.wanted.remove(path).unwrap_or_default() {
            let full_path = PathBuf::from(&entry.path);
            let meta = have.remove(&full_path);
            self.want(index, entry, full_path, meta)?;
        }
        for (path, meta) in have {
            self.extra(&path, &meta)?;
        }
        Ok(())
    }

    /// What is in a folder of the host.
    fn read(&mut self, path: &Path) -> Result<BTreeMap<PathBuf, Metadata>, SyncError> {
        let full = self.target.join(path);
        let mut have = BTreeMap::new();
        for entry in fs::read_dir(&full).map_err(SyncError::io("read", &full))? {
            let entry = entry.map_err(SyncError::io("read", &full))?;
            let path = path.join(entry.file_name());
            if path == Path::new(PEER) {
                continue;
            }
            // one that goes away meanwhile is not there
            let Ok(meta) = entry.metadata() else { continue };
            self.plan.seen.push((path.clone(), meta.ino()));
            have.insert(path, meta);
        }
        Ok(have)
    }

    fn want(
        &mut self,
        index: u32,
        entry: &Entry,
        path: PathBuf,
        meta: Option<Metadata>,
    ) -> Result<(), SyncError> {
        let full = self.target.join(&path);
        let is_dir = meta.as_ref().is_some_and(Metadata::is_dir);
        if let Kind::Dir { mode } = entry.kind {
            if let Some(meta) = meta.as_ref().filter(|_| !is_dir) {
                self.replace(
                    &path,
                    &full,
                    meta,
                    "is a file or symlink there that no sync brought, and a folder here",
                )?;
            }
            let same = meta.filter(|_| is_dir).is_some_and(|meta| meta.mode() & 0o777 == mode);
            self.plan.is_same &= same;
            self.plan.steps.push(Step::Dir { path: path.clone(), mode });
            return self.dir(&path, is_dir);
        }
        if is_dir {
            if !self.is_ours(&path)? {
                let fault = "is a folder with files there that no sync brought, and a file here";
                return Err(SyncError::InTheWay { path: full, fault });
            }
            self.put(index, entry, path, None);
            return Ok(());
        }
        let Some(meta) = meta else {
            self.put(index, entry, path, None);
            return Ok(());
        };
        let known = self.brought.get(path.as_path()).copied();
        let is_as_brought = known.is_some_and(|known| known.fault(&full, &meta).is_none());
        let same_entry = known.is_some_and(|known| known.entry == *entry);
        let same = match &entry.kind {
            _ if is_as_brought && same_entry => Same::Whole,
            Kind::File { mode, size, hash } if meta.is_file() && meta.len() == *size => {
                let told = known.filter(|_| is_as_brought).map(
                    |known| matches!(known.entry.kind, Kind::File { hash: there, .. } if there == *hash),
                );
                let same = if let Some(told) = told {
                    told
                } else {
                    let read = sha256::of_file_in_tree(&full, |_| ()).map_err(SyncError::from)?;
                    read == (*hash, *size)
                };
                match same {
                    true if meta.mode() & 0o777 == *mode => Same::Whole,
                    true => Same::Content,
                    false => Same::Nothing,
                }
            }
            Kind::Link { target }
                if meta.is_symlink()
                    && fs::read_link(&full).is_ok_and(|there| there == Path::new(target)) =>
            {
                Same::Whole
            }
            _ => Same::Nothing,
        };
        if matches!(same, Same::Nothing) && !is_as_brought {
            self.replace(&path, &full, &meta, "is no file there")?;
        }
        match same {
            Same::Whole if meta.is_file() => {
                self.plan.steps.push(Step::Link { path, seen: Seen::of(&meta) });
            }
            Same::Whole => self.symlink(entry, path),
            Same::Content => self.put(index, entry, path.clone(), Some(path)),
            Same::Nothing => self.put(index, entry, path, None),
        }
        Ok(())
    }

    fn symlink(&mut self, entry: &Entry, path: PathBuf) {
        if let Kind::Link { target } = &entry.kind {
            self.plan.steps.push(Step::Symlink { path, target: target.clone() });
        }
    }

    /// Something new, or with another content or mode.
    fn put(&mut self, index: u32, entry: &Entry, path: PathBuf, from: Option<PathBuf>) {
        self.plan.is_same = false;
        self.plan.changed += 1;
        let Kind::File { mode, hash, .. } = entry.kind else { return self.symlink(entry, path) };
        let from = from.or_else(|| self.content(hash));
        if from.is_none() {
            self.plan.wanted.entry(hash).or_insert(index);
        }
        self.plan.steps.push(Step::Put { path, mode, hash, from });
    }

    /// A file there that a sync brought with this content: one that was renamed is not sent again.
    fn content(&self, hash: Digest) -> Option<PathBuf> {
        let known = self.by_hash.get(&hash)?;
        let full = self.target.join(&known.entry.path);
        let meta = fs::symlink_metadata(&full).ok()?;
        known.fault(&full, &meta).is_none().then(|| PathBuf::from(&known.entry.path))
    }

    /// Something of another content gives way: what a sync brought, and files as rsync replaces them.
    fn replace(
        &mut self,
        path: &Path,
        full: &Path,
        meta: &Metadata,
        fault: &'static str,
    ) -> Result<(), SyncError> {
        let was_brought = self.brought.contains_key(path);
        let gives_way = was_brought || meta.is_file() || meta.is_symlink();
        let wants_dir = fault.ends_with("a folder here");
        if !gives_way || (wants_dir && !was_brought) {
            return Err(SyncError::InTheWay { path: full.to_owned(), fault });
        }
        self.plan.overwritten.push(path.to_owned());
        Ok(())
    }

    /// Whether a folder of the host holds nothing but what syncs brought.
    fn is_ours(&mut self, path: &Path) -> Result<bool, SyncError> {
        let full = self.target.join(path);
        for entry in fs::read_dir(&full).map_err(SyncError::io("read", &full))? {
            let entry = entry.map_err(SyncError::io("read", &full))?;
            let path = path.join(entry.file_name());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            self.plan.seen.push((path.clone(), entry.ino()));
            let ours = if is_dir { self.is_ours(&path)? } else { self.brought.contains_key(path.as_path()) };
            if !ours {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Something that the manifest doesn't have. Gives whether it stays.
    fn extra(&mut self, path: &Path, meta: &Metadata) -> Result<bool, SyncError> {
        let known = self.brought.get(path).copied();
        if meta.is_dir() {
            return self.extra_dir(path, meta);
        }
        let full = self.target.join(path);
        if fs::read_link(&full).is_ok_and(|link| link == through_peer(path)) {
            let fault = "lies in an older tree, from where it could not move: remove this symlink and move the folder that it leads to \
                         in its place";
            return Err(SyncError::InTheWay { path: full, fault });
        }
        if let Some(known) = known {
            let is_as_brought = known.fault(&full, meta).is_none();
            if self.delete && is_as_brought {
                self.plan.deleted.push(path.to_owned());
                self.plan.is_same = false;
                return Ok(false);
            }
            if self.delete {
                self.plan.spared.push(path.to_owned());
            } else {
                self.plan.leftovers.push(known.clone());
            }
        }
        self.plan.steps.push(Step::Share { path: path.to_owned() });
        Ok(true)
    }

    fn extra_dir(&mut self, path: &Path, meta: &Metadata) -> Result<bool, SyncError> {
        let full = self.target.join(path);
        let was_brought = self.brought.contains_key(path);
        if !self.delete || !(was_brought || self.above.contains(path)) {
            let kept: Vec<Brought> = self
                .brought
                .iter()
                .filter(|(brought, _)| brought.starts_with(path))
                .map(|(_, brought)| (*brought).clone())
                .filter(|brought| fs::symlink_metadata(self.target.join(&brought.entry.path)).is_ok())
                .collect();
            self.plan.leftovers.extend(kept);
            self.can_be_moved(&full, meta)?;
            self.plan.steps.push(Step::Move { path: path.to_owned() });
            return Ok(true);
        }
        let at = self.plan.steps.len();
        let mut stays = !was_brought;
        for (path, meta) in self.read(path)? {
            stays |= self.extra(&path, &meta)?;
        }
        if stays {
            self.plan.steps.insert(at, Step::Dir { path: path.to_owned(), mode: meta.mode() & 0o7777 });
        } else {
            self.plan.is_same = false;
        }
        Ok(stays)
    }

    /// Refuses before anything is changed what the switch could not move.
    fn can_be_moved(&self, full: &Path, meta: &Metadata) -> Result<(), SyncError> {
        let path = full.to_owned();
        if Some(meta.dev()) != self.device {
            let fault = "is a mount point, which can't move into the new tree: sync another folder (--sync DIR:PATH), or mount it elsewhere";
            return Err(SyncError::Target { path, fault: fault.to_owned() });
        }
        let is_ours = |path: &Path| access(path, Access::WRITE_OK).is_ok();
        if is_ours(full) && full.parent().is_none_or(is_ours) {
            return Ok(());
        }
        let fault = "belongs to another user and can't move into the new tree: change its owner there (chown), or sync another folder (--sync DIR:PATH)";
        Err(SyncError::NotOurs { path, fault })
    }
}

/// How much of a file there is as it is wanted.
enum Same {
    Whole,
    /// The mode is another one.
    Content,
    Nothing,
}
