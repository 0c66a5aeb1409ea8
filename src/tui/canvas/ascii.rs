//! Turns a drawn frame into plain ASCII, for terminals that show nothing else.

use ratatui::buffer::Buffer;

/// Replaces every glyph beyond ASCII by one that says the same.
pub(in crate::tui) fn to_ascii(buf: &mut Buffer) {
    let width = usize::from(buf.area.width);
    for (at, cell) in buf.content.iter_mut().enumerate() {
        if !cell.symbol().is_ascii() {
            let glyph = cell.symbol().chars().next().unwrap_or(' ');
            // the cursor's mark stands at the left edge, where no bar is
            let is_cursor = glyph == '▌' && at % width == 0;
            cell.set_char(if is_cursor { '>' } else { replacement(glyph) });
        }
    }
}

#[expect(clippy::match_same_arms, reason = "one line a family of glyphs")]
fn replacement(glyph: char) -> char {
    match glyph {
        '\u{a0}' => ' ',
        '●' => '*',
        '▾' | '↓' => 'v',
        '▸' | '▶' | '→' => '>',
        '←' => '<',
        '↑' | '▲' => '^',
        '✖' | '×' => 'x',
        '⚠' => '!',
        '✔' | '±' => '+',
        '…' => '~',
        '·' | '░' => '.',
        '–' | '─' | '━' => '-',
        '╌' => '~',
        '│' | '▕' | '▏' | '┃' => '|',
        '╭' | '╮' | '╰' | '╯' => '+',
        '°' => 'C',
        '❚' => '=',
        '◆' => '+',
        '◇' | '○' => 'o',
        '■' => '#',
        '┬' | '┴' | '┼' => '+',
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
        _ => '?',
    }
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
            .map(|glyph| if glyph == '?' { glyph } else { replacement(glyph) })
            .collect();
        let all = cells.len();
        cells.sort_unstable();
        cells.dedup();
        assert_eq!(cells.len(), all, "{cells:?}");
    }
}
