//! The list of runs: how one stands in a word, which ones a filter lets through, in which order they stand. Pure; knows
//! neither the screen nor the command line that show it.

mod filter;
mod order;
#[cfg(test)]
mod tests;

pub use filter::{RunFilter, RunFilterError};
pub use order::RunOrder;

use super::outcome::RunOutcome;
use super::run::RunSpec;
use super::run_status::RunStatus;
use super::trained::Trained;

/// What the list knows of a run.
#[derive(Debug, Clone, Copy)]
pub struct ListedRun<'a> {
    /// What was asked for.
    pub spec: &'a RunSpec,
    /// How it stands.
    pub state: ListedState,
    /// How long it took, or has taken so far, µs; `None` where its end is not known.
    pub duration_us: Option<u64>,
    /// Bytes of its recording, where there is one.
    pub bytes: Option<u64>,
    /// How far its training came.
    pub trained: Option<&'a Trained>,
}

/// How a run stands, as one word; the order is that of [`RunOrder::Outcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedState {
    /// It goes on, here or elsewhere.
    Running,
    /// A rank of it failed, or a host was lost.
    Failed,
    /// A host refused it: none of its ranks has started.
    Refused,
    /// Its recording has no end, and a host of it has not answered.
    Unknown,
    /// It has ended, say its hosts; how is not recorded here.
    Ended,
    /// It was read from another program's file, which tells of no end.
    Imported,
    /// It was stopped.
    Stopped,
    /// All went well.
    Done,
}

impl ListedState {
    /// The state of one that has ended so, or of which no more is known than its status.
    pub fn of(spec: &RunSpec, outcome: Option<&RunOutcome>, status: RunStatus) -> Self {
        match (outcome, status) {
            _ if spec.is_imported() => Self::Imported,
            (Some(outcome), _) if outcome.is_success() => Self::Done,
            (Some(outcome), _) if outcome.is_stopped() => Self::Stopped,
            (Some(outcome), _) if outcome.is_refused() => Self::Refused,
            (Some(_), _) => Self::Failed,
            (None, RunStatus::Running) => Self::Running,
            (None, RunStatus::Ended) => Self::Ended,
            (None, RunStatus::Unknown) => Self::Unknown,
        }
    }

    /// The state of this name.
    fn named(word: &str) -> Option<Self> {
        Some(match word {
            "running" | "live" => Self::Running,
            "failed" => Self::Failed,
            "refused" => Self::Refused,
            "unknown" => Self::Unknown,
            "ended" => Self::Ended,
            "imported" => Self::Imported,
            "stopped" => Self::Stopped,
            "done" => Self::Done,
            _ => return None,
        })
    }
}
