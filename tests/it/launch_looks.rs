//! `hvtui run` over real ssh looks at what a run rests on before it starts it: what is red on a host keeps it from starting.

use std::fs::File;
use std::process::Stdio;

use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::processes::{end_of, until_says};

/// Gives hosts a script.
fn script(cluster: &Cluster, hosts: &[&str], text: &str) {
    for host in hosts {
        cluster.on(
            host,
            &format!("mkdir -p ~/train && printf '{text}' > ~/train/train.py && echo lr: 1 > ~/train/c.yaml"),
        );
    }
}

#[test]
fn a_script_that_is_another_one_on_a_host_is_not_started_unless_it_is_wanted_all_the_same() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    script(&cluster, &["n1", "n2", "n3"], "print(1)\\n");
    let line =
        ["-H", "n1:1,n2:1,n3:1", "--workdir", "~/train", "--", "python3", "train.py", "--config=c.yaml"];
    let run = |more: &[&str]| client.run(&[&["run"], more, &line].concat());
    let fine = run(&[]);
    assert!(fine.code == 0 && !fine.err.contains("red"), "{fine:?}");

    // what a run may write itself is no reason, nor what lies beside
    cluster.on("n2", "rm ~/train/c.yaml; echo x = 1 > ~/train/more.py");
    assert_eq!(run(&[]).code, 0);

    script(&cluster, &["n3"], "print(3)\\n");
    let refused = run(&[]);
    assert_eq!((refused.code, refused.out.as_str()), (78, ""), "{refused:?}");
    for words in [
        "hvtui: nothing was started: 1 check of the hosts is red; --force starts it all the same\n",
        "✖ same       n3: ~/train/train.py: 9 bytes, SHA-256 ",
        " fix: make it the same before the start: let the run copy it (--sync FOLDER, on the Launch screen the field sync)",
    ] {
        assert!(refused.err.contains(words), "{words}: {refused:?}");
    }
    // where something takes long, to connect or to look, it says for whom it waits
    let mut told = refused.err.lines().filter(|line| !line.contains(": waiting for "));
    assert!(!told.any(|line| line.contains("n1")), "the others are as they should be: {refused:?}");
    let runs = client.run(&["runs", "--local"]);
    assert_eq!(runs.out.matches("train.py").count(), 2, "it is no run: {runs:?}");
    let dry = run(&["--dry-run"]);
    assert!(dry.code == 78 && dry.out.contains("rank 0"), "the plan, and what would keep it: {dry:?}");
    assert!(dry.out.contains("⚠ same       n2: ~/train/c.yaml: not there"), "yellow is told, too: {dry:?}");
    assert!(dry.err.contains("hvtui: nothing would be started: 1 check of the hosts is red"), "{dry:?}");
    let forced = run(&["--force"]);
    assert!(forced.code == 0 && forced.out.contains("[2] 3"), "{forced:?}");
    assert!(
        forced.err.contains("hvtui: --force ignores same of n3: ~/train/train.py: 9 bytes"),
        "{forced:?}"
    );

    cluster.on("n3", "rm ~/train/train.py");
    let absent = run(&[]);
    assert!(absent.code == 78 && absent.err.contains("n3: ~/train/train.py: not there"), "{absent:?}");
    // and on one host there is nothing to differ from
    let alone = client.run(&["run", "-H", "n1:1", "--workdir", "~/train", "--", "python3", "train.py"]);
    assert_eq!(alone.code, 0, "{alone:?}");
    // the same can be asked for at any time
    let looked = client.run(&["doctor", "--only", "same", "--same", "~/train", "--same", "/etc/hosts"]);
    assert_eq!(looked.code, 1, "{looked:?}");
    assert!(
        looked.out.contains("n3: ~/train: 1 file, 6 bytes (") && looked.out.contains("no train.py"),
        "{looked:?}"
    );
    let unnamed = client.run(&["doctor", "--only", "same"]);
    assert!(unnamed.code == 64 && unnamed.err.contains("--same PATH"), "{unnamed:?}");
}

#[test]
fn a_check_that_hangs_is_named_and_keeps_a_run_no_longer_than_five_seconds() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["hosts", "check"]).code, 0);
    // A Python that never answers what it has, and executes scripts.
    let slow = "mkdir -p ~/bin && printf '#!/bin/sh\\n[ \"$1\" = -c ] && exec sleep 1000\\nexec /usr/bin/python3 \"$@\"\\n' \
                > ~/bin/python3 && chmod +x ~/bin/python3";
    cluster.on("n2", slow);
    cluster.change("sshd", "n2 SetEnv PATH=/root/bin:/usr/local/bin:/usr/bin:/bin");
    script(&cluster, &["n1", "n2"], "print(1)\\n");
    let log = client.path("log");
    let to = || Stdio::from(File::options().create(true).append(true).open(&log).expect("a log"));
    let line = ["run", "-H", "n1:1,n2:1", "--workdir", "~/train", "--", "python3", "train.py"];
    let mut going = client.hvtui(&line).stdout(to()).stderr(to()).spawn().expect("hvtui");
    let said = || std::fs::read_to_string(&log).expect("its words");
    until_says("hvtui: checking the hosts: waiting for python of n2", said);
    let ended = end_of(&mut going);
    assert!(ended.success(), "{}", said());
    assert!(said().contains("[1] 1"), "{}", said());
}
