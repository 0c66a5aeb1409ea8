//! The last line: the keys that matter now, from the key table; or the prompt.

use ratatui::style::Modifier;

use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::core::keymap::Binding;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::view::prompt as filter_line;
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt::PromptKind;
use crate::tui::screens::{entry, readonly};

/// Draws the line; returns where the text cursor stands when it is a prompt.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) -> Option<(u16, u16)> {
    let y = canvas.height() - 1;
    if let Overlay::Prompt(prompt) = &model.ui.overlay {
        if prompt.kind == PromptKind::Filter {
            return Some(filter_line::draw(model, canvas, prompt));
        }
        let (accent, text, bad) = (canvas.theme.accent, canvas.theme.text, canvas.theme.bad);
        let x = demo_mark(model, canvas, y);
        let x = canvas.text(x, y, canvas.width() - 2, prompt.label(), accent) + 1;
        let room = canvas.width().saturating_sub(x + 1);
        let scroll = prompt.input.visual_scroll(usize::from(room.saturating_sub(1)));
        let shown = skip_columns(prompt.input.value(), scroll);
        let end = canvas.text(x, y, room, shown, text);
        if let Some(error) = &prompt.error {
            let room = canvas.width().saturating_sub(end + 4);
            canvas.text(end + 3, y, room, error, bad);
        }
        let cursor = x + (prompt.input.visual_cursor().saturating_sub(scroll)) as u16;
        return Some((cursor.min(canvas.width() - 1), y));
    }
    let of_row = &entry(model.ui.screen).of_row;
    let is_there = |action| {
        of_row.as_ref().is_none_or(|of| !of.actions.contains(&action) || (of.is_there)(model, action))
    };
    let shown = |binding: &&Binding| {
        !binding.short.is_empty() && readonly::allows(model, binding.action) && is_there(binding.action)
    };
    let all: Vec<_> = entry(model.ui.screen).bindings().filter(shown).collect();
    // help and quit stand last and never fall off
    let (own, fixed) = all.split_at(all.len().saturating_sub(2));
    let need = |binding: &&Binding| width(&binding.first_key()) + width(binding.short) + 3;
    let fixed_width: u16 = fixed.iter().map(need).sum();
    let end = canvas.width().saturating_sub(1);
    let mut x = demo_mark(model, canvas, y);
    for (at, binding) in own.iter().chain(fixed).enumerate() {
        let is_own = at < own.len();
        if is_own && x + need(binding) + fixed_width > end + 2 {
            continue;
        }
        let (strong, dim) = (canvas.theme.strong(), canvas.theme.dim);
        x = canvas.text(x, y, end.saturating_sub(x), &binding.first_key(), strong) + 1;
        x = canvas.text(x, y, end.saturating_sub(x), binding.short, dim) + 2;
    }
    None
}

/// Marks the demo in line `y`; returns the column behind it.
pub(in crate::tui::screens) fn demo_mark(model: &Model, canvas: &mut Canvas<'_>, y: u16) -> u16 {
    if !model.demo {
        return 1;
    }
    canvas.text(1, y, 6, " DEMO ", canvas.theme.accent.add_modifier(Modifier::REVERSED)) + 2
}
