//! The help of a screen: its bindings as lines, and how far they scroll. Shared by the keys and the drawing.

use unicode_width::UnicodeWidthStr;

use crate::tui::core::keymap::Binding;
use crate::tui::core::words::wrap;
use crate::tui::screens::{Model, entry, readonly};

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
    /// The help of the screen that is shown, in a terminal of so many columns and rows: without what is refused here.
    pub fn of(model: &Model, size: (u16, u16)) -> Self {
        let width = size.0.saturating_sub(4).min(104);
        let allowed = |binding: &&Binding| readonly::allows(model, binding.action);
        let keys_of = |binding: &Binding| binding.keys_text(model.ascii);
        let screen = entry(model.ui.screen);
        let keys =
            screen.bindings().filter(allowed).map(|binding| keys_of(binding).width()).max().unwrap_or(0);
        let room = usize::from(width).saturating_sub(keys + 8);
        let mut lines: Vec<(String, String)> = Vec::new();
        for (nth, table) in screen.tables().into_iter().enumerate() {
            if nth == 1 {
                lines.push((String::new(), String::new()));
            }
            for binding in table.into_iter().filter(allowed) {
                for (at, line) in wrap(binding.help, room).into_iter().enumerate() {
                    let keys = if at == 0 { keys_of(binding) } else { String::new() };
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
    use crate::domain::time::Stamp;
    use crate::tui::screens::SCREENS;

    #[test]
    fn every_line_can_be_reached_and_no_key_is_dead_at_the_end() {
        for size in [(60, 15), (80, 24), (400, 100)] {
            for screen in SCREENS {
                let mut model = Model::live(Vec::new(), Stamp(0), 0);
                model.ui.screen = screen.screen;
                let help = Help::of(&model, size);
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

    #[test]
    fn what_a_read_only_client_refuses_is_not_in_its_help() {
        let mut model = Model::live(Vec::new(), Stamp(0), 0);
        let has = |model: &Model, key: &str| {
            let help = Help::of(model, (80, 24));
            help.lines.iter().any(|(keys, _)| keys.split(' ').any(|one| one == key))
        };
        assert!(has(&model, "L") && has(&model, "K") && has(&model, "?"));
        model.readonly = true;
        assert!(!has(&model, "L") && !has(&model, "K") && has(&model, "?"));
        model.ui.screen = crate::tui::core::Screen::Run;
        assert!(["x", "a", "T", "S"].iter().all(|key| !has(&model, key)));
        assert!(has(&model, "t"));
    }

    #[test]
    fn in_ascii_the_arrows_are_words() {
        let mut model = Model::live(Vec::new(), Stamp(0), 0);
        model.ui.screen = crate::tui::core::Screen::Replay;
        model.ascii = true;
        let help = Help::of(&model, (80, 24));
        assert!(help.lines.iter().all(|(keys, _)| keys.is_ascii()), "{help:?}");
        assert!(help.lines.iter().any(|(keys, _)| keys == "left"));
        assert_eq!(help.lines.iter().filter(|(keys, _)| keys == "<").count(), 1, "{help:?}");
    }
}
