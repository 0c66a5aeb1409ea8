//! The whole way with the real binary: runs on real ssh hosts, what goes wrong with them, and what is left.
//!
//! Two hosts are shared by the scenarios that leave them as they are; a scenario that breaks a host has its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use crate::common::built;
use crate::common::client::{Client, Ended};
use crate::common::cluster;
use crate::common::cluster::Cluster;
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::left;
use crate::common::processes::{end_of, until};
use serde_json::Value;

/// Two healthy hosts; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| Cluster::up(2, &[])).as_ref()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in: {text}"))
}

/// This person's runs, newest first or last as the program lists them.
fn runs(client: &Client<'_>) -> Vec<Value> {
    let listed = client.run(&["runs", "--json", "--local"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let all: Vec<Value> = match json(&listed.out) {
        Value::Array(all) => all,
        other => panic!("runs --json is no array: {other}"),
    };
    all
}

/// The id of this person's only run.
fn only_run(client: &Client<'_>) -> String {
    let all = runs(client);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]["spec"]["id"].as_str().expect("an id").to_owned()
}

fn recording(client: &Client<'_>, run: &str) -> PathBuf {
    client.path(".local/state/hvtui/runs").join(run).join("run.mcap")
}

/// Asserts that it said each of these, in small letters or capitals.
#[track_caller]
fn assert_says(ended: &Ended, words: &[&str]) {
    let said = ended.said().to_lowercase();
    for word in words {
        assert!(said.contains(&word.to_lowercase()), "'{word}' is not said: {ended:#?}");
    }
}

#[test]
fn ranks_may_have_huge_pages_as_without_hvtui() {
    let own = std::fs::read_to_string("/proc/self/status").expect("the state of this process");
    if !own.contains("THP_enabled") {
        return cluster::skip("no THP_enabled in /proc/self/status: Linux 5.0 tells it");
    }
    let Some(cluster) = two() else { return };
    let tell = ["grep", "THP_enabled", "/proc/self/status"];
    for kind in ["plain", "mpi"] {
        if kind == "mpi" && !std::path::Path::new("/usr/bin/mpirun").exists() {
            continue;
        }
        let line = [["run", "-H", "n1:1", "--kind", kind, "--"].as_slice(), &tell].concat();
        let ended = Client::new(cluster).run(&line);
        assert_eq!(ended.code, 0, "{ended:#?}");
        let words: String = ended.out.split_whitespace().collect();
        assert!(words.ends_with("THP_enabled:1"), "{kind}: {ended:#?}");
    }
}

#[test]
fn two_hosts_train_to_equal_weights_and_the_run_can_be_replayed() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let ended = client.run(&["run", "-np", "2", "--", "hvtui", "train", "diabetes"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let run = only_run(&client);
    let last = ended.err.lines().rfind(|line| !line.is_empty()).expect("a last line");
    let replay = last.split("hvtui replay ").nth(1).expect(last);
    let named: String = replay.chars().take_while(char::is_ascii_alphanumeric).collect();
    assert!(run == named || named.len() >= 4 && run.ends_with(&named.to_uppercase()), "{last} names {run}");
    let hashes: Vec<String> = hex_words(&ended.out, 16);
    let distinct: BTreeSet<&String> = hashes.iter().collect();
    assert!(
        hashes.len() >= 2 && distinct.len() == 1,
        "each rank prints the same hash of its weights: {hashes:?}"
    );
    let summary = &runs(&client)[0];
    assert_eq!(summary["outcome"]["code"], 0, "{summary}");
    assert_eq!(summary["damage"], Value::Null, "{summary}");
    left::assert_nothing_on_two(cluster, &run);
    assert_exports(&client, &run);
}

/// Words of hexadecimal digits that long or longer, but no run id.
fn hex_words(text: &str, least: usize) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| {
            word.len() >= least && word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
        })
        .map(str::to_owned)
        .collect()
}

