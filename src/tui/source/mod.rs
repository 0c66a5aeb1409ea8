//! Where messages come from and where effects go: one trait, implemented by the live cluster and by a
//! recording. Knows messages and effects, not the terminal.

pub mod live;
pub mod recorded;
pub mod replay;
pub mod takeup;
mod tracing;

use std::future::Future;

use super::core::{Effect, Msg};

/// A source of messages that also carries effects out.
pub trait EventSource: Send {
    /// The next messages in order, at least one and about `most`; pending while there is nothing to tell. Cancel-safe:
    /// a future that is dropped has lost nothing.
    fn next(&mut self, most: usize) -> impl Future<Output = Vec<Msg>> + Send;

    /// Starts to carry an effect out and returns at once; its result arrives as a message.
    /// [`Effect::Quit`] and [`Effect::Redraw`] never come here.
    fn perform(&mut self, effect: Effect);
}
