//! Takes one chunk record apart. Its CRC is checked over all of it before anything in it is believed;
//! what is larger than a writer makes is refused before memory is spent on it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use mcap::records::op;
use mcap::sans_io::{LinearReadEvent, LinearReader, LinearReaderOptions};

use super::block;
use super::block::gpu_numbers::{self, GpuNumbers};
use super::format::{Channel, ChunkNote, MAX_ENVELOPES, MAX_RECORD, Meta};
use super::log_json;
use super::raw::{Definitions, Fields, MessagePlaces};
use crate::domain::event::Envelope;
use crate::domain::json_size::Most;
use crate::domain::plausible;
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;

/// What may stand in a JSON message, whose bytes alone are bounded by [`MAX_RECORD`]. A writer makes lists of at most
/// 24 MiB, with eight bytes and more a value.
const MOST: Most = Most {
    depth: 128,
    values: 4 << 20,
    objects: 4 << 20,
    text: MAX_RECORD,
    elements: MAX_ENVELOPES,
    element_values: 1 << 20,
};

/// Why a chunk with more than [`MAX_ENVELOPES`] is refused.
const TOO_MANY: &str = "it holds more events than a writer puts there";

/// Opcode and length: what stands before every record.
pub(super) const RECORD_HEAD: usize = 9;

/// A chunk's envelopes.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// In order of their sequence numbers.
    pub(super) envelopes: Vec<Envelope>,
    /// How many events there are that this version has no name for.
    pub(super) unknown: u64,
    /// What belongs to the GPU samples among the envelopes.
    numbers: Vec<GpuNumbers>,
}

