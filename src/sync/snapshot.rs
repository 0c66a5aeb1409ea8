//! Reads the client's folder: which files are copied, and what they hash to.
//!
//! `.gitignore` counts as for git, in the folder, below it and above it up to the repository; `.hvtuiignore`, written in
//! the same way, counts before it. `.git` is never copied.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ignore::WalkBuilder;

use super::cache::{Cache, Stat};
use super::error::SyncError;
use super::manifest::{Entry, Kind, Manifest};
use super::names::{link_fault, path_fault};
use crate::domain::sync::Digest;
use crate::sha256;

/// The folder as it was read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The folder.
    pub dir: PathBuf,
    /// What it holds.
    pub manifest: Manifest,
    /// The manifest's name.
    pub tree: Digest,
    /// For each content, a file that holds it and its length.
    sources: HashMap<Digest, (PathBuf, u64)>,
}

impl Snapshot {
    /// A file that held this content, and its length.
    pub fn source(&self, name: Digest) -> Option<(&Path, u64)> {
        self.sources.get(&name).map(|(path, size)| (path.as_path(), *size))
    }

    /// The lengths of all files together.
    pub fn bytes(&self) -> u64 {
        let size = |entry: &Entry| match entry.kind {
            Kind::File { size, .. } => size,
            _ => 0,
        };
        self.manifest.entries().iter().map(size).sum()
    }
}

/// A file whose hash is wanted.
struct Found {
    path: String,
    full: PathBuf,
    mode: u32,
    stat: Stat,
    size: u64,
}

/// How far a folder has been read, for the caller that waits for it.
#[derive(Debug, Default)]
pub struct Progress {
    files: AtomicU64,
    to_hash: AtomicU64,
    hashed: AtomicU64,
}

impl Progress {
    /// Files that were found.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Bytes of the files whose hash is not known; 0 until all files were found.
    pub fn to_hash(&self) -> u64 {
        self.to_hash.load(Ordering::Relaxed)
    }

    /// Bytes of them that were read.
    pub fn hashed(&self) -> u64 {
        self.hashed.load(Ordering::Relaxed)
    }
}

/// Reads a folder. Hashes are taken from a file in `hashes` where the files are as they were; `now_ns` is the wall clock,
/// nanoseconds since 1970.
pub fn snapshot(
    dir: &Path,
    hashes: Option<&Path>,
    now_ns: i128,
    progress: &Progress,
) -> Result<Snapshot, SyncError> {
    let dir = dir.canonicalize().map_err(SyncError::io("read", dir))?;
    if !dir.is_dir() {
        return Err(SyncError::Target {
            path: dir,
            fault: "is not a folder: --sync copies folders".to_owned(),
        });
    }
    let (mut entries, files) = walk(&dir, progress)?;
    let cache = hashes.map(|folder| Cache::load(folder, &dir)).unwrap_or_default();
    let contents = hash_all(&files, &cache, progress)?;
    let known = files.iter().zip(&contents).map(|(file, (hash, _))| (file.path.as_str(), file.stat, *hash));
    cache.keep(known, now_ns);
    let mut sources = HashMap::new();
    for (file, (hash, size)) in files.into_iter().zip(contents) {
        entries.push(Entry { path: file.path, kind: Kind::File { mode: file.mode, size, hash } });
        sources.entry(hash).or_insert((file.full, size));
    }
    let manifest = Manifest::new(entries)?;
    let tree = manifest.digest();
    Ok(Snapshot { dir, manifest, tree, sources })
}

/// Folders and symlinks, and the files.
fn walk(dir: &Path, progress: &Progress) -> Result<(Vec<Entry>, Vec<Found>), SyncError> {
    let mut walk = WalkBuilder::new(dir);
    walk.hidden(false).ignore(false).git_global(false).git_exclude(true).git_ignore(true).require_git(false);
    walk.parents(true).follow_links(false).add_custom_ignore_filename(".hvtuiignore");
    walk.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
    let (mut entries, mut files) = (Vec::new(), Vec::new());
    for entry in walk.build() {
        let entry = entry.map_err(|error| unread(dir, error))?;
        if entry.depth() == 0 {
            continue;
        }
        let full = entry.path();
        let meta = std::fs::symlink_metadata(full).map_err(SyncError::io("read", full))?;
        let relative = full.strip_prefix(dir).unwrap_or(full);
        let Some(path) = relative.to_str() else {
            let path = relative.to_string_lossy().into_owned();
            return Err(SyncError::Name { path, fault: "has a name that is not UTF-8" });
        };
        if let Some(fault) = path_fault(path) {
            return Err(SyncError::Name { path: path.to_owned(), fault });
        }
        let path = path.to_owned();
        let kind = meta.file_type();
        if kind.is_dir() {
            entries.push(Entry { path, kind: Kind::Dir { mode: meta.mode() & 0o777 | 0o700 } });
        } else if kind.is_symlink() {
            entries.push(Entry { kind: link(full, &path)?, path });
        } else if kind.is_file() {
            let (full, mode) = (full.to_owned(), meta.mode() & 0o777);
            progress.files.fetch_add(1, Ordering::Relaxed);
            files.push(Found { path, full, mode, stat: Stat::of(&meta), size: meta.len() });
        } else {
            return Err(SyncError::Special { path, what: special(&meta) });
        }
    }
    Ok((entries, files))
}

