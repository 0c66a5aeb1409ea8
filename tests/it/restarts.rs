//! `--max-restarts` with the real binary on two real ssh hosts: what ranks see, what is told and kept, and what is left.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use crate::common::client::{Client, Ended};
use crate::common::cluster;
use crate::common::cluster::Cluster;
use crate::common::in_time::StatusInTime;
use crate::common::left;
use crate::common::processes::{end_of, until};
use serde_json::Value;

/// Two hosts; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| Cluster::ready(2, &[])).as_ref()
}

/// Each rank tells its attempt; in the first two rank 1 fails with 3 and 4, when rank 0 has told its own and would go on
/// for long. The hosts share /tmp.
const FAILS_TWICE: &str = r#"
    echo "attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS rank $RANK $HVTUI_RESTART port=$MASTER_PORT."
    [ "$HVTUI_RESTART" = 2 ] && exit 0
    said=/tmp/hvtui-restarts-$HVTUI_RUN-$HVTUI_RESTART
    [ "$RANK" = 0 ] && : >$said && exec sleep 600
    until [ -e $said ]; do sleep 0.05; done
    rm $said
    exit $((3 + HVTUI_RESTART))"#;

/// This person's only run, as the program lists it.
fn only_run(client: &Client<'_>) -> Value {
    let listed = client.run(&["runs", "--json", "--local"]);
    let runs: Vec<Value> = serde_json::from_str(&listed.out).expect("an array");
    let [run] = &runs[..] else { panic!("one run: {listed:#?}") };
    run.clone()
}

fn id(run: &Value) -> String {
    run["spec"]["id"].as_str().expect("an id").to_owned()
}

/// Each of these attempts is there once for each rank; the ports of the rendezvous.
fn assert_lines(text: &str, attempts: u32, of: u32) -> BTreeSet<String> {
    for attempt in 0..attempts {
        for rank in 0..2 {
            let line = format!("[{rank}] attempt {attempt} of {of} rank {rank} {attempt} port=");
            assert_eq!(text.matches(&line).count(), 1, "'{line}' in {text}");
        }
    }
    assert_eq!(text.matches("port=").count(), 2 * attempts as usize, "{text}");
    let ports = text.split("port=").skip(1).map(|rest| rest.split('.').next().expect("a port").to_owned());
    ports.collect()
}

#[test]
fn a_run_that_fails_twice_is_started_three_times_and_succeeds() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let ended = client.run(&["run", "-np", "2", "--max-restarts", "2", "--", "sh", "-c", FAILS_TWICE]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let ports = assert_lines(&ended.out, 3, 2);
    // ports are the system's to choose, and it may choose one again: not the same one three times
    assert!(ports.len() > 1, "{ports:?}");
    assert_told(&ended);
    let run = only_run(&client);
    assert_eq!(run["outcome"]["code"], 0, "{run}");
    let run = id(&run);
    assert_lines(&client.run(&["logs", &run]).out, 3, 2);
    left::assert_nothing_on_two(cluster, &run);
    // a client that attaches from its hosts alone gets every line of every attempt, once
    let stranger = Client::new(cluster);
    let taken = stranger.run(&["attach", &run, "--whole"]);
    assert_eq!(taken.code, 0, "{taken:#?}");
    assert_lines(&taken.out, 3, 2);
}

fn assert_told(ended: &Ended) {
    for words in [
        "attempt 2 of 3: rank 1 (n2:0) failed: exit 3",
        "attempt 3 of 3: rank 1 (n2:0) failed: exit 4",
        "all 2 ranks finished (attempt 3 of 3)",
    ] {
        assert_eq!(ended.err.matches(words).count(), 1, "'{words}' in {ended:#?}");
    }
}

#[test]
fn the_exit_code_is_the_last_attempts() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let line =
        format!("torchrun --nnodes 2 --nproc-per-node 1 --max-restarts 1 --no-python sh -c '{FAILS_TWICE}'");
    let words = shlex::split(&line).expect("words");
    let words: Vec<&str> = ["run", "--"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let ended = client.run(&words);
    assert_eq!(ended.code, 4, "{ended:#?}");
    assert_lines(&ended.out, 2, 1);
    let run = only_run(&client);
    assert_eq!(run["outcome"]["code"], 4, "{run}");
    left::assert_nothing_on_two(cluster, &id(&run));
}

#[test]
fn an_owner_who_stops_the_second_attempt_stops_the_run() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let line = r#"echo "begun $HVTUI_RESTART."; [ "$HVTUI_RESTART$RANK" = 01 ] && exit 3; exec sleep 600"#;
    let mut command = client.hvtui(&["run", "-np", "2", "--max-restarts", "9", "--", "sh", "-c", line]);
    let file = |name: &str| fs::File::create(client.path(name)).expect("a file");
    let mut running =
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().expect("hvtui");
    let said = |name: &str| fs::read_to_string(client.path(name)).unwrap_or_default();
    until("the second attempt of both ranks", || said("out").matches("begun 1.").count() == 2);
    let sent = cluster.hub("kill").args(["-s", "INT", &running.id().to_string()]).status_in_time();
    assert!(sent.expect("kill").success());
    let status = end_of(&mut running);
    assert_eq!(status.code(), Some(130), "{}", said("err"));
    assert_eq!(said("err").matches("attempt 3").count(), 0, "{}", said("err"));
    assert!(said("err").contains("stopped (attempt 2 of 10)"), "{}", said("err"));
    left::assert_nothing_on_two(cluster, &id(&only_run(&client)));
}

