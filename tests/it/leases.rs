//! GPU leases with the real binary on real ssh hosts with scripted GPUs: who gets a GPU, who hears whose it is, and
//! when it is free again.
//!
//! The hosts are shared by all tests; each has GPUs of its own.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use crate::common::built;
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::left;
use crate::common::processes::{end_of, until, until_says};
use hvtui::domain::ids::Rank;
use serde_json::{Value, json};

/// GPUs of each host.
const GPUS: usize = 14;
/// The GPU of `n1` on which a process computes that no run started.
const COMPUTING: usize = 11;

fn library() -> PathBuf {
    built::example("libfake_nvml.so")
}

fn uuid(host: &str, gpu: usize) -> String {
    format!("GPU-{host}-{gpu:04}")
}

/// Four hosts with GPUs; they end with this process.
fn hosts() -> Option<&'static Cluster> {
    static HOSTS: OnceLock<Option<Cluster>> = OnceLock::new();
    HOSTS
        .get_or_init(|| {
            let scripts = std::env::temp_dir().join(format!("hvtui-leases.{}", std::process::id()));
            std::fs::create_dir_all(&scripts).expect("a folder");
            for host in ["n1", "n2", "n3", "n4"] {
                let gpu = |gpu: usize| {
                    let busy = host == "n1" && gpu == COMPUTING;
                    let processes =
                        if busy { json!([{ "pid": "self", "memory": 1 << 30 }]) } else { json!([]) };
                    json!({ "uuid": uuid(host, gpu), "processes": processes })
                };
                let script = json!({ "gpus": (0..GPUS).map(gpu).collect::<Vec<_>>() });
                std::fs::write(scripts.join(format!("{host}.json")), script.to_string()).expect("a script");
            }
            Cluster::ready(4, &["--fake-nvml".as_ref(), library().as_ref(), scripts.as_ref()])
        })
        .as_ref()
}

/// A person whose hosts file leaves each host its GPUs.
fn person(cluster: &Cluster) -> Client<'_> {
    let client = Client::new(cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    client
}

/// hvtui in the background, what it says in a file of this name.
struct Background {
    child: Child,
    log: PathBuf,
}

