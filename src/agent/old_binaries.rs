//! Takes agents of earlier versions out of the cache folder: those that were not started for a while and that no
//! process runs. Knows the folder by the shape of its own path and touches nothing where that is another.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, statfs, utimensat};

use crate::domain::time::Stamp;

const DAY_S: i64 = 24 * 3600;
/// So long a binary stays that is not started.
const KEPT_S: i64 = 14 * DAY_S;
/// The same where other hosts may run it, whose processes don't show here.
const KEPT_SHARED_S: i64 = 90 * DAY_S;
/// File systems that other hosts share: NFS, SMB, CIFS, Lustre, GPFS, Ceph, AFS, FUSE.
const SHARED: [u32; 8] =
    [0x6969, 0xfe53_4d42, 0xff53_4d42, 0x0bd0_0bd0, 0x4750_4653, 0x00c3_6400, 0x5346_414f, 0x6573_5546];

/// Marks the binary at `own` as used now, and removes its old siblings. What can't be removed stays, silently: the
/// next agent tries again.
pub fn remove(own: &Path, now: Stamp) {
    let Some(folder) = agents_folder(own) else {
        return;
    };
    let just_now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: just_now, last_modification: just_now };
    let _ = utimensat(CWD, own, &times, AtFlags::SYMLINK_NOFOLLOW);
    let shared = statfs(folder).is_ok_and(|fs| SHARED.contains(&(fs.f_type as u32)));
    let kept = if shared { KEPT_SHARED_S } else { KEPT_S };
    let oldest = now.0 / 1_000_000 - kept;
    let running = running();
    let own_folder = own.parent();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let version = entry.path();
        if !is_hash(&version) || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        for file in fs::read_dir(&version).into_iter().flatten().flatten() {
            let is_own = own_folder == Some(version.as_path()) && file.file_name() == "hvtui";
            if !is_own && is_ours(&file.path()) && is_unused(&file.path(), oldest, &running) {
                let _ = fs::remove_file(file.path());
            }
        }
        // Fails as long as something is in it.
        let _ = fs::remove_dir(&version);
    }
}

/// `…/hvtui/agents`, if `own` is `…/hvtui/agents/HASH/hvtui`.
fn agents_folder(own: &Path) -> Option<&Path> {
    let version = own.parent().filter(|version| is_hash(version))?;
    let folder = version.parent().filter(|folder| folder.ends_with("hvtui/agents"))?;
    (own.file_name()? == "hvtui").then_some(folder)
}

fn is_hash(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The names that we give: the binary, one that was put aside, an upload.
fn is_ours(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == "hvtui" || name.starts_with("hvtui.bad-") || name.starts_with(".up.")
}

fn is_unused(file: &Path, oldest: i64, running: &BTreeSet<(u64, u64)>) -> bool {
    fs::symlink_metadata(file).is_ok_and(|meta| {
        meta.is_file()
            && meta.uid() == rustix::process::geteuid().as_raw()
            && meta.mtime().max(meta.atime()) < oldest
            && !running.contains(&(meta.dev(), meta.ino()))
    })
}

/// Device and inode of every program that runs here, as far as it shows: supervisors and rank-wraps among them.
fn running() -> BTreeSet<(u64, u64)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let programs = processes.map(|entry: fs::DirEntry| -> PathBuf { entry.path().join("exe") });
    programs.filter_map(|exe| fs::metadata(exe).ok()).map(|meta| (meta.dev(), meta.ino())).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::clock;

    /// A cache folder with an agent, and its path; used last so many days ago.
    fn agent(cache: &Path, digit: char, days: i64) -> PathBuf {
        let folder = cache.join("hvtui/agents").join(digit.to_string().repeat(64));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("hvtui");
        // A program that runs as long as its standard input is open.
        fs::copy("/bin/cat", &path).unwrap();
        age(&path, days);
        path
    }

    fn age(path: &Path, days: i64) {
        let then = Timespec { tv_sec: clock::now().0 / 1_000_000 - days * DAY_S, tv_nsec: 0 };
        let times = Timestamps { last_access: then, last_modification: then };
        utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
    }

    #[test]
    fn only_what_is_old_and_does_not_run_goes() {
        let cache = tempfile::tempdir().unwrap();
        let own = agent(cache.path(), 'a', 100);
        let (old, fresh) = (agent(cache.path(), 'b', 15), agent(cache.path(), 'c', 13));
        let used = agent(cache.path(), 'd', 15);
        let mut runner =
            Command::new(&used).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        // Until it has echoed something it may still be loaded, which marks it as used.
        runner.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        runner.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let stranger = old.with_file_name("notes");
        let aside = own.with_file_name("hvtui.bad-0123abcd");
        for path in [&stranger, &aside] {
            fs::write(path, "x").unwrap();
            age(path, 15);
        }
        // Starting it may have marked it as used: that is not what is tested.
        age(&used, 15);
        remove(&own, clock::now());
        assert!(own.exists() && fresh.exists(), "what is in use or young stays");
        assert!(used.exists(), "a supervisor may run it");
        assert!(!old.exists() && !aside.exists());
        assert!(stranger.exists(), "what is not ours stays, and its folder with it");
        assert!(fs::metadata(&own).unwrap().mtime() > clock::now().0 / 1_000_000 - 3600, "marked as used");

        drop(runner.stdin.take());
        runner.wait().unwrap();
        fs::remove_file(&stranger).unwrap();
        remove(&own, clock::now());
        assert!(!used.parent().unwrap().exists() && !old.parent().unwrap().exists());
    }

    #[test]
    fn a_binary_elsewhere_has_no_siblings_to_remove() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("hvtui");
        fs::write(&own, "x").unwrap();
        age(&own, 100);
        let before = fs::metadata(&own).unwrap().mtime();
        remove(&own, clock::now());
        assert_eq!(fs::metadata(&own).unwrap().mtime(), before);
        assert_eq!(agents_folder(Path::new("/x/hvtui/agents/short/hvtui")), None);
    }
}
