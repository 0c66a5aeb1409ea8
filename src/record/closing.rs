//! Closes files that were not closed and repairs damaged ones, on disk: a copy is written beside the file, synced, checked, and
//! takes its place in one step. A copy that is not finished is removed by the next one.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::check::{self, FileCheck, FileState};
use super::error::Error;
use super::repair;
use super::scan::{self, Bytes};
use super::segments::{self, Lock};
use super::writer::Writer;

/// So many damaged files of one file are kept at most.
const MOST_KEPT: u32 = 99;
/// The largest file that is closed unasked: copying one takes time.
const MOST_UNASKED: u64 = 256 << 20;

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Where the damaged file is kept; `None` where nothing of it is lost by the repair.
    pub kept: Option<PathBuf>,
    /// Chunks that are in it now.
    pub chunks: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Repairs a file of the recording that `lock` belongs to; nothing may write it meanwhile.
///
/// # Errors
/// What the file system says; the file is then as it was. [`Error::NoLock`] where nothing says that no other program writes it.
pub fn repair(lock: &Lock, file: &FileCheck) -> Result<Repaired, Error> {
    if !lock.is_held_here() {
        return Err(Error::NoLock(file.path.clone()));
    }
    let copy = beside(&file.path, "part");
    let written = write(file, &copy).and_then(|()| verify(file, &copy));
    let kept = written.and_then(|()| replace(file, &copy));
    if kept.is_err() {
        drop(std::fs::remove_file(&copy));
    }
    let kept = kept?;
    let bytes = std::fs::metadata(&file.path).map_err(Error::file(&file.path))?.len();
    Ok(Repaired { kept, chunks: file.plan.chunks.len() as u64, bytes })
}

/// Removes what repairs of the recording that were broken off have left.
pub fn tidy(lock: &Lock) {
    if lock.is_held_here() {
        for path in segments::of(lock.first()) {
            drop(std::fs::remove_file(beside(&path, "part")));
        }
    }
}

/// Closes files of the recording that were not closed or are cut, so that other programs open them; large and damaged ones are
/// left to [`repair()`]. What goes wrong is no harm: they stay as they are.
pub fn close_unasked(lock: &Lock) {
    for path in segments::of(lock.first()) {
        let size = std::fs::metadata(&path).map_or(u64::MAX, |about| about.len());
        if size > MOST_UNASKED || !has_no_end(&path) {
            continue;
        }
        let file = check::file(&path, false);
        if matches!(file.state, FileState::NotClosed | FileState::Cut { .. }) && file.chunks > 0 {
            match repair(lock, &file) {
                Ok(_) => tracing::debug!(path = %path.display(), "closed a recording"),
                Err(error) => tracing::debug!(%error, "a recording stays open"),
            }
        }
    }
}

/// Whether a file of the recording that begins with `first` was not closed. Reads their last bytes alone.
pub(super) fn is_open(first: &Path) -> bool {
    segments::of(first).iter().any(|path| has_no_end(path))
}

/// Whether a file can be read and does not end as a closed one does.
fn has_no_end(path: &Path) -> bool {
    Bytes::open(path).is_ok_and(|mut bytes| matches!(scan::footer(&mut bytes), Ok(None)))
}

/// The name of a file beside another: `run.mcap.part`.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    PathBuf::from(name)
}

fn write(file: &FileCheck, copy: &Path) -> Result<(), Error> {
    match std::fs::remove_file(copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::file(copy)(error)),
        _ => {}
    }
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(copy);
    let to = BufWriter::new(to.map_err(Error::file(copy))?);
    let source = Bytes::open(&file.path)?;
    let written = if file.plan.chunks.is_empty() {
        Writer::new(to).and_then(Writer::finish).map(|(to, _)| to)
    } else {
        repair::copy(&file.plan, |at, count| source.read(at, count), to)
    };
    let synced = written.and_then(|to| {
        let to = to.into_inner().map_err(|error| Error::Write(error.into_error()))?;
        to.sync_all().map_err(Error::Write)
    });
    // the words of a write do not name the file
    synced.map_err(|error| match error {
        Error::Write(source) => Error::file(copy)(source),
        other => other,
    })
}

