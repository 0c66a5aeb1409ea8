//! Turns a drawn frame, or what a command prints for people, into ASCII where nothing else is shown.

use std::borrow::Cow;

use ratatui::buffer::Buffer;

/// Left of this column no strip begins: a mark there is that of a fold.
const STRIPS_FROM: usize = 11;

/// Replaces every glyph beyond ASCII by one that says the same.
pub(in crate::tui) fn to_ascii(buf: &mut Buffer) {
    let width = usize::from(buf.area.width).max(1);
    for row in buf.content.chunks_mut(width) {
        if row.iter().all(|cell| cell.symbol().is_ascii()) {
            continue;
        }
        let first = |symbol: &str| symbol.chars().next().unwrap_or(' ');
        let mut glyphs: Vec<char> = row.iter().map(|cell| first(cell.symbol())).collect();
        replace(&mut glyphs);
        for (cell, glyph) in row.iter_mut().zip(glyphs) {
            if !cell.symbol().is_ascii() || !cell.symbol().starts_with(glyph) {
                cell.set_char(if glyph.is_ascii() { glyph } else { '?' });
            }
        }
    }
}

/// The text with the same marks as in a frame, in as many columns. Letters of names and paths stay what they are.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| {
        let mut row: Vec<char> = line.chars().collect();
        replace(&mut row);
        row.into_iter().collect::<String>()
    };
    Cow::Owned(text.split_inclusive('\n').map(line).collect())
}

/// Replaces the marks of a row; other letters stay.
fn replace(row: &mut [char]) {
    for at in 0..row.len() {
        if row[at].is_ascii() {
            continue;
        }
        let is =
            |at: Option<usize>, glyph: char| at.and_then(|at| row.get(at)).is_some_and(|one| *one == glyph);
        let after_blank = is(at.checked_sub(1), ' ');
        let after_number = after_blank && at.checked_sub(2).is_some_and(|at| row[at].is_ascii_digit());
        let before_name = after_blank && row.get(at + 1).is_some_and(|one| one.is_alphanumeric());
        let counts = is(at.checked_add(1), ' ') && row.get(at + 2).is_some_and(char::is_ascii_digit);
        let has_letter = row[at] == '°' && is(at.checked_add(1), 'C');
        let glyph = match row[at] {
            // the cursor's mark stands at the left edge, where no bar is
            '▌' if at == 0 => '>',
            // of a host that is unfolded; `v` would be a letter of its name
            '▾' if before_name || at < STRIPS_FROM => '-',
            // `↓ 3 more`: `v` would be a key
            '↓' if counts => '+',
            // `71°` has no other letter; `88 °C` and a column's head have it
            '°' if has_letter && !after_number => ' ',
            glyph => replacement(glyph).unwrap_or(glyph),
        };
        if after_number && has_letter {
            row[at + 1] = ' ';
        }
        row[at] = glyph;
    }
}

#[expect(clippy::match_same_arms, reason = "one line a family of glyphs")]
fn replacement(glyph: char) -> Option<char> {
    Some(match glyph {
        '\u{a0}' => ' ',
        '●' => '*',
        '▾' | '↓' => 'v',
        '▸' => '+',
        '▶' | '→' | '›' | '≥' => '>',
        '←' => '<',
        '↑' | '▲' => '^',
        '✖' => 'X',
        '×' => 'x',
        '⚠' => '!',
        '✔' => '+',
        '±' => '~',
        'µ' => 'u',
        '«' | '»' => '"',
        '•' => '*',
        '…' => '~',
        '·' | '░' => '.',
        '–' | '─' | '━' | '−' => '-',
        '╌' => '~',
        '│' | '▕' | '▏' | '┃' | '╵' => '|',
        '╭' | '╮' | '╰' | '╯' => '+',
        '°' => 'C',
        '❚' => '=',
        '◆' => '@',
        '◇' => '%',
        '○' => 'o',
        '═' => '=',
        '╞' => '[',
        '╡' => ']',
        '▼' => 'v',
        '■' => '#',
        '┬' | '┴' | '┼' => '+',
        '└' => '`',
        '▁' => '_',
        '▂' => ',',
        '▎' | '▍' => '.',
        '▃' => ':',
        '▄' => '-',
        '▅' => '=',
        '▆' => '+',
        '▇' | '█' | '▌' | '▋' | '▊' | '▉' | '▒' | '▓' => '#',
        '\u{2400}'..='\u{2421}' => '^',
        '\u{2800}'..='\u{28ff}' => line(u32::from(glyph) - 0x2800),
        _ => return None,
    })
}

