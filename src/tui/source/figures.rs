//! Tells the figures of parts of a recording, read on a thread of its own: a long way through a large recording delays neither a
//! key nor the playhead. Of questions that came meanwhile only the newest is answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tokio::sync::mpsc as told;

use crate::clock;
use crate::domain::time::Stamp;
use crate::record::{Reader, Study};
use crate::tui::core::{Analyzed, Msg};

/// How often it is told how far the reading is, microseconds.
const TELL_EVERY_US: u64 = 200_000;

/// So long a question is read on although there is a newer one, microseconds: a selection that ends at a playing playhead is
/// another one twenty times a second, and its figures are to be seen all the same.
const READ_ON_US: u64 = 500_000;

/// No question has this number.
const CLOSED: u64 = u64::MAX;

/// A part that is asked for: the question's number, from when, to when.
type Question = (u64, Stamp, Stamp);

/// The thread that reads; it begins with the first question.
#[derive(Debug)]
pub(super) struct FiguresDesk {
    path: PathBuf,
    questions: Option<Sender<Question>>,
    /// The number of the newest question; [`CLOSED`] when no more are asked.
    newest: Arc<AtomicU64>,
    answers: told::Sender<Vec<Msg>>,
}

impl FiguresDesk {
    pub(super) fn new(path: PathBuf, answers: told::Sender<Vec<Msg>>) -> Self {
        Self { path, questions: None, newest: Arc::default(), answers }
    }

    /// Asks for the figures of what happened after `from`, up to and including `to`.
    ///
    /// # Errors
    /// Why there is no thread for it.
    pub(super) fn ask(&mut self, from: Stamp, to: Stamp) -> Result<(), String> {
        let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        if self.questions.is_none() {
            let (sender, questions) = channel();
            let (path, newest) = (self.path.clone(), Arc::clone(&self.newest));
            let answers = self.answers.clone();
            let work = move || answer(&path, &questions, &newest, &answers);
            let spawned = thread::Builder::new().name("figures".to_owned()).spawn(work);
            spawned.map_err(|error| format!("start the thread for figures: {error}"))?;
            self.questions = Some(sender);
        }
        let sent = self.questions.as_ref().map(|questions| questions.send((number, from, to)));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err("the thread for figures has ended".to_owned()) }
    }
}

impl Drop for FiguresDesk {
    fn drop(&mut self) {
        self.newest.store(CLOSED, Ordering::Relaxed);
    }
}

fn answer(path: &Path, questions: &Receiver<Question>, newest: &AtomicU64, answers: &told::Sender<Vec<Msg>>) {
    let mut study = None;
    for (number, from, to) in questions {
        let is_wanted = || newest.load(Ordering::Relaxed) == number;
        if !is_wanted() {
            continue;
        }
        let tell = |told: Analyzed| answers.blocking_send(vec![Msg::Analyzed { from, to, told }]).is_ok();
        if study.is_none() {
            match open(path) {
                Ok(opened) => study = Some(opened),
                Err(why) => {
                    if !tell(Analyzed::Failed(why)) {
                        return;
                    }
                    continue;
                }
            }
        }
        let Some(study) = &mut study else { continue };
        if let Err(error) = study.read_on()
            && !tell(Analyzed::Failed(error.to_string()))
        {
            return;
        }
        let begun = clock::host_now().0;
        let mut last = begun;
        let goes_on = |share: f64| {
            let now = clock::host_now().0;
            let is_young = now.saturating_sub(begun) < READ_ON_US;
            let is_wanted = || is_wanted() || (is_young && newest.load(Ordering::Relaxed) != CLOSED);
            if now.saturating_sub(last) >= TELL_EVERY_US {
                last = now;
                return is_wanted() && tell(Analyzed::Reading((share * 100.0) as u8));
            }
            is_wanted()
        };
        let figures = study.figures(from, to, goes_on);
        if figures.is_some_and(|figures| !tell(Analyzed::Done(Arc::new(figures)))) {
            return;
        }
    }
}

fn open(path: &Path) -> Result<Study, String> {
    let reader = Reader::open(path).map_err(|error| error.to_string())?;
    let nameless = || format!("{}: it does not tell which run it is of", path.display());
    Study::new(reader).ok_or_else(nameless)
}
