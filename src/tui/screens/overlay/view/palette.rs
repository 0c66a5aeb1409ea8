//! The palette: a line to type, and the commands that it stands for.

use ratatui::style::Modifier;

use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::screens::Model;
use crate::tui::screens::overlay::palette::{Palette, matches};

/// Columns at most.
const WIDEST: u16 = 90;
/// Commands shown at most.
const MOST: u16 = 14;

/// Draws the palette in the upper middle; returns where the text cursor stands.
pub(super) fn draw(model: &Model, palette: &Palette, canvas: &mut Canvas<'_>) -> (u16, u16) {
    let found = matches(model, palette.input.value());
    let (x, y, w, lines) = place((canvas.width(), canvas.height()));
    let (accent, text, dim, strong) =
        (canvas.theme.accent, canvas.theme.text, canvas.theme.dim, canvas.theme.strong());
    let (ix, iy, iw, _) = canvas.frame(x, y, w, lines + 3, "commands", accent);
    let at = canvas.text(ix, iy, 2, ":", strong);
    let room = (ix + iw).saturating_sub(at + 1);
    let scroll = palette.input.visual_scroll(usize::from(room.saturating_sub(1)));
    canvas.text(at, iy, room, skip_columns(palette.input.value(), scroll), text);
    if found.is_empty() {
        canvas.text(ix, iy + 1, iw, "no such command · esc closes", dim);
    }
    let first = first_shown(palette, lines);
    for ((nth, command), row) in found.iter().enumerate().skip(first).take(usize::from(lines)).zip(iy + 1..) {
        let style = if nth == palette.on { text.add_modifier(Modifier::REVERSED) } else { text };
        let keys = width(&command.keys);
        if nth == palette.on {
            canvas.text(ix, row, iw, &" ".repeat(usize::from(iw)), style);
        }
        canvas.text(ix, row, iw.saturating_sub(keys + 2), &command.words, style);
        canvas.right(ix, row, iw, &command.keys, if nth == palette.on { style } else { dim });
    }
    let hint = format!(" {} · {} choose · enter does it · esc closes ", found.len(), canvas.theme.up_down());
    canvas.text(x + w.saturating_sub(width(&hint) + 2), y + lines + 2, width(&hint), &hint, dim);
    let cursor = at + (palette.input.visual_cursor().saturating_sub(scroll)) as u16;
    (cursor.min(canvas.width() - 1), iy)
}

/// Column, row and width of the frame on a screen of some size, and how many commands it shows.
fn place(size: (u16, u16)) -> (u16, u16, u16, u16) {
    let w = WIDEST.min(size.0.saturating_sub(4));
    ((size.0 - w) / 2, 1, w, MOST.min(size.1.saturating_sub(6)).max(1))
}

/// The place of the first command that is shown.
fn first_shown(palette: &Palette, lines: u16) -> usize {
    (palette.on + 1).saturating_sub(usize::from(lines))
}

/// The place of the command at a cell of the screen, if one stands there.
pub(in crate::tui::screens) fn command_at(
    size: (u16, u16),
    palette: &Palette,
    column: u16,
    row: u16,
) -> Option<usize> {
    let (x, y, w, lines) = place(size);
    // below the frame's title and the line that is typed
    let line = row.checked_sub(y + 2).filter(|line| *line < lines)?;
    (x < column && column + 1 < x + w).then(|| first_shown(palette, lines) + usize::from(line))
}
