//! IDX, the format of the original: four big-endian bytes that say what it is, the length of each dimension in four
//! more, then a byte a value. Packed with gzip or not, whatever the file's name says.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::error::{self, MnistError};
use super::{Mnist, array};

/// What an IDX file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes in three dimensions.
    Images,
    /// Bytes in one.
    Labels,
}

/// The four files, images before labels, those to train on before those held out.
pub(super) fn read_files(paths: &[PathBuf; 4]) -> Result<Mnist, MnistError> {
    let read = |at: usize, kind| {
        let path = &paths[at];
        let file = error::open(path)?;
        let len = file.metadata().map_err(|source| MnistError::Open { path: path.clone(), source })?.len();
        read_idx(path, kind, len, BufReader::new(file))
    };
    let training = (read(0, Kind::Images)?, read(1, Kind::Labels)?);
    let held_out = (read(2, Kind::Images)?, read(3, Kind::Labels)?);
    let name = |at: usize| paths[at].display().to_string();
    Mnist::new(
        paths[0].parent().unwrap_or(&paths[0]),
        [training, held_out],
        [[name(0), name(1)], [name(2), name(3)]],
    )
}

/// The bytes of one file of `len` bytes.
pub fn read_idx(path: &Path, kind: Kind, len: u64, mut reader: impl Read) -> Result<Vec<u8>, MnistError> {
    let place = path.display().to_string();
    let mut head = [0; 2];
    fill(&place, &mut head, &mut reader)?;
    let reader = head.chain(reader);
    if head == [0x1f, 0x8b] {
        unpacked(&place, kind, len.saturating_mul(array::DEFLATE), &mut MultiGzDecoder::new(reader))
    } else {
        unpacked(&place, kind, len, &mut { reader })
    }
}

/// `len`: the most bytes that there can be.
fn unpacked(place: &str, kind: Kind, len: u64, reader: &mut impl Read) -> Result<Vec<u8>, MnistError> {
    let (dimensions, what) = match kind {
        Kind::Images => (3, "images"),
        Kind::Labels => (1, "labels"),
    };
    let mut magic = [0; 4];
    fill(place, &mut magic, reader)?;
    if magic != [0, 0, 8, dimensions] {
        let reason = format!(
            "begins with {:08x}; IDX {what} begin with {:08x}",
            u32::from_be_bytes(magic),
            u32::from_be_bytes([0, 0, 8, dimensions])
        );
        return Err(MnistError::damaged(place, reason));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let mut length = [0; 4];
        fill(place, &mut length, reader)?;
        shape.push(u64::from(u32::from_be_bytes(length)));
    }
    let room = len.saturating_sub(4 + 4 * u64::from(dimensions));
    match kind {
        Kind::Images => array::images(place, &shape, room, reader),
        Kind::Labels => array::labels(place, &shape, room, reader),
    }
}

fn fill(place: &str, bytes: &mut [u8], reader: &mut impl Read) -> Result<(), MnistError> {
    let fault = |error| MnistError::damaged(place, format!("its header can't be read: {error}"));
    reader.read_exact(bytes).map_err(fault)
}
