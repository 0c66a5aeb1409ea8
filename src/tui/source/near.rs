//! Reads parts of the recordings of runs that go on, on a thread of its own: what their screen shows closely and no longer holds.
//! Of questions that came meanwhile only the newest is answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::domain::ids::RunId;
use crate::domain::phase_window::{PhasePart, PhaseWindow};
use crate::record::{Error, NearReader};
use crate::tui::core::Msg;

/// No question has this number.
const CLOSED: u64 = u64::MAX;

struct Question {
    number: u64,
    run: RunId,
    recording: PathBuf,
    part: PhasePart,
}

type Tell = Arc<dyn Fn(Msg) + Send + Sync>;

/// The thread that reads; it begins with the first question.
pub(super) struct NearDesk {
    tell: Tell,
    questions: Option<Sender<Question>>,
    /// The number of the newest question; [`CLOSED`] when no more are asked.
    newest: Arc<AtomicU64>,
}

impl std::fmt::Debug for NearDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NearDesk")
    }
}

impl NearDesk {
    /// Answers go to `tell`.
    pub(super) fn new(tell: impl Fn(Msg) + Send + Sync + 'static) -> Self {
        Self { tell: Arc::new(tell), questions: None, newest: Arc::default() }
    }

    /// Asks where the time of a run went in a part of it, as this recording tells it.
    pub(super) fn ask(&mut self, run: RunId, recording: PathBuf, part: PhasePart) {
        let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = (run.clone(), part);
        let sent = self.questions().is_some_and(|questions| {
            let question = Question { number, run, recording, part };
            questions.send(question).is_ok()
        });
        if !sent {
            // what is held and the run's history are shown
            (self.tell)(Msg::ReadClosely(asked.0, asked.1, None));
        }
    }

    fn questions(&mut self) -> Option<&Sender<Question>> {
        if self.questions.is_none() {
            let (sender, questions) = channel();
            let (tell, newest) = (Arc::clone(&self.tell), Arc::clone(&self.newest));
            let work = move || answer(&questions, &newest, &tell);
            match thread::Builder::new().name("near".to_owned()).spawn(work) {
                Ok(_) => self.questions = Some(sender),
                Err(error) => tracing::debug!(%error, "no thread to read a recording closely"),
            }
        }
        self.questions.as_ref()
    }
}

impl Drop for NearDesk {
    fn drop(&mut self) {
        self.newest.store(CLOSED, Ordering::Relaxed);
    }
}

fn answer(questions: &Receiver<Question>, newest: &AtomicU64, tell: &Tell) {
    let mut open = None;
    for Question { number, run, recording, part } in questions {
        let is_wanted = || newest.load(Ordering::Relaxed) == number;
        if !is_wanted() {
            continue;
        }
        let told = read(&mut open, &recording, part, is_wanted);
        if told.is_err() {
            // it may be another file by now
            open = None;
        }
        let told = told.unwrap_or_else(|error| {
            tracing::debug!(%error, "a recording is not read closely");
            None
        });
        if is_wanted() {
            tell(Msg::ReadClosely(run, part, told.map(Arc::new)));
        }
    }
}

/// Reads a part of a recording, which stays open for the next one.
fn read(
    open: &mut Option<NearReader>,
    recording: &Path,
    part: PhasePart,
    is_wanted: impl Fn() -> bool,
) -> Result<Option<PhaseWindow>, Error> {
    let known = open.take().filter(|reader| reader.path() == recording);
    let reader = match known {
        Some(reader) => reader,
        None => NearReader::open(recording)?,
    };
    open.insert(reader).read(part, is_wanted)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::domain::analysis::fixtures::{spec, timing};
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::ids::Rank;
    use crate::domain::time::Stamp;
    use crate::record::Writer;

    #[test]
    fn a_part_is_told_and_of_a_run_without_a_recording_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let run = spec(1).id;
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        let envelope = |seq: u64, origin, event| Envelope { seq, at: Stamp(seq as i64), origin, event };
        let created = Event::RunCreated { spec: Arc::new(spec(1)) };
        writer.push(envelope(1, Origin::Run(run.clone()), created)).unwrap();
        for seq in 2..9 {
            let event = Event::StepDone { timing: Arc::new(timing(seq, [100; 6])) };
            writer.push(envelope(seq, Origin::Rank(run.clone(), Rank(0)), event)).unwrap();
        }
        writer.flush().unwrap();
        let (tell, told) = mpsc::channel();
        let mut desk = NearDesk::new(move |msg| drop(tell.send(msg)));
        let part = PhasePart { from: Stamp(2), until: Stamp(100), width_us: 1 };
        let mut next = |recording: PathBuf| {
            desk.ask(run.clone(), recording, part);
            match told.recv_timeout(Duration::from_secs(60)).unwrap() {
                Msg::ReadClosely(of, asked, window) if of == run && asked == part => window,
                other => panic!("{other:?}"),
            }
        };
        let window = next(path.clone()).unwrap();
        assert!(window.has(Rank(0).into()) && window.part().until == Stamp(8));
        assert_eq!(next(folder.path().join("none.mcap")), None);
        assert!(next(path).is_some(), "it is opened again");
    }
}
