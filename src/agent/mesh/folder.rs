//! The account's `~/.ssh`: files are read and written so that no symbolic link is followed, no other user can
//! interfere, and no moment sees half a file. Knows no meshes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, fchmod, fstat, fsync, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::block::Unclosed;
use crate::filelock::{self, LockError};

/// Larger files than that are none of ssh's.
const MOST_BYTES: u64 = 4 << 20;

/// Why `~/.ssh` can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    /// A link, or something else than a file or folder.
    #[error(
        "{0} is a symbolic link or no {1}: hvtui does not write through it; put a {1} there, or set up the logins by hand"
    )]
    NotPlain(String, &'static str),
    /// Someone else could change it.
    #[error("{0} belongs to someone else or is writable by others: chown and chmod go-w it, as ssh wants it")]
    Open(String),
    /// Someone else writes there and does not end.
    #[error("{0}: {1}")]
    Locked(String, LockError),
    /// Not a mesh's id.
    #[error("`{0}` is no id of a mesh")]
    BadId(String),
    /// Marks in a file that do not fit together.
    #[error("{0}: {1}")]
    Marks(String, String),
    /// The file system's words.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

impl FolderError {
    pub(super) fn marks(name: &str, error: &Unclosed) -> Self {
        Self::Marks(shown(name), error.to_string())
    }
}

fn shown(name: &str) -> String {
    if name.is_empty() { "~/.ssh".to_owned() } else { format!("~/.ssh/{name}") }
}

fn failed(name: &str) -> impl Fn(Errno) -> FolderError {
    move |error| match error {
        Errno::LOOP | Errno::NOTDIR => FolderError::NotPlain(shown(name), "file"),
        error => FolderError::Io(shown(name), error.into()),
    }
}

/// An open `~/.ssh` that is ours.
pub(super) struct Folder {
    fd: OwnedFd,
    home: PathBuf,
}

/// No other process of ours writes there while it lives.
pub(super) struct Lock(#[expect(dead_code, reason = "closing it unlocks")] OwnedFd);

impl Folder {
    /// `None` where there is none.
    pub(super) fn open(home: &Path) -> Result<Option<Self>, FolderError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(CWD, home.join(".ssh"), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(FolderError::NotPlain(shown(""), "folder")),
            Err(error) => return Err(FolderError::Io(shown(""), error.into())),
        };
        let meta = fstat(&fd).map_err(failed(""))?;
        if meta.st_uid != rustix::process::geteuid().as_raw() || meta.st_mode & 0o022 != 0 {
            return Err(FolderError::Open(shown("")));
        }
        Ok(Some(Self { fd, home: home.to_owned() }))
    }

    /// Makes it and opens it.
    pub(super) fn make(home: &Path) -> Result<Self, FolderError> {
        match mkdirat(CWD, home.join(".ssh"), Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(FolderError::Io(shown(""), error.into())),
        }
        Self::open(home)?.ok_or_else(|| FolderError::Io(shown(""), io::ErrorKind::NotFound.into()))
    }

    /// Waits for the others. Where the file system knows no locks, writes are whole all the same.
    pub(super) fn lock(&self) -> Result<Lock, FolderError> {
        let fd = self.fd.try_clone().map_err(|error| FolderError::Io(shown(""), error))?;
        match filelock::exclusive(&fd, filelock::PATIENCE) {
            Ok(()) | Err(LockError::System(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF)) => {
                Ok(Lock(fd))
            }
            Err(error) => Err(FolderError::Locked(shown(""), error)),
        }
    }

    /// The names of what is in it.
    pub(super) fn names(&self) -> Result<Vec<String>, FolderError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(failed(""))? {
            let name = entry.map_err(failed(""))?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// A file's content; `None` where there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(name)(error)),
        };
        let io = |error| FolderError::Io(shown(name), error);
        let meta = file.metadata().map_err(io)?;
        if !meta.is_file() || meta.len() > MOST_BYTES {
            return Err(FolderError::NotPlain(shown(name), "file"));
        }
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(FolderError::Open(shown(name)));
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(io)?;
        Ok(Some(bytes))
    }

    /// Gives a file this content, all of it or nothing. It keeps its mode; a new one gets 0600.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), FolderError> {
        let mode = match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(meta) => Mode::from_raw_mode(meta.st_mode & 0o777),
            Err(_) => Mode::from_raw_mode(0o600),
        };
        let draft = format!(".{name}.hvtui.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Of a process that had the same number and died.
        let _ = unlinkat(&self.fd, &draft, AtFlags::empty());
        let fd = openat(&self.fd, &draft, flags, Mode::from_raw_mode(0o600)).map_err(failed(name))?;
        let written = (|| {
            let mut file = File::from(fd);
            file.write_all(content)?;
            fchmod(&file, mode)?;
            file.sync_all()?;
            renameat(&self.fd, &draft, &self.fd, name)?;
            // The name's turn to be on disk; some file systems know no such thing.
            let _ = fsync(&self.fd);
            io::Result::Ok(())
        })();
        written.map_err(|error| {
            let _ = unlinkat(&self.fd, &draft, AtFlags::empty());
            FolderError::Io(shown(name), error)
        })
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), FolderError> {
        unlinkat(&self.fd, name, AtFlags::empty()).map_err(failed(name))
    }

    /// Removes the folder, which must be empty.
    pub(super) fn remove_itself(self) -> Result<(), FolderError> {
        std::fs::remove_dir(self.home.join(".ssh")).map_err(|error| FolderError::Io(shown(""), error))
    }
}
