//! Strips of phases: where the time of a step goes, a coloured band with letters; letters alone where there
//! is no colour.

use ratatui::style::Style;

use crate::domain::timing::Phase;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::bars::part;
use crate::tui::canvas::theme::letter;

/// Stands where no client followed the run.
pub(in crate::tui::screens) const AWAY: char = '╌';

/// Stands where a person has set a mark.
pub(in crate::tui::screens) const MARK: char = '▾';

/// Stands in the lane of a rank where it took far longer than it does.
pub(in crate::tui::screens) const STALL: char = '↑';

/// Eighths of a cell.
const SUB: usize = 8;

/// A stretch of a phase between two places of the strip, 0..=1 each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::tui::screens) struct Segment {
    /// What.
    pub phase: Phase,
    /// From.
    pub from: f64,
    /// To.
    pub to: f64,
}

/// What one cell holds, in eighths from the left.
type Cell = [Option<Phase>; SUB];

fn cells(stretches: &[Segment], width: u16) -> Vec<Cell> {
    let total = usize::from(width) * SUB;
    let mut flat: Vec<Option<Phase>> = vec![None; total];
    for stretch in stretches {
        let place = |at: f64| (at.clamp(0.0, 1.0) * total as f64).round() as usize;
        let (from, to) = (place(stretch.from), place(stretch.to));
        // what lasts shorter than an eighth still shows when nothing else is there
        let to = if to == from && stretch.to > 0.0 && from < total && flat[from].is_none() {
            from + 1
        } else {
            to
        };
        for slot in &mut flat[from..to.min(total)] {
            *slot = Some(stretch.phase);
        }
    }
    flat.chunks_exact(SUB).map(|chunk| std::array::from_fn(|at| chunk[at])).collect()
}

/// What takes most of a cell.
fn main_of(cell: Cell) -> Option<Phase> {
    let place = |phase: Option<Phase>| phase.map_or(Phase::COUNT, Phase::index);
    let mut counts = [0u8; Phase::COUNT + 1];
    for phase in cell {
        counts[place(phase)] += 1;
    }
    cell.into_iter().max_by_key(|phase| (counts[place(*phase)], phase.is_some())).flatten()
}

/// Draws a strip of `width` columns at `x`, `y`. `away` says in which columns no client followed the run: what is not
/// known there shows as [`AWAY`].
pub(in crate::tui::screens) fn draw(
    canvas: &mut Canvas<'_>,
    x: u16,
    y: u16,
    width: u16,
    stretches: &[Segment],
    away: impl Fn(u16) -> bool,
) {
    let cells = cells(stretches, width);
    let mut lettered: Option<Phase> = None;
    for (at, cell) in cells.iter().enumerate() {
        let column = x + at as u16;
        if !canvas.theme.is_colored() {
            let (glyph, style) = match main_of(*cell) {
                Some(phase) => (letter(phase), canvas.theme.text),
                None => (if away(at as u16) { AWAY } else { '·' }, canvas.theme.dim),
            };
            canvas.glyph(column, y, glyph, style);
            continue;
        }
        let first = cell[0];
        let same = cell.iter().take_while(|own| **own == first).count();
        if same == SUB {
            let Some(phase) = first else {
                lettered = None;
                if away(at as u16) {
                    canvas.glyph(column, y, AWAY, canvas.theme.dim);
                }
                continue;
            };
            let (back, ink) = canvas.theme.phase(phase);
            let starts = lettered != Some(phase);
            let is_wide = || cells.get(at + 1).is_some_and(|next| main_of(*next) == Some(phase));
            let mark = if starts && is_wide() { letter(phase) } else { ' ' };
            lettered = Some(phase);
            canvas.glyph(column, y, mark, Style::new().fg(ink).bg(back));
        } else {
            let rest: Cell = std::array::from_fn(|sub| cell[(same + sub).min(SUB - 1)]);
            let mut style = Style::new();
            if let Some(left) = first {
                style = style.fg(canvas.theme.phase(left).0);
            }
            if let Some(right) = main_of(rest) {
                style = style.bg(canvas.theme.phase(right).0);
            }
            // the left part is drawn as a block; an idle left part shows as the right one's inverse
            if first.is_none() {
                let right = main_of(rest).map(|phase| canvas.theme.phase(phase).0);
                let half = if same <= SUB / 2 { '▐' } else { '▕' };
                canvas.glyph(column, y, half, right.map_or(Style::new(), |color| Style::new().fg(color)));
            } else {
                canvas.glyph(column, y, part(same), style);
            }
        }
    }
}

/// The legend: each phase's letter in its colour, and its name where there is room.
pub(in crate::tui::screens) fn legend(canvas: &mut Canvas<'_>, x: u16, y: u16, end: u16) -> u16 {
    let named = || Phase::ALL.into_iter().filter(|phase| *phase != Phase::Other);
    let long: u16 = named().map(|phase| phase.name().len() as u16 + 3).sum();
    let with_names = x + long <= end;
    let mut x = x;
    for phase in named() {
        let (back, ink) = canvas.theme.phase(phase);
        let style =
            if canvas.theme.is_colored() { Style::new().fg(ink).bg(back) } else { canvas.theme.strong() };
        if x + 2 > end {
            break;
        }
        canvas.glyph(x, y, letter(phase), style);
        x += 1;
        let dim = canvas.theme.dim;
        let name = if with_names { format!(" {} ", phase.name()) } else { " ".to_owned() };
        x = canvas.text(x, y, end.saturating_sub(x), &name, dim);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strip_shows_each_phase_in_its_place() {
        let stretches = [
            Segment { phase: Phase::Data, from: 0.0, to: 0.25 },
            Segment { phase: Phase::Forward, from: 0.25, to: 0.6875 },
            Segment { phase: Phase::Optimizer, from: 0.999, to: 0.9999 },
        ];
        let cells = cells(&stretches, 4);
        assert_eq!(main_of(cells[0]), Some(Phase::Data));
        assert_eq!(main_of(cells[1]), Some(Phase::Forward));
        assert_eq!(cells[2].iter().filter(|sub| **sub == Some(Phase::Forward)).count(), 6);
        assert_eq!(main_of(cells[3]), None);
    }

    #[test]
    fn of_what_is_in_a_cell_the_most_is_shown_and_of_as_much_the_last() {
        let cell = |phases: &str| {
            let of = |letter| match letter {
                'd' => Some(Phase::Data),
                'w' => Some(Phase::Wait),
                _ => None,
            };
            let mut phases = phases.chars().map(of);
            main_of(std::array::from_fn(|_| phases.next().flatten()))
        };
        assert_eq!([cell("ddddwwww"), cell("wwwwdddd")], [Some(Phase::Wait), Some(Phase::Data)]);
        assert_eq!([cell("dwdwdddw"), cell("dddd    ")], [Some(Phase::Data), Some(Phase::Data)]);
        assert_eq!([cell("dwd     "), cell("        ")], [None, None]);
    }
}
