//! The recording that a person means: of a run here, or of a file. What another program has written is imported for the moment.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use tempfile::TempDir;

use super::errors::{Code, Failure, note};
use super::paths::Paths;
use crate::clock;
use crate::record::import::{Asked, Imported, Place, import};
use crate::record::{Error, MAGIC, Reader, Store, marks};

/// How the folders of what is imported for the moment begin; the number of the process follows.
const FOLDER: &str = "hvtui-import-";

/// So long nothing has been written to what a killed process has left, microseconds.
const OLD_US: i64 = 3_600_000_000;

/// A recording to be read.
#[derive(Debug)]
pub(crate) struct Meant {
    /// Its first file.
    pub(crate) path: PathBuf,
    /// Where it lies, if it was made of another program's file: gone with this value.
    folder: Option<TempDir>,
}

impl Meant {
    /// What was made for the moment goes, unless a person has noted something in it.
    pub(crate) fn leave(self) {
        let is_marked = marks::read(&self.path).is_ok_and(|marks| !marks.all().is_empty());
        if let Some(folder) = self.folder.filter(|_| is_marked) {
            let kept = folder.keep().join("run.mcap");
            note(&format!("your marks are kept with what was imported: hvtui replay {}", kept.display()));
        }
    }
}

/// What `text` means: a run's id or part of it, its name, a recording's file, the file or folder of another program, or, as `last`
/// and nothing, the newest run that was not refused.
///
/// # Errors
/// There is none, or it can't be read.
pub(crate) fn meant(text: &str, paths: &Paths) -> Result<Meant, Failure> {
    let given = Path::new(text);
    let store = Store::new(&paths.state);
    let found = if text.is_empty() || text == "last" { store.newest_begun() } else { store.find(text) };
    match found {
        Ok(path) if path == given && is_foreign(&path) => of_another_program(given),
        Ok(path) => Ok(Meant { path, folder: None }),
        Err(Error::NoSuchRun { .. } | Error::NotARecording(_)) if given.is_dir() => of_another_program(given),
        Err(Error::File { path, source })
            if path == given && source.kind() == ErrorKind::NotFound && given.is_dir() =>
        {
            of_another_program(given)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether another program has written it: by its first bytes alone, for a recording may be long. Where these were damaged a recording
/// is known by its chunks.
fn is_foreign(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    let is_none = |path| matches!(Reader::open(path), Err(Error::NotARecording(_) | Error::OtherMcap(_)));
    read.is_ok() && first != MAGIC && is_none(path)
}

fn of_another_program(file: &Path) -> Result<Meant, Failure> {
    sweep();
    let prefix = format!("{FOLDER}{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir().map_err(|error| {
        Failure::new(Code::from(&error), format!("a folder for the import of {}: {error}", file.display()))
    })?;
    let path = folder.path().join("run.mcap");
    let imported = read(&[file.to_owned()], None, None, Place::File(&path))?;
    let (format, file) = (imported.format, file.display());
    note(&format!("{file} is read as {format}; `hvtui import {file}` keeps it among the runs"));
    for (one, cut) in imported.files.iter().filter_map(|one| Some((one, one.cut.as_ref()?))) {
        note(&format!("{}: read up to byte {}: {}", one.path.display(), cut.byte, cut.reason));
    }
    let left_out: u64 = imported.left_out.iter().map(|left_out| left_out.count).sum();
    if left_out > 0 {
        note(&format!("{left_out} things of it are left out or unknown; `hvtui import` says which"));
    }
    Ok(Meant { path, folder: Some(folder) })
}

/// Removes what processes have left that were killed.
fn sweep() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split('-').next()?.parse::<u32>().ok());
        let is_over = pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        // one of another user, or of a container that shares the folder, may be at work
        let is_old = |found: Metadata| {
            found.uid() == rustix::process::getuid().as_raw()
                && clock::now().0.saturating_sub(found.mtime().saturating_mul(1_000_000)) > OLD_US
        };
        let is_marked = marks::path_of(&entry.path().join("run.mcap")).exists();
        if is_over && !is_marked && entry.metadata().is_ok_and(is_old) {
            // what can't be removed is not this one's to remove
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Imports files.
///
/// # Errors
/// They can't be read, or what they become can't be written.
pub(crate) fn read(
    files: &[PathBuf],
    name: Option<&str>,
    step: Option<&str>,
    place: Place<'_>,
) -> Result<Imported, Failure> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).map_err(|_| Failure::bug("the system gives no random numbers"))?;
    let (now, random) = (clock::now(), u128::from_le_bytes(random));
    Ok(import(&Asked { files, name, step, place, now, random })?)
}