fn assert_exports(client: &Client<'_>, run: &str) {
    let logs = client.run(&["logs", run]);
    assert_eq!(logs.code, 0, "{logs:#?}");
    assert!(logs.out.lines().count() >= 2, "{logs:#?}");
    let one = client.run(&["logs", run, "--rank", "1"]);
    assert!(one.code == 0 && one.out.lines().count() < logs.out.lines().count(), "{one:#?}");
    let chrome = client.run(&["export", run, "--to", "chrome"]);
    assert_eq!(chrome.code, 0, "{chrome:#?}");
    let trace = json(&chrome.out);
    let events = trace["traceEvents"].as_array().or(trace.as_array()).expect("trace events");
    for phase in ["forward", "backward"] {
        let named = |event: &&Value| event["name"].as_str() == Some(phase);
        assert!(events.iter().filter(named).count() > 2, "{phase}");
    }
}

#[test]
fn ranks_are_placed_as_asked_and_a_plain_command_knows_its_place() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let show = r#"echo "rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE run=$HVTUI_RUN place=$HVTUI_PLACE host=$HVTUI_HOST on=$(hostname)""#;
    let ended = client.run(&["run", "-H", "n2:1,n1:1", "--", "sh", "-c", show]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let run = only_run(&client);
    for (rank, host) in [("0", "n2"), ("1", "n1")] {
        assert_says(
            &ended,
            &[&format!("rank={rank} local=0 world=2 run={run} place={host}:0 host={host} on={host}")],
        );
    }
    // Nothing a rank prints drives a terminal, not even behind a pipe (`| tee log`).
    let line = r#"printf "a\033]0;title\007b\n"; printf "c\033]0;title\007d\n" >&2"#;
    let told = client.run(&["run", "-H", "n1:1", "--", "sh", "-c", line]);
    assert!(told.code == 0 && told.out.contains("[0] ab"), "{told:#?}");
    assert!(told.err.contains("[0] cd"), "{told:#?}");
}

#[test]
fn an_unknown_host_key_is_refused_until_it_is_trusted() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    client.write(".ssh/known_hosts", "");
    let refused = client.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(refused.code, 77, "{refused:#?}");
    let line = cluster.on("n1", "ssh-keyscan -t ed25519 10.77.0.11 2>/dev/null | ssh-keygen -lf -");
    let fingerprint = line.split_whitespace().nth(1).expect("a fingerprint").to_owned();
    assert_says(&refused, &[&fingerprint, "hosts trust n1"]);
    let checked = client.run(&["hosts", "check", "n1"]);
    assert!(
        checked.out.contains("run: hvtui --hosts ") && checked.out.contains(" hosts trust n1"),
        "{checked:#?}"
    );
    let trusted = client.run(&["hosts", "trust", "n1", "--fingerprint", &fingerprint]);
    assert_eq!(trusted.code, 0, "{trusted:#?}");
    let ended = client.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
}

#[test]
fn keys_of_several_hosts_are_accepted_one_after_the_other_and_one_that_fails_keeps_no_other() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let trusted = client.run(&["hosts", "trust", "n1", "n2"]);
    assert_eq!(trusted.code, 0, "{trusted:#?}");
    for host in ["n1", "n2"] {
        let told = trusted.out.lines().any(|line| line.starts_with(host) && line.contains("trusted already"));
        assert!(told, "{trusted:#?}");
    }
    let known = fs::read_to_string(client.path(".ssh/known_hosts")).expect("known hosts");
    let of_second: String =
        known.lines().filter(|line| !line.contains("10.77.0.11")).collect::<Vec<_>>().join("\n");
    client.write(".ssh/known_hosts", &(of_second + "\n"));
    // without a terminal none is asked about
    let half = client.run(&["hosts", "trust", "n1", "n2"]);
    assert_eq!(half.code, 77, "{half:#?}");
    assert_says(&half, &["then say --fingerprint SHA256:", "n2: ", "was trusted already"]);
    let both = client.run(&["hosts", "trust", "n1", "n2", "--fingerprint", "SHA256:x"]);
    assert_eq!(both.code, 64, "{both:#?}");
    assert_says(&both, &["is the key of one host", "n2"]);
}

