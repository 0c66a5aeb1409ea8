//! States of a run that a replay has come to, kept beside its recording: the next replay begins there instead of at the start.
//!
//! `run.mcap.states` is a cache. It is believed only where the same program wrote it under the same rules of alerts, and a state in it
//! only while the chunk before it is the one that it was written after; everything else is folded anew. That it can't be
//! written is no harm. Layout: [`MAGIC`], then records of four numbers (length and CRC-32 of head and data) with both behind them;
//! the first names the program, each other is a [`Place`] and its [`World`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Crc;
use serde::{Deserialize, Serialize};

use super::reader::Reader;
use crate::domain::alerts::AlertRules;
use crate::domain::ids::RunId;
use crate::domain::time::Stamp;
use crate::domain::world::World;

const MAGIC: &[u8; 16] = b"hvtui states 1\r\n";
/// Bytes before head and data of a record.
const NUMBERS: usize = 16;
/// The longest head; a place takes less than a hundred bytes, the rules of alerts some hundred.
const LONGEST_HEAD: usize = 64 << 10;
/// The longest data of one state, as it lies there, and unpacked.
const LONGEST_DATA: usize = 64 << 20;
const LONGEST_WORLD: u64 = 1 << 30;
/// How many states are kept, and how much they may take together.
const MOST: usize = 64;
const MOST_BYTES: u64 = 256 << 20;
/// Quick to write: it is the machine's own cache.
const LEVEL: i32 = 1;

/// The states beside one recording.
#[derive(Debug)]
pub(super) struct Saved {
    path: PathBuf,
    /// What the first record must say.
    program: Vec<u8>,
    /// By chunk.
    places: Vec<Found>,
    /// Where the next record goes; `None` where nothing can be written, or no more.
    end: Option<u64>,
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
}

#[derive(Debug, Clone, Copy)]
struct Found {
    place: Place,
    at: u64,
    length: usize,
    crc: u32,
}

