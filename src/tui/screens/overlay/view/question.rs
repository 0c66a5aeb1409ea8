//! The dialog of a question: whom it is about, what is known, and a line for the answer, masked where it is secret.

use crate::domain::question::Question;
use crate::domain::redaction::MASK;
use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::core::Key;
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;
use crate::tui::screens::overlay::question::is_shown;
use crate::tui::screens::overlay::view::dialog::{Choice, Row, enter, esc};

/// Columns of the dialog at most.
const WIDEST: u16 = 76;

/// What answers it.
const CHOICES: [Choice; 2] = [enter("answer"), esc("refuse")];

/// The question that comes first on a screen of some size: its lines, its frame (column, row, width, height).
fn layout(model: &Model, size: (u16, u16)) -> Option<(&Question, Vec<String>, [u16; 4])> {
    let (_, question) = model.ui.questions.waiting.front().filter(|_| is_shown(model))?;
    let w = WIDEST.min(size.0.saturating_sub(2));
    let room = usize::from(w.saturating_sub(6));
    let mut lines: Vec<String> = question.lines().iter().flat_map(|line| wrap(line, room)).collect();
    lines.truncate(usize::from(size.1.saturating_sub(6)));
    let h = lines.len() as u16 + 5;
    Some((question, lines, [(size.0 - w) / 2, size.1.saturating_sub(h) / 2, w, h]))
}

fn row([x, y, w, h]: [u16; 4]) -> Row {
    Row { x: x + 3, y: y + h - 2, end: (x + w).saturating_sub(2) }
}

/// The key of its choice that stands at a cell of the screen.
pub(in crate::tui::screens) fn key_at(model: &Model, column: u16, row: u16) -> Option<Key> {
    let (.., frame) = layout(model, model.size)?;
    self::row(frame).key_at(&CHOICES, column, row)
}

/// Draws the question that comes first; returns where the text cursor stands.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) -> Option<(u16, u16)> {
    let (question, lines, frame) = layout(model, (canvas.width(), canvas.height()))?;
    let asked = &model.ui.questions;
    let [x, y, w, h] = frame;
    let title = match asked.waiting.len() {
        1 => question.title().to_owned(),
        all => format!("{} · 1 of {all}", question.title()),
    };
    let (accent, text, strong) = (canvas.theme.accent, canvas.theme.text, canvas.theme.strong());
    let (ix, iy, iw, ih) = canvas.frame(x, y, w, h, &title, accent);
    for (at, (line, row)) in lines.iter().zip(iy..).enumerate() {
        canvas.text(ix + 1, row, iw - 1, line, if at == 0 { strong } else { text });
    }
    let row = iy + ih - 2;
    let at = canvas.text(ix + 1, row, iw / 2, &question.prompt(), accent) + 1;
    let left = (ix + iw).saturating_sub(at + 1);
    // a mark of one length: how long the answer is stays hidden too
    let shown = match (question.echo(), asked.typed.chars()) {
        (true, _) => asked.typed.reveal(),
        (false, 0) => "",
        (false, _) => MASK,
    };
    // the end is where one types
    let skip = width(shown).saturating_sub(left);
    let shown = skip_columns(shown, usize::from(skip));
    let end = canvas.text(at, row, left, shown, text);
    self::row(frame).draw(canvas, &CHOICES);
    Some((end, row))
}
