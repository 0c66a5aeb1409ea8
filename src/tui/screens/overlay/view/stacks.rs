//! The panel of stacks: ranks that stand at the same place share a column, those that hold the others up come first.

use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::theme::Theme;
use crate::tui::core::Key;
use crate::tui::screens::overlay::stacks::{Panel, StacksUi, Tone};
use crate::tui::screens::overlay::view::dialog::{Choice, Row, esc, press};

/// Draws the panel over the whole screen but its footer.
pub(in crate::tui::screens) fn draw(shown: &StacksUi, now: (&World, Stamp), canvas: &mut Canvas<'_>) {
    let (accent, dim) = (canvas.theme.accent, canvas.theme.dim);
    let (w, h) = (canvas.width(), canvas.height());
    let title = format!("stacks of run {}, innermost call first", shown.run.short());
    let (x, y, iw, ih) = canvas.frame(0, 0, w, h, &title, accent);
    let panel = Panel::of(shown, now, (w, h));
    let last = panel.last();
    for (row, line) in panel.rows.iter().skip(shown.first.min(last)).zip(y..y + ih) {
        // what concerns all of them takes the whole width
        let each = if row.len() == 1 { iw } else { panel.column };
        for ((text, tone), column) in row.iter().zip(0..) {
            let style = match tone {
                Tone::Strong => canvas.theme.strong(),
                Tone::Text => canvas.theme.text,
                Tone::Dim => dim,
                Tone::Warn => canvas.theme.warn,
                Tone::Bad => canvas.theme.bad,
            };
            canvas.text(x + column * each, line, each.saturating_sub(1), text, style);
        }
    }
    let choices = choices(shown, last > 0, &canvas.theme);
    let row = row((w, h), &choices);
    canvas.text(row.x.saturating_sub(1), row.y, w, &" ".repeat(usize::from(row.end - row.x) + 2), dim);
    row.draw(canvas, &choices);
}

fn choices(shown: &StacksUi, scrolls: bool, theme: &Theme) -> Vec<Choice> {
    let scroll = scrolls.then_some(Choice::Tell(theme.up_down(), "scroll"));
    let threads = press('t', if shown.all_threads { "main thread" } else { "all threads" });
    scroll.into_iter().chain([threads, press('S', "again"), esc("close")]).collect()
}

fn row(size: (u16, u16), choices: &[Choice]) -> Row {
    Row::before(size.0.saturating_sub(3), size.1.saturating_sub(1), choices)
}

/// The key of the choice that stands at a cell of the screen.
pub(in crate::tui::screens) fn key_at(
    shown: &StacksUi,
    now: (&World, Stamp),
    size: (u16, u16),
    (column, row): (u16, u16),
) -> Option<Key> {
    // what can be clicked stands flush right
    let choices = choices(shown, Panel::of(shown, now, size).last() > 0, &Theme::colourless());
    self::row(size, &choices).key_at(&choices, column, row)
}
