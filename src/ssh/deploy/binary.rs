//! The binary that is put on hosts: hvtui itself, named by the hash of its content.

use std::path::{Path, PathBuf};

use super::error::AgentError;
use crate::sha256;

/// A binary and its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentBinary {
    path: PathBuf,
    sha256: String,
    bytes: u64,
}

impl AgentBinary {
    /// The running program, also where its file was replaced or deleted since. Reads all of it.
    pub fn of_current_exe() -> Result<Self, AgentError> {
        Self::from_path(Path::new("/proc/self/exe"))
    }

    /// The program in a file. Reads all of it.
    pub fn from_path(path: &Path) -> Result<Self, AgentError> {
        match sha256::of_file(path) {
            Ok((sha256, bytes)) => Ok(Self { path: path.to_owned(), sha256: sha256.to_string(), bytes }),
            Err(error) => Err(AgentError::Binary { path: error.path, detail: error.source.to_string() }),
        }
    }

    /// Where its content is read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// SHA-256 of its content, 64 hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Lowercase hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_named_by_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, "abc").unwrap();
        let binary = AgentBinary::from_path(&path).unwrap();
        assert_eq!(binary.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(binary.bytes(), 3);
        assert!(AgentBinary::from_path(&folder.path().join("none")).is_err());
        assert!(AgentBinary::of_current_exe().unwrap().bytes() > 1000);
    }
}
