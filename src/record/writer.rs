//! Turns envelopes into chunks of an MCAP file. Knows no thread and no clock: a chunk ends when the
//! envelopes' own times say so, when it is large, or when its owner asks.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;

use super::block;
use super::error::Error;
use super::format::{
    CHUNK_ENVELOPES, CHUNK_SPAN_US, CHUNK_TARGET, Channel, ChunkNote, FORMAT, MAX_EVENT, Meta, PROFILE,
    TOLD_FORMAT, log_time, weight,
};
use super::log_json;
use super::queue::Gap;
use super::schema::{self, Schema};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::RunStage;
use crate::domain::time::Stamp;
use crate::domain::trained::Follower;

/// Writes a recording. Envelopes must come in rising order of their sequence numbers from one chunk
/// to the next; within a chunk any order will do.
pub struct Writer<W: Write> {
    mcap: mcap::Writer<NoSeek<W>>,
    pending: Pending,
    /// The channels whose records are written.
    defined: BTreeSet<u16>,
    last_seq: Option<u64>,
    stage: Option<RunStage>,
    /// Whether its client has attached to a run that went on.
    is_of_guest: bool,
    outcome: Option<RunOutcome>,
    training: Follower,
    totals: Totals,
}

/// What a writer has written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Envelopes in finished chunks.
    pub envelopes: u64,
    /// Finished chunks.
    pub chunks: u64,
}

