//! A person at the hub for tests: a home directory of its own, in which hvtui runs.
//!
//! Knows how hvtui is called; nothing of what a test asks of it.

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::cluster::{Cluster, text};
use super::in_time::OutputInTime;

/// A person's home directory in the hub: own known hosts, own recordings.
pub(crate) struct Client<'a> {
    cluster: &'a Cluster,
    home: TempDir,
}

impl<'a> Client<'a> {
    /// A new person, who knows the hosts' keys and has a hosts file with one CPU slot each.
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let home = tempfile::tempdir_in(cluster.dir().join("hub")).expect("a home");
        let ssh = home.path().join(".ssh");
        std::fs::create_dir(&ssh).expect("~/.ssh");
        for name in ["id_ed25519", "id_ed25519.pub", "known_hosts"] {
            std::fs::copy(cluster.dir().join("hub/home/.ssh").join(name), ssh.join(name)).expect(name);
        }
        let client = Self { cluster, home };
        client.write("hosts.toml", &cluster.hosts_toml(1));
        client
    }

    /// The same with two CPU slots each.
    pub(crate) fn of_two_slots(cluster: &'a Cluster) -> Self {
        let client = Self::new(cluster);
        client.write("hosts.toml", &cluster.hosts_toml(2));
        client
    }

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
        self.command(crate::common::program::hvtui(), args)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.cluster.hub(program);
        command.env("HOME", self.home.path()).current_dir(self.home.path());
        if program != crate::common::program::hvtui() {
            command.args(["-k", "5", "120", crate::common::program::hvtui()]);
        }
        command.arg("--hosts").arg(self.path("hosts.toml")).args(args);
        command
    }

    /// Runs it to its end, which must come within two minutes.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        let out: Output = self.command("timeout", args).output_in_time().expect("timeout runs hvtui");
        Ended {
            code: out.status.code().expect("an exit code"),
            out: text(&out.stdout),
            err: text(&out.stderr),
        }
    }
}

/// Runs a line behind `hvtui run`.
pub(crate) fn run(client: &Client<'_>, line: &str) -> Ended {
    let words = shlex::split(line).expect("words");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    client.run(&[&["run"], words.as_slice()].concat())
}

/// The id of this person's only run.
pub(crate) fn only_run(client: &Client<'_>) -> String {
    let listed = client.run(&["runs", "--json", "--local"]);
    let all: serde_json::Value = serde_json::from_str(&listed.out).expect("JSON");
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{listed:?}");
    all[0]["spec"]["id"].as_str().expect("an id").to_owned()
}

/// The lines that the ranks printed, in the order of the ranks.
pub(crate) fn printed(ended: &Ended) -> Vec<String> {
    let mut lines: Vec<String> = ended.out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
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
