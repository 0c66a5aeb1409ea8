//! `--sync` with the real binary on real ssh hosts: what is copied, what is not, and what stays as it is whatever goes
//! wrong.
//!
//! Two hosts are shared by the scenarios that leave them as they are; a scenario that breaks a host has its own.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until};
use serde_json::Value;

/// Two healthy hosts; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| Cluster::ready(2, &[])).as_ref()
}

/// A folder of a person's home, by a name that no other test uses.
struct Folder<'a> {
    client: Client<'a>,
    cluster: &'a Cluster,
    name: &'static str,
}

impl<'a> Folder<'a> {
    fn new(cluster: &'a Cluster, name: &'static str) -> Self {
        let client = Client::new(cluster);
        fs::create_dir(client.path(name)).expect("a folder");
        Self { client, cluster, name }
    }

    fn at(&self, file: &str) -> std::path::PathBuf {
        self.client.path(self.name).join(file)
    }

    /// A new file each time, as editors write it.
    fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        let path = self.at(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let new = self.client.path("new-file");
        fs::write(&new, text).expect(file);
        fs::rename(new, path).expect(file);
    }

    fn args<'b>(&self, more: &[&'b str]) -> Vec<&'b str> {
        let mut args = vec!["run", "-H", "n1:1,n2:1", "--sync", self.name];
        args.extend(more);
        args
    }

    /// A run of a shell line on both hosts.
    fn run(&self, line: &str) -> Ended {
        self.client.run(&self.args(&["--", "sh", "-c", line]))
    }

    #[track_caller]
    fn run_well(&self, line: &str) -> Ended {
        let ended = self.run(line);
        assert_eq!(ended.code, 0, "{ended:#?}");
        ended
    }

    fn on(&self, host: &str, line: &str) -> String {
        self.cluster.on(host, &format!("cd ~/{} && {{ {line}; }}", self.name))
    }

    fn spawn(&self, args: &[&str]) -> Child {
        let log = fs::File::create(self.client.path("out")).expect("a file");
        let mut hvtui = self.client.hvtui(args);
        hvtui
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("hvtui")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.client.path("out")).unwrap_or_default()
    }
}

/// Waits until nothing is left of trees that were replaced: a host removes them behind its answer.
fn no_tree_is_left(cluster: &Cluster, name: &str) {
    until("the old trees to go", || {
        cluster.on("n1", &format!("ls -d ~/.{name}.hvtui-* 2>/dev/null")).is_empty()
    });
}

/// The line about the copy.
#[track_caller]
fn summary(ended: &Ended) -> String {
    let line = ended.err.lines().find(|line| line.contains(" → ") || line.contains("nothing changed"));
    line.unwrap_or_else(|| panic!("no line about the sync: {ended:#?}")).to_owned()
}

fn only_run(client: &Client<'_>) -> Value {
    let listed = client.run(&["runs", "--json", "--local"]);
    let all: Value = serde_json::from_str(&listed.out).expect("JSON");
    all.as_array().and_then(|all| all.first()).expect("a run").clone()
}

#[test]
fn what_changed_comes_to_both_hosts_and_ranks_start_in_it() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "happy");
    folder.write("train.py", "one");
    folder.write("pkg/mod.py", "mod");
    folder.write("bin/tool", "#!/bin/sh\necho tool ran\n");
    fs::set_permissions(folder.at("bin/tool"), fs::Permissions::from_mode(0o755)).expect("a mode");
    folder.write(".gitignore", "*.log\n/data/\n");
    folder.write("big.log", "ignored");
    folder.write("data/x", "ignored");
    folder.write(".git/HEAD", "no repository");
    symlink("pkg/mod.py", folder.at("link")).expect("a symlink");
    let ended = folder.run_well("pwd; cat train.py link; bin/tool; stat -c %a bin/tool; ls -A");
    assert_eq!(ended.out.matches("onemod").count(), 2, "{ended:#?}");
    assert_eq!(ended.out.matches("tool ran").count(), 2, "{ended:#?}");
    assert_eq!(ended.out.matches("] 755").count(), 2, "{ended:#?}");
    assert_eq!(ended.out.matches("/happy").count(), 2, "it is the working directory: {ended:#?}");
    for stays in ["big.log", "data", ".git\n"] {
        assert!(!ended.out.contains(stays), "{stays}: {ended:#?}");
    }
    assert!(
        summary(&ended).contains("sync  5 files changed, ") && summary(&ended).contains("→ n1, n2"),
        "{ended:#?}"
    );
    assert_eq!(folder.on("n1", "readlink link").trim(), "pkg/mod.py");
    let run = only_run(&folder.client);
    assert_eq!(run["spec"]["code"]["tree"].as_str().map(str::len), Some(64), "{run}");

    let again = folder.run_well("true");
    assert!(summary(&again).contains("nothing changed on n1, n2"), "{again:#?}");
    folder.write("train.py", "two");
    let third = folder.run_well("cat train.py");
    assert!(summary(&third).contains("1 file changed, 3 B → n1, n2"), "{third:#?}");
    assert_eq!(third.out.matches("two").count(), 2, "{third:#?}");
    no_tree_is_left(cluster, "happy");
}

