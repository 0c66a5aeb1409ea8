//! The example of a job of one's own, as its page says: alone, as ranks of a run, by shared memory and by TCP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// `examples/average.rs` as Cargo builds it: `target/<profile>/examples/`, seen from `target/<profile>/deps/<test>`.
fn average() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/average");
    assert!(program.is_file(), "{} is missing: cargo build --example average", program.display());
    program
}

#[test]
fn it_runs_alone() {
    let mut command = Command::new(average());
    for name in ["RANK", "WORLD_SIZE", "HVTUI_REPORT"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "rank 0 of 1 by none: y = 3.00x + 1.00\n");
}

#[test]
fn it_runs_as_ranks_of_a_run() {
    let home = tempfile::tempdir().unwrap();
    let hosts = home.path().join("hosts.toml");
    std::fs::write(&hosts, "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 3\n").unwrap();
    for (transport, by) in [("auto", "shm"), ("tcp", "tcp")] {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", env!("CARGO_BIN_EXE_hvtui"), "--hosts"]).arg(&hosts);
        command
            .args(["run", "-np", "3", "--env", &format!("HVTUI_TRANSPORT={transport}"), "--"])
            .arg(average());
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR").env("HOME", home.path());
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for rank in 0..3 {
            let line = format!("rank {rank} of 3 by {by}: y = 3.00x + 1.00");
            assert!(printed.contains(&line), "{line}: {printed}");
        }
    }
}
