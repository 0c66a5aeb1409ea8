//! Where the contents of an image lie until an engine has them: on a host between two copies that were cut, and on the
//! machine that the image comes from.
//!
//! `/var/tmp/hvtui-UID/images/NAME`, on a disk of the machine's own: home folders are often shared, and small. One process
//! at a time has a folder, by a lock on it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::domain::text::os_text;
use crate::domain::time::Stamp;
use crate::sync::blobs::Store;

/// Where folders of users lie.
const COMMON: &str = "/var/tmp";
/// A copy that was not continued for so long is removed.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// A folder for the contents of one image, locked.
#[derive(Debug)]
pub struct Staging {
    dir: PathBuf,
    _lock: File,
}

/// Why there is no folder for an image.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {}", .path.display(), os_text(.source))]
pub struct StagingError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl StagingError {
    fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { what, path, source }
    }

    /// What refused.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// The folder of all images: the user's own on the machine's disk, or below `state` where there can be none.
pub fn place(state: &Path) -> PathBuf {
    let (own, uid) = own();
    // it may be there, and be another user's
    let _ = DirBuilder::new().mode(0o700).create(&own);
    if is_own(&own, uid) { own.join("images") } else { state.join("images") }
}

fn own() -> (PathBuf, u32) {
    let uid = rustix::process::geteuid().as_raw();
    (Path::new(COMMON).join(format!("hvtui-{uid}")), uid)
}

/// Whether a folder is this user's alone: no other user has a bit of its mode.
fn is_own(path: &Path, uid: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == uid && meta.mode().trailing_zeros() >= 6)
}

impl Staging {
    /// The folder of this name; `None` while another process has it, or has just removed it.
    pub fn open(place: &Path, name: &str) -> Result<Option<Self>, StagingError> {
        let dir = place.join(name);
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(&dir).map_err(StagingError::of("make", &dir))?;
        Self::lock(dir)
    }

    /// The folder of this name, if it is there and not in use.
    pub fn unused(place: &Path, name: &str) -> Option<Self> {
        Self::lock(place.join(name)).ok().flatten()
    }

    fn lock(dir: PathBuf) -> Result<Option<Self>, StagingError> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let lock = match OpenOptions::new().read(true).custom_flags(flags).open(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            lock => lock.map_err(StagingError::of("open", &dir))?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(StagingError::of("lock", &dir)(error.into())),
        }
        let held = lock.metadata().map_err(StagingError::of("look at", &dir))?;
        // who had it may have removed it
        let is_there = fs::symlink_metadata(&dir).is_ok_and(|there| there.ino() == held.ino());
        Ok(is_there.then_some(Self { dir, _lock: lock }))
    }

    /// Its contents.
    pub fn store(&self) -> Store {
        Store::new(self.dir.clone())
    }

    /// Its path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes it with all that is there.
    pub fn remove(self) {
        remove(&self.dir);
    }
}

fn remove(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "contents of an image stay");
    }
}

/// The beginning of the name of a folder whose contents are of use to one process alone.
pub const OF_ONE: &str = "from-";

/// Removes what lies unused for long, and what processes have left that were the only ones to use it. Makes nothing.
pub fn sweep(state: &Path, now: Stamp) {
    let (own, uid) = own();
    let common = is_own(&own, uid).then(|| own.join("images"));
    for place in common.into_iter().chain([state.join("images")]) {
        sweep_place(&place, now.0 / 1_000_000);
    }
}

fn sweep_place(place: &Path, now: i64) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let age = entry.metadata().map_or(0, |meta| now.saturating_sub(meta.mtime()));
        let is_old = u64::try_from(age).is_ok_and(|age| age > KEPT.as_secs());
        if !is_old && !name.starts_with(OF_ONE) {
            continue;
        }
        if let Some(unused) = Staging::unused(place, name) {
            unused.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_has_a_folder_and_old_ones_go() {
        let state = tempfile::tempdir().unwrap();
        let place = state.path().join("images");
        let open = |name: &str| Staging::open(&place, name).unwrap();
        let held = open("a").unwrap();
        assert!(open("a").is_none());
        fs::write(held.dir().join("x"), b"x").unwrap();
        drop(open("b"));
        drop(open("from-7"));
        let now = fs::metadata(place.join("b")).unwrap().mtime();
        sweep_place(&place, now + 60);
        assert!(place.join("b").exists() && !place.join("from-7").exists());
        sweep_place(&place, now + 8 * 86_400);
        assert!(!place.join("b").exists() && held.dir().join("x").exists(), "one that is used stays");
        held.remove();
        assert!(open("a").is_some());
    }

    #[test]
    fn a_folder_of_somebody_else_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let path = |name: &str| dir.path().join(name);
        DirBuilder::new().mode(0o700).create(path("new")).unwrap();
        assert!(is_own(&path("new"), uid));
        assert!(!is_own(&path("new"), uid + 1));
        DirBuilder::new().mode(0o750).create(path("open")).unwrap();
        std::os::unix::fs::symlink(path("new"), path("link")).unwrap();
        assert!(!is_own(&path("open"), uid) && !is_own(&path("link"), uid));
    }
}