/// A cell of a line chart: where its dots are.
fn line(dots: u32) -> char {
    match (dots & 0x1b != 0, dots & 0xe4 != 0) {
        (true, true) => ':',
        (true, false) => '\'',
        _ => '.',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glyphs_of_cells_that_differ_still_do() {
        let mut cells: Vec<char> = "·▁▂▃▄▅▆▇○●×?"
            .chars()
            .map(|glyph| if glyph == '?' { glyph } else { replacement(glyph).unwrap() })
            .collect();
        let all = cells.len();
        cells.sort_unstable();
        cells.dedup();
        assert_eq!(cells.len(), all, "{cells:?}");
    }

    #[test]
    fn each_sign_has_a_glyph_of_its_own() {
        let signs = "●▲✔✖⚠◆◇○×■…·";
        let glyphs: std::collections::BTreeSet<char> = signs.chars().filter_map(replacement).collect();
        assert_eq!(glyphs.len(), signs.chars().count(), "{glyphs:?}");
        assert!(!glyphs.contains(&'?') && glyphs.iter().all(char::is_ascii));
    }

    fn ascii(text: &str) -> String {
        let mut buf = Buffer::with_lines([text]);
        to_ascii(&mut buf);
        buf.content.iter().map(ratatui::buffer::Cell::symbol).collect()
    }

    #[test]
    fn the_mark_of_a_fold_is_no_letter_of_the_name_behind_it() {
        assert_eq!(ascii("▌▾gpu-a"), ">-gpu-a");
        assert_eq!(ascii(" ▸gpu-a          ▾gpu-b"), " +gpu-a          -gpu-b", "two tables");
        assert_eq!(ascii("!▾ 8-15"), "!- 8-15");
        assert_eq!(ascii(" whole run ──▾──"), " whole run --v--", "a mark of a person");
    }

    #[test]
    fn what_lies_below_is_not_told_by_the_name_of_a_key() {
        assert_eq!(ascii("timeline   ↓ 3 more GPUs"), "timeline   + 3 more GPUs");
        assert_eq!(ascii("↑ 4 ↓ 31 more"), "^ 4 + 31 more");
        assert_eq!(ascii("loss 0.183 ↓   eta"), "loss 0.183 v   eta");
    }

    #[test]
    fn numbers_with_signs_stay_true() {
        assert_eq!(ascii("clock ±0.02 ms"), "clock ~0.02 ms");
        assert_eq!(ascii("(±0.02 ms)"), "(~0.02 ms)");
        assert_eq!(ascii("±1"), "~1");
        assert_eq!(ascii("71° 88 °C °"), "71C 88 C  C");
        assert_eq!(ascii("UTIL °C"), "UTIL  C", "a head stays right-aligned");
        assert_eq!(ascii("▌ ▌"), "> #");
        assert_eq!(ascii("né ✔"), "n? +");
    }

    #[test]
    fn a_text_keeps_its_columns_and_its_names() {
        assert_eq!(text("✔ ssh   1 host · 3 − 1\n– 12 ±1 ms…\n"), "+ ssh   1 host . 3 - 1\n- 12 ~1 ms~\n");
        assert_eq!(text("▌ 71° 88 °C\n▌ é"), "> 71C 88 C \n> é");
        assert_eq!(text("/home/josé/été"), "/home/josé/été", "a path is found by its own letters");
        assert!(matches!(text("plain"), Cow::Borrowed("plain")));
    }
}
