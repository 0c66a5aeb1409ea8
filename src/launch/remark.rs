//! What a person should know about a launch: warnings, and what only informs. Pure.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// A sentence about a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    warns: bool,
    text: String,
}

impl Remark {
    /// Something to look at: the launch may not do what was meant.
    pub fn warning(text: impl Into<String>) -> Self {
        Self { warns: true, text: text.into() }
    }

    /// Something that is as it should be, and good to know.
    pub fn info(text: impl Into<String>) -> Self {
        Self { warns: false, text: text.into() }
    }

    /// Whether it is something to look at.
    pub fn warns(&self) -> bool {
        self.warns
    }

    /// The text, a warning with its mark.
    pub fn shown(&self) -> String {
        if self.warns { format!("⚠ {}", self.text) } else { self.text.clone() }
    }
}

/// The warnings among remarks, then the others.
pub fn warnings_first(remarks: &[Remark]) -> impl Iterator<Item = &Remark> {
    let (warnings, others): (Vec<&Remark>, Vec<&Remark>) = remarks.iter().partition(|remark| remark.warns);
    warnings.into_iter().chain(others)
}

impl Deref for Remark {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq<str> for Remark {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for Remark {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_come_first_and_have_a_mark() {
        let remarks = [Remark::info("a"), Remark::warning("b"), Remark::info("c"), Remark::warning("d")];
        let shown: Vec<String> = warnings_first(&remarks).map(Remark::shown).collect();
        assert_eq!(shown, ["⚠ b", "⚠ d", "a", "c"]);
        assert!(remarks[0] == "a" && remarks[1].warns() && remarks[1].starts_with('b'));
    }
}
