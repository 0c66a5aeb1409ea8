//! Real hosts for tests: `tests/cluster/hosts` as a value whose end is the cluster's end.
//!
//! Knows the fixture's program and its state file; nothing of what a test does on the hosts.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};

use hvtui::procs::identity::Identity;
use hvtui::sha256;
use hvtui::supervise::state::{STATE, State};
use serde_json::Value;

use super::in_time::OutputInTime;
use super::processes::{until, wait_for};

/// Hosts `n1` … `nN` with a real sshd each, and the hub where clients run.
pub(crate) struct Cluster {
    dir: PathBuf,
    state: Value,
    /// A hosts file with one slot each, once it was asked for.
    hosts_file: OnceLock<String>,
}

/// Says that a test can't run here; a failure where everything must be there (`HVTUI_TESTS_STRICT=1`).
pub(crate) fn skip(why: &str) {
    // Straight to the stream: the test harness would swallow what `eprintln!` says.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none_or(|v| v != "1"), "HVTUI_TESTS_STRICT: {why}");
}

/// A process of a host.
#[derive(Debug)]
pub(crate) struct HostProcess {
    /// Its number on the host.
    pub(crate) pid: u32,
    /// The first 15 bytes of its program's name.
    pub(crate) name: String,
    /// Its words, with spaces between.
    pub(crate) args: String,
    /// The run in whose environment it is.
    pub(crate) run: Option<String>,
}

impl HostProcess {
    /// None of one that has ended.
    fn read(proc: &Path, pid: u32) -> Option<Self> {
        let file = |name: &str| std::fs::read(proc.join(pid.to_string()).join(name)).ok();
        // `PID (NAME) STATE …`, and a name may hold anything
        let stat = text(&file("stat")?);
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        if rest.starts_with(['Z', 'X']) {
            return None;
        }
        let words = |name: &str| text(&file(name).unwrap_or_default()).trim_end_matches('\0').to_owned();
        let environment = words("environ");
        let run = environment.split('\0').find_map(|word| word.strip_prefix("HVTUI_RUN="));
        Some(Self {
            pid,
            name: name.to_owned(),
            args: words("cmdline").replace('\0', " "),
            run: run.map(str::to_owned),
        })
    }

