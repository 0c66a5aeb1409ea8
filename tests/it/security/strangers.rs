//! Another user of the same host.

use std::process::{Child, Stdio};

use super::person::Person;
use crate::common::processes::until;

/// Sockets on which a process waits for others, by its descriptors: TCP in state 0A, unix with the flag for it.
fn listening(pid: u64) -> Vec<String> {
    let inodes = |table: &str, wanted: &dyn Fn(&[&str]) -> bool, at: usize| -> Vec<String> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        let lines = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines
            .filter(|line| wanted(line))
            .filter_map(|line| line.get(at).map(|inode| (*inode).to_owned()))
            .collect()
    };
    let tcp = |line: &[&str]| line.get(3) == Some(&"0A");
    let unix = |line: &[&str]| line.get(3) == Some(&"00010000");
    let all = [inodes("tcp", &tcp, 9), inodes("tcp6", &tcp, 9), inodes("unix", &unix, 6)].concat();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open: Vec<String> = open
        .filter_map(|entry| Some(std::fs::read_link(entry.ok()?.path()).ok()?.display().to_string()))
        .collect();
    all.into_iter().filter(|inode| open.contains(&format!("socket:[{inode}]"))).collect()
}

#[test]
fn vector_03_nothing_of_hvtui_listens_on_a_host() {
    let person = Person::new();
    let mut command = person.command(env!("CARGO_BIN_EXE_hvtui"));
    command.args(["run", "-np", "1", "--", "sleep", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
    let client = Running(command.spawn().unwrap());
    until("the run directory", || person.has_spool());
    // The supervisor writes down a rank-wrap that it has started: the rank may begin before that.
    let state = || -> serde_json::Value {
        let text = std::fs::read(person.spool().join("state.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    until("the rank-wrap in the state", || state()["wraps"]["0"]["pid"].is_u64());
    let state = state();
    let wrap = state["wraps"]["0"]["pid"].as_u64().unwrap();
    for pid in [u64::from(client.0.id()), state["supervisor"]["pid"].as_u64().unwrap(), wrap] {
        assert_eq!(listening(pid), [""; 0], "process {pid} listens");
    }
    let ran = person.hvtui(&["stop", "last", "--now"]);
    assert_eq!(ran.code, Some(0), "{}", String::from_utf8_lossy(&ran.err));
    drop(client);
}

/// Two user ids that nobody has here.
const OWNER: u32 = 61_001;
const OTHER: u32 = 61_002;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn vector_16_another_user_can_neither_read_nor_steer_a_run() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to be two other users");
        assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "needs root");
        return;
    }
    let (owner, other) = (Person::with_user(OWNER), Person::with_user(OTHER));
    let mut command = owner.command(env!("CARGO_BIN_EXE_hvtui"));
    command.args(["run", "-np", "1", "--", "sleep", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
    let client = Running(command.spawn().unwrap());
    let started = || owner.has_spool();
    until("the run directory", started);
    until("the rank", || owner.spool().join("started-0.json").exists());
    let spool = owner.spool();
    let run = spool.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(spool.join("state.json")).unwrap()).unwrap();
    let supervisor = state["supervisor"]["pid"].as_u64().unwrap();

    let stranger = |line: &str| other.command("sh").args(["-c", line]).output().unwrap();
    for line in [
        format!("cat {}", spool.join("state.json").display()),
        format!("ls {}", spool.display()),
        format!("kill -0 {supervisor}"),
        format!("cat /proc/{supervisor}/environ"),
    ] {
        let output = stranger(&line);
        assert!(!output.status.success(), "{line} worked: {}", String::from_utf8_lossy(&output.stdout));
    }
    for args in [&["stop", &run, "--now"][..], &["logs", &run]] {
        let ran = other.hvtui(args);
        assert_ne!(ran.code, Some(0), "{args:?}");
    }
    assert!(std::path::Path::new(&format!("/proc/{supervisor}")).exists(), "the run goes on");

    let ran = owner.hvtui(&["stop", &run, "--now"]);
    assert_eq!(ran.code, Some(0), "{}", String::from_utf8_lossy(&ran.err));
    until("the end of the supervisor", || !std::path::Path::new(&format!("/proc/{supervisor}")).exists());
    drop(client);
}
