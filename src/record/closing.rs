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
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
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

/// Gives a damaged file a second name, under which it stays: `run.mcap.damaged`, or with a number behind it.
fn keep(path: &Path) -> Result<PathBuf, Error> {
    for number in 1..100 {
        let name = if number == 1 { "damaged".to_owned() } else { format!("damaged.{number}") };
        let kept = beside(path, &name);
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
    Err(Error::Exists(beside(path, "damaged")))
}
