//! Opens a run's recording to go on with it. Reads all of it once, so it blocks; knows no hosts.

use crate::domain::ids::RunId;
use crate::record::{Error, Lock, Reader, Recorder, ResumeState, Store, closing};

/// A recording that will be gone on with.
#[derive(Debug, Default)]
pub struct Resumed {
    /// Up to where the run is recorded here, and how it stood there; empty where nothing is.
    pub resume_state: ResumeState,
    /// What writes on; `None` when the run has ended, or when it can't be recorded.
    pub recorder: Option<Recorder>,
    /// Why it can't, in words.
    pub trouble: Option<String>,
    /// Another client here records it.
    pub is_recorded_elsewhere: bool,
}

impl Resumed {
    /// Opens the recording of a run, or begins one. Whatever is wrong with it, the run can be followed.
    pub fn open(store: &Store, run: &RunId) -> Self {
        let path = store.path_of(run);
        // before it is read: from then on nothing is added to it
        let lock = Lock::take(&path);
        // what a client that was killed has left open; it is not written any more
        if let Ok(lock) = &lock {
            closing::close_unasked(lock);
        }
        let is_begun = path.exists();
        let mut resume_state = match is_begun
            .then(|| Reader::open(&path).and_then(|reader| reader.resume_state()))
        {
            None => ResumeState::default(),
            Some(Ok(resume_state)) => resume_state,
            Some(Err(error)) => return Self { trouble: Some(unrecorded(run, &error)), ..Self::default() },
        };
        if resume_state.resume_point.outcome.is_some() {
            return Self { resume_state, ..Self::default() };
        }
        match lock.and_then(Recorder::resume) {
            Ok(recorder) => {
                resume_state.resume_point.abandoned = is_begun;
                Self { resume_state, recorder: Some(recorder), ..Self::default() }
            }
            Err(Error::Busy(_)) => {
                let text = "another hvtui here records it; this one only follows it";
                let trouble = Some(format!("run {}: {text}", run.short()));
                Self { resume_state, trouble, is_recorded_elsewhere: true, ..Self::default() }
            }
            Err(error) => Self { resume_state, trouble: Some(unrecorded(run, &error)), ..Self::default() },
        }
    }
}

fn unrecorded(run: &RunId, error: &Error) -> String {
    format!("run {} is not recorded: {error}", run.short())
}
