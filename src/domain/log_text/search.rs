//! What is searched in a log: words, or a regular expression between slashes. Pure.

use std::ops::Range;

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;

use super::floor_boundary;

/// Memory that one expression may take: a longer one is refused when it is typed.
const REGEX_BYTES: usize = 256 << 10;
/// Matches of one line at most.
const MATCHES: usize = 64;

/// What is searched.
#[derive(Debug, Clone)]
pub struct Pattern {
    source: String,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    /// These letters, large or small; kept small.
    Words(String),
    Regex(Regex),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Pattern {
    /// Reads what was typed: `/…/` is a regular expression, anything else is searched as it is, large or small.
    ///
    /// # Errors
    /// What is wrong with the expression, as a fragment.
    pub fn parse(source: &str) -> Result<Self, String> {
        let inner = source.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let how = match inner.filter(|inner| !inner.is_empty()) {
            Some(expression) => How::Regex(regex(expression)?),
            None => How::Words(source.to_lowercase()),
        };
        Ok(Self { source: source.to_owned(), how })
    }

    /// What was typed.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Where it stands in a text, in order, none of them empty; byte ranges between characters.
    pub fn find(&self, text: &str) -> Vec<Range<usize>> {
        let ranges: Vec<Range<usize>> = match &self.how {
            How::Words(words) if words.is_empty() => Vec::new(),
            How::Words(words) => find_words(text, words),
            How::Regex(regex) => regex.find_iter(text).map(|found| found.range()).take(MATCHES).collect(),
        };
        let snap = |range: Range<usize>| floor_boundary(text, range.start)..ceil(text, range.end);
        ranges.into_iter().map(snap).filter(|range| !range.is_empty()).collect()
    }

    /// Whether it stands in a text.
    pub fn is_in(&self, text: &str) -> bool {
        !self.find(text).is_empty()
    }
}

fn regex(expression: &str) -> Result<Regex, String> {
    let config = Config::new().nfa_size_limit(Some(REGEX_BYTES)).utf8_empty(true);
    // bytes, so that no tables of Unicode are needed; what is found is widened to whole characters
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    Regex::builder().configure(config).syntax(syntax).build(expression).map_err(|error| {
        let source = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
        let last = source.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        last.trim().trim_start_matches("error: ").to_owned()
    })
}

/// The first place between characters at this byte or behind it.
fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Where these small letters stand, whatever the case in the text.
fn find_words(text: &str, words: &str) -> Vec<Range<usize>> {
    if text.is_ascii() {
        let lower = text.to_ascii_lowercase();
        return lower.match_indices(words).take(MATCHES).map(|(at, found)| at..at + found.len()).collect();
    }
    // a letter may be longer when it is small: each place of the small text knows where it came from
    let mut lower = String::new();
    let mut from = Vec::new();
    for (at, c) in text.char_indices() {
        for small in c.to_lowercase() {
            from.extend(std::iter::repeat_n((at, at + c.len_utf8()), small.len_utf8()));
            lower.push(small);
        }
    }
    let place = |at: usize| from.get(at).copied().unwrap_or((text.len(), text.len()));
    let found = lower.match_indices(words).take(MATCHES);
    found.map(|(at, found)| place(at).0..place(at + found.len() - 1).1).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
        Pattern::parse(pattern).unwrap().find(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn words_are_found_large_or_small_and_expressions_between_slashes() {
        assert_eq!(found("error", "Error: an ERROR"), ["Error", "ERROR"]);
        assert_eq!(found("straße", "Die STRAßE"), ["STRAßE"]);
        assert_eq!(found("/loss [0-9.]+/", "step 3 loss 0.5 loss 0.4"), ["loss 0.5", "loss 0.4"]);
        assert_eq!(found("/(?i)nan|inf/", "loss NaN"), ["NaN"]);
        assert_eq!(found("/opt", "/opt/conda"), ["/opt"], "no expression without its end");
        assert_eq!(found("/x*/", "aaa"), [""; 0]);
        assert_eq!(found("", "aaa"), [""; 0]);
        assert_eq!(found("/.$/", "a漢"), ["漢"], "never half a character");
        let wrong = Pattern::parse("/loss (/").unwrap_err();
        assert_eq!(wrong, "unclosed group");
        assert!(Pattern::parse("/(a{1000}){1000}/").is_err(), "an expression that takes too much memory");
    }

    proptest! {
        #[test]
        fn what_is_found_lies_between_characters(text in "[a-cäßİ漢]{0,20}", pattern in "[a-cäßi.*]{1,5}") {
            for source in [pattern.clone(), format!("/{pattern}/")] {
                for range in Pattern::parse(&source).map(|pattern| pattern.find(&text)).unwrap_or_default() {
                    prop_assert!(text.get(range.clone()).is_some_and(|found| !found.is_empty()));
                }
            }
        }
    }
}
