//! One line on standard error that is written over as things go on. Nothing is shown where no person sees it.

use std::io::IsTerminal;

use super::output;
use crate::domain::log_text::slice::slice;
use crate::domain::log_text::spans;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ProgressLine {
    shown: String,
}

impl ProgressLine {
    /// How wide it may be; `None` where standard error is no terminal.
    pub(crate) fn width() -> Option<usize> {
        let stderr = std::io::stderr();
        let size = || rustix::termios::tcgetwinsize(&stderr).ok().filter(|size| size.ws_col > 0);
        stderr.is_terminal().then(|| size().map_or(80, |size| usize::from(size.ws_col)) - 1)
    }

    /// Shows `hvtui: TEXT`, cut to the terminal's width. `false` where there is none.
    pub(crate) fn show(&mut self, text: &str) -> bool {
        self.write(&format!("hvtui: {text}"))
    }

    /// Shows a line of a rank that has not ended yet.
    pub(crate) fn write(&mut self, text: &str) -> bool {
        let Some(width) = Self::width() else { return false };
        let text: String = slice(&spans(text), 0, width).into_iter().map(|span| span.text).collect();
        if text != self.shown {
            // a terminal that is stopped shows the newest when it goes on
            if output::err_now(&format!("\r\x1b[K{text}")) {
                self.shown = text;
            }
        }
        true
    }

    /// Takes it away, so that something else can be printed in its place.
    pub(crate) fn clear(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            output::err("\r\x1b[K");
        }
    }
}