impl Saved {
    /// Those of a recording that lies where hvtui puts recordings; of another, `None`: nothing is written beside a file that a
    /// person has put somewhere.
    pub(super) fn of(reader: &Reader, rules: &AlertRules) -> Option<Self> {
        let folder = reader.path().parent()?.file_name()?.to_str()?;
        folder.parse::<RunId>().ok()?;
        let mut path = reader.path().as_os_str().to_owned();
        path.push(".states");
        let program = rmp_serde::to_vec(&(program()?, rules)).ok()?;
        let mut saved = Self { path: path.into(), program, places: Vec::new(), end: Some(0) };
        match saved.read(reader) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::debug!(%error, path = %saved.path.display(), "states of a run are not read");
                saved.end = None;
            }
        }
        Some(saved)
    }

    /// The last one that is not behind `time`.
    pub(super) fn nearest(&self, time: Stamp) -> Option<Place> {
        let before = self.places.partition_point(|found| found.place.last.is_none_or(|last| last <= time));
        Some(self.places.get(before.checked_sub(1)?)?.place)
    }

    /// The last one at `chunk` or before it.
    pub(super) fn last_before(&self, chunk: usize) -> Option<Place> {
        let before = self.places.partition_point(|found| found.place.chunk <= chunk);
        Some(self.places.get(before.checked_sub(1)?)?.place)
    }

    /// Reads a state. Where it can't be read, the file is damaged and begins anew.
    pub(super) fn load(&mut self, place: Place) -> Option<World> {
        let found = self.places.iter().find(|found| found.place == place).copied()?;
        match self.read_world(found) {
            Ok(world) => Some(world),
            Err(error) => {
                tracing::debug!(%error, path = %self.path.display(), "the state of a run is not read");
                self.places.clear();
                self.end = self.end.and(Some(0));
                None
            }
        }
    }

    /// Keeps the state before `chunk`.
    pub(super) fn keep(&mut self, reader: &Reader, chunk: usize, last: Option<Stamp>, world: &World) {
        let Some(before) = chunk.checked_sub(1).and_then(|before| reader.identity(before)) else { return };
        let Some(end) = self.end.filter(|_| self.places.len() < MOST) else { return };
        let place = Place { chunk, last, before };
        match self.write(end, place, world) {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(%error, path = %self.path.display(), "the state of a run is not kept");
                self.end = None;
            }
        }
    }

    fn read(&mut self, reader: &Reader) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let about = file.metadata()?;
        if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it is no file of this user"));
        }
        let mut at = MAGIC.len() as u64;
        let mut magic = [0; MAGIC.len()];
        if file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC {
            return Ok(());
        }
        let Some((program, mut next)) = record(&file, at) else { return Ok(()) };
        if program.head != self.program {
            return Ok(());
        }
        while let Some((record, after)) = record(&file, next) {
            at = next;
            next = after;
            let Ok(place) = rmp_serde::from_slice::<Place>(&record.head) else { break };
            let is_of_this = place.chunk <= reader.chunk_count()
                && place.chunk.checked_sub(1).and_then(|before| reader.identity(before))
                    == Some(place.before);
            if is_of_this && self.places.len() < MOST {
                let start = at + (NUMBERS + record.head.len()) as u64;
                self.places.push(Found { place, at: start, length: record.length, crc: record.crc });
            }
        }
        self.places.sort_by_key(|found| found.place.chunk);
        // where none is of this recording, which was repaired or replaced, the file begins anew
        self.end = Some(if self.places.is_empty() { 0 } else { next });
        Ok(())
    }

    fn read_world(&self, found: Found) -> io::Result<World> {
        let mut data = vec![0; found.length];
        File::open(&self.path)?.read_exact_at(&mut data, found.at)?;
        if crc(&data) != found.crc {
            return Err(io::Error::other("it is not as it was written"));
        }
        let unpacked = zstd::Decoder::new(data.as_slice())?.take(LONGEST_WORLD);
        rmp_serde::from_read(io::BufReader::with_capacity(1 << 16, unpacked)).map_err(io::Error::other)
    }

    /// Writes a record at `end`, and the beginning of the file before it where there is none.
    fn write(&mut self, end: u64, place: Place, world: &World) -> io::Result<()> {
        let options = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
        let file = options().open(&self.path)?;
        // another replay of this recording may be writing too
        file.try_lock().map_err(io::Error::from)?;
        let mut begin = Vec::new();
        if end == 0 {
            file.set_len(0)?;
            begin.extend_from_slice(MAGIC);
            put(&mut begin, &self.program, &[]);
        } else if file.metadata()?.len() < end {
            return Err(io::Error::other("another replay has begun it anew"));
        } else {
            // what a replay that was killed has left
            file.set_len(end)?;
        }
        let mut packed = zstd::Encoder::new(Vec::new(), LEVEL)?;
        {
            let mut to = io::BufWriter::with_capacity(1 << 16, &mut packed);
            let mut encoder = rmp_serde::Serializer::new(&mut to).with_struct_map();
            world.serialize(&mut encoder).map_err(io::Error::other)?;
            to.flush()?;
        }
        let data = packed.finish()?;
        let head = rmp_serde::to_vec(&place).map_err(io::Error::other)?;
        let start = end + (begin.len() + NUMBERS + head.len()) as u64;
        if data.len() > LONGEST_DATA || start + data.len() as u64 > MOST_BYTES {
            return Err(io::Error::other("it takes too much"));
        }
        put(&mut begin, &head, &data);
        if let Err(error) = file.write_all_at(&begin, end) {
            // what is there stays good
            file.set_len(end)?;
            return Err(error);
        }
        self.end = Some(end + begin.len() as u64);
        let found = Found { place, at: start, length: data.len(), crc: crc(&data) };
        let index = self.places.partition_point(|found| found.place.chunk <= place.chunk);
        self.places.insert(index, found);
        Ok(())
    }
}

/// One record without its data.
struct Record {
    head: Vec<u8>,
    length: usize,
    crc: u32,
}

/// The record at a place, and where the next one is; `None` where it does not lie there whole.
fn record(file: &File, at: u64) -> Option<(Record, u64)> {
    let mut numbers = [0; NUMBERS];
    file.read_exact_at(&mut numbers, at).ok()?;
    let number = |place: usize| {
        let bytes = numbers.get(place * 4..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let (head_length, length) = (number(0)? as usize, number(1)? as usize);
    let (head_crc, data_crc) = (number(2)?, number(3)?);
    if head_length > LONGEST_HEAD || length > LONGEST_DATA {
        return None;
    }
    let mut head = vec![0; head_length];
    file.read_exact_at(&mut head, at + NUMBERS as u64).ok()?;
    let next = at + (NUMBERS + head_length + length) as u64;
    let is_whole = crc(&head) == head_crc && file.metadata().is_ok_and(|about| about.len() >= next);
    is_whole.then_some((Record { head, length, crc: data_crc }, next))
}

fn put(to: &mut Vec<u8>, head: &[u8], data: &[u8]) {
    for number in [head.len() as u32, data.len() as u32, crc(head), crc(data)] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    to.extend_from_slice(head);
    to.extend_from_slice(data);
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// What tells this program from every other: another build may fold otherwise.
fn program() -> Option<(&'static str, u64, i64, i64)> {
    let about = std::fs::metadata(Path::new("/proc/self/exe")).ok()?;
    Some((env!("CARGO_PKG_VERSION"), about.len(), about.mtime(), about.mtime_nsec()))
}
