//! The files of one recording: `run.mcap`, and for each client that attached to the run again `run.2.mcap`,
//! `run.3.mcap`, … Each is a whole MCAP file; nothing that was written is ever written to again.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::Error;
use crate::filelock::give_back;

/// Who holds a lock on this file writes the recording.
const LOCK: &str = "lock";
/// So often it is tried anew where another client removes the lock or its folder at the same time.
const TRIES: usize = 8;

/// The files of the recording that begins with `first`, in order; `first` alone when it is not there.
pub(super) fn of(first: &Path) -> Vec<PathBuf> {
    let mut files = vec![first.to_owned()];
    while let Some(next) = path(first, files.len() + 1).filter(|next| next.is_file()) {
        files.push(next);
    }
    files
}

/// The files that follow this one, in order.
pub(super) fn behind(first: &Path, file: &Path) -> Vec<PathBuf> {
    of(first).into_iter().skip_while(|path| path != file).skip(1).collect()
}

/// The `number`th file; `None` for a name that can't have followers.
fn path(first: &Path, number: usize) -> Option<PathBuf> {
    let stem = first.file_name()?.to_str()?.strip_suffix(".mcap")?;
    Some(first.with_file_name(format!("{stem}.{number}.mcap")))
}

pub(super) fn lock_path(first: &Path) -> PathBuf {
    first.parent().unwrap_or(Path::new(".")).join(LOCK)
}

/// Whether an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let of = |about: Metadata| (about.dev(), about.ino());
    let (open, there) = (file.metadata().map(of), std::fs::metadata(path).map(of));
    open.is_ok_and(|open| there.is_ok_and(|there| open == there))
}

/// The right to write a recording, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    first: PathBuf,
    /// None where the file system has no locks: there, files that must not be there yet keep writers apart.
    held: Option<File>,
}

impl Lock {
    /// Takes the right to write the recording that begins with `first`; makes the folders on the way, which
    /// only their owner may read.
    ///
    /// # Errors
    /// [`Error::Busy`] while another process has it, and what the file system says.
    pub fn take(first: &Path) -> Result<Self, Error> {
        let path = lock_path(first);
        let folder = path.parent().unwrap_or(Path::new("."));
        let open = || {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(Error::file(folder))?;
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            file.map_err(Error::file(&path))
        };
        let mut failed = Error::Busy(first.to_owned());
        for _ in 0..TRIES {
            let file = match open() {
                Ok(file) => file,
                // its folder is maybe being removed
                Err(error) => {
                    failed = error;
                    continue;
                }
            };
            let held = match file.try_lock() {
                // whose holder has removed it meanwhile: it keeps none out any more
                Ok(()) if !is_at(&file, &path) => continue,
                Ok(()) => Some(file),
                Err(TryLockError::WouldBlock) => return Err(Error::Busy(first.to_owned())),
                Err(TryLockError::Error(error)) => {
                    tracing::debug!(%error, "no lock on a recording");
                    None
                }
            };
            return Ok(Self { first: first.to_owned(), held });
        }
        Err(failed)
    }

    /// The first file of the recording.
    pub(super) fn first(&self) -> &Path {
        &self.first
    }

    /// Whether it keeps others out; not so where the file system has no locks.
    pub(super) fn is_held_here(&self) -> bool {
        self.held.is_some()
    }

    /// Its file.
    pub(super) fn path(&self) -> PathBuf {
        lock_path(&self.first)
    }

    /// Whether another process has it.
    pub fn is_held(first: &Path) -> bool {
        let file = OpenOptions::new().write(true).open(lock_path(first));
        // shared: two that look at once do not take each other for the one that writes
        file.is_ok_and(|file| match file.try_lock_shared() {
            Ok(()) => {
                give_back(&file);
                false
            }
            Err(error) => matches!(error, TryLockError::WouldBlock),
        })
    }

    /// Whether there is a lock file, held or not.
    pub fn is_there(first: &Path) -> bool {
        lock_path(first).exists()
    }

    /// Gives it up and removes its file.
    pub fn remove(self) {
        drop(std::fs::remove_file(self.path()));
    }

    /// A new file at the end of the recording: its first one, or another.
    pub(super) fn next(&self) -> Result<(PathBuf, File), Error> {
        let number = if self.first.exists() { of(&self.first).len() + 1 } else { 1 };
        let next = match number {
            1 => self.first.clone(),
            number => path(&self.first, number).ok_or_else(|| Error::Exists(self.first.clone()))?,
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists(next.clone()),
            _ => Error::File { path: next.clone(), source },
        })?;
        Ok((next, file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(file) = &self.held {
            give_back(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_file_was_removed_is_not_the_one_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let opened = File::create(&path).unwrap();
        assert!(is_at(&opened, &path));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&opened, &path));
        let another = File::create(&path).unwrap();
        assert!(!is_at(&opened, &path) && is_at(&another, &path));
    }

    #[test]
    fn a_lock_that_is_taken_while_its_folder_goes_is_the_one_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("run").join("run.mcap");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..300 {
                    if let Ok(lock) = Lock::take(&first) {
                        lock.remove();
                        drop(std::fs::remove_dir(first.parent().unwrap()));
                    }
                }
            });
            for _ in 0..300 {
                if let Ok(lock) = Lock::take(&first) {
                    assert!(is_at(lock.held.as_ref().unwrap(), &lock.path()));
                }
            }
        });
    }
}
