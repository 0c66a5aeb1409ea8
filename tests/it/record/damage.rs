//! What is left of a recording that was cut, changed, or never was one.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use hvtui::record::{Error, Integrity, Reader};
use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;
use proptest::prelude::*;
use serde_json::json;

use super::events::{START, any_envelopes, run};
use super::{read, write};

fn recorded() -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    write(&path, &run(3, 12));
    let bytes = std::fs::read(&path).unwrap();
    (folder, path, bytes)
}

#[test]
fn a_cut_recording_opens_up_to_the_cut() {
    let (_folder, path, bytes) = recorded();
    let all = run(3, 12);
    for cut in (0..bytes.len()).step_by(97) {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        match Reader::open(&path) {
            Err(Error::NotARecording(_)) => assert!(cut < 80, "cut at {cut}"),
            Err(error) => panic!("cut at {cut}: {error}"),
            Ok(reader) => {
                let back = read(&reader);
                assert_eq!(back, all[..back.len()], "cut at {cut}");
                assert!(
                    !matches!(reader.integrity(), Integrity::Complete | Integrity::Damaged { .. }),
                    "cut at {cut}"
                );
            }
        }
    }
    // one of two neighbours is not the end of a chunk
    let words = [0, 1].into_iter().find_map(|more| {
        std::fs::write(&path, &bytes[..bytes.len() / 2 + more]).unwrap();
        Reader::open(&path).unwrap().integrity().damage()
    });
    let words = words.unwrap();
    assert!(words.starts_with("recording is cut at ") && words.contains(": opened up to "), "{words}");
}

#[test]
fn one_changed_byte_costs_at_most_one_chunk() {
    let (_folder, path, bytes) = recorded();
    let all = run(3, 12);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let largest_chunk = all.len() / 6;
    let mut damaged = 0;
    for at in (200..bytes.len()).step_by(53) {
        file.write_all_at(&[bytes[at] ^ 0x10], at as u64).unwrap();
        let reader = Reader::open(&path).unwrap();
        let back = read(&reader);
        assert!(back.iter().all(|envelope| {
            all.binary_search_by_key(&envelope.seq, |e| e.seq).is_ok_and(|i| all[i] == *envelope)
        }));
        assert!(all.len() - back.len() <= largest_chunk, "byte {at}: {} of {} left", back.len(), all.len());
        if back.len() < all.len() {
            damaged += 1;
            assert!(
                matches!(reader.integrity(), Integrity::Damaged { .. }),
                "byte {at}: {:?}",
                reader.integrity()
            );
        }
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    }
    assert!(damaged > 10, "only {damaged} of the changes hit a chunk");
}

/// The chunks of a large file are looked at side by side.
#[test]
fn of_many_chunks_one_that_is_damaged_is_left_out_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let all = run(2, 400);
    write(&path, &all);
    let bytes = std::fs::read(&path).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert!(read(&reader) == all && *reader.integrity() == Integrity::Complete);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for share in 1..8 {
        let at = bytes.len() * share / 8;
        file.write_all_at(&[bytes[at] ^ 0x10], at as u64).unwrap();
        let reader = Reader::open(&path).unwrap();
        let back = read(&reader);
        assert!(back.iter().all(|envelope| {
            all.binary_search_by_key(&envelope.seq, |e| e.seq).is_ok_and(|i| all[i] == *envelope)
        }));
        assert!(back.len() <= all.len() && all.len() - back.len() <= all.len() / 200, "{}", back.len());
        let damaged_at = match reader.integrity() {
            Integrity::Damaged { chunks: 1, at_byte, .. } => Some(*at_byte),
            _ => None,
        };
        // the length before a chunk is known from the index, too: it costs nothing, and is told
        let is_length = damaged_at.is_some_and(|chunk| (chunk + 1..chunk + 9).contains(&(at as u64)));
        let is_lost = back.len() < all.len();
        assert_eq!(damaged_at.is_some(), is_lost || is_length, "byte {at}: {:?}", reader.integrity());
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    }
}

