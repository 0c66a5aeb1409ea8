//! Text as people type it and as lines hold it: a command line into words, a sentence into lines.

use unicode_width::UnicodeWidthStr;

use crate::domain::time::Stamp;
use crate::domain::units;

/// Why a command line is no list of words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// A quote without its partner.
    #[error("the quote {0} is never closed")]
    OpenQuote(char),
    /// A backslash at the end.
    #[error("nothing follows the last backslash")]
    OpenEscape,
}

/// Splits a command line as a POSIX shell would split it without expanding anything: blanks separate,
/// `'…'` and `"…"` keep together, a backslash takes the next character as it is.
pub fn split(line: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => word.push(chars.next().ok_or(WordsError::OpenQuote(c))?),
                        Some(inner) => word.push(inner),
                        None => return Err(WordsError::OpenQuote(c)),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next().ok_or(WordsError::OpenEscape)?),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Writes words so that [`split`] reads them back.
pub fn join<S: AsRef<str>>(words: &[S]) -> String {
    let quoted = words.iter().map(|word| {
        let word = word.as_ref();
        let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%^~".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

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

/// Numbers as ranges: `0-2, 5`.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => spans.push((number, number)),
        }
    }
    let text = spans.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    text.collect::<Vec<_>>().join(", ")
}

/// A moment as a clock on the wall shows it, `14:32:07`, with milliseconds where asked for.
pub fn clock_time(at: Stamp, utc_offset_s: i32, millis: bool) -> String {
    let local = at.0.saturating_add(i64::from(utc_offset_s) * 1_000_000);
    let seconds = local.div_euclid(1_000_000).rem_euclid(86_400);
    let text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if millis { format!("{text}.{:03}", local.rem_euclid(1_000_000) / 1000) } else { text }
}

/// A day as `2026-11-21`.
pub fn date(at: Stamp, utc_offset_s: i32) -> String {
    let local = at.0.saturating_add(i64::from(utc_offset_s) * 1_000_000);
    chrono::DateTime::from_timestamp_micros(local)
        .map_or_else(|| "–".to_owned(), |time| time.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn command_lines_split_as_in_a_shell() {
        assert_eq!(split(r#"a  "b c" 'd"e' f\ g"#).unwrap(), ["a", "b c", "d\"e", "f g"]);
        assert_eq!(split("''").unwrap(), [""]);
        assert_eq!(split("a 'b"), Err(WordsError::OpenQuote('\'')));
        assert_eq!(split("a \\"), Err(WordsError::OpenEscape));
    }

    #[test]
    fn sentences_wrap_and_numbers_fold() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 5), ["ab…ij"]);
        assert_eq!(clock_time(Stamp(1_795_000_000_123_456), 3600, true), "12:06:40.123");
        assert_eq!(clock_time(Stamp(-1), 0, false), "23:59:59");
        assert_eq!(date(Stamp(1_795_000_000_000_000), 0), "2026-11-18");
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    }

    proptest! {
        #[test]
        fn what_is_joined_splits_back(words in proptest::collection::vec("[^\0]{0,8}", 0..5)) {
            prop_assert_eq!(split(&join(&words)).unwrap(), words);
        }
    }
}