impl Background {
    fn start(mut command: Command, log: PathBuf) -> Self {
        let file = std::fs::File::create(&log).expect("a file");
        let out = file.try_clone().expect("a file");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(file).spawn().expect("hvtui");
        Self { child, log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    fn code(&mut self) -> Option<i32> {
        end_of(&mut self.child).code()
    }

    /// Until it has said this.
    #[track_caller]
    fn says(&self, words: &str) {
        until_says(words, || self.said());
    }
}

/// A rank that says `held` and runs until this file is in its home folder.
fn hold(until: &str) -> String {
    format!("echo held; while [ ! -e ~/{until} ]; do sleep 0.05; done")
}

fn spawn(client: &Client<'_>, name: &str, args: &[&str], script: &str) -> Background {
    let mut all = vec!["run", "--name", name];
    all.extend(args);
    all.extend(["--", "sh", "-c", script]);
    Background::start(client.hvtui(&all), client.path(name))
}

/// Who holds a GPU of `n1`, as `watch --json` tells.
fn lease(client: &Client<'_>, gpu: usize) -> Option<Value> {
    lease_on(client, "n1", gpu)
}

fn lease_on(client: &Client<'_>, name: &str, gpu: usize) -> Option<Value> {
    let seen = client.run(&["watch", "--once", "--json"]);
    let tick: Value = serde_json::from_str(seen.out.lines().next().expect("a line")).expect("JSON");
    let host = tick["hosts"].as_array().expect("hosts").iter().find(|host| host["name"] == name).expect(name);
    let held = host["leases"]["held"].as_array().expect("leases");
    held.iter().find(|lease| lease["gpu"] == uuid(name, gpu)).cloned()
}

/// Waits until no process holds a GPU's lock on `n1`.
#[track_caller]
fn until_unlocked(cluster: &Cluster, gpu: usize) {
    let lock = format!("/proc/{}/root/dev/shm/hvtui-{}.lock", cluster.pid("n1"), uuid("n1", gpu));
    until(&format!("GPU {gpu} of n1 to be free"), || {
        let Ok(file) = std::fs::metadata(&lock) else { return true };
        let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        let locked = format!(" {major:02x}:{minor:02x}:{} ", file.ino());
        !std::fs::read_to_string("/proc/locks").expect("/proc/locks").contains(&locked)
    });
}

#[test]
fn a_leased_gpu_is_refused_with_its_holder_until_the_run_ends() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let mut first = spawn(&client, "first", &["--gpus", "n1:0,1"], &hold("a-go"));
    first.says("[1] held");
    for place in [["--gpus", "n1:0"], ["--gpus", "n1:1"]] {
        let refused = client.run(&[&["run"], &place[..], &["--", "true"]].concat());
        assert_eq!(refused.code, 75, "{refused:#?}");
        let words = ["leased by root", "run ", "(first)", " for "];
        assert!(words.iter().all(|words| refused.err.contains(words)), "{refused:#?}");
    }
    let told = lease(&client, 1).expect("a lease");
    assert_eq!((&told["user"], &told["name"], &told["rank"]), (&json!("root"), &json!("first"), &json!(1)));
    let table = client.run(&["watch", "--once"]);
    assert!(table.out.contains("leased by root for run "), "{}", table.out);
    // one's own can be used twice, when that is asked for
    let mut beside = spawn(&client, "beside", &["--share", "--gpus", "n1:0"], &hold("a-stay"));
    beside.says("[0] held");
    assert_eq!(lease(&client, 0).expect("a lease")["name"], "first");
    let table = client.run(&["watch", "--once"]);
    assert!(
        table.out.contains("beside it: root for run ") && table.out.contains("(beside)"),
        "{}",
        table.out
    );
    cluster.on("n1", "touch ~/a-go");
    assert_eq!(first.code(), Some(0), "{}", first.said());
    // it is the user's own as long as one of the two is there
    let name = || lease(&client, 0).map(|lease| lease["name"].clone());
    until("the other one to hold it", || name() == Some(json!("beside")));
    let refused = client.run(&["run", "--gpus", "n1:0", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("(beside)"), "{refused:#?}");
    cluster.on("n1", "touch ~/a-stay");
    assert_eq!(beside.code(), Some(0), "{}", beside.said());
    until("the GPUs to be free", || lease(&client, 0).is_none() && lease(&client, 1).is_none());
    assert_eq!(client.run(&["run", "--gpus", "n1:0,1", "--", "true"]).code, 0);
    let runs = std::fs::read_dir(client.path(".local/state/hvtui/runs")).expect("runs").flatten();
    for run in runs.map(|run| run.file_name()) {
        left::assert_nothing(cluster, "n1", run.to_str().expect("an id"));
    }
    let there = cluster.surely_on("n1", "ls -A /dev/shm");
    let is_note =
        |name: &&str| name.contains("json") && [0, 1].iter().any(|gpu| name.contains(&uuid("n1", *gpu)));
    assert_eq!(there.lines().find(is_note), None, "no note is left: {there}");
}

#[test]
fn death_frees_a_gpu_whoever_dies() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    // The supervisor and the rank-wrap, as the run's state has them.
    let pids = |id: &str| {
        let mut state = cluster.state_of("n1", id);
        // the rank may begin before its rank-wrap is written down
        until("the rank-wrap", || {
            state = cluster.state_of("n1", id);
            !state.wraps.is_empty()
        });
        (state.supervisor.pid, state.wraps[&Rank(0)].pid)
    };
    for name in ["wrap", "both"] {
        let mut run = spawn(&client, name, &["--gpus", "n1:2"], &hold("never"));
        run.says("held");
        let told = lease(&client, 2).expect("a lease");
        let id = told["run"].as_str().expect("its run").to_owned();
        let (supervisor, wrap) = pids(&id);
        let victims = if name == "wrap" { wrap.to_string() } else { format!("{supervisor} {wrap}") };
        cluster.on("n1", &format!("kill -9 {victims}"));
        until_unlocked(cluster, 2);
        assert_eq!(lease(&client, 2), None);
        // what is left of the run holds nothing
        let again = client.run(&["run", "--gpus", "n1:2", "--", "echo", "mine"]);
        assert_eq!(again.code, 0, "{again:#?}");
        run.child.kill().expect("the client");
        end_of(&mut run.child);
        let mut left = cluster.processes("n1");
        left.retain(|process| process.args.contains("e ~/never"));
        let left: Vec<String> = left.iter().map(|process| process.pid.to_string()).collect();
        cluster.on("n1", &format!("kill -9 {}", left.join(" ")));
    }
    // the lock outlives its supervisor: the rank still runs
    let run = spawn(&client, "orphan", &["--gpus", "n1:2"], &hold("b-go"));
    run.says("held");
    let told = lease(&client, 2).expect("a lease");
    let id = told["run"].as_str().expect("its run").to_owned();
    cluster.on("n1", &format!("kill -9 {}", pids(&id).0));
    let refused = client.run(&["run", "--gpus", "n1:2", "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:#?}");
    assert!(refused.err.contains("(orphan)"), "{refused:#?}");
    cluster.on("n1", "touch ~/b-go");
    until_unlocked(cluster, 2);
    assert_eq!(lease(&client, 2), None);
    drop(run);
}

#[test]
fn in_fifty_races_exactly_one_wins_and_the_other_names_it() {
    let Some(cluster) = hosts() else { return };
    let (one, other) = (person(cluster), person(cluster));
    for round in 0..50 {
        let go = format!("race-{round}");
        let start = |client, name| spawn(client, name, &["--gpus", "n1:3"], &hold(&go));
        let mut both = [start(&one, "one"), start(&other, "other")];
        until("one to give up", || both.iter_mut().any(|client| client.ended().is_some()));
        let lost = both.iter_mut().position(|client| client.ended().is_some()).expect("one has ended");
        assert_eq!(both[lost].code(), Some(75), "round {round}: {}", both[lost].said());
        let winner = ["other", "one"][lost];
        let said = both[lost].said();
        assert!(said.contains(&format!("({winner})")), "round {round}: names the winner: {said}");
        assert!(!said.contains("held"), "round {round}: nothing of the loser ran: {said}");
        both[1 - lost].says("held");
        cluster.on("n1", &format!("touch ~/{go}"));
        assert_eq!(both[1 - lost].code(), Some(0), "round {round}: {}", both[1 - lost].said());
    }
}

/// Of three launches at the same moment two come too late for the GPU that looked best to all: each gets another one, says so, and
/// leaves nothing of the try that was in vain. No other test uses this host.
#[test]
fn launches_at_the_same_moment_share_out_the_free_gpus() {
    let Some(cluster) = hosts() else { return };
    let people = [person(cluster), person(cluster), person(cluster)];
    let mut lost = 0;
    for round in 0..15 {
        let go = format!("shared-{round}");
        let start = |client| spawn(client, &format!("share-{round}"), &["-H", "n4:1"], &hold(&go));
        let mut all: Vec<Background> = people.iter().map(start).collect();
        for run in &all {
            run.says("[0] held");
        }
        cluster.on("n4", &format!("touch ~/{go}"));
        for (run, client) in all.iter_mut().zip(&people) {
            assert_eq!(run.code(), Some(0), "round {round}: {}", run.said());
            lost += run.said().matches("placed again on n4:").count();
            let runs = std::fs::read_dir(client.path(".local/state/hvtui/runs")).expect("runs");
            assert_eq!(runs.count(), round + 1, "round {round}: a recording a launch: {}", run.said());
        }
        if lost > 0 {
            return;
        }
    }
    panic!("no launch of 45 has come too late");
}

/// The one writes the hosts in the other's order: it is not the order in which they are asked.
#[test]
fn in_twenty_races_for_two_hosts_exactly_one_wins_and_no_rank_of_the_other_starts() {
    let Some(cluster) = hosts() else { return };
    let (one, other) = (person(cluster), person(cluster));
    let ranks = |host: &str| cluster.on(host, "ls ~ | grep -c ran-; true").trim().to_owned();
    for round in 0..20 {
        let go = format!("both-{round}");
        let script = format!("touch ~/ran-$HVTUI_RUN; {}", hold(&go));
        let mut both = [
            spawn(&one, "one", &["--gpus", "n1:12;n3:0"], &script),
            spawn(&other, "other", &["--gpus", "n3:0;n1:12"], &script),
        ];
        until("one to give up", || both.iter_mut().any(|client| client.ended().is_some()));
        let lost = both.iter_mut().position(|client| client.ended().is_some()).expect("one has ended");
        let said = both[lost].said();
        assert_eq!(both[lost].code(), Some(75), "round {round}: {said}");
        let winner = ["other", "one"][lost];
        assert!(said.contains(&format!("({winner})")), "round {round}: names the winner: {said}");
        let won = &mut both[1 - lost];
        until("both ranks of the winner", || won.said().matches("] held").count() == 2);
        let count = (round + 1).to_string();
        assert_eq!([ranks("n1"), ranks("n3")], [&*count, &*count], "round {round}: no rank of the loser ran");
        for host in ["n1", "n3"] {
            cluster.on(host, &format!("touch ~/{go}"));
        }
        assert_eq!(won.code(), Some(0), "round {round}: {}", won.said());
    }
}

#[test]
fn a_launch_waits_in_line_and_starts_when_its_gpu_is_free() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let mut first = spawn(&client, "first", &["--gpus", "n1:4"], &hold("c-go"));
    first.says("held");
    let mut second = spawn(&client, "second", &["--wait", "--gpus", "n1:4"], &hold("d-go"));
    second.says("waiting: n1:4 is busy: leased by root for run");
    let mut third = spawn(&client, "third", &["--wait", "--gpus", "n1:4"], "echo held third");
    third.says("waiting: ");
    // both stand in line, in the order in which they came
    let queue = || cluster.on("n1", "ls /dev/shm | grep -c queue").trim().to_owned();
    until("two tickets", || queue() == "2");
    // who is killed stands there no longer
    let mut gone = spawn(&client, "gone", &["--wait", "--gpus", "n1:4"], "true");
    until("its ticket", || queue() == "3");
    gone.child.kill().expect("the client");
    end_of(&mut gone.child);
    until("its ticket to go", || queue() == "2");
    let patience = client.run(&["run", "--wait=1", "--gpus", "n1:4", "--", "true"]);
    assert_eq!(patience.code, 75, "{patience:#?}");
    assert!(patience.err.contains("still busy after"), "{patience:#?}");
    cluster.on("n1", "touch ~/c-go");
    assert_eq!(first.code(), Some(0));
    second.says("[0] held");
    assert!(third.ended().is_none() && !third.said().contains("held third"), "{}", third.said());
    cluster.on("n1", "touch ~/d-go");
    assert_eq!((second.code(), third.code()), (Some(0), Some(0)), "{}{}", second.said(), third.said());
    assert!(third.said().contains("[0] held third"), "{}", third.said());
    until("the tickets to go", || queue() == "0");
}

/// Puts hvtui on a host for another user there, `nobody`; how that user says `hvtui run`.
fn another_user(cluster: &Cluster, host: &str) -> &'static str {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let set_up = format!(
        "test -e /run/other/hvtui || {{ mkdir -p /run/other && cp \"$HVTUI_NVML_LIB\" /run/other/lib.so && cp \"$FAKE_NVML_SCRIPT\" /run/other/gpus.json \
         && cp {} /run/other/hvtui && chown -R 65534:65534 /run/other && chmod -R a+rX /run/other; }}; test -e /run/other/hvtui && echo ready",
        crate::common::program::hvtui()
    );
    assert_eq!(cluster.on(host, &set_up).trim(), "ready");
    "cd /run/other && setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/run/other \
     HVTUI_NVML_LIB=/run/other/lib.so FAKE_NVML_SCRIPT=/run/other/gpus.json /run/other/hvtui run"
}

