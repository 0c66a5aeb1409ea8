//! States of a run, when it finished its steps and where the time of its ranks went, kept beside its recording: a replay begins at the
//! nearest state instead of at the start. The client that records a long run leaves them, and so does a replay that had a long way to go.
//!
//! A state is believed only under the same rules of alerts, and while the chunk before it is the one that it was written after.

use std::io::{self, Read, Write};

use flate2::Crc;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cache::{About, Cache, Record};
use super::fold::{Fold, Until};
use super::levels::{Block, Maker};
use super::reader::{Reader, Timed};
use super::steps::Steps;
use crate::domain::alerts::AlertRules;
use crate::domain::time::Stamp;
use crate::domain::world::World;

/// So many envelopes lie between two states, so many before the first: folding them takes a tenth of a second.
const BETWEEN: u64 = 120_000;
/// At the end of a recording one is kept after so many.
pub(super) const LAST: u64 = 80_000;
/// With more states every second one goes, and twice as much lies between two.
const MOST: usize = 128;
/// Of each level of phases so many blocks are kept at most, and no more once they take so many bytes: what comes later is in the levels
/// with longer buckets alone.
const MOST_BLOCKS: usize = 384;
const MOST_BLOCK_BYTES: usize = 24 << 20;
/// The largest one unpacked.
const LONGEST: u64 = 1 << 30;
/// From so many bytes on it is worth to keep where the chunks lie: to look takes 3 ms a MB.
pub(super) const INDEXED: u64 = 1 << 20;
/// Quick to write: it is the machine's own cache.
const LEVEL: i32 = 1;

/// The states beside one recording.
#[derive(Debug)]
pub(super) struct Saved {
    cache: Cache,
    rules: u32,
    /// By chunk.
    states: Vec<(Place, Record)>,
    /// The blocks of phases that are being made.
    maker: Maker,
    /// Whether there is nothing more to be kept of where the chunks lie.
    has_index: bool,
}

/// What a state is the state of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The chunk that comes next.
    pub(super) chunk: usize,
    /// Recording time of the last envelope folded.
    pub(super) last: Option<Stamp>,
    /// The chunk before: its sequence numbers, and where it lies.
    before: (u64, u64, u64, usize),
    /// Of the rules of alerts.
    rules: u32,
}

impl Saved {
    /// Those of a recording that lies where hvtui puts recordings.
    pub(super) fn of(reader: &Reader, rules: &AlertRules) -> Option<Self> {
        let cache = Cache::of(reader.path())?;
        let mut crc = Crc::new();
        crc.update(&rmp_serde::to_vec(rules).ok()?);
        let (rules, has_index) = (crc.sum(), reader.is_indexed());
        let mut saved = Self { cache, rules, states: Vec::new(), maker: Maker::default(), has_index };
        saved.find(reader);
        // what is there is of a recording that was repaired or replaced; under other rules another client may go on with it
        let is_of_this = |record: &Record| match &record.about {
            About::State(place) | About::Phases { place, .. } => place.is_of(reader),
            About::Report(sums) => reader.is_as_long_as(sums),
            About::Steps(_) | About::Index(_) => false,
        };
        let records = saved.cache.records();
        if !records.is_empty() && !records.iter().any(is_of_this) && !reader.is_indexed() {
            saved.cache.begin_anew();
        }
        Some(saved)
    }

    fn find(&mut self, reader: &Reader) {
        let states = self.cache.records().iter().filter_map(|record| match &record.about {
            About::State(place) if place.rules == self.rules && place.is_of(reader) => {
                Some((*place, record.clone()))
            }
            _ => None,
        });
        self.states = states.collect();
        self.states.sort_by_key(|(place, _)| place.chunk);
    }

    /// The last one that lies on the way.
    pub(super) fn nearest(&self, until: Until) -> Option<Place> {
        let before =
            self.states.partition_point(|(place, _)| place.last.is_none_or(|last| until.is_after(last)));
        Some(self.states.get(before.checked_sub(1)?)?.0)
    }

    /// Reads a state.
    pub(super) fn load(&mut self, place: Place) -> Option<World> {
        let data = self.packed(place)?;
        self.unpacked(&data)
    }

