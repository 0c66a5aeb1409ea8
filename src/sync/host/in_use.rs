//! Whether a process of this machine is at work in a folder: by what `/proc` shows of working directories, roots,
//! programs and open files, and of what is mounted where. A container has its folders as mounts, and the names of what
//! its processes have open are its own.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// For each of these folders the first process that is, by its pid: one look at all processes. Processes of other users that
/// may not be looked at are not seen.
pub(super) fn users(trees: &[PathBuf]) -> io::Result<Vec<Option<u32>>> {
    let mut users = vec![None; trees.len()];
    if trees.is_empty() {
        return Ok(users);
    }
    let mut mounts: Vec<Mounts<'_>> = trees.iter().map(|tree| Mounts::of(tree)).collect();
    for pid in pids()? {
        let of = Path::new("/proc").join(pid.to_string());
        let fds = fs::read_dir(of.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
        let links = ["cwd", "root", "exe"].into_iter().map(|link| of.join(link)).chain(fds);
        let at: Vec<PathBuf> = links.filter_map(|link| fs::read_link(link).ok()).collect();
        for ((tree, user), mounts) in trees.iter().zip(&mut users).zip(&mut mounts) {
            if user.is_none() && (at.iter().any(|path| path.starts_with(tree)) || mounts.has(&of)) {
                *user = Some(pid);
            }
        }
    }
    Ok(users)
}

/// The first process to which the folder, or something in it, is mounted: one in a container.
pub(super) fn mounted_for(tree: &Path) -> Option<u32> {
    let mut mounts = Mounts::of(tree);
    pids().ok()?.find(|pid| mounts.has(&Path::new("/proc").join(pid.to_string())))
}

fn pids() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Which mount namespaces have a folder as a mount of its own.
struct Mounts<'a> {
    tree: &'a Path,
    known: HashMap<PathBuf, bool>,
}

impl<'a> Mounts<'a> {
    fn of(tree: &'a Path) -> Self {
        Self { tree, known: HashMap::new() }
    }

    fn has(&mut self, process: &Path) -> bool {
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { return false };
        let tree = self.tree;
        *self.known.entry(namespace).or_insert_with(|| {
            let text = fs::read(process.join("mountinfo")).unwrap_or_default();
            let mut mounts = text.split(|byte| *byte == b'\n').flat_map(|line| mounted(line, tree));
            mounts.any(|(part, place)| {
                let id = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
                let inside = process.join("root").join(place.strip_prefix("/").unwrap_or(&place));
                // by its name alone where we are not allowed to look
                id(&inside).map_or(true, |inside| id(&part).is_ok_and(|part| part == inside))
            })
        })
    }
}

/// What a line of `mountinfo` may mount of `tree`, with the place that it is mounted on. The fourth field is the path on
/// the file system, as it is called now; where that is mounted on this host is not said, so names are compared.
fn mounted(line: &[u8], tree: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ').skip(3);
    let (Some(root), Some(place)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (root, place) = (unescape(root), unescape(place));
    let place = Path::new(OsStr::from_bytes(&place));
    let parts: Vec<&OsStr> = Path::new(OsStr::from_bytes(&root)).iter().collect();
    let named = parts.iter().enumerate().filter(|(_, part)| Some(**part) == tree.file_name());
    named
        .map(|(at, _)| {
            let rest: PathBuf = parts.iter().skip(at + 1).collect();
            (tree.join(rest), place.to_owned())
        })
        .collect()
}

/// `\040` for a blank and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        let octal = more.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            digits.iter().try_fold(0_u32, |sum, digit| {
                (b'0'..=b'7').contains(digit).then(|| sum * 8 + u32::from(digit - b'0'))
            })
        });
        if let Some(byte) = octal.and_then(|code| u8::try_from(code).ok()) {
            plain.push(byte);
            rest = more.get(3..).unwrap_or_default();
        } else {
            plain.push(*first);
            rest = more;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_of_a_folder_is_known_by_its_name() {
        let of = |root: &str| {
            let line = format!("640 637 8:1 {root} /inside/a\\040b rw,relatime - ext4 /dev/sda1 rw");
            mounted(line.as_bytes(), Path::new("/home/u/my proj"))
        };
        let pair = |part: &str| vec![(PathBuf::from(part), PathBuf::from("/inside/a b"))];
        assert_eq!(of("/vol/7/my\\040proj"), pair("/home/u/my proj/"), "wherever its file system is mounted");
        assert_eq!(of("/home/u/my\\040proj/data"), pair("/home/u/my proj/data"));
        assert!(of("/home/u").is_empty() && of("/").is_empty() && mounted(b"", Path::new("/x")).is_empty());
    }

    #[test]
    fn nothing_is_mounted_of_a_new_folder() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().to_owned();
        assert_eq!((mounted_for(&tree), users(&[tree]).unwrap()), (None, vec![None]));
    }
}
