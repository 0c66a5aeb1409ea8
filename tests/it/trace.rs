//! `hvtui trace` on real ssh hosts, with a script in the place of torch that speaks libkineto's protocol. With real
//! torch: `tests/heavy/trace`.

use std::process::Stdio;
use std::sync::OnceLock;

use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::processes::{end_of, until};
use serde_json::Value;

/// Two hosts with the script in their home folders; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| {
        let cluster = Cluster::ready(2, &[])?;
        let from = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trace/tracer.py");
        let shared = cluster.dir().join("tracer.py");
        std::fs::copy(from, &shared).expect("the script");
        for host in ["n1", "n2"] {
            assert_eq!(cluster.on(host, &format!("cp {} ~ && echo there", shared.display())).trim(), "there");
        }
        Some(cluster)
    })
    .as_ref()
}

/// Starts a run and leaves it; its id.
fn detached(client: &Client<'_>, options: &[&str], command: &[&str]) -> String {
    let ended = client.run(&[&["run", "--detach"], options, &["--"], command].concat());
    assert_eq!(ended.code, 0, "{ended:#?}");
    ended.out.trim().to_owned()
}

/// All 26 characters of a run's id.
fn whole_id(client: &Client<'_>, run: &str) -> String {
    let runs = client.run(&["runs", "--local", "--json"]);
    let runs: Value = serde_json::from_str(&runs.out).expect("JSON");
    let ids = runs.as_array().expect("runs").iter().filter_map(|one| one["spec"]["id"].as_str());
    ids.filter(|id| id.ends_with(run)).collect()
}