fn link(full: &Path, path: &str) -> Result<Kind, SyncError> {
    let target = std::fs::read_link(full).map_err(SyncError::io("read", full))?;
    let fault = |target: String, fault| SyncError::Link { path: path.to_owned(), target, fault };
    let target = match target.into_os_string().into_string() {
        Ok(target) => target,
        Err(target) => {
            return Err(fault(target.to_string_lossy().into_owned(), "has a target that is not UTF-8"));
        }
    };
    match link_fault(path, &target) {
        Some(what) => Err(fault(target, what)),
        None => Ok(Kind::Link { target }),
    }
}

fn special(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_socket() {
        "socket"
    } else if kind.is_fifo() {
        "named pipe"
    } else {
        "device"
    }
}

fn unread(dir: &Path, error: ignore::Error) -> SyncError {
    let path = match &error {
        ignore::Error::WithPath { path, .. } => path.clone(),
        _ => dir.to_owned(),
    };
    let text = error.to_string();
    let source = error.into_io_error().unwrap_or_else(|| std::io::Error::other(text));
    SyncError::Io { what: "read", path, source }
}

/// The hash and the length of each file, those that are not known read by as many threads as there are processors.
fn hash_all(files: &[Found], cache: &Cache, progress: &Progress) -> Result<Vec<(Digest, u64)>, SyncError> {
    let mut hashes: Vec<Option<(Digest, u64)>> =
        files.iter().map(|file| Some((cache.get(&file.path, file.stat)?, file.size))).collect();
    let unknown: Vec<(usize, &Found)> =
        files.iter().enumerate().filter(|(at, _)| hashes.get(*at).is_some_and(Option::is_none)).collect();
    progress.to_hash.store(unknown.iter().map(|(_, file)| file.size).sum(), Ordering::Relaxed);
    let more = |bytes| {
        progress.hashed.fetch_add(bytes, Ordering::Relaxed);
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(unknown.len()));
    let work = || {
        while let Some((at, file)) = unknown.get(next.fetch_add(1, Ordering::Relaxed)) {
            let read = sha256::of_file_in_tree(&file.full, more).map_err(SyncError::from);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*at, read));
        }
    };
    let most = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 1..most.min(unknown.len() / 8 + 1) {
            scope.spawn(work);
        }
        work();
    });
    for (at, read) in done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        if let Some(slot) = hashes.get_mut(at) {
            *slot = Some(read?);
        }
    }
    Ok(hashes.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn paths(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.manifest.entries().iter().map(|entry| entry.path.as_str()).collect()
    }

    #[test]
    fn ignored_files_and_git_stay_here() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in [".git", "sub", "sub/out", "kept"] {
            fs::create_dir(at(name)).unwrap();
        }
        for (name, text) in [
            (".git/HEAD", "ref"),
            (".gitignore", "*.log\nout/\nnotes\n"),
            (".hvtuiignore", "!notes\n/kept\n"),
            ("a.log", ""),
            ("notes", "wanted"),
            (".env", "hidden files are files"),
            ("sub/out/x", ""),
            ("sub/train.py", "1"),
            ("kept/x", ""),
        ] {
            fs::write(at(name), text).unwrap();
        }
        symlink("train.py", at("sub/link")).unwrap();
        fs::set_permissions(at("sub/train.py"), fs::Permissions::from_mode(0o751)).unwrap();
        let snapshot = snapshot(dir.path(), None, 0, &Progress::default()).unwrap();
        let wanted = [".env", ".gitignore", ".hvtuiignore", "notes", "sub", "sub/link", "sub/train.py"];
        assert_eq!(paths(&snapshot), wanted);
        let train = &snapshot.manifest.entries()[6].kind;
        assert!(matches!(train, Kind::File { mode: 0o751, size: 1, .. }), "{train:?}");
    }

    #[test]
    fn names_and_links_that_cannot_be_copied_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || snapshot(dir.path(), None, 0, &Progress::default()).unwrap_err().to_string();
        let bad = dir.path().join("a\nb");
        fs::write(&bad, "").unwrap();
        assert!(refused().starts_with("\"a\\nb\" has a line feed"), "{}", refused());
        fs::remove_file(&bad).unwrap();
        symlink("../x", dir.path().join("l")).unwrap();
        assert!(
            refused().starts_with("the symlink \"l\" -> \"../x\" leads out of the folder"),
            "{}",
            refused()
        );
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        let later = i128::MAX / 2;
        let one = snapshot(dir.path(), Some(state.path()), later, &Progress::default()).unwrap();
        assert_eq!(
            snapshot(dir.path(), Some(state.path()), later, &Progress::default()).unwrap().tree,
            one.tree
        );
        fs::write(dir.path().join("b"), "2").unwrap();
        fs::rename(dir.path().join("b"), dir.path().join("a")).unwrap();
        assert_ne!(
            snapshot(dir.path(), Some(state.path()), later, &Progress::default()).unwrap().tree,
            one.tree
        );
    }
}
