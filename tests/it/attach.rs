//! Runs that outlive their client, on real ssh hosts: attached to again by the same person, by another machine,
//! by two at once; each byte once in the recording.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::in_time::StatusInTime;
use crate::common::processes::{end_of, until, until_says};
use hvtui::supervise::state::Phase;
use serde_json::Value;

/// Two healthy hosts; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| Cluster::ready(2, &[])).as_ref()
}

/// Each rank prints numbered lines until its host has `~/end-RUN`, and some last words without a line end. Its
/// reports tell the same numbers.
const NUMBERS: &str = r#"i=0
while [ ! -e ~/end-$HVTUI_RUN ]; do
    i=$((i+1)); echo "rank $RANK line $i é"; echo "{\"kind\":\"metric\",\"name\":\"i\",\"value\":$i}" >>$HVTUI_REPORT
    [ $((i % 7)) = 0 ] && echo "rank $RANK error $i" >&2
    sleep 0.02
done
printf "last words of $RANK""#;

/// A client that is left running, with what it says in a file.
struct Running {
    child: Child,
    said: PathBuf,
}

impl Running {
    fn start(client: &Client<'_>, name: &str, args: &[&str]) -> Self {
        let said = client.path(name);
        let log = fs::File::create(&said).expect("a file");
        let mut command = client.hvtui(args);
        command.stdout(log.try_clone().expect("a file")).stderr(log).stdin(Stdio::null());
        Self { child: command.spawn().expect("hvtui"), said }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    #[track_caller]
    fn wait_to_say(&self, words: &str) {
        until_says(words, || self.said());
    }

    fn signal(&self, cluster: &Cluster, name: &str) {
        let sent = cluster.hub("kill").args(["-s", name, &self.child.id().to_string()]).status_in_time();
        assert!(sent.expect("kill").success());
    }

    fn kill(mut self) {
        self.child.kill().expect("kill -9");
        end_of(&mut self.child);
    }

    fn code(mut self) -> i32 {
        let said = self.said();
        end_of(&mut self.child).code().unwrap_or_else(|| panic!("a signal: {said}"))
    }
}

/// What is recorded here, as `runs --json` tells it.
fn recorded(client: &Client<'_>, run: &str) -> Option<Value> {
    let listed = client.run(&["runs", "--json", "--local"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let all: Vec<Value> = serde_json::from_str(&listed.out).expect("an array");
    all.into_iter().find(|listed| listed["spec"]["id"] == run)
}

/// The id of the only run that is recorded here.
fn only_run(client: &Client<'_>) -> String {
    let listed = client.run(&["runs", "--json", "--local"]);
    let all: Vec<Value> = serde_json::from_str(&listed.out).expect("an array");
    assert_eq!(all.len(), 1, "{listed:?}");
    all[0]["spec"]["id"].as_str().expect("an id").to_owned()
}

/// What a rank has printed, as its host has it.
fn spool(cluster: &Cluster, run: &str, rank: usize, stream: &str) -> String {
    in_spool(cluster, ["n1", "n2"][rank], run, &format!("rank-{rank}.{stream}"))
}

/// A file of the run on a host; empty before there is one.
fn in_spool(cluster: &Cluster, host: &str, run: &str, file: &str) -> String {
    let text = cluster.spool(host, run).and_then(|spool| fs::read(spool.join(file)).ok());
    String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()
}

fn end(cluster: &Cluster, run: &str) {
    for host in ["n1", "n2"] {
        cluster.on(host, &format!("touch ~/end-{run}"));
    }
}

/// Waits until the hosts have written more than they have now.
fn let_them_write(cluster: &Cluster, run: &str) {
    for rank in [0, 1] {
        let before = spool(cluster, run, rank, "out").len();
        until("ranks to write on", || spool(cluster, run, rank, "out").len() > before + 200);
    }
}

/// Asserts that the recording holds each rank's bytes as its host has them, and each report once.
#[track_caller]
fn assert_whole(cluster: &Cluster, client: &Client<'_>, run: &str) {
    for rank in [0, 1] {
        let logs = client.run(&["logs", run, "--rank", &rank.to_string()]);
        assert_eq!(logs.code, 0, "{logs:#?}");
        let of = |word: &str| -> String {
            let lines = logs.out.lines().filter(|line| line.contains(word));
            lines.fold(String::new(), |all, line| all + line + "\n")
        };
        let out = spool(cluster, run, rank, "out") + "\n";
        assert!(out == of("line") + &of("last"), "rank {rank}: not what its host has: {}", of("line"));
        assert_eq!(spool(cluster, run, rank, "err"), of("error"), "rank {rank}");
    }
    let path = client.path(".local/state/hvtui/runs").join(run).join("run.mcap");
    let reader = hvtui::record::Reader::open(&path).expect("the recording");
    let mut values = [Vec::new(), Vec::new()];
    let mut seq = None;
    for envelope in reader.envelopes(..) {
        let envelope = envelope.expect("an envelope");
        assert!(seq < Some(envelope.seq), "numbers rise: {seq:?} {}", envelope.seq);
        seq = Some(envelope.seq);
        assert!(
            !matches!(envelope.event, hvtui::domain::event::Event::LogGap { .. }),
            "nothing is missing: {envelope:?}"
        );
        if let (
            hvtui::domain::event::Origin::Rank(_, rank),
            hvtui::domain::event::Event::MetricReported { value, .. },
        ) = (&envelope.origin, &envelope.event)
        {
            values[rank.0 as usize].push(*value as usize);
        }
    }
    for (rank, values) in values.iter().enumerate() {
        let wanted: Vec<usize> = (1..=spool(cluster, run, rank, "report").lines().count()).collect();
        assert_eq!(*values, wanted, "rank {rank}: each report once, in order");
    }
}

#[track_caller]
fn assert_says(ended: &Ended, words: &[&str]) {
    for word in words {
        assert!(ended.said().contains(word), "'{word}' is not said: {ended:#?}");
    }
}

/// Starts a run of one rank on each host and waits for lines of both.
fn begin(client: &Client<'_>, script: &str) -> (Running, String) {
    let first =
        Running::start(client, "first", &["run", "-np", "2", "--name", "numbers", "--", "sh", "-c", script]);
    // more reports than those after which a mark is set: what is read again from the start comes twice
    first.wait_to_say("rank 0 line 49");
    first.wait_to_say("rank 1 line 49");
    let run = only_run(client);
    // a recording is behind by up to a second, which is what a kill may cost
    until("the recording of lines", || client.run(&["logs", &run]).out.contains("rank 1 line 49"));
    (first, run)
}

#[test]
fn a_killed_client_s_run_is_resumed_and_each_byte_is_recorded_once() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let (first, run) = begin(&client, NUMBERS);
    first.kill();
    // what was in the making when it was killed
    let file = client.path(".local/state/hvtui/runs").join(&run).join("run.mcap");
    let whole = fs::read(&file).expect("the recording");
    fs::write(&file, &whole[..whole.len() - 40]).expect("cut");
    let_them_write(cluster, &run);
    // the hosts have runs of other tests too, and one may answer late
    until("it to run", || {
        let listed = client.run(&["runs"]);
        listed.out.lines().any(|line| line.contains(&run[22..]) && line.contains("running"))
    });
    // a second time, to be killed too
    let second = Running::start(&client, "second", &["attach", &run]);
    second.wait_to_say("attached; last followed here");
    let_them_write(cluster, &run);
    second.kill();
    let_them_write(cluster, &run);
    let third = Running::start(&client, "third", &["attach", "numbers"]);
    third.wait_to_say("attached");
    let_them_write(cluster, &run);
    end(cluster, &run);
    let said = third.said();
    assert_eq!(third.code(), 0, "{said}");
    assert_whole(cluster, &client, &run);
    let summary = recorded(&client, &run).expect("it is listed");
    assert_eq!(
        (&summary["outcome"]["code"], &summary["damage"]),
        (&Value::from(0), &Value::Null),
        "{summary}"
    );
    assert!(file.with_file_name("run.3.mcap").exists());
    assert_eq!(client.run(&["export", &run, "--to", "chrome"]).code, 0);
    let again = client.run(&["attach", &run]);
    assert_says(&again, &["has ended"]);
    assert_eq!(again.code, 0);
}

#[test]
fn another_machine_takes_a_run_up_from_its_first_byte_beside_its_owner() {
    let Some(cluster) = two() else { return };
    let owner = Client::new(cluster);
    let (first, run) = begin(&owner, NUMBERS);
    let guest = Client::new(cluster);
    // there the hosts have other names
    guest.write(
        "hosts.toml",
        &cluster.hosts_toml(1).replace("\"n1\"", "\"alpha\"").replace("\"n2\"", "\"beta\""),
    );
    until_says(&run, || guest.run(&["runs", "--json"]).out);
    let second = Running::start(&guest, "second", &["attach", &run]);
    second.wait_to_say("rank 0 line 1 ");
    second.wait_to_say("rank 1 line 1 ");
    end(cluster, &run);
    assert_eq!((first.code(), second.code()), (0, 0));
    assert_whole(cluster, &owner, &run);
    assert_whole(cluster, &guest, &run);
}

#[test]
fn of_two_clients_with_one_state_folder_the_second_follows_without_recording() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let (first, run) = begin(&client, NUMBERS);
    let second = Running::start(&client, "second", &["attach", &run]);
    second.wait_to_say("another hvtui here records it");
    second.wait_to_say("rank 1 line");
    second.signal(cluster, "INT");
    second.wait_to_say("detached; the run goes on. To come back: hvtui --hosts ");
    second.wait_to_say(&format!(" attach {}; to end it: hvtui --hosts ", &run[22..]));
    assert_eq!(second.code(), 130);
    end(cluster, &run);
    assert_eq!(first.code(), 0);
    assert_whole(cluster, &client, &run);
}

#[test]
fn a_detached_run_goes_on_and_any_machine_can_read_and_stop_it() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let begun = client.run(&["run", "-np", "2", "--detach", "--", "sh", "-c", NUMBERS]);
    assert_eq!(begun.code, 0, "{begun:#?}");
    let run = begun.out.trim().to_owned();
    assert_eq!(run.len(), 26, "the run's id and nothing else: {begun:#?}");
    let code = &run[22..];
    assert_says(
        &begun,
        &["come back: hvtui --hosts ", &format!(" attach {code}; to end it: "), &format!(" stop {code}")],
    );
    let_them_write(cluster, &run);
    let other = Client::new(cluster);
    let logs = other.run(&["logs", &run]);
    assert!(
        logs.code == 0 && logs.out.contains("[0] rank 0 line 1 ") && logs.out.contains("[1] rank 1 line 1 ")
    );
    let tail = Running::start(&other, "tail", &["logs", &run, "--rank", "1", "-f"]);
    tail.wait_to_say("rank 1 line 1 ");
    let_them_write(cluster, &run);
    let stopped = other.run(&["stop", &run]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    let which = format!("hvtui: run {code} (");
    assert_says(&stopped, &[&which, ", 2 ranks on n1, n2, is not recorded here: another client "]);
    assert_says(&stopped, &["n1: nothing of run", "n2: nothing of run"]);
    assert_eq!(tail.code(), 0, "the last line has come");
    let refused = client.run(&["run", "-H", "n1:1", "--detach", "--", "/no/such/program"]);
    assert_eq!(refused.code, 127, "{refused:#?}");
    assert_eq!(refused.out, "");
}

#[test]
fn what_ended_while_nobody_looked_is_written_down() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let (first, run) = begin(&client, &format!("{NUMBERS}; exit 3"));
    first.kill();
    end(cluster, &run);
    until("the end on both hosts", || {
        let listed = client.run(&["runs", "--json"]);
        let all: Vec<Value> = serde_json::from_str(&listed.out).expect("an array");
        all.iter().any(|listed| listed["spec"]["id"] == run.as_str() && listed["outcome"]["code"] == 3)
    });
    assert_whole(cluster, &client, &run);
    let again = client.run(&["attach", &run]);
    assert_eq!(again.code, 3, "{again:#?}");
}

