//! Checks of a host: which it should make, and what they have found. What a check finds has a form of its own, which only the
//! check knows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::doctor::Peer;
use crate::domain::time::Stamp;

/// Make these checks; each is answered by a [`Checked`] of its own when it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskChecks {
    /// The number that its answers bear.
    pub ask: u64,
    /// The client's clock.
    pub at: Stamp,
    /// The checks, by name.
    pub checks: Vec<String>,
    /// The other hosts.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

impl AskChecks {
    /// The protocol since which all agents know it. An older one passes over it without an answer.
    pub const SINCE: u32 = 4;
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The number of the question.
    pub ask: u64,
    /// The check; empty where the host can make none of them.
    pub check: String,
    /// What it found; absent where it could not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Value>,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
