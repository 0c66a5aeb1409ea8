//! Real hosts for tests: `tests/cluster/hosts` as a value whose end is the cluster's end.
//!
//! Knows the fixture's program and its state file; nothing of what a test does on the hosts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Hosts `n1` … `nN` with a real sshd each, and the hub where clients run.
pub(crate) struct Cluster {
    dir: PathBuf,
    state: Value,
    _parent: TempDir,
}

/// A person's home directory in the hub: own known hosts, own recordings.
pub(crate) struct Client<'a> {
    cluster: &'a Cluster,
    home: TempDir,
}

/// Says that a test can't run here; a failure where everything must be there (`HVTUI_TESTS_STRICT=1`).
pub(crate) fn skip(why: &str) {
    eprintln!("skipped: {why}");
    assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none_or(|v| v != "1"), "HVTUI_TESTS_STRICT: {why}");
}

fn script(dir: &Path) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/hosts"));
    command.env("HVTUI_CLUSTER_DIR", dir).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Cluster {
    /// Starts `n` hosts with more of `hosts up`'s arguments; `None` (after saying why) where the machine can't.
    pub(crate) fn up(n: usize, more: &[&OsStr]) -> Option<Self> {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let dir = parent.path().join("cluster");
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
        Some(Self { dir, state, _parent: parent })
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

    /// Changes a host: `cut`, `blackhole`, `heal`, `stop`, `start`, `freeze`, `thaw`, `rekey`.
    pub(crate) fn change(&self, verb: &str, host: &str) {
        let out = script(&self.dir).args([verb, host]).output().expect("the fixture");
        assert!(out.status.success(), "hosts {verb} {host}: {}", text(&out.stderr));
    }

    /// A new person in the hub, whose known hosts are right.
    pub(crate) fn client(&self) -> Client<'_> {
        let home = tempfile::tempdir_in(self.dir.join("hub")).expect("a home");
        let ssh = home.path().join(".ssh");
        std::fs::create_dir(&ssh).expect("~/.ssh");
        for name in ["id_ed25519", "id_ed25519.pub", "known_hosts"] {
            std::fs::copy(self.dir.join("hub/home/.ssh").join(name), ssh.join(name)).expect(name);
        }
        let client = Client { cluster: self, home };
        client.write("hosts.toml", &self.hosts_toml(1));
        client
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

impl Client<'_> {
    /// A file under the home directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file under the home directory.
    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).expect(name);
    }

    /// hvtui with this person's hosts file.
    pub(crate) fn hvtui(&self, args: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_hvtui"), args)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.cluster.hub(program);
        command.env("HOME", self.home.path()).current_dir(self.home.path());
        if program != env!("CARGO_BIN_EXE_hvtui") {
            command.args(["-k", "5", "120", env!("CARGO_BIN_EXE_hvtui")]);
        }
        command.arg("--hosts").arg(self.path("hosts.toml")).args(args);
        command
    }

    /// Runs it to its end, which must come within two minutes.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        let out: Output = self.command("timeout", args).output().expect("timeout runs hvtui");
        Ended {
            code: out.status.code().expect("an exit code"),
            out: text(&out.stdout),
            err: text(&out.stderr),
        }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; 124 when it took longer than two minutes.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Ended {
    /// Both outputs, for a text that may stand in either.
    pub(crate) fn said(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}
