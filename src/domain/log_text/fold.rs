//! Repeats in a log: the same text printed by several ranks, or several times in a row, is one row. Pure.
//!
//! The order of each rank's lines stays: a line joins an earlier row only where that row is not before one of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::is_same;
use crate::domain::ids::Rank;
use crate::domain::world::LoggedLine;

/// How many rows back a line may join one: ranks that print the same print it at about the same time.
const NEAR: usize = 64;

/// Lines with one text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fold {
    /// The number of the first line in its run.
    pub first: u64,
    /// The number of the newest one.
    pub last: u64,
    /// The first line.
    pub line: Arc<LoggedLine>,
    /// The ranks that printed it, and how often each.
    pub ranks: BTreeMap<Rank, u32>,
    /// Lines before the first one that was folded may belong to it.
    pub is_cut: bool,
}

impl Fold {
    fn new(number: u64, line: &Arc<LoggedLine>) -> Self {
        let ranks = BTreeMap::from([(line.line.rank, 1)]);
        Self { first: number, last: number, line: Arc::clone(line), ranks, is_cut: false }
    }

    /// How often its first rank printed it.
    pub fn times(&self) -> u32 {
        self.ranks.get(&self.line.line.rank).copied().unwrap_or(1)
    }

    /// The other ranks that printed the same.
    pub fn others(&self) -> impl Iterator<Item = Rank> {
        self.ranks.keys().copied().filter(|rank| *rank != self.line.line.rank)
    }

    fn takes(&self, line: &LoggedLine) -> bool {
        let (ours, theirs) = (&self.line.line, &line.line);
        !self.line.gap
            && !line.gap
            && ours.stream == theirs.stream
            && ours.elided == theirs.elided
            && is_same(&ours.text, &theirs.text)
    }
}

/// Folds the lines of a run, oldest first, each with its number; where `open`, each line stands for itself.
pub fn fold<'a>(lines: impl Iterator<Item = (u64, &'a Arc<LoggedLine>)>, open: bool) -> VecDeque<Fold> {
    let mut folds: VecDeque<Fold> = VecDeque::new();
    // the newest row of each rank
    let mut newest: BTreeMap<Rank, usize> = BTreeMap::new();
    for (number, line) in lines {
        let rank = line.line.rank;
        let own = newest.get(&rank).copied();
        let least = own.unwrap_or(0).max(folds.len().saturating_sub(NEAR));
        let near = if open { folds.len() } else { least };
        let found = (near..folds.len()).find(|at| folds.get(*at).is_some_and(|fold| fold.takes(line)));
        let at = found.unwrap_or(folds.len());
        match folds.get_mut(at) {
            Some(fold) => {
                fold.last = number;
                *fold.ranks.entry(rank).or_default() += 1;
            }
            None => folds.push_back(Fold::new(number, line)),
        }
        newest.insert(rank, at);
    }
    folds
}

/// Marks the rows that may have more lines than are known, because there are lines before the first one that was folded:
/// those with the oldest line of a rank.
pub fn mark_cut(folds: &mut VecDeque<Fold>) {
    let mut seen = BTreeSet::new();
    for fold in folds {
        for rank in fold.ranks.keys() {
            fold.is_cut |= seen.insert(*rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::fixtures::log_line;
    use crate::domain::log::{LogLine, Stream};
    use crate::domain::time::Stamp;
    use crate::domain::units::ranges;

    fn line(rank: u32, text: &str) -> Arc<LoggedLine> {
        let line = LogLine { stream: Stream::Stdout, ..log_line(rank, text) };
        Arc::new(LoggedLine::alone(Stamp(0), Arc::new(line)))
    }

    fn folded(lines: &[(u32, &str)], open: bool) -> Vec<String> {
        let lines: Vec<_> = lines.iter().map(|(rank, text)| line(*rank, text)).collect();
        let words = |fold: &Fold| {
            let others = ranges(fold.others().map(|rank| rank.0));
            format!("{} {} x{} +{others}", fold.line.line.rank, fold.line.line.text, fold.times())
        };
        fold((0..).zip(&lines), open).iter().map(words).collect()
    }

    #[test]
    fn the_same_by_other_ranks_and_in_a_row_is_one_row() {
        let lines =
            [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "x"), (2, "b"), (0, "c"), (0, "c")];
        let wanted = ["0 a x1 +1-2", "0 b x1 +1", "2 x x1 +", "2 b x1 +", "0 c x2 +"];
        assert_eq!(folded(&lines, false), wanted);
        assert_eq!(folded(&lines, true).len(), lines.len());
        // what a rank printed before stays before
        assert_eq!(
            folded(&[(0, "a"), (0, "b"), (1, "b"), (1, "a")], false),
            ["0 a x1 +", "0 b x1 +1", "1 a x1 +"]
        );
    }

    #[test]
    fn colours_do_not_keep_repeats_apart() {
        let lines =
            [(0, "\u{1b}[32mstart\u{1b}[0m"), (1, "start"), (2, "\u{1b}[31mstart"), (2, "\u{1b}[0mother")];
        assert_eq!(folded(&lines, false), ["0 \u{1b}[32mstart\u{1b}[0m x1 +1-2", "2 \u{1b}[0mother x1 +"]);
    }

    proptest! {
        #[test]
        fn no_line_is_lost_and_none_overtakes_its_ranks_earlier_ones(
            lines in prop::collection::vec((0u32..4, 0u8..3), 0..120)
        ) {
            let lines: Vec<_> = lines.iter().map(|(rank, text)| line(*rank, &text.to_string())).collect();
            let folds = fold((0..).zip(&lines), false);
            let total: u32 = folds.iter().flat_map(|fold| fold.ranks.values()).sum();
            prop_assert_eq!(total as usize, lines.len());
            for rank in (0..4).map(Rank) {
                let shown: Vec<&str> = folds.iter()
                    .flat_map(|fold| {
                        let times = fold.ranks.get(&rank).copied().unwrap_or(0) as usize;
                        std::iter::repeat_n(fold.line.line.text.as_str(), times)
                    })
                    .collect();
                let printed: Vec<&str> =
                    lines.iter().filter(|line| line.line.rank == rank).map(|line| line.line.text.as_str()).collect();
                prop_assert_eq!(shown, printed);
            }
        }
    }
}
