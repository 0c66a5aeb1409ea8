//! What a rank printed, as it is shown: the last state of a line that was written over, its colours, and nothing else that
//! could drive a terminal. Pure.
//!
//! [`super::text::sanitize`] stays the door for everything else; here it gets the text between the control sequences.

pub mod carried;
pub mod fold;
pub mod level;
pub mod search;
pub mod sgr;
pub mod slice;

use std::borrow::Cow;

pub use sgr::{Colour, Span, Style};

/// What a terminal would show of a line that was written over: what stands behind the last carriage return that has
/// something behind it; of several unfinished rows the last one. The text is not yet safe for a terminal.
pub fn last_state(text: &str) -> &str {
    let text = text.trim_end_matches(['\n', '\r']);
    text.rfind(['\n', '\r']).map_or(text, |at| &text[at + 1..])
}

/// The rows of a text that has not ended: one, or those of several progress bars.
pub fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end_matches('\n').split('\n')
}

/// Whether two lines show the same text, whatever their colours.
pub fn is_same(one: &str, other: &str) -> bool {
    let is_plain = |text: &str| !text.contains(|c| c == '\r' || sgr::is_lead_in(c));
    one == other || (!is_plain(one) || !is_plain(other)) && plain(one) == plain(other)
}

/// The parts of a line with their style: colours, bold, dim, italic, underline, inverse. Every other control sequence is
/// left out, and what is left is safe for a terminal.
pub fn spans(text: &str) -> Vec<Span> {
    spans_from(Style::default(), text)
}

/// The same of a line that begins in this style.
pub fn spans_from(style: Style, text: &str) -> Vec<Span> {
    let shown = last_state(text);
    let style = style.after(&text[..shown.as_ptr() as usize - text.as_ptr() as usize]);
    sgr::parse(style, shown)
}

/// The same with its tabs, for programs that read what is printed and terminals that know how wide one is.
pub fn spans_with_tabs(style: Style, text: &str) -> Vec<Span> {
    let shown = last_state(text);
    let mut style = style.after(&text[..shown.as_ptr() as usize - text.as_ptr() as usize]);
    let mut spans = Vec::new();
    for (at, cell) in shown.split('\t').enumerate() {
        if at > 0 {
            spans.push(Span { text: "\t".to_owned(), style });
        }
        spans.extend(sgr::parse(style, cell));
        style = style.after(cell);
    }
    spans
}

/// A line without any control sequence, safe for a terminal.
pub fn plain(text: &str) -> Cow<'_, str> {
    let text = last_state(text);
    if !text.contains(sgr::is_lead_in) {
        return super::text::sanitize(text);
    }
    Cow::Owned(sgr::parse(Style::default(), text).into_iter().map(|span| span.text).collect())
}

/// The last place between two characters that is at most this byte.
pub fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_that_a_line_begins_with_holds_until_the_line_changes_it() {
        let red = Style { fg: Some(Colour::Basic(1)), ..Style::default() };
        let shown = |text: &str| -> Vec<_> {
            spans_from(red, text).into_iter().map(|span| (span.text, span.style == red)).collect()
        };
        assert_eq!(shown("a\u{1b}[0mb"), [("a".to_owned(), true), ("b".to_owned(), false)]);
        assert_eq!(shown("10%\u{1b}[0m\r20%"), [("20%".to_owned(), false)], "by an earlier state of it, too");
    }

    #[test]
    fn tabs_are_kept_where_they_are_wanted() {
        let text = "old\ta\r\u{1b}[31ma\tb\u{1b}[0m\t\tc\u{7}";
        let spans = spans_with_tabs(Style::default(), text);
        let red = |style: Style| style.fg == Some(Colour::Basic(1));
        let shown: Vec<_> = spans.iter().map(|span| (span.text.as_str(), red(span.style))).collect();
        assert_eq!(
            shown,
            [("a", true), ("\t", true), ("b", true), ("\t", false), ("\t", false), ("c␇", false)]
        );
        assert_eq!(plain(text), "a b  c␇");
    }

    #[test]
    fn lines_are_the_same_by_what_they_show() {
        assert!(is_same("a", "a") && is_same("\u{1b}[31ma\u{1b}[0m", "a") && is_same("x\ra", "y\ra"));
        assert!(!is_same("a", "b") && !is_same("\u{1b}[31ma", "\u{1b}[31mb"));
    }

    #[test]
    fn the_last_state_of_a_line_that_was_written_over_is_shown() {
        for (text, shown) in [
            ("loss 0.5", "loss 0.5"),
            ("10%\r50%\r100%\n", "100%"),
            ("10%\r50%\r", "50%"),
            ("10%\r50%\r\r\n", "50%"),
            ("\r", ""),
            ("bar\r\u{1b}[K", ""),
            ("\u{8}\u{8}\r\u{1b}[1m8/8\u{1b}[0m \u{1b}[32m━━\u{1b}[0m", "8/8 ━━"),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }
}
