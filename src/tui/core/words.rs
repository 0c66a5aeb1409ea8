//! Text as lines hold it: a sentence cut into lines, numbers and moments as words.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::domain::time::Stamp;
use crate::domain::units;
use crate::tui::core::Zone;

/// Breaks a sentence at blanks into lines of at most `width` columns; a longer word is cut in its middle.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let word = units::middle_cut(word, width);
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Breaks a text at blanks into lines of at most `width` columns. Nothing of it is left out: a longer word goes on in the next
/// line, and blanks stay, as they may belong to a command.
pub fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for (at, word) in text.split(' ').enumerate() {
        let used = lines.last().map_or(0, |line| line.width());
        if at > 0 && used + 1 + word.width() <= width {
            lines.iter_mut().last().into_iter().for_each(|line| line.push(' '));
        } else if at > 0 {
            lines.push(String::new());
        }
        for c in word.chars() {
            let used = lines.last().map_or(0, |line| line.width());
            if used > 0 && used + c.width().unwrap_or(0) > width {
                lines.push(String::new());
            }
            lines.iter_mut().last().into_iter().for_each(|line| line.push(c));
        }
    }
    lines
}

/// How much of a list lies above and below what is seen of it: `↑ 4 ↓ 31 more`. `None` where all of it is seen.
pub fn more_words(above: usize, below: usize) -> Option<String> {
    match (above, below) {
        (0, 0) => None,
        (above, 0) => Some(format!("↑ {above} more")),
        (0, below) => Some(format!("↓ {below} more")),
        (above, below) => Some(format!("↑ {above} ↓ {below} more")),
    }
}

/// A moment as a clock on the wall shows it, `14:32:07`, with milliseconds where asked for.
pub fn clock_time(at: Stamp, zone: &Zone, millis: bool) -> String {
    let local = zone.local_us(at);
    let seconds = local.div_euclid(1_000_000).rem_euclid(86_400);
    let text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if millis { format!("{text}.{:03}", local.rem_euclid(1_000_000) / 1000) } else { text }
}

/// A day as `2026-11-21`.
pub fn date(at: Stamp, zone: &Zone) -> String {
    chrono::DateTime::from_timestamp_micros(zone.local_us(at))
        .map_or_else(|| "–".to_owned(), |time| time.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_wrap_and_numbers_fold() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 5), ["ab…ij"]);
        assert_eq!(broken("one two three", 7), ["one two", "three"]);
        assert_eq!(broken("a abcdefghij", 5), ["a", "abcde", "fghij"], "of a command nothing is left out");
        assert_eq!((broken("a  b", 9), broken("", 9)), (vec!["a  b".to_owned()], vec![String::new()]));
        assert_eq!(broken("训练节点", 5), ["训练", "节点"]);
        assert_eq!(more_words(0, 0), None);
        let more = [(4, 0), (0, 31), (4, 31)].map(|(above, below)| more_words(above, below).unwrap());
        assert_eq!(more, ["↑ 4 more", "↓ 31 more", "↑ 4 ↓ 31 more"]);
        assert_eq!(clock_time(Stamp(1_795_000_000_123_456), &3600.into(), true), "12:06:40.123");
        assert_eq!(clock_time(Stamp(-1), &0.into(), false), "23:59:59");
        assert_eq!(date(Stamp(1_795_000_000_000_000), &0.into()), "2026-11-18");
    }
}
