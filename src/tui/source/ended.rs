//! The recording of a run that has ended, until it is finished, and what went wrong with it.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use crate::domain::event::Envelope;
use crate::domain::ids::RunId;
use crate::record::{Error, Recorder, Store};

/// How long a recording that is behind is left alone before the next look.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// The recording of a run that has ended; it is still to be finished.
#[derive(Debug)]
pub struct Ended {
    run: RunId,
    recorder: Recorder,
    /// What was not sent to it yet.
    left: VecDeque<Envelope>,
    told: Troubles,
    /// From where it is deleted once it is closed, where it is of no run.
    deleted_from: Option<Store>,
}

/// What has been told already of a recording.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Troubles {
    /// Nothing more is written.
    pub(super) error: bool,
    /// Something is left out.
    pub(super) left_out: bool,
}

/// A recording that was finished.
#[derive(Debug)]
pub struct Finished {
    pub(super) run: RunId,
    /// What went wrong, unless it was told before.
    pub(super) trouble: Option<String>,
    /// It failed, so the file ends before the run.
    pub(super) failed: bool,
}

impl Finished {
    /// What went wrong, unless it was told before.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

impl Ended {
    /// The end of a recording: what is left of it is written from now on.
    pub(super) fn new(run: RunId, recorder: Recorder, left: VecDeque<Envelope>, told: Troubles) -> Self {
        if left.is_empty() {
            recorder.close();
        }
        Self { run, recorder, left, told, deleted_from: None }
    }

    /// It is deleted, not finished: nothing of its run has started.
    pub(super) fn deleted_from(self, store: Store) -> Self {
        Self { deleted_from: Some(store), ..self }
    }

    pub(super) fn run(&self) -> &RunId {
        &self.run
    }

    pub(super) fn path(&self) -> &Path {
        self.recorder.path()
    }

    /// Waits until what is left of it is written, or until it is deleted.
    pub fn finish(self) -> Finished {
        if let Some(store) = self.deleted_from {
            return delete(self.run, self.recorder, &store);
        }
        for envelope in self.left {
            // one that writes nothing more takes all that comes
            while self.recorder.backlog().is_some() && !self.recorder.is_over() {
                std::thread::sleep(ROOM_LOOK);
            }
            self.recorder.send(envelope);
        }
        let (trouble, failed) = match self.recorder.finish() {
            Ok(stats) => {
                let why = stats.left_out.filter(|_| !self.told.left_out);
                (why.map(|why| no_longer_whole(&self.run, &why)), false)
            }
            Err(error) => (last_words(&self.run, &error, self.told.error), true),
        };
        Finished { run: self.run, trouble, failed }
    }
}

fn delete(run: RunId, recorder: Recorder, store: &Store) -> Finished {
    let was_begun = recorder.finish().is_ok();
    let left = store.delete(&run).err().filter(|_| was_begun);
    let trouble = left.map(|error| {
        format!("recording of run {}, which was not started, is not deleted: {error}", run.short())
    });
    Finished { run, trouble, failed: false }
}

/// What is said of a recording that failed, and what helps; the error itself where it was not told.
fn last_words(run: &RunId, error: &Error, is_told: bool) -> Option<String> {
    let rest = format!("once it can be written, `hvtui attach {}` records the rest", run.short());
    match error {
        Error::NotStarted(_) if is_told => None,
        Error::NotStarted(error) => Some(not_recorded(run, error)),
        _ if is_told => Some(format!("recording of run {} is not whole: {rest}", run.short())),
        error => Some(format!("{}; {rest}", no_longer_whole(run, &error.to_string()))),
    }
}

pub(super) fn not_recorded(run: &RunId, error: &str) -> String {
    format!("run {} is not recorded: {error}", run.short())
}

pub(super) fn no_longer_whole(run: &RunId, error: &str) -> String {
    format!("recording of run {} is not whole: {error}", run.short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_about_a_recording_that_failed_name_what_helps() {
        let run = RunId::new(1, 1);
        let words = |error: &Error, is_told| last_words(&run, error, is_told);
        let full = Error::Write(std::io::Error::other("No space left on device"));
        let attach = format!("once it can be written, `hvtui attach {}` records the rest", run.short());
        let begins = format!("recording of run {} is not whole: ", run.short());
        assert_eq!(words(&full, true), Some(format!("{begins}{attach}")));
        let whole = format!("{begins}write of the recording: No space left on device; {attach}");
        assert_eq!(words(&full, false), Some(whole));
        let never = Error::NotStarted("no such folder".to_owned());
        assert_eq!(words(&never, true), None);
        assert!(words(&never, false).is_some_and(|words| words.ends_with("is not recorded: no such folder")));
    }
}
