//! Writes text into cells: clipped, aligned, and never anything that could drive the terminal.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::domain::log_text::Span;
use crate::domain::log_text::slice::slice;
use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;
use crate::tui::canvas::theme::Theme;

/// A rectangle of a buffer, with a theme. Columns and lines count from its own upper left corner, and nothing is written beside it.
pub struct Canvas<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    /// The styles.
    pub theme: Theme,
}

impl<'a> Canvas<'a> {
    /// All of a buffer that begins at (0, 0).
    pub(in crate::tui) fn new(buf: &'a mut Buffer, theme: Theme) -> Self {
        let area = Rect::new(0, 0, buf.area.width, buf.area.height);
        Self { buf, area, theme }
    }

    /// A part of it.
    pub(in crate::tui) fn part(&mut self, x: u16, y: u16, w: u16, h: u16) -> Canvas<'_> {
        let (x, y) = (x.min(self.area.width), y.min(self.area.height));
        let (w, h) = (w.min(self.area.width - x), h.min(self.area.height - y));
        let area = Rect::new(self.area.x + x, self.area.y + y, w, h);
        Canvas { buf: self.buf, area, theme: self.theme }
    }

    /// Columns.
    pub(in crate::tui) fn width(&self) -> u16 {
        self.area.width
    }

    /// Lines.
    pub(in crate::tui) fn height(&self) -> u16 {
        self.area.height
    }

    /// A cell; it must lie inside.
    pub(in crate::tui) fn cell(&mut self, x: u16, y: u16) -> &mut Cell {
        &mut self.buf[(self.area.x + x, self.area.y + y)]
    }

    fn put(&mut self, x: u16, y: u16, text: &str, max: u16, style: Style) -> u16 {
        self.end_wide_before(x, y);
        let (x, y) = (self.area.x + x, self.area.y + y);
        self.buf.set_stringn(x, y, text, usize::from(max), style).0 - self.area.x
    }

    /// Blanks a wide character whose second half stands in column `x`: a terminal would draw it over what is written there.
    fn end_wide_before(&mut self, x: u16, y: u16) {
        if x > 0 && y < self.height() {
            let before = self.cell(x - 1, y);
            let symbol = before.symbol();
            if !symbol.chars().all(is_plain) && symbol.width() > 1 {
                before.set_symbol(" ");
            }
        }
    }

    /// Writes `text` from column `x`, at most `max` columns; what does not fit is cut at its end with `…`.
    /// Returns the column behind it.
    pub(in crate::tui) fn text(&mut self, x: u16, y: u16, max: u16, text: &str, style: Style) -> u16 {
        if max == 0 || x >= self.width() || y >= self.height() {
            return x;
        }
        let max = max.min(self.width() - x);
        // most of what is written
        if text.chars().all(is_plain) {
            return self.plain(x, y, max, text, style);
        }
        let text = sanitize(text);
        if text.width() <= usize::from(max) {
            return self.put(x, y, &text, max, style);
        }
        let end = self.put(x, y, &text, max - 1, style);
        self.put(end, y, "…", 1, style)
    }

    /// The same for characters that each are a cell and harmless, without looking for what belongs together.
    fn plain(&mut self, x: u16, y: u16, max: u16, text: &str, style: Style) -> u16 {
        self.end_wide_before(x, y);
        let is_cut = text.chars().nth(max.into()).is_some();
        let mut end = x;
        for (c, column) in text.chars().zip(x..x + max) {
            let c = if is_cut && column + 1 == x + max { '…' } else { c };
            self.cell(column, y).set_char(c).set_style(style);
            end = column + 1;
        }
        end
    }

    /// Writes a sign of our own that is one column wide, as [`Self::text`] would.
    pub(in crate::tui) fn glyph(&mut self, x: u16, y: u16, glyph: char, style: Style) {
        if x < self.width() && y < self.height() {
            self.end_wide_before(x, y);
            self.cell(x, y).set_char(glyph).set_style(style);
        }
    }

    /// Writes what a rank printed from column `x`, cut to `max` columns; `line` is the style where it asks for none.
    pub(in crate::tui) fn printed(&mut self, x: u16, y: u16, max: u16, spans: &[Span], line: Style) -> u16 {
        let spans = slice(spans, 0, usize::from(max));
        spans.iter().fold(x, |at, span| {
            let style = self.theme.printed(span.style, line);
            self.text(at, y, (x + max).saturating_sub(at), &span.text, style)
        })
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
        let mut at = x;
        for (place, (text, style)) in pieces.iter().enumerate() {
            let room = end.saturating_sub(at);
            let more = pieces.iter().skip(place + 1).any(|(text, _)| !text.is_empty());
            // that what follows has no room is seen
            let cut = if more && text.width() == usize::from(room) { "…" } else { "" };
            at = self.text(at, y, room, &format!("{text}{cut}"), *style);
        }
        at
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
            if x < self.width() {
                self.end_wide_before(x, row);
            }
            for column in x..(x + w).min(self.width()) {
                self.cell(column, row).reset();
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

/// Whether a character is a cell of its own whatever stands beside it, and harmless: those of ASCII, boxes, blocks and braille.
fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{2500}'..='\u{259f}' | '\u{2800}'..='\u{28ff}')
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
    fn a_part_counts_from_its_own_corner_and_keeps_inside() {
        let caps = crate::tui::canvas::Caps { color: crate::tui::canvas::ColorDepth::None, ascii: false };
        let theme = Theme::new(caps, crate::tui::core::ThemeName::Auto);
        let mut buf = Buffer::empty(Rect::new(0, 0, 8, 3));
        let mut whole = Canvas::new(&mut buf, theme);
        let mut part = whole.part(2, 1, 4, 9);
        assert_eq!((part.width(), part.height()), (4, 2));
        part.text(1, 0, 9, "abcdef", Style::new());
        part.right(0, 1, 4, "z", Style::new());
        part.text(0, 2, 4, "below", Style::new());
        part.part(3, 1, 5, 5).clear(0, 0, 9, 9);
        assert_eq!(buf, Buffer::with_lines(["        ", "   ab…  ", "        "]));
    }

    #[test]
    fn pieces_without_room_leave_a_sign() {
        let caps = crate::tui::canvas::Caps { color: crate::tui::canvas::ColorDepth::None, ascii: false };
        let theme = Theme::new(caps, crate::tui::core::ThemeName::Auto);
        let drawn = |pieces: &[&str]| {
            let mut buf = Buffer::empty(Rect::new(0, 0, 6, 1));
            let pieces: Vec<(String, Style)> =
                pieces.iter().map(|text| ((*text).to_owned(), Style::new())).collect();
            Canvas::new(&mut buf, theme).pieces(0, 0, 6, &pieces);
            buf.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>()
        };
        assert_eq!(drawn(&["ab", "cdef"]), "abcdef");
        assert_eq!(drawn(&["ab", "cdef", ""]), "abcdef");
        assert_eq!(drawn(&["ab", "cdef", "g"]), "abcde…");
        assert_eq!(drawn(&["ab", "cdefg"]), "abcde…");
    }

    #[test]
    fn a_wide_character_that_is_half_covered_is_gone() {
        let caps = crate::tui::canvas::Caps { color: crate::tui::canvas::ColorDepth::None, ascii: false };
        let theme = Theme::new(caps, crate::tui::core::ThemeName::Auto);
        let mut buf = Buffer::empty(Rect::new(0, 0, 6, 2));
        let mut canvas = Canvas::new(&mut buf, theme);
        for y in 0..2 {
            canvas.text(0, y, 6, "日本語", Style::new());
        }
        canvas.clear(1, 0, 3, 1);
        canvas.text(3, 1, 2, "│x", Style::new());
        let symbols = |y| (0..6).map(|x| buf[(x, y)].symbol().to_owned()).collect::<Vec<_>>().concat();
        assert_eq!((symbols(0).as_str(), symbols(1).as_str()), ("    語 ", "日  │x "));
    }

    #[test]
    fn a_sign_is_written_as_a_text_of_one_column_would_be() {
        let caps = crate::tui::canvas::Caps { color: crate::tui::canvas::ColorDepth::Full, ascii: false };
        let theme = Theme::new(caps, crate::tui::core::ThemeName::Auto);
        let drawn = |write: &dyn Fn(&mut Canvas<'_>, u16, u16, char)| {
            let mut buf = Buffer::empty(Rect::new(0, 0, 6, 3));
            let mut canvas = Canvas::new(&mut buf, theme);
            canvas.text(0, 0, 6, "日本語", theme.bad);
            let mut part = canvas.part(1, 0, 4, 2);
            for (x, y, glyph) in [(0, 0, '│'), (3, 1, '╌'), (2, 1, ' '), (4, 0, 'x'), (0, 2, 'x')] {
                write(&mut part, x, y, glyph);
            }
            buf
        };
        let as_text = drawn(&|canvas, x, y, glyph| {
            canvas.text(x, y, 1, &glyph.to_string(), theme.accent);
        });
        let as_glyph = drawn(&|canvas, x, y, glyph| canvas.glyph(x, y, glyph, theme.accent));
        assert_eq!(as_glyph, as_text);
        assert_eq!(as_glyph[(1, 0)].symbol(), "│");
        assert_eq!(as_glyph[(5, 0)].symbol(), " ", "nothing stands beside the part");
    }

    #[test]
    fn plain_text_is_written_as_any_text_is() {
        let caps = crate::tui::canvas::Caps { color: crate::tui::canvas::ColorDepth::Full, ascii: false };
        let theme = Theme::new(caps, crate::tui::core::ThemeName::Auto);
        let all = (' '..='~').chain('\u{2500}'..='\u{259f}').chain('\u{2800}'..='\u{28ff}');
        for c in all {
            assert!(is_plain(c) && c.width() == Some(1) && sanitize(c.to_string().as_str()) == c.to_string());
        }
        assert!(!['\t', '\u{7f}', '…', '日', '\u{301}', '\u{fe0f}', '\u{25b6}'].into_iter().any(is_plain));
        let drawn = |text: &str, (x, max): (u16, u16), is_plain: bool| {
            let mut buf = Buffer::empty(Rect::new(0, 0, 9, 1));
            let mut canvas = Canvas::new(&mut buf, theme);
            canvas.text(0, 0, 9, "日本語", theme.bad);
            let end = if is_plain {
                canvas.plain(x, 0, max, text, theme.accent)
            } else if text.width() <= usize::from(max) {
                canvas.put(x, 0, text, max, theme.accent)
            } else {
                let end = canvas.put(x, 0, text, max - 1, theme.accent);
                canvas.put(end, 0, "…", 1, theme.accent)
            };
            (buf, end)
        };
        for text in ["", "a", "ab c", "──▁▂█", "⠁⣿ 12 %", "abcdefghijkl"] {
            for (x, max) in [(0, 1), (0, 9), (1, 4), (3, 2), (8, 1), (2, 7)] {
                assert_eq!(drawn(text, (x, max), true), drawn(text, (x, max), false), "{text} {x} {max}");
            }
        }
    }

    #[test]
    fn columns_are_skipped_and_not_characters() {
        assert_eq!(skip_columns("abc", 0), "abc");
        assert_eq!(skip_columns("日本語", 2), "本語");
        assert_eq!(skip_columns("日本語", 3), "語", "half a character is none");
        assert_eq!(skip_columns("ab", 5), "");
    }
}
