//! How a rank's line looks on standard output and error: colours on a terminal that shows them, text alone anywhere else.
//! Does no I/O but to ask what the terminal is.

use std::io::IsTerminal;

use crate::domain::log::Stream;
use crate::domain::log_text::level::Level;
use crate::domain::log_text::{self, Colour, Style, sgr};
use crate::tui::canvas::{Caps, ColorDepth};

/// What standard output and error show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    out: ColorDepth,
    err: ColorDepth,
}

impl Default for Paint {
    /// Text alone.
    fn default() -> Self {
        Self { out: ColorDepth::None, err: ColorDepth::None }
    }
}

impl Paint {
    /// What this process's standard output and error show.
    pub(crate) fn of_process() -> Self {
        let get = |name: &str| std::env::var(name).ok();
        let is_known = get("TERM").is_some_and(|term| !term.is_empty());
        let color = Caps::from_env(get).color;
        let depth = |is_terminal: bool| if is_terminal && is_known { color } else { ColorDepth::None };
        Self { out: depth(std::io::stdout().is_terminal()), err: depth(std::io::stderr().is_terminal()) }
    }

    /// A line as it is written to where its stream goes: safe for a terminal, and in colour where that shows any. A line
    /// that begins in no style and has no colours of its own has that of its level.
    pub(crate) fn line(self, stream: Stream, text: &str, (level, style): (Level, Style)) -> String {
        let depth = if stream == Stream::Stderr { self.err } else { self.out };
        let mut spans = log_text::spans_with_tabs(style, text);
        if depth == ColorDepth::None {
            return spans.into_iter().map(|span| span.text).collect();
        }
        let is_plain = spans.iter().all(|span| span.style == Style::default());
        let own = match level {
            Level::Warning => Some(Colour::Basic(3)),
            Level::Error | Level::Fatal => Some(Colour::Basic(1)),
            Level::Unknown | Level::Debug | Level::Info => None,
        };
        for span in &mut spans {
            if is_plain {
                span.style.fg = own;
            }
            let shown = |colour: Colour| match depth {
                ColorDepth::Full => colour,
                ColorDepth::Indexed => colour.in_256(),
                ColorDepth::Basic | ColorDepth::None => Colour::Basic(colour.basic()),
            };
            for colour in [&mut span.style.fg, &mut span.style.bg] {
                *colour = colour.map(shown);
            }
        }
        sgr::to_terminal(&spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_that_shows_colours_gets_them() {
        let paint = Paint { out: ColorDepth::None, err: ColorDepth::Basic };
        let level = |level| (level, Style::default());
        let text = "\u{1b}[38;5;196mno\u{1b}[0m\u{1b}[2J space";
        assert_eq!(paint.line(Stream::Stdout, text, level(Level::Error)), "no space");
        assert_eq!(paint.line(Stream::Stderr, text, level(Level::Error)), "\u{1b}[91mno\u{1b}[0m space");
        assert_eq!(
            paint.line(Stream::Stderr, "no space", level(Level::Error)),
            "\u{1b}[31mno space\u{1b}[0m"
        );
        assert_eq!(paint.line(Stream::Stderr, "step 1", level(Level::Info)), "step 1");
        let full = Paint { out: ColorDepth::Full, ..paint };
        assert_eq!(full.line(Stream::Stdout, text, level(Level::Error)), "\u{1b}[38;5;196mno\u{1b}[0m space");
        let some = Paint { out: ColorDepth::Indexed, ..paint };
        let text = "\u{1b}[38;2;250;10;10mno";
        assert_eq!(some.line(Stream::Stdout, text, level(Level::Error)), "\u{1b}[38;5;196mno\u{1b}[0m");
    }
}
