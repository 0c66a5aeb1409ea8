//! Who is waited for: how many, and a few of them by name. Pure; must not know what is waited for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many of a kind are named.
pub const NAMED: usize = 3;

/// Who is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Waiting {
    /// How many, those named among them. While others come it may lag behind by a sixteenth of all.
    pub count: u32,
    /// Some of them, in words: `gpu-b`, `rank 3 on gpu-b:1`.
    pub names: Vec<String>,
}

impl Waiting {
    /// All of these, each by its name.
    pub fn all(names: Vec<String>) -> Self {
        Self { count: u32::try_from(names.len()).unwrap_or(u32::MAX), names }
    }

    /// Whether nothing is waited for.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether this has to be told to who was told `before`: the names are others, or many have come or gone since.
    /// `all` is how many there are to wait for.
    pub fn differs_from(&self, before: &Self, all: u32) -> bool {
        self.names != before.names || self.count.abs_diff(before.count) >= (all / 16).max(1)
    }
}

/// `rank 0 on a:0, rank 1 on a:1`, `rank 509 on a:509, … and 507 more`.
impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))?;
        let named = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        match self.count.saturating_sub(named) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// As it was written: recordings of older versions have the names alone, and of everyone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Names(Vec<String>),
    Some { count: u32, names: Vec<String> },
}

impl From<Stored> for Waiting {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Names(names) => {
                let mut all = Self::all(names);
                all.names.truncate(NAMED);
                all
            }
            Stored::Some { count, names } => Self { count, names },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(count: u32, names: &[&str]) -> Waiting {
        Waiting { count, names: names.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn a_few_are_named_and_the_others_counted() {
        assert_eq!(waiting(2, &["a", "b"]).to_string(), "a, b");
        assert_eq!(waiting(512, &["a", "b", "c"]).to_string(), "a, b, c and 509 more");
        assert!(Waiting::default().is_empty() && !waiting(1, &["a"]).is_empty());
    }

    #[test]
    fn it_is_told_again_when_the_names_change_or_many_have_come() {
        let told = waiting(512, &["a", "b", "c"]);
        assert!(!waiting(481, &["a", "b", "c"]).differs_from(&told, 512));
        assert!(waiting(480, &["a", "b", "c"]).differs_from(&told, 512));
        assert!(waiting(511, &["a", "b", "d"]).differs_from(&told, 512));
        assert!(waiting(3, &["a"]).differs_from(&waiting(4, &["a"]), 4), "of few each one is told");
        assert!(!told.differs_from(&told, 0));
    }

    #[test]
    fn recordings_with_all_names_stay_readable() {
        let old: Waiting = serde_json::from_str(r#"["a","b","c","d","e"]"#).unwrap();
        assert_eq!(old, waiting(5, &["a", "b", "c"]));
        assert_eq!(serde_json::from_str::<Waiting>("[]").unwrap(), Waiting::default());
        let text = serde_json::to_string(&old).unwrap();
        assert_eq!(text, r#"{"count":5,"names":["a","b","c"]}"#);
        assert_eq!(serde_json::from_str::<Waiting>(&text).unwrap(), old);
    }
}
