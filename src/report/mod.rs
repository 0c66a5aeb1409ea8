//! The figures of a run, and of two beside each other, in words: as text of 80 columns, and as one page. Pure; layer 1.

pub mod diff_text;
mod html;
mod page;
mod svg;
pub mod text;
mod waits_text;

pub use page::page;
pub use waits_text::waits_table;

use chrono::{DateTime, Local};
use unicode_width::UnicodeWidthStr;

use crate::domain::time::Stamp;

/// Columns of everything that is printed.
pub const WIDTH: usize = 80;

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

/// The day and minute in this machine's time zone.
pub(crate) fn local_time(at: Stamp) -> String {
    match DateTime::from_timestamp_micros(at.0) {
        Some(time) => time.with_timezone(&Local).format("%Y-%m-%d %H:%M").to_string(),
        None => "–".to_owned(),
    }
}

/// The day and second in this machine's time zone.
pub(crate) fn local_second(at: Stamp) -> String {
    let second = at.0.div_euclid(1_000_000).rem_euclid(60);
    format!("{}:{second:02}", local_time(at))
}

#[cfg(test)]
mod tests;
