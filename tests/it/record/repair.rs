//! Files that were cut, changed or not closed: what the check says of them, and that repaired ones are read by other MCAP
//! readers with all that was good in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hvtui::domain::event::Envelope;
use hvtui::domain::ids::Rank;
use hvtui::record::check::check;
use hvtui::record::closing::{close_unasked, repair, tidy};
use hvtui::record::{Error, FileState, Integrity, Lock, Reader, Recorder};

use super::events::run;
use super::{read, write};

struct Recorded {
    _folder: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Recorded {
    fn new(envelopes: &[Envelope]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        write(&path, envelopes);
        let bytes = std::fs::read(&path).unwrap();
        Self { _folder: folder, path, bytes }
    }

    fn put(&self, bytes: &[u8]) {
        std::fs::write(&self.path, bytes).unwrap();
    }

    fn state(&self) -> FileState {
        check(&self.path, false).files[0].state.clone()
    }

    /// Repairs what is repairable; gives what was kept of it.
    fn repair(&self) -> Option<PathBuf> {
        let lock = Lock::take(&self.path).unwrap();
        let checked = check(&self.path, false);
        repair(&lock, &checked.files[0]).unwrap().kept
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }
}

/// Where the records of a file begin: opcode and place, up to its end.
fn records(bytes: &[u8]) -> Vec<(u8, usize)> {
    let mut at = 8;
    let mut found = Vec::new();
    while at + 9 <= bytes.len() - 8 {
        found.push((bytes[at], at));
        at += 9 + u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
    }
    found.push((0, at));
    found
}

/// What a reader that knows nothing of hvtui finds: messages by topic. It reads by the summary and from the beginning on.
fn stock(path: &Path) -> BTreeMap<String, u64> {
    let bytes = std::fs::read(path).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let statistics = summary.stats.clone().unwrap();
    let mut topics = BTreeMap::new();
    for message in mcap::MessageStream::new(&bytes).unwrap() {
        *topics.entry(message.unwrap().channel.topic.clone()).or_default() += 1;
    }
    let mut indexed = BTreeMap::new();
    for chunk in &summary.chunk_indexes {
        for (channel, entries) in summary.read_message_indexes(&bytes, chunk).unwrap() {
            *indexed.entry(channel.topic.clone()).or_default() += entries.len() as u64;
            for entry in entries {
                let message = summary.seek_message(&bytes, chunk, &entry).unwrap();
                assert_eq!((message.channel.id, message.log_time), (channel.id, entry.log_time));
            }
        }
    }
    assert_eq!(topics, indexed, "the index has every message");
    assert_eq!(statistics.message_count, topics.values().sum::<u64>());
    assert_eq!(statistics.chunk_count as usize, summary.chunk_indexes.len());
    let counted = summary.channels.iter().map(|(id, channel)| {
        (channel.topic.clone(), statistics.channel_message_counts.get(id).copied().unwrap_or(0))
    });
    assert_eq!(counted.filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>(), topics);
    topics
}

#[test]
fn a_file_cut_anywhere_is_closed_with_what_was_there() {
    let all = run(2, 6);
    let recorded = Recorded::new(&all);
    assert_eq!(recorded.state(), FileState::Whole);
    let whole = stock(&recorded.path);
    assert!(whole["/phase"] > 3 && whole["/log/1"] == 6, "{whole:?}");
    let places = records(&recorded.bytes).into_iter().flat_map(|(_, at)| [at - 1, at, at + 1]);
    for cut in places.filter(|cut| *cut < recorded.bytes.len()) {
        recorded.put(&recorded.bytes[..cut]);
        let state = recorded.state();
        assert!(state.is_repairable(), "cut at {cut}: {state:?}");
        assert!(!matches!(state, FileState::Damaged { .. } | FileState::BadIndex), "cut at {cut}: {state:?}");
        let before = Reader::open(&recorded.path).map(|reader| read(&reader)).unwrap_or_default();
        assert_eq!(before, all[..before.len()], "cut at {cut}");
        assert_eq!(recorded.repair(), None, "cut at {cut}");
        assert_eq!(recorded.state(), FileState::Whole, "cut at {cut}");
        let reader = Reader::open(&recorded.path).unwrap();
        assert_eq!((reader.integrity(), read(&reader)), (&Integrity::Complete, before), "cut at {cut}");
        stock(&recorded.path);
    }
    assert!(!recorded.beside("run.mcap.part").exists() && !recorded.beside("run.mcap.damaged").exists());
}

#[test]
fn a_file_that_lost_its_end_alone_comes_out_as_its_writer_made_it() {
    let recorded = Recorded::new(&run(3, 5));
    let end = records(&recorded.bytes).into_iter().find(|(opcode, _)| *opcode == 0x0f).unwrap().1;
    let last_index = records(&recorded.bytes).into_iter().rfind(|(opcode, _)| *opcode == 0x07).unwrap().1;
    for cut in [end, last_index, recorded.bytes.len() - 1] {
        recorded.put(&recorded.bytes[..cut]);
        recorded.repair();
        assert!(std::fs::read(&recorded.path).unwrap() == recorded.bytes, "cut at {cut}");
    }
}

#[test]
fn every_changed_byte_is_found_and_what_is_good_is_kept() {
    let all = run(2, 6);
    let recorded = Recorded::new(&all);
    let mut kept = 0;
    for at in (27..recorded.bytes.len()).step_by(131) {
        let mut bytes = recorded.bytes.clone();
        bytes[at] ^= 0x10;
        recorded.put(&bytes);
        let (state, before) = (recorded.state(), read(&Reader::open(&recorded.path).unwrap()));
        assert!(state.is_repairable(), "byte {at}: {state:?}");
        let damaged = recorded.repair();
        assert_eq!(damaged.is_some(), matches!(state, FileState::Damaged { .. }), "byte {at}: {state:?}");
        if let Some(damaged) = damaged {
            assert!(std::fs::read(&damaged).unwrap() == bytes, "byte {at}");
            std::fs::remove_file(damaged).unwrap();
            kept += 1;
        }
        assert_eq!(recorded.state(), FileState::Whole, "byte {at}");
        assert_eq!(read(&Reader::open(&recorded.path).unwrap()), before, "byte {at}");
        stock(&recorded.path);
    }
    assert!(kept > 5, "only {kept} of the changes hit a chunk");
}

#[test]
fn a_lost_chunk_is_told_with_its_steps_and_output_and_its_channels_are_made_anew() {
    let all = run(2, 6);
    let recorded = Recorded::new(&all);
    let chunks: Vec<usize> =
        records(&recorded.bytes).into_iter().filter(|(opcode, _)| *opcode == 6).map(|(_, at)| at).collect();
    // one in the middle, and the one that has the records of most channels
    for (number, telling) in [(chunks.len() / 2, true), (1, false)] {
        let mut bytes = recorded.bytes.clone();
        let at = chunks[number];
        bytes[at + 60..at + 90].fill(0);
        // without the summary nothing else tells of the channels
        let end = records(&recorded.bytes).into_iter().find(|(opcode, _)| *opcode == 0x0f).unwrap().1;
        bytes.truncate(end);
        recorded.put(&bytes);
        let checked = check(&recorded.path, false);
        assert_eq!(checked.losses.len(), 1, "{:?}", checked.losses);
        let loss = &checked.losses[0];
        assert_eq!(loss.at_byte, at as u64);
        assert!(loss.from.is_some() && loss.from < loss.to && loss.events.is_some_and(|events| events > 0));
        let kept = read(&Reader::open(&recorded.path).unwrap());
        assert_eq!(loss.events, Some((all.len() - kept.len()) as u64));
        if telling {
            let steps: Vec<Rank> = loss.steps.iter().map(|(rank, ..)| *rank).collect();
            assert_eq!(steps, [Rank(0), Rank(1)], "{loss:?}");
        }
        let damaged = recorded.repair().unwrap();
        assert!(std::fs::read(&damaged).unwrap() == bytes);
        assert_eq!(read(&Reader::open(&recorded.path).unwrap()), kept);
        let topics = stock(&recorded.path);
        assert!(topics["/phase"] > 3 && topics["/gpu"] > 3 && topics["/log/1"] > 3, "{topics:?}");
        std::fs::remove_file(damaged).unwrap();
    }
}

#[test]
fn an_unfinished_chunk_goes_and_what_is_no_recording_stays() {
    let recorded = Recorded::new(&run(2, 4));
    let mut bytes = recorded.bytes[..recorded.bytes.len() / 2].to_vec();
    bytes.push(0x06);
    bytes.extend([0xff; 8]);
    bytes.extend([0; 16]);
    bytes.extend([0xff; 12]);
    bytes.extend(b"\x04\0\0\0zstd");
    bytes.extend([0xff; 8]);
    recorded.put(&bytes);
    let before = read(&Reader::open(&recorded.path).unwrap());
    assert!(matches!(recorded.state(), FileState::Cut { until: Some(_), .. }), "{:?}", recorded.state());
    recorded.repair();
    assert_eq!(read(&Reader::open(&recorded.path).unwrap()), before);

    for other in [&[0; 4096][..], b"not a recording at all"] {
        recorded.put(other);
        assert_eq!(recorded.state(), FileState::NotARecording);
    }
    // its client was killed before the first event
    for begun in [0, 5, 8, 20] {
        recorded.put(&recorded.bytes[..begun]);
        assert_eq!(recorded.state(), FileState::Empty, "{begun}");
        recorded.repair();
        assert_eq!((recorded.state(), stock(&recorded.path).len()), (FileState::Whole, 0));
    }
}

#[test]
fn a_damaged_beginning_is_repaired() {
    let recorded = Recorded::new(&run(2, 4));
    let all = read(&Reader::open(&recorded.path).unwrap());
    for at in [0, 7, 8, 12, 22] {
        let mut bytes = recorded.bytes.clone();
        bytes[at] ^= 0x10;
        recorded.put(&bytes);
        assert!(recorded.state() != FileState::Whole, "byte {at}");
        recorded.repair();
        assert!(recorded.state() == FileState::Whole && read(&Reader::open(&recorded.path).unwrap()) == all);
        assert!(!stock(&recorded.path).is_empty(), "other readers open it");
    }
}

#[test]
fn a_repair_that_was_killed_leaves_the_file_and_the_next_one_removes_its_copy() {
    let recorded = Recorded::new(&run(2, 4));
    let cut = &recorded.bytes[..recorded.bytes.len() / 2];
    recorded.put(cut);
    let part = recorded.beside("run.mcap.part");
    std::fs::write(&part, &recorded.bytes[..100]).unwrap();
    assert!(Reader::open(&recorded.path).is_ok(), "readers know nothing of it");
    recorded.repair();
    assert!(!part.exists());
    std::fs::write(&part, b"again").unwrap();
    tidy(&Lock::take(&recorded.path).unwrap());
    assert!(!part.exists());

    // no room for the copy: here no user can make the file
    recorded.put(cut);
    std::fs::create_dir(&part).unwrap();
    let lock = Lock::take(&recorded.path).unwrap();
    let refused = repair(&lock, &check(&recorded.path, false).files[0]);
    assert!(matches!(refused, Err(Error::File { .. })), "{refused:?}");
    assert!(std::fs::read(&recorded.path).unwrap() == cut);
}

#[test]
fn each_file_of_a_recording_is_closed_by_who_takes_the_run_up() {
    let all = run(2, 8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs/x/run.mcap");
    let go_on = |envelopes: &[Envelope]| {
        let recorder = Recorder::resume(Lock::take(&path).unwrap()).unwrap();
        for envelope in envelopes {
            recorder.send(envelope.clone());
        }
        recorder.finish().unwrap();
    };
    go_on(&all[..all.len() / 2]);
    let bytes = std::fs::read(&path).unwrap();
    let chunk = records(&bytes).into_iter().filter(|(opcode, _)| *opcode == 6).nth(2).unwrap().1;
    std::fs::write(&path, &bytes[..chunk + 30]).unwrap();
    let kept = read(&Reader::open(&path).unwrap()).len();
    go_on(&all[kept..]);
    let states = || check(&path, false).files.into_iter().map(|file| file.state).collect::<Vec<_>>();
    assert!(matches!(states()[..], [FileState::Cut { .. }, FileState::Whole]), "{:?}", states());
    assert_eq!(check(&path, true).files[1].state, FileState::Written);
    close_unasked(&Lock::take(&path).unwrap());
    assert_eq!(states(), [FileState::Whole, FileState::Whole]);
    assert_eq!(read(&Reader::open(&path).unwrap()), all);
    assert!(check(&path, false).losses.is_empty());

    // what is damaged is not touched unasked
    let mut bytes = std::fs::read(&path).unwrap();
    let chunk = records(&bytes).into_iter().filter(|(opcode, _)| *opcode == 6).nth(1).unwrap().1;
    bytes[chunk + 70] ^= 1;
    bytes.truncate(bytes.len() - 3);
    std::fs::write(&path, &bytes).unwrap();
    close_unasked(&Lock::take(&path).unwrap());
    assert!(std::fs::read(&path).unwrap() == bytes);
}
