//! Parts of a line by columns: a wide character is never cut in half. Pure.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::sgr::Span;

/// How many columns a line takes.
pub fn columns(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.text.width()).sum()
}

/// The columns from `from` on, at most `width`. Of a wide character at an edge a blank is left.
pub fn slice(spans: &[Span], from: usize, width: usize) -> Vec<Span> {
    let to = from.saturating_add(width);
    let mut at = 0;
    let mut out: Vec<Span> = Vec::new();
    for Span { text, style } in spans {
        let mut part = String::new();
        for piece in text.graphemes(true) {
            let (begin, end) = (at, at + piece.width());
            at = end;
            if begin >= from && end <= to && (begin < to || begin == end && begin > from) {
                part.push_str(piece);
            } else {
                let shown = end.min(to).saturating_sub(begin.max(from));
                part.extend(std::iter::repeat_n(' ', shown));
            }
        }
        if !part.is_empty() {
            out.push(Span { text: part, style: *style });
        }
        if at >= to {
            break;
        }
    }
    out
}

/// The line in rows of at most `width` columns, broken where a row is full; one row for an empty line.
pub fn wrap(spans: &[Span], width: usize) -> Vec<Vec<Span>> {
    let width = width.max(2);
    let mut rows: Vec<Vec<Span>> = vec![Vec::new()];
    let mut at = 0;
    for Span { text, style } in spans {
        let mut part = String::new();
        for piece in text.graphemes(true) {
            if at + piece.width() > width {
                put(&mut rows, Span { text: std::mem::take(&mut part), style: *style });
                rows.push(Vec::new());
                at = 0;
            }
            at += piece.width();
            part.push_str(piece);
        }
        put(&mut rows, Span { text: part, style: *style });
    }
    rows
}

fn put(rows: &mut [Vec<Span>], span: Span) {
    if !span.text.is_empty()
        && let Some(row) = rows.last_mut()
    {
        row.push(span);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::spans;
    use super::*;

    fn text(spans: &[Span]) -> String {
        spans.iter().map(|span| span.text.as_str()).collect()
    }

    #[test]
    fn a_wide_character_at_an_edge_leaves_a_blank() {
        let line = spans("a漢\u{1b}[31m字b\u{1b}[0m");
        assert_eq!(columns(&line), 6);
        let shown = |from, width| text(&slice(&line, from, width));
        assert_eq!([shown(0, 6), shown(0, 2), shown(2, 3), shown(4, 9)], ["a漢字b", "a ", " 字", " b"]);
        assert_eq!((shown(9, 3), shown(0, 0)), (String::new(), String::new()));
        let rows: Vec<String> = wrap(&line, 3).iter().map(|row| text(row)).collect();
        assert_eq!(rows, ["a漢", "字b"]);
        assert_eq!(wrap(&[], 5), [Vec::new()]);
    }

    proptest! {
        #[test]
        fn a_slice_takes_the_columns_it_was_asked_for(line in "[a-c漢ä\u{301}🚀]{0,30}", from in 0usize..30, width in 0usize..20) {
            let line = spans(&line);
            let there = columns(&line).saturating_sub(from).min(width);
            prop_assert_eq!(columns(&slice(&line, from, width)), there);
        }

        #[test]
        fn rows_hold_the_whole_line(line in "[a-c漢\u{1b}]{0,40}", width in 2usize..20) {
            let line = spans(&line);
            let rows = wrap(&line, width);
            prop_assert!(rows.iter().all(|row| columns(row) <= width));
            prop_assert_eq!(rows.iter().map(|row| text(row)).collect::<String>(), text(&line));
        }
    }
}
