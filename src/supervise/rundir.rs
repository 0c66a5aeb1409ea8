//! The directory that holds everything of one run on one host, and how its files are written safely.
//!
//! `<state>/spool/<RUN>/<HOST>@<hostname>-<8 hex>/`: the last part keeps hosts apart that share a home over
//! NFS. Every directory from the state directory down is ours alone (0700, our uid, no symbolic link) or is
//! refused; files are opened relative to the directory's descriptor and never through a link.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fstat, fsync, linkat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SuperviseError;
use super::state::{STATE, VERSION};
use crate::domain::ids::{HostId, RunId};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::procs::identity::Stat;

/// The directory under the state directory that holds the runs of this host.
pub(super) const SPOOL: &str = "spool";

/// An open run directory.
#[derive(Debug)]
pub struct RunDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl RunDir {
    /// Makes the directory where it is not there yet, and opens it.
    pub fn create(state_dir: &Path, run: &RunId, host: &HostId) -> Result<Self, SuperviseError> {
        Self::make(state_dir, &[SPOOL, run.as_str(), &host_key(host)?])
    }

    /// Makes a folder below the state directory where it is not there yet, and opens it.
    pub(super) fn make(state_dir: &Path, names: &[&str]) -> Result<Self, SuperviseError> {
        let failed = |source| SuperviseError::StateFolder { path: state_dir.to_owned(), source };
        std::fs::create_dir_all(state_dir.parent().unwrap_or(state_dir)).map_err(failed)?;
        match rustix::fs::mkdir(state_dir, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let mut dir = Self::open(state_dir)?;
        for name in names {
            match mkdirat(&dir.fd, *name, Mode::RWXU) {
                Ok(()) => dir.sync()?,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(SuperviseError::io("create", &dir.path.join(name), e)),
            }
            dir = dir.child(name)?;
        }
        Ok(dir)
    }

    /// Opens the directory of a run that was started here; `None` when there is none.
    pub fn find(state_dir: &Path, run: &RunId, host: &HostId) -> Result<Option<Self>, SuperviseError> {
        let key = host_key(host)?;
        if !state_dir.exists() {
            return Ok(None);
        }
        let mut dir = Self::open(state_dir)?;
        for name in [SPOOL, run.as_str(), &key] {
            dir = match dir.child(name) {
                Ok(child) => child,
                Err(SuperviseError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
        }
        Ok(Some(dir))
    }

    /// The runs that have a directory of this machine, newest first, each with the host's name in it.
    pub fn list(state_dir: &Path) -> Result<Vec<(RunId, HostId)>, SuperviseError> {
        let spool = state_dir.join(SPOOL);
        let mut runs: Vec<RunId> = names(&spool)?.iter().filter_map(|name| name.parse().ok()).collect();
        runs.sort_unstable_by(|a, b| b.cmp(a));
        let machine = machine_key();
        let mut found = Vec::new();
        for run in runs {
            let hosts = hosts_in(&spool.join(run.as_str()), &machine)?;
            found.extend(hosts.into_iter().map(|host| (run.clone(), host)));
        }
        Ok(found)
    }

    /// The names that this machine has in a run: usually one, none where it has no directory of it.
    pub fn hosts(state_dir: &Path, run: &RunId) -> Result<Vec<HostId>, SuperviseError> {
        hosts_in(&state_dir.join(SPOOL).join(run.as_str()), &machine_key())
    }

    /// Opens a directory that must be ours alone; its last component is not followed when it is a link.
    pub fn open(path: &Path) -> Result<Self, SuperviseError> {
        Self::checked(rustix::fs::open(path, DIRECTORY, Mode::empty()), path.to_owned())
    }

    fn child(&self, name: &str) -> Result<Self, SuperviseError> {
        Self::checked(openat(&self.fd, name, DIRECTORY, Mode::empty()), self.path.join(name))
    }

    fn checked(opened: rustix::io::Result<OwnedFd>, path: PathBuf) -> Result<Self, SuperviseError> {
        let refuse = |path: &Path, detail: String| SuperviseError::Unsafe { path: path.to_owned(), detail };
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(refuse(&path, "it is a link or no directory: move it away".to_owned()));
            }
            Err(e) => return Err(SuperviseError::io("open", &path, e)),
        };
        let stat = fstat(&fd).map_err(|e| SuperviseError::io("check", &path, e))?;
        let own = rustix::process::geteuid().as_raw();
        if stat.st_uid != own {
            return Err(refuse(&path, format!("it belongs to uid {}, not to uid {own}", stat.st_uid)));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(refuse(&path, format!("others may write to it: chmod go-w '{}'", path.display())));
        }
        Ok(Self { fd, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A socket of this directory as this process may name it, however long the directory's path is.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    /// The number of its descriptor in this process.
    pub(super) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Bytes that a user may still write to its file system, and the file system's size.
    pub fn space(&self) -> Result<(u64, u64), SuperviseError> {
        let fs = rustix::fs::fstatvfs(&self.fd).map_err(|e| self.error("check", ".", e))?;
        Ok((fs.f_bavail.saturating_mul(fs.f_frsize), fs.f_blocks.saturating_mul(fs.f_frsize)))
    }

    /// When something was last put into it or taken out of it, by the clock of its file system.
    pub fn written(&self) -> Result<Stamp, SuperviseError> {
        let stat = fstat(&self.fd).map_err(|e| self.error("check", ".", e))?;
        Ok(Stamp(stat.st_mtime.saturating_mul(1_000_000)))
    }

    /// Opens a file to append to, making it where it is not there.
    pub fn append(&self, name: &str) -> Result<File, SuperviseError> {
        self.file(name, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
    }

    /// Opens a file that holds nothing yet, making it where it is not there.
    pub(super) fn replace(&self, name: &str) -> Result<File, SuperviseError> {
        self.file(name, OFlags::WRONLY | OFlags::TRUNC | OFlags::CREATE)
    }

    /// Opens a file of a rank to cut its head off; `None` when it is not there.
    pub(super) fn open_to_cut(&self, name: &str) -> Result<Option<File>, SuperviseError> {
        match openat(&self.fd, name, OFlags::RDWR | FILE, Mode::empty()) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.error("open", name, e)),
        }
    }

    /// Opens what is there by this name with flags of one's own.
    pub(super) fn open_with(&self, name: &str, flags: OFlags) -> rustix::io::Result<File> {
        openat(&self.fd, name, flags | FILE, Mode::empty()).map(File::from)
    }

    /// Opens a file to read; `None` when it is not there.
    pub fn read(&self, name: &str) -> Result<Option<File>, SuperviseError> {
        match openat(&self.fd, name, OFlags::RDONLY | FILE, Mode::empty()) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.error("open", name, e)),
        }
    }

    /// Whether a file is there.
    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Reads a file of one JSON value; `None` when it is not there.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SuperviseError> {
        let Some(mut file) = self.read(name)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| self.error("read", name, e))?;
        serde_json::from_slice(&bytes).map(Some).map_err(|e| self.damaged(name, &e))
    }

