//! A folder as a whole, to be compared with itself later.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is known of one file or folder: a change of any of it is a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) mode: u32,
    inode: u64,
    owner: (u32, u32),
    links: u64,
    size: u64,
    /// When content and when anything else was changed, nanoseconds.
    changed: [(i64, i64); 2],
    /// The content of a file; of a folder what is in it stands beside it.
    content: Vec<u8>,
}

/// A directory and everything below it.
pub(crate) fn tree(folder: &Path) -> BTreeMap<PathBuf, Leaf> {
    let mut found = BTreeMap::from([(folder.to_owned(), leaf(folder))]);
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            found.insert(entry.path(), leaf(&entry.path()));
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
        }
    }
    found
}

/// The paths at which two looks at a directory differ.
pub(crate) fn changes(before: &BTreeMap<PathBuf, Leaf>, after: &BTreeMap<PathBuf, Leaf>) -> Vec<PathBuf> {
    let paths = before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path));
    paths.cloned().collect()
}

fn leaf(path: &Path) -> Leaf {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let content = if meta.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
    Leaf {
        mode: meta.mode(),
        inode: meta.ino(),
        owner: (meta.uid(), meta.gid()),
        links: meta.nlink(),
        size: meta.len(),
        changed: [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())],
        content,
    }
}
