//! TensorBoard's event file taken apart: `TFRecord`s of `Event` messages (`tensorflow/core/util/event.proto`), of which the scalars are
//! kept: `simple_value`, and the tensors of one number that TensorFlow 2 writes for them.
//!
//! A record is believed if its checksums are right. One whose data is wrong is passed over; behind a length that is wrong nothing
//! can be found. Memory is bounded by the largest record that is taken.

use std::io::{self, Read};

use super::super::tfrecord::masked_crc;
use super::scanner::End;

/// The largest record that is taken; images are larger, and no scalars.
const MOST_RECORD: u64 = 1 << 20;
/// Numbers of an event that are taken.
const MOST_VALUES: usize = 1 << 12;
/// The longest tag that is taken, bytes.
const MOST_TAG: usize = 1 << 10;
/// What the first record of an event file says.
const VERSION: &[u8] = b"brain.Event:";

/// An event with numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scalars {
    /// Seconds since the Unix epoch.
    pub(super) wall: f64,
    /// The step.
    pub(super) step: u64,
    /// Numbers by their tags.
    pub(super) values: Vec<(String, f64)>,
    /// How many values of it are no scalars.
    pub(super) others: u64,
}

/// The records of an event file.
pub(super) struct Records<R> {
    from: R,
    /// Bytes of whole records that were read.
    pub(super) bytes: u64,
    /// Records that can't be read.
    pub(super) unread: u64,
    /// How it ended, once it has.
    pub(super) end: Option<End>,
}

impl<R: Read> Records<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, bytes: 0, unread: 0, end: None }
    }

    /// The next record's data; empty where it is left out.
    fn record(&mut self) -> Option<Vec<u8>> {
        if self.end.is_some() {
            return None;
        }
        let (data, length, end) = match take(&mut self.from) {
            Ok(Taken::Data(data)) => {
                let length = data.len() as u64;
                (data, length, None)
            }
            Ok(Taken::Wrong(length)) => {
                self.unread += 1;
                (Vec::new(), length, None)
            }
            Ok(Taken::End) => (Vec::new(), 0, Some(End::Whole)),
            Ok(Taken::Lost) => {
                let why = "the checksum of a record's length is wrong".to_owned();
                (Vec::new(), 0, Some(End::Unreadable(self.bytes, why)))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                (Vec::new(), 0, Some(End::Cut(self.bytes)))
            }
            Err(error) => (Vec::new(), 0, Some(End::Unreadable(self.bytes, error.to_string()))),
        };
        if end.is_some() {
            self.end = end;
            return None;
        }
        self.bytes += length + 16;
        Some(data)
    }

    /// Whether this is an event file, by its first record.
    pub(super) fn is_events(&mut self) -> bool {
        let record = self.record().unwrap_or_default();
        Fields(&record)
            .map_while(Result::ok)
            .any(|field| matches!(field, (3, Value::Bytes(text)) if text.starts_with(VERSION)))
    }

    /// The next event that has values.
    pub(super) fn next(&mut self) -> Option<Scalars> {
        loop {
            let record = self.record()?;
            match scalars(&record) {
                Err(Malformed) => self.unread += 1,
                Ok(event) if event.values.is_empty() && event.others == 0 => {}
                Ok(event) => return Some(event),
            }
        }
    }
}

enum Taken {
    Data(Vec<u8>),
    /// It is so long, and wrong or too large.
    Wrong(u64),
    End,
    /// Where the next one begins can't be told.
    Lost,
}

