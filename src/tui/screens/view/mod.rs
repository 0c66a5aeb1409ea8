//! Draws a model. Takes `&Model`, changes nothing, knows no clock; one file a panel.
//!
//! ```text
//! Cluster, Runs                         Run (Replay adds the scrub bar)      Launch
//! ┌ title: where, how the whole is ┐    ┌ title ───────────────────────┐     ┌ title ────────────────┐
//! │ filter          picks, launch  │    │ scrub bar                    │     │ fields                │
//! │ column heads                   │    │ stages                       │     │ ─ will run ────────── │
//! │ rows                           │    │ verdict                      │     │ rank by rank          │
//! │ …                              │    │ column heads, ranks          │     │ …                     │
//! │                                │    │ ─ timeline ─ lanes           │     │                       │
//! │                                │    │ ─ log ─ lines                │     │                       │
//! └ footer: keys, or a prompt ─────┘    └ footer ──────────────────────┘     └ footer ───────────────┘
//! between screen and footer: the newest notice, while there is one
//! over it: help or a question (middle)
//! ```
//!
//! The rows of each panel come from `core::layout`, which the mouse uses too.

pub(in crate::tui::screens) mod footer;
pub(in crate::tui::screens) mod gpu_words;
pub(in crate::tui::screens) mod processes;
pub(in crate::tui::screens) mod title;

use ratatui::buffer::Buffer;

use crate::tui::canvas::Canvas;
use crate::tui::canvas::Caps;
use crate::tui::canvas::theme::Theme;
use crate::tui::core::layout::{LEAST, is_enough};
use crate::tui::screens::overlay::{toasts, view as overlay};
use crate::tui::screens::{Model, entry};

/// Draws the model over a buffer that begins at (0, 0); returns where the text cursor stands, if any.
pub fn draw(model: &Model, caps: Caps, buf: &mut Buffer) -> Option<(u16, u16)> {
    let mut canvas = Canvas::new(buf, Theme::new(caps, model.settings.theme));
    let cursor = if is_enough((canvas.width(), canvas.height())) {
        screen(model, &mut canvas)
    } else {
        too_small(&mut canvas);
        None
    };
    if caps.ascii {
        crate::tui::canvas::ascii::to_ascii(buf);
    }
    cursor
}

fn screen(model: &Model, canvas: &mut Canvas<'_>) -> Option<(u16, u16)> {
    let (w, h) = (canvas.width(), canvas.height());
    let rows = toasts::rows(model, (w, h));
    let cursor = (entry(model.ui.screen).draw)(model, &mut canvas.part(0, 0, w, h - rows));
    let prompt = footer::draw(model, canvas);
    overlay::notice(model, canvas);
    let over = overlay::overlay(model, canvas);
    if model.ui.overlay.takes_all() {
        overlay::notice(model, canvas);
    }
    overlay::question::draw(model, canvas).or(over).or(prompt).or(cursor)
}

fn too_small(canvas: &mut Canvas<'_>) {
    let (w, h) = (canvas.width(), canvas.height());
    let strong = canvas.theme.strong();
    canvas.text(0, h / 2, w, &format!("hvtui needs {}×{}, this is {w}×{h}", LEAST.0, LEAST.1), strong);
}
