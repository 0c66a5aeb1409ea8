//! `hvtui runs prune` by the real binary, on this machine: what it shows, what it deletes, and what it must not.

use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use hvtui::domain::ids::RunId;
use serde_json::Value;

use super::common::client::{Client, Ended};
use super::common::cluster::{Cluster, skip};
use crate::check_runs::said;
use crate::common::in_time::OutputInTime;
use crate::local_runs::Person;

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(out)))
}

/// Runs a job to its end; gives the run.
fn ended(person: &Person, name: &str) -> String {
    let out = person.run(&["run", "-np", "1", "--name", name, "--", "echo", "said"]);
    assert!(out.status.success(), "{}", said(&out));
    let runs = json(&person.run(&["runs", "--json", "--local"]));
    runs[0]["spec"]["id"].as_str().unwrap().to_owned()
}

/// The folder of its recording, and that of what its host keeps.
fn folders(person: &Person, run: &str) -> [PathBuf; 2] {
    ["runs", "spool"].map(|kind| person.home().join(".local/state/hvtui").join(kind).join(run))
}

#[test]
fn the_oldest_recordings_go_with_what_their_hosts_keep() {
    let person = Person::new(1);
    let runs = ["one", "two", "three"].map(|name| ended(&person, name));
    let are_there = || runs.each_ref().map(|run| folders(&person, run).map(|folder| folder.exists()));
    assert_eq!(are_there(), [[true; 2]; 3]);

    let none = person.run(&["runs", "prune"]);
    assert_eq!(none.status.code(), Some(64));
    assert!(said(&none).contains("--older-than 30d, --keep 50 or --max-size 5G"), "{}", said(&none));
    let dry = person.run(&["runs", "prune", "--keep", "2", "--dry-run"]);
    let text = said(&dry);
    assert!(dry.status.success() && text.contains("1 to be deleted, "), "{text}");
    assert!(text.contains("one") && text.contains("not among the newest 2, and on here"), "{text}");
    let unasked = person.run(&["runs", "prune", "--keep", "2"]);
    assert_eq!(unasked.status.code(), Some(64), "{}", said(&unasked));
    assert_eq!(are_there(), [[true; 2]; 3], "nothing was deleted without a yes");

    let old = person.run(&["runs", "prune", "--older-than", "30d", "--yes"]);
    assert!(old.status.success() && said(&old).contains("no run is to be deleted"), "{}", said(&old));
    let done = person.run(&["runs", "prune", "--keep", "2", "--yes"]);
    assert!(done.status.success() && said(&done).contains("1 deleted, "), "{}", said(&done));
    assert_eq!(are_there(), [[false; 2], [true; 2], [true; 2]]);

    // the hosts file's rules count where the command line has none
    let hosts = std::fs::read_to_string(person.home().join("hosts.toml")).unwrap();
    std::fs::write(person.home().join("hosts.toml"), format!("[runs]\nmax_size = \"1\"\n{hosts}")).unwrap();
    let listed = said(&person.run(&["runs"]));
    assert!(listed.contains("[runs] keeps 1 B; 2 beyond that: hvtui runs prune"), "{listed}");
    let done = json(&person.run(&["runs", "prune", "--yes", "--json"]));
    assert_eq!((&done["rules"]["max_size"], done["runs"].as_array().map(Vec::len)), (&1.into(), Some(2)));
    assert!(done["runs"][0]["deleted"] == true && done["freed"].as_u64() > Some(0), "{done:#}");
    assert_eq!(are_there(), [[false; 2]; 3]);
}

#[test]
fn what_is_live_or_being_recorded_stays() {
    let person = Person::new(2);
    let written = ended(&person, "written");
    let out = person.run(&["run", "-np", "1", "--detach", "--name", "live", "--", "sleep", "600"]);
    let live = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let lock = File::options().write(true).open(folders(&person, &written)[0].join("lock")).unwrap();
    lock.lock().unwrap();

    let out = person.run(&["runs", "prune", "--keep", "0", "--yes", "--json"]);
    let told = json(&out);
    let stays = |at: usize| told["runs"][at]["stays"].as_str().unwrap_or_default().to_owned();
    assert_eq!((stays(0), stays(1)), ("it is running".into(), "another client is recording it".into()));
    assert!([&live, &written].iter().all(|run| folders(&person, run).iter().all(|folder| folder.exists())));
    // without its hosts nothing tells that it has ended
    let out = said(&person.run(&["runs", "prune", "--keep", "0", "--yes", "--local"]));
    assert!(out.contains("stays: it may be running: here did not answer"), "{out}");

    drop(lock);
    let stopped = person.run(&["stop", &live]);
    assert!(stopped.status.success(), "{}", said(&stopped));
    let told = json(&person.run(&["runs", "prune", "--keep", "0", "--yes", "--json"]));
    assert!(told["runs"][0]["deleted"] == true && told["runs"][1]["deleted"] == true, "{told:#}");
    assert!([&live, &written].iter().all(|run| folders(&person, run).iter().all(|folder| !folder.exists())));
}

