//! The last line: the keys that matter now, from the key table; or the prompt.

use std::ops::Range;

use ratatui::style::Modifier;

use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::core::keymap::{Action, Binding};
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
        // what is wrong is seen beside a line that is longer than the screen
        let told = prompt.error.as_ref().map_or(0, |error| width(error) + 4).min(room - room / 4);
        let room = room - told;
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
    demo_mark(model, canvas, y);
    let (strong, dim) = (canvas.theme.strong(), canvas.theme.dim);
    let end = canvas.width().saturating_sub(1);
    for (columns, binding) in placed(model, canvas.width()) {
        let x = columns.start;
        let x = canvas.text(x, y, end.saturating_sub(x), &binding.first_key(model.ascii), strong) + 1;
        canvas.text(x, y, end.saturating_sub(x), binding.short, dim);
    }
    None
}

/// The keys that have room in a line of so many columns, and where they stand.
fn placed(model: &Model, columns: u16) -> Vec<(Range<u16>, &'static Binding)> {
    let screen = entry(model.ui.screen);
    let is_offered = |binding: &&Binding| {
        !binding.short.is_empty()
            && readonly::allows(model, binding.action)
            && (screen.missing)(model, binding.action).is_none()
    };
    let all: Vec<_> = screen.bindings().filter(is_offered).collect();
    // help and quit stand last and never fall off
    let (own, fixed) = all.split_at(all.len().saturating_sub(2));
    let need = |binding: &&Binding| width(&binding.first_key(model.ascii)) + width(binding.short) + 3;
    let fixed_width: u16 = fixed.iter().map(need).sum();
    let end = columns.saturating_sub(1);
    let mut x = if model.demo { DEMO.1 } else { 1 };
    let mut placed = Vec::new();
    for (at, binding) in own.iter().chain(fixed).enumerate() {
        if at < own.len() && x + need(binding) + fixed_width > end + 2 {
            continue;
        }
        let behind = x + need(binding);
        placed.push((x..behind - 2, *binding));
        x = behind;
    }
    placed
}

/// What the key means that stands at a column of the line.
pub(in crate::tui::screens) fn action_at(model: &Model, column: u16) -> Option<Action> {
    let placed = placed(model, model.size.0);
    placed.iter().find(|(columns, _)| columns.contains(&column)).map(|(_, binding)| binding.action)
}

/// The mark of the demo, and the first column behind it.
const DEMO: (&str, u16) = (" DEMO ", 9);

/// The column behind the mark of the demo; without it the first one.
pub(in crate::tui::screens) fn begin(model: &Model) -> u16 {
    if model.demo { DEMO.1 } else { 1 }
}

/// Marks the demo in line `y`; returns the column behind it.
pub(in crate::tui::screens) fn demo_mark(model: &Model, canvas: &mut Canvas<'_>, y: u16) -> u16 {
    if model.demo {
        canvas.text(1, y, 6, DEMO.0, canvas.theme.accent.add_modifier(Modifier::REVERSED));
    }
    begin(model)
}
