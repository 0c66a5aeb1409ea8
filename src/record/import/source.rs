//! The bytes of a trace: of the file as it is, or unpacked where it was packed by gzip or zstd, which its first bytes tell.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

use super::super::error::Error;
use super::tfevents::Records;

const READ: usize = 1 << 16;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Folders that are looked into for event files.
const MOST_FOLDERS: usize = 1 << 12;
/// What `zstd -d` unpacks without being told to take more memory: 128 MiB.
const MOST_WINDOW: u32 = 27;
const MCAP: &[u8] = b"\x89MCAP0\r\n";

/// A trace's text.
pub(super) struct Source {
    /// Unpacked.
    pub(super) text: Box<dyn Read>,
    /// Whether the file is packed.
    pub(super) is_packed: bool,
}

/// Opens a trace.
///
/// # Errors
/// What the file system says, and what is no trace by its first bytes.
pub(super) fn open(path: &Path) -> Result<Source, Error> {
    let file = File::open(path).map_err(Error::file(path))?;
    if !file.metadata().map_err(Error::file(path))?.is_file() {
        // a trace is read twice
        return Err(Error::foreign(path, "not a file: write the trace into one first"));
    }
    let mut file = BufReader::with_capacity(READ, file);
    let first = file.fill_buf().map_err(Error::file(path))?;
    if first.starts_with(MCAP) {
        let words = "an MCAP file: `hvtui report` and `hvtui replay` take a recording's file as it is";
        return Err(Error::foreign(path, words));
    }
    Ok(if first.starts_with(GZIP) {
        Source { text: Box::new(MultiGzDecoder::new(file)), is_packed: true }
    } else if first.starts_with(ZSTD) {
        let mut text = Decoder::with_buffer(file).map_err(Error::file(path))?;
        text.window_log_max(MOST_WINDOW).map_err(Error::file(path))?;
        Source { text: Box::new(text), is_packed: true }
    } else {
        Source { text: Box::new(file), is_packed: false }
    })
}

/// The files that are meant: those of a folder, in the order of their names, without what lies deeper and what is hidden; of a
/// folder of TensorBoard's logs, its event files alone, those in its folders too.
///
/// # Errors
/// What the file system says of a folder.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for path in paths {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let (mut inside, folders) = entries(path)?;
        let deeper = event_files(path, folders)?;
        if !deeper.is_empty() || inside.iter().any(|path| is_events(path)) {
            inside.retain(|path| is_events(path));
            inside.extend(deeper);
        }
        inside.sort();
        if inside.is_empty() {
            return Err(Error::foreign(path, "a folder without files"));
        }
        all.append(&mut inside);
    }
    Ok(all)
}

/// The files of a folder, and its folders; a link is followed to a file alone, so that no way is endless.
fn entries(path: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(path).map_err(Error::file(path))? {
        let entry = entry.map_err(Error::file(path))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(entry.path());
        } else if entry.path().is_file() {
            files.push(entry.path());
        }
    }
    Ok((files, folders))
}

/// The event files in a folder's folders, and in those within them. What can't be looked into is none.
fn event_files(path: &Path, mut folders: Vec<PathBuf>) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        seen += 1;
        if seen > MOST_FOLDERS {
            let words = format!("more than {MOST_FOLDERS} folders in it: name that of one run");
            return Err(Error::foreign(path, &words));
        }
        if let Ok((files, deeper)) = entries(&folder) {
            found.extend(files.into_iter().filter(|path| is_events(path)));
            folders.extend(deeper);
        }
    }
    Ok(found)
}

/// Whether this is an event file of TensorBoard.
pub(super) fn is_events(path: &Path) -> bool {
    open(path).is_ok_and(|source| Records::new(source.text).is_events())
}
