//! How the Cluster screen divides its room: rows in one table or two, or a cell a GPU, and what stands beside or below. A
//! function of sizes and counts, shared by the keys and the drawing.

use crate::tui::core::settings::Density;
use crate::tui::core::{Screen, layout};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::Counts;

/// From so many columns on the selected GPU stands beside the table.
const BESIDE: u16 = 160;
/// Least columns of the table then.
const TABLE: u16 = 122;
/// Most columns of what stands beside it: each of its groups has one line there.
const SIDE: u16 = 124;
/// Least columns of one of two tables.
const HALF: u16 = 96;
/// From so many lines on the selected GPU stands below the cells.
const BELOW: u16 = 34;
/// Lines of it there.
const BELOW_LINES: u16 = 14;
/// Least columns of a card.
const CARD: u16 = 56;
/// Least lines of cards below the rows, or of the selected GPU there.
const CARD_LINES: usize = 14;
/// Lines more that a host in trouble may take to say so.
const TROUBLE: usize = 2;
/// More rows than so many screens of them are cells.
const SCREENS: usize = 4;
/// Up to so many screens of rows one table scrolls beside the selected GPU; more stand in two tables.
const SCROLLED: usize = 2;

/// A rectangle of the screen: column, line, columns, lines.
pub type Area = (u16, u16, u16, u16);

/// The room of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Whether each GPU is a cell, not a row.
    pub heat: bool,
    /// Columns of a table, or of the cells.
    pub table: u16,
    /// How many tables stand side by side.
    pub tables: u16,
    /// First line of the list.
    pub y: u16,
    /// Lines of the list.
    pub lines: u16,
    /// Where the selected host or GPU is shown, or the cards are.
    pub side: Option<Area>,
    /// Whether each GPU has a card there, and not the selected one alone.
    pub cards: bool,
}

impl Shape {
    /// The shape of what the model has to show.
    pub fn of(model: &Model) -> Self {
        let filtered = !model.ui.cluster.filter.is_empty();
        Self::new(model.size, model.area(), model.ui.cluster.counts, model.settings.density, filtered)
    }

    fn new(size: (u16, u16), area: (u16, u16), counts: Counts, density: Density, filtered: bool) -> Self {
        let rows = counts.rows;
        // what is shown how depends on the terminal; a notice takes lines alone
        let (w, all, band) = (size.0, layout::cluster_list(size).h, layout::cluster_list(area));
        let fits = |tables: u16| rows <= usize::from(all) * usize::from(tables);
        let tables = if !fits(1) && w / 2 > HALF { 2 } else { 1 };
        let screenful = usize::from(all) * usize::from(tables);
        let heat = match density {
            Density::Auto => !filtered && rows > SCREENS * screenful,
            Density::Rows => false,
            Density::Heat => true,
        };
        let whole = Self { heat, table: w, tables: 1, y: band.y, lines: band.h, side: None, cards: false };
        let used = rows + counts.troubled * TROUBLE;
        let cards = counts.gpus <= usize::from(w / CARD);
        if !heat && counts.gpus > 0 && used + CARD_LINES <= usize::from(all) && (cards || w < BESIDE) {
            let lines = used as u16;
            return Self {
                lines,
                side: Some((0, band.y + lines, w, band.h.saturating_sub(lines))),
                cards,
                ..whole
            };
        }
        let scrolls = tables == 1 || rows <= SCROLLED * usize::from(all);
        if w >= BESIDE && (heat || scrolls) {
            let table = TABLE.max(w.saturating_sub(SIDE));
            return Self { table, side: Some((table, 2, w - table, band.h + 1)), ..whole };
        }
        if heat && all >= BELOW {
            let lines = band.h.saturating_sub(BELOW_LINES);
            return Self { lines, side: Some((0, band.y + lines, w, BELOW_LINES)), ..whole };
        }
        if heat || tables == 1 { whole } else { Self { table: w / 2, tables, ..whole } }
    }

    /// Rows that are seen at once.
    pub fn height(self) -> usize {
        usize::from(self.lines) * usize::from(self.tables)
    }

    /// The row under a cell of the screen, counted from the first one that is seen.
    pub fn line_at(self, column: u16, row: u16) -> Option<usize> {
        let line = row.checked_sub(self.y).filter(|line| *line < self.lines)?;
        let table = (column / self.table.max(1)).min(self.tables);
        (table < self.tables).then(|| usize::from(table * self.lines + line))
    }
}

