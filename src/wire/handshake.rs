//! The first exchange: each side names the protocol versions it speaks and which build it is.

use serde::{Deserialize, Serialize};

/// The oldest protocol this build speaks.
pub const PROTOCOL_MIN: u32 = 4;
/// The newest protocol this build speaks.
pub const PROTOCOL_MAX: u32 = 4;

/// What the agent writes before its first frame, followed by the client's nonce and a line feed: everything
/// before it is noise of a login shell.
pub const MAGIC: &str = "\u{1}HVT1 ";

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest protocol spoken.
    pub proto_min: u32,
    /// Newest protocol spoken.
    pub proto_max: u32,
    /// hvtui's version, `0.1.0`.
    pub version: String,
    /// SHA-256 of the running binary, hexadecimal.
    pub build: String,
}

impl Hello {
    /// This build's own.
    pub fn ours(build: String) -> Self {
        Self {
            proto_min: PROTOCOL_MIN,
            proto_max: PROTOCOL_MAX,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build,
        }
    }

    /// The newest protocol that both sides speak.
    pub fn agree(&self, theirs: &Self) -> Result<u32, Incompatible> {
        let newest = self.proto_max.min(theirs.proto_max);
        if newest >= self.proto_min.max(theirs.proto_min) {
            Ok(newest)
        } else {
            Err(Incompatible { ours: self.clone(), theirs: theirs.clone() })
        }
    }
}

/// Two builds without a common protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "hvtui {} here speaks protocol {}-{}, hvtui {} there speaks {}-{}: use the same hvtui on both sides",
    ours.version, ours.proto_min, ours.proto_max, theirs.version, theirs.proto_min, theirs.proto_max
)]
pub struct Incompatible {
    /// This side.
    pub ours: Hello,
    /// The other side.
    pub theirs: Hello,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_protocol_is_taken() {
        let hello =
            |min, max| Hello { proto_min: min, proto_max: max, version: "1".into(), build: String::new() };
        assert_eq!(hello(1, 3).agree(&hello(2, 5)), Ok(3));
        assert!(hello(1, 1).agree(&hello(2, 5)).unwrap_err().to_string().contains("use the same hvtui"));
    }
}