#[test]
fn a_changed_byte_at_the_beginning_costs_nothing_but_is_told() {
    let (_folder, path, bytes) = recorded();
    let all = run(3, 12);
    for at in 0..60 {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        std::fs::write(&path, changed).unwrap();
        let reader = Reader::open(&path).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert!(read(&reader) == all, "byte {at}");
        // the library that wrote it is named there too
        assert!(at >= 26 || matches!(reader.integrity(), Integrity::Damaged { .. }), "byte {at} is not told");
    }
    // what is none stays none
    std::fs::write(&path, &bytes[..26]).unwrap();
    assert!(matches!(Reader::open(&path), Err(Error::NotARecording(_))));
}

#[test]
fn a_chunk_that_was_never_finished_is_left_out() {
    let (_folder, path, mut bytes) = recorded();
    let second_half = bytes.len() / 2;
    bytes.truncate(second_half);
    // as a writer that seeks would leave it: opcode, then lengths that say «not yet»
    bytes.push(0x06);
    bytes.extend([0xff; 8]);
    bytes.extend([0; 16]);
    bytes.extend([0xff; 12]);
    bytes.extend(b"\x04\0\0\0zstd");
    bytes.extend([0xff; 8]);
    bytes.extend([0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3]);
    std::fs::write(&path, &bytes).unwrap();
    let reader = Reader::open(&path).unwrap();
    let back = read(&reader);
    assert_eq!(back, run(3, 12)[..back.len()]);
    assert!(back.len() > 100);
}

/// No bit of the beginning has a CRC, and none of them is needed.
#[test]
fn one_changed_bit_before_the_first_chunk_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let all = run(1, 2);
    write(&path, &all);
    let bytes = std::fs::read(&path).unwrap();
    // magic, header and metadata
    let mut first = 8;
    while bytes[first] != 6 {
        first += 9 + u64::from_le_bytes(bytes[first + 1..first + 9].try_into().unwrap()) as usize;
    }
    assert!((60..300).contains(&first), "{first}");
    let format = bytes.windows(10).position(|window| window == b"format\x01\0\0\0").unwrap() + 10;
    for (at, bit) in (0..first).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = bytes.clone();
        changed[at] ^= 1_u8 << bit;
        std::fs::write(&path, &changed).unwrap();
        let reader = Reader::open(&path).unwrap_or_else(|error| panic!("byte {at}, bit {bit}: {error}"));
        assert!(read(&reader) == all, "byte {at}, bit {bit}");
        // 3 becomes 7
        let is_damaged = matches!(reader.integrity(), Integrity::Damaged { .. });
        assert!((at, bit) != (format, 2) || is_damaged, "{:?}", reader.integrity());
    }
}

/// A recording of a later version: of format 9, as its chunk tells, too. All else in it could be read here.
pub(crate) fn of_a_later_version() -> Vec<u8> {
    let mut writer = mcap::WriteOptions::new()
        .profile("hvtui")
        .library("hvtui 9.0.0")
        .compression(Some(mcap::Compression::Zstd))
        .compression_threads(0)
        .chunk_size(None)
        .disable_seeking(true)
        .create(NoSeek::new(Vec::new()))
        .unwrap();
    let metadata = BTreeMap::from([("format".to_owned(), "9".to_owned())]);
    writer.write_metadata(&Metadata { name: "hvtui".to_owned(), metadata }).unwrap();
    writer.add_channel_with_id(1, 0, "/chunk", "json", &BTreeMap::new()).unwrap();
    let note = json!({
        "first_seq": 1, "last_seq": 1, "start": START, "end": START, "envelopes": 1, "format": 9
    });
    let header = MessageHeader { channel_id: 1, sequence: 0, log_time: 0, publish_time: 0 };
    writer.write_to_known_channel(&header, note.to_string().as_bytes()).unwrap();
    writer.finish().unwrap();
    writer.into_inner().into_inner()
}

