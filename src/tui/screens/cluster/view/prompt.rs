//! The two lines in which a filter is typed: the text, and below it how many GPUs pass and what tab offers, or carets
//! below what can't be read.
//!
//! ```text
//! filter utl<5 & free
//!        ^^^ unknown field 'utl': did you mean util?
//! ```

use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::filtering::{Sieve, Typing};
use crate::tui::screens::overlay::prompt::Prompt;
use crate::tui::screens::view::footer::demo_mark;

/// Draws the lines; returns where the text cursor stands.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>, prompt: &Prompt) -> (u16, u16) {
    let (w, below) = (canvas.width(), canvas.height() - 1);
    let y = below.saturating_sub(1);
    canvas.clear(0, y, w, 2);
    let (accent, text, bad, dim) =
        (canvas.theme.accent, canvas.theme.text, canvas.theme.bad, canvas.theme.dim);
    let x = demo_mark(model, canvas, y);
    let x = canvas.text(x, y, w - 2, prompt.label(), accent) + 1;
    let room = w.saturating_sub(x + 1);
    let scroll = prompt.input.visual_scroll(usize::from(room.saturating_sub(1)));
    canvas.text(x, y, room, skip_columns(prompt.input.value(), scroll), text);
    let typing = &model.ui.cluster.typing;
    let end = if let Some(fault) = &typing.fault {
        // What is missing at the end may still come.
        let unfinished = fault.at.start >= prompt.input.value().trim_end().len();
        let style = if unfinished { dim } else { bad };
        let (before, length) = fault.columns(prompt.input.value());
        let at = x + before.saturating_sub(scroll).min(usize::from(room)) as u16;
        let length = (length as u16).min(w.saturating_sub(at + 1)).max(1);
        canvas.text(at.min(w - 1), below, length, &"^".repeat(usize::from(length)), style);
        let reason = width(&fault.reason);
        let behind = at + length + 1;
        if behind + reason < w || at < reason + 2 {
            canvas.text(behind, below, w.saturating_sub(behind + 1), &fault.reason, style)
        } else {
            canvas.text(at - reason - 1, below, reason, &fault.reason, style);
            behind
        }
    } else {
        let counts = format!("{} match", Sieve::of(model).counts());
        canvas.text(x, below, room, &counts, dim)
    };
    offers(canvas, typing, end + 3, below);
    let cursor = x + (prompt.input.visual_cursor().saturating_sub(scroll)) as u16;
    (cursor.min(w - 1), y)
}

/// What tab puts at the cursor, as far as there is room.
fn offers(canvas: &mut Canvas<'_>, typing: &Typing, x: u16, y: u16) {
    let Some(offered) = &typing.offered else { return };
    let w = canvas.width();
    let (accent, dim, strong) = (canvas.theme.accent, canvas.theme.dim, canvas.theme.strong());
    let first = offered.options.first().map_or(0, |option| width(option));
    if x + 4 + first + 1 >= w {
        return;
    }
    let mut at = canvas.text(x, y, 3, "tab", strong) + 1;
    for (nth, option) in offered.options.iter().enumerate() {
        if at + width(option) + 1 >= w {
            break;
        }
        let style = if typing.taken == Some(nth) { accent } else { dim };
        at = canvas.text(at, y, width(option), option, style) + 2;
    }
}
