//! One line of an ssh configuration: its keyword and its words. Knows no keyword's meaning.

/// A line that says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// In lower case: keywords are the same in any case.
    pub(super) key: String,
    /// The words behind it, quotes taken off, up to a comment.
    pub(super) words: Vec<String>,
    /// Everything behind it as it stands: what a command line is made of.
    pub(super) rest: &'a str,
    /// A quote is open at the end: OpenSSH refuses such a line.
    pub(super) open_quote: bool,
}

/// Reads one line; `None` for an empty line or a comment.
pub(super) fn line(text: &str) -> Option<Line<'_>> {
    let text = text.trim_end_matches(['\r', '\n', '\t', ' ', '\u{c}']).trim_start_matches(BLANK);
    let end = text.find([' ', '\t', '=', '"']).unwrap_or(text.len());
    let (key, rest) = text.split_at(end);
    if key.is_empty() || key.starts_with('#') {
        return None;
    }
    // One `=` may stand between keyword and value.
    let rest = rest.trim_start_matches(BLANK);
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start_matches(BLANK);
    let (words, open_quote) = words(rest);
    Some(Line { key: key.to_ascii_lowercase(), words, rest, open_quote })
}

const BLANK: [char; 2] = [' ', '\t'];

/// Splits into words as OpenSSH does: both kinds of quotes, a backslash before a quote, a backslash or, outside
/// quotes, a blank; a `#` at the beginning of a word ends the line.
fn words(text: &str) -> (Vec<String>, bool) {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    let mut quote = None;
    loop {
        while letters.next_if(|letter| BLANK.contains(letter)).is_some() {}
        if letters.peek().is_none_or(|letter| *letter == '#') {
            return (words, false);
        }
        let mut word = String::new();
        while let Some(letter) = letters.next_if(|letter| quote.is_some() || !BLANK.contains(letter)) {
            let escaped =
                |next: &char| matches!(next, '\'' | '"' | '\\') || (quote.is_none() && *next == ' ');
            match letter {
                '\\' => word.push(letters.next_if(escaped).unwrap_or('\\')),
                '"' | '\'' if quote.is_none() => quote = Some(letter),
                _ if quote == Some(letter) => quote = None,
                _ => word.push(letter),
            }
        }
        words.push(word);
        if quote.is_some() {
            return (words, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, Vec<String>) {
        let line = line(text).unwrap();
        (line.key, line.words)
    }

    #[test]
    fn keywords_and_values_are_told_apart() {
        for text in
            ["Port 22", "  PORT=22", "port = 22", "\tport\t=22 # note", "port \"22\"\r", "port '22' #"]
        {
            assert_eq!(read(text), ("port".into(), vec!["22".into()]), "{text:?}");
        }
        assert_eq!(read("Host a  b\t!c").1, ["a", "b", "!c"]);
        assert_eq!(read(r#"X "a b"c 'd"e' f\ g h\i \" a#b"#).1, ["a bc", "d\"e", "f g", "h\\i", "\"", "a#b"]);
        assert_eq!(read("X == a").1, ["=", "a"]);
        assert_eq!(line("ProxyCommand  = nc '%h' # %p ").unwrap().rest, "nc '%h' # %p");
        for text in ["", "  ", "# a", "\t#", "=x", "\r\n"] {
            assert_eq!(line(text), None, "{text:?}");
        }
        assert!(line("Host \"a b").unwrap().open_quote);
        assert!(!line("Host").unwrap().open_quote);
    }
}
