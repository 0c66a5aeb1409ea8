//! Marks of runs, read and changed on a thread that may wait: a folder may lie on another machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::domain::ids::RunId;
use crate::domain::marks::MarkChange;
use crate::record::marks;
use crate::tui::core::Msg;

/// How long the end of the UI waits for marks that are still to be written.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The recording, its run, and what is to be changed.
type Job = (PathBuf, RunId, Option<MarkChange>);

/// Changes the marks of a recording, if there is a change, and tells them. Waits for the disk.
fn told(recording: &Path, run: RunId, change: Option<MarkChange>) -> Msg {
    let marks = match change {
        Some(change) => marks::change(recording, &change),
        None => marks::read(recording),
    };
    Msg::MarksTold(run, marks.map(Arc::new).map_err(|error| error.to_string()))
}

/// What is told of the marks of a recording that is opened; nothing where it has none.
pub(super) fn first_told(recording: &Path, run: Option<RunId>) -> Option<Msg> {
    let told = told(recording, run?, None);
    match &told {
        Msg::MarksTold(_, Ok(marks)) if marks.all().is_empty() => None,
        _ => Some(told),
    }
}

/// Reads and changes marks in the order in which that is asked for. Its thread begins with the first job.
pub(super) struct MarksDesk {
    tell: Arc<dyn Fn(Msg) + Send + Sync>,
    jobs: Option<Sender<Job>>,
    /// Disconnected when the thread has done all jobs.
    done: Option<Receiver<()>>,
}

impl std::fmt::Debug for MarksDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MarksDesk")
    }
}

impl MarksDesk {
    /// Answers go to `tell`.
    pub(super) fn new(tell: impl Fn(Msg) + Send + Sync + 'static) -> Self {
        Self { tell: Arc::new(tell), jobs: None, done: None }
    }

    /// Asks for a change, or for the marks alone.
    ///
    /// # Errors
    /// Why there is no thread for it.
    pub(super) fn ask(
        &mut self,
        recording: PathBuf,
        run: RunId,
        change: Option<MarkChange>,
    ) -> Result<(), String> {
        if self.jobs.is_none() {
            let ((sender, jobs), (end, done)) = (channel::<Job>(), channel());
            let tell = Arc::clone(&self.tell);
            let work = move || {
                let _end: Sender<()> = end;
                for (recording, run, change) in jobs {
                    tell(told(&recording, run, change));
                }
            };
            let spawned = thread::Builder::new().name("marks".to_owned()).spawn(work);
            spawned.map_err(|error| format!("start the thread for marks: {error}"))?;
            (self.jobs, self.done) = (Some(sender), Some(done));
        }
        let sent = self.jobs.as_ref().map(|jobs| jobs.send((recording, run, change)));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err("the thread for marks has ended".to_owned()) }
    }
}

impl Drop for MarksDesk {
    /// What a person has noted is not lost where they leave at once; a disk that stands still is not waited for.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(done) = self.done.take() {
            let _ = done.recv_timeout(LAST_WAIT);
        }
    }
}