/// Has the hosts file name two hosts: this machine, and one that is this machine or can't be reached.
fn two_hosts(person: &Person, is_there: bool) {
    let other = if is_there { "address = \"local\"\nslots = 1" } else { "address = \"127.0.0.1\"\nport = 1" };
    let hosts = format!(
        "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 2\n[[host]]\nname = \"other\"\n{other}\n"
    );
    std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
}

#[test]
fn a_run_stays_until_all_its_hosts_answer() {
    let person = Person::new(2);
    let alone = ended(&person, "alone");
    two_hosts(&person, true);
    let out = person.run(&["run", "-H", "here:1,other:1", "--name", "both", "--", "echo", "said"]);
    assert!(out.status.success(), "{}", said(&out));
    let runs = json(&person.run(&["runs", "--json", "--local"]));
    let both = runs[0]["spec"]["id"].as_str().unwrap().to_owned();

    two_hosts(&person, false);
    // where nothing is to be deleted no host is asked
    let none = person.run(&["runs", "prune", "--keep", "2", "--yes", "--json"]);
    assert_eq!(
        (none.status.code(), &json(&none)["hosts"]),
        (Some(0), &serde_json::json!({})),
        "{}",
        said(&none)
    );
    // nor does it matter that one does not answer that has nothing to do with the runs
    let one = person.run(&["runs", "prune", "--keep", "1", "--dry-run", "--json"]);
    assert_eq!(
        (one.status.code(), &json(&one)["hosts"]),
        (Some(0), &serde_json::json!({})),
        "{}",
        said(&one)
    );

    let out = person.run(&["runs", "prune", "--keep", "0", "--yes", "--json"]);
    let told = json(&out);
    assert_eq!(out.status.code(), Some(69), "{}", said(&out));
    let (why, stays) = (&told["hosts"]["other"], &told["runs"][0]["stays"]);
    assert!(why.as_str().unwrap().contains("their recordings stay here: prune again"), "{told:#}");
    assert_eq!(stays, "other did not answer, and may keep something of it");
    assert!(said(&out).contains("hvtui: other: "), "{}", said(&out));
    assert_eq!(folders(&person, &alone).map(|folder| folder.exists()), [false; 2], "its host has answered");
    assert_eq!(folders(&person, &both).map(|folder| folder.exists()), [true; 2]);

    let local = person.run(&["runs", "prune", "--keep", "0", "--yes", "--local"]);
    assert!(local.status.success(), "{}", said(&local));
    assert_eq!(folders(&person, &both).map(|folder| folder.exists()), [false, true], "the recording alone");
}

#[test]
fn a_host_that_the_hosts_file_does_not_name_any_more_holds_nothing_up() {
    let person = Person::new(2);
    let hosts = std::fs::read_to_string(person.home().join("hosts.toml")).unwrap();
    two_hosts(&person, true);
    let out = person.run(&["run", "-H", "here:1,other:1", "--", "true"]);
    assert!(out.status.success(), "{}", said(&out));
    std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
    let out = person.run(&["runs", "prune", "--keep", "0", "--yes"]);
    assert!(out.status.success(), "{}", said(&out));
    assert!(said(&out).contains("; not on other: not in the hosts file"), "{}", said(&out));
}

/// `hvtui runs prune --keep 0 --yes` where `path` can't be deleted: something is mounted there.
fn prune_with_a_mount(person: &Person, path: &Path) -> Option<Output> {
    let prune = person.hvtui(&["runs", "prune", "--keep", "0", "--yes"]);
    let script = "mount --bind \"$1\" \"$1\" || exit 42; shift; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]).arg(path);
    command.arg(prune.get_program()).args(prune.get_args()).current_dir(person.home());
    command
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("HOME", person.home())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null());
    let out = command.output_in_time().unwrap();
    if out.status.code() == Some(42) || out.stderr.starts_with(b"unshare: ") {
        skip("no right to mount in a namespace of its own");
        return None;
    }
    Some(out)
}

