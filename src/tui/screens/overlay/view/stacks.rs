//! The panel of stacks: ranks that stand at the same place share a column, those that hold the others up come first.

use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::tui::canvas::{Canvas, width};
use crate::tui::screens::overlay::stacks::{Panel, StacksUi, Tone};

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
    let threads = if shown.all_threads { "t main thread" } else { "t all threads" };
    let scroll = if last > 0 { "↑ ↓ scroll · " } else { "" };
    let hint = format!(" {scroll}{threads} · S again · esc closes ");
    let at = w.saturating_sub(width(&hint) + 2);
    canvas.text(at, h - 1, width(&hint), &hint, dim);
}