/// What a run's ranks have printed, once it has ended.
fn ended(client: &Client<'_>, run: &str) -> Ended {
    let ended = client.run(&["attach", run, "--whole"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    ended
}

/// The names of the processes of a trace and its events.
fn read(client: &Client<'_>, name: &str) -> (Vec<String>, Vec<Value>) {
    let text = std::fs::read(client.path(name)).expect("a trace");
    let whole: Value = serde_json::from_slice(&text).expect("JSON");
    let events = whole["traceEvents"].as_array().expect("events").clone();
    let names = events.iter().filter(|event| event["name"] == "process_name");
    (names.map(|event| event["args"]["name"].as_str().expect("a name").to_owned()).collect(), events)
}

#[test]
fn ranks_of_two_hosts_are_traced_at_the_same_step_and_come_as_one_file() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let command = ["python3", "tracer.py", "600", "helper"];
    let run = detached(&client, &["--traceable", "-H", "n1:2,n2:1"], &command);
    let traced = client.run(&["trace", &run, "--steps", "3"]);
    assert_eq!(traced.code, 0, "{traced:#?}");
    assert!(traced.err.contains("waiting for "), "{traced:#?}");
    assert!(traced.out.contains("https://ui.perfetto.dev"), "{traced:#?}");
    let file = traced.out.lines().next().expect("a path");
    let (names, events) = read(&client, file.rsplit('/').next().expect("a name"));
    assert_eq!(names, ["rank 0 on n1", "rank 1 on n1", "rank 2 on n2"], "the helpers wrote none");
    let at = |name: &str| events.iter().find(|event| event["name"] == name).expect(name)["ts"].as_f64();
    for rank in 0..3 {
        let at = at(&format!("op of {rank}")).expect("a time");
        assert!((0.0..5e6).contains(&at), "rank {rank} at {at} µs");
    }
    // the supervisor dies: its successor is asked at the same place, and what was given is not given again
    cluster.kill_supervisor("n2", &whole_id(&client, &run));
    let again = client.run(&["trace", &run, "--for", "500ms", "-o", "again.json"]);
    assert_eq!(again.code, 0, "{again:#?}");
    assert_eq!(read(&client, "again.json").0.len(), 3);
    let left: Vec<_> = std::fs::read_dir(client.path("")).expect("home").filter_map(Result::ok).collect();
    let parts = left.iter().filter(|entry| entry.file_name().to_string_lossy().contains("part"));
    assert_eq!(parts.count(), 0, "nothing is left beside the files");
    for host in ["n1", "n2"] {
        cluster.on(host, &format!("touch ~/over-{}", whole_id(&client, &run)));
    }
    let said = ended(&client, &run).out;
    for rank in 0..3 {
        let told = |words: &str| said.lines().filter(|line| line.contains(words)).count();
        assert_eq!(told(&format!("rank {rank} told ")), 2, "{said}");
    }
    // rank 2 was the furthest, at 106; 8.5 s later, and two more
    assert_eq!(said.matches(r#""PROFILE_START_ITERATION": "533""#).count(), 3, "{said}");
    assert_eq!(said.matches(r#""ACTIVITIES_ITERATIONS": "3""#).count(), 3, "{said}");
    assert_eq!(said.matches(r#""ACTIVITIES_DURATION_MSECS": "500""#).count(), 3, "{said}");
}

#[test]
fn a_rank_without_a_trace_is_named_with_the_reason() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let plain = detached(&client, &["-H", "n1:1,n2:1"], &["sleep", "100"]);
    let traced = client.run(&["trace", &plain]);
    assert_eq!(traced.code, 64, "{traced:#?}");
    for host in ["n1", "n2"] {
        let text = format!(" on {host}: launched without --traceable: launch it again with that");
        assert!(traced.err.contains(&text), "{traced:#?}");
    }
    let dry = client.run(&["run", "--traceable", "--dry-run", "-H", "n1:1", "--", "sleep", "1"]);
    assert!(dry.out.contains("KINETO_IPC_SOCKET_DIR"), "{dry:#?}");
    assert_eq!(client.run(&["stop", &plain, "--now"]).code, 0);
    let over = client.run(&["trace", &plain]);
    assert!(over.code != 0 && over.err.contains("ended"), "{over:#?}");

    // one of two has no torch; one whose torch is old says so by its report
    let script = "import os, runpy, sys, time\n\
                  if os.environ['RANK'] == '0':\n\
                  \x20   sys.argv = ['tracer.py', '30']\n\
                  \x20   runpy.run_path('tracer.py', run_name='__main__')\n\
                  else:\n\
                  \x20   hello = '{\"kind\":\"hello\",\"versions\":{\"python\":\"3.11\",\"torch\":\"1.13.1\"}}\\n'\n\
                  \x20   open(os.environ['HVTUI_REPORT'], 'a').write(hello if os.environ['RANK'] == '2' else '')\n\
                  \x20   time.sleep(40)\n";
    let options = ["--traceable", "--python-hooks", "off", "-H", "n1:1,n2:2"];
    let run = detached(&client, &options, &["python3", "-c", script]);
    let traced = client.run(&["trace", &run, "-o", "half.json"]);
    assert_eq!(traced.code, 69, "{traced:#?}");
    assert!(traced.err.contains("rank 1 on n2: no torch of it has connected"), "{traced:#?}");
    assert!(traced.err.contains("rank 2 on n2: its torch 1.13.1 is too old"), "{traced:#?}");
    assert_eq!(read(&client, "half.json").0, ["rank 0 on n1"]);
    let folder =
        "sed -n 's/.*\"sockets\":\"\\([^\"]*\\)\".*/\\1/p' ~/.local/state/hvtui/spool/RUN/*/tracers.json";
    let folder = cluster.on("n1", &folder.replace("RUN", &whole_id(&client, &run)));
    let there = || cluster.on("n1", &format!("test -e {} && echo there; true", folder.trim()));
    assert!(folder.contains("/hvtui-") && there() == "there\n", "{folder}");
    assert_eq!(client.run(&["stop", &run, "--now"]).code, 0);
    assert_eq!(there(), "", "the sockets' folder is gone with the run");

    for (wrong, why) in
        [(["--steps", "0"], "1..="), (["--for", "5"], "500ms"), (["--for", "61s"], "10ms to 60s")]
    {
        let refused = client.run(&[&["trace", &run][..], &wrong].concat());
        assert!(refused.code == 64 && refused.err.contains(why), "{refused:#?}");
    }
}

#[test]
fn who_gives_up_leaves_nothing_behind_and_what_a_rank_is_given_counts() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let env = "import os, time; print({k: v for k, v in os.environ.items() if k.startswith('KINETO')}, flush=True); time.sleep(60)";
    let options = ["--traceable", "--env", "KINETO_LOG_LEVEL=0", "-H", "n1:1"];
    let run = detached(&client, &options, &["python3", "-c", env]);
    let log = client.path("log");
    let err = std::fs::File::create(&log).expect("a file");
    let mut traced = client.hvtui(&["trace", &run, "-o", "never.json"]);
    let mut traced = traced.stdin(Stdio::null()).stderr(err).stdout(Stdio::null()).spawn().expect("hvtui");
    until("the wait", || std::fs::read_to_string(&log).unwrap_or_default().contains("rank 0 on n1 to come"));
    let second = client.run(&["trace", &run, "-o", "second.json"]);
    assert!(second.code == 69 && second.err.contains("somebody else has asked"), "{second:#?}");
    let pid = rustix::process::Pid::from_child(&traced);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal");
    assert_eq!(end_of(&mut traced).code(), Some(130));
    let left = std::fs::read_dir(client.path("")).expect("home").filter_map(Result::ok);
    assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().contains("never")).count(), 0);
    // the first one's request is void with its agent
    until("the request's end", || {
        let third = client.run(&["trace", &run, "-o", "third.json"]);
        assert_eq!(third.code, 69, "{third:#?}");
        !third.err.contains("somebody else")
    });
    let out = format!("cat ~/.local/state/hvtui/spool/{}/*/rank-0.out", whole_id(&client, &run));
    let out = cluster.on("n1", &out);
    assert!(out.contains("'KINETO_LOG_LEVEL': '0'") && out.contains("KINETO_CONFIG"), "{out}");
    assert_eq!(client.run(&["stop", &run, "--now"]).code, 0);
}
