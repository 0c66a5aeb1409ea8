//! What the doctor found at other times: what counts as a change, of which hosts, and after a fix.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{give_torch, json, verdict};
use crate::common::built;
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::processes::until;
use crate::common::terminal::Terminal;

/// What has changed, by check and host.
fn changed(told: &Value) -> Vec<String> {
    let changes = told["changes"].as_array().expect("changes");
    changes
        .iter()
        .map(|one| format!("{} {}", one["check"].as_str().unwrap(), one["host"].as_str().unwrap()))
        .collect()
}

#[test]
fn nothing_has_changed_where_only_figures_moved() {
    let scripts = tempfile::tempdir().unwrap();
    let gpu = |name: &str| serde_json::json!({ "name": name, "processes": [{ "pid": "self" }] });
    let set = |host: &str, gpus: &[Value]| {
        let script = serde_json::json!({ "gpus": gpus }).to_string();
        std::fs::write(scripts.path().join(format!("{host}.json")), script).unwrap();
    };
    set("n1", &[gpu("NVIDIA H200"), gpu("NVIDIA H200")]);
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(2, &fake) else { return };
    let client = Client::new(&cluster);
    assert!(client.run(&["doctor"]).code < 64);
    let since = || json(&client.run(&["doctor", "--json", "--since", "last"]));
    let quiet = since();
    assert_eq!(changed(&quiet), [""; 0], "{quiet:#}");
    let who = verdict(&quiet, "gpu", "n1");
    assert_eq!(who["lasting"], "2 × NVIDIA H200");
    assert_eq!(who["evidence"], "2 × NVIDIA H200; in use: 0-1 by root", "{quiet:#}");
    // a run comes, and a GPU goes
    let listens = "import socket,time; s = socket.create_server(('', 41235)); time.sleep(1000)";
    let run = client.run(&["run", "--detach", "-H", "n2:1", "--", "python3", "-c", listens]);
    assert_eq!(run.code, 0, "{run:?}");
    set("n1", &[gpu("NVIDIA H200")]);
    let told = since();
    assert_eq!(changed(&told), ["gpu n1"], "{told:#}");
    assert_eq!(client.run(&["stop", "last", "--now"]).code, 0);
    // a part of the hosts is compared with what all of them were, and another hosts file with what its own were
    let part = json(&client.run(&["doctor", "--json", "--since", "last", "-H", "n2"]));
    assert_eq!((changed(&part), &part["gone_hosts"]), (Vec::new(), &Value::Null), "{part:#}");
    let all = cluster.hosts_toml(1);
    let (first, _) = all.split_once("\n[[host]]\nname = \"n2\"").expect("two hosts");
    client.write("hosts.toml", first);
    let fewer = since();
    assert_eq!(
        (changed(&fewer), &fewer["gone_hosts"]),
        (Vec::new(), &serde_json::json!(["n2"])),
        "{fewer:#}"
    );
    let again = since();
    assert_eq!((changed(&again), &again["gone_hosts"]), (Vec::new(), &Value::Null), "{again:#}");
    client.write("hosts.toml", &all);
    let both = client.run(&["doctor", "--since", "last"]);
    assert!(both.out.contains(": nothing has changed; now "), "of the two hosts, not of the one: {both:?}");
    client.write("hosts.toml", &(all + "\n[[host]]\nname = \"gone\"\naddress = \"10.77.0.200\"\n"));
    let more = client.run(&["doctor", "--since", "last"]);
    assert!(
        more.out.contains(": 1 verdict changed; now ") && more.out.contains("✖ ssh        gone: "),
        "{more:?}"
    );
    assert!(more.out.contains("· gone: not looked at then"), "{more:?}");
}

#[test]
fn after_a_fix_the_next_look_is_compared_with_what_it_left() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.change("disk", "n1 /dev/shm 65536");
    for host in ["n1", "n2"] {
        give_torch(&cluster, host, "2.4.0", "None");
    }
    let before = json(&client.run(&["doctor", "--json", "--only", "shm"]));
    let shm = verdict(&before, "shm", "n1");
    let fix = serde_json::json!({ "on": "n1", "command": "mount -o remount,size=16G /dev/shm" });
    assert_eq!((&shm["mark"], &shm["fix"], &shm["stops_launch"]), (&"bad".into(), &fix, &true.into()));
    assert_eq!(verdict(&before, "shm", "n2")["fix"], Value::Null);
    let Some(terminal) = Terminal::start(&client.hvtui(&["doctor", "--fix"]), 150, 200) else { return };
    let mut asked = 0;
    loop {
        let screen = terminal.wait("a question or the end", |screen| {
            screen.matches("run it? [y/N]").count() > asked || screen.contains("looking again: ")
        });
        if screen.contains("looking again: ") {
            break;
        }
        asked += 1;
        let last = screen.rsplit("would run ").next().unwrap_or_default();
        terminal.type_in(if last.contains("remount") { "y\n" } else { "n\n" });
    }
    let screen = terminal.wait("its end", |screen| screen.contains("[exit "));
    assert!(screen.contains("✔ shm"), "{screen}");
    let since = json(&client.run(&["doctor", "--json", "--since", "last"]));
    assert_eq!(changed(&since), [""; 0], "{since:#}");
}

/// Where the doctor keeps what it found.
const FOLDER: &str = ".local/state/hvtui/doctor";

/// What was kept; not what is still being written.
fn files(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().map(|file| file.expect("a file").path());
    all.filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
}

/// What is not the same in all that was kept: check, host, evidence.
fn verdicts(folder: &Path) -> BTreeSet<String> {
    let all: Vec<BTreeSet<String>> = files(folder)
        .into_iter()
        .map(|file| {
            let whole: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).expect("JSON");
            let checks = whole["checks"].as_array().expect("checks");
            let of = |check: &Value| {
                let name = check["check"].to_string();
                let verdicts = check["verdicts"].as_array().expect("verdicts").clone();
                verdicts.into_iter().map(move |one| format!("{name} {one}"))
            };
            checks.iter().flat_map(of).collect()
        })
        .collect();
    all.iter().flatten().filter(|one| !all.iter().all(|other| other.contains(*one))).cloned().collect()
}

#[test]
fn what_the_screen_has_found_counts_and_what_is_as_it_was_is_kept_once() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["doctor", "--since", "last"]).code, 64, "nothing was kept yet");
    let kept = || files(&client.path(FOLDER)).len();
    let Some(terminal) = Terminal::start(&client.hvtui(&[]), 150, 50) else { return };
    terminal.wait("the hosts", |screen| screen.contains("n1") && screen.contains("n2"));
    terminal.press(&["4"]);
    until("the look to be kept", || kept() == 1);
    // the same once more is told apart by its time alone
    let at = |screen: &str| screen.lines().find(|line| line.contains("looked at")).map(str::to_owned);
    let first = at(&terminal.wait("its time", |screen| at(screen).is_some()));
    until("another look", || {
        terminal.press(&["R"]);
        let now = at(&terminal.screen());
        now.is_some() && now != first
    });
    assert_eq!(kept(), 1, "it has found the same: {:#?}", verdicts(&client.path(FOLDER)));
    cluster.on("n2", "touch /run/reboot-required");
    until("what has changed to be kept", || {
        terminal.press(&["R"]);
        kept() == 2
    });
    terminal.press(&["q"]);
    let since = json(&client.run(&["doctor", "--json", "--since", "last"]));
    assert_eq!(changed(&since), [""; 0], "the screen has seen it: {since:#}");
}
