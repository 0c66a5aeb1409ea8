//! `hvtui smoke` over real ssh: what a cluster can, what it can't, and what was said of it.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;

use crate::common::built;
use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::processes::until;
use crate::common::scripted_gpu::{LIBRARIES, ScriptedGpu};
use crate::common::terminal::Terminal;
use crate::json_forms::assert_value_fits;

fn json(ended: &Ended) -> Value {
    let told = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_value_fits("smoke", &told);
    told
}

fn step<'a>(told: &'a Value, name: &str) -> &'a Value {
    let steps = told["steps"].as_array().expect("steps");
    steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("{name}: {told:#}"))
}

#[test]
fn a_cluster_is_proven_step_by_step_and_each_is_a_run() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::of_two_slots(&cluster);
    let ended = client.run(&["smoke", "--json", "--only", "link,tcp,shm,mixed,nccl,train,container,mpirun"]);
    let told = json(&ended);
    assert_eq!(ended.code, 0, "{told:#}");
    let marks: Vec<(&str, &str)> = told["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["step"].as_str().unwrap(), step["mark"].as_str().unwrap()))
        .collect();
    let names: Vec<&str> = marks.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["link", "tcp", "shm", "mixed", "nccl", "train", "container", "mpirun"]);
    for (name, mark) in marks {
        match name {
            // what is not there is no failure, and says what is missing
            "nccl" | "container" => assert_eq!(mark, "unknown", "{told:#}"),
            // two processors carry all of it
            "link" | "tcp" | "shm" | "mixed" => assert!(mark == "good" || mark == "look", "{told:#}"),
            _ => assert_eq!(mark, "good", "{told:#}"),
        }
    }
    assert!(step(&told, "link")["rate"].as_f64().unwrap() > 0.0);
    assert_eq!(step(&told, "tcp")["expected_rate"], step(&told, "link")["rate"], "what the links give");
    let mixed = step(&told, "mixed")["measured"].as_str().unwrap();
    assert!(mixed.ends_with(", by shm+tcp"), "each transport has its turn: {mixed}");
    assert!(step(&told, "train")["measured"].as_str().unwrap().starts_with("weights equal on 4 ranks"));
    assert!(step(&told, "container")["measured"].as_str().unwrap().contains("--image"));
    // a run of each host for its shared memory, one of both for the rest
    let runs = client.run(&["runs", "--local", "--json"]);
    let runs: Value = serde_json::from_str(&runs.out).unwrap();
    let count =
        |name: &str| runs.as_array().unwrap().iter().filter(|run| run["spec"]["name"] == name).count();
    assert_eq!(
        ["smoke-link", "smoke-tcp", "smoke-shm", "smoke-mixed", "smoke-train", "smoke-mpirun"].map(count),
        [1, 1, 2, 1, 1, 1]
    );
}

#[test]
fn gpus_are_proven_by_nccl_on_the_scripted_driver() {
    let scripts = tempfile::tempdir().unwrap();
    let gpus = serde_json::json!([
        { "uuid": "GPU-00000000-0000-0000-0000-000000000001" }, { "uuid": "GPU-00000000-0000-0000-0000-000000000002" }
    ]);
    let script = serde_json::json!({ "driver": "550.54.14", "gpus": gpus }).to_string();
    std::fs::write(scripts.path().join("n1.json"), script).unwrap();
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(1, &fake) else { return };
    let client = Client::new(&cluster);
    let driver = ScriptedGpu::new(&LIBRARIES);
    let meet = tempfile::tempdir().unwrap();
    let meets = ("FAKE_NCCL_MEET", meet.path().to_owned());
    let variables = driver.variables().into_iter().chain([meets]);
    let variables: Vec<String> =
        variables.map(|(name, value)| format!("{name} = \"{}\"", value.display())).collect();
    let variables = variables.join(", ");
    let hosts = cluster.hosts_toml(1).replace("slots = 1\n", &format!("env = {{ {variables} }}\n"));
    client.write("hosts.toml", &hosts);
    let ended = client.run(&["smoke", "--json", "--only", "nccl"]);
    let told = json(&ended);
    let nccl = step(&told, "nccl");
    assert_eq!((ended.code, &nccl["mark"]), (0, &"good".into()), "{told:#}");
    let measured = nccl["measured"].as_str().unwrap();
    assert!(measured.contains("busbw") && measured.contains("sums right"), "{told:#}");
    let lines = driver.lines();
    assert!(
        lines.iter().any(|line| line == "destroy 0") && lines.iter().any(|line| line == "destroy 1"),
        "{lines:?}"
    );
}

