//! Python source as names, signs and strings, comments left out: enough to tell code from text.

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, a number, or one sign.
    Code(&'a str),
    /// What stands in a string's quotes.
    Text(&'a str),
    /// The end of a logical line.
    Line,
}

/// Takes a script apart. What is no valid Python gives some tokens or other.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        at += match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '\n' => {
                if depth == 0 {
                    tokens.push(Token::Line);
                }
                1
            }
            // A joined line.
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '\'' | '"' => {
                let (text, len) = string(rest);
                tokens.push(Token::Text(text));
                len
            }
            c if c.is_alphanumeric() || c == '_' => {
                let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let prefixes = len <= 2 && rest[..len].chars().all(|c| "rRbBuUfFtT".contains(c));
                if !prefixes || !rest[len..].starts_with(['\'', '"']) {
                    tokens.push(Token::Code(&rest[..len]));
                }
                len
            }
            c if c.is_whitespace() => c.len_utf8(),
            c => {
                match c {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                tokens.push(Token::Code(&rest[..c.len_utf8()]));
                c.len_utf8()
            }
        };
    }
    tokens.push(Token::Line);
    tokens
}

/// The string that `rest` begins with: what stands in it, and its length with the quotes.
fn string(rest: &str) -> (&str, usize) {
    let quote = &rest[..1];
    let triple = quote.repeat(3);
    let (mark, long) = if rest.starts_with(&triple) { (triple.as_str(), true) } else { (quote, false) };
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(mark.len()) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // A string in single quotes ends with its line at the latest.
            '\n' if !long => return (&rest[mark.len()..at], at),
            _ if rest[at..].starts_with(mark) => return (&rest[mark.len()..at], at + mark.len()),
            _ => {}
        }
    }
    (&rest[mark.len()..], rest.len())
}