#[test]
fn a_dry_run_says_what_would_be_copied_and_writes_nothing() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "dry");
    folder.write("a", "12345");
    let dry = folder.client.run(&folder.args(&["--dry-run", "--", "true"]));
    assert_eq!(dry.code, 0, "{dry:#?}");
    let told =
        ["/dry → ~/dry", "/dry: 1 file, 5 B", "n1: 1 file would change, 5 B would be sent", "n2: 1 file"];
    for words in told {
        assert!(dry.out.contains(words), "{words}: {dry:#?}");
    }
    assert_eq!(cluster.on("n1", "ls -d ~/dry ~/.dry* 2>/dev/null"), "");
    folder.run_well("true");
    let dry = folder.client.run(&folder.args(&["--dry-run", "--", "true"]));
    assert!(dry.out.contains("n1: nothing to copy"), "{dry:#?}");
}

#[test]
fn the_host_s_own_files_stay_and_only_what_was_brought_is_deleted() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "extra");
    folder.write("a", "1");
    folder.write("old", "1");
    folder.run_well("echo mine >mine; mkdir -p out; echo $RANK >out/result");
    fs::remove_file(folder.at("old")).expect("old");
    folder.write("a", "2");
    let ended = folder.run_well("cat a mine old out/result");
    assert!(ended.out.contains("2mine") && ended.out.contains("[1] 11\n"), "{ended:#?}");
    folder.write("a", "3");
    let ended = folder.client.run(&folder.args(&["--sync-delete", "--", "ls"]));
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert!(
        !ended.out.contains("old") && ended.out.contains("] mine") && ended.out.contains("] out"),
        "{ended:#?}"
    );
}

#[test]
fn a_running_job_keeps_its_tree_and_its_outputs_land_in_one_place() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "live");
    folder.write("code", "one");
    let line = "mkdir -p out; while ! [ -e ~/live-stop ]; do cat code; echo; date >>out/log; echo x >out/$$-new; sleep 0.05; done; \
                cat code >out/saw; pwd -P >out/where";
    let mut job = folder.spawn(&["run", "-H", "n1:1", "--sync", "live", "--", "sh", "-c", line]);
    until("the job to print", || folder.said().contains("[0] one"));
    folder.write("code", "two");
    let second = folder.client.run(&["run", "-H", "n2:1", "--sync", "live", "--", "cat", "code"]);
    assert!(second.out.contains("two"), "{second:#?}");
    // the one slot of n1 is taken by a process, not by a lease: a run of another person's may start there
    let third =
        folder.client.run(&["run", "-H", "n1:1", "--sync", "live", "--", "sh", "-c", "cat code; ls out"]);
    assert!(third.code == 0 && third.out.contains("two") && third.out.contains("] log"), "{third:#?}");
    let size = || folder.on("n1", "wc -c <out/log").trim().parse::<u64>().unwrap_or(0);
    let before = size();
    until("the job's log to grow in the present tree", || size() > before);
    cluster.on("n1", "touch ~/live-stop");
    assert!(end_of(&mut job).success(), "{}", folder.said());
    assert!(!folder.said().contains("[0] two"), "{}", folder.said());
    assert_eq!(folder.on("n1", "cat out/saw code").trim(), "onetwo");
    assert_eq!(folder.on("n1", "stat -c %F out").trim(), "directory");
    // the old tree goes with the next look
    folder.run_well("true");
    no_tree_is_left(cluster, "live");
}

