//! The recording that a person means: of a run here, or of a file. What another program has written is imported for the moment.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use tempfile::TempDir;

use super::errors::{Code, Failure, note};
use super::paths::Paths;
use crate::clock;
use crate::record::import::{Asked, Imported, Place, import};
use crate::record::{MAGIC, Store};

/// A recording to be read.
#[derive(Debug)]
pub(crate) struct Meant {
    /// Its first file.
    pub(crate) path: PathBuf,
    /// Where it lies, if it was made of another program's file: gone with this value.
    _folder: Option<TempDir>,
}

/// What `text` means: a run's id or part of it, its name, `last`, a recording's file, or the file or folder of another program.
///
/// # Errors
/// There is none, or it can't be read.
pub(crate) fn meant(text: &str, paths: &Paths) -> Result<Meant, Failure> {
    let given = Path::new(text);
    match Store::new(&paths.state).find(text) {
        Ok(path) if path == given && is_foreign(&path) => of_another_program(given),
        Ok(path) => Ok(Meant { path, _folder: None }),
        Err(_) if given.is_dir() => of_another_program(given),
        Err(error) => Err(error.into()),
    }
}

/// Whether another program has written it: by its first bytes alone, for a recording may be long.
fn is_foreign(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first != MAGIC
}

fn of_another_program(file: &Path) -> Result<Meant, Failure> {
    let folder = tempfile::Builder::new().prefix("hvtui-import-").tempdir();
    let folder = folder.map_err(|error| {
        Failure::new(Code::from(&error), format!("a folder for the import of {}: {error}", file.display()))
    })?;
    let path = folder.path().join("run.mcap");
    let imported = read(&[file.to_owned()], None, Place::File(&path))?;
    let (format, file) = (imported.format, file.display());
    note(&format!("{file} is read as {format}; `hvtui import {file}` keeps it among the runs"));
    Ok(Meant { path, _folder: Some(folder) })
}

/// Imports files.
///
/// # Errors
/// They can't be read, or what they become can't be written.
pub(crate) fn read(files: &[PathBuf], name: Option<&str>, place: Place<'_>) -> Result<Imported, Failure> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).map_err(|_| Failure::bug("the system gives no random numbers"))?;
    let (now, random) = (clock::now(), u128::from_le_bytes(random));
    Ok(import(&Asked { files, name, place, now, random })?)
}