#[test]
fn a_changed_host_key_stops_hard_and_names_the_line() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let known = fs::read_to_string(client.path(".ssh/known_hosts")).expect("known hosts");
    let keys: Vec<&str> = known.lines().map(|line| line.split_once(' ').expect("a key").1).collect();
    // n1's name with n2's key, on the second line
    client.write(".ssh/known_hosts", &format!("# mine\nn1,10.77.0.11 {}\n", keys[1]));
    let refused = client.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(refused.code, 77, "{refused:#?}");
    assert_says(&refused, &["known_hosts:2", "changed"]);
    let forced = client.run(&["hosts", "trust", "n1"]);
    assert_eq!(forced.code, 77, "trusting does not get around it: {forced:#?}");
}

#[test]
fn a_key_that_the_host_does_not_accept_is_named() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let made = cluster
        .hub("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(client.path("other"))
        .status_in_time();
    assert!(made.expect("ssh-keygen").success());
    let own = format!("identity = \"{}\"", client.path("other").display());
    let toml: Vec<String> = cluster
        .hosts_toml(1)
        .lines()
        .map(|line| if line.starts_with("identity") { own.clone() } else { line.to_owned() })
        .collect();
    client.write("hosts.toml", &toml.join("\n"));
    let refused = client.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(refused.code, 77, "{refused:#?}");
    assert_says(&refused, &["n1", "root"]);
}

#[test]
fn hosts_that_cannot_be_reached_are_named_and_the_others_live_on() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let nowhere = "\n[[host]]\nname = \"n4\"\naddress = \"no-such-host.invalid\"\n";
    client.write("hosts.toml", &(cluster.hosts_toml(1) + nowhere));
    cluster.change("stop", "n2");
    cluster.change("blackhole", "n3");
    // each waits until the black hole is given up
    let seen = std::thread::scope(|scope| {
        for (host, words) in [("n2", "refused"), ("n3", "10.77.0.13"), ("n4", "no-such-host.invalid")] {
            let client = &client;
            scope.spawn(move || {
                let ended = client.run(&["run", "-H", &format!("n1:1,{host}:1"), "--", "true"]);
                assert_eq!(ended.code, 69, "{host}: {ended:#?}");
                assert_says(&ended, &[host, words]);
            });
        }
        scope.spawn(|| {
            let seen = client.run(&["watch", "--once"]);
            assert_says(&seen, &["n1", "n2", "n3", "n4", "refused"]);
        });
        client.run(&["watch", "--once", "--json"])
    });
    let healthy = json(seen.out.lines().next().expect("a line"));
    assert_eq!(host_object(&healthy, "n1")["link"]["link"], "up", "{healthy}");
    assert!(host_object(&healthy, "n1")["sample"]["cpu_percent"].is_number(), "{healthy}");
    for away in ["n2", "n3", "n4"] {
        assert_eq!(host_object(&healthy, away)["sample"], Value::Null, "{away}: {healthy}");
    }
    cluster.change("start", "n2");
    cluster.change("heal", "n3");
    assert_eq!(client.run(&["run", "-H", "n2:1,n3:1", "--", "true"]).code, 0);
}

/// The part of a `watch --json` line about one host.
fn host_object<'a>(tick: &'a Value, name: &str) -> &'a Value {
    let hosts = tick["hosts"].as_array().expect("hosts");
    hosts.iter().find(|host| host["name"] == name).unwrap_or_else(|| panic!("{name} is not in {tick}"))
}

