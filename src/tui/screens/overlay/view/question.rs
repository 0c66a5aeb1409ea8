//! The dialog of a question: whom it is about, what is known, and a line for the answer, masked where it is secret.

use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;
use crate::tui::screens::overlay::question::is_shown;

/// Columns of the dialog at most.
const WIDEST: u16 = 76;

/// Draws the question that comes first; returns where the text cursor stands.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) -> Option<(u16, u16)> {
    let asked = &model.ui.questions;
    let (_, question) = asked.waiting.front().filter(|_| is_shown(model))?;
    let w = WIDEST.min(canvas.width().saturating_sub(2));
    let room = usize::from(w.saturating_sub(6));
    let mut lines: Vec<String> = question.lines().iter().flat_map(|line| wrap(line, room)).collect();
    lines.truncate(usize::from(canvas.height().saturating_sub(6)));
    let h = lines.len() as u16 + 5;
    let (x, y) = ((canvas.width() - w) / 2, canvas.height().saturating_sub(h) / 2);
    let title = match asked.waiting.len() {
        1 => question.title().to_owned(),
        all => format!("{} · 1 of {all}", question.title()),
    };
    let (accent, text, strong, dim) =
        (canvas.theme.accent, canvas.theme.text, canvas.theme.strong(), canvas.theme.dim);
    let (ix, iy, iw, ih) = canvas.frame(x, y, w, h, &title, accent);
    for (at, (line, row)) in lines.iter().zip(iy..).enumerate() {
        canvas.text(ix + 1, row, iw - 1, line, if at == 0 { strong } else { text });
    }
    let row = iy + ih - 2;
    let at = canvas.text(ix + 1, row, iw / 2, &question.prompt(), accent) + 1;
    let left = (ix + iw).saturating_sub(at + 1);
    let shown =
        if question.echo() { asked.typed.reveal().to_owned() } else { "*".repeat(asked.typed.chars()) };
    // the end is where one types
    let skip = width(&shown).saturating_sub(left);
    let shown = skip_columns(&shown, usize::from(skip));
    let end = canvas.text(at, row, left, shown, text);
    canvas.text(ix + 1, row + 1, iw - 1, "enter answers · esc refuses", dim);
    Some((end, row))
}
