//! Where a synced folder lies on a host, and what lies beside it. Refuses folders that can't be replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, statvfs};

use crate::sync::error::SyncError;

/// A machine that has not looked after a folder for so long is gone: old trees do not wait for it. Far longer than jobs run,
/// for a job that goes on there is not looked for.
const GONE: Duration = Duration::from_secs(365 * 24 * 3600);

/// A folder on this host and its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder itself; it may not be there yet.
    pub(super) target: PathBuf,
    /// The folder that it is in.
    pub(super) parent: PathBuf,
    /// Its name.
    pub(super) name: String,
    /// hvtui's own folder beside it.
    pub(super) own: PathBuf,
}

/// The only sync of a folder. It ends with the process at the latest.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Place {
    /// The place of `remote`: absolute, or `~/x` from `home` on. `keep` are folders that must not be moved with it.
    pub fn of(remote: &str, home: &Path, keep: &[&Path]) -> Result<Self, SyncError> {
        let written = match remote.strip_prefix('~') {
            Some(rest) => home.join(rest.trim_start_matches('/')),
            None => PathBuf::from(remote),
        };
        let refuse = |fault: &str| SyncError::Target { path: written.clone(), fault: fault.to_owned() };
        let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if !written.is_absolute()
            || !written.components().all(is_plain)
            || remote.chars().any(char::is_control)
        {
            return Err(refuse("is not a whole path: write an absolute one, or one that begins with ~/"));
        }
        // a folder behind a symlink is replaced where it lies
        let mut target = written.canonicalize().unwrap_or_else(|_| written.clone());
        match fs::metadata(&target) {
            Ok(meta) if !meta.is_dir() => {
                return Err(refuse("is a file there: name another folder (--sync DIR:PATH)"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if fs::symlink_metadata(&target).is_ok() {
                    return Err(refuse("is a symlink to nothing there: remove it, or name another folder"));
                }
            }
            Err(error) => return Err(SyncError::io("look at", &target)(error)),
        }
        let (Some(parent), Some(name)) = (target.parent(), target.file_name().and_then(|name| name.to_str()))
        else {
            return Err(refuse("can't be replaced: name a folder in it (--sync DIR:PATH)"));
        };
        // its parents may be symlinks though it is not there itself
        let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
        let name = name.to_owned();
        target = parent.join(&name);
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(held) =
            keep.iter().chain([&home]).map(|path| canonical(path)).find(|path| path.starts_with(&target))
        {
            return Err(refuse(&format!(
                "holds {}, which can't be replaced: name a folder in it (--sync DIR:PATH)",
                held.display()
            )));
        }
        let own = parent.join(format!(".{name}.hvtui"));
        let place = Self { target, parent, name, own };
        if let (Ok(it), Ok(above)) = (fs::metadata(&place.target), fs::metadata(&place.parent))
            && it.dev() != above.dev()
        {
            return Err(refuse(
                "is a mount point, which can't be replaced: name a folder in it (--sync DIR:PATH)",
            ));
        }
        Ok(place)
    }

    /// The folder.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Where contents are staged.
    pub(super) fn blobs(&self) -> PathBuf {
        self.own.join("blobs")
    }

    /// A name for another tree beside the folder that nothing has yet.
    pub(super) fn free_name(&self, hint: &str) -> String {
        let names = (1..).map(|number: u32| format!(".{}.hvtui-{hint}-{number}", self.name));
        let is_free = |name: &String| fs::symlink_metadata(self.parent.join(name)).is_err();
        names.into_iter().find(is_free).unwrap_or_default()
    }

    /// The lock; `None` while another process has it. Makes the folders that are not there.
    pub(super) fn lock(&self) -> Result<Option<Lock>, SyncError> {
        fs::create_dir_all(&self.parent).map_err(SyncError::io("make", &self.parent))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.own)
            .map_err(SyncError::io("make", &self.own))?;
        self.check_own()?;
        let path = self.own.join("lock");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = open.open(&path).map_err(SyncError::io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(SyncError::io("lock", &path)(error.into())),
        }
    }

    /// In a folder that others may write to, another user may have been there first.
    fn check_own(&self) -> Result<(), SyncError> {
        let meta = fs::symlink_metadata(&self.own).map_err(SyncError::io("look at", &self.own))?;
        let is_ours =
            meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
        if is_ours {
            return Ok(());
        }
        let fault = "is not this user's alone: remove it there, or sync to another folder (--sync DIR:PATH)";
        Err(SyncError::NotOurs { path: self.own.clone(), fault })
    }

    /// Notes that this machine looks after the folder: old trees wait for it. A machine that has not looked for
    /// [`GONE`] is forgotten; gives their names. The file system's clock counts, as several machines write to it.
    pub(super) fn mark(&self, machine: &str) -> Vec<String> {
        let folder = self.own.join("machines");
        let path = folder.join(machine);
        let made = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, "\n"));
        let now = match made.and_then(|()| fs::metadata(&path)?.modified()) {
            Ok(now) => now,
            Err(error) => {
                tracing::debug!(folder = %folder.display(), %error, "this machine could not be noted");
                return Vec::new();
            }
        };
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let gone = entries.filter(|entry| {
            let looked = entry.metadata().and_then(|meta| meta.modified());
            looked.is_ok_and(|looked| now.duration_since(looked).is_ok_and(|silent| silent > GONE))
        });
        let forgotten = gone.filter(|entry| fs::remove_file(entry.path()).is_ok());
        forgotten.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// The machines that look after the folder.
    pub(super) fn machines(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.own.join("machines"))?;
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
        names.collect()
    }

    /// Refuses what does not fit on the disk.
    pub(super) fn check_room(&self, needed: u64) -> Result<(), SyncError> {
        if needed > 0 && self.free().is_some_and(|free| needed > free) {
            return Err(self.no_room(needed, "; nothing was copied"));
        }
        Ok(())
    }

    /// An error that says how full the disk is, where that is why.
    pub(super) fn full(&self, error: SyncError, needed: u64, kept: &'static str) -> SyncError {
        let told = matches!(error, SyncError::NoSpace { .. });
        if error.is_full() && !told { self.no_room(needed, kept) } else { error }
    }

    fn no_room(&self, needed: u64, kept: &'static str) -> SyncError {
        let free = self.free().unwrap_or(0);
        // a quota, or the file system's own blocks: more was needed than is free
        SyncError::NoSpace {
            path: self.target.clone(),
            needed: needed.max(free.saturating_add(4096)),
            free,
            kept,
        }
    }

    fn free(&self) -> Option<u64> {
        let mut dir = self.parent.as_path();
        loop {
            match statvfs(dir) {
                Ok(found) => return Some(found.f_bavail.saturating_mul(found.f_frsize)),
                Err(_) => dir = dir.parent()?,
            }
        }
    }
}
