//! Records the ends of runs that ended while no client here followed them: what their hosts have is read
//! to the end.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tokio::time;

use super::disk;
use crate::domain::event::Event;
use crate::domain::ids::RunId;
use crate::domain::resume_point::Backfill;
use crate::domain::run::RunSpec;
use crate::launcher::session::{Output, Session};
use crate::record::Store;
use crate::tui::source::finishing::Finishing;
use crate::tui::source::recorded::{Recorded, Told};
use crate::tui::source::resume::Resumed;

/// How many of the newest recordings are looked at when a client starts.
const LOOKED_AT: usize = 16;

/// Closes, beside everything else, recordings of ended runs that a crash has left open, so that other programs open them; and removes
/// the folders of those that were never begun.
pub(crate) fn close_recordings(state: &Path) {
    let store = Store::new(state);
    let thread = std::thread::Builder::new().name("closing".to_owned());
    // what it does not come to is for the next start
    let work = move || {
        store.close_ended(LOOKED_AT);
        store.sweep();
    };
    if let Err(error) = thread.spawn(work) {
        tracing::debug!(%error, "recordings are not looked at");
    }
}

/// Reads these runs to their ends, as far as the time allows; the rest is for another time. Gives what went
/// wrong, in words.
pub(crate) async fn complete(
    session: Session,
    runs: Vec<RunSpec>,
    state: &Path,
    patience: Duration,
) -> Vec<String> {
    let mut troubles = Vec::new();
    if runs.is_empty() {
        return troubles;
    }
    let store = Store::new(state);
    let mut recorded = Recorded::new(session, state);
    let mut finishing = Finishing::default();
    let mut open: BTreeSet<RunId> = BTreeSet::new();
    for spec in runs {
        let (run, resumed) = (spec.id.clone(), Resumed::open(&store, &spec.id));
        // another client may be recording it
        if resumed.recorder.is_some() && recorded.attach(spec, resumed, Backfill::End) {
            open.insert(run);
        }
    }
    let read = async {
        while !open.is_empty() {
            if let Told::Output(Output::Event(envelope)) = recorded.next().await
                && let (Event::RunEnded { .. }, Some(run)) = (&envelope.event, envelope.origin.run())
            {
                open.remove(run);
                finishing.take(&mut recorded);
            }
        }
    };
    if time::timeout(patience, read).await.is_err() {
        let left: Vec<&str> = open.iter().map(RunId::short).collect();
        let seconds = patience.as_secs();
        troubles.push(format!("not read to their end within {seconds} s: {}", left.join(", ")));
    }
    recorded.close();
    finishing.take(&mut recorded);
    // where nothing listens for signals they end the command
    disk::written(&mut finishing, None, |finished| recorded.finished(finished)).await;
    while let Some(trouble) = recorded.trouble() {
        troubles.push(trouble);
    }
    troubles
}