#[test]
fn names_and_links_that_lead_out_are_refused_before_anything_starts() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "names");
    folder.write("a", "1");
    folder.write("bad\nname", "1");
    let ended = folder.run("true");
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert!(ended.err.contains("\"bad\\nname\" has a line feed"), "{ended:#?}");
    fs::remove_file(folder.at("bad\nname")).expect("the file");
    symlink("../outside", folder.at("out")).expect("a symlink");
    let ended = folder.run("true");
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert!(ended.err.contains("\"out\" -> \"../outside\" leads out of the folder"), "{ended:#?}");
    assert_eq!(cluster.on("n1", "ls -d ~/names ~/.names* 2>/dev/null"), "");
}

#[test]
fn a_file_in_the_place_of_the_folder_is_not_replaced() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "taken");
    folder.write("a", "1");
    cluster.on("n2", "echo mine >~/taken");
    let ended = folder.run("true");
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert!(
        ended.err.contains("n2: --sync: ") && ended.err.contains("/taken: is a file there"),
        "{ended:#?}"
    );
    assert_eq!(cluster.on("n2", "cat ~/taken").trim(), "mine");
    let home = folder.client.run(&["run", "-H", "n1:1", "--sync", "taken:~", "--", "true"]);
    assert_eq!(home.code, 64, "{home:#?}");
}

#[test]
fn a_full_disk_leaves_the_old_tree() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "full");
    folder.write("a", "1");
    cluster.on("n2", "mkdir -p ~/small");
    let small = cluster.on("n2", "cd ~/small && pwd");
    cluster.change("disk", &format!("n2 {} 1024", small.trim()));
    let args = |line| vec!["run", "-H", "n1:1,n2:1", "--sync", "full:~/small/proj", "--", "sh", "-c", line];
    let ended = folder.client.run(&args("cat a"));
    assert_eq!(ended.code, 0, "{ended:#?}");
    folder.write("a", "2");
    folder.write("large", vec![7; 3 << 20]);
    let ended = folder.client.run(&args("cat a"));
    assert_eq!(ended.code, 69, "{ended:#?}");
    for words in ["n2: --sync: ", "/small/proj needs 3.0 M and ", " are free", "nothing was copied"] {
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    }
    assert_eq!(
        cluster.on("n2", "cd ~/small/proj && cat a && ls").split_whitespace().collect::<String>(),
        "1a"
    );
    cluster.change("undisk", &format!("n2 {}", small.trim()));
}

#[test]
fn a_link_that_is_cut_goes_on_with_what_is_there() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let folder = Folder::new(&cluster, "cut");
    for number in 0..20u8 {
        folder.write(&format!("part{number}"), vec![number; 100_000]);
    }
    folder.write("large", vec![77; 3 << 20]);
    // the agent is put there before the link is slow
    let first = folder.client.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(first.code, 0, "{first:#?}");
    cluster.change("rate", "n1 2000");
    let staged = || -> u64 {
        let sum = "cat ~/.cut.hvtui/blobs/* 2>/dev/null | wc -c";
        cluster.on("n1", sum).trim().parse().unwrap_or(0)
    };
    let mut run = folder.spawn(&["run", "-H", "n1:1", "--sync", "cut", "--", "sh", "-c", "cat * | wc -c"]);
    until("some of it to be there", || staged() > 1_000_000);
    cluster.change("sever", "n1");
    let before = staged();
    cluster.change("heal", "n1");
    assert!(before > 1_000_000 && before < 5_000_000, "{before}");
    assert!(end_of(&mut run).success(), "{}", folder.said());
    assert!(folder.said().contains(&format!("[0] {}", 2_000_000 + (3 << 20))), "{}", folder.said());
    // what was there was not sent again
    let said = folder.said();
    let line = said.lines().find(|line| line.contains("→ n1")).unwrap_or_else(|| panic!("{said}"));
    assert!(!line.contains("4.9 M"), "{line}");
}