#[test]
fn a_rank_that_failed_while_nobody_looked_stops_the_others_when_somebody_does() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let script = NUMBERS.replace("sleep 0.02", "sleep 0.02; [ -e ~/fail-$HVTUI_RUN ] && exit 4");
    let (first, run) = begin(&client, &script);
    first.kill();
    cluster.on("n2", &format!("touch ~/fail-{run}"));
    until("rank 1 to fail", || {
        let exit = serde_json::from_str::<Value>(&in_spool(cluster, "n2", &run, "exit-1.json"));
        exit.is_ok_and(|exit| exit["code"] == 4)
    });
    let words = format!("running; rank 1 (n2:0): exit 4; see it end: hvtui attach {}", &run[22..]);
    until_says(&words, || client.run(&["runs"]).said());
    let attached = client.run(&["attach", &run]);
    assert_eq!(attached.code, 4, "{attached:#?}");
    assert_says(&attached, &["rank 1 (n2:0) failed first: exit 4; rank 0 stopped because of it"]);
}

#[test]
fn a_run_that_nobody_looks_at_and_that_says_nothing_ends_itself() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    let silent = "echo begun; exec sleep 600";
    let launch = ["run", "-np", "2", "--detach", "--max-silence", "2s", "--", "sh", "-c", silent];
    let begun = client.run(&launch);
    assert_eq!(begun.code, 0, "{begun:#?}");
    let run = begun.out.trim().to_owned();
    for host in ["n1", "n2"] {
        until("the end", || cluster.state_of(host, &run).phase == Phase::Ended);
        let why = in_spool(cluster, host, &run, "stop.json");
        assert!(why.contains("max_silence"), "{why}");
    }
    let why = "no client was attached and no rank wrote anything for 2.0 s (max_silence)";
    let attached = client.run(&["attach", &run]);
    assert_eq!(attached.code, 124, "{attached:#?}");
    assert_says(&attached, &[why]);
    let attached = Client::new(cluster).run(&["attach", &run]);
    assert_eq!(attached.code, 124, "{attached:#?}");
    assert_says(&attached, &["[0] begun", "[1] begun", why]);
    assert_eq!(recorded(&client, &run).expect("it is listed")["outcome"]["code"], 124);
    let refused = client.run(&["run", "--max-silence", "soon", "--", "true"]);
    assert_eq!(refused.code, 64, "{refused:#?}");
    assert_says(&refused, &["--max-silence soon: `soon` is no length of time of 1s or more"]);
}

