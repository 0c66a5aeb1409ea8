//! Writes text into cells: clipped, aligned, and never anything that could drive the terminal.

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;
use crate::tui::canvas::theme::Theme;

/// A buffer with a theme.
pub struct Canvas<'a> {
    /// The cells.
    pub buf: &'a mut Buffer,
    /// The styles.
    pub theme: Theme,
}

impl Canvas<'_> {
    /// Columns of the screen.
    pub(in crate::tui) fn width(&self) -> u16 {
        self.buf.area.width
    }

    /// Rows of the screen.
    pub(in crate::tui) fn height(&self) -> u16 {
        self.buf.area.height
    }

    /// Writes `text` from column `x`, at most `max` columns; what does not fit is cut at its end with `…`.
    /// Returns the column behind it.
    pub(in crate::tui) fn text(&mut self, x: u16, y: u16, max: u16, text: &str, style: Style) -> u16 {
        if max == 0 || x >= self.width() || y >= self.height() {
            return x;
        }
        let max = max.min(self.width() - x);
        let text = sanitize(text);
        if text.width() <= usize::from(max) {
            return self.buf.set_stringn(x, y, &text, usize::from(max), style).0;
        }
        let end = self.buf.set_stringn(x, y, &text, usize::from(max) - 1, style).0;
        self.buf.set_stringn(end, y, "…", 1, style).0
    }

    /// Writes a name into `width` columns; a longer one loses its middle.
    pub(in crate::tui) fn name(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let cut = middle_cut(&sanitize(text), usize::from(width));
        self.text(x, y, width, &cut, style)
    }

    /// Writes `text` flush right into `width` columns from `x`.
    pub(in crate::tui) fn right(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) {
        let used = (sanitize(text).width() as u16).min(width);
        self.text(x + width - used, y, used, text, style);
    }

    /// Writes pieces one behind the other from `x` up to column `end`; returns the column behind the last.
    pub(in crate::tui) fn pieces(&mut self, x: u16, y: u16, end: u16, pieces: &[(String, Style)]) -> u16 {
        pieces.iter().fold(x, |x, (text, style)| self.text(x, y, end.saturating_sub(x), text, *style))
    }

    /// A thin rule over the whole width with a title in it.
    pub(in crate::tui) fn rule(&mut self, y: u16, title: &[(String, Style)]) {
        let width = self.width();
        self.text(0, y, width, &"─".repeat(usize::from(width)), self.theme.dim);
        let x = self.text(1, y, 1, " ", self.theme.dim);
        let end = self.pieces(x, y, width.saturating_sub(2), title);
        self.text(end, y, 1, " ", self.theme.dim);
    }

    /// Fills a rectangle with blanks.
    pub(in crate::tui) fn clear(&mut self, x: u16, y: u16, w: u16, h: u16) {
        for row in y..(y + h).min(self.height()) {
            for column in x..(x + w).min(self.width()) {
                self.buf[(column, row)].reset();
            }
        }
    }

    /// A frame with a title around a cleared rectangle; returns the inside as (x, y, w, h).
    pub(in crate::tui) fn frame(
        &mut self,
        x: u16,
        y: u16,
        w: u16,
        h: u16,
        title: &str,
        style: Style,
    ) -> (u16, u16, u16, u16) {
        self.clear(x, y, w, h);
        if w < 4 || h < 3 {
            return (x, y, w, h);
        }
        let bar = "─".repeat(usize::from(w - 2));
        self.text(x, y, w, &format!("╭{bar}╮"), style);
        for row in y + 1..y + h - 1 {
            self.text(x, row, 1, "│", style);
            self.text(x + w - 1, row, 1, "│", style);
        }
        self.text(x, y + h - 1, w, &format!("╰{bar}╯"), style);
        self.text(x + 2, y, w - 4, &format!(" {title} "), style);
        (x + 2, y + 1, w - 4, h - 2)
    }
}

/// What stands behind the first `columns` columns of a text; a wide character that begins before and ends behind is left out.
pub(in crate::tui) fn skip_columns(text: &str, columns: usize) -> &str {
    let mut before = 0;
    for (at, c) in text.char_indices() {
        if before >= columns {
            return &text[at..];
        }
        before += c.width().unwrap_or(0);
    }
    ""
}

/// Columns a text takes.
pub(in crate::tui) fn width(text: &str) -> u16 {
    u16::try_from(sanitize(text).width()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_skipped_and_not_characters() {
        assert_eq!(skip_columns("abc", 0), "abc");
        assert_eq!(skip_columns("日本語", 2), "本語");
        assert_eq!(skip_columns("日本語", 3), "語", "half a character is none");
        assert_eq!(skip_columns("ab", 5), "");
    }
}
