//! What the keys do on the Detail screen.

use super::settle;
use crate::tui::core::keymap::{Action, Binding, bind, c, k};
use crate::tui::core::{Effect, KeyCode, Mouse, MouseKind, Screen};
use crate::tui::screens::Model;
use crate::tui::screens::update::wheel;

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(&[k(KeyCode::Esc)], Action::Back, "back", "back to the cluster"),
    bind(&[c('R')], Action::Reconnect, "reconnect", "try this host again now"),
];

/// Does what a key means here.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let detail = &mut model.ui.detail;
    match action {
        Action::Back => model.ui.screen = Screen::Cluster,
        Action::Up => detail.scroll = detail.scroll.saturating_sub(1),
        Action::Down => detail.scroll += 1,
        Action::Top => detail.scroll = 0,
        Action::Reconnect => {
            let host = detail.on.as_ref().map(|row| row.host().clone());
            return host.map(Effect::Reconnect).into_iter().collect();
        }
        _ => {}
    }
    settle(model);
    Vec::new()
}

/// The wheel scrolls.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    if matches!(mouse.kind, MouseKind::WheelUp | MouseKind::WheelDown) {
        wheel(model, mouse.kind, act);
    }
    Vec::new()
}
