//! Real hosts for tests: `tests/cluster/hosts` as a value whose end is the cluster's end.
//!
//! Knows the fixture's program and its state file; nothing of what a test does on the hosts.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// Hosts `n1` … `nN` with a real sshd each, and the hub where clients run.
pub(crate) struct Cluster {
    dir: PathBuf,
    state: Value,
}

/// Says that a test can't run here; a failure where everything must be there (`HVTUI_TESTS_STRICT=1`).
pub(crate) fn skip(why: &str) {
    // Straight to the stream: the test harness would swallow what `eprintln!` says.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none_or(|v| v != "1"), "HVTUI_TESTS_STRICT: {why}");
}

fn script(dir: &Path) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/hosts"));
    command.env("HVTUI_CLUSTER_DIR", dir).stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Cluster {
    /// Starts `n` hosts with more of `hosts up`'s arguments; `None` (after saying why) where the machine can't.
    pub(crate) fn up(n: usize, more: &[&OsStr]) -> Option<Self> {
        static CLUSTERS: AtomicU32 = AtomicU32::new(1);
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("hvtui-cluster.{}.{number}", std::process::id()));
        // Should this process be killed, the cluster ends with it.
        let owner = std::process::id().to_string();
        let out = script(&dir).args(["up", &n.to_string(), "--owner", &owner]).args(more).output();
        let out = match out {
            Ok(out) => out,
            Err(error) => {
                skip(&format!("tests/cluster/hosts: {error} (python3 is needed)"));
                return None;
            }
        };
        if matches!(out.status.code(), Some(3 | 127)) {
            skip(text(&out.stderr).trim());
            return None;
        }
        assert!(out.status.success(), "hosts up: {}", text(&out.stderr));
        let state = std::fs::read(dir.join("state.json")).expect("the fixture's state");
        let state = serde_json::from_slice(&state).expect("JSON");
        Some(Self { dir, state })
    }

    /// A hosts file for all hosts, each with `slots` CPU slots.
    pub(crate) fn hosts_toml(&self, slots: u32) -> String {
        let out = script(&self.dir).args(["hosts-toml", &slots.to_string()]).output().expect("the fixture");
        text(&out.stdout)
    }

    /// A command that runs in the hub as process itself, so that signals reach it.
    pub(crate) fn hub(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.state["hub"]["pid"].to_string(), "-m", "-u", "-n", "--wd=.", "--"]);
        command.arg(program).stdin(Stdio::null());
        for name in self.state["unset"].as_array().expect("a list") {
            command.env_remove(name.as_str().expect("a name"));
        }
        for (name, value) in self.state["variables"].as_object().expect("variables") {
            command.env(name, value.as_str().expect("text"));
        }
        command
    }

    /// What a shell line prints on a host, run there without ssh.
    pub(crate) fn on(&self, host: &str, line: &str) -> String {
        let out = script(&self.dir).args(["on", host, "sh", "-c", line]).output().expect("the fixture");
        text(&out.stdout)
    }

    /// Changes a host: `cut`, `blackhole`, `heal`, `stop`, `start`, `freeze`, `thaw`, `rekey` …, with what more the verb
    /// needs after the host: `n1 in`.
    pub(crate) fn change(&self, verb: &str, host: &str) {
        let out = script(&self.dir).arg(verb).args(host.split_whitespace()).output().expect("the fixture");
        assert!(out.status.success(), "hosts {verb} {host}: {}", text(&out.stderr));
    }

    /// A member's first process as this machine numbers it: its namespaces and files are found by it.
    pub(crate) fn pid(&self, member: &str) -> u32 {
        let hosts = self.state["hosts"].as_array().expect("hosts");
        let found = hosts.iter().chain([&self.state["hub"]]).find(|entry| entry["name"] == member);
        found.and_then(|entry| entry["pid"].as_u64()).expect("a member") as u32
    }

    /// The cluster's directory: `ssh_config`, `hub/home/.ssh`, each host's `sshd.log`.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let out = script(&self.dir).arg("down").output();
        if !std::thread::panicking() {
            let out = out.expect("the fixture");
            assert!(out.status.success(), "hosts down: {}", text(&out.stderr));
        }
    }
}