#[test]
fn what_fails_is_red_with_its_words_and_the_command_that_repeats_it() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::of_two_slots(&cluster);
    let ended =
        client.run(&["smoke", "--only", "doctor,train,shm", "-H", "n1", "--data", "/no/such/mnist.npz"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    let line =
        |start: &str| ended.out.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("✖ train      n1").contains("failed: exit 1"), "{}", ended.out);
    assert!(ended.out.contains("/no/such/mnist.npz"), "{}", ended.out);
    let again = ended.out.lines().find_map(|line| line.trim().strip_prefix("again: ")).unwrap_or_default();
    let hosts = client.path("hosts.toml");
    assert_eq!(
        again,
        format!(
            "hvtui --hosts {} run --name smoke-train -H n1:2 -- hvtui train mnist --epochs 1 --data /no/such/mnist.npz",
            hosts.display()
        ),
        "{}",
        ended.out
    );
    assert!(line("✔ shm        n1").contains("GB/s busbw, sums right"), "{}", ended.out);
    assert!(ended.out.lines().last().unwrap().contains("1 failed"), "{}", ended.out);
    let unknown = client.run(&["smoke", "--only", "shn"]);
    assert!(
        unknown.code == 64 && unknown.err.contains("there is no step 'shn': doctor, link,"),
        "{unknown:?}"
    );
    // a host that is not reached is red, and the others are tried
    cluster.change("stop", "n2");
    let told = json(&client.run(&["smoke", "--json", "--only", "doctor,shm"]));
    assert_eq!(
        (step(&told, "doctor")["mark"].as_str(), step(&told, "shm")["mark"].as_str()),
        (Some("bad"), Some("good"))
    );
    // whether the doctor is asked for or not
    let ended = client.run(&["smoke", "--json", "--only", "shm"]);
    let told = json(&ended);
    let doctor = step(&told, "doctor");
    assert_eq!((ended.code, &told["failed"], &doctor["place"]), (1, &1.into(), &"1 of 2 hosts".into()));
    assert!(doctor["words"][0].as_str().unwrap().starts_with("n2: "), "{told:#}");
    assert_eq!(step(&told, "shm")["mark"], "good");
}

/// A data set whose ranks wait for its first byte until they are ended.
fn held(cluster: &Cluster, hosts: &[&str]) -> String {
    for host in hosts {
        assert_eq!(cluster.on(host, "mkfifo /root/held.npz && echo made"), "made\n");
    }
    "/root/held.npz".to_owned()
}

#[test]
fn ctrl_c_ends_the_run_that_goes_on_and_nothing_is_left() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::of_two_slots(&cluster);
    let data = held(&cluster, &["n1", "n2"]);
    let smoke = client.hvtui(&["smoke", "--only", "link,train", "--data", &data]);
    let Some(terminal) = Terminal::start(&smoke, 100, 30) else { return };
    terminal.wait("its first row", |screen| screen.contains("✔ link") || screen.contains("⚠ link"));
    until("the training to run", || {
        cluster.processes("n1").iter().any(|process| process.args.contains("train mnist"))
    });
    terminal.press(&["C-c"]);
    let screen = terminal.assert_restored(130);
    assert!(screen.contains("ended before all was tried"), "{screen}");
    cluster.until_none("n1", |process| process.args.contains("train mnist"));
    cluster.until_none("n2", |process| process.args.contains("train mnist"));
}

#[test]
fn a_signal_to_it_alone_ends_its_run_too() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::of_two_slots(&cluster);
    let data = held(&cluster, &["n1"]);
    let mut smoke: Command = client.hvtui(&["smoke", "--only", "train", "--data", &data]);
    let child =
        smoke.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    until("the training to run", || {
        cluster.processes("n1").iter().any(|process| process.args.contains("train mnist"))
    });
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status_in_time().unwrap().success());
    let out = child.output_in_time().unwrap();
    assert_eq!(out.status.code(), Some(143));
    cluster.until_none("n1", |process| process.args.contains("train mnist"));
}