/// What logind does to a user's files in `/dev/shm` when that user has logged out (`RemoveIPC`).
fn remove_files(cluster: &Cluster, host: &str, gpu: usize) {
    let removed = cluster.on(host, &format!("rm -v /dev/shm/hvtui-{}*", uuid(host, gpu)));
    assert!(removed.contains(".lock"), "{removed}");
}

#[test]
fn a_gpu_whose_lock_file_is_removed_stays_with_its_run() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let mut first = spawn(&client, "first", &["--gpus", "n3:1"], &hold("g-go"));
    first.says("[0] held");
    // an hvtui that knows of the file alone is kept out as ever
    let file = format!("flock -n /dev/shm/hvtui-{}.lock true; echo $?", uuid("n3", 1));
    assert_eq!(cluster.on("n3", &file).trim(), "1");
    remove_files(cluster, "n3", 1);
    for more in [&[][..], &["--wait=1"]] {
        let refused = client.run(&[&["run", "--gpus", "n3:1"], more, &["--", "true"]].concat());
        assert_eq!(refused.code, 75, "{refused:#?}");
        assert!(refused.err.contains("leased by root"), "{refused:#?}");
    }
    assert_eq!(lease_on(&client, "n3", 1).expect("a lease")["user"], "root");
    // one's own can still be shared, and then is kept as long as that run is there
    let mut beside = spawn(&client, "beside", &["--share", "--gpus", "n3:1"], &hold("h-go"));
    beside.says("[0] held");
    remove_files(cluster, "n3", 1);
    cluster.on("n3", "touch ~/g-go");
    assert_eq!(first.code(), Some(0), "{}", first.said());
    let refused = client.run(&["run", "--gpus", "n3:1", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("leased by root"), "{refused:#?}");
    cluster.on("n3", "touch ~/h-go");
    assert_eq!(beside.code(), Some(0), "{}", beside.said());
    until("the GPU to be free", || lease_on(&client, "n3", 1).is_none());
    assert_eq!(client.run(&["run", "--gpus", "n3:1", "--", "true"]).code, 0);
}