#[test]
fn a_command_that_one_host_lacks_is_named_before_anything_starts() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    cluster.on(
        "n1",
        "mkdir -p ~/only && printf '#!/bin/sh\\ntouch ~/it-ran\\n' >~/only/here && chmod +x ~/only/here",
    );
    let ended = client.run(&["run", "-H", "n1:1,n2:1", "--", "/root/only/here"]);
    assert_ne!(ended.code, 0, "{ended:#?}");
    assert_says(&ended, &["n2", "/root/only/here"]);
    assert_eq!(cluster.on("n1", "ls ~ | grep -c it-ran").trim(), "0", "nothing may have started");
}

#[test]
fn the_first_rank_that_fails_is_the_run_s_exit_code() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let ended = client.run(&[
        "run",
        "-np",
        "2",
        "--",
        "sh",
        "-c",
        "[ $RANK = 1 ] && { echo out of luck; exit 3; }; exec sleep 600",
    ]);
    assert_eq!(ended.code, 3, "{ended:#?}");
    assert_says(&ended, &["rank 1", "n2:0", "exit 3", "out of luck", "rank 0"]);
    left::assert_nothing_on_two(cluster, &only_run(&client));
}

#[test]
fn a_killed_rank_gives_the_signal_s_code_and_takes_its_tree_along() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    // Rank 0 leaves a background process of a session of its own: that has to go too.
    let line = "[ $RANK = 1 ] && kill -9 $$; setsid sleep 600 & exec sleep 600";
    let ended = client.run(&["run", "-np", "2", "--", "sh", "-c", line]);
    assert_eq!(ended.code, 137, "{ended:#?}");
    assert_says(&ended, &["rank 1", "SIGKILL", "sudo dmesg -T"]);
    left::assert_nothing_on_two(cluster, &only_run(&client));
}

#[test]
fn what_cannot_be_placed_is_a_usage_error() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let ended = client.run(&["run", "-np", "3", "--", "true"]);
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert_says(&ended, &["3", "2"]);
    let ended = client.run(&["run", "-H", "n1:1", "n2:1", "--", "true"]);
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert_says(&ended, &["n2:1"]);
    let ended = client.run(&["run", "-H", "n9:1", "--", "true"]);
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert_says(&ended, &["n9"]);
    assert!(runs(&client).is_empty(), "nothing was started");
}

fn spawn(client: &Client<'_>, args: &[&str]) -> Child {
    let log = fs::File::create(client.path("out")).expect("a file");
    client
        .hvtui(args)
        .stdout(log.try_clone().expect("a file"))
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .expect("hvtui")
}

#[test]
fn a_run_outlives_its_client_and_can_be_stopped_by_another() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let line = "while :; do echo tick; sleep 0.1; done";
    let mut first = spawn(&client, &["run", "-np", "2", "--", "sh", "-c", line]);
    until("output of both ranks", || {
        fs::read_to_string(client.path("out")).is_ok_and(|t| t.matches("tick").count() > 4)
    });
    let run = only_run(&client);
    // A recording is behind by up to a second, which is what the kill may cost.
    until("the recording of output", || client.run(&["logs", &run]).out.contains("tick"));
    first.kill().expect("kill -9");
    assert_eq!(end_of(&mut first).signal(), Some(9));
    let size = |host: &str| -> u64 {
        let line = format!("cat ~/.local/state/hvtui/spool/{run}/*/rank-*.out | wc -c");
        cluster.on(host, &line).trim().parse().expect("a number")
    };
    for host in ["n1", "n2"] {
        let before = size(host);
        until(&format!("{host} to write on"), || size(host) > before);
    }
    let stopped = client.run(&["stop", &run]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    left::assert_nothing_on_two(cluster, &run);
    assert!(client.run(&["logs", &run]).out.contains("tick"));
}

