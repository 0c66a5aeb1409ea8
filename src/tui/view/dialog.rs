//! What lies over a screen: help, a question, notices.

use ratatui::style::Style;

use super::pen::{Pen, width};
use crate::tui::core::Model;
use crate::tui::core::keymap::{Scope, bindings};
use crate::tui::core::model::{Confirm, Overlay, Screen};
use crate::tui::core::msg::Level;
use crate::tui::core::words::wrap;

/// Draws the notices above the footer, newest lowest.
pub(super) fn toasts(model: &Model, pen: &mut Pen<'_>) {
    let room = usize::from(pen.width().saturating_sub(8)).min(90);
    let mut y = pen.height() - 1;
    for toast in model.ui.toasts.iter().rev() {
        let (glyph, style) = match toast.level {
            Level::Info => ("·", pen.theme.accent),
            Level::Warning => ("⚠", pen.theme.warn),
            Level::Error => ("✖", pen.theme.bad),
        };
        let text = crate::domain::text::sanitize(&toast.text).into_owned();
        let lines = wrap(&text, room);
        let lines = &lines[..lines.len().min(3)];
        if y < lines.len() as u16 + 4 {
            return;
        }
        y -= lines.len() as u16;
        let w = lines.iter().map(|line| width(line)).max().unwrap_or(0) + 4;
        let x = pen.width().saturating_sub(w + 1);
        for (line, row) in lines.iter().zip(y..) {
            pen.clear(x.saturating_sub(1), row, w + 2, 1);
            pen.text(x, row, 1, if row == y { glyph } else { " " }, style);
            pen.text(x + 2, row, w - 2, line, style);
        }
    }
}

/// Draws help or a question over the middle.
pub(super) fn overlay(model: &Model, pen: &mut Pen<'_>) {
    match &model.ui.overlay {
        Overlay::None | Overlay::Prompt(_) => {}
        Overlay::Help(first) => help(model, pen, *first),
        Overlay::Stacks(shown) => super::stacks::draw(shown, (&model.world, model.now), pen),
        Overlay::Confirm(Confirm::Stop(id)) => {
            let run = model.world.runs.get(id);
            let name = run.map_or("", |run| run.spec.name.as_str());
            let lines = [
                format!("Stop run {} {name}?", id.short()),
                "Its ranks get TERM, and KILL when their grace is over.".to_owned(),
            ];
            let keys = [("y", "stop"), ("k", "kill now"), ("n", "no")];
            question(pen, &lines, &keys);
        }
    }
}

fn question(pen: &mut Pen<'_>, lines: &[String], keys: &[(&str, &str)]) {
    let widest = lines.iter().map(|line| width(line)).max().unwrap_or(0).max(30);
    let (w, h) = ((widest + 6).min(pen.width()), lines.len() as u16 + 4);
    let (x, y) = ((pen.width() - w) / 2, (pen.height().saturating_sub(h)) / 2);
    let (accent, text, strong, dim) = (pen.theme.accent, pen.theme.text, pen.theme.strong(), pen.theme.dim);
    let (ix, iy, iw, _) = pen.frame(x, y, w, h, "stop", accent);
    for (line, row) in lines.iter().zip(iy..) {
        pen.text(ix + 1, row, iw - 1, line, text);
    }
    let mut at = ix + 1;
    for (key, word) in keys {
        at = pen.text(at, iy + lines.len() as u16 + 1, 6, key, strong) + 1;
        at = pen.text(at, iy + lines.len() as u16 + 1, 20, word, dim) + 3;
    }
}

fn help(model: &Model, pen: &mut Pen<'_>, first: usize) {
    let screen = model.ui.screen;
    let name = match screen {
        Screen::Cluster => "Cluster",
        Screen::Detail => "Detail",
        Screen::Launch => "Launch",
        Screen::Run => "Run",
        Screen::Runs => "Runs",
        Screen::Replay => "Replay",
    };
    let w = pen.width().saturating_sub(4).min(104);
    let h = pen.height().saturating_sub(2);
    let (x, y) = ((pen.width() - w) / 2, 1);
    let keys_width = bindings(screen).map(|binding| width(&binding.keys_text())).max().unwrap_or(0);
    let text_width = usize::from(w.saturating_sub(keys_width + 8));
    let mut lines: Vec<(String, String, bool)> = Vec::new();
    let mut common = false;
    for binding in bindings(screen) {
        if !common && binding.scope != Scope::On(screen) {
            common = true;
            lines.push((String::new(), String::new(), false));
        }
        for (at, line) in wrap(binding.help, text_width).into_iter().enumerate() {
            let keys = if at == 0 { binding.keys_text() } else { String::new() };
            lines.push((keys, line, true));
        }
    }
    let h = h.min(lines.len() as u16 + 2);
    let (accent, strong, text) = (pen.theme.accent, pen.theme.strong(), pen.theme.text);
    let title = format!("keys of {name}");
    let (ix, iy, iw, ih) = pen.frame(x, y, w, h, &title, accent);
    let last = lines.len().saturating_sub(usize::from(ih));
    let first = first.min(last);
    for ((keys, words, _), row) in lines.iter().skip(first).zip(iy..iy + ih) {
        pen.right(ix, row, keys_width, keys, strong);
        pen.text(ix + keys_width + 2, row, iw.saturating_sub(keys_width + 2), words, text);
    }
    let hint = if last > 0 { " ↑ ↓ scroll · any other key closes " } else { " any key closes " };
    let style: Style = pen.theme.dim;
    let at = x + w.saturating_sub(width(hint) + 2);
    pen.text(at, y + h - 1, width(hint), hint, style);
}