/// Whether the screen shows cells.
pub fn is_heat(model: &Model) -> bool {
    model.ui.screen == Screen::Cluster && Shape::of(model).heat
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of hosts with eight GPUs.
    fn counts(rows: usize) -> Counts {
        Counts { rows, gpus: rows * 8 / 9, troubled: 0 }
    }

    fn shape(size: (u16, u16), rows: usize) -> Shape {
        Shape::new(size, size, counts(rows), Density::Auto, false)
    }

    #[test]
    fn few_gpus_have_a_card_each_and_else_the_selected_one_stands_below_the_rows() {
        let of = |size: (u16, u16), gpus: usize, troubled: usize| {
            Shape::new(size, size, Counts { rows: 1 + gpus, gpus, troubled }, Density::Auto, false)
        };
        let one = of((80, 24), 1, 0);
        assert_eq!((one.lines, one.side, one.cards), (2, Some((0, 5, 80, 18)), true));
        let two = of((80, 24), 2, 0);
        assert_eq!((two.lines, two.side.is_some(), two.cards), (3, true, false));
        assert!(of((120, 40), 2, 0).cards && !of((120, 40), 3, 0).cards);
        assert!(of((200, 50), 3, 0).cards);
        let four = of((200, 50), 4, 0);
        assert_eq!((four.side, four.cards), (Some((122, 2, 78, 41)), false), "beside the rows");
        let many = of((120, 40), 8, 0);
        assert_eq!((many.lines, many.side), (9, Some((0, 12, 120, 27))));
        assert_eq!(of((120, 40), 8, 2).lines, 13, "room to say what is wrong");
        assert_eq!(of((80, 24), 8, 0).side, None);
        assert_eq!(of((80, 24), 0, 0).side, None, "a host without GPUs has no card");
    }

    #[test]
    fn the_screen_divides_itself_by_what_there_is() {
        let small = shape((80, 24), 36);
        assert!(!small.heat && small.tables == 1 && small.side.is_none(), "{small:?}");
        assert!(shape((80, 24), 64 * 9).heat);
        let wide = shape((200, 50), 36);
        assert_eq!((wide.heat, wide.tables, wide.table), (false, 1, TABLE));
        assert_eq!(wide.side, Some((122, 2, 78, 41)));
        let wall = shape((400, 100), 36);
        assert_eq!((wall.table, wall.side), (276, Some((276, 2, 124, 91))));
        let scrolled =
            [shape((160, 50), 72), shape((200, 50), 72), shape((200, 50), 80), shape((160, 50), 180)];
        assert!(scrolled.iter().all(|shape| shape.side.is_some() && !shape.heat), "{scrolled:?}");
        let many = shape((200, 50), 16 * 9);
        assert_eq!((many.heat, many.tables, many.table, many.side), (false, 2, 100, None));
        assert_eq!(many.height(), 80);
        let most = shape((200, 50), 64 * 9);
        assert!(most.heat && most.side.is_some());
        assert!(!Shape::new((200, 50), (200, 50), counts(64 * 9), Density::Rows, false).heat);
        assert!(
            !Shape::new((200, 50), (200, 50), counts(64 * 9), Density::Auto, true).heat,
            "what a filter finds are rows"
        );
        assert!(Shape::new((80, 24), (80, 24), counts(9), Density::Heat, true).heat);
        let noticed = Shape::new((160, 40), (160, 38), counts(36), Density::Auto, false);
        assert_eq!((noticed.side.is_some(), noticed.lines), (true, 34), "a notice changes no shape");
        let tall = shape((120, 60), 64 * 9);
        assert_eq!((tall.lines, tall.side), (42, Some((0, 45, 120, 14))));
    }

    #[test]
    fn a_cell_of_the_screen_has_one_row() {
        let wall = shape((400, 100), 36);
        assert_eq!((wall.table, wall.side), (276, Some((276, 2, 124, 91))));
        let many = shape((200, 50), 16 * 9);
        assert_eq!(many.line_at(0, 3), Some(0));
        assert_eq!(many.line_at(100, 3), Some(40), "40 lines, below them the events");
        assert_eq!(many.line_at(199, 42), Some(79));
        assert_eq!((many.line_at(0, 2), many.line_at(0, 43)), (None, None));
        assert_eq!(shape((200, 50), 36).line_at(130, 5), None, "beside the table");
    }
}
