//! What the keys do on the Launch screen: between fields, in a field, and start.

use super::field::Field;
use super::{checks, completion, fields, filling, paths, preview, view};
use crate::domain::run::JobKind;
use crate::launch::request::{LaunchRequest, OnBusy, Patience};
use crate::launch::words::tidy;
use crate::tui::core::keymap::{Action, Binding, bind, k};
use crate::tui::core::{Effect, Key, KeyCode, Level, Mouse, MouseKind};
use crate::tui::screens::Model;
use crate::tui::screens::overlay::prompt;
use std::sync::Arc;

/// What the first `enter` says where a check failed.
const CHECK_FAILED: &str = "a check failed: enter again starts it all the same";

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[k(KeyCode::Enter)],
        Action::Start,
        "start",
        "start the run, once nothing is red; twice: despite a failed check",
    ),
    bind(&[k(KeyCode::Tab), k(KeyCode::Down)], Action::NextField, "next", "next field"),
    bind(&[k(KeyCode::BackTab), k(KeyCode::Up)], Action::PrevField, "previous", "previous field"),
    bind(
        &[Key::ctrl('p')],
        Action::Older,
        "history",
        "the launch before this one, then the commands of recorded runs",
    ),
    bind(&[Key::ctrl('n')], Action::Newer, "", "back to newer ones, last to what you were writing"),
    bind(&[k(KeyCode::Esc)], Action::Back, "back", "back to where you came from; what you typed stays"),
    bind(&[k(KeyCode::F(1))], Action::Help, "help", "this help"),
    bind(&[Key::ctrl('l')], Action::Redraw, "", "draw the whole screen again"),
    bind(
        &[Key::ctrl('z')],
        Action::Suspend,
        "",
        "stop hvtui and go to the shell; fg comes back, and runs go on",
    ),
    bind(&[Key::ctrl('c')], Action::Quit, "", "quit; runs go on"),
];

/// Why a key can do nothing now.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    let waits = model.ui.launch.waits.is_some();
    (action == Action::Start && waits)
        .then_some("the launch waits for its GPUs already; esc leaves the queue")
}

/// Does what a key means here; keys without meaning edit the field.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::NextField | Action::PrevField => {
            move_focus(model, if action == Action::NextField { 1 } else { -1 });
            // what was in it when it was last read may have changed
            model.ui.launch.folder = None;
            return paths::ask(model).into_iter().collect();
        }
        Action::Back if model.ui.launch.can_be_called_off() => {
            let form = &mut model.ui.launch;
            form.starting = false;
            let waited = form.waits.take().is_some();
            let text = if waited { "the launch waits no longer" } else { "the launch is called off" };
            model.notice(Level::Info, text.to_owned());
            return vec![Effect::LeaveQueue];
        }
        Action::Back => {
            // a start that waits for a host is called off
            model.ui.launch.hurried = false;
            model.ui.back();
        }
        Action::Start => return start(model),
        Action::Older => return filling::step(model, true),
        Action::Newer => return filling::step(model, false),
        _ => {}
    }
    Vec::new()
}

fn move_focus(model: &mut Model, delta: isize) {
    let fields: Vec<Field> = fields(model).collect();
    let at = fields.iter().position(|field| *field == model.ui.launch.focus).unwrap_or(0);
    let to = (at as isize + delta).rem_euclid(fields.len() as isize);
    let form = &mut model.ui.launch;
    form.focus = fields[to as usize];
    form.marked = matches!(form.focus, Field::Ranks | Field::On) && !form.text(form.focus).is_empty();
}

/// A click goes to a field, the wheel through what will run.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            let Some(field) = view::field_at(model, mouse.column, mouse.row) else { return Vec::new() };
            model.ui.launch.focus = field;
            model.ui.launch.marked = false;
            model.ui.launch.folder = None;
            paths::ask(model).into_iter().collect()
        }
        MouseKind::WheelUp => edit(model, Key::plain(KeyCode::PageUp)),
        MouseKind::WheelDown => edit(model, Key::plain(KeyCode::PageDown)),
        MouseKind::Drag => Vec::new(),
    }
}

/// A key is typed into the field.
pub(super) fn typed(model: &mut Model, key: Key) -> Vec<Effect> {
    let mut effects = edit(model, key);
    effects.extend(paths::ask(model));
    effects
}

