//! From text to tokens, each with its place in the text.

use std::borrow::Cow;
use std::ops::Range;

use super::{Field, FilterError, Op, Word};

/// A part of a filter's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    /// Its bytes.
    pub(super) at: Range<usize>,
    /// What it is.
    pub(super) is: Is,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Is {
    Open,
    Close,
    Not,
    And,
    Or,
    /// `==`, `<` and the like.
    Compare(Op),
    /// `~`, and whether it is `!~`.
    Like {
        not: bool,
    },
    /// A word, as it is written.
    Word(String),
    /// What stands in quotes.
    Quoted(String),
    /// What stands between slashes.
    Regex(String),
}

/// Characters that end a word.
fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '(' | ')' | '!' | '&' | '|' | '<' | '>' | '=' | '~' | '"')
}

/// All tokens of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        // A path begins with a slash too: only behind ~, or where a test begins, a slash begins a regex.
        let regex = !matches!(tokens.last(), Some(Token { is: Is::Compare(_), .. }));
        let (is, len) = token(text, at, regex)?;
        tokens.push(Token { at: at..at + len, is });
        at += len;
    }
    Ok(tokens)
}

fn token(text: &str, at: usize, regex: bool) -> Result<(Is, usize), FilterError> {
    let rest = &text[at..];
    let signs = [
        ("&&", Is::And),
        ("||", Is::Or),
        ("==", Is::Compare(Op::Equal)),
        ("!=", Is::Compare(Op::NotEqual)),
        ("!~", Is::Like { not: true }),
        ("<=", Is::Compare(Op::LessEqual)),
        (">=", Is::Compare(Op::GreaterEqual)),
        ("(", Is::Open),
        (")", Is::Close),
        ("!", Is::Not),
        ("&", Is::And),
        ("|", Is::Or),
        ("=", Is::Compare(Op::Equal)),
        ("<", Is::Compare(Op::Less)),
        (">", Is::Compare(Op::Greater)),
        ("~", Is::Like { not: false }),
    ];
    if let Some((sign, is)) = signs.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
        return Ok((is, sign.len()));
    }
    if rest.starts_with('"') {
        let (inner, len) = enclosed(rest, '"', &['"', '\\']).ok_or_else(|| {
            FilterError::new(at..text.len(), "the text in quotes has no end: close it with \"")
        })?;
        return Ok((Is::Quoted(inner), len));
    }
    if regex && rest.starts_with('/') {
        let (inner, len) = enclosed(rest, '/', &['/']).ok_or_else(|| {
            let reason = "close the regex with /, or put a path in quotes";
            FilterError::new(at..text.len(), reason)
        })?;
        if rest[len..].chars().next().is_some_and(|next| !ends_word(next)) {
            let word = rest.find(ends_word).unwrap_or(rest.len());
            let reason = format!("a regex ends with /: write a path in quotes, \"{}\"", &rest[..word]);
            return Err(FilterError::new(at..at + word.max(len), reason));
        }
        return Ok((Is::Regex(inner), len));
    }
    let len = rest.find(ends_word).unwrap_or(rest.len());
    let word = &rest[..len];
    let is = match word.to_ascii_lowercase().as_str() {
        "and" => Is::And,
        "or" => Is::Or,
        "not" => Is::Not,
        _ => Is::Word(word.to_owned()),
    };
    Ok((is, len))
}

/// What stands between two `mark`s, and the length with them. A backslash takes its meaning from each of `escaped`;
/// before other characters it stands for itself.
fn enclosed(text: &str, mark: char, escaped: &[char]) -> Option<(String, usize)> {
    let mut inner = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == mark {
            return Some((inner, at + c.len_utf8()));
        }
        if c != '\\' {
            inner.push(c);
            continue;
        }
        let (_, next) = chars.next()?;
        if !escaped.contains(&next) {
            inner.push('\\');
        }
        inner.push(next);
    }
    None
}

/// A text as a filter writes it; in quotes where it would be read as something else. `alone` says that it is no field's
/// value.
pub(super) fn quoted_if_needed(text: &str, alone: bool) -> Cow<'_, str> {
    let keyword = ["and", "or", "not"].iter().any(|word| text.eq_ignore_ascii_case(word));
    let meaning = alone && (Word::named(text).is_some() || Field::named(text).is_some());
    if text.is_empty() || text.starts_with('/') || keyword || meaning || text.contains(ends_word) {
        return Cow::Owned(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    Cow::Borrowed(text)
}

/// A regex as a filter writes it.
pub(super) fn regex_text(source: &str) -> String {
    format!("/{}/", source.replace('/', "\\/"))
}
