//! Checks of a host: which it should make, and what they have found. What a check finds has a form of its own, which only the
//! check knows.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::domain::doctor::{Peer, RunInside, RunPort, RunProgram, SamePath};
use crate::domain::ids::GpuUuid;
use crate::domain::needs::MOST_PORTS;
use crate::domain::time::Stamp;

/// Make these checks; each is answered by a [`Checked`] of its own when it has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Files and folders that are compared with those of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<SamePath>,
    /// Python modules that are looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Whether a launch rests on it: what a login shell alone has does not count then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_launch: bool,
    /// The Python of that launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<RunProgram>>,
    /// The image of that launch, or the one that is looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The ports that it takes there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<RunPort>,
    /// Whether each of the other hosts is logged in to, not a few of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_pairs: bool,
    /// The container engine that the hosts file names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The working directory that it names; of a launch its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// What a launch starts in its image, which is looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_into: Option<Box<RunInside>>,
    /// Of a look into an image: the GPUs that its container is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUuid>,
}

impl AskChecks {
    /// Paths at most.
    pub const MOST_PATHS: usize = 16;
    /// Modules at most.
    pub const MOST_MODULES: usize = 16;
    /// Ports at most.
    pub const MOST_PORTS: usize = MOST_PORTS;
    /// GPUs at most.
    pub const MOST_GPUS: usize = 1024;
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The number of the question.
    pub ask: u64,
    /// The check; empty where the host can make none of them.
    pub check: String,
    /// What it found; absent where it could not tell. A `null` is something that was found.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub found: Option<Value>,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_to_be_nothing_is_told_apart_from_what_is_not_told() {
        let read = |text: &str| serde_json::from_str::<Checked>(text).unwrap().found;
        assert_eq!(read(r#"{"ask":1,"check":"images","found":null}"#), Some(Value::Null));
        assert_eq!(read(r#"{"ask":1,"check":"images","why":"late"}"#), None);
    }
}
