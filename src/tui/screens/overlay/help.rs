//! The help of a screen: its bindings as lines, and how far they scroll. Shared by the keys and the drawing.

use unicode_width::UnicodeWidthStr;

use crate::tui::core::words::wrap;
use crate::tui::screens::Entry;

/// The lines of a screen's help in a terminal of some size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Help {
    /// Columns of the frame.
    pub width: u16,
    /// Lines of the frame.
    pub height: u16,
    /// Columns of the keys.
    pub keys: u16,
    /// Keys and words of each line; what goes on in the next line has no keys.
    pub lines: Vec<(String, String)>,
}

impl Help {
    /// The help of a screen in a terminal of so many columns and rows.
    pub fn of(screen: &Entry, size: (u16, u16)) -> Self {
        let width = size.0.saturating_sub(4).min(104);
        let keys = screen.bindings().map(|binding| binding.keys_text().width()).max().unwrap_or(0);
        let room = usize::from(width).saturating_sub(keys + 8);
        let mut lines: Vec<(String, String)> = Vec::new();
        for (nth, table) in screen.tables().into_iter().enumerate() {
            if nth == 1 {
                lines.push((String::new(), String::new()));
            }
            for binding in table {
                for (at, line) in wrap(binding.help, room).into_iter().enumerate() {
                    let keys = if at == 0 { binding.keys_text() } else { String::new() };
                    lines.push((keys, line));
                }
            }
        }
        let wanted = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
        Self { width, height: size.1.saturating_sub(2).min(wanted), keys: keys as u16, lines }
    }

    /// The first line that is shown when it is scrolled to its end.
    pub fn last(&self) -> usize {
        self.lines.len().saturating_sub(usize::from(self.height.saturating_sub(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::screens::SCREENS;

    #[test]
    fn every_line_can_be_reached_and_no_key_is_dead_at_the_end() {
        for size in [(60, 15), (80, 24), (400, 100)] {
            for screen in SCREENS {
                let help = Help::of(screen, size);
                let shown = usize::from(help.height - 2);
                assert_eq!(
                    help.last() + shown.min(help.lines.len()),
                    help.lines.len(),
                    "{} {size:?}",
                    screen.name
                );
            }
        }
    }
}
