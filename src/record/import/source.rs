//! The bytes of a trace: of the file as it is, or unpacked where it was packed by gzip or zstd, which its first bytes tell.

use std::fmt::Write as _;
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
/// Folders below one that are looked into.
const MOST_FOLDERS: usize = 1 << 12;
/// What `zstd -d` unpacks without being told to take more memory: 128 MiB.
const MOST_WINDOW: u32 = 27;
const MCAP: &[u8] = b"\x89MCAP0\r\n";

/// What a text is read from.
pub(super) type Text = Box<dyn Read + Send>;

/// A trace's text.
pub(super) struct Source {
    /// Unpacked.
    pub(super) text: Text,
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
        let words = "an MCAP file: `hvtui report` and `hvtui replay` take a recording of hvtui as it is, and nothing reads what \
                     `hvtui export --to mcap` writes for viewers";
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

/// What lies in a folder, in the order of its names without what is hidden: its own files, and those of the folders below.
#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) files: Vec<PathBuf>,
    pub(super) below: Vec<PathBuf>,
}

impl Folder {
    /// Looks into a folder.
    ///
    /// # Errors
    /// What the file system says of it. A folder below that can't be looked into is empty.
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let (mut files, folders) = entries(path)?;
        let mut below = deeper(path, folders)?;
        files.sort_by_cached_key(|path| natural(path));
        below.sort_by_cached_key(|path| natural(path));
        Ok(Self { files, below })
    }
}

/// A path by which names are in their order as people count: `rank10` behind `rank9`.
pub(super) fn natural(path: &Path) -> String {
    let mut key = String::new();
    let mut digits = String::new();
    for letter in path.to_string_lossy().chars().chain(['\0']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        if !digits.is_empty() {
            let _ = write!(key, "{:0>24}", digits.trim_start_matches('0'));
            digits.clear();
        }
        key.push(letter);
    }
    key
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

/// The files in a folder's folders, and in those within them. What can't be looked into is empty.
fn deeper(path: &Path, mut folders: Vec<PathBuf>) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        seen += 1;
        if seen > MOST_FOLDERS {
            let words = format!("more than {MOST_FOLDERS} folders in it: name that of one run");
            return Err(Error::foreign(path, &words));
        }
        if let Ok((files, deeper)) = entries(&folder) {
            found.extend(files);
            folders.extend(deeper);
        }
    }
    Ok(found)
}

/// Whether this is an event file of TensorBoard.
pub(super) fn is_events(path: &Path) -> bool {
    open(path).is_ok_and(|source| Records::new(source.text).is_events())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted() {
        let mut names =
            ["rank10.json", "rank9.json", "rank09a.json", "b", "rank.json", "18446744073709551616"];
        names.sort_by_cached_key(|name| natural(Path::new(name)));
        assert_eq!(
            names,
            ["18446744073709551616", "b", "rank.json", "rank9.json", "rank09a.json", "rank10.json"]
        );
    }
}
