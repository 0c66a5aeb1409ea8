//! The words of `--sync`: which folder is copied where, and which code a run executes. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A folder of this machine that every host of a run gets before its ranks start: `--sync DIR[:REMOTE]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPlan {
    /// The folder here, an absolute path.
    pub dir: String,
    /// The folder on the hosts: absolute, or from the home folder there (`~/x`).
    pub remote: String,
    /// `--sync-delete`: what an earlier sync brought and is gone here goes there, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete: bool,
}

/// Which code a run executes, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Code {
    /// The git commit that was checked out, 40 or 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The branch that was checked out; none where it was a commit alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// SHA-256 of what differs from that commit (`git diff HEAD` and the names of untracked files); none where nothing
    /// does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty: Option<String>,
    /// Whether it could not be told what differs: git was too slow, or failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unclear: bool,
    /// Hash of the manifest of the tree that was synced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Digest>,
}

impl Code {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The beginning of the commit, with a `+` where something differs from it, and a `?` where that is not known: `4f2a91c+`.
    pub fn short(&self) -> Option<String> {
        let commit: String = self.commit.as_ref()?.chars().take(7).collect();
        let mark = match (self.unclear, self.dirty.is_some()) {
            (true, _) => "?",
            (false, true) => "+",
            (false, false) => "",
        };
        Some(commit + mark)
    }

    /// What is said of changes that git could not tell.
    pub const UNCLEAR: &str = "git could not tell them in time";

    /// One line for people: `commit abc1234, changed since, tree 0123456`.
    pub fn words(&self) -> String {
        let short = |text: &str| text.chars().take(7).collect::<String>();
        let mut words = Vec::new();
        words.extend(self.commit.as_ref().map(|commit| format!("commit {}", short(commit))));
        words.extend(self.dirty.as_ref().map(|dirty| format!("uncommitted changes {}", short(dirty))));
        words.extend(self.unclear.then(|| "uncommitted changes could not be told".to_owned()));
        words.extend(self.tree.as_ref().map(|tree| format!("tree {}", short(&tree.to_string()))));
        words.join(", ")
    }
}

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // there are ten thousands of them in a list
        let digit = |four: u8| if four < 10 { b'0' + four } else { b'a' + four - 10 };
        let mut text = [0; 64];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A text that is not 64 lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 64 lowercase hexadecimal digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NotADigest),
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(NotADigest);
        }
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_64_digits() {
        let digest = Digest([0xa7; 32]);
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for bad in ["", "a7", &"A7".repeat(32), &"a7".repeat(33), &"é".repeat(32)] {
            assert_eq!(bad.parse::<Digest>(), Err(NotADigest), "{bad}");
        }
    }
}