/// The copy takes the place of the file only when it holds all that is good in it.
fn verify(file: &FileCheck, copy: &Path) -> Result<(), Error> {
    let copied = check::file(copy, false);
    if copied.state == FileState::Whole && (copied.chunks, copied.events) == (file.chunks, file.events) {
        return Ok(());
    }
    let reason = format!("the copy is not what was copied: {} of {} chunks", copied.chunks, file.chunks);
    Err(Error::file(copy)(io::Error::other(reason)))
}

fn replace(file: &FileCheck, copy: &Path) -> Result<Option<PathBuf>, Error> {
    let loses = matches!(file.state, FileState::Damaged { .. });
    let kept = if loses { Some(keep(&file.path)?) } else { None };
    std::fs::rename(copy, &file.path).map_err(Error::file(&file.path))?;
    if let Some(folder) = file.path.parent().filter(|folder| !folder.as_os_str().is_empty())
        && let Err(error) = File::open(folder).and_then(|folder| folder.sync_all())
    {
        tracing::debug!(%error, "a folder is not synced");
    }
    Ok(kept)
}

/// Where the damaged file is that the newest repair of a file has kept; `None` where none has.
pub(super) fn newest_kept(path: &Path) -> Option<PathBuf> {
    Some(kept_as(path, newest_number(path)?))
}

/// The greatest number under which a damaged file is kept.
fn newest_number(path: &Path) -> Option<u32> {
    (1..=MOST_KEPT).rev().find(|number| kept_as(path, *number).exists())
}

/// The name of a damaged file: `run.mcap.damaged`, or with a number behind it.
fn kept_as(path: &Path, number: u32) -> PathBuf {
    if number == 1 { beside(path, "damaged") } else { beside(path, &format!("damaged.{number}")) }
}

/// Gives a damaged file a second name, under which it stays. Its number is above those of all that are kept, so that the
/// greatest one is the newest.
fn keep(path: &Path) -> Result<PathBuf, Error> {
    for number in newest_number(path).unwrap_or(0) + 1..=MOST_KEPT {
        let kept = kept_as(path, number);
        match std::fs::hard_link(path, &kept) {
            Ok(()) => return Ok(kept),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // a file system without links
            Err(_) if !kept.exists() => {
                return match std::fs::copy(path, &kept) {
                    Ok(_) => Ok(kept),
                    Err(error) => {
                        drop(std::fs::remove_file(&kept));
                        Err(Error::file(&kept)(error))
                    }
                };
            }
            Err(_) => {}
        }
    }
    Err(Error::Exists(kept_as(path, MOST_KEPT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_damaged_file_is_kept_under_a_name_of_its_own_and_the_newest_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        assert_eq!(newest_kept(&path), None);
        let named = |name: &str| folder.path().join(name);
        for (text, name) in [("a", "run.mcap.damaged"), ("b", "run.mcap.damaged.2")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(keep(&path).unwrap(), named(name));
            assert_eq!(newest_kept(&path), Some(named(name)));
            std::fs::remove_file(&path).unwrap();
        }
        // a name that is free again is none of a newer file
        std::fs::remove_file(named("run.mcap.damaged")).unwrap();
        std::fs::write(&path, "c").unwrap();
        assert_eq!(keep(&path).unwrap(), named("run.mcap.damaged.3"));
        assert_eq!(std::fs::read_to_string(named("run.mcap.damaged.2")).unwrap(), "b");
        std::fs::write(kept_as(&path, MOST_KEPT), "d").unwrap();
        let refused = keep(&path).unwrap_err();
        assert!(
            matches!(&refused, Error::Exists(kept) if *kept == named("run.mcap.damaged.99")),
            "{refused}"
        );
    }
}
