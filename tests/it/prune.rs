//! `hvtui runs prune` by the real binary, on this machine: what it shows, what it deletes, and what it must not.

use std::fs::File;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::local_runs::Person;

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

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
