//! Which run of the list comes first.

use std::cmp::Ordering;

use super::RunRow;
use crate::domain::time::Stamp;

/// The orders of the Runs screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunsOrder {
    /// The latest launch first.
    #[default]
    Newest,
    /// The longest first.
    Longest,
    /// The largest recording first.
    Largest,
    /// By name.
    Name,
    /// What goes on first, then what failed.
    Outcome,
}

impl RunsOrder {
    /// Its name on the screen.
    pub fn words(self) -> &'static str {
        match self {
            Self::Newest => "newest first",
            Self::Longest => "longest first",
            Self::Largest => "largest first",
            Self::Name => "by name",
            Self::Outcome => "by outcome",
        }
    }

    /// The one after it.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Newest => Self::Longest,
            Self::Longest => Self::Largest,
            Self::Largest => Self::Name,
            Self::Name => Self::Outcome,
            Self::Outcome => Self::Newest,
        }
    }

    /// Sorts a list; among equals the newest comes first. What is not known comes last.
    pub(super) fn sort(self, rows: &mut [RunRow<'_>], now: Stamp) {
        rows.sort_by(|a, b| self.compare(a, b, now).then_with(|| newer(a, b)));
    }

    fn compare(self, a: &RunRow<'_>, b: &RunRow<'_>, now: Stamp) -> Ordering {
        match self {
            Self::Newest => Ordering::Equal,
            Self::Longest => b.duration_us(now).cmp(&a.duration_us(now)),
            Self::Largest => size(b).cmp(&size(a)),
            Self::Name => a.spec.name.to_lowercase().cmp(&b.spec.name.to_lowercase()),
            Self::Outcome => a.state().cmp(&b.state()),
        }
    }
}

fn newer(a: &RunRow<'_>, b: &RunRow<'_>) -> Ordering {
    (b.spec.created, &b.spec.id).cmp(&(a.spec.created, &a.spec.id))
}

fn size(row: &RunRow<'_>) -> Option<u64> {
    row.recording.map(|recording| recording.bytes)
}
