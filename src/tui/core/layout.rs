//! Which rows of the terminal each panel gets: a pure function of sizes, shared by the update (scrolling,
//! mouse) and the drawing.

use crate::domain::time::Stamp;
use crate::tui::core::Screen;

/// The least terminal that a screen fits on: columns and rows.
pub const LEAST: (u16, u16) = (60, 15);

/// The screens that the title line of Cluster and Runs names: screen, word, first column.
pub const TABS: [(Screen, &str, u16); 3] =
    [(Screen::Cluster, "1 Cluster", 8), (Screen::Run, "2 Run", 19), (Screen::Runs, "3 Runs", 26)];

/// The screen whose name stands at a column of the title line.
pub fn tab_at(column: u16) -> Option<Screen> {
    let hit = |(_, word, at): &&(Screen, &str, u16)| (*at..*at + word.len() as u16).contains(&column);
    TABS.iter().find(hit).map(|(screen, ..)| *screen)
}

/// A band of whole rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Band {
    /// First row.
    pub y: u16,
    /// Rows.
    pub h: u16,
}

impl Band {
    /// Whether a row lies in it, and which of its lines that is.
    pub fn line_of(self, row: u16) -> Option<usize> {
        (row >= self.y && row < self.y + self.h).then(|| usize::from(row - self.y))
    }

    /// The band without its first row.
    #[must_use]
    pub fn below_head(self) -> Self {
        Self { y: self.y + self.h.min(1), h: self.h.saturating_sub(1) }
    }
}

/// The list of the Cluster screen: below title, picks and column heads, above the footer.
pub fn cluster_list(size: (u16, u16)) -> Band {
    Band { y: 3, h: size.1.saturating_sub(4) }
}

/// The list of the Runs screen: below title and column heads, above two lines on the selected run.
pub fn runs_list(size: (u16, u16)) -> Band {
    Band { y: 3, h: size.1.saturating_sub(6) }
}

/// The rows of the Run and Replay screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunBands {
    /// Who, where, how far.
    pub title: Band,
    /// The scrub bar of a replay; no rows on Run.
    pub scrub: Band,
    /// Stages with their times.
    pub stages: Band,
    /// The verdict.
    pub verdict: Band,
    /// Column heads and ranks.
    pub ranks: Band,
    /// Head and lanes of the timeline; no rows when hidden.
    pub lanes: Band,
    /// Head and lines of the log.
    pub logs: Band,
}

/// How much the parts of a Run screen would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunWants {
    /// Whether there is a scrub bar.
    pub scrub: bool,
    /// Lines of the stages.
    pub stages: u16,
    /// Lines of the verdict.
    pub verdict: u16,
    /// Ranks.
    pub ranks: u16,
    /// Lanes of the timeline; 0 hides it.
    pub lanes: u16,
}

/// Shares the rows out: ranks and lanes get what they want up to a third of the rest each, the log gets
/// what is left.
pub fn run(size: (u16, u16), wants: RunWants) -> RunBands {
    let mut y = 0;
    let mut take = |h: u16| {
        let band = Band { y, h };
        y += h;
        band
    };
    let title = take(1);
    let scrub = take(u16::from(wants.scrub));
    let stages = take(wants.stages);
    let verdict = take(wants.verdict);
    let fixed = title.h + scrub.h + stages.h + verdict.h + 1;
    let rest = size.1.saturating_sub(fixed);
    let share = if wants.lanes > 0 { rest / 3 } else { rest / 2 };
    let ranks = take((wants.ranks + 1).min(share.max(2)));
    let lanes = take(if wants.lanes > 0 { (wants.lanes + 1).min(share.max(2)) } else { 0 });
    let logs = take(rest.saturating_sub(ranks.h + lanes.h));
    RunBands { title, scrub, stages, verdict, ranks, lanes, logs }
}

/// Columns of the scrub bar on a terminal of `columns`: first and count.
pub fn scrub_columns(columns: u16) -> (u16, u16) {
    (12, columns.saturating_sub(24).max(1))
}

/// The moment under a column of the scrub bar.
pub fn scrub_moment(columns: u16, column: u16, start: Stamp, end: Stamp) -> Option<Stamp> {
    let (first, count) = scrub_columns(columns);
    let at = column.checked_sub(first).filter(|at| *at < count)?;
    let length = end.micros_since(start) as f64;
    Some(start.plus_micros((length * f64::from(at) / f64::from(count.saturating_sub(1).max(1))) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bands_fill_the_screen_without_overlap() {
        for rows in LEAST.1..80 {
            for ranks in [1, 4, 64] {
                for lanes in [0, 2, 70] {
                    let wants = RunWants { scrub: lanes > 0, stages: 1, verdict: 2, ranks, lanes };
                    let bands = run((80, rows), wants);
                    assert_eq!(bands.logs.y + bands.logs.h, rows - 1, "{wants:?}");
                    assert!(bands.logs.h >= 2, "{wants:?} on {rows}");
                }
            }
        }
    }
}
