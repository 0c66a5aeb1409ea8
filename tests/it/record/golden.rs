//! Recordings of each version of the format, checked in with the events that they hold: what an older version wrote is read
//! for ever. `tests/fixtures/recordings/make-old` writes those of formats 1 and 2.

use std::collections::BTreeSet;
use std::path::PathBuf;

use hvtui::domain::event::Envelope;
use hvtui::domain::outcome::RunEnd;
use hvtui::record::{FORMAT, Integrity, Reader};

use super::{read, write};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings").join(name)
}

/// The events that a recording of this format holds: one JSON object a line.
fn events_of(format: u32) -> Vec<Envelope> {
    let text = std::fs::read_to_string(fixture(&format!("format-{format}.jsonl"))).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn recordings_of_every_format_are_read_as_they_were_written() {
    for format in 1..=FORMAT {
        let path = fixture(&format!("format-{format}.mcap"));
        let bytes =
            std::fs::read(&path).unwrap_or_else(|error| panic!("no recording of format {format}: {error}"));
        let version = [b"format\x01\0\0\0", format.to_string().as_bytes()].concat();
        assert!(bytes.windows(version.len()).any(|part| part == version), "format {format} is another");
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.integrity(), &Integrity::Complete, "format {format}");
        let (read, told) = (read(&reader), events_of(format));
        for (read, told) in read.iter().zip(&told) {
            assert_eq!(read, told, "format {format}");
        }
        assert_eq!(read.len(), told.len(), "format {format}");
        let outcome = reader.outcome().unwrap();
        assert_eq!((outcome.end, outcome.exit_code()), (RunEnd::Failed, 3), "format {format}");
        assert_eq!(reader.spec().unwrap().name, "digits");
    }
}

/// Every kind of event that is recorded, by its name there.
const KINDS: [&str; 30] = [
    "attached",
    "clock_sampled",
    "collective_done",
    "collectives_told",
    "gap",
    "gpu_happened",
    "host_described",
    "host_sampled",
    "job_described",
    "job_done",
    "leases_told",
    "link_changed",
    "log_gap",
    "log_printed",
    "log_unfinished",
    "metric_reported",
    "rank_exited",
    "rank_met",
    "rank_stands",
    "rank_started",
    "rank_waits",
    "reports_read",
    "run_created",
    "run_ended",
    "run_noted",
    "run_restarted",
    "stage_entered",
    "step_done",
    "step_seen",
    "steps_by",
];

#[test]
fn what_is_written_today_reads_as_the_recording_that_was_checked_in() {
    let told = events_of(FORMAT);
    let kinds: BTreeSet<String> = told
        .iter()
        .map(|envelope| serde_json::to_value(envelope).unwrap()["event"]["type"].as_str().unwrap().to_owned())
        .collect();
    assert!(KINDS.iter().all(|kind| kinds.contains(*kind)), "{kinds:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    write(&path, &told);
    assert_eq!(read(&Reader::open(&path).unwrap()), told);
    // for a new format: the file is written once, and then stays
    let kept = fixture(&format!("format-{FORMAT}.mcap"));
    if std::env::var_os("HVTUI_WRITE_GOLDEN").is_some() && !kept.exists() {
        std::fs::copy(&path, &kept).unwrap();
    }
}

#[test]
fn the_page_describes_the_format_that_is_written() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/formats/recording.md");
    let page = std::fs::read_to_string(page).unwrap();
    let heading = page.lines().next().unwrap();
    assert_eq!(heading, format!("# The recording: `run.mcap`, format {FORMAT}"));
}
