//! The list of what a folder holds: one text, the same on every machine for the same content, named by its hash. Pure.
//!
//! ```text
//! hvtui-tree 1
//! d 755 src
//! f 644 1234 9f86d081… src/main.py
//! l src/link<TAB>main.py
//! ```
//!
//! Sorted by the bytes of the path, each path once, a folder before what is in it. Names hold no control characters
//! ([`super::names`]), so a line is a line. Its readers rely on this: it is checked when it is read.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use super::error::SyncError;
use super::names::{link_fault, path_fault};
use crate::domain::sync::Digest;

/// The first line.
const HEAD: &str = "hvtui-tree 1";
/// The largest list that is read, in bytes: some hundred thousand files.
pub const MOST_BYTES: u64 = 128 << 20;

/// One thing in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From the folder on, `/` between names.
    pub path: String,
    /// What it is.
    pub kind: Kind,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Dir {
        /// Permission bits, at least 0700.
        mode: u32,
    },
    /// A file.
    File {
        /// Permission bits.
        mode: u32,
        /// Its length.
        size: u64,
        /// SHA-256 of its content.
        hash: Digest,
    },
    /// A symlink.
    Link {
        /// Where it points, relative and within the folder.
        target: String,
    },
}

/// All that a folder holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
    digest: Digest,
}

impl Manifest {
    /// The list of these, in any order.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, SyncError> {
        entries.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        let mut manifest = Self { entries, digest: Digest([0; 32]) };
        manifest.check()?;
        manifest.digest = crate::sha256::of_bytes(manifest.encode().as_bytes());
        Ok(manifest)
    }

    /// Its entries, sorted.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many files and symlinks.
    pub fn files(&self) -> usize {
        self.entries.iter().filter(|entry| !matches!(entry.kind, Kind::Dir { .. })).count()
    }

    /// The text.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(self.entries.len() * 110 + 16);
        text.push_str(HEAD);
        text.push('\n');
        for entry in &self.entries {
            entry.write(&mut text);
        }
        text
    }

    /// Its name: the hash of the text.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Reads a text.
    pub fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let fault = |line, fault: &str| SyncError::Manifest { line, fault: fault.to_owned() };
        let text = std::str::from_utf8(bytes).map_err(|_| fault(0, "it is not UTF-8"))?;
        let text = text.strip_suffix('\n').ok_or_else(|| fault(0, "it does not end with a line feed"))?;
        let mut lines = text.split('\n');
        if lines.next() != Some(HEAD) {
            return Err(fault(1, "it does not begin as one"));
        }
        let mut entries = Vec::new();
        for (number, line) in (2..).zip(lines) {
            entries.push(Entry::read(line).ok_or_else(|| fault(number, "it is not an entry"))?);
        }
        // it is what would be written: of a list there is one text
        let manifest = Self { entries, digest: crate::sha256::of_bytes(bytes) };
        manifest.check()?;
        Ok(manifest)
    }

    /// How many entries differ from those of another: changed, new, or gone.
    pub fn differing(&self, other: &Self) -> usize {
        let theirs: BTreeMap<&str, &Kind> = other.files_by_path().collect();
        let ours: BTreeMap<&str, &Kind> = self.files_by_path().collect();
        let changed = ours.iter().filter(|(path, kind)| theirs.get(*path) != Some(kind)).count();
        changed + theirs.keys().filter(|path| !ours.contains_key(*path)).count()
    }

    fn files_by_path(&self) -> impl Iterator<Item = (&str, &Kind)> {
        let files = self.entries.iter().filter(|entry| !matches!(entry.kind, Kind::Dir { .. }));
        files.map(|entry| (entry.path.as_str(), &entry.kind))
    }

    fn check(&self) -> Result<(), SyncError> {
        let mut dirs: HashSet<&str> = HashSet::new();
        let mut last: Option<&str> = None;
        for (number, Entry { path, kind }) in (2..).zip(&self.entries) {
            if let Some(fault) = path_fault(path) {
                return Err(SyncError::Name { path: path.clone(), fault });
            }
            let fault = |fault: String| SyncError::Manifest { line: number, fault };
            if last.is_some_and(|last| last.as_bytes() >= path.as_bytes()) {
                return Err(fault(format!("{path:?} is not in its place")));
            }
            if let Some((parent, _)) = path.rsplit_once('/')
                && !dirs.contains(parent)
            {
                return Err(fault(format!("{path:?} is in no folder of the list")));
            }
            match kind {
                Kind::Dir { mode } if mode & !0o777 != 0 || mode & 0o700 != 0o700 => {
                    return Err(fault(format!("{path:?} has mode {mode:o}")));
                }
                Kind::Dir { .. } => drop(dirs.insert(path)),
                Kind::File { mode, .. } if mode & !0o777 != 0 => {
                    return Err(fault(format!("{path:?} has mode {mode:o}")));
                }
                Kind::File { .. } => {}
                Kind::Link { target } => {
                    if let Some(fault) = link_fault(path, target) {
                        return Err(SyncError::Link { path: path.clone(), target: target.clone(), fault });
                    }
                }
            }
            last = Some(path);
        }
        Ok(())
    }
}

