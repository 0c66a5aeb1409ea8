//! An array's bytes, once its header is known: as many as its shape says, no more and no fewer, and none before it
//! is sure that the file can hold them.

use std::io::Read;

use super::error::MnistError;
use super::{PIXELS, SIDE};

/// Images or labels that are read at most: a rank holds all of them in memory, 784 bytes each.
const MOST: u64 = 1 << 17;
/// The most bytes that one byte of deflated data can become.
pub(super) const DEFLATE: u64 = 1032;

/// Images of a shape `[count, 28, 28]`. `room`: the most bytes that the file can hold from here on.
pub(super) fn images(
    place: &str,
    shape: &[u64],
    room: u64,
    reader: &mut impl Read,
) -> Result<Vec<u8>, MnistError> {
    let side = SIDE as u64;
    match shape {
        [count, rows, columns] if [*rows, *columns] == [side, side] => {
            bytes(place, *count, PIXELS, room, reader)
        }
        _ => {
            Err(MnistError::damaged(place, format!("its shape is {}; it must be [.., 28, 28]", shown(shape))))
        }
    }
}

/// Labels of a shape `[count]`, 0 to 9.
pub(super) fn labels(
    place: &str,
    shape: &[u64],
    room: u64,
    reader: &mut impl Read,
) -> Result<Vec<u8>, MnistError> {
    let [count] = shape else {
        return Err(MnistError::damaged(place, format!("its shape is {}; it must be [..]", shown(shape))));
    };
    let labels = bytes(place, *count, 1, room, reader)?;
    match labels.iter().position(|label| *label > 9) {
        None => Ok(labels),
        Some(at) => {
            let reason = format!("label {at} (from 0) is {}; the classes are 0 to 9", labels[at]);
            Err(MnistError::damaged(place, reason))
        }
    }
}

fn shown(shape: &[u64]) -> String {
    let some: Vec<_> = shape.iter().take(4).map(u64::to_string).collect();
    format!("[{}{}]", some.join(", "), if shape.len() > 4 { ", .." } else { "" })
}

/// `count` items of `size` bytes, which must be all that is left.
fn bytes(
    place: &str,
    count: u64,
    size: usize,
    room: u64,
    reader: &mut impl Read,
) -> Result<Vec<u8>, MnistError> {
    let damaged = |reason: String| MnistError::damaged(place, reason);
    let what = if size == 1 { "labels" } else { "images" };
    if count == 0 {
        return Err(damaged(format!("has no {what}")));
    }
    if count > MOST {
        return Err(damaged(format!("its header says {count} {what}; at most {MOST} are read")));
    }
    let size = count * size as u64;
    if size > room {
        return Err(damaged(format!(
            "its header says {count} {what}, {size} bytes; at most {room} can be there"
        )));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    let read = reader.by_ref().take(size).read_to_end(&mut bytes);
    if let Err(error) = read {
        return Err(damaged(format!("after {} of {size} bytes: {error}", bytes.len())));
    }
    if (bytes.len() as u64) < size {
        return Err(damaged(format!("ends after {} of {size} bytes of {what}", bytes.len())));
    }
    // Checksums are compared where the data end: they must be read to there.
    match reader.take(1).read_to_end(&mut Vec::new()) {
        Ok(0) => Ok(bytes),
        Ok(_) => Err(damaged(format!("goes on behind the {size} bytes that its header says"))),
        Err(error) => Err(damaged(format!("behind its {size} bytes: {error}"))),
    }
}