#[test]
fn a_stop_while_it_is_copied_leaves_the_old_tree() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let folder = Folder::new(&cluster, "stop");
    folder.write("a", "1");
    let first = folder.client.run(&["run", "-H", "n1:1", "--sync", "stop", "--", "cat", "a"]);
    assert_eq!(first.code, 0, "{first:#?}");
    folder.write("a", "2");
    folder.write("large", vec![9; 8 << 20]);
    cluster.change("rate", "n1 8000");
    let run = folder.spawn(&["run", "-H", "n1:1", "--sync", "stop", "--", "cat", "a"]);
    until("some of it to be there", || {
        cluster.on("n1", "ls ~/.stop.hvtui/blobs 2>/dev/null").contains("part")
    });
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    let mut run = run;
    assert_eq!(end_of(&mut run).code(), Some(130), "{}", folder.said());
    assert!(folder.said().contains("stopped before anything started"), "{}", folder.said());
    assert_eq!(folder.on("n1", "cat a; ls").split_whitespace().collect::<String>(), "1a");
    cluster.change("heal", "n1");
    let last = folder.client.run(&["run", "-H", "n1:1", "--sync", "stop", "--", "cat", "a"]);
    assert!(last.code == 0 && last.out.contains("[0] 2"), "{last:#?}");
}

#[test]
fn hosts_with_one_home_get_one_copy() {
    let Some(cluster) = Cluster::ready(2, &[OsStr::new("--shared-home")]) else { return };
    let folder = Folder::new(&cluster, "shared");
    folder.write("a", "1");
    let ended = folder.run_well("cat a");
    assert_eq!(ended.out.matches("] 1").count(), 2, "{ended:#?}");
    let line = summary(&ended);
    assert!(line.contains("1 file changed, 1 B → ") && line.contains("nothing changed on "), "{line}");
    folder.write("a", "2");
    assert!(summary(&folder.run_well("cat a")).contains("nothing changed on "));
    folder.run_well("true");
    no_tree_is_left(&cluster, "shared");
}

fn git(dir: &Path, args: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args);
    assert!(git.output_in_time().expect("git").status.success(), "git {args:?}");
}

#[test]
fn launching_again_tells_what_has_changed_since() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "again");
    folder.write("a", "1");
    folder.write("b", "1");
    git(&folder.at(""), &["init", "-q"]);
    git(&folder.at(""), &["add", "."]);
    git(&folder.at(""), &["commit", "-qm", "one"]);
    folder.run_well("cat a");
    let code = only_run(&folder.client)["spec"]["code"].clone();
    assert!(code["commit"].is_string() && code["dirty"].is_null(), "{code}");
    folder.write("a", "2");
    folder.write("c", "2");
    git(&folder.at(""), &["commit", "-qam", "two"]);
    let ended = folder.client.run(&["run", "--again", "last"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(ended.out.matches("] 2").count(), 2, "it syncs as before: {ended:#?}");
    let commit = code["commit"].as_str().expect("a commit").get(..7).expect("digits").to_owned();
    assert!(ended.err.contains(&format!("commit {commit} → ")), "{ended:#?}");
    assert!(
        ended.err.contains("code has changed since") && ended.err.contains("2 files differ"),
        "{ended:#?}"
    );
}

#[test]
fn this_machine_needs_no_copy_of_its_own_folder() {
    let Some(cluster) = two() else { return };
    let folder = Folder::new(cluster, "here");
    folder.write("a", "1");
    folder.client.write("hosts.toml", "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 1\n[[recipe]]\nname = \"r\"\ncommand = \"cat a\"\nsync = \"here\"\n");
    let ended = folder.client.run(&["run", "--sync", "here", "--", "sh", "-c", "cat a; pwd"]);
    assert!(ended.code == 0 && ended.out.contains("] 1"), "{ended:#?}");
    assert!(ended.err.contains("nothing is copied there"), "{ended:#?}");
    let recipe = folder.client.run(&["run", "--recipe", "r"]);
    assert!(recipe.code == 0 && recipe.out.contains("] 1"), "{recipe:#?}");
    let other = folder.client.run(&["run", "--sync", "here:~/other", "--", "sh", "-c", "cat a; pwd"]);
    assert!(other.code == 0 && other.out.contains("/other"), "{other:#?}");
    assert!(folder.client.path("other/a").exists());
}