    /// Writes a file of one JSON value so that at any moment, even after a crash, there is the old one or the
    /// new one: temporary file, sync, rename, sync of the directory.
    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), SuperviseError> {
        let temporary = self.write_temporary(name, value)?;
        renameat(&self.fd, &temporary, &self.fd, name).map_err(|e| self.error("rename", name, e))?;
        self.sync()
    }

    /// Like [`Self::write_json`] for what tells of processes alone: nothing waits for the disk, and a power failure may take
    /// it.
    pub fn write_passing<T: Serialize>(&self, name: &str, value: &T) -> Result<(), SuperviseError> {
        let (temporary, _) = self.temporary(name, value)?;
        renameat(&self.fd, &temporary, &self.fd, name).map_err(|e| self.error("rename", name, e))
    }

    /// The same for a file of bytes.
    pub(super) fn replace_with(&self, name: &str, bytes: &[u8]) -> Result<(), SuperviseError> {
        let (temporary, _) = self.temporary_of(name, bytes)?;
        renameat(&self.fd, &temporary, &self.fd, name).map_err(|e| self.error("rename", name, e))
    }

    /// The names of what is in it.
    pub fn names(&self) -> Result<Vec<String>, SuperviseError> {
        names(&self.path)
    }

    /// Takes room for a file of one JSON value that is written later, by [`Self::write_reserved`]: a disk that has
    /// become full must not swallow it.
    pub fn reserve(&self, name: &str) -> Result<(), SuperviseError> {
        let mut room = self.replace(&reserved(name))?;
        // white space, which JSON allows: written, it takes room on every file system
        room.write_all(&[b' '; RESERVED])
            .and_then(|()| room.sync_all())
            .map_err(|e| SuperviseError::io("write", &self.path.join(name), e))
    }

    /// Like [`Self::write_json`], into the room that was reserved, if it was.
    pub fn write_reserved<T: Serialize>(&self, name: &str, value: &T) -> Result<(), SuperviseError> {
        let room = reserved(name);
        let Some(mut file) = self.open_to_cut(&room)? else {
            return self.write_json(name, value);
        };
        let bytes = serde_json::to_vec(value).map_err(|e| self.damaged(name, &e))?;
        file.write_all(&bytes)
            .and_then(|()| file.set_len(bytes.len() as u64))
            .and_then(|()| file.sync_all())
            .map_err(|e| SuperviseError::io("write", &self.path.join(name), e))?;
        renameat(&self.fd, &room, &self.fd, name).map_err(|e| self.error("rename", name, e))?;
        self.sync()
    }

    /// Like [`Self::write_json`] for a file that must not be there yet; `false` when it is. Of several
    /// processes that try, one succeeds, on NFS too.
    pub fn claim_json<T: Serialize>(&self, name: &str, value: &T) -> Result<bool, SuperviseError> {
        let temporary = self.write_temporary(name, value)?;
        let linked = linkat(&self.fd, &temporary, &self.fd, name, AtFlags::empty());
        self.remove(&temporary)?;
        match linked {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(self.error("link", name, e)),
        }
    }

    fn write_temporary<T: Serialize>(&self, name: &str, value: &T) -> Result<String, SuperviseError> {
        let (temporary, file) = self.temporary(name, value)?;
        file.sync_all().map_err(|e| self.unwritten(name, &temporary, e))?;
        Ok(temporary)
    }

    fn temporary<T: Serialize>(&self, name: &str, value: &T) -> Result<(String, File), SuperviseError> {
        let bytes = serde_json::to_vec(value).map_err(|e| self.damaged(name, &e))?;
        self.temporary_of(name, &bytes)
    }

    fn temporary_of(&self, name: &str, bytes: &[u8]) -> Result<(String, File), SuperviseError> {
        let temporary = draft(name);
        let mut file = self.file(&temporary, OFlags::WRONLY | OFlags::TRUNC | OFlags::CREATE)?;
        file.write_all(bytes).map_err(|e| self.unwritten(name, &temporary, e))?;
        Ok((temporary, file))
    }

    /// A draft that could not be written, as on a full disk: none of it is left.
    fn unwritten(&self, name: &str, temporary: &str, error: std::io::Error) -> SuperviseError {
        let _ = self.remove(temporary);
        SuperviseError::io("write", &self.path.join(name), error)
    }

    /// Puts a file into a directory below this one, which is made where it is not there. One that is not there is
    /// left alone.
    pub fn set_aside(&self, name: &str, below: &str) -> Result<(), SuperviseError> {
        match mkdirat(&self.fd, below, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(self.error("create", below, e)),
        }
        let place = self.child(below)?;
        match renameat(&self.fd, name, &place.fd, name) {
            Ok(()) => self.sync(),
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.error("rename", name, e)),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> Result<(), SuperviseError> {
        unlinkat(&self.fd, name, AtFlags::empty()).map_err(|e| self.error("remove", name, e))
    }

    /// Once no process of the run is left: removes the sockets by which they spoke, and the drafts of those that were
    /// killed. What another process is writing just now is left alone.
    pub fn sweep(&self) -> Result<(), SuperviseError> {
        for name in self.names()? {
            let is_socket = || {
                statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
            };
            if is_socket() || (is_draft(&name) && !is_being_written(&name)) {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Removes the directory if nothing is in it.
    pub fn remove_if_empty(self) {
        if std::fs::remove_dir(&self.path).is_ok()
            && let Some(run) = self.path.parent()
        {
            // Stays while another host that shares this home has its part in it.
            let _ = std::fs::remove_dir(run);
        }
    }

    fn file(&self, name: &str, flags: OFlags) -> Result<File, SuperviseError> {
        openat(&self.fd, name, flags | FILE, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|e| self.error("open", name, e))
    }

    fn sync(&self) -> Result<(), SuperviseError> {
        fsync(self.fd.as_fd()).map_err(|e| self.error("sync", ".", e))
    }

    fn error(&self, doing: &'static str, name: &str, e: impl Into<std::io::Error>) -> SuperviseError {
        SuperviseError::io(doing, &self.path.join(name), e)
    }

    fn damaged(&self, name: &str, e: &serde_json::Error) -> SuperviseError {
        let (path, detail) = (self.path.join(name), e.to_string());
        match self.version().filter(|version| version != VERSION) {
            Some(version) => SuperviseError::OtherVersion { path, version, detail },
            None => SuperviseError::Damaged { path, detail },
        }
    }

    /// Which hvtui the run's supervisor is of, as far as that can be read: all else in there may be new to us.
    fn version(&self) -> Option<String> {
        let mut bytes = Vec::new();
        self.read(STATE).ok()??.read_to_end(&mut bytes).ok()?;
        let state: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        let version = state.get("version")?.as_str()?;
        (!version.is_empty()).then(|| sanitize(version).chars().take(40).collect())
    }
}

/// How the name of a reserved room ends.
const ROOM: &str = ".room";
/// Bytes that are reserved: more than any end of a rank takes.
const RESERVED: usize = 4096;

/// `.exit-3.json.room`: what holds the room of a file.
fn reserved(name: &str) -> String {
    format!(".{name}{ROOM}")
}

/// `.state.json.4711`: what this process makes until it can have the name that it is for.
pub(super) fn draft(name: &str) -> String {
    format!(".{name}.{}", std::process::id())
}

/// Whether the process that made a draft goes on. A reserved room is a rank-wrap's.
fn is_being_written(draft: &str) -> bool {
    let pid = draft.rsplit_once('.').and_then(|(_, pid)| pid.parse().ok());
    pid.is_some_and(|pid| Stat::read(pid).is_ok())
}

/// Whether a file or folder of this name was to get another one, or to go: none is there once all is over.
pub fn is_draft(name: &str) -> bool {
    let is_numbered = |(_, end): (&str, &str)| end.parse::<u32>().is_ok();
    name.starts_with('.') && (name.ends_with(ROOM) || name.rsplit_once('.').is_some_and(is_numbered))
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// The names in a directory, in order; none where there is no such directory.
fn names(path: &Path) -> Result<Vec<String>, SuperviseError> {
    let failed = |e| SuperviseError::io("list", path, e);
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

/// The hosts of the shares in a run's directory that are this machine's.
fn hosts_in(of_run: &Path, machine: &str) -> Result<Vec<HostId>, SuperviseError> {
    let names = names(of_run)?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(machine)).map(HostId::from).collect())
}

/// `gpu-a@node7-1a2b3c4d`: the host's name in the run, and the machine that answers to it.
fn host_key(host: &HostId) -> Result<String, SuperviseError> {
    let name = host.as_str();
    if name.is_empty() || name.len() > 100 || name.contains('/') || name.contains(char::is_control) {
        return Err(SuperviseError::HostName(name.to_owned()));
    }
    Ok(name.to_owned() + &machine_key())
}

/// `@node7-1a2b3c4d`: this machine, apart from others that share a home directory with it.
pub fn machine_key() -> String {
    let system = rustix::system::uname();
    let hostname = system.nodename().to_string_lossy().into_owned();
    let machine = std::fs::read("/etc/machine-id").unwrap_or_else(|_| hostname.clone().into_bytes());
    let digest = ring::digest::digest(&ring::digest::SHA256, machine.trim_ascii());
    let hex = digest.as_ref().iter().take(4).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let hostname: String =
        hostname.chars().take(64).map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    format!("@{hostname}-{hex}")
}

#[cfg(test)]
impl RunDir {
    /// That of a run on host `a`, in a folder that goes with the first of the two.
    pub(crate) fn of_test() -> (tempfile::TempDir, Self) {
        let state = tempfile::tempdir().unwrap();
        let dir = Self::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        (state, dir)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf, RunId, HostId) {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state/hvtui");
        (home, state, RunId::new(1, 2), HostId::from("gpu-a"))
    }

    #[test]
    fn what_another_hvtui_wrote_names_the_one_to_use() {
        let (_home, state, run, host) = place();
        let dir = RunDir::create(&state, &run, &host).unwrap();
        let read = |text: &str| {
            dir.write_json(STATE, &serde_json::from_str::<serde_json::Value>(text).unwrap()).unwrap();
            dir.read_json::<crate::supervise::state::State>(STATE).unwrap_err().to_string()
        };
        let newer = read(r#"{"version":"9.8.7\u001b[2J","phase":"hibernating"}"#);
        assert!(newer.ends_with(": use hvtui 9.8.7␛[2J for this run"), "{newer}");
        assert!(
            newer.contains("state.json was written by hvtui 9.8.7") && newer.contains(VERSION),
            "{newer}"
        );
        for ours in [r#"{"phase":"hibernating"}"#, &format!(r#"{{"version":"{VERSION}","phase":1}}"#)] {
            let damaged = read(ours);
            assert!(damaged.contains("state.json is damaged: "), "{damaged}");
        }
    }

    #[test]
    fn everything_in_it_is_for_its_owner_alone() {
        let (home, state, run, host) = place();
        let dir = RunDir::create(&state, &run, &host).unwrap();
        dir.append("rank-0.out").unwrap().write_all(b"x").unwrap();
        dir.write_json("a.json", &[1, 2]).unwrap();
        assert!(dir.path().starts_with(state.join("spool").join(run.as_str())));
        let mut todo = vec![state.clone()];
        let mut seen = 0;
        while let Some(path) = todo.pop() {
            let meta = std::fs::symlink_metadata(&path).unwrap();
            assert_eq!(meta.permissions().mode() & 0o077, 0, "{}", path.display());
            seen += 1;
            if meta.is_dir() {
                todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            }
        }
        assert_eq!(seen, 6, "four directories, two files, no temporary file");
        assert_eq!(RunDir::find(&state, &run, &host).unwrap().unwrap().path(), dir.path());
        assert!(RunDir::find(&state, &RunId::new(5, 5), &host).unwrap().is_none());
        let elsewhere = state.join("spool").join(run.as_str()).join("gpu-b@othermachine-00000000");
        std::fs::create_dir(elsewhere).unwrap();
        assert_eq!(RunDir::list(&state).unwrap(), [(run, host)], "what another machine has is its business");
        assert!(RunDir::list(&state.join("none")).unwrap().is_empty());
        drop(home);
    }

    #[test]
    fn links_and_directories_that_others_may_write_to_are_refused() {
        let (home, state, run, host) = place();
        let target = home.path().join("target");
        std::fs::create_dir_all(&target).unwrap();
        std::fs::create_dir_all(&state).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
        symlink(&target, state.join("spool")).unwrap();
        assert!(matches!(RunDir::create(&state, &run, &host), Err(SuperviseError::Unsafe { .. })));
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
        std::fs::remove_file(state.join("spool")).unwrap();
        std::fs::create_dir(state.join("spool")).unwrap();
        std::fs::set_permissions(state.join("spool"), PermissionsExt::from_mode(0o770)).unwrap();
        let error = RunDir::create(&state, &run, &host).unwrap_err().to_string();
        assert!(error.contains("chmod go-w"), "{error}");
    }

    #[test]
    fn a_directory_of_another_user_is_refused_however_it_is_closed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (_home, state, run, host) = place();
        std::fs::create_dir_all(state.join("spool")).unwrap();
        for path in [state.clone(), state.join("spool")] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        }
        std::os::unix::fs::chown(state.join("spool"), Some(65534), None).unwrap();
        let error = RunDir::create(&state, &run, &host).unwrap_err();
        assert!(matches!(error, SuperviseError::Unsafe { .. }), "{error}");
        assert!(error.to_string().contains("it belongs to uid 65534, not to uid 0"), "{error}");
    }

    #[test]
    fn a_planted_link_is_not_written_through() {
        let (home, state, run, host) = place();
        let dir = RunDir::create(&state, &run, &host).unwrap();
        let victim = home.path().join("victim");
        std::fs::write(&victim, "kept").unwrap();
        symlink(&victim, dir.path().join("rank-0.out")).unwrap();
        assert!(dir.append("rank-0.out").is_err());
        assert!(dir.read("rank-0.out").is_err());
        symlink(&victim, dir.path().join("a.json")).unwrap();
        dir.write_json("a.json", &1).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    }

    #[test]
    fn one_claim_of_many_succeeds() {
        let (_home, state, run, host) = place();
        let dir = RunDir::create(&state, &run, &host).unwrap();
        assert!(dir.claim_json("state.json", &1).unwrap());
        assert!(!dir.claim_json("state.json", &2).unwrap());
        assert_eq!(dir.read_json::<i32>("state.json").unwrap(), Some(1));
        assert_eq!(dir.read_json::<i32>("none.json").unwrap(), None);
    }

    #[test]
    fn what_was_reserved_is_written_in_its_place_and_leaves_nothing() {
        let (_home, state, run, host) = place();
        let dir = RunDir::create(&state, &run, &host).unwrap();
        dir.write_reserved("a.json", &1).unwrap();
        dir.reserve("a.json").unwrap();
        assert_eq!(dir.read_json::<i32>("a.json").unwrap(), Some(1));
        dir.write_reserved("a.json", &2).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("a.json")).unwrap(), "2");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_draft_is_told_from_what_stays() {
        for name in
            [draft("state.json"), reserved("exit-0.json"), format!(".deleted-RUN-gpu-a@x-1a2b3c4d.{}", 7)]
        {
            assert!(is_draft(&name), "{name}");
        }
        for name in ["state.json", "rank-0.out", ".pipe", "run.2", ".cache"] {
            assert!(!is_draft(name), "{name}");
        }
    }

    #[test]
    fn a_host_name_cannot_lead_out() {
        for bad in ["", "../x", "a/b", "a\nb", &"x".repeat(101)] {
            assert!(matches!(host_key(&HostId::from(bad)), Err(SuperviseError::HostName(_))), "{bad}");
        }
        assert!(host_key(&HostId::from("..")).unwrap().starts_with("..@"));
    }
}
