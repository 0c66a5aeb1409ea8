//! SHA-256 of bytes and of files: contents are named by it. Layer 2.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

use crate::domain::sync::Digest;
use crate::domain::text::os_text;

/// So many bytes of a file are read at once: more of them hash no faster.
pub const CHUNK: usize = 256 << 10;

/// A file that can't be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("read {path}: {text}", path = path.display(), text = os_text(source))]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// The hash of bytes that come piece by piece.
#[derive(Clone)]
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Takes all that a reader gives, and tells `more` of each piece; the number of bytes.
    pub fn read(&mut self, mut from: impl Read, mut more: impl FnMut(u64)) -> io::Result<u64> {
        let mut buffer = vec![0; CHUNK];
        let mut whole = 0;
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(whole),
                Ok(read) => {
                    self.update(buffer.get(..read).unwrap_or_default());
                    whole += read as u64;
                    more(read as u64);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The hash of all that was taken.
    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(self.0.finish().as_ref()).for_each(|(to, from)| *to = *from);
        Digest(bytes)
    }
}

/// The hash of some bytes.
pub fn of_bytes(bytes: &[u8]) -> Digest {
    let mut hash = Hasher::default();
    hash.update(bytes);
    hash.finish()
}

/// The hash of a file's content and its length, bytes. Links are followed.
///
/// # Errors
/// It can't be read; the file is named.
pub fn of_file(path: &Path) -> Result<(Digest, u64), ReadError> {
    hashed(path, File::open(path), |_| ())
}

/// The same of a file in a tree that others write to: a symbolic link in its place is an error. `more` is told of each piece
/// that was read, bytes.
///
/// # Errors
/// As those of [`of_file`].
pub fn of_file_in_tree(path: &Path, more: impl FnMut(u64)) -> Result<(Digest, u64), ReadError> {
    hashed(path, OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path), more)
}

fn hashed(path: &Path, file: io::Result<File>, more: impl FnMut(u64)) -> Result<(Digest, u64), ReadError> {
    let mut hash = Hasher::default();
    let read = file.and_then(|file| hash.read(file, more));
    read.map(|length| (hash.finish(), length)).map_err(|source| ReadError { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_file_has_the_hash_of_its_bytes_and_an_error_names_it() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        std::fs::write(&file, "abc").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(of_bytes(b"abc").to_string(), ABC);
        assert_eq!(of_file(&link).unwrap(), (of_bytes(b"abc"), 3));
        let error = of_file_in_tree(&link, |_| ()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("read {}: ", link.display())), "{error}");
        assert_eq!(of_file_in_tree(&file, |_| ()).unwrap(), (of_bytes(b"abc"), 3));
        let long = vec![7; CHUNK * 2 + 1];
        std::fs::write(&file, &long).unwrap();
        let mut told = 0;
        let read = of_file_in_tree(&file, |bytes| told += bytes).unwrap();
        assert_eq!((read, told), ((of_bytes(&long), long.len() as u64), long.len() as u64));
    }
}
