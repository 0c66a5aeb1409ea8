use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use rustix::fs::{CWD, FileType, Mode};

use super::*;
use crate::domain::ids::Rank;
use crate::domain::options::RunOptions;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{JobKind, Placement, Slot};
use crate::record::Reader;
use crate::tui::source::finishing::Finishing;

/// A folder for recordings whose disk stands still for a run until its [`gate`](Still::gate) is read.
struct Still {
    state: tempfile::TempDir,
    run: RunId,
}

impl Still {
    fn new() -> Self {
        let still = Self { state: tempfile::tempdir().unwrap(), run: RunId::new(1, 1) };
        std::fs::create_dir_all(still.gate().parent().unwrap()).unwrap();
        // a pipe is not opened before there is a reader
        rustix::fs::mknodat(CWD, still.gate(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        still
    }

    fn path(&self) -> PathBuf {
        Store::new(self.state.path()).path_of(&self.run)
    }

    fn gate(&self) -> PathBuf {
        self.path().with_file_name("lock")
    }

    /// Lets the disk go on as soon as it is dropped: whatever waits for it ends also where a test fails.
    fn opener(&self) -> Opener {
        Opener(self.gate())
    }

    fn spec(&self) -> RunSpec {
        RunSpec {
            code: None,
            id: self.run.clone(),
            name: "still".into(),
            kind: JobKind::Plain,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            workdir: None,
            placements: vec![Placement {
                rank: Rank(0),
                host: HostId::from("a"),
                local_rank: 0,
                slot: Slot::Cpu { index: 0 },
                more: Vec::new(),
            }],
            created: Stamp(1),
            options: RunOptions::default(),
        }
    }

    /// Records a run from its beginning to its end.
    fn record(&self) -> Recorded {
        let session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let mut recorded = Recorded::new(session, self.state.path());
        let outcome = RunOutcome {
            end: RunEnd::Stopped,
            refusal: None,
            root: None,
            code: None,
            at: None,
            summary: "stopped".to_owned(),
        };
        let events =
            [Event::RunCreated { spec: std::sync::Arc::new(self.spec()) }, Event::RunEnded { outcome }];
        for (seq, event) in (0..).zip(events) {
            let origin = Origin::Run(self.run.clone());
            let envelope = Envelope { seq, at: Stamp(1), origin, event };
            recorded.take(Output::Event(Box::new(envelope)));
        }
        recorded
    }
}

struct Opener(PathBuf);

impl Drop for Opener {
    fn drop(&mut self) {
        // waits until there is a writer, which then goes on
        drop(std::fs::File::open(&self.0));
    }
}

#[tokio::test]
async fn neither_the_beginning_nor_the_end_of_a_recording_waits_for_the_disk() {
    let still = Still::new();
    let mut recorded = still.record();
    let opened = still.opener();
    assert!(!still.path().exists(), "the disk stands still");
    assert_eq!(recorded.trouble(), None);
    while recorded.try_next().is_some() {}
    assert!(recorded.is_recorded(&still.run));
    let mut finishing = Finishing::default();
    finishing.take(&mut recorded);
    let words = finishing.words().unwrap();
    assert!(words.contains(&format!("to be written to {}; ctrl-c", still.path().display())), "{words}");
    // what is done with recordings from now on waits for this one
    let (so_far, passed) = (finishing.so_far(), std::sync::mpsc::channel());
    let waiting = std::thread::spawn(move || {
        so_far.wait();
        passed.0.send(()).unwrap();
    });
    assert!(passed.1.recv_timeout(Duration::from_millis(50)).is_err());
    assert!(finishing.next().now_or_never().is_none());
    drop(opened);
    recorded.finished(finishing.next().await);
    waiting.join().unwrap();
    passed.1.try_recv().unwrap();
    assert_eq!((recorded.trouble(), finishing.words()), (None, None));
    finishing.so_far().wait();
    let reader = Reader::open(&still.path()).unwrap();
    assert_eq!(reader.outcome().map(|outcome| outcome.end), Some(RunEnd::Stopped));
    assert!(reader.integrity().damage().is_none());
}

#[tokio::test]
async fn a_recording_that_could_not_be_begun_is_told_once() {
    let still = Still::new();
    std::fs::write(still.path(), "something else").unwrap();
    let mut recorded = still.record();
    let mut finishing = Finishing::default();
    finishing.take(&mut recorded);
    recorded.finished(finishing.next().await);
    let trouble = recorded.trouble().unwrap();
    assert!(trouble.contains("is not recorded: ") && trouble.contains("is there already"), "{trouble}");
    assert!(recorded.trouble().is_none() && !recorded.is_recorded(&still.run));
}
