//! A file beside a recording with what this program has found out about it and would find out again: `run.mcap.states`.
//!
//! It is believed only where the same program wrote it. That it can't be read or written is no harm. Layout: [`MAGIC`], then
//! records of four numbers (length and CRC-32 of head and data) with both behind them. The head of the first names the program,
//! that of each other tells what its data are: [`About`].

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Crc;
use serde::{Deserialize, Serialize};

use super::index::FileSum;
use super::saved::Place;
use crate::domain::ids::RunId;
use crate::filelock::give_back;

const MAGIC: &[u8; 16] = b"hvtui states 4\r\n";
/// Bytes before head and data of a record.
const NUMBERS: usize = 16;
/// The longest head; a place takes less than a hundred bytes, the sums of a recording's files as many each.
const LONGEST_HEAD: usize = 64 << 10;
/// The longest data of one record.
const LONGEST_DATA: usize = 64 << 20;
/// How much the whole file may take.
const MOST_BYTES: u64 = 256 << 20;
/// How many records are looked at.
const MOST_RECORDS: usize = 2048;

/// What the data of a record are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum About {
    /// A [`crate::domain::world::World`]: the run at a place of the recording.
    State(Place),
    /// [`super::steps::Steps`], up to a place of the recording.
    Steps(Place),
    /// Where the chunks of these files lie, and what their notes tell.
    Index(Vec<FileSum>),
    /// A [`crate::domain::analysis::Analyzer`] that has taken in all of these files.
    Report(Vec<FileSum>),
    /// A block of [`crate::domain::phase_buckets::PhaseBuckets`] of a level: of the chunks from one up to a place of the recording.
    Phases {
        /// The level.
        level: usize,
        /// The first chunk.
        first: usize,
        /// The place.
        place: Place,
    },
}

/// The file, as it was when it was opened and as it was written to since.
#[derive(Debug)]
pub(super) struct Cache {
    path: PathBuf,
    /// What the first record must say.
    program: Vec<u8>,
    records: Vec<Record>,
    /// Where the next record goes; `None` where nothing can be written, or no more.
    end: Option<u64>,
    /// The first record of what lies there and is wrong: as long as it is the first one, the next record takes the place of all.
    forgotten: Option<Record>,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) about: About,
    at: u64,
    length: usize,
    crc: u32,
}

impl Record {
    /// How many bytes its data take.
    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Cache {
    /// Whether a recording lies where hvtui puts recordings, in a folder of this user: beside those of others nothing is left.
    pub(super) fn is_for(recording: &Path) -> bool {
        let Some(folder) = recording.parent() else { return false };
        let name = folder.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.parse::<RunId>().is_ok())
            && std::fs::metadata(folder).is_ok_and(|about| is_own(&about))
    }

