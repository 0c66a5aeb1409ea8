//! Where messages come from and where effects go: one trait, implemented by the live cluster and by a
//! recording. Knows messages and effects, not the terminal.

mod active;
mod behind;
mod called_off;
mod catch_up;
mod checkups;
mod cost;
pub mod ended;
mod event_times;
mod figures;
mod files;
pub mod finishing;
pub mod live;
mod lookout;
mod marks;
mod near;
mod preflight;
pub mod recorded;
pub mod replay;
mod reports;
pub mod resume;
mod tracing;

use std::future::Future;

use self::finishing::Finishing;
use super::core::{Effect, Msg};
use crate::domain::ids::RunId;

/// A source of messages that also carries effects out.
pub trait EventSource: Send {
    /// The next messages in order, at least one and about `most`; pending while there is nothing to tell. Cancel-safe:
    /// a future that is dropped has lost nothing.
    fn next(&mut self, most: usize) -> impl Future<Output = Vec<Msg>> + Send;

    /// Starts to carry an effect out and returns at once; its result arrives as a message.
    /// [`Effect::Quit`], [`Effect::Suspend`], [`Effect::Redraw`], [`Effect::Copy`] and [`Effect::Save`] never come here.
    fn perform(&mut self, effect: Effect);

    /// Ends it. Waits for nothing.
    fn leave(self) -> Left
    where
        Self: Sized,
    {
        Left::default()
    }
}

/// What remains of a source when the UI is left.
#[derive(Debug, Default)]
pub struct Left {
    /// Runs that go on.
    pub live: Vec<RunId>,
    /// What went wrong with recordings and was not told yet: a sentence each.
    pub troubles: Vec<String>,
    /// Recordings that are still to be written.
    pub finishing: Finishing,
}
