//! What the environment says.

use std::io::Write;

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

pub(crate) fn number(name: &str, default: i32) -> i32 {
    variable(name).parse().unwrap_or(default)
}

/// Adds a line to the log, if there is one.
pub(crate) fn log(line: &str) {
    let path = variable("FAKE_NCCL_LOG");
    if path.is_empty() {
        return;
    }
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    if let Ok(mut file) = file {
        // One write: ranks that are threads of one process share the file.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// What a hung call of a C library does.
pub(crate) fn hang() -> ! {
    loop {
        std::thread::park();
    }
}
