//! Draws the report of a run, or the comparison of two. It takes all columns: its words are made for 80 of them.

use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, skip_columns};
use crate::tui::core::{Key, Reported};
use crate::tui::screens::Model;
use crate::tui::screens::overlay::report::{ReportUi, rows};
use crate::tui::screens::overlay::view::dialog::{Choice, Row, esc, press};

/// The keys of so many findings.
const NUMBERS: [&str; 5] = ["1", "1 2", "1-3", "1-4", "1-5"];

/// Draws it over the whole screen.
pub(super) fn draw(model: &Model, shown: &ReportUi, canvas: &mut Canvas<'_>) {
    let (w, h) = (canvas.width(), canvas.height());
    canvas.clear(0, 0, w, h);
    let (accent, dim) = (canvas.theme.accent, canvas.theme.dim);
    let lines = shown.words();
    let rows = rows(model);
    let first = shown.first.min(shown.last(rows));
    let place = match (&shown.told, lines.lines().count()) {
        (Reported::Done(..), count) if count > usize::from(rows) => {
            let until = (first + usize::from(rows)).min(count);
            format!("  lines {} to {until} of {count}", first + 1)
        }
        _ => String::new(),
    };
    let warn = canvas.theme.warn;
    let said = shown.said.as_ref().map_or_else(String::new, |said| format!("  {said}"));
    canvas.rule(0, &[(shown.title(), accent), (place, dim), (said, warn)]);
    let usual = match &shown.told {
        Reported::Done(..) => canvas.theme.text,
        Reported::Reading(_) => dim,
        Reported::Failed(_) => canvas.theme.bad,
    };
    let left = shown.left.min(shown.widest(w));
    // a section begins behind a blank line
    let before = std::iter::once("").chain(lines.lines());
    let all = lines.lines().zip(before).skip(first);
    for ((line, before), row) in all.zip(1..=rows) {
        let is_head = matches!(shown.told, Reported::Done(..)) && before.is_empty();
        let style = if is_head { canvas.theme.strong() } else { usual };
        canvas.text(0, row, w, skip_columns(line, usize::from(left)), style);
    }
    let choices = choices(shown, (w, rows), &canvas.theme);
    row((w, h), &choices).draw(canvas, &choices);
    let room = w.saturating_sub(choices_width(&choices, (w, h)) + 2);
    canvas.text(0, h.saturating_sub(1), room, &format!("also: {}", shown.command()), dim);
}

fn choices_width(choices: &[Choice], size: (u16, u16)) -> u16 {
    let row = row(size, choices);
    row.end.saturating_sub(row.x)
}

/// On so many columns, where so many lines are shown at once.
fn choices(shown: &ReportUi, (columns, rows): (u16, u16), theme: &Theme) -> Vec<Choice> {
    let scroll = (shown.last(rows) > 0).then_some(Choice::Tell(theme.up_down(), "scroll"));
    let aside = (shown.widest(columns) > 0).then_some(Choice::Tell(theme.left_right(), "aside"));
    let is_done = matches!(shown.told, Reported::Done(..));
    let places = shown.places();
    let is_seen = places.iter().any(Option::is_some);
    let keys = NUMBERS.get(places.len().saturating_sub(1)).filter(|_| is_seen);
    let go = keys.map(|keys| Choice::Tell(keys, "go there"));
    let kept = [press('y', "copy"), press('W', "save")];
    let kept = kept.into_iter().filter(|_| is_done);
    let out = if matches!(shown.told, Reported::Reading(_)) { "cancel" } else { "close" };
    scroll.into_iter().chain(aside).chain(go).chain(kept).chain([esc(out)]).collect()
}

fn row(size: (u16, u16), choices: &[Choice]) -> Row {
    Row::before(size.0, size.1.saturating_sub(1), choices)
}

/// The key of the choice that stands at a cell of the screen.
pub(in crate::tui::screens) fn key_at(
    model: &Model,
    shown: &ReportUi,
    (column, row): (u16, u16),
) -> Option<Key> {
    // what can be clicked stands flush right
    let choices = choices(shown, (model.size.0, rows(model)), &Theme::colourless());
    self::row(model.size, &choices).key_at(&choices, column, row)
}
