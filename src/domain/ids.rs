//! Names of things: newtypes, so that a host name can't be passed where a run is meant.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A host's name as `hosts.toml` gives it; unique in one hosts file and in one run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostId(Arc<str>);

/// A GPU's UUID as NVML prints it (`GPU-3f2a…`): the only name of a GPU that survives a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuUuid(Arc<str>);

/// A run's name: a ULID, 26 characters, sortable by the time of its launch. Names folders, so that nothing else
/// is taken for one, wherever it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct RunId(Arc<str>);

/// A rank's number in its run, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Rank(pub u32);

macro_rules! text_id {
    ($name:ident) => {
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}
text_id!(HostId);
text_id!(GpuUuid);

/// How the stand-in for a UUID begins that could not be read.
const UNREADABLE: &str = "GPU-unreadable-";

impl GpuUuid {
    /// The stand-in for a GPU whose UUID can't be read: a name for its row, and no place for a rank.
    pub fn unreadable(index: u32) -> Self {
        Self::from(format!("{UNREADABLE}{index}"))
    }

    /// Whether this is the name of a MIG slice.
    pub fn is_slice(&self) -> bool {
        self.0.starts_with("MIG-")
    }

    /// Whether this is a GPU's own name, so that a rank can be placed on it.
    pub fn is_readable(&self) -> bool {
        !self.0.starts_with(UNREADABLE)
    }
}

impl RunId {
    /// A run id from the launch time (milliseconds since the Unix epoch) and 80 random bits.
    pub fn new(unix_ms: u64, random: u128) -> Self {
        Self(Arc::from(ulid::Ulid::from_parts(unix_ms, random).to_string()))
    }

    /// All 26 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When it was launched, in milliseconds since the Unix epoch.
    pub fn unix_ms(&self) -> u64 {
        ulid::Ulid::from_string(&self.0).map_or(0, |id| id.timestamp_ms())
    }

    /// The last four characters: what screens show and people type.
    pub fn short(&self) -> &str {
        self.0.get(self.0.len().saturating_sub(4)..).unwrap_or(&self.0)
    }

    /// Whether a person who typed `text` means this run: its whole id, a prefix of at least eight
    /// characters, or a suffix of at least four; letters in either case.
    pub fn matches(&self, text: &str) -> bool {
        let typed = text.to_ascii_uppercase();
        *typed == *self.0
            || (typed.len() >= 8 && self.0.starts_with(&typed))
            || (typed.len() >= 4 && self.0.ends_with(&typed))
    }
}

/// A text that is no run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a run id (26 letters and digits)")]
pub struct BadRunId(String);

impl FromStr for RunId {
    type Err = BadRunId;
    fn from_str(text: &str) -> Result<Self, BadRunId> {
        let id = ulid::Ulid::from_string(text).map_err(|_| BadRunId(text.to_owned()))?;
        Ok(Self(Arc::from(id.to_string())))
    }
}

impl TryFrom<String> for RunId {
    type Error = BadRunId;
    fn try_from(text: String) -> Result<Self, BadRunId> {
        text.parse()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_by_what_people_type() {
        let run = RunId::new(1_795_000_000_000, 0x1234_5678_9abc_def0_1234);
        assert_eq!(run.as_str().len(), 26);
        assert!(run.matches(run.as_str()));
        assert!(run.matches(&run.short().to_lowercase()));
        assert!(run.matches(&run.as_str()[..8]));
        assert!(!run.matches(&run.as_str()[..3]));
        assert_eq!(run.as_str().parse::<RunId>().unwrap(), run);
        assert!("../../etc".parse::<RunId>().is_err());
        assert_eq!(serde_json::from_str::<RunId>(&format!("\"{run}\"")).unwrap(), run);
        assert!(serde_json::from_str::<RunId>("\"../../etc\"").is_err());
    }
}