#[test]
fn who_only_reads_a_silent_run_keeps_it_alive() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    // long enough that no pause of the machine is that long, and the run's pause is twice as long
    let toml = cluster.hosts_toml(1).replace("[[host]]", "[[host]]\nmax_silence = \"5s\"");
    client.write("hosts.toml", &toml);
    let script = "echo begun; sleep 10; echo done";
    // beside the others
    let off = ["run", "-H", "n1:1", "--detach", "--max-silence", "off", "--", "sh", "-c", script];
    let off = client.run(&off).out.trim().to_owned();
    let watched = client.run(&["run", "-np", "1", "--", "sh", "-c", script]);
    assert_eq!(watched.code, 0, "{watched:#?}");
    // not before a client reads: how long a client takes to come is the machine's affair
    let waits = "while [ ! -e ~/read-$HVTUI_RUN ]; do echo begun; sleep 0.1; done; sleep 10; echo done";
    let begun = client.run(&["run", "-H", "n1:1", "--detach", "--", "sh", "-c", waits]);
    let run = begun.out.trim();
    let read = Running::start(&client, "read", &["logs", "-f", run]);
    read.wait_to_say("[0] begun");
    cluster.on("n1", &format!("touch ~/read-{run}"));
    read.wait_to_say("[0] done");
    assert_eq!(read.code(), 0);
    until_says("done", || in_spool(cluster, "n1", &off, "rank-0.out"));
}

