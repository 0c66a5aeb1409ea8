//! A test in a process of its own: for what a process has once, as its environment, its ports and its threads.

use std::ffi::OsString;
use std::process::Command;

use super::built;
use super::in_time::OutputInTime;

/// Runs the test of this name in a process of its own, with more in its environment; true in there.
pub(crate) fn alone(test: &str, env: &[(&str, OsString)]) -> bool {
    if std::env::var_os("HVTUI_TEST_ALONE").is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads", "1"])
        .env("HVTUI_TEST_ALONE", "1")
        .envs(built::made().map(|folder| (built::MADE_AT, folder)))
        .envs(env.iter().map(|(name, value)| (*name, value)))
        .output_in_time()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}
