//! The examples of a job of one's own, as their page says: alone, as ranks of a run, by shared memory and by TCP.

use std::process::Command;

use crate::common::built;
use crate::common::in_time::OutputInTime;

#[test]
fn they_run_alone() {
    for (name, words) in [
        ("average", "rank 0 of 1 by none: y = 3.00x + 1.00\n"),
        ("fit", "rank 0 of 1: mean squared error below 0.001: true\n"),
    ] {
        let mut command = Command::new(built::example(name));
        for name in ["RANK", "WORLD_SIZE", "HVTUI_REPORT"] {
            command.env_remove(name);
        }
        let output = command.output_in_time().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), words);
    }
}

#[test]
fn they_run_as_ranks_of_a_run() {
    for (name, transport, words) in [
        ("average", "auto", "of 3 by shm: y = 3.00x + 1.00"),
        ("average", "tcp", "of 3 by tcp: y = 3.00x + 1.00"),
        ("fit", "auto", "of 3: mean squared error below 0.001: true"),
    ] {
        run(name, transport, words);
    }
}

fn run(name: &str, transport: &str, words: &str) {
    let home = tempfile::tempdir().unwrap();
    let hosts = home.path().join("hosts.toml");
    std::fs::write(&hosts, "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 3\n").unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", crate::common::program::hvtui(), "--hosts"]).arg(&hosts);
    command
        .args(["run", "-np", "3", "--env", &format!("HVTUI_TRANSPORT={transport}"), "--"])
        .arg(built::example(name));
    command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR").env("HOME", home.path());
    let output = command.output_in_time().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for rank in 0..3 {
        let line = format!("rank {rank} {words}");
        assert!(printed.contains(&line), "{line}: {printed}");
    }
    if name == "fit" {
        // The phases of its steps are known to who launched it.
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("backward"), "{told}");
    }
}
