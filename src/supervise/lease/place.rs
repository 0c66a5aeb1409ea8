//! Where leases lie: a directory on a local file system that all users of the host share and none can turn
//! against another. Knows nothing of locks.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, fstat, fstatfs, fstatvfs, openat};
use rustix::io::Errno;

use super::LeaseError;
use crate::domain::text::os_text;

/// The directories that systems keep for this: root's, sticky, for everybody, and gone with a reboot. Whichever
/// is first in order is every user's first: the choice depends on nothing that differs between users.
pub const USUAL: [&str; 2] = ["/run/lock", "/dev/shm"];
/// What our files in a directory of the system begin with.
pub(super) const PREFIX: &str = "hvtui-";

/// Types of file systems (`f_type` of `statfs`) that belong to one machine: ext2 to ext4, XFS, btrfs, tmpfs,
/// ramfs, overlay, F2FS, ZFS, bcachefs. A lock elsewhere may hold on other machines too, or nowhere.
const LOCAL: [u64; 9] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x8584_58F6,
    0x794C_7630,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
];
/// Those that people meet by name.
const REMOTE: [(u64, &str); 8] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFE53_4D42, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
];

/// An open lease directory.
#[derive(Debug)]
pub struct LeaseDir {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) prefix: &'static str,
}

impl LeaseDir {
    /// Opens the directory that the hosts file names, else the first of the system's that will do.
    pub fn open(configured: Option<&str>) -> Result<Self, LeaseError> {
        let Some(path) = configured else { return Self::usual() };
        let path = Path::new(path);
        let refuse = |detail: String| LeaseError::Place { path: path.to_owned(), detail };
        if !path.is_absolute() {
            return Err(refuse("lease_dir is no absolute path".to_owned()));
        }
        let fd = walk(path).map_err(|(at, e)| LeaseError::Place { path: at, detail: why(path, e) })?;
        match fault_of(&fd, false) {
            None => Ok(Self { fd, path: path.to_owned(), prefix: "" }),
            Some(detail) => Err(refuse(detail)),
        }
    }

    fn usual() -> Result<Self, LeaseError> {
        let mut faults = Vec::new();
        for path in USUAL {
            let fault = match walk(Path::new(path)) {
                Ok(fd) => match fault_of(&fd, true).or_else(|| read_only(&fd)) {
                    None => return Ok(Self { fd, path: path.into(), prefix: PREFIX }),
                    Some(fault) => fault,
                },
                Err((_, e)) => os_text(&e.into()),
            };
            faults.push(format!("{path}: {fault}"));
        }
        Err(LeaseError::NoPlace(faults.join("; ")))
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

fn why(path: &Path, e: Errno) -> String {
    match e {
        Errno::LOOP | Errno::NOTDIR => "a symbolic link or no directory: write its real path".to_owned(),
        Errno::NOENT => format!("it is not there: sudo install -d -m 1777 '{}'", path.display()),
        e => os_text(&e.into()),
    }
}

/// Opens a directory through no symbolic link at all; in an error the part of the path that failed.
fn walk(path: &Path) -> Result<OwnedFd, (PathBuf, Errno)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = PathBuf::from("/");
    let mut fd = openat(CWD, "/", flags, Mode::empty()).map_err(|e| (at.clone(), e))?;
    for part in path.components() {
        let name = match part {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::Prefix(_) => return Err((path.to_owned(), Errno::LOOP)),
        };
        at.push(name);
        fd = openat(&fd, name, flags, Mode::empty()).map_err(|e| (at.clone(), e))?;
    }
    Ok(fd)
}

fn fault_of(fd: &OwnedFd, for_all: bool) -> Option<String> {
    let (stat, fs) = match fstat(fd).and_then(|stat| Ok((stat, fstatfs(fd)?))) {
        Ok(both) => both,
        Err(e) => return Some(os_text(&e.into())),
    };
    let own = rustix::process::geteuid().as_raw();
    fault(stat.st_uid, stat.st_mode, own, for_all).or_else(|| remote(fs.f_type as u64))
}

/// A directory of the system's may be part of an image that is never written to.
fn read_only(fd: &OwnedFd) -> Option<String> {
    let flags = fstatvfs(fd).ok()?.f_flag;
    flags.contains(StatVfsMountFlags::RDONLY).then(|| "it is read-only".to_owned())
}

/// Why a directory of this owner and mode can't hold leases. The owner of a directory may remove every file in
/// it, so it must be root's, or the user's own and closed to others.
fn fault(owner: u32, mode: u32, own: u32, for_all: bool) -> Option<String> {
    let (open, sticky) = (mode & 0o022 != 0, mode & 0o1000 != 0);
    if owner != 0 && owner != own {
        return Some(format!("it belongs to uid {owner}: it must be root's, chmod 1777"));
    }
    if open && owner != 0 {
        return Some("others may write to it and it is not root's: chown root it, chmod 1777".to_owned());
    }
    if open && !sticky {
        return Some("others may remove files in it: chmod +t".to_owned());
    }
    if for_all && (owner != 0 || mode & 0o1777 != 0o1777) {
        return Some("it is not for everybody (mode 1777)".to_owned());
    }
    None
}

/// Why a file system can't hold leases.
fn remote(magic: u64) -> Option<String> {
    // kernels with 32-bit types give them with the sign
    let magic = magic & 0xFFFF_FFFF;
    if LOCAL.contains(&magic) {
        return None;
    }
    let name = REMOTE.iter().find(|(known, _)| *known == magic).map(|(_, name)| (*name).to_owned());
    let name = name.unwrap_or_else(|| format!("of type {magic:#x}"));
    Some(format!("its file system ({name}) is not known to be this machine's own: choose a local one"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_local_file_systems_hold_leases() {
        for local in [0xEF53, 0x0102_1994, 0x5846_5342, 0xFFFF_FFFF_9123_683E] {
            assert_eq!(remote(local), None, "{local:#x}");
        }
        for (magic, name) in REMOTE {
            assert!(remote(magic).unwrap().contains(name), "{magic:#x}");
        }
        assert!(remote(0x1234).unwrap().contains("0x1234"));
    }

    #[test]
    fn a_directory_is_roots_and_sticky_or_the_users_alone() {
        let ok = |owner, mode| fault(owner, mode, 1000, false).is_none();
        assert!(ok(0, 0o1777) && ok(0, 0o755) && ok(1000, 0o700));
        assert!(!ok(0, 0o777), "without the sticky bit everybody may remove a lock's file");
        assert!(!ok(1000, 0o1777), "its owner could remove the locks of others");
        assert!(!ok(1001, 0o755) && !ok(1001, 0o1777));
        assert!(fault(0, 0o1777, 1000, true).is_none());
        assert!(fault(0, 0o755, 0, true).is_some(), "another user would choose another directory");
    }

    #[test]
    fn no_link_leads_to_a_lease_directory() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        std::fs::create_dir(home.join("real")).unwrap();
        symlink(home.join("real"), home.join("link")).unwrap();
        std::fs::create_dir(home.join("real/inner")).unwrap();
        let open = |path: PathBuf| LeaseDir::open(path.to_str()).map(drop).map_err(|e| e.to_string());
        open(home.join("real/inner")).unwrap();
        for bad in ["link", "link/inner", "real/../real"] {
            let error = open(home.join(bad)).unwrap_err();
            assert!(error.contains("symbolic link"), "{bad}: {error}");
        }
        assert!(open(home.join("none")).unwrap_err().contains("install -d"));
        assert!(open("relative".into()).unwrap_err().contains("absolute"));
    }
}
