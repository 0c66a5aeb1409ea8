//! The marks of a run, in a file beside its recording: `run.marks.json` beside `run.mcap`. A recording that is closed is never
//! written to again, and marks can be changed; so they are no part of it.
//!
//! A client that changes them holds the lock of the folder, reads what is there, and puts a whole new file in its place: two clients
//! lose nothing of each other, and a write that fails leaves the file as it was.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::Error;
use crate::domain::marks::{MOST_MARKS, MarkChange, RunMark, RunMarks, fitting};
use crate::filelock::{self, LockError};

/// The version of the file.
const VERSION: u32 = 1;
/// A file of ours is never larger: as many marks as there may be, with the longest notes.
const MOST_BYTES: u64 = 4 << 20;
/// How long another client is waited for; it holds the lock for milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    #[serde(default)]
    next: u32,
    marks: Vec<RunMark>,
}

/// Its version alone: what a later one has may be of another form.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

/// Where the marks of a recording are, by its first file.
pub fn path_of(recording: &Path) -> PathBuf {
    beside(recording, "marks")
}

/// A file beside a recording that has something of this name.
pub(super) fn beside(recording: &Path, what: &str) -> PathBuf {
    let name = recording.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".mcap").unwrap_or(&name);
    recording.with_file_name(format!("{stem}.{what}.json"))
}

/// The marks of a recording; none where there is no file.
///
/// # Errors
/// When the file can't be read or is none of ours.
pub fn read(recording: &Path) -> Result<RunMarks, Error> {
    let path = path_of(recording);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RunMarks::default()),
        Err(error) => return Err(Error::file(&path)(error)),
    };
    let mut text = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(Error::file(&path))?;
    parse(&text).map_err(|reason| Error::Marks { path, reason })
}

/// Changes the marks of a recording; gives them as they are then.
///
/// # Errors
/// When they can't be read or written, or not be changed so. The file is as before then.
pub fn change(recording: &Path, change: &MarkChange) -> Result<RunMarks, Error> {
    let path = path_of(recording);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lock = File::open(folder).map_err(Error::file(folder))?;
    match filelock::exclusive(&lock, PATIENCE) {
        Ok(()) => {}
        Err(LockError::System(error)) => tracing::debug!(%error, "no lock on the marks of a recording"),
        Err(held @ LockError::Held { .. }) => {
            return Err(Error::file(folder)(io::Error::other(held)));
        }
    }
    let mut marks = read(recording)?;
    marks.change(change)?;
    let kept = Kept { version: VERSION, next: marks.next(), marks: marks.all().to_vec() };
    let mut text = serde_json::to_vec_pretty(&kept)
        .map_err(|error| Error::Marks { path: path.clone(), reason: error.to_string() })?;
    text.push(b'\n');
    replace(&path, &text)?;
    Ok(marks)
}

/// Puts a whole new file in the place of one, readable by its owner alone.
pub(super) fn replace(path: &Path, text: &[u8]) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    let part = path.with_file_name(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|error| {
        // it may not even be there
        let _ = std::fs::remove_file(&part);
        Error::file(path)(error)
    })
}

fn parse(text: &[u8]) -> Result<RunMarks, String> {
    const REMEDY: &str = "repair it or move it away";
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than marks ever are ({} MiB): {REMEDY}", MOST_BYTES >> 20));
    }
    let bad = |error: serde_json::Error| format!("no marks of hvtui: {error}: {REMEDY}");
    let Versioned { version } = serde_json::from_slice(text).map_err(bad)?;
    if version > VERSION {
        return Err(format!("it has version {version}, this hvtui reads up to {VERSION}: update hvtui"));
    }
    let mut kept: Kept = serde_json::from_slice(text).map_err(bad)?;
    if kept.marks.len() > MOST_MARKS {
        return Err(format!("marks: {} of them, {MOST_MARKS} are the most: {REMEDY}", kept.marks.len()));
    }
    // one of a stranger may be surrounded by blanks without end, or hold what drives a terminal
    for (at, mark) in kept.marks.iter_mut().enumerate() {
        mark.note = fitting(&mark.note).map_err(|error| format!("marks[{at}].note: {error}: {REMEDY}"))?;
    }
    Ok(RunMarks::new(kept.next, kept.marks))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::domain::ids::Rank;
    use crate::domain::marks::NewMark;
    use crate::domain::time::Stamp;

    fn add(at: i64, note: &str) -> MarkChange {
        let (step, rank) = (Some(8), Some(Rank(1)));
        MarkChange::Add(NewMark { at: Stamp(at), step, rank, note: note.to_owned() })
    }

    #[test]
    fn what_was_written_is_read_by_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join("run.mcap");
        assert_eq!(read(&recording).unwrap(), RunMarks::default());
        let written = change(&recording, &add(5, "lr \u{1f600} \"x\"")).unwrap();
        assert_eq!(read(&recording).unwrap(), written);
        let path = folder.path().join("run.marks.json");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(path_of(Path::new("a/old")), Path::new("a/old.marks.json"));
    }

    #[test]
    fn two_clients_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join("run.mcap");
        std::thread::scope(|scope| {
            for client in 0..4 {
                let recording = &recording;
                scope.spawn(move || {
                    for at in 0..10 {
                        change(recording, &add(at, &format!("{client}"))).unwrap();
                    }
                });
            }
        });
        let marks = read(&recording).unwrap();
        assert_eq!((marks.all().len(), marks.next()), (40, 41));
    }

    #[test]
    fn a_file_that_is_none_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join("run.mcap");
        let long = format!(r#"{{"version":1,"marks":[{{"id":1,"at":1,"note":"{}"}}]}}"#, "x".repeat(201));
        for (text, words) in [
            ("{", "no marks of hvtui"),
            ("[]", "no marks of hvtui"),
            (r#"{"version":2,"other":1}"#, "version 2, this hvtui reads up to 1: update hvtui"),
            (r#"{"version":1,"marks":[{"id":1}]}"#, "missing field `at`"),
            (&long, "marks[0].note: a note has 200 characters at most, this one 201"),
        ] {
            let path = path_of(&recording);
            std::fs::write(&path, text).unwrap();
            for error in [read(&recording).unwrap_err(), change(&recording, &add(1, "")).unwrap_err()] {
                let error = error.to_string();
                assert!(error.contains(words) && error.contains("run.marks.json"), "{error}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
