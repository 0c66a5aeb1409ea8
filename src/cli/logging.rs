//! The program's own log: into a file, by `HVTUI_LOG`, never to the terminal.

use std::fs::OpenOptions;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use super::errors::{Code, Failure};

/// The variable that says what is logged: `debug`, `hvtui::ssh=trace`; nothing is logged without it.
pub const VARIABLE: &str = "HVTUI_LOG";

/// Appends this process's log to `hvtui.log` in `state_dir`, as far as `filter` (the variable's value) says;
/// nothing when it is empty. Called at most once a process.
pub fn start(state_dir: &Path, filter: &str) -> Result<(), Failure> {
    if filter.is_empty() {
        return Ok(());
    }
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(format!(
            "{VARIABLE}={filter}: {error}; write a level such as debug, or hvtui::ssh=trace"
        ))
    })?;
    let path = state_dir.join("hvtui.log");
    let unwritable = |error: std::io::Error| {
        Failure::new(Code::from(&error), format!("can't write the log file {}: {error}", path.display()))
    };
    let mut folder = std::fs::DirBuilder::new();
    folder.recursive(true).mode(0o700).create(state_dir).map_err(unwritable)?;
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(unwritable)?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Mutex::new(file))
        .with_ansi(false)
        .try_init()
        .map_err(|error| Failure::bug(format!("the log was started twice: {error}")))?;
    // Not the arguments: they may hold secrets.
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "started");
    Ok(())
}