    /// That of a recording of which [`Cache::is_for`] holds; of another, `None`: nothing is written beside a file that a person
    /// has put somewhere.
    pub(super) fn of(recording: &Path) -> Option<Self> {
        if !Self::is_for(recording) {
            return None;
        }
        let mut path = recording.as_os_str().to_owned();
        path.push(".states");
        let program = rmp_serde::to_vec(&program()?).ok()?;
        let mut cache =
            Self { path: path.into(), program, records: Vec::new(), end: Some(0), forgotten: None };
        match cache.scan() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::debug!(%error, path = %cache.path.display(), "what is known of a recording is not read");
                cache.end = None;
            }
        }
        Some(cache)
    }

    /// Whether a record can be added.
    pub(super) fn is_writable(&self) -> bool {
        self.end.is_some()
    }

    /// Whether there is no room for a record of so many bytes, though there would be in another file.
    pub(super) fn is_full_for(&self, length: usize) -> bool {
        self.end.is_some_and(|end| end + (length + LONGEST_HEAD) as u64 > MOST_BYTES)
    }

    /// Its records, in the order in which they lie there.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// The data of a record, also where another one has put it elsewhere meanwhile; `None` where that has left it out. Where they are
    /// not as they were written, the file begins anew.
    pub(super) fn data(&mut self, record: &Record) -> Option<Vec<u8>> {
        let data = self.data_alone(record);
        let lies_there = || self.records.iter().any(|one| one.about == record.about);
        if data.is_none() && (self.records.is_empty() || lies_there()) {
            tracing::debug!(path = %self.path.display(), "it is not as it was written");
            self.begin_anew();
        }
        data
    }

    /// The same for a record without which the others are as good as before: they stay where it is not as it was written.
    pub(super) fn data_alone(&mut self, record: &Record) -> Option<Vec<u8>> {
        let read = |path: &Path, record: &Record| data_in(&File::open(path).ok()?, record);
        if let Some(data) = read(&self.path, record) {
            return Some(data);
        }
        self.rescan();
        if self.records.contains(record) {
            return None;
        }
        let moved = self.records.iter().rfind(|one| one.about == record.about)?;
        read(&self.path, moved)
    }

    /// Forgets all of it: the next record is the first, unless another one has begun it anew by then.
    pub(super) fn begin_anew(&mut self) {
        if let Some(first) = self.records.first() {
            self.forgotten = Some(first.clone());
        }
        self.records.clear();
        self.end = self.end.and(Some(0));
    }

    /// Adds a record. Where that fails, nothing more is written; while another one writes, nothing for once.
    pub(super) fn add(&mut self, about: About, data: &[u8]) {
        let Some(end) = self.end else { return };
        if let Err(error) = self.write(end, about, data) {
            if error.kind() == io::ErrorKind::WouldBlock {
                // another replay writes just now
                return;
            }
            tracing::debug!(%error, path = %self.path.display(), "what is known of a recording is not kept");
            self.end = None;
        }
    }

    /// Leaves out the records that it knows of and that `keeps` does not, in a new file in its place; what others have added since stays.
    /// Whether that is done: it is not while another one writes, and where it fails nothing more is written.
    pub(super) fn thin(&mut self, keeps: impl FnMut(&About) -> bool) -> bool {
        let thinned = self.locked().and_then(|file| {
            let thinned = self.replace(&file, keeps);
            give_back(&file);
            thinned
        });
        let Err(error) = thinned else { return true };
        if error.kind() != io::ErrorKind::WouldBlock {
            tracing::debug!(%error, path = %self.path.display(), "what is known of a recording is not thinned");
            self.end = None;
        }
        false
    }

    /// Writes what stays into a new file, which takes the place of this one, whose lock is held. Who reads that now keeps it as it was.
    fn replace(&mut self, file: &File, mut keeps: impl FnMut(&About) -> bool) -> io::Result<()> {
        let first =
            self.first_record(file).ok_or_else(|| io::Error::other("another replay has begun it anew"))?;
        let known = std::mem::take(&mut self.records);
        self.take_records(file, first);
        let mut path = self.path.clone().into_os_string();
        path.push(".new");
        let path = PathBuf::from(path);
        // of one that was killed
        drop(std::fs::remove_file(&path));
        let written = self.write_kept(file, &path, |record| !known.contains(record) || keeps(&record.about));
        let moved = written.and_then(|written| std::fs::rename(&path, &self.path).map(|()| written));
        let (records, end) = moved.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        (self.records, self.end, self.forgotten) = (records, Some(end), None);
        Ok(())
    }

    /// A new file with those records of this one that `keeps` and whose data are as they were written; gives where they lie in it, and
    /// where it ends.
    fn write_kept(
        &self,
        file: &File,
        path: &Path,
        mut keeps: impl FnMut(&Record) -> bool,
    ) -> io::Result<(Vec<Record>, u64)> {
        let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut bytes = MAGIC.to_vec();
        put(&mut bytes, &self.program, &[]);
        let (mut records, mut end) = (Vec::new(), 0);
        for record in self.records.iter().filter(|record| keeps(record)) {
            let Some(data) = data_in(file, record) else { continue };
            let head = rmp_serde::to_vec(&record.about).map_err(io::Error::other)?;
            let at = end + (bytes.len() + NUMBERS + head.len()) as u64;
            put(&mut bytes, &head, &data);
            to.write_all_at(&bytes, end)?;
            end += bytes.len() as u64;
            bytes.clear();
            records.push(Record { at, ..record.clone() });
        }
        to.write_all_at(&bytes, end)?;
        Ok((records, end + bytes.len() as u64))
    }

    fn scan(&mut self) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let about = file.metadata()?;
        if !about.is_file() || !is_own(&about) {
            return Err(io::Error::other("it is no file of this user"));
        }
        if let Some(first) = self.first_record(&file) {
            self.end = Some(self.take_records(&file, first));
        }
        Ok(())
    }

    /// Where the first record lies that tells something; `None` in a file that this program has not begun.
    fn first_record(&self, file: &File) -> Option<u64> {
        let mut magic = [0; MAGIC.len()];
        file.read_exact_at(&mut magic, 0).ok().filter(|()| magic == *MAGIC)?;
        let (head, program) = head_at(file, MAGIC.len() as u64)?;
        (head == self.program).then_some(program.at + program.length as u64)
    }

    /// Takes in what lies there now.
    fn rescan(&mut self) {
        self.records.clear();
        let Ok(file) = File::open(&self.path) else { return };
        if let Some(first) = self.first_record(&file) {
            let end = self.take_records(&file, first);
            self.end = self.end.and(Some(end));
        }
    }

    /// Takes in the records from a place on that lie there whole; gives where they end.
    fn take_records(&mut self, file: &File, from: u64) -> u64 {
        let mut next = from;
        while let Some((head, place)) = head_at(file, next).filter(|_| self.records.len() < MOST_RECORDS) {
            let Ok(about) = rmp_serde::from_slice(&head) else { break };
            let Data { at, length, crc } = place;
            self.records.push(Record { about, at, length, crc });
            next = at + length as u64;
        }
        next
    }

    /// The file, which is made where it is not there, with its lock.
    fn locked(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&self.path)?;
        // another replay of this recording may be writing too
        file.try_lock().map_err(io::Error::from)?;
        let (locked, there) = (file.metadata()?, std::fs::symlink_metadata(&self.path)?);
        if (locked.dev(), locked.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
        // it has put a thinner one in its place
        give_back(&file);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Writes a record behind what lies there, and the beginning of the file before it where there is none.
    fn write(&mut self, end: u64, about: About, data: &[u8]) -> io::Result<()> {
        let file = self.locked()?;
        let written = self.write_locked(&file, end, about, data);
        give_back(&file);
        written
    }

    fn write_locked(&mut self, file: &File, end: u64, about: About, data: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        // what others have added since stays; what one that was killed has left does not
        let lies_there = self.first_record(file).map(|first| {
            self.records.clear();
            self.take_records(file, first)
        });
        let is_forgotten = self.forgotten.is_some() && self.records.first() == self.forgotten.as_ref();
        let end = match lies_there {
            Some(lies_to) if !is_forgotten => lies_to,
            _ if end == 0 => {
                self.records.clear();
                bytes.extend_from_slice(MAGIC);
                put(&mut bytes, &self.program, &[]);
                0
            }
            _ => return Err(io::Error::other("another replay has begun it anew")),
        };
        file.set_len(end)?;
        let head = rmp_serde::to_vec(&about).map_err(io::Error::other)?;
        let at = end + (bytes.len() + NUMBERS + head.len()) as u64;
        if data.len() > LONGEST_DATA || head.len() > LONGEST_HEAD || at + data.len() as u64 > MOST_BYTES {
            return Err(io::Error::other("it takes too much"));
        }
        put(&mut bytes, &head, data);
        if let Err(error) = file.write_all_at(&bytes, end) {
            // what is there stays good
            file.set_len(end)?;
            return Err(error);
        }
        self.end = Some(end + bytes.len() as u64);
        self.forgotten = None;
        self.records.push(Record { about, at, length: data.len(), crc: crc(data) });
        Ok(())
    }
}

