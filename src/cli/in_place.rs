//! A table that is printed again and again in one place of a terminal. Pure: what is written, as text.
//!
//! Lines are written over those that stand there, each cleared behind its end, so nothing blinks; the cursor is hidden
//! meanwhile.

use std::fmt::Write as _;

/// Shows the cursor again.
pub(crate) const END: &str = "\u{1b}[?25h";

/// `table` over what stands on a terminal of so many rows. What has no room is counted in the last row.
pub(crate) fn frame(table: &str, rows: usize) -> String {
    let lines: Vec<&str> = table.lines().collect();
    // the last row is where the cursor stands: a line feed there would scroll
    let room = rows.saturating_sub(1).max(1);
    let fits = lines.len() <= room;
    let shown = if fits { lines.len() } else { room - 1 };
    let hidden = lines.len() - shown;
    let mut out = String::from("\u{1b}[?25l\u{1b}[H");
    for line in &lines[..shown] {
        out.push_str(line);
        out.push_str("\u{1b}[K\r\n");
    }
    if hidden > 0 {
        // writing to a text does not fail
        let _ = write!(out, "↓ {hidden} more lines: a taller terminal shows them\u{1b}[K\r\n");
    }
    // what a longer table left
    out.push_str("\u{1b}[J");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_over_the_last_one_and_fits() {
        let whole = frame("a\nb\n", 24);
        assert_eq!(whole, "\u{1b}[?25l\u{1b}[Ha\u{1b}[K\r\nb\u{1b}[K\r\n\u{1b}[J");
        assert!(!whole.contains("\u{1b}[2J"), "nothing is cleared before it is written over");
        let tall = (0..50).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n") + "\n";
        let cut = frame(&tall, 10);
        assert_eq!(cut.matches("\r\n").count(), 9, "no line feed in the last row");
        assert!(cut.contains("line 7") && !cut.contains("line 8") && cut.contains("↓ 42 more lines"));
        assert_eq!(frame(&tall, 0).matches("\r\n").count(), 1);
    }
}