#[test]
fn the_last_lines_of_a_log_that_is_followed_wait_for_a_host_whose_login_takes_long() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    let script = "seq -f 'line %.0f.' 100; while [ ! -e ~/end-$HVTUI_RUN ]; do sleep 0.1; done; echo done";
    let begun = client.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", script]);
    assert_eq!(begun.code, 0, "{begun:#?}");
    let run = begun.out.trim();
    until_says("line 100.", || in_spool(&cluster, "n1", run, "rank-0.out"));
    cluster.on("n1", "echo 'sleep 3' > ~/.bashrc");
    // to its end, and while it goes on: by the recording, and by the host alone
    for whole in [&["--whole"][..], &[]] {
        let read = Running::start(&client, "read", &[&["logs", "-f", "--tail", "2", run], whole].concat());
        read.wait_to_say("line 100.");
        assert_eq!(read.said().matches("line ").count(), 2, "{}", read.said());
        read.kill();
    }
    cluster.on("n1", &format!("touch ~/end-{run}"));
}

#[test]
fn a_dead_host_is_named_and_holds_up_no_list() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let (first, run) = begin(&client, NUMBERS);
    first.kill();
    cluster.change("blackhole", "n2");
    let listed = client.run(&["runs"]);
    assert_eq!(listed.code, 0, "{listed:#?}");
    assert_says(&listed, &["running", "n2 could not be asked"]);
    let unknown = client.run(&["logs", "no-such-run"]);
    assert_eq!(unknown.code, 69, "{unknown:#?}");
    assert_says(&unknown, &["n2 could not be asked", &run[22..]]);
    // attaching works on the host that is there
    let second = Running::start(&client, "second", &["attach", &run]);
    second.wait_to_say("[0] rank 0 line");
    second.wait_to_say("n2 (link down");
    cluster.change("heal", "n2");
    end(&cluster, &run);
    assert_eq!(second.code(), 0);
    assert_whole(&cluster, &client, &run);
}

