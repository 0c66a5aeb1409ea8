//! The files that a rank prints into, once their beginning may be gone: how much they hold, from where on,
//! and how their oldest bytes are given back to the file system.
//!
//! What is cut becomes a hole at the head of the file: no offset changes, and the writer that appends notices
//! nothing. The file itself says where the hole ends, so it need not be written down, and it stays true
//! whichever process has cut and died since. Must not know when to cut: see [`super::spool_trimmer`].

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::SuperviseError;
use super::rundir::RunDir;

/// What is cut ends at a multiple of this: of every usual block size.
pub const BLOCK: u64 = 64 << 10;
/// The file that [`can_cut`] tries it on.
const PROBE: &str = ".cut-probe";

/// The first byte at or behind `offset` that is there; `offset` itself at the end of the file, and where the
/// file system can't say.
///
/// Waits for a cut that goes on: bytes that were read before this call and lie behind its answer are those that
/// were printed, and no zeros.
pub fn kept_from(file: &File, offset: u64) -> io::Result<u64> {
    match seek(file.as_fd(), SeekFrom::Data(offset)) {
        Ok(data) => Ok(data),
        // no data up to the end: all there is was cut, or nothing is there
        Err(Errno::NXIO) => Ok(file.metadata()?.len().max(offset)),
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(offset),
        Err(error) => Err(error.into()),
    }
}

/// Gives the bytes before `to` back to the file system; they read as a hole from then on.
pub fn cut(file: &File, to: u64) -> io::Result<()> {
    Ok(fallocate(file.as_fd(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, to)?)
}

/// Reads as much from `at` on as there is room for; less at the end of the file alone.
pub(super) fn read_whole(file: &File, window: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = window.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Whether files in a run directory can be cut: tried on one, since some network file systems can't and some
/// file systems only seem to.
pub fn can_cut(dir: &RunDir) -> Result<bool, SuperviseError> {
    let file = dir.replace(PROBE)?;
    let tried = probe(&file);
    dir.remove(PROBE)?;
    tried.map_err(|e| SuperviseError::io("write", &dir.path().join(PROBE), e))
}

fn probe(mut file: &File) -> io::Result<bool> {
    let size = 2 * BLOCK;
    file.write_all(&vec![b'x'; size as usize])?;
    file.sync_data()?;
    let before = file.metadata()?.blocks();
    if cut(file, BLOCK).is_err() {
        return Ok(false);
    }
    let after = file.metadata()?;
    Ok(after.len() == size && after.blocks() < before && kept_from(file, 0)? == BLOCK)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_file_itself_says_from_where_on_it_is_kept() {
        let (_state, dir) = RunDir::of_test();
        if !can_cut(&dir).unwrap() {
            return;
        }
        assert!(!dir.has(PROBE));
        dir.append("f").unwrap().write_all(&vec![b'x'; 300_000]).unwrap();
        let file = dir.open_to_cut("f").unwrap().unwrap();
        assert_eq!(kept_from(&file, 0).unwrap(), 0);
        assert_eq!(kept_from(&file, 300_000).unwrap(), 300_000);
        assert_eq!(kept_from(&file, 999_999).unwrap(), 999_999, "behind the end nothing is missing");
        cut(&file, 2 * BLOCK).unwrap();
        assert_eq!(kept_from(&file, 5).unwrap(), 2 * BLOCK);
        assert_eq!(kept_from(&file, 2 * BLOCK + 1).unwrap(), 2 * BLOCK + 1);
        dir.append("f").unwrap().write_all(b"end").unwrap();
        let mut text = Vec::new();
        dir.read("f").unwrap().unwrap().read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), 300_003);
        assert!(text[2 * BLOCK as usize..300_000].iter().all(|byte| *byte == b'x'));
        assert!(text.ends_with(b"end"));
    }

    #[test]
    fn a_file_that_holds_nothing_has_lost_nothing() {
        let (_state, dir) = RunDir::of_test();
        drop(dir.append("f").unwrap());
        let file = dir.open_to_cut("f").unwrap().unwrap();
        assert_eq!(kept_from(&file, 0).unwrap(), 0);
        assert!(dir.open_to_cut("g").unwrap().is_none());
    }
}
