//! What hosts find before a launch: whether what the plan needs is there.

use serde::{Deserialize, Serialize};

/// Findings of one host at most.
const MOST: usize = 12;
/// Characters of one at most.
const LONGEST: usize = 600;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It is as the launch needs it.
    Good,
    /// It can't be told before the start, or no answer came.
    Unknown,
    /// The launch may fail for it.
    Look,
    /// The launch fails for it.
    Bad,
}

/// One thing that a host looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How it came out.
    pub mark: Mark,
    /// What it is, in words; of a failure with the remedy.
    pub text: String,
}

impl Finding {
    /// A finding.
    pub fn new(mark: Mark, text: impl Into<String>) -> Self {
        Self { mark, text: text.into() }
    }
}

/// Keeps what a host says within bounds.
pub fn bound(findings: &mut Vec<Finding>) {
    findings.truncate(MOST);
    for finding in findings {
        if let Some((end, _)) = finding.text.char_indices().nth(LONGEST) {
            finding.text.truncate(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_says_is_bounded() {
        let mut told: Vec<Finding> = (0..100).map(|_| Finding::new(Mark::Good, "ä".repeat(10_000))).collect();
        bound(&mut told);
        assert_eq!((told.len(), told[0].text.chars().count()), (MOST, LONGEST));
    }
}
