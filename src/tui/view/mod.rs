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
//! over it: notices (bottom right), help or a question (middle)
//! ```
//!
//! The rows of each panel come from `core::layout`, which the mouse uses too.

mod ascii;
mod bars;
mod cluster;
mod columns;
mod detail;
mod detail_gpu;
mod dialog;
mod footer;
mod gpu_words;
mod lanes;
mod launch;
mod logs;
mod pen;
mod question;
mod ranks;
mod run;
mod runs;
mod scrub;
mod stacks;
mod strip;
mod theme;
mod title;

use ratatui::buffer::Buffer;

pub use theme::{Caps, ColorDepth};

use self::pen::Pen;
use self::theme::Theme;
use crate::tui::core::layout::LEAST;
use crate::tui::core::{Model, Screen};

/// Draws the model over a buffer that begins at (0, 0); returns where the text cursor stands, if any.
pub fn draw(model: &Model, caps: Caps, buf: &mut Buffer) -> Option<(u16, u16)> {
    let mut pen = Pen { theme: Theme::new(caps), buf };
    let size = (pen.width(), pen.height());
    let cursor = if size.0 < LEAST.0 || size.1 < LEAST.1 {
        too_small(&mut pen);
        None
    } else {
        screen(model, &mut pen)
    };
    if caps.ascii {
        ascii::to_ascii(buf);
    }
    cursor
}

fn screen(model: &Model, pen: &mut Pen<'_>) -> Option<(u16, u16)> {
    let mut cursor = None;
    match model.ui.screen {
        Screen::Cluster => cluster::draw(model, pen),
        Screen::Detail => detail::draw(model, pen),
        Screen::Launch => cursor = launch::draw(model, pen),
        Screen::Run | Screen::Replay => run::draw(model, pen),
        Screen::Runs => runs::draw(model, pen),
    }
    let prompt = footer::draw(model, pen);
    dialog::toasts(model, pen);
    dialog::overlay(model, pen);
    question::draw(model, pen).or(prompt).or(cursor)
}

fn too_small(pen: &mut Pen<'_>) {
    let (w, h) = (pen.width(), pen.height());
    let strong = pen.theme.strong();
    pen.text(0, h / 2, w, &format!("hvtui needs {}×{}, this is {w}×{h}", LEAST.0, LEAST.1), strong);
}
