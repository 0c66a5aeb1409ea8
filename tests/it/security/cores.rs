//! What the memory of hvtui's processes holds, passwords and values of secret variables, lands in no core file; that of a rank
//! does, where its person wants it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};

use super::person::Person;
use crate::common::in_time::OutputInTime;
use crate::common::processes::until;

const OWNER: u32 = 40_011;

fn abort(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::ABORT).unwrap();
}

fn is_there(pid: i32) -> bool {
    // one that is dead and not waited for counts as gone
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The processes below one, itself first, with their command lines.
fn below(pid: i32) -> Vec<(i32, String)> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut all = vec![(pid, String::from_utf8_lossy(&line).replace('\0', " "))];
    // each of its threads has its own
    for children in glob::glob(&format!("/proc/{pid}/task/*/children")).unwrap().flatten() {
        let children = std::fs::read_to_string(children).unwrap_or_default();
        all.extend(children.split_ascii_whitespace().flat_map(|child| below(child.parse().unwrap())));
    }
    all
}

fn supervisor(person: &Person) -> i32 {
    let state = std::fs::read(person.spool().join("state.json")).unwrap_or_default();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
    state["supervisor"]["pid"].as_i64().unwrap_or_default() as i32
}

fn core_limit(pid: i32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    line.split_ascii_whitespace().nth(4).unwrap().to_owned()
}

struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn launch(person: &Person, command: &[&str]) -> Client {
    let mut hvtui = person.command(crate::common::program::hvtui());
    hvtui.args(["run", "-np", "1", "--secret-env", "TOKEN", "--"]).args(command);
    hvtui.env("TOKEN", "hunter2hunter2").stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: sets a limit, which is safe between fork and exec
    #[expect(unsafe_code, reason = "a child's own limit is set between fork and exec")]
    unsafe {
        hvtui.pre_exec(|| Ok(setrlimit(Resource::Core, Rlimit { current: None, maximum: None })?));
    }
    Client(hvtui.spawn().unwrap())
}

/// Core files below a folder. Those that a rank left are named by its pid where the kernel is told to.
fn cores(folder: &Path) -> Vec<std::path::PathBuf> {
    let all = glob::glob(&format!("{}/**/core*", folder.display())).unwrap();
    all.flatten().filter(|path| path.is_file()).collect()
}

#[test]
fn vector_06_no_core_file_holds_a_secret_value() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to be another user and to raise a limit");
        assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "needs root");
        return;
    }
    let owner = Person::with_user(OWNER);
    let client = launch(&owner, &["sh", "-c", "touch up; exec sleep 600"]);
    until("the rank", || owner.path("up").exists());
    let supervisor = supervisor(&owner);
    let client_pid = client.0.id() as i32;
    let of_client = below(client_pid);
    let agent = of_client.iter().find(|(_, line)| line.contains(" agent ")).expect("an agent").0;
    let of_run = below(supervisor);
    let named = |word: &str| of_run.iter().find(|(_, line)| line.contains(word)).expect(word).0;
    let (wrap, rank) = (named("rank-wrap"), named("sleep 600"));

    // as the same user
    let readable = |pid: i32, file: &str| {
        let mut cat = owner.command("cat");
        cat.arg(format!("/proc/{pid}/{file}")).output_in_time().unwrap().status.success()
    };
    for (who, pid) in [("client", client_pid), ("agent", agent), ("supervisor", supervisor)] {
        assert!(!readable(pid, "environ") && !readable(pid, "maps"), "{who}");
    }
    assert!(readable(wrap, "environ"), "of it the agent takes what is to be hidden");
    assert_eq!(core_limit(rank), "unlimited");
    // while it starts its rank it has that one's limit
    until("its own limit", || core_limit(wrap) == "1");

    let none: [std::path::PathBuf; 0] = [];
    for (who, pid) in
        [("client", client_pid), ("agent", agent), ("supervisor", supervisor), ("rank-wrap", wrap)]
    {
        abort(pid);
        until("its end", || !is_there(pid));
        if pid == supervisor {
            // else no process is left that ends the rank
            until("a new supervisor", || ![0, pid].contains(&self::supervisor(&owner)));
        }
        assert_eq!(cores(&owner.path("")), none, "{who}");
    }
    until("the rank's end", || !is_there(rank));

    // A rank that crashes leaves its core, where the kernel is told to write any into its folder.
    let owner = Person::with_user(OWNER);
    let client = launch(&owner, &["sh", "-c", "touch up; kill -SEGV $$"]);
    until("the end of the run", || owner.has_spool() && owner.spool().join("exit-0.json").exists());
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let writes = !pattern.starts_with(['|', '/']);
    assert_eq!(cores(&owner.path("")).len(), usize::from(writes), "{pattern}");
    drop(client);
}
