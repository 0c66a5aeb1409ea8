//! How the figures of a run are shown: as text, and as one page. Pure but for [`read`].

pub mod diff_text;
mod html;
mod page;
pub mod read;
mod svg;
pub mod text;

pub use page::page;

use unicode_width::UnicodeWidthStr;

/// Columns of everything that is printed.
const WIDTH: usize = 80;

/// `text` in lines of at most 80 columns, each after so many blanks; a word that is longer stands alone.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.width();
        if column > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(&" ".repeat(indent));
            column = indent + width;
        } else {
            out.push(' ');
            column += 1 + width;
        }
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests;
