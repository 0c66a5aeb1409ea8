//! The alphabet of blocks: LEB128 varints, zig-zag differences, raw floats, strings by reference.

use std::collections::HashMap;

use super::super::format::MAX_RECORD;

/// A block that is not what its writer could have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed block: {0}")]
pub(in crate::record) struct Malformed(pub(super) &'static str);

/// Builds a block.
#[derive(Default)]
pub(super) struct Enc {
    out: Vec<u8>,
}

impl Enc {
    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(super) fn uint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// `value` as its difference to `base`; every pair of numbers comes back, whatever their distance.
    pub(super) fn delta(&mut self, value: u64, base: u64) {
        let diff = value.wrapping_sub(base) as i64;
        self.uint(((diff << 1) ^ (diff >> 63)) as u64);
    }

    pub(super) fn float32(&mut self, value: f32) {
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    pub(super) fn float64(&mut self, value: f64) {
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.uint(text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.out.extend_from_slice(&other.out);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// Takes a block apart.
pub(super) struct Dec<'a> {
    rest: &'a [u8],
}

impl<'a> Dec<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// So many bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Malformed("ends early"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed("ends early"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn uint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed("number over 64 bits"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("number over 64 bits"))
    }

    pub(super) fn uint32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.uint()?).map_err(|_| Malformed("number over 32 bits"))
    }

    pub(super) fn delta(&mut self, base: u64) -> Result<u64, Malformed> {
        let coded = self.uint()?;
        let diff = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        Ok(base.wrapping_add(diff as u64))
    }

    pub(super) fn delta32(&mut self, base: u32) -> Result<u32, Malformed> {
        u32::try_from(self.delta(u64::from(base))?).map_err(|_| Malformed("number over 32 bits"))
    }

    pub(super) fn float32(&mut self) -> Result<f32, Malformed> {
        Ok(f32::from_bits(u32::from_le_bytes(self.array()?)))
    }

    pub(super) fn float64(&mut self) -> Result<f64, Malformed> {
        Ok(f64::from_bits(u64::from_le_bytes(self.array()?)))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.count()?;
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed("text is not UTF-8"))
    }

    /// A number of things of at least one byte each: never more than there are bytes left.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.uint()?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.rest.len())
            .ok_or(Malformed("counts more than it holds"))
    }

    /// Whether all of it was read.
    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.at_end() { Ok(()) } else { Err(Malformed("goes on behind its end")) }
    }
}

/// Strings that are stored once and referred to by number.
#[derive(Default)]
pub(super) struct Strings<'a> {
    known: HashMap<&'a str, u64>,
    listed: Vec<&'a str>,
}

impl<'a> Strings<'a> {
    pub(super) fn number(&mut self, text: &'a str) -> u64 {
        *self.known.entry(text).or_insert_with(|| {
            self.listed.push(text);
            self.listed.len() as u64 - 1
        })
    }

    pub(super) fn write(&self, enc: &mut Enc) {
        enc.uint(self.listed.len() as u64);
        for text in &self.listed {
            enc.text(text);
        }
    }
}

/// The strings of a block, to be copied out by number. What a hostile block may have copied out is
/// bounded: it could refer to one long string from every row.
pub(super) struct Texts<'b> {
    listed: Vec<&'b str>,
    left: usize,
}

impl<'b> Texts<'b> {
    pub(super) fn read(dec: &mut Dec<'b>) -> Result<Self, Malformed> {
        let count = dec.count()?;
        let listed = (0..count).map(|_| dec.text()).collect::<Result<_, _>>()?;
        Ok(Self { listed, left: MAX_RECORD })
    }

    /// The string with this number.
    pub(super) fn get(&mut self, number: u64) -> Result<&'b str, Malformed> {
        let text = usize::try_from(number).ok().and_then(|number| self.listed.get(number)).copied();
        let text = text.ok_or(Malformed("refers to a text it does not hold"))?;
        self.left = self.left.checked_sub(text.len() + 32).ok_or(Malformed("repeats too much text"))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(pairs: Vec<(u64, u64)>, bits: u32) {
            let mut enc = Enc::default();
            for (value, base) in &pairs {
                enc.uint(*value);
                enc.delta(*value, *base);
            }
            enc.float32(f32::from_bits(bits));
            let bytes = enc.finish();
            let mut dec = Dec::new(&bytes);
            for (value, base) in &pairs {
                prop_assert_eq!(dec.uint().unwrap(), *value);
                prop_assert_eq!(dec.delta(*base).unwrap(), *value);
            }
            prop_assert_eq!(dec.float32().unwrap().to_bits(), bits);
            prop_assert!(dec.end().is_ok());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let mut dec = Dec::new(&bytes);
            while dec.text().is_ok() && dec.uint().is_ok() && dec.delta32(7).is_ok() {}
        }
    }

    #[test]
    fn eleven_bytes_are_no_number() {
        assert!(Dec::new(&[0xff; 11]).uint().is_err());
        assert!(Dec::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02]).uint().is_err());
        assert!(Dec::new(&[5, b'a']).text().is_err());
    }
}
