//! Draws the chosen cell of the Doctor screen over the whole screen.

use crate::domain::doctor::Verdict;
use crate::domain::text::sanitize;
use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::Key;
use crate::tui::screens::Model;
use crate::tui::screens::doctor::view::style;
use crate::tui::screens::overlay::verdict::{NAMES, last, lines, rows};
use crate::tui::screens::overlay::view::dialog::{Choice, Row, esc, press};

/// Draws it; `first` is the line that it begins at.
pub(super) fn draw(model: &Model, first: usize, canvas: &mut Canvas<'_>) {
    let (w, h) = (canvas.width(), canvas.height());
    canvas.clear(0, 0, w, h);
    let (accent, dim, text) = (canvas.theme.accent, canvas.theme.dim, canvas.theme.text);
    let (lines, first) = (lines(model, w), first.min(last(model)));
    let chosen = model.ui.doctor.chosen();
    let (glyph, of_mark) = style(canvas, chosen.and_then(|(_, verdict)| Some(verdict?.mark)));
    let check = model.ui.doctor.row().map_or("", |row| row.check);
    let host = chosen.map_or("", |(host, _)| host.as_str());
    let rows = rows(model);
    let place = if lines.len() > usize::from(rows) {
        let until = (first + usize::from(rows)).min(lines.len());
        format!("  lines {} to {until} of {}", first + 1, lines.len())
    } else {
        String::new()
    };
    let title = format!("{check} on {}", sanitize(host));
    canvas.rule(0, &[(format!("{glyph} "), of_mark), (title, accent), (place, dim)]);
    for (line, y) in lines.iter().skip(first).zip(1..=rows) {
        canvas.text(2, y, width(line.name), line.name, dim);
        let style = if line.helps { accent } else { text };
        canvas.text(2 + NAMES, y, w.saturating_sub(NAMES + 3), &sanitize(&line.text), style);
    }
    let choices = choices(model, &canvas.theme);
    row((w, h), &choices).draw(canvas, &choices);
}

fn choices(model: &Model, theme: &Theme) -> Vec<Choice> {
    let doctor = &model.ui.doctor;
    let scroll = (last(model) > 0).then_some(Choice::Tell(theme.up_down(), "scroll"));
    let aside = (doctor.matrix.hosts.len() > 1).then_some(Choice::Tell(theme.left_right(), "host"));
    let is_troubled =
        doctor.matrix.rows.iter().flat_map(|row| row.verdicts.values()).any(Verdict::is_trouble);
    let next = is_troubled.then_some(press('n', "next"));
    let help = doctor.chosen().and_then(|(_, verdict)| verdict?.help());
    let copy = help.map(|_| press('y', "copy"));
    scroll.into_iter().chain(aside).chain(next).chain(copy).chain([esc("close")]).collect()
}

fn row(size: (u16, u16), choices: &[Choice]) -> Row {
    Row::before(size.0, size.1.saturating_sub(1), choices)
}

/// The key of the choice that stands at a cell of the screen.
pub(in crate::tui::screens) fn key_at(model: &Model, (column, row): (u16, u16)) -> Option<Key> {
    // what can be clicked stands flush right
    let choices = choices(model, &Theme::colourless());
    self::row(model.size, &choices).key_at(&choices, column, row)
}
