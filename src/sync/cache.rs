//! What files hashed to when they were last read, so that only those that were changed are read again.
//!
//! A file is known by size, times of change and inode, as git's index does it. One that was changed a moment before it
//! was read may change again within the same tick of its clock: it is not remembered.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::domain::sync::Digest;

const HEAD: &str = "hvtui-hashes 1";
/// Two changes of a file closer than this may have the same time on a coarse file system.
const TICK_NS: i128 = 50_000_000;

/// By what a file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    size: u64,
    ino: u64,
    mtime_ns: i128,
    ctime_ns: i128,
}

impl Stat {
    /// Of what a look at the file gave.
    pub fn of(meta: &fs::Metadata) -> Self {
        let ns = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            size: meta.len(),
            ino: meta.ino(),
            mtime_ns: ns(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: ns(meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// The hashes of one folder's files.
#[derive(Debug, Default)]
pub struct Cache {
    file: Option<PathBuf>,
    known: HashMap<String, (Stat, Digest)>,
}

impl Cache {
    /// The hashes of the files below `dir`, from a file in `folder`; none where there is no such file.
    pub fn load(folder: &Path, dir: &Path) -> Self {
        let name = crate::sha256::of_bytes(dir.as_os_str().as_encoded_bytes()).to_string();
        let file = folder.join(name.get(..32).unwrap_or_default());
        let known = fs::read_to_string(&file).ok().and_then(|text| read(&text)).unwrap_or_default();
        Self { file: Some(file), known }
    }

    /// What a file hashes to, if it is as it was.
    pub fn get(&self, path: &str, stat: Stat) -> Option<Digest> {
        self.known.get(path).filter(|(known, _)| *known == stat).map(|(_, hash)| *hash)
    }

    /// Remembers these instead of what it held, as of the wall clock's `now`. A cache that can't be written costs time.
    pub fn keep<'a>(&self, files: impl Iterator<Item = (&'a str, Stat, Digest)>, now_ns: i128) {
        use std::fmt::Write as _;
        let Some(file) = &self.file else { return };
        let mut text = format!("{HEAD}\n");
        let mut same = 0;
        let mut count = 0;
        for (path, stat, hash) in files {
            if stat.mtime_ns.max(stat.ctime_ns) + TICK_NS > now_ns {
                continue;
            }
            count += 1;
            same += usize::from(self.get(path, stat) == Some(hash));
            let Stat { size, ino, mtime_ns, ctime_ns } = stat;
            let _ = writeln!(text, "{size} {ino} {mtime_ns} {ctime_ns} {hash} {path}");
        }
        if same == count && count == self.known.len() {
            return;
        }
        let write = || {
            fs::create_dir_all(file.parent()?).ok()?;
            let new = file.with_extension("new");
            fs::write(&new, text).and_then(|()| fs::rename(&new, file)).ok()
        };
        if write().is_none() {
            tracing::debug!(file = %file.display(), "hashes were not kept");
        }
    }
}

fn read(text: &str) -> Option<HashMap<String, (Stat, Digest)>> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return None;
    }
    let line = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let stat = Stat {
            size: words.next()?.parse().ok()?,
            ino: words.next()?.parse().ok()?,
            mtime_ns: words.next()?.parse().ok()?,
            ctime_ns: words.next()?.parse().ok()?,
        };
        let hash = words.next()?.parse().ok()?;
        Some((words.next()?.to_owned(), (stat, hash)))
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_just_changed_is_not_remembered() {
        let state = tempfile::tempdir().unwrap();
        let stat = |mtime_ns| Stat { size: 3, ino: 7, mtime_ns, ctime_ns: 5 };
        let hash = crate::sha256::of_bytes(b"abc");
        let cache = Cache::load(state.path(), Path::new("/p"));
        let now = 1_000_000_000;
        cache.keep([("old file", stat(10), hash), ("new", stat(now - 1), hash)].into_iter(), now);
        let cache = Cache::load(state.path(), Path::new("/p"));
        assert_eq!(cache.get("old file", stat(10)), Some(hash));
        assert_eq!((cache.get("old file", stat(11)), cache.get("new", stat(now - 1))), (None, None));
        assert!(Cache::load(state.path(), Path::new("/q")).known.is_empty());
    }
}
