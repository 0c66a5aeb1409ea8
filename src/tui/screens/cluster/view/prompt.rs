//! The two lines in which a filter is typed: the text, and below it how many GPUs pass and what tab offers, or carets
//! below what can't be read.
//!
//! ```text
//! filter utl<5 & free
//!        ^^^ unknown field 'utl': did you mean util?
//! ```

use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::filtering::Sieve;
use crate::tui::screens::overlay::prompt::Prompt;

/// Draws the lines; returns where the text cursor stands.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>, prompt: &Prompt) -> (u16, u16) {
    let (w, below) = (canvas.width(), canvas.height() - 1);
    let y = below.saturating_sub(1);
    canvas.clear(0, y, w, 2);
    let (accent, text, bad, dim) =
        (canvas.theme.accent, canvas.theme.text, canvas.theme.bad, canvas.theme.dim);
    let x = canvas.text(1, y, w - 2, prompt.label(), accent) + 1;
    let room = w.saturating_sub(x + 1);
    let scroll = prompt.input.visual_scroll(usize::from(room.saturating_sub(1)));
    canvas.text(x, y, room, skip_columns(prompt.input.value(), scroll), text);
    let typing = &model.ui.cluster.typing;
    if let Some(fault) = &typing.fault {
        let (before, length) = fault.columns(prompt.input.value());
        let at = x + before.saturating_sub(scroll).min(usize::from(room)) as u16;
        let length = (length as u16).min(w.saturating_sub(at + 1)).max(1);
        canvas.text(at.min(w - 1), below, length, &"^".repeat(usize::from(length)), bad);
        let reason = width(&fault.reason);
        let behind = at + length + 1;
        if behind + reason < w || at < reason + 2 {
            canvas.text(behind, below, w.saturating_sub(behind + 1), &fault.reason, bad);
        } else {
            canvas.text(at - reason - 1, below, reason, &fault.reason, bad);
        }
    } else {
        let counts = format!("{} match", Sieve::of(model).counts());
        let end = canvas.text(x, below, room, &counts, dim);
        let mut at = end + 3;
        if let Some(offered) = &typing.offered {
            at = canvas.text(at, below, w.saturating_sub(at + 1), "tab", canvas.theme.strong()) + 1;
            for (nth, option) in offered.options.iter().enumerate() {
                let style = if typing.taken == Some(nth) { accent } else { dim };
                if at + width(option) + 1 >= w {
                    break;
                }
                at = canvas.text(at, below, width(option), option, style) + 2;
            }
        }
    }
    let cursor = x + (prompt.input.visual_cursor().saturating_sub(scroll)) as u16;
    (cursor.min(w - 1), y)
}
