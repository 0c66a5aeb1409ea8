//! Counts the lines that ranks print by their level.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Logs {
    all: LogFigures,
    ranks: BTreeMap<Rank, OfRank>,
    carried: BTreeMap<(Rank, Stream), Carried>,
}

/// What one rank printed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct OfRank {
    warnings: u64,
    errors: u64,
    first_error: Option<FirstError>,
}

impl Logs {
    /// A line; one that does not count only says how the next ones are to be read.
    pub(super) fn take(&mut self, at: Stamp, line: &LogLine, counts: bool) {
        let carried = self.carried.entry((line.rank, line.stream)).or_default();
        let (level, _) = carried.next(line);
        let is_part = carried.is_part();
        if !counts {
            return;
        }
        self.all.lines += 1;
        let of_rank = self.ranks.entry(line.rank).or_default();
        match level {
            Level::Unknown | Level::Debug | Level::Info => return,
            Level::Warning => {
                self.all.warnings += 1;
                of_rank.warnings += 1;
                return;
            }
            // a traceback is one error, and its exception says which
            Level::Error | Level::Fatal if is_part => return,
            Level::Error => self.all.errors += 1,
            Level::Fatal => self.all.fatal += 1,
        }
        of_rank.errors += 1;
        if of_rank.first_error.is_none() {
            let text = plain(last_state(&line.text)).trim().chars().take(TEXT).collect();
            let error = FirstError { rank: line.rank, at: Some(at), text };
            self.all.first_error.get_or_insert_with(|| error.clone());
            of_rank.first_error = Some(error);
        }
    }

    /// Warnings and errors of a rank.
    pub(super) fn of(&self, rank: Rank) -> (u64, u64) {
        self.ranks.get(&rank).map_or((0, 0), |of| (of.warnings, of.errors))
    }

    /// All of it; the first error is that of `root`, the rank by which the run failed, where that told one.
    pub(super) fn figures(mut self, root: Option<Rank>) -> LogFigures {
        let of_root = root.and_then(|root| self.ranks.remove(&root)?.first_error);
        LogFigures { first_error: of_root.or(self.all.first_error), ..self.all }
    }
}
