//! Reads recordings for the report of a run and the comparison of two, on a thread of its own: a long one takes seconds, in which
//! every key works. What is not wanted any more is not read on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::clock;
use crate::domain::analysis::{Place, findings};
use crate::domain::comparison::{Side, compare};
use crate::record::export::Selection;
use crate::record::{Error, Reader, figures, marks};
use crate::report::{diff_text, text};
use crate::tui::core::{Msg, ReportOf, Reported};

/// How often it is told how far the reading is, microseconds.
const TELL_EVERY_US: u64 = 200_000;

/// Answers one question at a time.
pub(super) struct ReportDesk {
    tell: Arc<dyn Fn(Msg) + Send + Sync>,
    /// The number of the newest question.
    newest: Arc<AtomicU64>,
}

impl std::fmt::Debug for ReportDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReportDesk")
    }
}

impl ReportDesk {
    /// Answers go to `tell`.
    pub(super) fn new(tell: impl Fn(Msg) + Send + Sync + 'static) -> Self {
        Self { tell: Arc::new(tell), newest: Arc::default() }
    }

    /// Asks for the words of a run or of two; `path` tells where a run is recorded.
    pub(super) fn ask(&self, of: ReportOf, path: impl Fn(&crate::domain::ids::RunId) -> PathBuf) {
        let paths: Vec<PathBuf> = of.runs().into_iter().map(path).collect();
        let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, newest) = (Arc::clone(&self.tell), Arc::clone(&self.newest));
        let asked = of.clone();
        let work = move || {
            let is_wanted = || newest.load(Ordering::Relaxed) == number;
            let say = |told: Reported| tell(Msg::ReportTold(asked.clone(), told));
            let mut last = clock::host_now().0;
            let mut goes_on = |share: f64| {
                let now = clock::host_now().0;
                if now.saturating_sub(last) >= TELL_EVERY_US && is_wanted() {
                    last = now;
                    say(Reported::Reading((share * 100.0) as u8));
                }
                is_wanted()
            };
            match words(&paths, &mut goes_on) {
                Ok(Some((words, places))) if is_wanted() => say(Reported::Done(words.into(), places)),
                Ok(_) => {}
                Err(error) => say(Reported::Failed(error.to_string())),
            }
        };
        if let Err(error) = thread::Builder::new().name("report".to_owned()).spawn(work) {
            (self.tell)(Msg::ReportTold(of, Reported::Failed(format!("start the thread for it: {error}"))));
        }
    }

    /// The answer is not wanted any more.
    pub(super) fn leave(&self) {
        self.newest.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for ReportDesk {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The words, and where the findings of a report can be seen.
type Words = (String, Vec<Option<Place>>);

/// What `hvtui report` and `hvtui diff` print; `None` where it is not wanted any more.
fn words(paths: &[PathBuf], goes_on: &mut dyn FnMut(f64) -> bool) -> Result<Option<Words>, Error> {
    let readers = paths.iter().map(|path| figures::open(path)).collect::<Result<Vec<Reader>, _>>()?;
    match readers.as_slice() {
        [reader] => {
            let run = figures::whole(reader, goes_on)?;
            Ok(run.map(|run| {
                // that they can't be read is said where they are listed
                let run = run.with_marks(marks::read(reader.path()).unwrap_or_default().all());
                let findings = findings(&run);
                (text::render(&run, &findings), findings.iter().map(|finding| finding.place).collect())
            }))
        }
        [a, b] => {
            let all = Selection::default();
            let sides = figures::sides([(a, &all), (b, &all)], goes_on)?;
            let words = |[a, b]: [Side; 2]| diff_text::render(&a.whole, &b.whole, &compare(&a, &b));
            Ok(sides.map(|sides| (words(sides), Vec::new())))
        }
        _ => Ok(None),
    }
}
