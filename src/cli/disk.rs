//! The disk at the end of a command: what is still to be written is waited for, not without a word and no longer than a
//! person wants.

use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;

use super::errors::note;
use super::signals::{Ask, Signals};
use crate::tui::source::ended::Finished;
use crate::tui::source::finishing::Finishing;

/// A wait that lasts longer says for what.
const MOMENT: Duration = Duration::from_secs(1);
/// A wait that no user can end lasts no longer.
const ALONE: Duration = Duration::from_secs(10);

/// Awaits something that a disk may hold up. After a moment it says for what it waits; then a signal ends the wait and gives
/// its exit code; without `signals` it ends the process by itself.
pub(crate) async fn patiently<T>(
    signals: Option<&mut Signals>,
    what: &str,
    work: impl Future<Output = T>,
) -> Result<T, u8> {
    let signal = async {
        sleep(MOMENT).await;
        let Some(signals) = signals else {
            note(&format!("waiting for {what}"));
            return pending().await;
        };
        // one that came before this is said asked for the end of the command, not of an unannounced wait
        signals.drain();
        note(&format!("waiting for {what}"));
        let alone = signals.is_alone();
        tokio::select! {
            ask = signals.next() => ask.code(),
            () = sleep(ALONE), if alone => Ask::Leave.code(),
        }
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        code = signal => Err(code),
    }
}

/// Waits until all recordings are written and tells what became of each. Gives the exit code of the signal that ended it.
pub(crate) async fn written(
    finishing: &mut Finishing,
    mut signals: Option<&mut Signals>,
    mut tell: impl FnMut(Finished),
) -> Option<u8> {
    while let Some(what) = finishing.words() {
        match patiently(signals.as_deref_mut(), &what, finishing.next()).await {
            Ok(finished) => tell(finished),
            Err(code) => return Some(code),
        }
    }
    None
}
