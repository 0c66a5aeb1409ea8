//! Which rows of the terminal each panel gets: a pure function of sizes, shared by the update (scrolling,
//! mouse) and the drawing.

use crate::domain::time::Stamp;
use crate::tui::core::Screen;

/// The least terminal that a screen fits on: columns and rows.
pub const LEAST: (u16, u16) = (60, 15);

/// Whether a terminal of this size shows screens.
pub fn is_enough(size: (u16, u16)) -> bool {
    size.0 >= LEAST.0 && size.1 >= LEAST.1
}

/// The screens that the title line of Cluster and Runs names: screen, word, first column.
const TABS: [(Screen, &str, u16); 4] = [
    (Screen::Cluster, "1 Cluster", 8),
    (Screen::Run, "2 Run", 19),
    (Screen::Runs, "3 Runs", 26),
    (Screen::Doctor, "4 Doctor", 34),
];
/// The same, a blank apart.
const NARROW_TABS: [(Screen, &str, u16); 4] = [
    (Screen::Cluster, "1 Cluster", 7),
    (Screen::Run, "2 Run", 17),
    (Screen::Runs, "3 Runs", 23),
    (Screen::Doctor, "4 Doctor", 30),
];
/// From how many columns on they stand two blanks apart beside the figures of the cluster, and all of them at all.
const WIDE_TABS: u16 = 100;
const ALL_TABS: u16 = 72;

/// The screens that the title line names on a terminal of so many columns.
pub fn tabs(columns: u16) -> &'static [(Screen, &'static str, u16)] {
    match columns {
        WIDE_TABS.. => &TABS,
        ALL_TABS.. => &NARROW_TABS,
        _ => &TABS[..3],
    }
}

/// The screen whose name stands at a column of the title line.
pub fn tab_at(columns: u16, column: u16) -> Option<Screen> {
    let hit = |(_, word, at): &&(Screen, &str, u16)| (*at..*at + word.len() as u16).contains(&column);
    tabs(columns).iter().find(hit).map(|(screen, ..)| *screen)
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

/// The list of the Cluster screen: below title, picks and column heads, above the events and the footer.
pub fn cluster_list(size: (u16, u16)) -> Band {
    Band { y: 3, h: size.1.saturating_sub(4 + cluster_events(size).h) }
}

/// Head and lines of the events on the Cluster screen, above the footer; none on terminals that are not large.
pub fn cluster_events(size: (u16, u16)) -> Band {
    let h = if size.0 >= 200 && size.1 >= 40 { 6 } else { 0 };
    Band { y: size.1.saturating_sub(1 + h), h }
}

/// The list of the Users screen: below title, line of counts and column heads, above the footer.
pub fn users_list(size: (u16, u16)) -> Band {
    Band { y: 3, h: size.1.saturating_sub(4) }
}

/// The list of the Doctor screen: below title, head and names, above the words of a cell.
pub fn doctor_list(size: (u16, u16)) -> Band {
    Band { y: 3, h: size.1.saturating_sub(4 + doctor_cell(size).h) }
}

/// The words of the chosen cell of the Doctor screen, with their head, above the footer.
pub fn doctor_cell(size: (u16, u16)) -> Band {
    let h = (size.1 / 4).clamp(5, 9);
    Band { y: size.1.saturating_sub(1 + h), h }
}

/// The list of the Events screen: below title and head, above the footer.
pub fn events_list(size: (u16, u16)) -> Band {
    Band { y: 2, h: size.1.saturating_sub(3) }
}

/// Columns of the log on the Run and Replay screens; from there on stand the events.
pub fn log_columns(columns: u16) -> u16 {
    if columns >= 160 { columns - columns * 2 / 5 } else { columns }
}

/// From how many columns on the figures of a selection stand beside the log, and not in its place; and how many they take.
const FIGURES_BESIDE: (u16, u16) = (120, 64);

/// Columns of the log beside the figures of a selection; 0 where those stand in its place.
pub fn log_columns_beside_figures(columns: u16) -> u16 {
    match columns {
        160.. => log_columns(columns),
        _ if columns >= FIGURES_BESIDE.0 => columns - FIGURES_BESIDE.1,
        _ => 0,
    }
}

/// The list of the Runs screen: below title and column heads, above two lines on the selected run and one on
/// all recordings.
pub fn runs_list(size: (u16, u16)) -> Band {
    Band { y: 3, h: size.1.saturating_sub(7) }
}

/// From how many columns on a Run screen has a side pane.
const SIDE_FROM: u16 = 160;
/// Rows that charts beside the ranks take, if the ranks take less.
const CHART_ROWS: u16 = 11;

/// The rows of the Run and Replay screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunBands {
    /// Who, where, how far.
    pub title: Band,
    /// Stages with their times.
    pub stages: Band,
    /// The verdict.
    pub verdict: Band,
    /// Column heads and ranks, and the charts where there is a side pane.
    pub ranks: Band,
    /// Charts of one line each; no rows where they stand in the side pane, or nowhere.
    pub charts: Band,
    /// The whole run: its marks in the first row, where its time went below.
    pub whole: Band,
    /// Head and lanes of the timeline; no rows when hidden.
    pub lanes: Band,
    /// Head and lines of the log.
    pub logs: Band,
    /// Columns of the side pane, beside ranks and whole run; 0 where there is none.
    pub side: u16,
}

