//! MCAP records as bytes (<https://mcap.dev/spec>): what [`super::repair`] writes around chunks that it copies as they are.
//! Numbers are little-endian; texts and lists have their length in bytes before them, in 32 bits.

use std::collections::BTreeMap;

/// Where the messages of one channel lie in a chunk: their times, and their places in it once decompressed.
pub(super) type MessagePlaces = Vec<(u64, u64)>;

/// A record in the making.
#[derive(Default)]
pub(super) struct Body(Vec<u8>);

impl Body {
    pub(super) fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn short(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn word(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        let mut body = self.word(length(value.len()));
        body.0.extend_from_slice(value);
        body
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    /// A number for each channel.
    pub(super) fn map(self, of: &BTreeMap<u16, u64>) -> Self {
        let body = self.word(length(of.len() * 10));
        of.iter().fold(body, |body, (channel, value)| body.short(*channel).long(*value))
    }

    /// A text for each text.
    pub(super) fn texts(self, of: &BTreeMap<String, String>) -> Self {
        let inner = of.iter().fold(Self::default(), |body, (key, value)| body.text(key).text(value));
        self.bytes(&inner.0)
    }

    /// The record's bytes without opcode and length.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// The whole record.
    pub(super) fn record(self, opcode: u8) -> Vec<u8> {
        record(opcode, &self.0)
    }
}

fn length(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// A whole record.
pub(super) fn record(opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(body.len() + 9);
    record.push(opcode);
    record.extend_from_slice(&(body.len() as u64).to_le_bytes());
    record.extend_from_slice(body);
    record
}

/// Takes a record's bytes apart.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.word()?;
        let (text, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

/// The records of channels and schemas, by their numbers: the first of each.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub(super) channels: BTreeMap<u16, Vec<u8>>,
    pub(super) schemas: BTreeMap<u16, Vec<u8>>,
}

impl Definitions {
    /// Takes the bytes of a channel's record; what names no number is left out.
    pub(super) fn take_channel(&mut self, body: &[u8]) {
        if let Some(id) = Fields(body).short() {
            self.channels.entry(id).or_insert_with(|| body.to_owned());
        }
    }

    /// The same of a schema's record.
    pub(super) fn take_schema(&mut self, body: &[u8]) {
        if let Some(id) = Fields(body).short() {
            self.schemas.entry(id).or_insert_with(|| body.to_owned());
        }
    }

    /// Takes in what `other` defines and this does not.
    pub(super) fn merge(&mut self, other: Self) {
        for (id, body) in other.channels {
            self.channels.entry(id).or_insert(body);
        }
        for (id, body) in other.schemas {
            self.schemas.entry(id).or_insert(body);
        }
    }
}

/// The number of the schema that a channel's record names; 0 for none.
pub(super) fn schema_of(channel: &[u8]) -> u16 {
    let mut fields = Fields(channel);
    fields.short().and_then(|_| fields.short()).unwrap_or(0)
}

/// What a chunk's record says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) uncompressed: u64,
    pub(super) compression: String,
    pub(super) compressed: u64,
}

impl ChunkHead {
    /// Reads it from the record's bytes without opcode and length.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (start, end, uncompressed) = (fields.long()?, fields.long()?, fields.long()?);
        let _crc = fields.word()?;
        let compression = fields.text()?.to_owned();
        Some(Self { start, end, uncompressed, compression, compressed: fields.long()? })
    }
}