    /// Whether it is of the run: a rank, what a rank started, or what started it.
    pub(crate) fn is_of(&self, run: &str) -> bool {
        self.run.as_deref() == Some(run) || self.args.contains(run)
    }
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
        Self::made(n, more.iter().map(|word| (*word).to_owned()).collect())
    }

    /// The same with the agent on each host, as after its first login: for what does not look at how it gets there.
    pub(crate) fn ready(n: usize, more: &[&OsStr]) -> Option<Self> {
        static DIGEST: LazyLock<String> = LazyLock::new(|| {
            let (digest, _) = sha256::of_file(Path::new(crate::common::program::hvtui())).expect("hvtui");
            digest.to_string()
        });
        let words: [&OsStr; 3] =
            ["--agent".as_ref(), crate::common::program::hvtui().as_ref(), DIGEST.as_str().as_ref()];
        Self::made(n, words.iter().chain(more).map(|word| (*word).to_owned()).collect())
    }

    fn made(n: usize, more: Vec<OsString>) -> Option<Self> {
        static CLUSTERS: AtomicU32 = AtomicU32::new(1);
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("hvtui-cluster.{}.{number}", std::process::id()));
        // Should this process be killed, the cluster ends with it.
        let owner = std::process::id().to_string();
        if let Err(error) = Command::new("python3").arg("--version").output_in_time() {
            skip(&format!("tests/cluster/hosts: python3: {error}"));
            return None;
        }
        let out =
            script(&dir).args(["up", &n.to_string(), "--owner", &owner]).args(more).output_in_time().unwrap();
        if matches!(out.status.code(), Some(3 | 127)) {
            skip(text(&out.stderr).trim());
            return None;
        }
        assert!(out.status.success(), "hosts up: {}", text(&out.stderr));
        let state = std::fs::read(dir.join("state.json")).expect("the fixture's state");
        let state = serde_json::from_slice(&state).expect("JSON");
        Some(Self { dir, state, hosts_file: OnceLock::new() })
    }

    /// How many hosts there are.
    pub(crate) fn hosts(&self) -> usize {
        self.state["hosts"].as_array().map_or(0, Vec::len)
    }

    /// A hosts file for all hosts, each with `slots` CPU slots.
    pub(crate) fn hosts_toml(&self, slots: u32) -> String {
        let file = self.hosts_file.get_or_init(|| {
            text(&script(&self.dir).args(["hosts-toml", "1"]).output_in_time().unwrap().stdout)
        });
        file.replace("slots = 1\n", &format!("slots = {slots}\n"))
    }

    /// A command that runs in the hub as process itself, so that signals reach it.
    pub(crate) fn hub(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.state["hub"]["pid"].to_string(), "-m", "-u", "-n", "--wd=.", "--"]);
        command.arg(program).stdin(Stdio::null());
        self.clear(&mut command);
        for (name, value) in self.state["variables"].as_object().expect("variables") {
            command.env(name, value.as_str().expect("text"));
        }
        command
    }

    /// What a shell line prints on a host, run there without ssh, however it ends.
    #[track_caller]
    pub(crate) fn on(&self, host: &str, line: &str) -> String {
        text(&self.ended_on(host, line).stdout)
    }

    /// The same of a line that must end well and complain of nothing: a search that failed finds nothing either.
    #[track_caller]
    pub(crate) fn surely_on(&self, host: &str, line: &str) -> String {
        let out = self.ended_on(host, line);
        let complained = text(&out.stderr);
        assert!(
            out.status.success() && complained.is_empty(),
            "{host}: {line}: {}: {complained}",
            out.status
        );
        text(&out.stdout)
    }

    #[track_caller]
    fn ended_on(&self, host: &str, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid(host).to_string(), "-m", "-u", "-n", "-p", "--", "sh", "-c", line]);
        self.clear(&mut command);
        for (name, value) in self.member(host)["variables"].as_object().expect("variables") {
            command.env(name, value.as_str().expect("text"));
        }
        command.current_dir("/").stdin(Stdio::null()).output_in_time().unwrap()
    }

    /// Takes away what of the person at the machine must not reach a test.
    fn clear(&self, command: &mut Command) {
        for name in self.state["unset"].as_array().expect("a list") {
            command.env_remove(name.as_str().expect("a name"));
        }
    }

    /// A path below `~` on a host, as this process sees it.
    pub(crate) fn at_home(&self, host: &str, below: &str) -> PathBuf {
        let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
        PathBuf::from(format!("/proc/{}/root{home}/{below}", self.pid(host)))
    }

    /// The folder of a run on a host, once there is one.
    pub(crate) fn spool(&self, host: &str, run: &str) -> Option<PathBuf> {
        let folder = std::fs::read_dir(self.at_home(host, ".local/state/hvtui/spool").join(run)).ok()?;
        // hosts may share a home
        let own = format!("{host}@");
        let mut paths = folder.flatten().map(|entry| entry.path());
        paths.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own)))
    }

    /// What the supervisor of a run has written down on a host; its pids are as that host numbers them.
    #[track_caller]
    pub(crate) fn state_of(&self, host: &str, run: &str) -> State {
        wait_for(&format!("the state of run {run} on {host}"), || {
            let text = std::fs::read(self.spool(host, run)?.join(STATE)).ok()?;
            serde_json::from_slice(&text).ok()
        })
    }

    /// Kills the supervisor of a run on a host without a word, and waits until another one has taken its place.
    #[track_caller]
    pub(crate) fn replace_supervisor(&self, host: &str, run: &str) {
        let dead = self.kill_supervisor(host, run);
        wait_for("a new supervisor", || (self.state_of(host, run).supervisor != dead).then_some(()));
    }

    /// Kills the supervisor of a run on a host without a word.
    #[track_caller]
    pub(crate) fn kill_supervisor(&self, host: &str, run: &str) -> Identity {
        let supervisor = self.state_of(host, run).supervisor;
        assert_eq!(self.on(host, &format!("kill -9 {} && echo killed", supervisor.pid)), "killed\n");
        supervisor
    }

    /// Waits until a host has no process of the run: no rank, nothing that a rank started, nothing that started it.
    #[track_caller]
    pub(crate) fn until_free(&self, host: &str, run: &str) {
        self.until_none(host, |process| process.is_of(run));
    }

    /// Waits until a host has no such process.
    #[track_caller]
    pub(crate) fn until_none(&self, host: &str, such: impl Fn(&HostProcess) -> bool) {
        let mut left = self.processes(host);
        until(&format!("{host} to be free of some of {left:#?}"), || {
            left = self.processes(host);
            left.retain(&such);
            left.is_empty()
        });
    }

    /// Asserts that a host has no process of a program with one of these names.
    #[track_caller]
    pub(crate) fn assert_none(&self, host: &str, names: &[&str]) {
        let mut left = self.processes(host);
        left.retain(|process| names.contains(&process.name.as_str()));
        assert!(left.is_empty(), "left on {host}: {left:#?}");
    }

    /// The processes of a host, without those that have ended and wait for their parent.
    pub(crate) fn processes(&self, host: &str) -> Vec<HostProcess> {
        let proc = PathBuf::from(format!("/proc/{}/root/proc", self.pid(host)));
        let entries = std::fs::read_dir(&proc).expect("the host runs").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // the first is what holds the host's namespaces
        pids.filter(|pid| *pid != 1).filter_map(|pid| HostProcess::read(&proc, pid)).collect()
    }

    /// Changes a host: `cut`, `blackhole`, `heal`, `stop`, `start`, `freeze`, `thaw`, `rekey` …, with what more the verb
    /// needs after the host: `n1 in`.
    #[track_caller]
    pub(crate) fn change(&self, verb: &str, host: &str) {
        let out = script(&self.dir).arg(verb).args(host.split_whitespace()).output_in_time().unwrap();
        assert!(out.status.success(), "hosts {verb} {host}: {}", text(&out.stderr));
    }

    /// A member's first process as this machine numbers it: its namespaces and files are found by it.
    pub(crate) fn pid(&self, member: &str) -> u32 {
        self.member(member)["pid"].as_u64().expect("a pid") as u32
    }

    fn member(&self, name: &str) -> &Value {
        let hosts = self.state["hosts"].as_array().expect("hosts");
        let found = hosts.iter().chain([&self.state["hub"]]).find(|entry| entry["name"] == name);
        found.unwrap_or_else(|| panic!("no member {name}"))
    }

    /// The cluster's directory: `ssh_config`, `hub/home/.ssh`, each host's `sshd.log`.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = script(&self.dir).arg("down").output_in_time();
        } else {
            let out = script(&self.dir).arg("down").output_in_time().unwrap();
            assert!(out.status.success(), "hosts down: {}", text(&out.stderr));
        }
    }
}