/// What stands at the head of a chunk: its note, and the run if it is told here.
pub(super) fn head(record: &[u8]) -> Result<(ChunkNote, Option<RunSpec>), String> {
    let mut note = None;
    let mut spec = None;
    messages(record, |channel, data| {
        match channel {
            Channel::Chunk => note = Some(parse_note(data)?),
            Channel::Meta => spec = Some(parse_meta(data)?),
            _ => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((note.ok_or("it has no note")?, spec))
}

fn parse_note(data: &[u8]) -> Result<ChunkNote, String> {
    MOST.check(data).map_err(|what| format!("its note has {what}"))?;
    let note: ChunkNote = serde_json::from_slice(data).map_err(|error| format!("its note: {error}"))?;
    if note.first_seq > note.last_seq || note.start > note.end || note.envelopes > MAX_ENVELOPES as u64 {
        return Err("its note contradicts itself".into());
    }
    Ok(note)
}

fn parse_meta(data: &[u8]) -> Result<RunSpec, String> {
    MOST.check(data).map_err(|what| format!("its run has {what}"))?;
    serde_json::from_slice::<Meta>(data).map(|meta| meta.spec).map_err(|error| format!("its run: {error}"))
}

/// The envelopes of the channels that `wants` picks.
pub(super) fn decode(record: &[u8], wants: impl Fn(Channel) -> bool) -> Result<Decoded, String> {
    decode_beside(record, wants, None)
}

/// The same; of each envelope of all other channels its number and its time go to `others`, where they are asked for.
pub(super) fn decode_beside(
    record: &[u8],
    wants: impl Fn(Channel) -> bool,
    mut others: Option<&mut Vec<(u64, Stamp)>>,
) -> Result<Decoded, String> {
    let mut decoded = Decoded::default();
    messages(record, |channel, data| {
        if wants(channel) {
            decoded.take(channel, data)?;
        } else if let Some(others) = &mut others {
            look_beside(channel, data, others)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    decoded.envelopes.sort_by_key(|envelope| envelope.seq);
    for numbers in std::mem::take(&mut decoded.numbers) {
        numbers.join(&mut decoded.envelopes);
    }
    // a recording is as much of a stranger as the host that it came from
    for envelope in &mut decoded.envelopes {
        plausible::bound_event(&mut envelope.event);
    }
    Ok(decoded)
}

/// Adds number and time of each envelope of a message. Of blocks the heads alone are read.
fn look_beside(channel: Channel, data: &[u8], others: &mut Vec<(u64, Stamp)>) -> Result<(), String> {
    match channel {
        // the samples that they belong to tell both
        Channel::GpuNumbers => {}
        Channel::Phase | Channel::Gpu | Channel::Metric => {
            others.extend(block::times(data).map_err(|error| error.to_string())?);
        }
        Channel::Chunk | Channel::Meta | Channel::Event | Channel::Clock | Channel::Log(_) => {
            let mut beside = Decoded::default();
            beside.take(channel, data)?;
            others.extend(beside.envelopes.iter().map(|envelope| (envelope.seq, envelope.at)));
        }
    }
    if others.len() > MAX_ENVELOPES { Err(TOO_MANY.to_owned()) } else { Ok(()) }
}

impl Decoded {
    fn take(&mut self, channel: Channel, data: &[u8]) -> Result<(), String> {
        let text = |error: block::Malformed| error.to_string();
        match channel {
            Channel::Chunk | Channel::Meta => {}
            Channel::Event | Channel::Clock => self.take_array(data)?,
            Channel::Phase => self.add(block::phase::decode(data).map_err(text)?),
            Channel::Gpu => self.add(block::telemetry::decode(data).map_err(text)?),
            Channel::Metric => self.add(block::metric::decode(data).map_err(text)?),
            Channel::GpuNumbers => self.numbers.push(gpu_numbers::decode(data).map_err(text)?),
            Channel::Log(_) => match log_json::decode(data) {
                Some(envelope) => self.envelopes.push(envelope),
                None => self.unknown += 1,
            },
        }
        if self.envelopes.len() > MAX_ENVELOPES {
            return Err(TOO_MANY.to_owned());
        }
        Ok(())
    }

    /// Adds those of a block. The first ones, which are most of a chunk, are not copied.
    fn add(&mut self, mut more: Vec<Envelope>) {
        if self.envelopes.is_empty() {
            self.envelopes = more;
        } else {
            // of many small ones not each moves all before it
            if more.len() > self.envelopes.len() / 8 {
                self.envelopes.reserve_exact(more.len());
            }
            self.envelopes.append(&mut more);
        }
    }

    fn take_array(&mut self, data: &[u8]) -> Result<(), String> {
        MOST.check(data).map_err(|what| format!("it holds more than a writer puts there: {what}"))?;
        if let Ok(mut all) = serde_json::from_slice::<Vec<Envelope>>(data) {
            self.envelopes.append(&mut all);
            return Ok(());
        }
        let each: Vec<serde_json::Value> = serde_json::from_slice(data).map_err(|error| error.to_string())?;
        for value in each {
            match serde_json::from_value(value) {
                Ok(envelope) => self.envelopes.push(envelope),
                Err(_) => self.unknown += 1,
            }
        }
        Ok(())
    }
}

/// What stands in a chunk beside the content of its messages.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// The channels and schemas that are defined in it.
    pub(super) defined: Definitions,
    /// Where the messages of each channel lie.
    pub(super) messages: BTreeMap<u16, MessagePlaces>,
}

/// Lists what stands in a chunk. Its CRC is checked before.
pub(super) fn outline(record: &[u8]) -> Result<Outline, String> {
    let mut outline = Outline::default();
    let mut at = 0_u64;
    records(record, |opcode, data| {
        match opcode {
            op::CHANNEL => outline.defined.take_channel(data),
            op::SCHEMA => outline.defined.take_schema(data),
            op::MESSAGE => {
                let mut fields = Fields(data);
                let told = (fields.short(), fields.word(), fields.long());
                let (Some(channel), Some(_), Some(time)) = told else {
                    return Err("a message is shorter than its head".to_owned());
                };
                outline.messages.entry(channel).or_default().push((time, at));
            }
            _ => {}
        }
        at += (RECORD_HEAD + data.len()) as u64;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(outline)
}

/// Calls `each` with the messages of a chunk in the order in which they were written.
fn messages(
    record: &[u8],
    mut each: impl FnMut(Channel, &[u8]) -> Result<ControlFlow<()>, String>,
) -> Result<(), String> {
    records(record, |opcode, data| {
        match opcode {
            op::CHANNEL => check_channel(data)?,
            op::MESSAGE => {
                let (id, data) = split_message(data).ok_or("a message is shorter than its head")?;
                if let Some(channel) = Channel::from_id(id) {
                    return each(channel, data);
                }
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Calls `each` with opcode and bytes of the records in a chunk.
fn records(
    record: &[u8],
    mut each: impl FnMut(u8, &[u8]) -> Result<ControlFlow<()>, String>,
) -> Result<(), String> {
    let mut reader = LinearReader::new_with_options(
        LinearReaderOptions::default()
            .with_skip_start_magic(true)
            .with_skip_end_magic(true)
            .with_prevalidate_chunk_crcs(true)
            .with_record_length_limit(MAX_RECORD),
    );
    let mut rest = record;
    while let Some(event) = reader.next_event() {
        match event.map_err(|error| error.to_string())? {
            LinearReadEvent::ReadRequest(wanted) => {
                let (now, later) = rest.split_at(wanted.min(rest.len()));
                reader.insert(now.len()).copy_from_slice(now);
                reader.notify_read(now.len());
                rest = later;
            }
            LinearReadEvent::Record { opcode, data } => {
                if each(opcode, data)?.is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Channel number and payload of a message record: channel u16, sequence u32, two times of u64, payload.
fn split_message(data: &[u8]) -> Option<(u16, &[u8])> {
    let (id, rest) = data.split_first_chunk::<2>()?;
    Some((u16::from_le_bytes(*id), rest.get(20..)?))
}

/// Refuses a file in which another program gave our numbers to other channels.
fn check_channel(data: &[u8]) -> Result<(), String> {
    let named = || {
        let (id, rest) = data.split_first_chunk::<2>()?;
        let (_schema, rest) = rest.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let topic = rest.get(..u32::from_le_bytes(*length) as usize)?;
        Some((u16::from_le_bytes(*id), topic))
    };
    let (id, topic) = named().ok_or("a channel record is cut")?;
    match Channel::from_id(id) {
        Some(channel) if channel.topic().as_bytes() != topic => {
            Err("its channels were renumbered by another program".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{blank_sample, timing};
    use crate::domain::event::{Event, Origin};
    use crate::domain::ids::{HostId, Rank, RunId};

    /// Of two ranks and a host, at times in no order.
    fn told() -> Vec<Envelope> {
        let rank = |rank| Origin::Rank(RunId::new(1, 1), Rank(rank));
        let metric = |step| Event::MetricReported { name: "lr".to_owned(), value: f64::NAN, step };
        let step = |step| Event::StepDone { timing: Arc::new(timing(step, [1, 2, 3, 4, 5, 6])) };
        let told = [
            (70, rank(0), step(1)),
            (90, rank(1), step(1)),
            (-5, Origin::Host(HostId::from("a")), blank_sample()),
            (80, rank(1), metric(None)),
            (95, Origin::Run(RunId::new(1, 1)), Event::JobDone { weights: None }),
            (94, rank(0), step(2)),
            (99, Origin::Host(HostId::from("b")), blank_sample()),
            (97, rank(1), metric(Some(7))),
        ];
        let envelope = |(seq, (at, origin, event))| Envelope { seq, at: Stamp(at), origin, event };
        (3..).zip(told).map(envelope).collect()
    }

    #[test]
    fn blocks_that_are_not_wanted_tell_the_numbers_and_times_of_all_of_their_events() {
        let told = told();
        let blocks = [
            (Channel::Phase, block::phase::encode(&told)),
            (Channel::Gpu, block::telemetry::encode(&told)),
            (Channel::Metric, block::metric::encode(&told)),
        ];
        for (channel, data) in blocks {
            let (mut whole, mut others) = (Decoded::default(), Vec::new());
            whole.take(channel, &data).unwrap();
            look_beside(channel, &data, &mut others).unwrap();
            let of = |envelope: &Envelope| (envelope.seq, envelope.at);
            assert_eq!(others, whole.envelopes.iter().map(of).collect::<Vec<_>>(), "{channel:?}");
            let of_channel = told.iter().filter(|one| Channel::of(&one.event) == channel);
            assert_eq!(others, of_channel.map(of).collect::<Vec<_>>(), "{channel:?}");
            assert!(look_beside(channel, &data[..3], &mut others).is_err(), "{channel:?}, cut");
        }
    }

    #[test]
    fn what_is_not_wanted_is_bounded_too() {
        let one = block::metric::encode(&told()[3..4]);
        let mut others = vec![(0, Stamp(0)); MAX_ENVELOPES - 1];
        assert_eq!(look_beside(Channel::Metric, &one, &mut others), Ok(()));
        assert!(look_beside(Channel::Metric, &one, &mut others).is_err());
    }

    #[test]
    fn a_chunk_with_more_events_than_a_writer_puts_there_is_refused() {
        let event = Event::JobDone { weights: None };
        let envelope = Envelope { seq: 1, at: Stamp(0), origin: Origin::Run(RunId::new(1, 1)), event };
        let one = serde_json::to_vec(&[&envelope]).unwrap();
        let mut decoded = Decoded { envelopes: vec![envelope; MAX_ENVELOPES - 1], ..Decoded::default() };
        assert_eq!(decoded.take(Channel::Event, &one), Ok(()));
        assert!(decoded.take(Channel::Event, &one).is_err());
    }
}