fn edit(model: &mut Model, key: Key) -> Vec<Effect> {
    if matches!(key.code, KeyCode::Right | KeyCode::End)
        && let Some(rest) = completion::suggestion(model)
    {
        let form = &mut model.ui.launch;
        let field = form.focus;
        let text = format!("{}{rest}", form.text(field));
        form.set(field, &text);
        form.edited(field);
        return preview(model);
    }
    let form = &mut model.ui.launch;
    match (form.focus, key.code) {
        (_, KeyCode::PageDown) => {
            let ranks = match &form.plan {
                Some(Ok(plan)) => plan.spec.placements.len(),
                _ => 0,
            };
            let notes = form.notes().len();
            // a note may be long: each is a page
            let by = if form.scroll < notes { 1 } else { 5 };
            form.scroll = (form.scroll + by).min((notes + ranks).saturating_sub(1));
            return Vec::new();
        }
        (_, KeyCode::PageUp) => {
            let by = if form.scroll <= form.notes().len() { 1 } else { 5 };
            form.scroll = form.scroll.saturating_sub(by);
            return Vec::new();
        }
        (Field::Recipe, KeyCode::Right | KeyCode::Char(' ')) => return filling::choose_recipe(model, true),
        (Field::Recipe, KeyCode::Left) => return filling::choose_recipe(model, false),
        (Field::Recipe, KeyCode::Char(letter)) if !key.ctrl && !key.alt => {
            return filling::choose_by_letter(model, letter);
        }
        (Field::Kind, KeyCode::Right | KeyCode::Char(' ')) => form.kind = next_kind(form.kind),
        (Field::Kind, KeyCode::Left) => form.kind = previous_kind(form.kind),
        (field, _) if field.is_choice() => return Vec::new(),
        (field, code) => {
            let before = form.text(field).to_owned();
            let types = matches!(code, KeyCode::Char(_)) && !key.ctrl && !key.alt;
            form.touch(types || matches!(code, KeyCode::Backspace | KeyCode::Delete));
            let input = &mut form.inputs[field as usize];
            if prompt::edit(input, key).is_none() || input.value() == before {
                return Vec::new();
            }
            form.edited(field);
        }
    }
    preview(model)
}

fn next_kind(kind: Option<JobKind>) -> Option<JobKind> {
    let next =
        kind.map_or(0, |kind| JobKind::ALL.iter().position(|one| *one == kind).unwrap_or_default() + 1);
    JobKind::ALL.get(next).copied()
}

fn previous_kind(kind: Option<JobKind>) -> Option<JobKind> {
    let Some(kind) = kind else { return JobKind::ALL.last().copied() };
    let at = JobKind::ALL.iter().position(|one| *one == kind).unwrap_or_default();
    at.checked_sub(1).and_then(|before| JobKind::ALL.get(before)).copied()
}

/// Pastes into the focused field. The command keeps its line ends: where a second command begins is told from them.
pub(super) fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    let form = &mut model.ui.launch;
    let field = form.focus;
    if field.is_choice() || text.is_empty() {
        return Vec::new();
    }
    form.touch(true);
    let input = &mut form.inputs[field as usize];
    if field == Field::Command {
        let before: String = input.value().chars().take(input.cursor()).collect();
        prompt::insert(input, &tidy(&before, text));
    } else {
        prompt::paste(input, text);
    }
    form.edited(field);
    let mut effects = preview(model);
    effects.extend(paths::ask(model));
    effects
}

pub(super) fn start(model: &mut Model) -> Vec<Effect> {
    let would_fail = checks::would_fail(model);
    let form = &mut model.ui.launch;
    if form.starting {
        return Vec::new();
    }
    if would_fail && form.warned.replace(form.checks.asked) != Some(form.checks.asked) {
        model.toast(Level::Warning, CHECK_FAILED.to_owned(), None);
        return Vec::new();
    }
    model.ui.toasts.retain(|toast| toast.text != CHECK_FAILED);
    let form = &mut model.ui.launch;
    form.placed_again = false;
    match (&form.request, &form.plan) {
        (Some(_), Some(Ok(plan))) => {
            let effect = Effect::Start(Arc::clone(plan));
            form.starting = true;
            form.remember();
            vec![effect]
        }
        (Some(request), Some(Err(error))) if error.busy().is_some() => {
            let on_busy = OnBusy { wait: Some(Patience::Endless), ..request.on_busy };
            let effect = Effect::Launch(LaunchRequest { on_busy, ..request.clone() });
            form.starting = true;
            form.remember();
            vec![effect]
        }
        (None, None) if form.awaited.is_some() => {
            form.hurried = true;
            Vec::new()
        }
        (Some(_), Some(Err(error))) if error.is_waiting() => {
            form.hurried = true;
            Vec::new()
        }
        (Some(_), Some(Err(_))) => {
            model.notice(Level::Error, "this can not start: the reason stands below the form");
            Vec::new()
        }
        (Some(_), None) => {
            form.hurried = true;
            Vec::new()
        }
        _ => {
            let text = form.to_fix();
            model.notice(Level::Error, text);
            Vec::new()
        }
    }
}
