//! What an agent may send, decided in one place: each of its messages passes [`Ingress::admit`] after it was decoded and before
//! anything is made of it. Pure: the time is passed in.
//!
//! A host is a stranger until proven otherwise. What is admitted is bounded, so that nothing behind has to look again.

mod bounds;

use crate::domain::event::GPU_EVENTS;
use crate::domain::plausible::GpuEventBudget;
use crate::domain::time::Stamp;
use crate::wire::message::FromAgent;

/// What an agent may still send; kept over lost links.
#[derive(Debug, Default)]
pub struct Ingress {
    /// What it may still tell of its GPUs in this minute.
    gpu_events: GpuEventBudget,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It counts, within its bounds.
    Admitted(FromAgent),
}

impl Ingress {
    /// Judges a message that came at `now`.
    pub fn admit(&mut self, now: Stamp, mut message: FromAgent) -> Verdict {
        bounds::bound(&mut message);
        if let FromAgent::GpuEvents(told) = &mut message {
            let allowed = self.gpu_events.take(now, told.events.len());
            told.events.truncate(allowed);
        }
        Verdict::Admitted(message)
    }

    /// What was dropped, of each kind how much, that is to be told at `now`; once.
    pub fn due(&mut self, now: Stamp) -> Option<(&'static str, u64)> {
        told(self.gpu_events.due(now))
    }

    /// The same at the end of a link, behind which nothing more comes.
    pub fn rest(&mut self) -> Option<(&'static str, u64)> {
        told(self.gpu_events.rest())
    }
}

fn told(dropped: u64) -> Option<(&'static str, u64)> {
    (dropped > 0).then_some((GPU_EVENTS, dropped))
}