#[test]
fn a_later_format_is_named() {
    let (_folder, path, bytes) = recorded();
    let later = of_a_later_version();
    std::fs::write(&path, &later).unwrap();
    let error = Reader::open(&path).unwrap_err();
    assert!(matches!(error, Error::Newer { found: 9, .. }), "{error}");
    assert!(error.to_string().contains("update hvtui"));
    // before its first chunk, and where that is damaged, the number at its beginning alone tells it
    let chunk = later.windows(8).position(|window| window == b"\x04\0\0\0zstd").unwrap() - 37;
    let mut damaged = later.clone();
    damaged[chunk + 80] ^= 0x10;
    // where all before the chunk is damaged, the chunk alone
    let mut begun = later.clone();
    begun[0] ^= 1;
    for left in [&later[..chunk], &damaged[..], &begun[..]] {
        std::fs::write(&path, left).unwrap();
        assert!(matches!(Reader::open(&path), Err(Error::Newer { found: 9, .. })), "{} bytes", left.len());
    }
    // a number that was changed: the chunks are of a version that is known
    let at = bytes.windows(10).position(|window| window == b"format\x01\0\0\0").unwrap();
    let mut changed = bytes;
    changed[at + 10] = b'9';
    std::fs::write(&path, &changed).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert!(read(&reader) == run(3, 12) && matches!(reader.integrity(), Integrity::Damaged { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn nothing_makes_a_reader_panic(
        envelopes in any_envelopes(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in option(any::<prop::sample::Index>()),
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        fakes in proptest::collection::vec(fake_chunk(), 0..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        write(&path, &envelopes);
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(noise);
        bytes.extend(fakes.concat());
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(reader) = Reader::open(&path) {
            for envelope in reader.envelopes(..) {
                let _ = envelope;
            }
            let _ = reader.integrity().damage();
        }
    }
}

/// What looks like the head of a chunk and lies about its lengths.
fn fake_chunk() -> impl Strategy<Value = Vec<u8>> {
    let length = || prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX - 43), 0_u64..500, any::<u64>()];
    (length(), length(), any::<bool>(), length(), proptest::collection::vec(any::<u8>(), 0..200)).prop_map(
        |(body, compressed, agree, uncompressed, data)| {
            let compressed = if agree { body.wrapping_sub(44) } else { compressed };
            let mut bytes = vec![6];
            bytes.extend(body.to_le_bytes());
            bytes.extend([0; 16]);
            bytes.extend(uncompressed.to_le_bytes());
            bytes.extend([1, 2, 3, 4]);
            bytes.extend(b"\x04\0\0\0zstd");
            bytes.extend(compressed.to_le_bytes());
            bytes.extend([0x28, 0xb5, 0x2f, 0xfd]);
            bytes.extend(data);
            bytes
        },
    )
}

fn option<T: Strategy>(of: T) -> impl Strategy<Value = Option<T::Value>> {
    proptest::option::of(of)
}

/// The middle of the last chunk before the middle of a file: what lies between chunks costs nothing.
fn within_a_chunk(bytes: &[u8]) -> usize {
    const MAGIC: usize = 8;
    const CHUNK: u8 = 6;
    let (mut at, mut found) = (MAGIC, None);
    while at < bytes.len() / 2 {
        let length = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
        if bytes[at] == CHUNK {
            found = Some(at + 9 + length / 2);
        }
        at += 9 + length;
    }
    found.expect("a chunk")
}

#[test]
fn the_time_that_a_bad_chunk_has_taken_with_it_is_known() {
    let (_folder, path, mut bytes) = recorded();
    assert_eq!(Reader::open(&path).unwrap().lost(), []);
    let middle = within_a_chunk(&bytes);
    bytes[middle..middle + 200].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert!(matches!(reader.integrity(), Integrity::Damaged { .. }), "{:?}", reader.integrity());
    let &[(from, to)] = reader.lost() else { panic!("{:?}", reader.lost()) };
    let there = read(&reader);
    let missing: Vec<_> =
        run(3, 12).into_iter().filter(|one| there.iter().all(|envelope| envelope.seq != one.seq)).collect();
    assert!(!missing.is_empty());
    assert!(missing.iter().all(|one| from <= one.at && one.at <= to), "{from:?} {to:?}");
    assert!((500_000..2_500_000).contains(&to.micros_since(from)), "{from:?} {to:?}");
}