fn is_own(about: &Metadata) -> bool {
    about.uid() == rustix::process::geteuid().as_raw()
}

/// Where the data of a record lie.
struct Data {
    at: u64,
    length: usize,
    crc: u32,
}

/// The head of the record at a place, and its data; `None` where it does not lie there whole.
fn head_at(file: &File, at: u64) -> Option<(Vec<u8>, Data)> {
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
    let at = at + (NUMBERS + head_length) as u64;
    let ends_in_file = file.metadata().is_ok_and(|about| about.len() >= at + length as u64);
    (ends_in_file && crc(&head) == head_crc).then_some((head, Data { at, length, crc: data_crc }))
}

/// The data of a record in a file; `None` where they are not as they were written.
fn data_in(file: &File, record: &Record) -> Option<Vec<u8>> {
    let mut data = vec![0; record.length];
    file.read_exact_at(&mut data, record.at).ok()?;
    (crc(&data) == record.crc).then_some(data)
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_another_version_has_left_is_not_read_and_gives_way() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let mut cache = Cache::of(&recording).unwrap();
        cache.add(About::Index(Vec::new()), b"data");
        assert_eq!(Cache::of(&recording).unwrap().records().len(), 1);
        let mut kept = std::fs::read(&cache.path).unwrap();
        kept[..MAGIC.len()].copy_from_slice(b"hvtui states 3\r\n");
        std::fs::write(&cache.path, kept).unwrap();
        let mut cache = Cache::of(&recording).unwrap();
        assert!(cache.records().is_empty() && cache.is_writable());
        cache.add(About::Index(Vec::new()), b"other");
        let mut cache = Cache::of(&recording).unwrap();
        let record = cache.records()[0].clone();
        assert_eq!((cache.records().len(), cache.data(&record)), (1, Some(b"other".to_vec())));
    }

    #[test]
    fn what_two_add_to_one_file_at_a_time_is_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        Cache::of(&recording).unwrap().add(About::Index(Vec::new()), b"first");
        let (mut one, mut other) = (Cache::of(&recording).unwrap(), Cache::of(&recording).unwrap());
        one.add(About::Index(Vec::new()), b"second");
        other.add(About::Report(Vec::new()), b"third");
        // one that was killed has left the beginning of a record
        let file = OpenOptions::new().append(true).open(&one.path).unwrap();
        (&file).write_all(&[7; NUMBERS + 3]).unwrap();
        one.add(About::Index(Vec::new()), b"fourth");
        let mut again = Cache::of(&recording).unwrap();
        for cache in [&mut one, &mut again] {
            let records = cache.records().to_vec();
            let data: Vec<_> = records.iter().map(|record| cache.data(record).unwrap()).collect();
            assert_eq!(data, [&b"first"[..], b"second", b"third", b"fourth"]);
        }
    }

    #[test]
    fn what_another_one_has_begun_meanwhile_is_added_to_unless_it_is_of_another_program() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let open = || Cache::of(&recording).unwrap();
        let (mut one, mut other, mut newer) = (open(), open(), open());
        one.add(About::Report(Vec::new()), b"first");
        other.add(About::Index(Vec::new()), b"second");
        assert_eq!((other.records().len(), open().records().len()), (2, 2));
        // who has found that something in it is wrong forgets all of it
        other.begin_anew();
        other.add(About::Index(Vec::new()), b"third");
        assert_eq!((other.records().len(), open().records().len()), (1, 1));
        newer.program = b"newer".to_vec();
        newer.add(About::Index(Vec::new()), &[7; 1_000]);
        let left = std::fs::read(&newer.path).unwrap();
        other.add(About::Index(Vec::new()), b"fourth");
        assert!(!other.is_writable() && std::fs::read(&newer.path).unwrap() == left);
        open().add(About::Index(Vec::new()), b"fifth");
        assert_eq!(open().records().len(), 1, "what another program has left gives way");
    }

    #[test]
    fn a_thinner_file_keeps_what_others_have_added_and_others_find_what_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let open = || Cache::of(&recording).unwrap();
        let about = |length: u64| {
            let sum = serde_json::json!({ "length": length, "crc": 0 });
            About::Report(vec![serde_json::from_value(sum).unwrap()])
        };
        let mut one = open();
        one.add(about(1), b"first");
        one.add(about(2), b"second");
        let (mut other, mut late) = (open(), open());
        other.add(about(3), b"third");
        // it knows nothing of the third one
        assert!(one.thin(|known| *known == about(2)));
        let all = |cache: &mut Cache| {
            let records = cache.records().to_vec();
            records.iter().filter_map(|record| cache.data(record)).collect::<Vec<_>>()
        };
        assert_eq!(all(&mut open()), [b"second".to_vec(), b"third".to_vec()]);
        // those that knew the file of before find what is left, and add to the new one
        assert_eq!(all(&mut late), [b"second".to_vec()]);
        let (first, third) = (other.records()[0].clone(), other.records()[2].clone());
        assert_eq!((other.data(&third), other.data(&first)), (Some(b"third".to_vec()), None));
        other.add(about(4), b"fourth");
        one.add(about(5), b"fifth");
        let mut again = open();
        for cache in [&mut one, &mut again] {
            assert_eq!(all(cache), [&b"second"[..], b"third", b"fourth", b"fifth"].map(<[u8]>::to_vec));
        }
        assert_eq!(std::fs::read_dir(recording.parent().unwrap()).unwrap().count(), 1, "no other file");
    }

    #[test]
    fn while_another_one_writes_nothing_is_thinned() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let mut cache = Cache::of(&recording).unwrap();
        cache.add(About::Index(Vec::new()), b"data");
        let writes = File::open(&cache.path).unwrap();
        writes.lock().unwrap();
        assert!(!cache.thin(|_| false) && cache.is_writable());
        assert_eq!(Cache::of(&recording).unwrap().records().len(), 1);
        give_back(&writes);
        assert!(cache.thin(|_| false));
        assert!(cache.records().is_empty() && Cache::of(&recording).unwrap().records().is_empty());
        cache.add(About::Index(Vec::new()), b"next");
        assert_eq!(Cache::of(&recording).unwrap().records().len(), 1);
    }

    #[test]
    fn what_one_has_begun_anew_is_not_begun_anew_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let open = || Cache::of(&recording).unwrap();
        open().add(About::Index(Vec::new()), b"of a recording before");
        let (mut one, mut other) = (open(), open());
        one.begin_anew();
        other.begin_anew();
        one.add(About::Report(Vec::new()), b"first");
        other.add(About::Report(Vec::new()), b"second");
        assert_eq!((other.records().len(), open().records().len()), (2, 2));
    }

    #[test]
    fn a_record_that_is_read_alone_is_lost_alone() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let mut cache = Cache::of(&recording).unwrap();
        cache.add(About::Index(Vec::new()), b"first");
        cache.add(About::Report(Vec::new()), b"second");
        let records = cache.records().to_vec();
        let file = OpenOptions::new().write(true).open(&cache.path).unwrap();
        file.write_all_at(b"x", records[1].at).unwrap();
        assert_eq!((cache.data_alone(&records[1]), cache.records().len()), (None, 2));
        assert_eq!(cache.data_alone(&records[0]), Some(b"first".to_vec()));
        assert_eq!((cache.data(&records[1]), cache.records().len()), (None, 0));
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        for before in [None, Some("a line")] {
            if let Some(text) = before {
                std::fs::write(&elsewhere, text).unwrap();
            }
            let mut cache = Cache::of(&recording).unwrap();
            drop(std::fs::remove_file(&cache.path));
            std::os::unix::fs::symlink(&elsewhere, &cache.path).unwrap();
            cache.add(About::Index(Vec::new()), b"data");
            assert!(!cache.is_writable());
            assert_eq!(std::fs::read_to_string(&elsewhere).ok().as_deref(), before);
        }
    }

    /// A process that is being started has all files of this one open for a moment, and with them their locks.
    #[test]
    fn each_record_is_kept_while_processes_are_started() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().unwrap()).unwrap();
        let mut cache = Cache::of(&recording).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    Command::new("true").stdin(Stdio::null()).status().unwrap();
                }
            });
            for _ in 0..300 {
                cache.add(About::Index(Vec::new()), b"data");
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(cache.records().len(), 300);
        assert_eq!(Cache::of(&recording).unwrap().records().len(), 300);
    }
}
