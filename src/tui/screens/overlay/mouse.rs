//! What the mouse does to what lies over a screen: the wheel moves its list, a click presses the key on whose word it is, or
//! selects a line, and a double click on that line goes on.

use crate::tui::core::{Effect, Key, KeyCode, Mouse, MouseKind};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::palette::matches;
use crate::tui::screens::overlay::question;
use crate::tui::screens::overlay::view::palette::command_at;
use crate::tui::screens::overlay::view::signal::{Hit, hit};
use crate::tui::screens::overlay::view::{answer_at, marks, question as asked, report, stacks, verdict};
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
        _ if question::is_shown(model) => 0,
        Overlay::Help(_) | Overlay::Stacks(_) | Overlay::Report(_) | Overlay::Verdict(_) => {
            wheel_lines(kind).unsigned_abs()
        }
        Overlay::Palette(_) | Overlay::Signal(_) | Overlay::Marks(_) => 1,
        Overlay::None | Overlay::Confirm(_) | Overlay::Prompt(_) => 0,
    };
    let code = if kind == MouseKind::WheelUp { KeyCode::Up } else { KeyCode::Down };
    (0..times).flat_map(|_| key_pressed(model, Key::plain(code))).collect()
}

fn clicked(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    pressed(model, mouse).map_or_else(Vec::new, |key| key_pressed(model, key))
}

/// The key that a click stands for; one that selects a line stands for none.
fn pressed(model: &mut Model, mouse: Mouse) -> Option<Key> {
    let (column, row, size, ascii) = (mouse.column, mouse.row, model.size, model.ascii);
    // the second press of a double click may hit what the first one has brought: it answers nothing
    let is_first = mouse.kind == MouseKind::Click;
    if question::is_shown(model) {
        return asked::key_at(model, column, row).filter(|_| is_first);
    }
    match &model.ui.overlay {
        Overlay::Palette(open) => {
            let count = matches(model, open.input.value()).len();
            let at = command_at(size, open, column, row).filter(|at| *at < count)?;
            // the second press hits what the first one selected, also where the list has moved
            if !is_first {
                return Some(Key::plain(KeyCode::Enter));
            }
            if let Overlay::Palette(open) = &mut model.ui.overlay {
                open.on = at;
            }
            None
        }
        Overlay::Signal(shown) => match hit(shown, (size, ascii), (column, row))? {
            Hit::Key(key) => is_first.then_some(key),
            Hit::Signal(signal) if !is_first => {
                (shown.signal == signal).then_some(Key::plain(KeyCode::Enter))
            }
            Hit::Signal(signal) => {
                if let Overlay::Signal(shown) = &mut model.ui.overlay {
                    shown.signal = signal;
                }
                None
            }
        },
        Overlay::Confirm(confirm) => answer_at(model, confirm, column, row).filter(|_| is_first),
        Overlay::Help(_) => is_first.then_some(Key::plain(KeyCode::Esc)),
        Overlay::Stacks(shown) => {
            let now = (&model.world, model.now);
            stacks::key_at(shown, now, size, (column, row)).filter(|_| is_first)
        }
        Overlay::Report(shown) => report::key_at(model, shown, (column, row)).filter(|_| is_first),
        Overlay::Marks(list) => marks::key_at(model, list, (column, row)).filter(|_| is_first),
        Overlay::Verdict(_) => verdict::key_at(model, (column, row)).filter(|_| is_first),
        Overlay::None | Overlay::Prompt(_) => None,
    }
}
