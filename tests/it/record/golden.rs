//! Recordings of each version of the format, checked in with the events that they hold: what an older version wrote is read
//! for ever. `tests/fixtures/recordings/make-old` writes those of formats 1 and 2. What came to a format later, without a
//! new number, has a recording of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::outcome::RunEnd;
use hvtui::record::{FORMAT, Integrity, Reader};

use super::{read, write};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings").join(name)
}

/// The recordings of a format.
fn recordings(format: u32) -> Vec<String> {
    let later: &[&str] = if format == 3 { &["-workers"] } else { &[] };
    [""].iter().chain(later).map(|more| format!("format-{format}{more}")).collect()
}

/// The events that a recording holds: one JSON object a line.
fn events_of(name: &str) -> Vec<Envelope> {
    let text = std::fs::read_to_string(fixture(&format!("{name}.jsonl"))).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn recordings_of_every_format_are_read_as_they_were_written() {
    for format in 1..=FORMAT {
        for name in recordings(format) {
            let path = fixture(&format!("{name}.mcap"));
            let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("no recording {name}: {error}"));
            let version = [b"format\x01\0\0\0", format.to_string().as_bytes()].concat();
            assert!(bytes.windows(version.len()).any(|part| part == version), "{name} is of another format");
            let reader = Reader::open(&path).unwrap();
            assert_eq!(reader.integrity(), &Integrity::Complete, "{name}");
            let (read, told) = (read(&reader), events_of(&name));
            for (read, told) in read.iter().zip(&told) {
                assert_eq!(read, told, "{name}");
            }
            assert_eq!(read.len(), told.len(), "{name}");
            let outcome = reader.outcome().unwrap();
            assert_eq!((outcome.end, outcome.exit_code()), (RunEnd::Failed, 3), "{name}");
            assert_eq!(reader.spec().unwrap().name, "digits");
        }
    }
}

/// Every kind of event, and its name in a recording. A new one does not compile before it stands here, and then wants a
/// recording that has it.
macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        const KINDS: &[&str] = &[$($name),*];

        fn name(event: &Event) -> &'static str {
            match event {
                $(Event::$kind { .. } => $name,)*
            }
        }
    };
}

kinds! {
    Attached "attached",
    ClockSampled "clock_sampled",
    CollectiveDone "collective_done",
    CollectivesTold "collectives_told",
    Gap "gap",
    GpuHappened "gpu_happened",
    HostDescribed "host_described",
    HostSampled "host_sampled",
    JobDescribed "job_described",
    JobDone "job_done",
    LeasesTold "leases_told",
    LinkChanged "link_changed",
    LogGap "log_gap",
    LogPrinted "log_printed",
    LogUnfinished "log_unfinished",
    MetricReported "metric_reported",
    RankExited "rank_exited",
    RankConnected "rank_met",
    RankStands "rank_stands",
    RankStarted "rank_started",
    RankWaits "rank_waits",
    ReportsRead "reports_read",
    RunCreated "run_created",
    RunEnded "run_ended",
    RunNoted "run_noted",
    RunRestarted "run_restarted",
    StageEntered "stage_entered",
    StepDone "step_done",
    StepSeen "step_seen",
    StepsBy "steps_by",
    WaitsTold "waits_told",
}

#[test]
fn what_is_written_today_reads_as_the_recordings_that_were_checked_in() {
    let mut kinds = BTreeSet::new();
    let mut workers = false;
    for recording in recordings(FORMAT) {
        let told = events_of(&recording);
        for envelope in &told {
            assert_eq!(serde_json::to_value(envelope).unwrap()["event"]["type"], name(&envelope.event));
            kinds.insert(name(&envelope.event));
            workers |= matches!(envelope.origin, Origin::Worker(..));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        write(&path, &told);
        assert_eq!(read(&Reader::open(&path).unwrap()), told);
        // for a new one: the file is written once, and then stays
        let kept = fixture(&format!("{recording}.mcap"));
        if std::env::var_os("HVTUI_WRITE_GOLDEN").is_some() && !kept.exists() {
            std::fs::copy(&path, &kept).unwrap();
        }
    }
    let missing: Vec<_> = KINDS.iter().filter(|kind| !kinds.contains(*kind)).collect();
    assert!(missing.is_empty() && workers, "no recording has {missing:?}");
}

#[test]
fn the_page_describes_the_format_that_is_written() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/formats/recording.md");
    let page = std::fs::read_to_string(page).unwrap();
    let heading = page.lines().next().unwrap();
    assert_eq!(heading, format!("# The recording: `run.mcap`, format {FORMAT}"));
}
