//! `hvtui stop` of a run none of whose ranks runs just now: it is still made ready, or made ready again after a failure. It does not
//! start afterwards.

use std::fs;
use std::process::{Child, Stdio};

use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::left;
use crate::common::processes::{end_of, kill, until};
use rustix::process::Signal;

/// What a login shell of n2 waits for while a file is there: until then no rank can be started on it.
const PROFILE: &str = r"cat > ~/.profile <<'END'
[ -e ~/slow ] && : > ~/asked
while [ -e ~/slow ]; do sleep 0.05; done
END
rm -f ~/.bash_profile ~/.bash_login";

/// Starts a run on both hosts whose output goes to files of the client.
fn start(client: &Client<'_>, options: &[&str], line: &str) -> Child {
    let front = ["run", "-np", "2", "--env-from-login"];
    let words: Vec<&str> = front.iter().chain(options).chain(&["--", "sh", "-c", line]).copied().collect();
    let file = |name: &str| fs::File::create(client.path(name)).expect("a file");
    let mut command = client.hvtui(&words);
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().expect("hvtui")
}

/// Stops the newest run while n2 keeps it waiting, lets n2 go on, and gives the run's last words.
fn stop_meanwhile(cluster: &Cluster, client: &Client<'_>, mut running: Child) -> String {
    until("n2 to be asked", || cluster.at_home("n2", "asked").exists());
    let stopped = client.run(&["stop", "last"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    cluster.on("n2", "rm ~/slow ~/asked");
    let status = end_of(&mut running);
    let said = fs::read_to_string(client.path("err")).expect("its words");
    assert_eq!(status.code(), Some(130), "{said}");
    let listed = client.run(&["runs", "--json", "--local"]);
    let runs: serde_json::Value = serde_json::from_str(&listed.out).expect("an array");
    assert_eq!(runs[0]["outcome"]["end"], "stopped", "{runs:#}");
    let run = runs[0]["spec"]["id"].as_str().expect("an id");
    for host in ["n1", "n2"] {
        left::assert_nothing(cluster, host, run);
    }
    stopped.out + &said
}

#[test]
fn a_run_that_is_stopped_while_a_host_makes_it_ready_does_not_start() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n2", PROFILE);
    cluster.on("n2", ": > ~/slow");
    let said = stop_meanwhile(&cluster, &client, start(&client, &[], "echo runs; exec sleep 600"));
    assert!(said.contains("n2: nothing of the run was started, and nothing will be"), "{said}");
    assert!(said.contains("stopped before anything started"), "{said}");
    assert_eq!(fs::read_to_string(client.path("out")).unwrap(), "", "no rank has begun");
}

#[test]
fn a_run_whose_terminal_goes_away_while_a_host_makes_it_ready_is_stopped() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n2", PROFILE);
    cluster.on("n2", ": > ~/slow");
    let mut running = start(&client, &[], "echo runs; exec sleep 600");
    until("n2 to be asked", || cluster.at_home("n2", "asked").exists());
    kill(running.id(), Signal::HUP);
    let said = || fs::read_to_string(client.path("err")).expect("its words");
    until("its words", || said().contains("the terminal is gone and no rank runs yet: stopping"));
    cluster.on("n2", "rm ~/slow ~/asked");
    assert_eq!(end_of(&mut running).code(), Some(130), "{}", said());
    assert!(said().contains("stopped before anything started") && !said().contains("goes on"), "{}", said());
    assert_eq!(fs::read_to_string(client.path("out")).unwrap(), "", "no rank has begun");
}

#[test]
fn a_run_that_is_made_ready_is_told_as_such_and_can_be_attached_to() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n2", PROFILE);
    cluster.on("n2", ": > ~/slow");
    let mut running = start(&client, &[], "echo runs");
    until("n2 to be asked", || cluster.at_home("n2", "asked").exists());
    let listed = client.run(&["runs"]);
    assert!(listed.out.contains(": no rank of it runs yet"), "{listed:?}");
    let file = |name: &str| fs::File::create(client.path(name)).expect("a file");
    let mut command = client.hvtui(&["attach", "last", "--whole"]);
    let command = command.stdin(Stdio::null()).stdout(file("guest")).stderr(file("guest-err"));
    let mut guest = command.spawn().expect("hvtui");
    let said = |name: &str| fs::read_to_string(client.path(name)).unwrap_or_default();
    until("the guest to wait", || said("guest-err").contains("is made ready by the client that launched it"));
    cluster.on("n2", "rm ~/slow ~/asked");
    assert_eq!(end_of(&mut running).code(), Some(0), "{}", said("err"));
    assert_eq!(end_of(&mut guest).code(), Some(0), "{}", said("guest-err"));
}

#[test]
fn a_run_that_is_stopped_between_two_attempts_is_not_started_again() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n2", PROFILE);
    // the first attempt makes the second one wait
    let line = r#"echo "attempt $HVTUI_RESTART."; [ "$RANK" = 1 ] && : > ~/slow && exit 3; exec sleep 600"#;
    let running = start(&client, &["--max-restarts", "3"], line);
    let said = stop_meanwhile(&cluster, &client, running);
    assert!(said.contains("stopped before attempt 2 started"), "{said}");
    assert!(said.contains("no further attempt of run "), "{said}");
    let printed = fs::read_to_string(client.path("out")).unwrap();
    assert!(printed.contains("attempt 0.") && !printed.contains("attempt 1."), "{printed}");
}