    /// A state as it lies there, which is small; `None` where that is not as it was written, or another replay has left it out.
    pub(super) fn packed(&mut self, place: Place) -> Option<Vec<u8>> {
        let (_, record) = self.states.iter().find(|(found, _)| *found == place)?;
        let record = record.clone();
        self.data(&record)
    }

    fn data(&mut self, record: &Record) -> Option<Vec<u8>> {
        let data = self.cache.data(record);
        if data.is_none() {
            let left = self.cache.records();
            self.states.retain(|(place, _)| left.iter().any(|one| one.about == About::State(*place)));
        }
        data
    }

    /// What the data of a record hold; `None` where they are not what this program writes.
    pub(super) fn unpacked<T: DeserializeOwned>(&mut self, data: &[u8]) -> Option<T> {
        let what = unpack(data).ok();
        if what.is_none() {
            self.begin_anew();
        }
        what
    }

    /// When steps were finished, as far as that is kept.
    pub(super) fn steps(&mut self, reader: &Reader) -> Option<Steps> {
        let is_it = |record: &&Record| matches!(&record.about, About::Steps(place) if place.is_of(reader));
        let record = self.cache.records().iter().rfind(is_it)?.clone();
        let data = self.data(&record)?;
        self.unpacked(&data)
    }

    /// Forgets all of it: something in it is not as it was written.
    fn begin_anew(&mut self) {
        self.cache.begin_anew();
        self.states.clear();
    }

    /// Keeps when the steps of a long recording were finished, once all of it is known.
    pub(super) fn keep_steps(&mut self, reader: &Reader, steps: &Steps) {
        let chunk = reader.chunk_count();
        let Some(place) = Place::before(reader, chunk) else { return };
        let about = About::Steps(place);
        let is_known = self.cache.records().iter().any(|record| record.about == about);
        let is_long = reader.envelopes_before(chunk) >= LAST;
        if steps.next_chunk() != chunk || is_known || !is_long || !self.cache.is_writable() {
            return;
        }
        if let Ok(data) = pack(steps)
            && !self.cache.is_full_for(data.len())
        {
            self.cache.add(about, &data);
        }
    }

    /// Takes in a chunk that is folded, one after the other, and keeps the blocks of phases that end before it. Whether there is one.
    pub(super) fn take_chunk(&mut self, reader: &Reader, chunk: usize, envelopes: &[Timed]) -> bool {
        if !self.cache.is_writable() {
            return false;
        }
        let mut is_kept = false;
        for block in self.maker.take(reader, chunk, envelopes) {
            is_kept |= self.keep_block(reader, &block);
        }
        is_kept
    }

    /// Keeps a block of a long recording, if it is worth it and not there yet.
    fn keep_block(&mut self, reader: &Reader, block: &Block) -> bool {
        let (level, first) = (block.level, block.first);
        let Some(place) = Place::before(reader, block.behind) else { return false };
        let about = About::Phases { level, first, place };
        let records = self.cache.records().iter();
        let of_level: Vec<&Record> = records
            .filter(|record| matches!(&record.about, About::Phases { level: of, .. } if *of == level))
            .collect();
        let is_known = of_level.iter().any(|record| record.about == about);
        let bytes: usize = of_level.iter().map(|record| record.length()).sum();
        let has_room = of_level.len() < MOST_BLOCKS && bytes < MOST_BLOCK_BYTES;
        let is_long = reader.envelopes_before(reader.chunk_count()) >= LAST;
        if is_known || !has_room || !is_long || !block.is_worth_it() {
            return false;
        }
        let Ok(data) = block.pack() else { return false };
        if self.cache.is_full_for(data.len()) {
            return false;
        }
        self.cache.add(about, &data);
        true
    }

