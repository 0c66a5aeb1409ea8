//! Files that are written whole: beside their place first, so that one that can't be written leaves what was there, and a reader
//! never sees half of one. A link is followed; a pipe or a device is written to, for nothing may replace it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// More links than this lead nowhere.
const MOST_LINKS: usize = 40;

/// The path behind the links that a path names, also where nothing is there yet.
pub(crate) fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    path
}

/// Names of standard output: a file that the shell has opened there stays that file.
const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Whether a path is that of a pipe, a device, a socket or standard output.
pub(crate) fn is_special(path: &Path) -> bool {
    STDOUT.iter().any(|name| path == Path::new(name))
        || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Opens such a path. A file that the shell has opened goes on where it is, with `>>` and with what another command prints behind it.
pub(crate) fn open_special(path: &Path) -> io::Result<File> {
    if STDOUT.iter().any(|name| path == Path::new(name)) {
        return io::stdout().as_fd().try_clone_to_owned().map(File::from);
    }
    OpenOptions::new().write(true).open(path)
}

/// Writes a file of this mode by `fill`, or to the pipe or device of that path.
pub(crate) fn write(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    if is_special(path) {
        return fill(&mut open_special(path)?);
    }
    let path = followed(path);
    if path.is_symlink() {
        return Err(rustix::io::Errno::LOOP.into());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    // one that a process of the same number has left
    let _ = fs::remove_file(&part);
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(&part);
    let written = opened.and_then(|mut to| {
        if let Ok(before) = fs::metadata(&path) {
            // what a person has closed to others stays closed
            to.set_permissions(Permissions::from_mode(before.mode() & mode))?;
        }
        fill(&mut to)
    });
    let written = written.and_then(|()| fs::rename(&part, &path));
    if written.is_err() {
        // what is left of it may not be there at all
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    fn put(path: &Path) -> io::Result<()> {
        write(path, 0o644, |file| file.write_all(b"new"))
    }

    #[test]
    fn a_link_is_followed_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("deep")).unwrap();
        fs::write(path("deep/file"), "old").unwrap();
        symlink("deep/file", path("link")).unwrap();
        symlink(path("link"), path("link of the link")).unwrap();
        symlink("nowhere yet", path("dangling")).unwrap();
        put(&path("link of the link")).unwrap();
        put(&path("dangling")).unwrap();
        assert_eq!(fs::read(path("deep/file")).unwrap(), b"new");
        assert_eq!(fs::read(path("nowhere yet")).unwrap(), b"new");
        assert!(
            path("link").is_symlink()
                && path("link of the link").is_symlink()
                && path("dangling").is_symlink()
        );
        symlink("round", path("round")).unwrap();
        assert!(put(&path("round")).is_err());
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".part")));
    }

    #[test]
    fn a_device_and_a_pipe_stay_what_they_are() {
        // a copy of /dev/full, in a folder of this test alone: a defect must not replace that of the machine
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("full");
        symlink("/dev/full", &link).unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        put(&pipe).unwrap();
        assert_eq!(reader.join().unwrap(), b"new");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(put(&link).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(link.is_symlink());
    }

    #[test]
    fn a_page_that_was_closed_to_others_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        put(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // and what is to be closed is, though a file was there that others could read
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, 0o600, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_was_there_stays_where_writing_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let failed = write(&path, 0o600, |_| Err(io::Error::other("full")));
        assert!(failed.is_err() && fs::read(&path).unwrap() == b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
