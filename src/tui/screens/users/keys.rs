//! What the keys and the mouse do on the Users screen.

use super::{RowId, rows, settle, users};
use crate::tui::core::keymap::{Action, Binding, bind, c, k, named};
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind, layout, list};
use crate::tui::screens::overlay::signal;
use crate::tui::screens::processes::{ProcessId, find};
use crate::tui::screens::update::wheel;
use crate::tui::screens::{Model, cluster, detail};
use std::collections::BTreeSet;

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[k(KeyCode::Enter)],
        Action::Unfold,
        "open",
        "of a user: show or hide the processes; of a process: the detail of its GPU",
    ),
    named(&[c('z')], Action::Fold, "fold", "show or hide the processes of the user"),
    named(&[c('Z')], Action::FoldAll, "fold all", "show or hide the processes of all users"),
    bind(&[c('K')], Action::Signal, "signal", "send a signal to the process, or to its tree (asks first)"),
    bind(&[k(KeyCode::Esc)], Action::Back, "back", "back to where you came from"),
];

/// Why a key can do nothing as things stand.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    use Action::{Fold, FoldAll, Signal, Unfold};
    let needs_row = matches!(action, Unfold | Fold | FoldAll | Signal);
    (needs_row && model.ui.users.cursor.on.is_none()).then_some("no process uses a GPU")
}

/// Does what a key means here.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::Unfold => match model.ui.users.cursor.on.clone() {
            Some(RowId::Process(id)) => open_gpu(model, id),
            _ => fold(model),
        },
        Action::Fold => fold(model),
        Action::FoldAll => {
            let all: BTreeSet<String> = users(model).into_iter().map(|user| user.name).collect();
            let unfolded = &mut model.ui.users.unfolded;
            *unfolded = if unfolded.is_empty() { all } else { BTreeSet::new() };
            settle(model);
        }
        Action::Signal => match model.ui.users.cursor.on.clone() {
            Some(RowId::Process(id)) => return signal::open(model, &id),
            _ => model.notice(Level::Info, "select a process: enter shows those of a user"),
        },
        Action::Back => model.ui.back(),
        _ => move_cursor(model, action),
    }
    Vec::new()
}

/// Opens the detail of the GPU of a process.
fn open_gpu(model: &mut Model, id: ProcessId) {
    let Some(place) = find(model, &id).map(|row| row.place) else { return };
    let info = model.world.hosts.get(&id.0).and_then(|state| state.info.as_ref());
    let Some(gpu) = info.and_then(|info| info.gpus.get(place)) else { return };
    let row = cluster::rows::RowId::Gpu(id.0.clone(), gpu.uuid.clone(), place);
    detail::open(model, row, Some(id));
}

/// On a process, its user's are hidden and the cursor goes to the user.
fn fold(model: &mut Model) {
    let users = users(model);
    let all = rows(model, &users);
    let at = model.ui.users.cursor.index.min(all.len().saturating_sub(1));
    let user = all.iter().take(at + 1).rev().find_map(|row| match row {
        RowId::User(name) => Some(name.clone()),
        RowId::Process(_) => None,
    });
    let Some(name) = user else { return };
    if !model.ui.users.unfolded.remove(&name) {
        model.ui.users.unfolded.insert(name);
    } else if let Some(at) = all.iter().position(|row| *row == RowId::User(name.clone())) {
        move_to(model, at);
    }
    settle(model);
}

fn move_to(model: &mut Model, at: usize) {
    let rows = rows(model, &users(model));
    let height = usize::from(layout::users_list(model.area()).h);
    model.ui.users.cursor.move_to(at, &rows, height);
}

fn move_cursor(model: &mut Model, action: Action) {
    let rows = rows(model, &users(model));
    let height = usize::from(layout::users_list(model.area()).h);
    let delta = list::delta(action, height);
    if delta != 0 {
        model.ui.users.cursor.move_by(delta, &rows, height);
    }
}

/// A click selects, a double click opens, the wheel moves.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            let line = layout::users_list(model.area()).line_of(mouse.row);
            let at = line.map(|line| model.ui.users.cursor.offset + line);
            let Some(at) = at.filter(|at| *at < rows(model, &users(model)).len()) else { return Vec::new() };
            move_to(model, at);
            if mouse.kind == MouseKind::DoubleClick {
                return act(model, Action::Unfold);
            }
        }
        MouseKind::Drag => {}
        MouseKind::WheelUp | MouseKind::WheelDown => wheel(model, mouse.kind, act),
    }
    Vec::new()
}
