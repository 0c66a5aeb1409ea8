//! Which build this process runs: the client compares it with the binary that it has put on the host.

use std::fs::File;
use std::io::{self, Read};

use ring::digest::{Context, SHA256};

/// SHA-256 of the running binary, hexadecimal; of the very file that runs, even when its path now names
/// another one.
pub fn of_this_process() -> io::Result<String> {
    let mut file = File::open("/proc/self/exe")?;
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
    Ok(hash.finish().as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")))
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
