//! The bytes of a trace: of the file as it is, or unpacked where it was packed by gzip or zstd, which its first bytes tell.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

use super::super::error::Error;

const READ: usize = 1 << 16;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
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

/// The files that are meant: those of a folder, in the order of their names, without what lies deeper and what is hidden.
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
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(Error::file(path))? {
            let entry = entry.map_err(Error::file(path))?;
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && entry.path().is_file() {
                inside.push(entry.path());
            }
        }
        inside.sort();
        if inside.is_empty() {
            return Err(Error::foreign(path, "a folder without files"));
        }
        all.append(&mut inside);
    }
    Ok(all)
}