#[test]
fn ranks_of_mpirun_are_started_again_on_both_hosts() {
    let Some(cluster) = two() else { return };
    if !std::path::Path::new("/usr/bin/mpirun").exists() {
        return cluster::skip("no mpirun: apt-get install openmpi-bin");
    }
    let client = Client::new(cluster);
    let line =
        ["run", "--kind", "mpi", "-H", "n1:1,n2:1", "--max-restarts", "2", "--", "sh", "-c", FAILS_TWICE];
    let ended = client.run(&line);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_lines(&ended.out, 3, 2);
    assert_told(&ended);
    left::assert_nothing_on_two(cluster, &id(&only_run(&client)));
}

/// Rank 0 takes longer to end than a failure is looked at, so that every client that follows the run tells it to stop.
const ENDS_SLOWLY: &str = r#"
    echo "begun $HVTUI_RESTART."
    [ "$HVTUI_RESTART" = 1 ] && exit 0
    [ "$RANK" = 0 ] && trap 'sleep 3; exit 0' TERM
    until [ -e /tmp/hvtui-go-$HVTUI_RUN ]; do sleep 0.05; done
    [ "$RANK" = 1 ] && exit 3
    while :; do sleep 0.1; done"#;

/// hvtui of a person, with what it says in the files `out` and `err` of the home folder.
fn spawn(client: &Client<'_>, words: &[&str]) -> Child {
    let file = |name: &str| fs::File::create(client.path(name)).expect("a file");
    let mut command = client.hvtui(words);
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().expect("hvtui")
}

fn said(client: &Client<'_>, name: &str) -> String {
    fs::read_to_string(client.path(name)).unwrap_or_default()
}

/// A run of [`ENDS_SLOWLY`] whose first attempt another person follows by `words`; it fails from now on, behind what is done `before`.
/// Gives what runs, what follows, and the run.
fn followed(
    client: &Client<'_>,
    stranger: &Client<'_>,
    words: &[&str],
    before: impl FnOnce(),
) -> (Child, Child, String) {
    let begun = |client: &Client<'_>| said(client, "out").matches("begun 0.").count() == 2;
    let running = spawn(client, &["run", "-np", "2", "--max-restarts", "1", "--", "sh", "-c", ENDS_SLOWLY]);
    until("both ranks", || begun(client));
    let run = id(&only_run(client));
    let following = spawn(stranger, &[words, &[&*run]].concat());
    until("the lines so far", || begun(stranger));
    before();
    fs::write(format!("/tmp/hvtui-go-{run}"), "").expect("a file");
    (running, following, run)
}

#[test]
fn logs_that_are_followed_go_on_with_the_next_attempt() {
    let Some(cluster) = two() else { return };
    logs_go_on(cluster, || ());
}

#[test]
fn logs_that_are_followed_go_on_with_the_next_attempt_behind_newer_runs() {
    let Some(cluster) = two() else { return };
    let other = Client::new(cluster);
    logs_go_on(cluster, || {
        for _ in 0..2 {
            let newer = other.run(&["run", "-H", "n1:1,n2:1", "--", "true"]);
            assert_eq!(newer.code, 0, "{newer:#?}");
        }
    });
}

fn logs_go_on(cluster: &Cluster, before: impl FnOnce()) {
    let (client, stranger) = (Client::new(cluster), Client::new(cluster));
    let (mut running, mut following, run) = followed(&client, &stranger, &["logs", "-f"], before);
    assert_eq!(end_of(&mut running).code(), Some(0), "{}", said(&client, "err"));
    assert_eq!(end_of(&mut following).code(), Some(0), "{}", said(&stranger, "err"));
    let lines = said(&stranger, "out");
    for line in ["[0] begun 0.", "[1] begun 0.", "[0] begun 1.", "[1] begun 1."] {
        assert_eq!(lines.matches(line).count(), 1, "{line} in {lines}{}", said(&stranger, "err"));
    }
    assert!(said(&stranger, "err").contains("was started again on n1"), "{}", said(&stranger, "err"));
    fs::remove_file(format!("/tmp/hvtui-go-{run}")).expect("the file");
    left::assert_nothing_on_two(cluster, &run);
}

#[test]
fn a_client_that_is_attached_takes_no_attempt_away() {
    let Some(cluster) = two() else { return };
    let (client, stranger) = (Client::new(cluster), Client::new(cluster));
    let (mut running, mut attached, run) = followed(&client, &stranger, &["attach", "--whole"], || ());
    let status = end_of(&mut running);
    assert_eq!(status.code(), Some(0), "{}", said(&client, "err"));
    assert!(
        said(&client, "err").contains("all 2 ranks finished (attempt 2 of 2)"),
        "{}",
        said(&client, "err")
    );
    end_of(&mut attached);
    fs::remove_file(format!("/tmp/hvtui-go-{run}")).expect("the file");
    left::assert_nothing_on_two(cluster, &run);
}
