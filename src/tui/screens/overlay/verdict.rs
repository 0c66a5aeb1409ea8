//! The chosen cell of the Doctor screen over the whole screen: what was seen, what goes wrong because of it, what helps, and the
//! command alone. It shows the cell that is chosen, so that one goes from trouble to trouble in it.

use crate::domain::doctor::{Fix, Verdict};
use crate::domain::ids::HostId;
use crate::tui::core::keymap::Action;
use crate::tui::core::words::broken;
use crate::tui::core::{Effect, Key, KeyCode};
use crate::tui::screens::Model;
use crate::tui::screens::doctor;
use crate::tui::screens::model::Overlay;

/// Columns of the names before the texts.
pub const NAMES: u16 = 7;

/// A line of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is, on the first line of each text.
    pub name: &'static str,
    /// The text, or a part of it.
    pub text: String,
    /// Whether it is what helps.
    pub helps: bool,
}

/// Its lines on a screen with so many columns.
pub fn lines(model: &Model, columns: u16) -> Vec<Line> {
    let ui = &model.ui;
    let mut lines = Vec::new();
    let room = usize::from(columns.saturating_sub(NAMES + 3)).max(1);
    let mut add = |name: &'static str, text: &str, helps: bool| {
        for (at, text) in broken(text, room).into_iter().enumerate() {
            lines.push(Line { name: if at == 0 { name } else { "" }, text, helps });
        }
        lines.push(Line { name: "", text: String::new(), helps: false });
    };
    match ui.doctor.chosen() {
        Some((host, Some(verdict))) => parts(host, verdict).iter().for_each(|(name, text)| {
            add(name, &model.hosts_option.with(text), matches!(*name, "fix" | "run"));
        }),
        _ => add("", "no answer yet", false),
    }
    if let Some(row) = ui.doctor.row() {
        add("asks", &format!("{}?", row.asks), false);
    }
    lines.pop();
    lines
}

fn parts(host: &HostId, verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut parts = vec![("seen", verdict.evidence.clone())];
    parts.extend(verdict.cause.clone().map(|cause| ("why", cause)));
    parts.extend(verdict.remedy.clone().map(|remedy| ("fix", remedy)));
    if let Some(fix) = &verdict.fix {
        let place = match fix.place(host) {
            Some(on) => format!("on {on}: "),
            None => "here: ".to_owned(),
        };
        parts.push(("run", place + &fix.command()));
        let there = if matches!(fix, Fix::Here(_)) { "" } else { " there, by your own ssh" };
        parts.push(("", format!("hvtui doctor --fix asks for it and runs it{there}")));
    }
    if verdict.stops_launch() {
        parts.push(("", "a launch that needs it does not start unless forced".to_owned()));
    }
    parts
}

/// The first line that is shown when it is scrolled to its end.
pub fn last(model: &Model) -> usize {
    lines(model, model.size.0).len().saturating_sub(usize::from(rows(model)))
}

/// Lines that are shown at once: all but the head, the notice above the keys, and these.
pub fn rows(model: &Model) -> u16 {
    model.area().1.saturating_sub(2)
}

/// Shows it.
pub fn open(model: &mut Model) {
    model.ui.overlay = Overlay::Verdict(0);
}

/// A key while it is open.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let (last, page) = (last(model), usize::from(rows(model)).saturating_sub(1).max(1));
    let Overlay::Verdict(first) = &mut model.ui.overlay else { return Vec::new() };
    // another cell, or a larger terminal, may have fewer lines
    let now = (*first).min(last);
    match key.code {
        KeyCode::Up | KeyCode::Char('k') => *first = now.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => *first = (now + 1).min(last),
        KeyCode::PageUp => *first = now.saturating_sub(page),
        KeyCode::PageDown | KeyCode::Char(' ') => *first = (now + page).min(last),
        KeyCode::Home | KeyCode::Char('g') => *first = 0,
        KeyCode::End | KeyCode::Char('G') => *first = last,
        KeyCode::Left | KeyCode::Char('h') => return to(model, Action::Left),
        KeyCode::Right | KeyCode::Char('l') => return to(model, Action::Right),
        KeyCode::Char('n') => return to(model, Action::NextMatch),
        KeyCode::Char('N') => return to(model, Action::PreviousMatch),
        KeyCode::Char('y') => return to(model, Action::Copy),
        KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => model.ui.overlay = Overlay::None,
        _ => {}
    }
    Vec::new()
}

/// Does what a key of the screen below does; another cell begins at its first line.
fn to(model: &mut Model, action: Action) -> Vec<Effect> {
    let effects = doctor::act(model, action);
    if action != Action::Copy {
        model.ui.overlay = Overlay::Verdict(0);
    }
    effects
}
