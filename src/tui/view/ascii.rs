//! Turns a drawn frame into plain ASCII, for terminals that show nothing else.

use ratatui::buffer::Buffer;

/// Replaces every glyph beyond ASCII by one that says the same.
pub fn to_ascii(buf: &mut Buffer) {
    for cell in &mut buf.content {
        if !cell.symbol().is_ascii() {
            let plain = cell.symbol().chars().next().map_or(' ', replacement);
            cell.set_char(plain);
        }
    }
}

fn replacement(glyph: char) -> char {
    match glyph {
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
        '│' | '▕' | '▏' | '┃' => '|',
        '╭' | '╮' | '╰' | '╯' => '+',
        '°' => 'C',
        '❚' => '=',
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