#[test]
fn a_stop_waits_for_a_host_that_comes_back() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["run", "--detach", "-np", "2", "--", "sleep", "600"]).code, 0);
    let run = only_run(&client);
    cluster.change("stop", "n2");
    let stop = spawn(&client, &["stop", &run]);
    let said = || fs::read_to_string(client.path("out")).unwrap();
    until("what it waits for", || said().contains("trying again for up to 60 s"));
    until("the end of n1's share", || said().contains("n1: nothing of run"));
    assert!(said().contains("hvtui: n2: "), "{}", said());
    cluster.change("start", "n2");
    let ended = stop.output_in_time().expect("its end");
    assert!(ended.status.success() && said().contains("n2: nothing of run"), "{}", said());
    left::assert_nothing_on_two(&cluster, &run);
}

#[test]
fn an_interrupted_run_is_stopped_everywhere() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let mut first = spawn(&client, &["run", "-np", "2", "--", "sh", "-c", "echo up; exec sleep 600"]);
    let said = || fs::read_to_string(client.path("out")).unwrap_or_default();
    until("both ranks", || said().matches("up").count() >= 2);
    let run = only_run(&client);
    let sent = cluster.hub("kill").args(["-s", "INT", &first.id().to_string()]).status_in_time();
    assert!(sent.expect("kill").success());
    let status = end_of(&mut first);
    assert_eq!(status.code(), Some(130), "an interrupted run is stopped: {}", said());
    left::assert_nothing_on_two(cluster, &run);
}

#[test]
fn a_recording_that_is_cut_in_the_middle_opens_up_to_the_cut() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    assert_eq!(client.run(&["run", "-np", "2", "--", "hvtui", "train", "diabetes"]).code, 0);
    let run = only_run(&client);
    let file = recording(&client, &run);
    let whole = fs::read(&file).expect("the recording");
    fs::write(&file, &whole[..whole.len() * 6 / 10]).expect("cut");
    let damage = runs(&client)[0]["damage"].clone();
    assert!(damage.as_str().is_some_and(|words| words.contains("cut")), "{damage}");
    let logs = client.run(&["logs", &run]);
    assert_eq!(logs.code, 0, "{logs:#?}");
    assert_says(&logs, &["cut"]);
    assert_eq!(client.run(&["export", &run, "--to", "chrome"]).code, 0);
    fs::write(&file, b"no recording at all").expect("spoil");
    assert_ne!(client.run(&["logs", &run]).code, 0);
}

