//! Which build this process runs: the client compares it with the binary that it has put on the host.

use std::path::Path;

use crate::sha256::{self, ReadError};

/// SHA-256 of the running binary, hexadecimal; of the very file that runs, even when its path now names
/// another one.
pub fn of_this_process() -> Result<String, ReadError> {
    Ok(sha256::of_file(Path::new("/proc/self/exe"))?.0.to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_that_of_the_file() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let hex = digest.as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!(super::of_this_process().unwrap(), hex);
    }
}
