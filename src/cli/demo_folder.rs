//! Where the demo keeps its recordings: a folder that goes with it. One that a killed demo has left goes with the next demo.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::filelock;

const PREFIX: &str = "hvtui-demo-";
/// Locked as long as the demo goes on.
const LOCK: &str = "lock";

/// The folder; dropping it removes it.
pub(super) struct DemoFolder {
    dir: TempDir,
    _lock: File,
}

impl DemoFolder {
    /// Makes it in the folder for temporary files, and removes what killed demos of this user have left there.
    pub(super) fn make() -> io::Result<Self> {
        let temporary = std::env::temp_dir();
        if let Err(error) = sweep(&temporary) {
            tracing::debug!(%error, "what earlier demos left is not looked at");
        }
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(temporary)?;
        // another demo must not find it before it is locked
        let making = dir.path().join("making");
        let lock = File::create_new(&making)?;
        filelock::exclusive(&lock, Duration::ZERO).map_err(io::Error::other)?;
        std::fs::rename(making, dir.path().join(LOCK))?;
        Ok(Self { dir, _lock: lock })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the folders of demos that go on no more.
fn sweep(temporary: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(temporary)?.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if !is_ours {
            continue;
        }
        // one without a lock is being made
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if filelock::exclusive(&lock, Duration::ZERO).is_ok()
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::debug!(%error, "{} is left", entry.path().display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_demo_left_is_removed_and_what_one_has_is_not() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = temporary.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            folder
        };
        let (left, used, begun) = (folder("hvtui-demo-a"), folder("hvtui-demo-b"), folder("hvtui-demo-c"));
        let other = folder("other");
        for folder in [&left, &used, &other] {
            File::create_new(folder.join(LOCK)).unwrap();
        }
        let lock = File::open(used.join(LOCK)).unwrap();
        filelock::exclusive(&lock, Duration::ZERO).unwrap();
        sweep(temporary.path()).unwrap();
        assert_eq!([&left, &used, &begun, &other].map(|folder| folder.exists()), [false, true, true, true]);
    }
}