/// The chunk in the making.
#[derive(Default)]
struct Pending {
    note: Option<ChunkNote>,
    meta: Option<Vec<u8>>,
    columns: BTreeMap<Channel, Vec<Envelope>>,
    json: BTreeMap<Channel, (u64, Vec<u8>)>,
    logs: Vec<(u32, u64, Vec<u8>)>,
    /// Where the last line of each rank's output begins.
    lines: BTreeMap<(Rank, Stream), u64>,
    /// What is left out: a gap in the place of the first of each kind.
    left_out: BTreeMap<(Origin, &'static str), Gap>,
    first_at: Stamp,
    bytes: usize,
}

impl<W: Write> Writer<W> {
    /// Begins a recording: writes its header and version at once.
    pub fn new(to: W) -> Result<Self, Error> {
        let mcap = mcap::WriteOptions::new()
            .profile(PROFILE)
            .library(concat!("hvtui ", env!("CARGO_PKG_VERSION")))
            .compression(Some(mcap::Compression::Zstd))
            .compression_level(1)
            .compression_threads(0)
            .chunk_size(None)
            // a chunk reaches the file whole, in one write, not as a header to be filled in later
            .disable_seeking(true)
            .create(NoSeek::new(to))?;
        let mut writer = Self {
            mcap,
            pending: Pending::default(),
            defined: BTreeSet::new(),
            last_seq: None,
            stage: None,
            is_of_guest: false,
            outcome: None,
            training: Follower::default(),
            totals: Totals::default(),
        };
        writer.mcap.write_metadata(&Metadata {
            name: PROFILE.to_owned(),
            metadata: BTreeMap::from([
                ("format".to_owned(), FORMAT.to_string()),
                ("hvtui".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ]),
        })?;
        writer.mcap.flush()?;
        Ok(writer)
    }

    /// Takes an envelope into the chunk in the making, after finishing the one before when this
    /// envelope lies more than the chunk's span later.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::Late`] refuse this envelope alone; after any other error the
    /// recording can't go on.
    pub fn push(&mut self, envelope: impl Borrow<Envelope>) -> Result<(), Error> {
        let envelope = envelope.borrow();
        if let Some(last) = self.last_seq.filter(|last| envelope.seq <= *last) {
            return Err(Error::Late { seq: envelope.seq, last });
        }
        let encoded = Encoded::new(envelope)?;
        if self.has_pending() && self.pending.is_full_before(envelope.at) {
            self.flush()?;
        }
        let is_first = self.stage.is_none();
        self.follow_run(&envelope.event)?;
        self.training.follow(envelope);
        self.pending.add(envelope, encoded);
        // from its first moment on the file tells which run it is of, and that of a client that attaches that its ranks run
        let joins = self.is_of_guest && is_first && self.stage.is_some();
        let begins = joins || matches!(envelope.event, Event::RunCreated { .. });
        if begins || self.pending.bytes >= CHUNK_TARGET || self.pending.envelopes() >= CHUNK_ENVELOPES {
            self.flush()?;
        }
        Ok(())
    }

    /// Counts an envelope as left out: a gap for all of its kind and origin stands in their place in this chunk.
    pub(super) fn leave_out(&mut self, envelope: &Envelope, what: &'static str) -> Result<(), Error> {
        // a list tells the newest step all the same
        self.training.follow(envelope);
        if self.has_pending() && self.pending.is_full_before(envelope.at) {
            self.flush()?;
        }
        if self.last_seq.is_some_and(|last| envelope.seq <= last) {
            // a gap in its place would come too late
            return Ok(());
        }
        if !self.has_pending() {
            self.pending.first_at = envelope.at;
        }
        let gap = self.pending.left_out.entry((envelope.origin.clone(), what));
        gap.or_insert(Gap { seq: envelope.seq, at: envelope.at, count: 0 }).count += 1;
        Ok(())
    }

    /// Remembers what the next note says of the run.
    fn follow_run(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::RunCreated { spec } if self.pending.meta.is_none() => {
                let meta = Meta { spec: (**spec).clone() };
                self.pending.meta = Some(serde_json::to_vec(&meta).map_err(json_error)?);
            }
            Event::Attached { .. } => self.is_of_guest = true,
            Event::StageEntered { stage, .. } => self.stage = Some(*stage),
            Event::RunEnded { outcome } => {
                self.stage = Some(RunStage::Ended);
                self.outcome = Some(outcome.clone());
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether envelopes wait for the end of their chunk.
    pub fn has_pending(&self) -> bool {
        self.pending.note.is_some() || !self.pending.left_out.is_empty()
    }

    /// How many bytes wait for the end of their chunk, not compressed.
    pub(super) fn waiting(&self) -> usize {
        self.pending.bytes
    }

    /// The greatest sequence number in finished chunks.
    pub(super) fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// What has been written.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends the chunk: all that was pushed is in the file when this returns.
    pub fn flush(&mut self) -> Result<(), Error> {
        for ((origin, what), gap) in std::mem::take(&mut self.pending.left_out) {
            let envelope = gap.envelope(origin, what);
            self.pending.add(&envelope, Encoded::new(&envelope)?);
        }
        let mut pending = std::mem::take(&mut self.pending);
        let Some(mut note) = pending.note.take() else { return Ok(()) };
        note.stage = self.stage;
        note.outcome.clone_from(&self.outcome);
        note.trained = self.training.trained();
        note.stood = self.training.stood();
        let lines = std::mem::take(&mut pending.lines).into_iter();
        note.lines = Some(lines.map(|((rank, stream), offset)| (rank, stream, offset)).collect());
        let time = log_time(note.start);
        self.message(Channel::Chunk, time, &serde_json::to_vec(&note).map_err(json_error)?)?;
        if let Some(meta) = pending.meta {
            self.message(Channel::Meta, time, &meta)?;
        }
        for (channel, (time, mut array)) in pending.json {
            array.push(b']');
            self.message(channel, time, &array)?;
        }
        for (channel, envelopes) in pending.columns {
            let block = match channel {
                Channel::Phase => block::phase::encode(&envelopes),
                Channel::Gpu => block::telemetry::encode(&envelopes),
                _ => block::metric::encode(&envelopes),
            };
            let time = envelopes.first().map_or(time, |envelope| log_time(envelope.at));
            self.message(channel, time, &block)?;
            if channel == Channel::Gpu
                && let Some(block) = block::gpu_numbers::encode(&envelopes)
            {
                self.message(Channel::GpuNumbers, time, &block)?;
            }
        }
        for (rank, time, line) in pending.logs {
            self.message(Channel::Log(rank), time, &line)?;
        }
        self.mcap.flush()?;
        self.last_seq = Some(note.last_seq);
        self.totals.envelopes += note.envelopes;
        self.totals.chunks += 1;
        Ok(())
    }

    fn message(&mut self, channel: Channel, time: u64, data: &[u8]) -> Result<(), Error> {
        let id = channel.id();
        if self.defined.insert(id) {
            let schema = match Schema::of(channel) {
                Some(schema) => {
                    let text = schema.text.as_bytes();
                    self.mcap.add_schema_with_id(schema.id, schema.name, schema.encoding, text)?
                }
                None => 0,
            };
            let (topic, metadata) = (channel.topic(), schema::metadata(channel));
            self.mcap.add_channel_with_id(id, schema, &topic, channel.encoding(), &metadata)?;
        }
        let header = MessageHeader { channel_id: id, sequence: 0, log_time: time, publish_time: time };
        self.mcap.write_to_known_channel(&header, data)?;
        Ok(())
    }

    /// Ends the last chunk, writes the summary that other MCAP tools want, and gives back the file.
    pub fn finish(mut self) -> Result<(W, Totals), Error> {
        self.flush()?;
        self.mcap.finish()?;
        Ok((self.mcap.into_inner().into_inner(), self.totals))
    }
}

/// An envelope on its way into a chunk.
enum Encoded {
    Column(Channel, usize),
    Json(Channel, Vec<u8>),
    Log(u32, Vec<u8>),
}

impl Encoded {
    fn new(envelope: &Envelope) -> Result<Self, Error> {
        let encoded = match (Channel::of(&envelope.event), &envelope.event) {
            (channel @ (Channel::Phase | Channel::Gpu | Channel::Metric), _) => {
                Self::Column(channel, weight(envelope))
            }
            (Channel::Log(rank), Event::LogPrinted { line }) => {
                Self::Log(rank, log_json::encode(envelope, line).map_err(json_error)?)
            }
            (Channel::Log(rank), Event::LogGap { gap }) => {
                Self::Log(rank, log_json::encode_gap(envelope, gap).map_err(json_error)?)
            }
            (channel, _) => Self::Json(channel, serde_json::to_vec(envelope).map_err(json_error)?),
        };
        let bytes = encoded.bytes();
        if bytes > MAX_EVENT { Err(Error::TooLarge { seq: envelope.seq, bytes }) } else { Ok(encoded) }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Column(_, weight) => *weight,
            Self::Json(_, json) | Self::Log(_, json) => json.len(),
        }
    }
}

impl Pending {
    fn envelopes(&self) -> usize {
        self.note.as_ref().map_or(0, |note| note.envelopes as usize)
    }

    fn is_full_before(&self, at: Stamp) -> bool {
        // what is told late ends no chunk, and where a clock was set back, the recorder's patience does
        at.micros_since(self.first_at) >= CHUNK_SPAN_US
    }

    fn add(&mut self, envelope: &Envelope, encoded: Encoded) {
        let (seq, at) = (envelope.seq, envelope.at);
        if self.note.is_none() {
            self.first_at = at;
        }
        let note = self.note.get_or_insert(ChunkNote {
            first_seq: seq,
            last_seq: seq,
            start: at,
            end: at,
            envelopes: 0,
            stage: None,
            outcome: None,
            trained: None,
            stood: None,
            lines: None,
            format: TOLD_FORMAT,
        });
        if let Event::LogPrinted { line } = &envelope.event {
            let last = self.lines.entry((line.rank, line.stream)).or_default();
            *last = line.offset.max(*last);
        }
        note.first_seq = note.first_seq.min(seq);
        note.last_seq = note.last_seq.max(seq);
        note.start = note.start.min(at);
        note.end = note.end.max(at);
        note.envelopes += 1;
        self.bytes += encoded.bytes();
        match encoded {
            Encoded::Column(channel, _) => self.columns.entry(channel).or_default().push(envelope.clone()),
            Encoded::Log(rank, json) => self.logs.push((rank, log_time(at), json)),
            Encoded::Json(channel, json) => {
                let (_, array) = self.json.entry(channel).or_insert_with(|| (log_time(at), Vec::new()));
                array.push(if array.is_empty() { b'[' } else { b',' });
                array.extend_from_slice(&json);
            }
        }
    }
}

fn json_error(error: serde_json::Error) -> Error {
    Error::Write(error.into())
}
