//! Writes a closed copy of a file that was not closed, was cut or is damaged: its good chunks as they are, byte for byte, and
//! around them what other MCAP readers look for. A file that was whole comes out as its writer made it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Crc;
use mcap::MAGIC;
use mcap::records::op;

use super::chunk::{self, Outline, RECORD_HEAD};
use super::error::Error;
use super::format::PROFILE;
use super::raw::{self, Body, ChunkHead, Definitions, schema_of};
use super::schema;

/// What of a file goes into its copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// How long magic and header are; 0 where the header is damaged and made anew.
    pub(super) head: usize,
    /// Where the metadata record is, and how long.
    pub(super) metadata: Option<(u64, usize)>,
    /// Its good chunks: where, and how long.
    pub(super) chunks: Vec<(u64, usize)>,
}

/// Writes the copy. `read` gives bytes of the file: from where, and how many.
///
/// # Errors
/// What `read` and `to` say; [`Error::Write`] too where a chunk is no longer what it was.
pub(super) fn copy<W: Write>(
    plan: &Plan,
    read: impl Fn(u64, usize) -> io::Result<Vec<u8>>,
    to: W,
) -> Result<W, Error> {
    let mut known = Definitions::default();
    for (at, length) in &plan.chunks {
        known.merge(chunk::outline(&read(*at, *length).map_err(Error::Write)?).map_err(changed)?.defined);
    }
    let mut copy = Copy::new(to, known);
    if plan.head == 0 {
        copy.put(MAGIC)?;
        let library = concat!("hvtui ", env!("CARGO_PKG_VERSION"));
        copy.put(&Body::default().text(PROFILE).text(library).record(op::HEADER))?;
    } else {
        copy.put(&read(0, plan.head).map_err(Error::Write)?)?;
    }
    if let Some((at, length)) = plan.metadata {
        copy.metadata = Some((copy.at, length as u64));
        copy.put(&read(at, length).map_err(Error::Write)?)?;
    }
    for (at, length) in &plan.chunks {
        let record = read(*at, *length).map_err(Error::Write)?;
        copy.chunk(&record)?;
    }
    copy.finish()
}

fn changed(reason: impl std::fmt::Display) -> Error {
    Error::Write(io::Error::other(format!("the file changes while it is read: {reason}")))
}

/// The copy in the making.
struct Copy<W> {
    to: W,
    at: u64,
    crc: Crc,
    /// What is defined anywhere in the file.
    known: Definitions,
    /// What is defined in the copy so far.
    written: Definitions,
    metadata: Option<(u64, u64)>,
    chunks: Vec<ChunkIndex>,
    /// Messages of each channel.
    messages: BTreeMap<u16, u64>,
    /// The earliest and the latest time of a message.
    span: Option<(u64, u64)>,
}

/// What the summary says of a chunk.
struct ChunkIndex {
    head: ChunkHead,
    at: u64,
    length: u64,
    /// Where the message index of each channel lies.
    indexes: BTreeMap<u16, u64>,
    indexes_length: u64,
}

