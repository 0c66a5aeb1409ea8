//! The last line: the keys that matter now, from the key table; or the prompt.

use ratatui::style::Modifier;

use super::pen::{Pen, width};
use crate::tui::core::Model;
use crate::tui::core::keymap::bindings;
use crate::tui::core::model::Overlay;

/// Draws the line; returns where the text cursor stands when it is a prompt.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>) -> Option<(u16, u16)> {
    let y = pen.height() - 1;
    if let Overlay::Prompt(prompt) = &model.ui.overlay {
        let (accent, text, bad) = (pen.theme.accent, pen.theme.text, pen.theme.bad);
        let x = pen.text(1, y, pen.width() - 2, prompt.label(), accent) + 1;
        let room = pen.width().saturating_sub(x + 1);
        let scroll = prompt.input.visual_scroll(usize::from(room.saturating_sub(1)));
        let shown: String = prompt.input.value().chars().skip(scroll).collect();
        let end = pen.text(x, y, room, &shown, text);
        if let Some(error) = &prompt.error {
            let room = pen.width().saturating_sub(end + 4);
            pen.text(end + 3, y, room, error, bad);
        }
        let cursor = x + (prompt.input.visual_cursor().saturating_sub(scroll)) as u16;
        return Some((cursor.min(pen.width() - 1), y));
    }
    let all: Vec<_> = bindings(model.ui.screen).filter(|binding| !binding.short.is_empty()).collect();
    // help and quit stand last and never fall off
    let (own, fixed) = all.split_at(all.len().saturating_sub(2));
    let need =
        |binding: &&crate::tui::core::keymap::Binding| width(&binding.first_key()) + width(binding.short) + 3;
    let fixed_width: u16 = fixed.iter().map(need).sum();
    let end = pen.width().saturating_sub(1);
    let mut x = 1;
    if model.demo {
        let style = pen.theme.accent.add_modifier(Modifier::REVERSED);
        x = pen.text(x, y, 6, " DEMO ", style) + 2;
    }
    for (at, binding) in own.iter().chain(fixed).enumerate() {
        let is_own = at < own.len();
        if is_own && x + need(binding) + fixed_width > end + 2 {
            continue;
        }
        let (strong, dim) = (pen.theme.strong(), pen.theme.dim);
        x = pen.text(x, y, end.saturating_sub(x), &binding.first_key(), strong) + 1;
        x = pen.text(x, y, end.saturating_sub(x), binding.short, dim) + 2;
    }
    None
}