fn take(from: &mut impl Read) -> io::Result<Taken> {
    let mut head = [0; 12];
    let first = loop {
        match from.read(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(Taken::End);
    }
    from.read_exact(&mut head[first..])?;
    let (length, crc) = head.split_at(8);
    if masked_crc(length).to_le_bytes() != crc {
        return Ok(Taken::Lost);
    }
    let length = length.iter().rev().fold(0, |all, byte| (all << 8) | u64::from(*byte));
    if length > MOST_RECORD {
        let whole = length.saturating_add(4);
        if io::copy(&mut from.take(whole), &mut io::sink())? < whole {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        return Ok(Taken::Wrong(length));
    }
    let mut data = Vec::new();
    // no more is taken than is there, whatever the length says
    from.take(length).read_to_end(&mut data)?;
    let mut crc = [0; 4];
    from.read_exact(&mut crc)?;
    Ok(if masked_crc(&data).to_le_bytes() == crc { Taken::Data(data) } else { Taken::Wrong(length) })
}

/// What a message's field holds.
enum Value<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

/// What is no message.
struct Malformed;

/// The fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field().ok_or(Malformed))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.bytes(8)?.try_into().ok()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.bytes(length)?)
            }
            5 => Value::Fixed32(self.bytes(4)?.try_into().ok()?),
            _ => return None,
        };
        Some((key >> 3, value))
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes(1)?.first()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// The numbers of an event.
fn scalars(event: &[u8]) -> Result<Scalars, Malformed> {
    let mut found = Scalars { wall: 0.0, step: 0, values: Vec::new(), others: 0 };
    for field in Fields(event) {
        match field? {
            (1, Value::Fixed64(wall)) => found.wall = f64::from_le_bytes(wall),
            (2, Value::Varint(step)) => found.step = step,
            (5, Value::Bytes(summary)) => {
                for value in Fields(summary) {
                    if let (1, Value::Bytes(value)) = value? {
                        match scalar(value)? {
                            Some(value) if found.values.len() < MOST_VALUES => found.values.push(value),
                            _ => found.others += 1,
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// A tag and its number, if this value is a scalar.
fn scalar(value: &[u8]) -> Result<Option<(String, f64)>, Malformed> {
    let (mut tag, mut number, mut plugin) = (String::new(), None, &b""[..]);
    for field in Fields(value) {
        match field? {
            (1, Value::Bytes(text)) => tag = String::from_utf8_lossy(text).into_owned(),
            (2, Value::Fixed32(simple)) => number = Some(f64::from(f32::from_le_bytes(simple))),
            (8, Value::Bytes(tensor)) => number = one_number(tensor)?,
            (9, Value::Bytes(metadata)) => plugin = inner(inner(metadata)?)?,
            _ => {}
        }
    }
    let is_scalar = (plugin.is_empty() || plugin == b"scalars") && (1..=MOST_TAG).contains(&tag.len());
    Ok(number.filter(|_| is_scalar).map(|number| (tag, number)))
}

/// The text or message that is a message's first field.
fn inner(message: &[u8]) -> Result<&[u8], Malformed> {
    for field in Fields(message) {
        if let (1, Value::Bytes(bytes)) = field? {
            return Ok(bytes);
        }
    }
    Ok(&[])
}

/// The number of a tensor that holds one.
fn one_number(tensor: &[u8]) -> Result<Option<f64>, Malformed> {
    let (mut dtype, mut number) = (0, None);
    for field in Fields(tensor) {
        match field? {
            (1, Value::Varint(kind)) => dtype = kind,
            (5, Value::Fixed32(bytes)) => number = Some(f64::from(f32::from_le_bytes(bytes))),
            (6, Value::Fixed64(bytes)) => number = Some(f64::from_le_bytes(bytes)),
            // packed, or as they lie in memory; the kind stands before them
            (5 | 4, Value::Bytes(bytes)) if dtype == 1 => {
                number = bytes.try_into().ok().map(|bytes| f64::from(f32::from_le_bytes(bytes)));
            }
            (6 | 4, Value::Bytes(bytes)) if dtype == 2 => {
                number = bytes.try_into().ok().map(f64::from_le_bytes);
            }
            _ => {}
        }
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u64).to_le_bytes();
        let crc = |data| masked_crc(data).to_le_bytes();
        [&length[..], &crc(&length), data, &crc(data)].concat()
    }

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        // a varint may be longer than it must be
        [&[(number << 3) | 2, (length & 0x7f) as u8 | 0x80, (length >> 7) as u8], content].concat()
    }

    fn event(step: u8, values: &[Vec<u8>]) -> Vec<u8> {
        let values = values.iter().flat_map(|value| field(1, value)).collect::<Vec<_>>();
        let wall = 1.5_f64.to_le_bytes();
        [&[9][..], &wall, &[16, step], &field(5, &values)].concat()
    }

    fn simple(tag: &str, number: f32) -> Vec<u8> {
        [field(1, tag.as_bytes()), vec![21], number.to_le_bytes().to_vec()].concat()
    }

    fn tensor(tag: &str, plugin: &str, tensor: &[u8]) -> Vec<u8> {
        let metadata = field(9, &field(1, &field(1, plugin.as_bytes())));
        [field(1, tag.as_bytes()), metadata, field(8, tensor)].concat()
    }

    fn all(file: &[u8]) -> (Vec<Scalars>, u64, End) {
        let mut records = Records::new(file);
        let events = std::iter::from_fn(|| records.next()).collect();
        (events, records.unread, records.end.unwrap())
    }

    fn version() -> Vec<u8> {
        record(&[&[9][..], &[0; 8], &field(3, b"brain.Event:2")].concat())
    }

    #[test]
    fn both_forms_of_a_scalar_are_read_and_nothing_else_is_one() {
        let float = [&[8, 1][..], &field(4, &0.25_f32.to_le_bytes())].concat();
        let packed = [&[8, 1][..], &field(5, &0.5_f32.to_le_bytes())].concat();
        let alone = [&[8, 1, 45][..], &2.5_f32.to_le_bytes()].concat();
        let double = [&[8, 2][..], &field(6, &0.1_f64.to_le_bytes())].concat();
        let two = [&[8, 1][..], &field(4, &[0; 8])].concat();
        let values = [
            simple("a", 1.5),
            tensor("b", "scalars", &float),
            tensor("c", "scalars", &packed),
            tensor("d", "", &alone),
            tensor("e", "scalars", &double),
            tensor("f", "scalars", &two),
            tensor("g", "histograms", &float),
            field(1, b"h"),
        ];
        let file = [version(), record(&event(7, &values))].concat();
        assert!(Records::new(&file[..]).is_events());
        let (events, unread, end) = all(&file);
        let read = |tag: &str, number| (tag.to_owned(), number);
        let values = vec![read("a", 1.5), read("b", 0.25), read("c", 0.5), read("d", 2.5), read("e", 0.1)];
        assert_eq!(events, [Scalars { wall: 1.5, step: 7, values, others: 3 }]);
        assert_eq!((unread, end), (0, End::Whole));
    }

    #[test]
    fn what_is_cut_or_wrong_takes_nothing_else_with_it() {
        let one = record(&event(1, &[simple("a", 1.0)]));
        let steps = |file: &[u8]| {
            let (events, unread, end) = all(file);
            (events.iter().map(|event| event.step).collect::<Vec<_>>(), unread, end)
        };
        let other = record(&event(2, &[simple("a", 1.0)]));
        let file = [version(), one.clone(), other].concat();
        let (head, length) = (version().len(), one.len());
        for cut in 1..length {
            let at = (head + length) as u64;
            assert_eq!(steps(&file[..head + length + cut]), (vec![1], 0, End::Cut(at)), "{cut}");
        }
        let mut wrong = file.clone();
        wrong[head + 20] ^= 1;
        assert_eq!(steps(&wrong), (vec![2], 1, End::Whole));
        let mut lost = file.clone();
        lost[head + 1] ^= 1;
        assert!(
            matches!(steps(&lost), (read, 0, End::Unreadable(at, _)) if read.is_empty() && at == head as u64)
        );
        // a message that says it is longer than it is; a length that is impossible
        let broken = [version(), record(&[42, 200, 1]), one].concat();
        assert_eq!(steps(&broken), (vec![1], 1, End::Whole));
        let length = u64::MAX.to_le_bytes();
        let endless = [&version()[..], &length, &masked_crc(&length).to_le_bytes(), &[0; 99]].concat();
        assert_eq!(steps(&endless), (vec![], 0, End::Cut(head as u64)));
        assert!(!Records::new(&b"[{\"ph\": 1}]       "[..]).is_events());
        assert!(!Records::new(&record(b"data")[..]).is_events(), "a file of training data");
    }
}