impl Entry {
    /// Appends its line.
    pub(super) fn write(&self, text: &mut String) {
        let path = &self.path;
        // writing to a String can't fail
        let _ = match &self.kind {
            Kind::Dir { mode } => writeln!(text, "d {mode:o} {path}"),
            Kind::File { mode, size, hash } => writeln!(text, "f {mode:o} {size} {hash} {path}"),
            Kind::Link { target } => writeln!(text, "l {path}\t{target}"),
        };
    }

    /// Reads a line; only as it would be written.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        let mode_of = |text: &str| {
            let mode = u32::from_str_radix(text, 8).ok()?;
            (format!("{mode:o}") == text).then_some(mode)
        };
        let (path, kind) = match kind {
            "d" => {
                let (mode, path) = rest.split_once(' ')?;
                (path, Kind::Dir { mode: mode_of(mode)? })
            }
            "f" => {
                let mut words = rest.splitn(4, ' ');
                let mode = mode_of(words.next()?)?;
                let written = words.next()?;
                let size: u64 = written.parse().ok()?;
                if size.to_string() != written {
                    return None;
                }
                let hash = words.next()?.parse().ok()?;
                (words.next()?, Kind::File { mode, size, hash })
            }
            "l" => {
                let (path, target) = rest.split_once('\t')?;
                (path, Kind::Link { target: target.to_owned() })
            }
            _ => return None,
        };
        Some(Self { path: path.to_owned(), kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(path: &str, content: &str) -> Entry {
        let kind = Kind::File {
            mode: 0o644,
            size: content.len() as u64,
            hash: crate::sha256::of_bytes(content.as_bytes()),
        };
        Entry { path: path.to_owned(), kind }
    }

    fn dir(path: &str) -> Entry {
        Entry { path: path.to_owned(), kind: Kind::Dir { mode: 0o755 } }
    }

    fn link(path: &str, target: &str) -> Entry {
        Entry { path: path.to_owned(), kind: Kind::Link { target: target.to_owned() } }
    }

    #[test]
    fn a_list_is_the_same_text_whatever_the_order() {
        let one =
            Manifest::new(vec![file("a/b c", "x"), dir("a"), file("a-b", "y"), link("l", "a/b c")]).unwrap();
        let two =
            Manifest::new(vec![link("l", "a/b c"), file("a-b", "y"), file("a/b c", "x"), dir("a")]).unwrap();
        assert_eq!(one.digest(), two.digest());
        assert_eq!(Manifest::decode(one.encode().as_bytes()).unwrap(), one);
        assert_eq!(one.files(), 3);
    }

    #[test]
    fn what_would_leave_the_folder_is_refused() {
        let whole = |lines: &str| Manifest::decode(format!("{HEAD}\n{lines}").as_bytes());
        assert!(whole("d 755 a\n").is_ok());
        let hash = crate::sha256::of_bytes(b"");
        for bad in [
            "d 755 ../a\n".to_owned(),
            "d 755 /a\n".to_owned(),
            "d 0755 a\n".to_owned(),
            "d 4755 a\n".to_owned(),
            "d 555 a\n".to_owned(),
            format!("f 4755 0 {hash} a\n"),
            format!("f 644 00 {hash} a\n"),
            format!("f 644 +0 {hash} a\n"),
            format!("f 644 0 {hash} a/b\n"),
            format!("l a\t..\nf 644 0 {hash} a/b\n"),
            format!("l a\tb\nf 644 0 {hash} a/b\n"),
            "l a\t/etc\n".to_owned(),
            "d 755 b\nd 755 a\n".to_owned(),
            "d 755 a\nd 755 a\n".to_owned(),
            "x 755 a\n".to_owned(),
            "d 755 a".to_owned(),
        ] {
            assert!(whole(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn differing_files_are_counted_once() {
        let one = Manifest::new(vec![file("a", "1"), file("b", "1"), file("c", "1")]).unwrap();
        let two = Manifest::new(vec![file("a", "1"), file("b", "2"), file("d", "1")]).unwrap();
        assert_eq!((one.differing(&two), one.differing(&one)), (3, 0));
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "([dfl] [0-7 ]{0,4}[a-c/.\t]{0,8}\n){0,6}") {
            for bytes in [bytes, format!("{HEAD}\n{text}").into_bytes()] {
                if let Ok(manifest) = Manifest::decode(&bytes) {
                    prop_assert_eq!(manifest.encode().into_bytes(), bytes);
                }
            }
        }
    }
}
