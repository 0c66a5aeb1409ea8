//! What the mouse does to what lies over a screen: the wheel moves its list, a click selects a command of the palette, a double
//! click carries it out.

use crate::tui::core::{Effect, Key, KeyCode, Mouse, MouseKind};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::palette::{self, matches};
use crate::tui::screens::overlay::view::palette::command_at;
use crate::tui::screens::update::{key_pressed, wheel_lines};

/// The mouse is used while something lies over the screen.
pub fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::WheelUp | MouseKind::WheelDown => turned(model, mouse.kind),
        MouseKind::Click | MouseKind::DoubleClick => clicked(model, mouse),
        MouseKind::Drag => Vec::new(),
    }
}

/// Text scrolls by several lines, a selection moves by one.
fn turned(model: &mut Model, kind: MouseKind) -> Vec<Effect> {
    let times = match &model.ui.overlay {
        Overlay::Help(_) | Overlay::Stacks(_) => wheel_lines(kind).unsigned_abs(),
        Overlay::Palette(_) | Overlay::Signal(_) => 1,
        Overlay::None | Overlay::Confirm(_) | Overlay::Prompt(_) => 0,
    };
    let code = if kind == MouseKind::WheelUp { KeyCode::Up } else { KeyCode::Down };
    (0..times).flat_map(|_| key_pressed(model, Key::plain(code))).collect()
}

fn clicked(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    let size = model.size;
    let Overlay::Palette(open) = &model.ui.overlay else { return Vec::new() };
    let count = matches(model, open.input.value()).len();
    let at = command_at(size, open, mouse.column, mouse.row).filter(|at| *at < count);
    let (Some(at), Overlay::Palette(open)) = (at, &mut model.ui.overlay) else { return Vec::new() };
    // the second press hits what the first one selected, also where the list has moved
    if mouse.kind == MouseKind::DoubleClick {
        return palette::handle_key(model, Key::plain(KeyCode::Enter));
    }
    open.on = at;
    Vec::new()
}
