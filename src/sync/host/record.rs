//! What syncs have brought to a folder, and by what each file is known to be as it was brought.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::place::Place;
use crate::domain::sync::Digest;
use crate::sync::error::SyncError;
use crate::sync::manifest::{Entry, Kind, Manifest};

const HEAD: &str = "hvtui-brought 1";
/// The record that will hold once a switch is done.
pub(super) const NEXT: &str = "record.next";
pub(super) const FILE: &str = "record";

/// By what a file is known to be as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    ino: u64,
    mtime_ns: i128,
}

impl Seen {
    /// Of what a look at the file gave.
    pub(super) fn of(meta: &Metadata) -> Self {
        Self { ino: meta.ino(), mtime_ns: mtime_ns(meta) }
    }

    /// The file's inode.
    pub(super) fn ino(self) -> u64 {
        self.ino
    }
}

/// One thing that a sync brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Brought {
    pub(super) entry: Entry,
    pub(super) seen: Seen,
    /// Whether it is no part of the newest tree: it was there in an earlier one.
    pub(super) is_left: bool,
}

/// All that syncs brought.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    pub(super) brought: Vec<Brought>,
    tree: Option<Digest>,
}

fn mtime_ns(meta: &Metadata) -> i128 {
    i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
}

impl Brought {
    /// How what is at its place differs from what was brought.
    pub(super) fn fault(&self, full: &Path, meta: &Metadata) -> Option<&'static str> {
        let kind = meta.file_type();
        match &self.entry.kind {
            Kind::Dir { .. } if !kind.is_dir() => Some("it is no folder there"),
            Kind::Dir { mode } => (meta.mode() & 0o777 != *mode).then_some("its mode is another one"),
            Kind::Link { target } => {
                let there = kind.is_symlink().then(|| fs::read_link(full).ok()).flatten();
                (there.as_deref() != Some(Path::new(target))).then_some("it points elsewhere")
            }
            Kind::File { mode, size, .. } => {
                if !kind.is_file() {
                    Some("it is no file there")
                } else if meta.len() != *size || Seen::of(meta) != self.seen {
                    Some("it was changed there")
                } else {
                    (meta.mode() & 0o777 != *mode).then_some("its mode is another one")
                }
            }
        }
    }
}

impl Record {
    /// What stands beside the folder; empty where nothing was brought yet, or it can't be read.
    pub(super) fn load(place: &Place) -> Self {
        let text = fs::read_to_string(place.own.join(FILE)).ok();
        text.and_then(|text| Self::read(&text)).unwrap_or_default()
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let tree = lines.next()?.strip_prefix(HEAD)?.strip_prefix(' ')?.parse().ok()?;
        let brought = lines.map(|line| {
            let mut words = line.splitn(4, ' ');
            let is_left = words.next()? == "-";
            let seen = Seen { ino: words.next()?.parse().ok()?, mtime_ns: words.next()?.parse().ok()? };
            Some(Brought { entry: Entry::read(words.next()?)?, seen, is_left })
        });
        Some(Self { brought: brought.collect::<Option<_>>()?, tree: Some(tree) })
    }

    /// The record of a tree that was just assembled, with what earlier ones brought and it does not hold. `linked` are files
    /// that it shares with the tree before: what they were when they were compared counts, not what they are now.
    pub(super) fn of(
        tree: &Path,
        manifest: &Manifest,
        leftovers: &[Brought],
        linked: &HashMap<&Path, Seen>,
    ) -> Result<Self, SyncError> {
        let mut brought = Vec::with_capacity(manifest.entries().len() + leftovers.len());
        for entry in manifest.entries() {
            let seen = if let Some(seen) = linked.get(Path::new(&entry.path)) {
                *seen
            } else {
                let full = tree.join(&entry.path);
                Seen::of(&fs::symlink_metadata(&full).map_err(SyncError::io("look at", &full))?)
            };
            brought.push(Brought { entry: entry.clone(), seen, is_left: false });
        }
        brought.extend(leftovers.iter().map(|left| Brought { is_left: true, ..left.clone() }));
        Ok(Self { brought, tree: Some(manifest.digest()) })
    }

    /// Writes it beside the folder, as what will hold once the switch is done; gives the file, which is not flushed.
    pub(super) fn save_next(&self, place: &Place) -> Result<PathBuf, SyncError> {
        let mut text = String::with_capacity(self.brought.len() * 140);
        let tree = self.tree.map(|tree| tree.to_string()).unwrap_or_default();
        let _ = writeln!(text, "{HEAD} {tree}");
        for Brought { entry, seen, is_left } in &self.brought {
            text.push_str(if *is_left { "- " } else { "+ " });
            let _ = write!(text, "{} {} ", seen.ino, seen.mtime_ns);
            entry.write(&mut text);
        }
        let path = place.own.join(NEXT);
        fs::write(&path, text).map_err(SyncError::io("write", &path))?;
        Ok(path)
    }

    /// Writes it beside the folder.
    pub(super) fn save(&self, place: &Place) -> Result<(), SyncError> {
        let next = self.save_next(place)?;
        let flushed = fs::File::open(&next).and_then(|file| file.sync_data());
        flushed.map_err(SyncError::io("flush", &next))?;
        fs::rename(&next, place.own.join(FILE)).map_err(SyncError::io("rename", &next))
    }

    /// The name of the tree that was brought last.
    pub(super) fn tree(&self) -> Option<Digest> {
        self.tree
    }

    /// The first thing of the newest tree that is not there as it was brought, and how it differs.
    pub(super) fn differing(&self, target: &Path) -> Option<(String, &'static str)> {
        self.brought.iter().filter(|brought| !brought.is_left).find_map(|brought| {
            let full = target.join(&brought.entry.path);
            let fault = match fs::symlink_metadata(&full) {
                Ok(meta) => brought.fault(&full, &meta)?,
                Err(_) => "it is not there",
            };
            Some((brought.entry.path.clone(), fault))
        })
    }
}
