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
        '↑' => '^',
        '✖' | '×' => 'x',
        '⚠' => '!',
        '✔' | '±' => '+',
        '·' | '…' | '░' => '.',
        '–' | '─' | '━' => '-',
        '╌' => '~',
        '│' | '▕' | '▏' | '┃' => '|',
        '╭' | '╮' | '╰' | '╯' => '+',
        '°' => 'C',
        '❚' => '=',
        '◆' => '+',
        '▁' => '_',
        '▂' | '▎' | '▍' => '.',
        '▃' => ':',
        '▄' => '-',
        '▅' => '=',
        '▆' => '+',
        '▇' => '*',
        '█' | '▌' | '▋' | '▊' | '▉' | '▒' | '▓' => '#',
        '\u{2400}'..='\u{2421}' => '^',
        _ => '?',
    }
}
