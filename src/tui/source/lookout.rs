//! Looks whether another client still records a run that is followed here without a recording, on a thread of its own: says once
//! when it does not. Knows no session.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::domain::ids::RunId;
use crate::record::{Lock, Reader};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Lookout(Arc<()>);

impl Lookout {
    /// Begins to look at the recording of a run; words for a person go to `tell`.
    pub(super) fn begin(run: RunId, recording: PathBuf, tell: Sender<String>) -> Self {
        let lookout = Self(Arc::new(()));
        let wanted = Arc::downgrade(&lookout.0);
        let look = move || {
            if is_left(&recording, &wanted) {
                // it may be listened to no more
                let _ = tell.send(words(&run));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("another's recording".to_owned()).spawn(look) {
            tracing::debug!(%error, "another's recording is not looked at");
        }
        lookout
    }
}

/// Waits until nothing records the run any more. `false` where its end is recorded, or it is not asked any more.
fn is_left(recording: &Path, wanted: &Weak<()>) -> bool {
    while wanted.strong_count() > 0 {
        if !Lock::is_held(recording) {
            let has_ended = Reader::open(recording).is_ok_and(|reader| reader.outcome().is_some());
            return !has_ended && wanted.strong_count() > 0;
        }
        std::thread::sleep(LOOK);
    }
    false
}

fn words(run: &RunId) -> String {
    let short = run.short();
    format!(
        "run {short} is not recorded any more: the hvtui that did it has ended; leave this one, then hvtui attach {short} goes on"
    )
}
