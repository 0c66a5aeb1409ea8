//! What the keys do on the Detail screen.

use super::{ids, view};
use crate::tui::core::keymap::{Action, Binding, bind, c, k, named};
use crate::tui::core::list;
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind};
use crate::tui::screens::Model;
use crate::tui::screens::faults;
use crate::tui::screens::overlay::signal;
use crate::tui::screens::update::wheel;

/// Lines of a page of its processes.
const PAGE: usize = 10;

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(&[k(KeyCode::Esc)], Action::Back, "back", "back to where you came from"),
    bind(&[c('K')], Action::Signal, "signal", "send a signal to the process, or to its tree (asks first)"),
    named(&[c('C')], Action::Acknowledge, "acknowledge", "acknowledge the errors of this GPU or host"),
    bind(&[c('R')], Action::Reconnect, "reconnect", "try this host again now"),
];

/// Why a key can do nothing as things stand.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    (action == Action::Signal && ids(model).is_empty()).then_some("no process is known here")
}

/// Does what a key means here.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let detail = &mut model.ui.detail;
    match action {
        Action::Back => model.ui.back(),
        Action::Signal => {
            let on = detail.cursor.on.clone().filter(|id| ids(model).contains(id));
            if let Some(id) = on {
                return signal::open(model, &id);
            }
            model.notice(Level::Info, "no process is selected");
        }
        Action::Acknowledge => {
            let row = detail.on.clone();
            return faults::acknowledge(model, row.as_ref());
        }
        Action::Reconnect => {
            let host = detail.on.as_ref().map(|row| row.host().clone());
            return host.map(Effect::Reconnect).into_iter().collect();
        }
        _ => {
            let (ids, delta) = (ids(model), list::delta(action, PAGE));
            model.ui.detail.cursor.move_by(delta, &ids, usize::MAX);
        }
    }
    Vec::new()
}

/// A click selects a process, the wheel moves the selection.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            if let Some(at) = view::process_at(model, mouse.row) {
                let ids = ids(model);
                model.ui.detail.cursor.move_to(at, &ids, usize::MAX);
            }
        }
        MouseKind::Drag => {}
        MouseKind::WheelUp | MouseKind::WheelDown => wheel(model, mouse.kind, act),
    }
    Vec::new()
}
