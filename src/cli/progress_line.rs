//! A line or several rows on standard error that are written over as things go on. Nothing is shown where no person sees it.

use std::fmt::Write as _;
use std::io::IsTerminal;

use super::{glyphs, output};
use crate::clock;
use crate::domain::log_text::slice::slice;
use crate::domain::log_text::{rows, spans};
use crate::domain::time::Stamp;

/// What is read sooner needs no line, microseconds.
const AFTER_US: i64 = 1_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ProgressLine {
    /// A row a line.
    shown: String,
}

impl ProgressLine {
    /// Columns and rows that it may have; `None` where standard error is no terminal.
    pub(crate) fn size() -> Option<(usize, usize)> {
        let stderr = std::io::stderr();
        let size = || rustix::termios::tcgetwinsize(&stderr).ok().filter(|size| size.ws_col > 0);
        let (width, height) =
            stderr.is_terminal().then(|| size().map_or((80, 24), |size| (size.ws_col, size.ws_row)))?;
        Some((usize::from(width) - 1, usize::from(height)))
    }

    /// Whether it stands below what is printed: on a terminal that both streams lead to and that moves its cursor.
    pub(crate) fn is_below_output() -> bool {
        let term = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        term && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Shows `hvtui: TEXT`, cut to the terminal's width. `false` where there is none.
    pub(crate) fn show(&mut self, text: &str) -> bool {
        self.write(&glyphs::shown(&format!("hvtui: {text}")))
    }

    /// Shows what a rank has not ended yet: of more rows than the terminal has, the last.
    pub(crate) fn write(&mut self, text: &str) -> bool {
        let Some((width, height)) = Self::size() else { return false };
        let rows: Vec<String> = rows(text).map(|row| cut(row, width)).collect();
        let text = rows[rows.len().saturating_sub(height.saturating_sub(1).max(1))..].join("\n");
        if text != self.shown {
            // a terminal that is stopped shows the newest when it goes on
            if output::err_now(&redraw(&self.shown, &text)) {
                self.shown = text;
            }
        }
        true
    }

    /// Takes it away, so that something else can be printed in its place.
    pub(crate) fn clear(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        if !shown.is_empty() {
            output::err(&redraw(&shown, ""));
        }
    }
}

/// A line that says how far recordings are read, once that has taken a second; it goes with this.
#[derive(Debug)]
pub(crate) struct ReadingLine {
    line: ProgressLine,
    since: Stamp,
}

impl ReadingLine {
    /// The reading begins.
    pub(crate) fn begin() -> Self {
        Self { line: ProgressLine::default(), since: clock::now() }
    }

    /// So large a share is read, 0 to 1.
    pub(crate) fn show(&mut self, share: f64) {
        if clock::now().micros_since(self.since) >= AFTER_US {
            self.line.show(&words(share));
        }
    }
}

impl Drop for ReadingLine {
    fn drop(&mut self) {
        self.line.clear();
    }
}

/// `reading the recording: 42 %`.
fn words(share: f64) -> String {
    format!("reading the recording: {:.0} %", share.clamp(0.0, 1.0) * 100.0)
}

fn cut(row: &str, width: usize) -> String {
    slice(&spans(row), 0, width).into_iter().map(|span| span.text).collect()
}

/// What writes new rows over those that are shown.
fn redraw(shown: &str, new: &str) -> String {
    let mut out = "\r".to_owned();
    let above = shown.matches('\n').count();
    if above > 0 {
        let _ = write!(out, "\u{1b}[{above}A");
    }
    out.push_str("\u{1b}[J");
    out.push_str(&new.replace('\n', "\r\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_is_read_is_told_in_percent_after_a_second() {
        assert_eq!(
            [0.0, 0.421, 1.5].map(words),
            [0, 42, 100].map(|percent| format!("reading the recording: {percent} %"))
        );
        let mut line = ReadingLine::begin();
        line.show(0.5);
        assert_eq!(line.line.shown, "", "not in the first second");
    }

    #[test]
    fn rows_are_written_over_from_the_first_on() {
        assert_eq!(redraw("", "a"), "\r\u{1b}[Ja");
        assert_eq!(redraw("a\nb\nc", "d\ne"), "\r\u{1b}[2A\u{1b}[Jd\r\ne");
    }
}
