//! The line of notices above the footer: how many rows it takes, and what stands in it. The screen gets the rows above.

use crate::domain::text::sanitize;
use crate::tui::core::Screen;
use crate::tui::core::layout::LEAST;
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;

/// The most rows that a long notice takes.
const MOST: u16 = 3;
/// What says that there are more notices, at its longest.
const MORE: usize = 14;

/// Rows between the screen and the footer of a terminal of this size: none without a notice.
pub fn rows(model: &Model, size: (u16, u16)) -> u16 {
    let most = size.1.saturating_sub(LEAST.1).clamp(1, MOST);
    let (lines, _) = lines(model, size.0);
    u16::try_from(lines.len()).unwrap_or(most).min(most)
}

/// The newest notice in lines for so many columns, and what says how many there are beside it.
pub fn lines(model: &Model, columns: u16) -> (Vec<String>, String) {
    let Some(toast) = model.ui.toasts.back() else { return (Vec::new(), String::new()) };
    let others = model.ui.toasts.len() - 1;
    let more = match others {
        0 => String::new(),
        // there E is a letter of the field
        _ if model.ui.screen == Screen::Launch => format!("  +{others} more"),
        _ => format!("  +{others} more (E)"),
    };
    let room = usize::from(columns).saturating_sub(4 + MORE);
    (wrap(&sanitize(&toast.text), room), more)
}
