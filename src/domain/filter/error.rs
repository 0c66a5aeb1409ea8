//! Why a text is not a filter, and where.

use std::ops::Range;

use unicode_width::UnicodeWidthStr;

/// Why a text is not a filter: a lowercase fragment that names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct FilterError {
    /// Which bytes of the text it is about; empty at a place where something is missing.
    pub at: Range<usize>,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

impl FilterError {
    pub(super) fn new(at: Range<usize>, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }

    /// The columns of `text` that it is about: how many stand before it, and how many it takes, at least one.
    pub fn columns(&self, text: &str) -> (usize, usize) {
        let before = text.get(..self.at.start).map_or(0, UnicodeWidthStr::width);
        let width = text.get(self.at.clone()).map_or(0, UnicodeWidthStr::width);
        (before, width.max(1))
    }

    /// The text with carets below what is meant, and the reason behind them:
    ///
    /// ```text
    /// utl<5 & free
    /// ^^^ unknown field 'utl': did you mean util?
    /// ```
    pub fn pointed(&self, text: &str) -> String {
        let (before, width) = self.columns(text);
        format!("{text}\n{}{} {}", " ".repeat(before), "^".repeat(width), self.reason)
    }
}
