//! `NumPy`'s format of one array: a magic number, a version, and a Python dictionary as text that says type and shape.

use std::io::Read;

use super::array;
use super::error::MnistError;
use super::idx::Kind;
use crate::domain::text::sanitize;

/// The longest header that is read; `NumPy`'s own limit is 10,000.
const LONGEST: u32 = 1 << 16;

/// The bytes of an array of `len` bytes with its header. `place` says where it is.
pub fn read_npy(place: &str, kind: Kind, len: u64, reader: &mut impl Read) -> Result<Vec<u8>, MnistError> {
    let (shape, header) = header(place, reader)?;
    let room = len.saturating_sub(header);
    match kind {
        Kind::Images => array::images(place, &shape, room, reader),
        Kind::Labels => array::labels(place, &shape, room, reader),
    }
}

/// Shape, and bytes of the header.
fn header(place: &str, reader: &mut impl Read) -> Result<(Vec<u64>, u64), MnistError> {
    let damaged = |reason: String| MnistError::damaged(place, reason);
    let fill = |bytes: &mut [u8], reader: &mut dyn Read| {
        reader.read_exact(bytes).map_err(|error| damaged(format!("its header can't be read: {error}")))
    };
    let mut head = [0; 8];
    fill(&mut head, reader)?;
    if head[..6] != *b"\x93NUMPY" {
        return Err(damaged("does not begin as an .npy array does".to_owned()));
    }
    let mut length = [0; 4];
    let before = match head[6] {
        1 => fill(&mut length[..2], reader).map(|()| 10)?,
        2 | 3 => fill(&mut length, reader).map(|()| 12)?,
        other => return Err(damaged(format!("is .npy of version {other}; 1 to 3 are read"))),
    };
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(damaged(format!("its header says that it is {length} bytes long")));
    }
    let mut text = vec![0; length as usize];
    fill(&mut text, reader)?;
    let shape = shape(&String::from_utf8_lossy(&text)).map_err(damaged)?;
    Ok((shape, before + u64::from(length)))
}

/// The shape of `{'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }`.
fn shape(header: &str) -> Result<Vec<u64>, String> {
    let value = |key: &str| value(header, key).ok_or_else(|| format!("its header has no {key}"));
    let kind = value("descr")?;
    if !["|u1", "u1", "<u1", ">u1", "=u1", "B"].iter().any(|name| is_text(kind, name)) {
        let cut: String = kind.chars().take_while(|c| *c != ',').take(20).collect();
        return Err(format!("its type is {}; bytes ('|u1') are read", sanitize(cut.trim())));
    }
    if !value("fortran_order")?.starts_with("False") {
        return Err("is not in C order".to_owned());
    }
    let tuple = value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (inside, _) = tuple.ok_or("its shape is no tuple")?;
    let inside = inside.trim().strip_suffix(',').unwrap_or(inside);
    let numbers: Result<Vec<u64>, _> = inside.split(',').map(|number| number.trim().parse()).collect();
    numbers.map_err(|_| "its shape is not made of numbers".to_owned())
}

/// What stands behind a key of the dictionary.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let quoted = ["'", "\""].map(|quote| format!("{quote}{key}{quote}"));
    let (_, rest) = quoted.iter().find_map(|key| header.split_once(key.as_str()))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

/// Whether a Python string of this text comes first.
fn is_text(value: &str, text: &str) -> bool {
    let mut chars = value.chars();
    let quote = chars.next();
    matches!(quote, Some('\'' | '"'))
        && chars.as_str().strip_prefix(text).is_some_and(|rest| rest.chars().next() == quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_as_numpy_and_others_write_them() {
        for (text, numbers) in [
            (
                "{'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }   \n",
                vec![60000, 28, 28],
            ),
            ("{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }", vec![5]),
            ("{\"shape\":(5, ),\"fortran_order\":False,\"descr\":\"<u1\"}", vec![5]),
        ] {
            assert_eq!(shape(text), Ok(numbers), "{text}");
        }
        for (text, part) in [
            ("", "no descr"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (5,)}", "type is '<f8'"),
            ("{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (5,)}", "type is [('a'"),
            ("{'descr': '|u1', 'fortran_order': True, 'shape': (5,)}", "C order"),
            ("{'descr': '|u1', 'fortran_order': False}", "no shape"),
            ("{'descr': '|u1', 'fortran_order': False, 'shape': 5}", "no tuple"),
            ("{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "numbers"),
            ("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}", "numbers"),
            ("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}", "numbers"),
        ] {
            let error = shape(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