    /// Keeps the state that a fold has come to, where the way from the one before it was long. `ends`: nothing follows.
    pub(super) fn keep(&mut self, reader: &Reader, fold: &Fold, ends: bool) {
        // to pack one takes its time
        if !self.cache.is_writable() {
            return;
        }
        let chunk = fold.chunk();
        let at = self.states.partition_point(|(place, _)| place.chunk <= chunk);
        let before = at.checked_sub(1).and_then(|at| self.states.get(at)).map_or(0, |(place, _)| place.chunk);
        let way = reader.envelopes_before(chunk).saturating_sub(reader.envelopes_before(before));
        if way < self.between(reader) && !(ends && way >= LAST) {
            return;
        }
        let Some(before) = chunk.checked_sub(1).and_then(|before| reader.identity(before)) else { return };
        let Ok(data) = pack(fold.world()) else { return };
        let place = Place { chunk, last: fold.last(), before, rules: self.rules };
        let is_full = self.states.len() >= MOST || self.cache.is_full_for(data.len());
        if is_full && !self.thin(reader) {
            return;
        }
        self.cache.add(About::State(place), &data);
        self.find(reader);
    }

    /// Every second state goes, and those under other rules; whether it is done.
    fn thin(&mut self, reader: &Reader) -> bool {
        let places: Vec<Place> = self.states.iter().map(|(place, _)| *place).collect();
        let newest = |is_it: &dyn Fn(&About) -> bool| {
            self.cache.records().iter().map(|record| &record.about).rfind(|about| is_it(about)).cloned()
        };
        let steps = newest(&|about| matches!(about, About::Steps(place) if place.is_of(reader)));
        let report = newest(&|about| matches!(about, About::Report(sums) if reader.is_as_long_as(sums)));
        let is_done = self.cache.thin(|about| match about {
            About::State(place) => places.iter().position(|one| one == place).is_some_and(|at| at % 2 == 1),
            About::Index(_) => true,
            About::Phases { place, .. } => place.is_of(reader),
            About::Steps(_) => steps.as_ref() == Some(about),
            About::Report(_) => report.as_ref() == Some(about),
        });
        self.find(reader);
        is_done
    }

    /// How many envelopes lie between two: twice as many each time that every second one has gone, and so many that the states take
    /// half of what the recording takes.
    fn between(&self, reader: &Reader) -> u64 {
        let envelopes = reader.envelopes_before(reader.chunk_count());
        let size = self.states.last().map_or(0, |(_, record)| record.length() as u64);
        let like_half = (2 * size).saturating_mul(envelopes) / reader.bytes().max(1);
        self.between_by_number(reader).max(like_half)
    }

    fn between_by_number(&self, reader: &Reader) -> u64 {
        let way = |at: usize| self.states.get(at).map(|(place, _)| reader.envelopes_before(place.chunk));
        match (way(0), way(1)) {
            (Some(first), Some(second)) if self.states.len() > MOST / 4 => BETWEEN.max(second - first),
            _ => BETWEEN,
        }
    }

    /// Where the chunks lie is kept too, once nothing more is written, so that the next to open it need not look.
    pub(super) fn keep_index(&mut self, reader: &Reader) {
        if !self.has_index && reader.bytes() >= INDEXED {
            self.has_index = true;
            reader.keep_index(&mut self.cache, || reader.sums());
        }
    }
}

impl Place {
    /// That before a chunk, for what does not depend on the rules of alerts.
    pub(super) fn before(reader: &Reader, chunk: usize) -> Option<Self> {
        let before = reader.identity(chunk.checked_sub(1)?)?;
        Some(Self { chunk, last: None, before, rules: 0 })
    }

    /// Whether it is one of this recording.
    pub(super) fn is_of(&self, reader: &Reader) -> bool {
        let before = self.chunk.checked_sub(1).and_then(|before| reader.identity(before));
        self.chunk <= reader.chunk_count() && before == Some(self.before)
    }
}

pub(super) fn pack(what: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut packed = zstd::Encoder::new(Vec::new(), LEVEL)?;
    let mut to = io::BufWriter::with_capacity(1 << 16, &mut packed);
    let mut encoder = rmp_serde::Serializer::new(&mut to).with_struct_map();
    what.serialize(&mut encoder).map_err(io::Error::other)?;
    to.flush()?;
    drop(to);
    packed.finish()
}

pub(super) fn unpack<T: DeserializeOwned>(data: &[u8]) -> io::Result<T> {
    // a state unpacked at once takes as much again as the world that is made of it
    let unpacked = zstd::Decoder::new(data)?.take(LONGEST);
    rmp_serde::from_read(io::BufReader::with_capacity(1 << 16, unpacked)).map_err(io::Error::other)
}
