//! Contents named by their hash, as they come in pieces: what a link has brought before it was cut is still there when
//! the next one asks. Knows nothing of what the contents are for.
//!
//! In a store's folder `HASH` is whole and its content is checked; `HASH.part` is a beginning. One store has one writer at a
//! time; its owner sees to that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::error::SyncError;
use crate::domain::sync::Digest;
use crate::sha256::{self, Hasher};

/// Files up to this length are many: it is their flushes one by one that take long, not their bytes.
const SMALL: u64 = 1 << 20;

/// A folder of contents.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    open: Option<Part>,
}

/// The content that is being written.
struct Part {
    name: Digest,
    file: File,
    hash: Hasher,
    held: u64,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("name", &self.name).field("held", &self.held).finish_non_exhaustive()
    }
}

/// A piece of a content.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The content's hash.
    pub name: Digest,
    /// Its whole length.
    pub size: u64,
    /// Where the piece begins.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
}

impl Store {
    /// The store in this folder, which is made with the first piece.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, open: None }
    }

    /// Where a content lies once it is whole.
    pub fn path_of(&self, name: Digest) -> PathBuf {
        self.dir.join(name.to_string())
    }

    fn part_of(&self, name: Digest) -> PathBuf {
        self.dir.join(format!("{name}.part"))
    }

    /// How many bytes of a content are there; all of `size` once it is whole.
    pub fn held(&self, name: Digest, size: u64) -> u64 {
        let length = |path: &Path| {
            fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|meta| meta.len())
        };
        let whole = self.path_of(name);
        if length(&whole) == Some(size) {
            // Of an earlier launch: it may not have come to the disk before a power failure.
            if sha256::of_file_in_tree(&whole, |_| ()).is_ok_and(|found| found == (name, size)) {
                return size;
            }
            drop(fs::remove_file(&whole));
        }
        // a part of full length was cut before its check: its last byte is asked for again
        length(&self.part_of(name)).unwrap_or(0).min(size.saturating_sub(1))
    }

    /// What is there, and how many bytes of each: all of a whole content; of a beginning all but its last byte, which is
    /// asked for again, as it may be cut before its check.
    pub fn all_held(&self) -> Vec<(Digest, u64)> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let held = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let length = entry.metadata().ok().filter(fs::Metadata::is_file)?.len();
            let (name, size) = match name.strip_suffix(".part") {
                Some(name) => (name.parse().ok()?, u64::MAX),
                None => (name.parse().ok()?, length),
            };
            Some((name, self.held(name, size).min(length.saturating_sub(u64::from(size == u64::MAX)))))
        });
        held.filter(|(_, held)| *held > 0).collect()
    }

    /// Takes a piece; each content's pieces come in order. Gives whether the content is whole now.
    pub fn put(&mut self, piece: Piece<'_>) -> Result<bool, SyncError> {
        let Piece { name, size, offset, data } = piece;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > size) {
            return Err(SyncError::Changed { name });
        }
        if self.open.as_ref().is_none_or(|part| part.name != name) {
            self.open = Some(self.begin(name, offset)?);
        }
        let path = self.part_of(name);
        let Some(part) = &mut self.open else { return Ok(false) };
        if part.held != offset {
            let held = part.held;
            self.open = None;
            return Err(SyncError::Hole { name, offset, held });
        }
        part.file.write_all(data).map_err(SyncError::io("write", &path))?;
        part.hash.update(data);
        part.held += data.len() as u64;
        if part.held < size {
            return Ok(false);
        }
        self.finish(name, &path)
    }

    fn begin(&self, name: Digest, offset: u64) -> Result<Part, SyncError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(SyncError::io("make", &self.dir))?;
        let path = self.part_of(name);
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = open.open(&path).map_err(SyncError::io("open", &path))?;
        let mut hash = Hasher::default();
        file.set_len(file.metadata().map_err(SyncError::io("read", &path))?.len().min(offset))
            .map_err(SyncError::io("cut", &path))?;
        let mut held = 0;
        if offset > 0 {
            held = hash.read(&mut file, |_| ()).map_err(SyncError::io("read", &path))?;
        }
        Ok(Part { name, file, hash, held })
    }

    fn finish(&mut self, name: Digest, path: &Path) -> Result<bool, SyncError> {
        let Some(part) = self.open.take() else { return Ok(false) };
        if part.hash.finish() != name {
            drop(fs::remove_file(path));
            return Err(SyncError::Changed { name });
        }
        begin_flush(&part.file, part.held);
        fs::rename(path, self.path_of(name)).map_err(SyncError::io("rename", path))?;
        Ok(true)
    }

    /// Removes all that is there.
    pub fn clear(&mut self) {
        self.open = None;
        if let Err(error) = fs::remove_dir_all(&self.dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %self.dir.display(), %error, "staged contents stay");
        }
    }
}

/// Lets the system begin to write a small new file to the disk; nothing waits for it. A flush of many files then finds most
/// of its work done, and one commit of the file system's journal serves them all. (`sync_file_range` says the same, but is not
/// to be had without `unsafe`. Pages that are not on the disk yet stay in memory.)
pub(super) fn begin_flush(file: &File, length: u64) {
    if length <= SMALL
        && let Err(error) = fadvise(file, 0, None, Advice::DontNeed)
    {
        tracing::trace!(%error, "a file is written when it is flushed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(name: Digest, size: usize, offset: usize, data: &[u8]) -> Piece<'_> {
        Piece { name, size: size as u64, offset: offset as u64, data }
    }

    #[test]
    fn a_content_that_was_cut_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let text = b"all of it".as_slice();
        let name = crate::sha256::of_bytes(text);
        let mut store = Store::new(dir.path().join("blobs"));
        assert_eq!(store.held(name, 9), 0);
        assert!(!store.put(piece(name, 9, 0, &text[..3])).unwrap());
        drop(store);
        let mut store = Store::new(dir.path().join("blobs"));
        assert_eq!(store.held(name, 9), 3);
        assert!(!store.put(piece(name, 9, 3, &text[3..4])).unwrap());
        assert!(store.put(piece(name, 9, 4, &text[4..])).unwrap());
        assert_eq!(store.held(name, 9), 9);
        assert_eq!(fs::read(store.path_of(name)).unwrap(), text);
        let empty = crate::sha256::of_bytes(b"");
        assert!(store.put(piece(empty, 0, 0, b"")).unwrap(), "an empty file is one piece");
    }

    #[test]
    fn other_content_and_holes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let name = crate::sha256::of_bytes(b"right");
        let mut store = Store::new(dir.path().to_owned());
        assert!(matches!(store.put(piece(name, 5, 0, b"wrong")), Err(SyncError::Changed { .. })));
        assert_eq!(store.held(name, 5), 0, "nothing of it is kept");
        assert!(matches!(store.put(piece(name, 5, 2, b"ght")), Err(SyncError::Hole { held: 0, .. })));
        assert!(matches!(store.put(piece(name, 5, 4, b"tt")), Err(SyncError::Changed { .. })));
        assert!(matches!(
            store.put(piece(name, u64::MAX as usize, usize::MAX, b"t")),
            Err(SyncError::Changed { .. })
        ));
        // a beginning that is not the beginning of this content shows at its end, and goes
        fs::write(dir.path().join(format!("{name}.part")), b"xx").unwrap();
        assert_eq!(store.held(name, 5), 2);
        assert!(matches!(store.put(piece(name, 5, 2, b"ght")), Err(SyncError::Changed { .. })));
        assert!(store.put(piece(name, 5, 0, b"right")).unwrap());
    }
}