/// How much the parts of a Run screen would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunWants {
    /// Whether it is a replay, which is never without the whole run and its playhead.
    pub replay: bool,
    /// Lines of the stages.
    pub stages: u16,
    /// Lines of the verdict.
    pub verdict: u16,
    /// Rows of the ranks.
    pub ranks: u16,
    /// Whether there is something to draw charts of.
    pub charts: bool,
    /// Lanes of the timeline; 0 hides it.
    pub lanes: u16,
}

/// Shares the rows out: the charts go first where rows are few, then all of the whole run but its marks. Ranks and lanes
/// get what they want up to a third of the rest each, the log gets what is left.
pub fn run(size: (u16, u16), wants: RunWants) -> RunBands {
    let mut y = 0;
    let mut take = |h: u16| {
        let band = Band { y, h };
        y += h;
        band
    };
    let beside = if size.0 >= SIDE_FROM && wants.charts { (size.0 / 4).clamp(40, 60) } else { 0 };
    let title = take(1);
    let stages = take(wants.stages);
    let verdict = take(wants.verdict);
    let rest = size.1.saturating_sub(title.h + stages.h + verdict.h + 1);
    let whole = match rest {
        0..14 => u16::from(wants.replay),
        14..26 => 1,
        _ if !wants.charts => 1,
        26..40 => 3,
        _ => 5,
    };
    let charts = if beside == 0 && wants.charts && rest >= 26 { 3 } else { 0 };
    let rest = rest.saturating_sub(whole + charts);
    let most = if wants.lanes > 0 { rest / 3 } else { rest / 2 }.max(2);
    let least = if beside > 0 { CHART_ROWS } else { 0 };
    let ranks = take(wants.ranks.saturating_add(1).max(least).min(most));
    let charts = take(charts);
    let whole = take(whole);
    let lanes = take(if wants.lanes > 0 { wants.lanes.saturating_add(1).min(most) } else { 0 });
    let logs = take(rest.saturating_sub(ranks.h + lanes.h));
    RunBands { title, stages, verdict, ranks, charts, whole, lanes, logs, side: beside }
}

/// Lines below the heat map: step times and legend.
const BELOW_HEAT: u16 = 2;
/// What the ranks of a heat map leave is for log and figures from so many rows on.
const LOG_FROM: u16 = 6;

/// The rows of a Replay screen that shows the heat map, with so many lines of stages and of the verdict and so many rows of
/// ranks.
pub fn heat(size: (u16, u16), (stages, verdict): (u16, u16), ranks: u16) -> RunBands {
    let mut y = 0;
    let mut take = |h: u16| {
        let band = Band { y, h };
        y += h;
        band
    };
    let (title, stages, verdict) = (take(1), take(stages), take(verdict));
    let whole = take(1);
    let room = size.1.saturating_sub(whole.y + whole.h + BELOW_HEAT + 1);
    let left = room.saturating_sub(ranks.saturating_add(1));
    let left = if left >= LOG_FROM { left } else { 0 };
    let ranks = take(room - left);
    let charts = take(BELOW_HEAT);
    let lanes = take(0);
    let logs = take(left);
    RunBands { title, stages, verdict, ranks, charts, whole, lanes, logs, side: 0 }
}

/// Columns of the whole run in a band of so many columns: first and count.
pub fn whole_columns(columns: u16) -> (u16, u16) {
    (12, columns.saturating_sub(24).max(1))
}

/// The moment under a column of the whole run, which goes from `start` to `end`.
pub fn whole_moment(columns: u16, column: u16, start: Stamp, end: Stamp) -> Option<Stamp> {
    let (first, count) = whole_columns(columns);
    let at = column.checked_sub(first).filter(|at| *at < count)?;
    let length = end.micros_since(start) as f64;
    Some(start.plus_micros((length * f64::from(at) / f64::from(count.saturating_sub(1).max(1))) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heat_map_gets_what_is_left() {
        for rows in LEAST.1..80 {
            for ranks in [1, 4, 64] {
                let bands = heat((80, rows), (1, 2), ranks);
                let all = [bands.ranks, bands.charts, bands.logs];
                assert_eq!(all.iter().map(|band| band.h).sum::<u16>(), rows - 6, "{rows}");
                assert_eq!(bands.logs.y + bands.logs.h, rows - 1, "above the footer");
                assert!(bands.logs.h == 0 || bands.ranks.h == ranks + 1, "all ranks come before the log");
            }
        }
    }

    #[test]
    fn the_bands_fill_the_screen_without_overlap() {
        for rows in LEAST.1..80 {
            for ranks in [1, 4, 64] {
                for (lanes, columns) in [(0, 80), (2, 80), (70, 80), (0, 200), (4, 200)] {
                    let charts = ranks > 1;
                    let wants = RunWants { replay: lanes > 0, stages: 1, verdict: 2, ranks, charts, lanes };
                    let bands = run((columns, rows), wants);
                    assert_eq!(bands.logs.y + bands.logs.h, rows - 1, "{wants:?}");
                    assert!(bands.logs.h >= 2, "{wants:?} on {rows}");
                    assert!(bands.whole.h > 0 || !wants.replay, "{wants:?} on {rows}");
                }
            }
        }
    }
}