/// By `another_user`, whose client and agent are gone, so that the process which took the lock has ended.
#[test]
fn a_holder_is_named_after_his_agent_has_ended() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let other = another_user(cluster, "n3");
    let line = format!(
        "({other} --name theirs --gpus local:2 -- sh -c 'echo held; while [ ! -e /run/other/go ]; do sleep 0.05; done' \
         >/run/other/log 2>&1 </dev/null &) >/dev/null 2>&1"
    );
    cluster.on("n3", &line);
    until("the rank", || cluster.on("n3", "cat /run/other/log").contains("held"));
    let note = format!("/dev/shm/hvtui-{}.65534.json", uuid("n3", 2));
    // a file on another file system may have the same inode number
    let locker = format!(
        "set -- $(stat -c '%d %i' /dev/shm/hvtui-{}.lock); \
         file=$(printf '%02x:%02x:%d' $(($1 >> 8 & 0xfff)) $(($1 & 0xff | $1 >> 12 & 0xfff00)) $2); \
         awk -v file=$file '$6 == file {{ print $5 }}' /proc/locks",
        uuid("n3", 2)
    );
    let locker = cluster.on("n3", &locker).trim().to_owned();
    // this client and its agent, which took the lock: that user has others on this host meanwhile
    let client_of = cluster.on("n3", &format!("ps -o ppid= -p {locker}")).trim().to_owned();
    let its = cluster.on("n3", &format!("ps -o args= -p {client_of}"));
    assert!(its.starts_with("/run/other/hvtui run --name theirs"), "{locker} took the lock, below {its}");
    cluster.on("n3", &format!("kill -9 {client_of} {locker}"));
    until_says("gone", || cluster.on("n3", &format!("ps -p {locker} -o pid,stat,args || echo gone")));
    cluster.on("n3", &format!("rm {note}"));
    assert_eq!(lease_on(&client, "n3", 2).expect("a lease")["user"], "nobody");
    let refused = client.run(&["run", "--gpus", "n3:2", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("leased by nobody"), "{refused:#?}");
    // another user's own is not shared
    remove_files(cluster, "n3", 2);
    let refused = client.run(&["run", "--share", "--gpus", "n3:2", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("leased by nobody"), "{refused:#?}");
    cluster.on("n3", "touch /run/other/go");
    until("their GPU to be free", || lease_on(&client, "n3", 2).is_none());
}

#[test]
fn vector_16_who_denies_a_gpu_is_named() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let other = another_user(cluster, "n3");
    let stranger = "setpriv --reuid=65533 --regid=65533 --clear-groups";
    let lock = |gpu| format!("/dev/shm/hvtui-{}.lock", uuid("n3", gpu));
    // a file that only its owner can open
    cluster.on("n3", &format!("{stranger} sh -c 'umask 077; : >{}'", lock(13)));
    let refused = cluster.on("n3", &format!("{other} --gpus local:13 -- true 2>&1; echo code $?"));
    assert!(refused.contains("65533 has put it there") && !refused.contains("code 0"), "{refused}");
    // the name in the kernel
    let bind = format!("s.bind(chr(0) + \"hvtui-gpu-{}\")", uuid("n3", 12));
    let line = format!(
        "({stranger} python3 -c 'import socket, time; s = socket.socket(socket.AF_UNIX); {bind}; time.sleep(600)' \
         </dev/null &) >/dev/null 2>&1"
    );
    cluster.on("n3", &line);
    until("the name", || cluster.on("n3", "cat /proc/net/unix").contains(&uuid("n3", 12)));
    let refused = client.run(&["run", "--gpus", "n3:12", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("leased by 65533"), "{refused:#?}");
    // a lock that a process took which has ended, while another one keeps it: it is not in the list of locks that a
    // namespace of processes sees, and the open files of another user are root's to see
    let line =
        format!("{stranger} sh -c 'exec 8>{}; flock 8; sleep 600 </dev/null >/dev/null 2>&1 &'", lock(11));
    cluster.on("n3", &line);
    let refused = client.run(&["run", "--gpus", "n3:11", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("leased by 65533 (pid "), "{refused:#?}");
    assert!(refused.err.contains(": sleep 600), not known to be a run: it is free when"), "{refused:#?}");
    let refused = cluster.on("n3", &format!("{other} --gpus local:11 -- true 2>&1; echo code $?"));
    let words = ["`sudo fuser -v` on its lock file", "code 75"];
    assert!(words.iter().all(|words| refused.contains(words)), "{refused}");
    cluster.on("n3", &format!("{stranger} sh -c 'kill -9 -1'"));
    cluster.on("n3", &format!("rm {}", lock(13)));
}

/// Anyone who can open a lock's file can have it in common with others, and so keep it from a launch.
#[test]
fn a_stranger_with_a_lock_in_common_is_named_with_the_process_and_its_command() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let lock = format!("/dev/shm/hvtui-{}.lock", uuid("n3", 10));
    let program = format!(
        "import fcntl, os, time; file = open(\"{lock}\"); fcntl.flock(file, fcntl.LOCK_SH); print(os.getpid()); time.sleep(600)"
    );
    let line = format!(
        "(setpriv --reuid=65532 --regid=65532 --clear-groups sh -c ': >{lock}; exec python3 -u -c \"$0\"' '{program}' \
         </dev/null >/run/stranger 2>&1 &) >/dev/null 2>&1"
    );
    cluster.on("n3", &line);
    let said = until_says("\n", || cluster.on("n3", "cat /run/stranger"));
    let pid: u32 = said.trim().parse().expect(&said);
    let refused = client.run(&["run", "--gpus", "n3:10", "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:#?}");
    let named = format!("leased by 65532 (pid {pid}: python3 -u -c import fcntl");
    let remedy = format!("not known to be a run: it is free when process {pid} ends");
    assert!(refused.err.contains(&named) && refused.err.contains(&remedy), "{refused:#?}");
    // what it says to do helps
    cluster.on("n3", &format!("kill {pid}"));
    until("its end", || cluster.on("n3", &format!("ps -o pid= -p {pid}")).trim().is_empty());
    let ours = client.run(&["run", "--gpus", "n3:10", "--", "true"]);
    assert_eq!(ours.code, 0, "{ours:#?}");
}

#[test]
fn vector_16_nobody_takes_the_gpu_of_another_user() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let other = another_user(cluster, "n1");
    let line = format!(
        "({other} --name theirs --gpus local:5 -- sh -c 'while [ ! -e /run/other/go ]; do sleep 0.05; done' \
         >/run/other/log 2>&1 </dev/null &) >/dev/null 2>&1"
    );
    cluster.on("n1", &line);
    until("their lease", || lease(&client, 5).is_some());
    let told = lease(&client, 5).expect("a lease");
    assert_eq!(
        (&told["user"], &told["own"], &told["name"]),
        (&json!("nobody"), &json!(false), &json!("theirs"))
    );
    for more in [&[][..], &["--share"]] {
        let refused = client.run(&[&["run", "--gpus", "n1:5"], more, &["--", "true"]].concat());
        assert_eq!(refused.code, 75, "{refused:#?}");
        assert!(refused.err.contains("leased by nobody for run"), "{refused:#?}");
    }
    // it is found by its name, and whose it is is said
    let stopped = client.run(&["stop", "theirs"]);
    assert_eq!(stopped.code, 77, "{stopped:#?}");
    assert!(stopped.err.contains(" (theirs) is nobody's, on n1, launched "), "{stopped:#?}");
    // and the other way round: they see ours, under our name
    let mut ours = spawn(&client, "ours", &["--gpus", "n1:6"], &hold("e-go"));
    ours.says("held");
    let refused = cluster.on("n1", &format!("{other} --share --gpus local:6 -- true 2>&1; echo code $?"));
    assert!(refused.contains("leased by root for run") && refused.contains("code 75"), "{refused}");
    // a note in our name that we did not write, and one in theirs for a process that is not theirs, say nothing
    let forged = format!("/dev/shm/hvtui-{}", uuid("n1", 7));
    let note = r#"{"process":{"boot":"x","pid":1,"start":1},"run":"01JD0000000000000000000000","name":"forged","rank":0,"since":1}"#;
    let forge = format!(
        "setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \
         'echo \"{}\" >{forged}.0.json; echo \"{0}\" >{forged}.65534.json; : >{forged}.lock'",
        note.replace('"', "\\\"")
    );
    cluster.on("n1", &forge);
    assert_eq!(lease(&client, 7), None);
    assert_eq!(client.run(&["run", "--gpus", "n1:7", "--", "true"]).code, 0, "their file, our lock");
    cluster.on("n1", "touch ~/e-go /run/other/go");
    assert_eq!(ours.code(), Some(0));
    until("their GPU to be free", || lease(&client, 5).is_none());
}

#[test]
fn vector_07_what_is_planted_is_refused_and_strangers_are_named() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let lock = |gpu| format!("/dev/shm/hvtui-{}.lock", uuid("n1", gpu));
    cluster.on("n1", &format!("echo kept >/run/victim; ln -s /run/victim {}", lock(8)));
    let refused = client.run(&["run", "--gpus", "n1:8", "--", "true"]);
    assert!(refused.code != 0 && refused.err.contains("symbolic link"), "{refused:#?}");
    assert_eq!(cluster.on("n1", "cat /run/victim"), "kept\n");
    // a lock of a program that is not hvtui
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let line = format!("({other} flock -n {} sleep 600 </dev/null &) >/dev/null 2>&1", lock(9));
    cluster.on("n1", &line);
    until("the lock", || lease(&client, 9).is_some());
    let refused = client.run(&["run", "--gpus", "n1:9", "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:#?}");
    assert!(refused.err.contains("leased by nobody"), "{refused:#?}");
    // a process that no run has started, of our own user
    let place = format!("n1:{COMPUTING}");
    let refused = client.run(&["run", "--gpus", &place, "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:#?}");
    assert!(refused.err.contains("root ") && refused.err.contains("(pid "), "{refused:#?}");
    assert_eq!(client.run(&["run", "--share", "--gpus", &place, "--", "true"]).code, 0);
    // a directory that another user could empty
    cluster.on("n1", "mkdir /run/theirs && chown 65534 /run/theirs && chmod 1777 /run/theirs");
    let hosts = cluster.hosts_toml(1).replace("slots = 1\n", "lease_dir = \"/run/theirs\"\n");
    client.write("hosts.toml", &hosts);
    let refused = client.run(&["run", "--gpus", "n1:10", "--", "true"]);
    assert!(refused.code != 0 && refused.err.contains("belongs to uid 65534"), "{refused:#?}");
}

#[test]
fn a_launch_on_all_hosts_takes_what_is_free() {
    let Some(cluster) = hosts() else { return };
    let client = person(cluster);
    let all: Vec<String> = (0..GPUS).map(|gpu| gpu.to_string()).collect();
    let most = all[..GPUS - 1].join(",");
    let mut first = spawn(&client, "first", &["--gpus", &format!("n2:{most}")], &hold("f-go"));
    until("all ranks", || first.said().matches("held").count() == GPUS - 1);
    let free = client.run(&["run", "-H", "n2:1", "--", "sh", "-c", "echo on $HVTUI_PLACE"]);
    assert_eq!(free.code, 0, "{free:#?}");
    assert!(free.out.contains(&format!("on n2:{}", GPUS - 1)), "{free:#?}");
    let refused = client.run(&["run", "-H", "n2:2", "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:#?}");
    assert!(refused.err.contains("(first)"), "{refused:#?}");
    cluster.on("n2", "touch ~/f-go");
    assert_eq!(first.code(), Some(0));
}