#[test]
fn a_recording_that_cannot_be_deleted_is_named_with_its_file() {
    let person = Person::new(1);
    let run = ended(&person, "stuck");
    let file = folders(&person, &run)[0].join("run.mcap");
    let Some(out) = prune_with_a_mount(&person, &file) else { return };
    let text = said(&out);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("is not deleted: ") && text.contains(&format!("{}: ", file.display())), "{text}");
    assert!(text.contains("0 deleted, "), "{text}");
    let out = person.run(&["runs", "prune", "--keep", "0", "--yes"]);
    assert!(
        out.status.success() && said(&out).contains("1 deleted, "),
        "what is left of it is found: {}",
        said(&out)
    );
    assert_eq!(folders(&person, &run).map(|folder| folder.exists()), [false; 2]);
}

/// The folder of its host's share, in the folder of the run.
fn share(person: &Person, run: &str) -> PathBuf {
    std::fs::read_dir(&folders(person, run)[1]).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn what_a_host_has_deleted_by_half_goes_with_the_next_prune() {
    let person = Person::new(1);
    let run = ended(&person, "half");
    let inside = share(&person, &run).join("attempt-0");
    std::fs::create_dir(&inside).unwrap();
    let Some(out) = prune_with_a_mount(&person, &inside) else { return };
    let text = said(&out);
    assert_eq!(out.status.code(), Some(69), "{text}");
    assert!(text.contains("is not deleted there: delete ") && text.contains("/.deleted-"), "{text}");
    let spool = person.home().join(".local/state/hvtui/spool");
    let left = || std::fs::read_dir(&spool).unwrap().count();
    assert_eq!((folders(&person, &run).map(|folder| folder.exists()), left()), ([true, false], 1));
    let out = person.run(&["runs", "prune", "--keep", "0", "--yes"]);
    assert!(out.status.success() && said(&out).contains("1 deleted, "), "{}", said(&out));
    assert_eq!((folders(&person, &run)[0].exists(), left()), (false, 0));
}

#[test]
fn a_host_that_tells_nothing_of_a_run_deletes_what_it_has() {
    let person = Person::new(1);
    let run = ended(&person, "untold");
    // as one that was prepared and never started
    let share = share(&person, &run);
    std::fs::remove_file(share.join("state.json")).unwrap();
    let prune = || person.run(&["runs", "prune", "--keep", "0", "--yes"]);
    let young = prune();
    assert_eq!(young.status.code(), Some(69), "{}", said(&young));
    assert!(said(&young).contains("it is about to start, or failed to"), "{}", said(&young));
    let long_ago = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    File::open(&share).unwrap().set_times(long_ago).unwrap();
    let old = prune();
    assert!(old.status.success(), "{}", said(&old));
    assert_eq!(folders(&person, &run).map(|folder| folder.exists()), [false; 2]);
}

#[test]
fn a_run_that_its_host_cannot_delete_stays_recorded() {
    let person = Person::new(1);
    let run = ended(&person, "held");
    let Some(out) = prune_with_a_mount(&person, &share(&person, &run)) else { return };
    let text = said(&out);
    assert_eq!(out.status.code(), Some(69), "{text}");
    assert!(text.contains("0 deleted, ") && text.contains("is not deleted there: "), "{text}");
    assert_eq!(folders(&person, &run).map(|folder| folder.exists()), [true; 2]);
    let out = person.run(&["runs", "prune", "--keep", "0", "--yes"]);
    assert!(out.status.success() && said(&out).contains("1 deleted, "), "{}", said(&out));
}

fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.said()))
}

/// A client that is killed between its lock and its first file leaves a folder with a lock.
#[test]
fn a_folder_with_a_lock_alone_is_shown_and_goes_unless_a_client_begins_there() {
    let person = Person::new(1);
    let run = ended(&person, "kept");
    let left = RunId::new(1_795_000_000_000, 7);
    let [folder, _] = folders(&person, left.as_str());
    let make_old = || {
        let now = Duration::from_micros(hvtui::clock::now().0.unsigned_abs());
        let then = SystemTime::UNIX_EPOCH + now - Duration::from_secs(40 * 86_400);
        for path in [&folder.join("lock"), &folder] {
            File::open(path).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
        }
    };
    let prune = |more: &[&str]| {
        person.run(&[&["runs", "prune", "--local", "--older-than", "30d"][..], more].concat())
    };
    let lock = hvtui::record::Lock::take(&folder.join("run.mcap")).unwrap();
    make_old();
    let dry = prune(&["--dry-run"]);
    assert!(said(&dry).contains("no run is to be deleted"), "a client holds it: {}", said(&dry));
    drop(lock);
    let dry = prune(&["--dry-run"]);
    assert!(said(&dry).contains("older than 30d 0h, and empty"), "{}", said(&dry));
    assert!(said(&dry).contains("1 to be deleted, ") && folder.exists(), "{}", said(&dry));
    let listed = person.run(&["runs", "--local"]);
    assert!(said(&listed).contains("empty; its client was killed"), "{}", said(&listed));
    let out = prune(&["--yes"]);
    assert!(out.status.success() && said(&out).contains("1 deleted, "), "{}", said(&out));
    let [kept, _] = folders(&person, &run);
    assert!(!folder.exists() && kept.exists());
}

