//! What waits for a reader and does not fit into memory: a file without a name, written at its end and read at its
//! beginning. It goes with the process, however that ends.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::domain::units::bytes;

/// The most that waits there, bytes.
pub(super) const CAP: u64 = 1 << 30;
/// Text is gathered before it is written, bytes.
const GATHER: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Spill {
    dir: PathBuf,
    file: Option<File>,
    /// What is in the file and not read yet: from here to there, each modulo [`CAP`].
    from: u64,
    to: u64,
    /// What comes behind it.
    tail: Vec<u8>,
}

impl Spill {
    /// A file in `dir`, which is made when it is needed.
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), file: None, from: 0, to: 0, tail: Vec::new() }
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> u64 {
        self.to - self.from + self.tail.len() as u64
    }

    /// Puts text behind all others; on an error nothing of it.
    pub(super) fn push(&mut self, text: &[u8]) -> io::Result<()> {
        if self.len() + text.len() as u64 > CAP {
            return Err(io::Error::other(format!("{} wait already", bytes(CAP))));
        }
        if self.tail.len() + text.len() > GATHER {
            self.store()?;
        }
        self.tail.extend_from_slice(text);
        Ok(())
    }

    /// Writes what was gathered.
    fn store(&mut self) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => create(&self.dir)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.dir.display())))?,
        };
        let file = self.file.insert(file);
        // the file is a ring: what was read is written over
        let (first, second) = self.tail.split_at(until_the_edge(self.to, self.tail.len()));
        file.write_all_at(first, self.to % CAP)?;
        file.write_all_at(second, 0)?;
        self.to += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    /// Takes at most `size` bytes of the beginning.
    pub(super) fn take(&mut self, piece: &mut Vec<u8>, size: usize) -> io::Result<()> {
        let left = self.to - self.from;
        let Some(file) = self.file.as_ref().filter(|_| left > 0) else {
            std::mem::swap(&mut self.tail, piece);
            self.tail.clear();
            return Ok(());
        };
        let size = usize::try_from(left).unwrap_or(size).min(size);
        piece.resize(until_the_edge(self.from, size), 0);
        file.read_exact_at(piece, self.from % CAP)?;
        self.from += piece.len() as u64;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            // the room is given back; where that fails it is written over
            let _ = file.set_len(0);
        }
        Ok(())
    }

    /// Drops all that waits; how many bytes that is.
    pub(super) fn forget(&mut self) -> u64 {
        let lost = self.len();
        *self = Self::new(&self.dir);
        lost
    }
}

/// How many of `size` bytes at `position` stand before the end of the ring.
fn until_the_edge(position: u64, size: usize) -> usize {
    usize::try_from(CAP - position % CAP).unwrap_or(size).min(size)
}

/// A file that only its owner may read, and that has no name any more.
fn create(dir: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".output-{}-{number}", std::process::id()));
    // one that was left by a process that died just here
    let _ = std::fs::remove_file(&path);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Files that this process has made.
static FILES: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_a_ring() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(dir.path());
        // as after a reader that was slow for long
        (spill.from, spill.to) = (CAP - 100_000, CAP - 100_000);
        let whole: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
        whole.chunks(1000).for_each(|text| spill.push(text).unwrap());
        assert_eq!(spill.len(), 300_000);
        let (mut read, mut piece) = (Vec::new(), Vec::new());
        while spill.len() > 0 {
            spill.take(&mut piece, 70_000).unwrap();
            read.append(&mut piece);
        }
        assert!(read == whole);
    }

    #[test]
    fn more_than_the_cap_is_refused_and_room_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(dir.path());
        (spill.from, spill.to) = (5, 5 + CAP - 10);
        assert!(spill.push(b"eleven byte").unwrap_err().to_string().contains("1.0 G wait already"));
        spill.push(b"ten bytes.").unwrap();
        spill.from += 100;
        spill.push(b"eleven byte").unwrap();
    }
}