impl<W: Write> Copy<W> {
    fn new(to: W, known: Definitions) -> Self {
        Self {
            to,
            at: 0,
            crc: Crc::new(),
            known,
            written: Definitions::default(),
            metadata: None,
            chunks: Vec::new(),
            messages: BTreeMap::new(),
            span: None,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.to.write_all(bytes).map_err(Error::Write)?;
        self.crc.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn chunk(&mut self, record: &[u8]) -> Result<(), Error> {
        let outline = chunk::outline(record).map_err(changed)?;
        let head = record.get(RECORD_HEAD..).and_then(ChunkHead::read);
        let head = head.ok_or_else(|| changed("a chunk ends early"))?;
        self.define_lost(&outline)?;
        self.written.merge(outline.defined);
        let at = self.at;
        self.put(record)?;
        let indexes_at = self.at;
        let mut indexes = BTreeMap::new();
        for (channel, places) in &outline.messages {
            indexes.insert(*channel, self.at);
            let mut entries = Vec::with_capacity(places.len() * 16);
            for (time, place) in places {
                entries.extend_from_slice(&time.to_le_bytes());
                entries.extend_from_slice(&place.to_le_bytes());
                let (first, last) = self.span.get_or_insert((*time, *time));
                (*first, *last) = ((*first).min(*time), (*last).max(*time));
            }
            self.put(&Body::default().short(*channel).bytes(&entries).record(op::MESSAGE_INDEX))?;
            *self.messages.entry(*channel).or_default() += places.len() as u64;
        }
        let (length, indexes_length) = (record.len() as u64, self.at - indexes_at);
        self.chunks.push(ChunkIndex { head, at, length, indexes, indexes_length });
        Ok(())
    }

    /// Writes the records of channels and schemas that a chunk uses and that went with the chunk that had them.
    fn define_lost(&mut self, outline: &Outline) -> Result<(), Error> {
        let here = &outline.defined;
        let is_lost = |id: &&u16| !self.written.channels.contains_key(id) && !here.channels.contains_key(id);
        let lost: Vec<u16> = outline.messages.keys().filter(is_lost).copied().collect();
        let lost: Vec<(u16, Vec<u8>)> = lost
            .into_iter()
            .map(|id| (id, self.known.channels.get(&id).cloned().unwrap_or_else(|| schema::lost_channel(id))))
            .collect();
        for (_, body) in &lost {
            self.define_schema(schema_of(body))?;
        }
        for channel in here.channels.values() {
            let schema = schema_of(channel);
            if !here.schemas.contains_key(&schema) {
                self.define_schema(schema)?;
            }
        }
        for (id, body) in lost {
            self.put(&raw::record(op::CHANNEL, &body))?;
            self.written.channels.insert(id, body);
        }
        Ok(())
    }

    fn define_schema(&mut self, id: u16) -> Result<(), Error> {
        if id == 0 || self.written.schemas.contains_key(&id) {
            return Ok(());
        }
        let body = self.known.schemas.get(&id).cloned().unwrap_or_else(|| schema::lost_schema(id));
        self.put(&raw::record(op::SCHEMA, &body))?;
        self.written.schemas.insert(id, body);
        Ok(())
    }

    /// Ends the data, and writes the summary and the end of the file.
    fn finish(mut self) -> Result<W, Error> {
        let crc = self.crc.sum();
        self.put(&Body::default().word(crc).record(op::DATA_END))?;
        let start = self.at;
        self.crc.reset();
        let mut offsets = Vec::new();
        let written = std::mem::take(&mut self.written);
        let of = |opcode: u8, bodies: BTreeMap<u16, Vec<u8>>| -> Vec<Vec<u8>> {
            bodies.into_values().map(|body| raw::record(opcode, &body)).collect()
        };
        let statistics = self.statistics(&written);
        let chunks = self.chunks.iter().map(ChunkIndex::record).collect();
        let metadata = self.metadata.iter().map(|(at, length)| {
            Body::default().long(*at).long(*length).text(PROFILE).record(op::METADATA_INDEX)
        });
        let metadata = metadata.collect();
        let groups: [(u8, Vec<Vec<u8>>); 5] = [
            (op::SCHEMA, of(op::SCHEMA, written.schemas)),
            (op::CHANNEL, of(op::CHANNEL, written.channels)),
            (op::STATISTICS, vec![statistics]),
            (op::CHUNK_INDEX, chunks),
            (op::METADATA_INDEX, metadata),
        ];
        for (opcode, records) in groups {
            let from = self.at;
            for record in &records {
                self.put(record)?;
            }
            if !records.is_empty() {
                let offset = Body::default().byte(opcode).long(from).long(self.at - from);
                offsets.push(offset.record(op::SUMMARY_OFFSET));
            }
        }
        let offsets_at = self.at;
        for offset in offsets {
            self.put(&offset)?;
        }
        // the CRC of the summary takes in the footer up to itself
        let footer = Body::default().long(start).long(offsets_at).word(0).record(op::FOOTER);
        self.put(&footer[..footer.len() - 4])?;
        let crc = self.crc.sum();
        self.put(&crc.to_le_bytes())?;
        self.put(MAGIC)?;
        Ok(self.to)
    }

    fn statistics(&self, written: &Definitions) -> Vec<u8> {
        let (first, last) = self.span.unwrap_or_default();
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        Body::default()
            .long(self.messages.values().sum())
            .short(u16::try_from(written.schemas.len()).unwrap_or(u16::MAX))
            .word(count(written.channels.len()))
            .word(0)
            .word(u32::from(self.metadata.is_some()))
            .word(count(self.chunks.len()))
            .long(first)
            .long(last)
            .map(&self.messages)
            .record(op::STATISTICS)
    }
}

impl ChunkIndex {
    fn record(&self) -> Vec<u8> {
        Body::default()
            .long(self.head.start)
            .long(self.head.end)
            .long(self.at)
            .long(self.length)
            .map(&self.indexes)
            .long(self.indexes_length)
            .text(&self.head.compression)
            .long(self.head.compressed)
            .long(self.head.uncompressed)
            .record(op::CHUNK_INDEX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::ids::{HostId, Rank, RunId};
    use crate::domain::log::{LogLine, Stream};
    use crate::domain::time::Stamp;
    use crate::record::Writer;

    /// A recording whose channels and schemas begin in different chunks.
    fn recorded(chunks: u64) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for seq in 1..=chunks {
            let rank = Rank((seq / 3) as u32);
            let origin = Origin::Rank(RunId::new(1, 1), rank);
            let (stream, text) = (Stream::Stdout, format!("line {seq}"));
            let line = LogLine { rank, stream, offset: seq, text, elided: 0, t: None };
            let event = match seq % 3 {
                0 => Event::LogPrinted { line: Arc::new(line) },
                1 => Event::MetricReported { name: "loss".into(), value: 0.5, step: Some(seq) },
                _ => Event::Gap { what: "step".into(), dropped: seq },
            };
            let origin = if seq % 3 == 2 { Origin::Host(HostId::from("a")) } else { origin };
            writer.push(Envelope { seq, at: Stamp(seq as i64 * 1_000_000), origin, event }).unwrap();
        }
        writer.finish().unwrap().0
    }

    /// What a repair would copy of a whole file.
    fn plan(bytes: &[u8]) -> Plan {
        let mut plan = Plan::default();
        let mut at = MAGIC.len();
        while at + RECORD_HEAD < bytes.len() - MAGIC.len() {
            let length = u64::from_le_bytes(bytes[at + 1..at + RECORD_HEAD].try_into().unwrap());
            let length = RECORD_HEAD + length as usize;
            match bytes[at] {
                op::HEADER => plan.head = at + length,
                op::METADATA => plan.metadata = Some((at as u64, length)),
                op::CHUNK => plan.chunks.push((at as u64, length)),
                _ => {}
            }
            at += length;
        }
        plan
    }

    fn copied(plan: &Plan, bytes: &[u8]) -> Vec<u8> {
        copy(plan, |at, count| Ok(bytes[at as usize..at as usize + count].to_vec()), Vec::new()).unwrap()
    }

    /// How many messages a reader finds that knows nothing of hvtui, with the summary and without it.
    fn stock(bytes: &[u8]) -> (u64, usize) {
        let summary = mcap::Summary::read(bytes).unwrap().unwrap();
        let found = mcap::MessageStream::new(bytes).unwrap().map_while(Result::ok).count();
        for chunk in &summary.chunk_indexes {
            assert!(!summary.read_message_indexes(bytes, chunk).unwrap().is_empty());
        }
        (summary.stats.unwrap().message_count, found)
    }

    #[test]
    fn the_copy_of_a_whole_file_is_that_file() {
        for chunks in [0, 1, 2, 9] {
            let bytes = recorded(chunks);
            assert_eq!(plan(&bytes).chunks.len() as u64, chunks);
            assert!(copied(&plan(&bytes), &bytes) == bytes, "{chunks} chunks");
        }
    }

    proptest! {
        #[test]
        fn whichever_chunks_are_lost_other_readers_find_the_rest(lost in prop::collection::vec(any::<bool>(), 12)) {
            let bytes = recorded(12);
            let mut plan = plan(&bytes);
            let mut at = 0;
            plan.chunks.retain(|_| {
                at += 1;
                !lost[at - 1]
            });
            let copied = copied(&plan, &bytes);
            // a note and an event each
            let messages = 2 * plan.chunks.len();
            prop_assert_eq!(stock(&copied), (messages as u64, messages));
        }
    }

    #[test]
    fn a_full_disk_and_a_file_that_changes_are_told() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let bytes = recorded(6);
        let plan = plan(&bytes);
        let read = |at: u64, count: usize| Ok(bytes[at as usize..at as usize + count].to_vec());
        for room in [0, 50, 500, bytes.len() - 1] {
            let told = copy(&plan, read, Full(room)).err();
            assert!(
                matches!(&told, Some(Error::Write(error)) if error.kind() == io::ErrorKind::StorageFull),
                "{room}"
            );
        }
        assert!(copy(&plan, read, Full(bytes.len())).is_ok());
        let changed = |at: u64, count: usize| {
            let mut bytes: Vec<u8> = bytes[at as usize..at as usize + count].to_vec();
            bytes.iter_mut().skip(60).for_each(|byte| *byte ^= 1);
            Ok(bytes)
        };
        let told = copy(&plan, changed, Vec::new()).unwrap_err().to_string();
        assert!(told.contains("the file changes while it is read"), "{told}");
    }
}