/// Has both hosts' shares of a run look as if nothing had been written there for 40 days.
fn make_old(cluster: &Cluster, run: &str) {
    let now = Duration::from_micros(hvtui::clock::now().0.unsigned_abs());
    let then = SystemTime::UNIX_EPOCH + now - Duration::from_secs(40 * 86_400);
    for host in ["n1", "n2"] {
        let folder = cluster.spool(host, run).expect("its share");
        File::open(folder).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
    }
}

#[test]
fn runs_that_hosts_alone_know_go_by_their_age() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let (owner, other) = (Client::new(&cluster), Client::new(&cluster));
    let run = |args: &[&str], name: &str| {
        let ended =
            owner.run(&[args, &["--name", name, "--", "sh", "-c", "echo said; exec sleep $HOLD"]].concat());
        assert_eq!(ended.code, 0, "{}", ended.said());
        json_of(&owner.run(&["runs", "--json", "--local"]))[0]["spec"]["id"].as_str().unwrap().to_owned()
    };
    let short = ["run", "-np", "2", "--env", "HOLD=0"];
    let (old, young) = (run(&short, "old"), run(&short, "young"));
    let live = run(&["run", "-np", "2", "--detach", "--env", "HOLD=600"], "live");
    make_old(&cluster, &old);
    make_old(&cluster, &live);
    let there = |run: &str| ["n1", "n2"].map(|host| cluster.spool(host, run).is_some());
    let prune = |more: &[&str]| other.run(&[&["runs", "prune"][..], more].concat());

    let dry = prune(&["--older-than", "30d", "--dry-run"]);
    assert_eq!(dry.code, 0, "{}", dry.said());
    assert!(
        dry.out.contains("old ") && dry.out.contains("older than 30d 0h, on n1 n2 only"),
        "{}",
        dry.said()
    );
    assert!(dry.out.contains("1 to be deleted, "), "{}", dry.said());
    let by_count = prune(&["--keep", "0", "--dry-run"]);
    assert!(by_count.out.contains("no run is to be deleted"), "only age tells of them: {}", by_count.said());
    let unasked = prune(&["--older-than", "30d"]);
    assert_eq!((unasked.code, there(&old)), (64, [true; 2]), "{}", unasked.said());

    // a host of it that does not answer may run it on
    let hosts = std::fs::read_to_string(other.path("hosts.toml")).unwrap();
    let (first, second) = hosts.split_at(hosts.rfind("[[host]]").unwrap());
    let away = "[[host]]\nname = \"n2\"\naddress = \"127.0.0.1\"\nport = 1\n";
    other.write("hosts.toml", &format!("{first}{away}"));
    let half = prune(&["--older-than", "30d", "--yes"]);
    assert_eq!((half.code, there(&old)), (0, [true; 2]), "{}", half.said());
    assert!(half.out.contains("stays: it may be running: n2 did not answer"), "{}", half.said());
    assert!(
        half.err.contains("hvtui: n2: ") && half.err.contains(": runs that it alone knows stay there"),
        "{}",
        half.err
    );

    other.write("hosts.toml", &format!("{first}{second}"));
    let done = prune(&["--older-than", "30d", "--yes", "--json"]);
    let told = json_of(&done);
    assert_eq!((done.code, told["runs"].as_array().map(Vec::len)), (0, Some(1)), "{}", done.said());
    let run = &told["runs"][0];
    assert_eq!((&run["run"], &run["recorded"]), (&Value::from(old.as_str()), &false.into()), "{told:#}");
    assert_eq!(
        (&run["deleted"], &run["hosts"]),
        (&true.into(), &serde_json::json!(["n1", "n2"])),
        "{told:#}"
    );
    assert_eq!([&old, &young, &live].map(|run| there(run)), [[false; 2], [true; 2], [true; 2]]);
    assert!(
        owner.path(".local/state/hvtui/runs").join(&old).join("run.mcap").exists(),
        "its owner's recording"
    );
    let stopped = owner.run(&["stop", &live]);
    assert_eq!(stopped.code, 0, "{}", stopped.said());
}