#[test]
fn what_is_stopped_while_a_host_can_not_be_reached_is_stopped_there_when_it_is_back() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let script = NUMBERS.replace("sleep 0.02", "sleep 0.02; [ -e ~/fail-$HVTUI_RUN ] && exit 4");
    for fails in [false, true] {
        let (first, run) = begin(&client, &script);
        cluster.change("blackhole", "n2");
        first.wait_to_say("n2 (link down");
        let stop = Running::start(&client, "stop", &["stop", &run]);
        stop.wait_to_say(&format!("n1: nothing of run {} is left", &run[22..]));
        stop.kill();
        if fails {
            // as one does that has lost the others: by itself, before it can be told to stop
            cluster.on("n2", &format!("touch ~/fail-{run}"));
            until("rank 1 to fail", || in_spool(&cluster, "n2", &run, "exit-1.json").contains("\"code\":4"));
        }
        cluster.change("heal", "n2");
        assert_eq!(first.code(), 130, "fails: {fails}");
        cluster.until_free("n2", &run);
        let told = recorded(&client, &run).expect("it is listed");
        assert_eq!(
            (&told["outcome"]["end"], &told["outcome"]["root"]),
            (&"stopped".into(), &Value::Null),
            "{told:#}"
        );
        std::fs::remove_dir_all(client.path(".local/state/hvtui/runs").join(&run)).expect("its recording");
    }
}
