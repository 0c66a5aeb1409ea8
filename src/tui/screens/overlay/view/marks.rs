//! The list of a run's marks, over the middle of the screen.

use ratatui::style::Modifier;

use crate::domain::marks::RunMark;
use crate::domain::text::sanitize;
use crate::tui::canvas::Canvas;
use crate::tui::core::Key;
use crate::tui::core::words::clock_time;
use crate::tui::screens::Model;
use crate::tui::screens::overlay::view::dialog::{Choice, Row, enter, esc, press};
use crate::tui::screens::run::marks::{MarksList, of};

/// Columns at most.
const WIDEST: u16 = 100;
/// Marks shown at once, at most.
const MOST: u16 = 14;
/// Columns of the time, the step and the rank.
const TIME: u16 = 8;
const STEP: u16 = 9;
const RANK: u16 = 6;

/// Draws the list.
pub(super) fn draw(model: &Model, list: &MarksList, canvas: &mut Canvas<'_>) {
    let marks = of(model, &list.run);
    let size = (canvas.width(), canvas.height());
    let (x, y, w, lines) = place(size, marks.len());
    let (accent, text, dim) = (canvas.theme.accent, canvas.theme.text, canvas.theme.dim);
    let title = format!("marks of run {}", list.run.short());
    let (ix, iy, iw, _) = canvas.frame(x, y, w, lines + 3, &title, accent);
    canvas.text(ix, iy, TIME, "TIME", dim);
    canvas.right(ix + TIME, iy, STEP, "STEP", dim);
    canvas.right(ix + TIME + STEP, iy, RANK, "RANK", dim);
    let note = TIME + STEP + RANK + 2;
    canvas.text(ix + note, iy, iw.saturating_sub(note), "NOTE", dim);
    if marks.is_empty() {
        canvas.text(ix, iy + 1, iw, "no mark yet: m sets one at the moment that is shown", text);
    }
    let on = list.place(marks);
    let first = (on + 1).saturating_sub(usize::from(lines));
    for ((at, mark), row) in marks.iter().enumerate().skip(first).take(usize::from(lines)).zip(iy + 1..) {
        let style = if at == on { text.add_modifier(Modifier::REVERSED) } else { text };
        if at == on {
            canvas.text(ix, row, iw, &" ".repeat(usize::from(iw)), style);
        }
        let known = |number: Option<String>| number.unwrap_or_else(|| "–".to_owned());
        canvas.text(ix, row, TIME, &clock_time(mark.at, &model.zone, false), style);
        canvas.right(ix + TIME, row, STEP, &known(mark.step.map(|step| step.to_string())), style);
        canvas.right(ix + TIME + STEP, row, RANK, &known(mark.rank.map(|rank| rank.to_string())), style);
        canvas.text(ix + note, row, iw.saturating_sub(note), &sanitize(&mark.note), style);
    }
    let choices = choices(model, marks);
    let row = row(size, marks.len(), &choices);
    canvas.text(row.x.saturating_sub(1), row.y, w, &" ".repeat(usize::from(row.end - row.x) + 2), dim);
    row.draw(canvas, &choices);
}

/// Column, row and width of the frame, and how many marks it shows.
fn place(size: (u16, u16), marks: usize) -> (u16, u16, u16, u16) {
    let w = WIDEST.min(size.0.saturating_sub(4));
    let most = MOST.min(size.1.saturating_sub(6)).max(1);
    let lines = u16::try_from(marks).unwrap_or(most).clamp(1, most);
    ((size.0 - w) / 2, 1, w, lines)
}

fn choices(model: &Model, marks: &[RunMark]) -> Vec<Choice> {
    let go = model.is_replay().then(|| enter("go there"));
    let of_one = go.into_iter().chain([press('e', "edit"), press('D', "delete")]);
    let of_one = of_one.filter(|_| !marks.is_empty());
    of_one.chain([press('m', "mark"), esc("close")]).collect()
}

fn row(size: (u16, u16), marks: usize, choices: &[Choice]) -> Row {
    let (x, y, w, lines) = place(size, marks);
    Row::before((x + w).saturating_sub(3), y + lines + 2, choices)
}

/// The key of the choice that stands at a cell of the screen.
pub(in crate::tui::screens) fn key_at(
    model: &Model,
    list: &MarksList,
    (column, line): (u16, u16),
) -> Option<Key> {
    let marks = of(model, &list.run);
    let choices = choices(model, marks);
    row(model.size, marks.len(), &choices).key_at(&choices, column, line)
}
