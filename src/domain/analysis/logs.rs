//! Counts the lines that ranks print by their level.

use std::collections::BTreeMap;

use super::figures::{FirstError, LogFigures};
use crate::domain::ids::Rank;
use crate::domain::log::{LogLine, Stream};
use crate::domain::log_text::carried::Carried;
use crate::domain::log_text::level::Level;
use crate::domain::log_text::{last_state, plain};
use crate::domain::time::Stamp;

/// So many characters of the first error are kept.
const TEXT: usize = 200;

/// The fold.
#[derive(Debug, Clone, Default)]
pub(super) struct Logs {
    all: LogFigures,
    /// Warnings and errors of each rank.
    ranks: BTreeMap<Rank, (u64, u64)>,
    carried: BTreeMap<(Rank, Stream), Carried>,
}

impl Logs {
    /// A line; one that does not count only says how the next ones are to be read.
    pub(super) fn take(&mut self, at: Stamp, line: &LogLine, counts: bool) {
        let (level, _) = self.carried.entry((line.rank, line.stream)).or_default().next(line);
        if !counts {
            return;
        }
        self.all.lines += 1;
        let of_rank = self.ranks.entry(line.rank).or_default();
        match level {
            Level::Unknown | Level::Debug | Level::Info => return,
            Level::Warning => {
                self.all.warnings += 1;
                of_rank.0 += 1;
                return;
            }
            Level::Error => self.all.errors += 1,
            Level::Fatal => self.all.fatal += 1,
        }
        of_rank.1 += 1;
        if self.all.first_error.is_none() {
            let text = plain(last_state(&line.text)).trim().chars().take(TEXT).collect();
            self.all.first_error = Some(FirstError { rank: line.rank, at: Some(at), text });
        }
    }

    /// Warnings and errors of a rank.
    pub(super) fn of(&self, rank: Rank) -> (u64, u64) {
        self.ranks.get(&rank).copied().unwrap_or_default()
    }

    pub(super) fn figures(self) -> LogFigures {
        self.all
    }
}