#[test]
fn two_hosts_with_one_home_keep_their_files_apart() {
    let Some(cluster) = Cluster::up(2, &["--shared-home".as_ref()]) else { return };
    let client = Client::new(&cluster);
    let ended = client.run(&["run", "-np", "2", "--", "sh", "-c", "echo I am $(hostname)"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_says(&ended, &["I am n1", "I am n2"]);
    let run = only_run(&client);
    left::assert_nothing_on_two(&cluster, &run);
    let trained = client.run(&["run", "-np", "2", "--", "hvtui", "train", "diabetes"]);
    assert_eq!(trained.code, 0, "{trained:#?}");
}

#[test]
fn each_host_shows_its_own_gpus() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gpus");
    let library = built::example("libfake_nvml.so");
    let Some(cluster) = Cluster::up(2, &["--fake-nvml".as_ref(), library.as_ref(), scripts.as_ref()]) else {
        return;
    };
    let client = Client::new(&cluster);
    let seen = client.run(&["watch", "--once", "--json"]);
    assert_eq!(seen.code, 0, "{seen:#?}");
    let tick = json(seen.out.lines().next().expect("a line"));
    let ids = |host: &str| -> BTreeSet<String> {
        let gpus = host_object(&tick, host)["info"]["gpus"].as_array().expect("GPUs");
        gpus.iter().map(|gpu| gpu["uuid"].as_str().expect("a UUID").to_owned()).collect()
    };
    let (first, second) = (ids("n1"), ids("n2"));
    assert!(first.len() == 2 && second.len() == 2 && first.is_disjoint(&second), "{first:?} {second:?}");
    let people = client.run(&["watch", "--once"]);
    assert_says(&people, &["n1", "n2", "H100"]);
}

#[test]
fn the_secret_of_a_run_is_nowhere_on_disk() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let hold = "echo held; while [ ! -e ~/go-on-$HVTUI_RUN ]; do sleep 0.1; done";
    let mut first = spawn(&client, &["run", "-np", "2", "--", "sh", "-c", hold]);
    until("both ranks", || {
        fs::read_to_string(client.path("out")).is_ok_and(|t| t.matches("held").count() >= 2)
    });
    let run = only_run(&client);
    let find = format!(
        "for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ >/tmp/environ.$$; \
           if grep -q '^HVTUI_RUN={run}$' /tmp/environ.$$; then sed -n 's/^HVTUI_SECRET=//p' /tmp/environ.$$; fi; \
         done 2>/dev/null | sort -u; rm -f /tmp/environ.$$"
    );
    let secret = cluster.on("n1", &find).trim().to_owned();
    assert_eq!(secret.len(), 64, "one secret for the run: '{secret}'");
    for host in ["n1", "n2"] {
        let shown = cluster.on(host, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'");
        assert!(shown.contains("rank-wrap") && !shown.contains(&secret), "{host}: {shown}");
    }
    for host in ["n1", "n2"] {
        cluster.on(host, &format!("touch ~/go-on-{run}"));
    }
    assert!(end_of(&mut first).success());
    left::assert_nothing_on_two(cluster, &run);
    for host in ["n1", "n2"] {
        assert_eq!(cluster.on(host, &format!("grep -rl {secret} ~ | wc -l")).trim(), "0", "{host}");
    }
    let here =
        cluster.hub("grep").args(["-rl", &secret]).arg(client.path("")).output_in_time().expect("grep");
    assert_eq!(String::from_utf8_lossy(&here.stdout), "");
}

#[test]
fn another_login_shell_changes_nothing() {
    if ["/usr/bin/fish", "/usr/bin/tcsh"].iter().any(|shell| !Path::new(shell).exists()) {
        return cluster::skip("no fish or tcsh: apt-get install fish tcsh");
    }
    let shells = ["--shell", "n1=/usr/bin/fish", "--shell", "n2=/usr/bin/tcsh"].map(AsRef::as_ref);
    let Some(cluster) = Cluster::up(2, &shells) else { return };
    let client = Client::new(&cluster);
    let ended = client.run(&["run", "-np", "2", "--", "printf", "%s\n", "a b", "$HOME", "it's; `x`"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_says(&ended, &["a b", "$HOME", "it's; `x`"]);
}

#[test]
fn a_run_goes_on_while_its_host_is_cut_off_and_no_byte_is_lost() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    let client = Client::new(&cluster);
    let line = "i=0; while [ ! -e ~/enough ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo last $i";
    let mut first = spawn(&client, &["run", "-np", "2", "--", "sh", "-c", line]);
    let said = || fs::read_to_string(client.path("out")).unwrap_or_default();
    until("output", || said().lines().count() > 20);
    cluster.change("stop", "n2");
    cluster.change("start", "n2");
    cluster.change("blackhole", "n1");
    let run = only_run(&client);
    let size = || cluster.on("n1", &format!("cat ~/.local/state/hvtui/spool/{run}/*/rank-*.out | wc -c"));
    let before = size();
    until("n1 to write on", || size() != before);
    cluster.change("heal", "n1");
    for host in ["n1", "n2"] {
        cluster.on(host, "touch ~/enough");
    }
    let status = end_of(&mut first);
    assert!(status.success(), "{status:?}: {}", said());
    for rank in ["0", "1"] {
        let logs = client.run(&["logs", &run, "--rank", rank]);
        let numbers: Vec<u64> =
            logs.out.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        let last = numbers.last().copied().expect("the last line");
        let wanted: Vec<u64> = (1..=last).chain([last]).collect();
        assert_eq!(numbers, wanted, "rank {rank}: each line once, in order");
    }
}
