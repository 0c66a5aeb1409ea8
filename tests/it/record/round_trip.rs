//! read(write(events)) == events, by the writer and by the recorder, closed or killed.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::{HostId, Rank};
use hvtui::domain::time::Stamp;
use hvtui::domain::world::World;
use hvtui::record::{Integrity, Reader, Recorder, Writer};
use proptest::prelude::*;

use super::events::{START, any_envelopes, run, same, spec};
use super::{assert_refused, read, write};
use crate::common::processes::end_of;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_written_comes_back(envelopes in any_envelopes()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        write(&path, &envelopes);
        let reader = Reader::open(&path).unwrap();
        prop_assert_eq!(reader.integrity(), &Integrity::Complete);
        prop_assert_eq!(reader.envelope_count(), envelopes.len() as u64);
        let back = read(&reader);
        prop_assert!(same(&back, &envelopes), "{back:#?}\n{envelopes:#?}");
    }
}

#[test]
fn a_run_folds_to_the_same_world_and_takes_few_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let envelopes = run(64, 60);
    write(&path, &envelopes);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.spec(), Some(&spec(64)));
    assert_eq!(reader.outcome().unwrap().exit_code(), 0);
    let (mut live, mut replayed) = (World::default(), World::default());
    for envelope in &envelopes {
        live.apply(envelope);
    }
    let back = read(&reader);
    for envelope in &back {
        replayed.apply(envelope);
    }
    assert_eq!(back, envelopes);
    assert!(live == replayed);
    let phases: usize = envelopes
        .iter()
        .map(|envelope| if let Event::StepDone { timing } = &envelope.event { timing.spans.len() } else { 0 })
        .sum();
    let records = envelopes.len() + phases;
    println!(
        "{} envelopes, {phases} spans among them: {} bytes, {:.2} bytes a record",
        envelopes.len(),
        reader.bytes(),
        reader.bytes() as f64 / records as f64
    );
    assert!(reader.bytes() < 12 * records as u64);

    let (from, to) = (Stamp(START + 20_000_000), Stamp(START + 22_000_000));
    let window: Vec<_> = reader.envelopes(from..to).map(Result::unwrap).collect();
    let expected: Vec<_> = envelopes.iter().filter(|e| e.at >= from && e.at < to).cloned().collect();
    assert_eq!(window, expected);
    let lines: Vec<_> = reader.log(Some(Rank(3))).map(Result::unwrap).collect();
    assert_eq!(lines.len(), 60);
    assert!(lines.iter().all(|line| line.line.rank == Rank(3)));
    assert_eq!(reader.log(None).count(), 60 * 64);
}

#[test]
fn a_recorder_writes_a_private_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/runs/x/run.mcap");
    let recorder = Recorder::start(path.clone(), || ()).unwrap();
    while !recorder.status().opened {
        assert_eq!(recorder.status().error, None);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_refused(&path);
    let envelopes = run(4, 5);
    for envelope in &envelopes {
        recorder.send(Arc::new(envelope.clone()));
    }
    let stats = recorder.finish().unwrap();
    assert_eq!((stats.written, stats.dropped), (envelopes.len() as u64, 0));
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.integrity(), &Integrity::Complete);
    assert_eq!(read(&reader), envelopes);
}

#[test]
fn a_line_too_large_for_a_reader_leaves_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let mut envelopes = run(1, 1);
    let large = envelopes.iter().position(|e| matches!(e.event, Event::LogPrinted { .. })).unwrap();
    if let Event::LogPrinted { line } = &mut envelopes[large].event {
        Arc::make_mut(line).text = "x".repeat(17 << 20);
    }
    let recorder = Recorder::start(path.clone(), || ()).unwrap();
    for envelope in &envelopes {
        recorder.send(envelope.clone());
    }
    assert_eq!(recorder.finish().unwrap().dropped, 1);
    envelopes[large].event = Event::Gap { what: "log".into(), dropped: 1 };
    assert_eq!(read(&Reader::open(&path).unwrap()), envelopes);
}

const VICTIM: &str = "HVTUI_TEST_RECORD_TO";

/// Not a test by itself: the process that the next test kills. It says on standard output how much its
/// recorder calls written.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(VICTIM).map(PathBuf::from) else { return };
    let recorder = Recorder::start(path.clone(), || ()).unwrap();
    for (sent, envelope) in run(2, 1_000).into_iter().enumerate() {
        recorder.send(envelope);
        if sent % 20 == 19 {
            println!("written {}", recorder.status().written);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    // its recording is not ended: it waits to be killed, or for the end of the test that started it
    let mut end = String::new();
    std::io::stdin().read_line(&mut end).unwrap();
}

#[test]
fn kill_9_leaves_all_that_was_written() {
    use std::io::BufRead;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "record::round_trip::victim", "--nocapture"])
        .env(VICTIM, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let mut written: usize = 0;
    // held open until the kill: it prints on
    for line in lines.by_ref() {
        if let Some((_, count)) = line.unwrap().split_once("written ") {
            written = count.parse().unwrap();
        }
        if written >= 3_000 {
            break;
        }
    }
    child.kill().unwrap();
    assert_eq!(end_of(&mut child).signal(), Some(9));

    let reader = Reader::open(&path).unwrap();
    assert!(
        matches!(reader.integrity(), Integrity::NotClosed | Integrity::Cut { .. }),
        "{:?}",
        reader.integrity()
    );
    let back = read(&reader);
    assert!(written >= 3_000 && back.len() >= written, "{} of {written}", back.len());
    assert_eq!(back, run(2, 1_000)[..back.len()]);
}

/// The other half of «a kill loses at most a second»: no chunk in the making is longer than 750 ms, and
/// the recorder ends one that has waited 250 ms.
#[test]
fn a_chunk_in_the_making_spans_less_than_a_second() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let mut at = START;
    let mut sent: Vec<i64> = Vec::new();
    for seq in 0..2_000_u64 {
        at += (seq as i64 * 7_919) % 90_000;
        // now and then one is told late; where a clock was set back, the recorder ends the chunk
        let told = if seq % 250 == 249 { at - 40_000_000 } else { at };
        let event = Event::Gap { what: "log".into(), dropped: 1 };
        writer
            .push(Envelope { seq, at: Stamp(told), origin: Origin::Host(HostId::from("a")), event })
            .unwrap();
        sent.push(at);
        let pending = &sent[writer.totals().envelopes as usize..];
        assert!(pending.iter().all(|earlier| told - earlier < 750_000), "{seq}");
    }
    assert_eq!(hvtui::record::recorder::IDLE, Duration::from_millis(250));
}

#[test]
fn a_recorder_ends_a_chunk_that_nothing_follows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let recorder = Recorder::start(path.clone(), || ()).unwrap();
    let all = run(2, 1);
    for envelope in &all {
        recorder.send(envelope.clone());
    }
    // the deadline is the test runner's; the recorder is neither closed nor sent anything more
    while recorder.status().written < all.len() as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // and says what that cost
    let status = recorder.status();
    assert!(status.cpu_us > 0 && status.waiting == 0, "{status:?}");
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.integrity(), &Integrity::NotClosed);
    assert_eq!(read(&reader), all);
}
