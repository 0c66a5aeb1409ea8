//! What the commands print for programs: JSON by its published schemas, Prometheus' text format, CSV.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use chrono::DateTime;
use hvtui::domain::gpu::{GpuInfo, GpuProcess, GpuSample, RunOfProcess};
use hvtui::domain::ids::{Rank, RunId};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::processes::end_of;

fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    // the second can't be reached: nothing listens on that port
    let hosts = "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 2\nlabels = [\"a\"]\n\
                 [[host]]\nname = \"gone\"\naddress = \"127.0.0.1\"\nport = 1\nuser = \"me\"\n";
    std::fs::write(home.path().join("hosts.toml"), hosts).unwrap();
    home
}

fn hvtui(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", crate::common::program::hvtui()]).args(args).current_dir(home);
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").output_in_time().unwrap()
}

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/formats/{name}.schema.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What in `value` the schema does not allow: of JSON Schema the words that ours use.
fn faults(schema: &Value, value: &Value, at: &str, faults_of: &mut Vec<String>) {
    for word in schema.as_object().unwrap().keys() {
        let known =
            ["$schema", "title", "description", "type", "required", "properties", "items", "enum", "const"];
        assert!(known.contains(&word.as_str()) || word == "format", "the check does not know {word}");
    }
    let one = std::slice::from_ref(&schema["type"]);
    let types = schema["type"].as_array().map_or(one, Vec::as_slice);
    let is = |wanted: &Value| wanted == type_of(value) || (wanted == "number" && value.is_number());
    if !schema["type"].is_null() && !types.iter().any(is) {
        faults_of.push(format!("{at}: {value} is not of {}", schema["type"]));
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        faults_of.push(format!("{at}: {value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|of| !of.contains(value)) {
        faults_of.push(format!("{at}: {value} is none of {}", schema["enum"]));
    }
    if let (Some("date-time"), Some(text)) = (schema["format"].as_str(), value.as_str()) {
        // `2026-11-21T14:32:07.120Z`
        if DateTime::parse_from_rfc3339(text).is_err() || text.len() != 24 || !text.ends_with('Z') {
            faults_of.push(format!("{at}: {text} is no moment in milliseconds"));
        }
    }
    if let Some(object) = value.as_object() {
        // an unreadable value is an object where another is meant
        let is_error = object.len() == 1 && object.contains_key("error");
        for name in schema["required"].as_array().into_iter().flatten().filter(|_| !is_error) {
            if !object.contains_key(name.as_str().unwrap()) {
                faults_of.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, of) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(value) = object.get(name) {
                faults(of, value, &format!("{at}.{name}"), faults_of);
            }
        }
        if let Some(known) =
            schema["properties"].as_object().filter(|_| !at.contains(".spec") && at.matches('.').count() <= 1)
        {
            let new = object.keys().filter(|name| !known.contains_key(*name));
            faults_of.extend(new.map(|name| format!("{at}.{name} is not in the schema")));
        }
    }
    if let (Some(items), Some(list)) = (schema.get("items"), value.as_array()) {
        for (index, value) in list.iter().enumerate() {
            faults(items, value, &format!("{at}[{index}]"), faults_of);
        }
    }
}

pub(crate) fn assert_value_fits(name: &str, value: &Value) {
    let mut found = Vec::new();
    faults(&schema(name), value, "$", &mut found);
    assert!(found.is_empty(), "{name}: {found:#?} in {value:#}");
}

pub(crate) fn assert_fits(name: &str, output: &Output) -> Value {
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{name}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_value_fits(name, &value);
    value
}

#[test]
fn alerts_stand_among_the_ticks_and_are_given_to_the_command() {
    let home = home();
    let home = home.path();
    let hosts = std::fs::read_to_string(home.join("hosts.toml")).unwrap();
    // the command's output says when it has read the alert: a line in the pipe of standard error
    let script = "#!/bin/sh\nread -r json\nprintf '%s\\n%s\\n' \"$HVTUI_ALERT_KIND $*\" \"$json\" > told.tmp && mv told.tmp told\nexit 4\n";
    let path = home.join("alert.sh");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let alerts = "[alerts]\nhost_down = \"1s\"\ncommand = [\"./alert.sh\", \"{place}\", \"{state}\"]\n";
    std::fs::write(home.join("hosts.toml"), format!("{alerts}{hosts}")).unwrap();
    let mut child = Command::new("timeout")
        .args(["-k", "5", "120", crate::common::program::hvtui(), "watch", "--json", "-n", "0.2"])
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut values = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let tick = values.next().unwrap();
    assert_eq!(tick["type"], "tick");
    assert_value_fits("watch", &tick);
    let alert = values.find(|value| value["type"] == "alert").unwrap();
    assert_value_fits("alert", &alert);
    let of = |name: &str| alert[name].clone();
    assert_eq!((of("kind"), of("host"), of("state")), ("host_down".into(), "gone".into(), "began".into()));
    assert!(of("words").as_str().unwrap().starts_with("host is down: "), "{alert}");
    // the failure of the command is said when it has ended
    let errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = errors.map(Result::unwrap).find(|line| line.contains("the alerts' command")).unwrap();
    assert_eq!(said, "hvtui: the alerts' command ./alert.sh: exit status: 4");
    let told = std::fs::read_to_string(home.join("told")).unwrap();
    let (words, json) = told.split_once('\n').unwrap();
    assert_eq!(words, "host_down gone began");
    assert_eq!(serde_json::from_str::<Value>(json).unwrap(), alert);
    // ends its child too
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    end_of(&mut child);
}

#[test]
fn what_is_printed_as_json_fits_its_schema() {
    let home = home();
    let home = home.path();
    let hosts = assert_fits("hosts", &hvtui(home, &["hosts", "--json"]));
    assert_eq!(hosts["hosts"][1]["port"], 1);
    assert_eq!(hosts, assert_fits("hosts", &hvtui(home, &["hosts", "list", "--json"])));

    let out = hvtui(home, &["hosts", "check", "--json"]);
    let checked = assert_fits("hosts-check", &out);
    assert_eq!(out.status.code(), Some(69), "one can't be reached");
    let of = |index: usize, name: &str| checked["hosts"][index][name].clone();
    assert_eq!((of(0, "ok"), of(0, "code"), of(0, "error")), (true.into(), 0.into(), Value::Null));
    assert_eq!((of(1, "ok"), of(1, "code"), of(1, "info")), (false.into(), 69.into(), Value::Null));

    let seen = assert_fits("watch", &hvtui(home, &["watch", "--once", "--json"]));
    assert_eq!(seen["hosts"][1]["link"]["link"], "down");

    let none = hvtui(home, &["pick", "1"]);
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(none.status.code(), Some(75), "{said}");
    assert!(
        said.contains("1 GPU asked for, and no host that is up has a GPU that hvtui can use (here: "),
        "{said}"
    );
    assert!(said.contains(", gone: connection refused by "), "{said}");
    assert_eq!(hvtui(home, &["run", "-H", "here:1", "--", "false"]).status.code(), Some(1));
    let runs = assert_fits("runs", &hvtui(home, &["runs", "--json", "--local"]));
    assert_eq!((&runs[0]["outcome"]["end"], &runs[0]["version"]), (&"failed".into(), &1.into()));
    assert_eq!(runs[0]["spec"]["created"], runs[0]["created"], "one form of moments");
    let dry = ["runs", "prune", "--keep", "0", "--dry-run", "--json", "--local"];
    let pruned = assert_fits("runs-prune", &hvtui(home, &dry));
    assert_eq!((&pruned["dry_run"], &pruned["runs"][0]["deleted"]), (&true.into(), &false.into()));
}

#[test]
fn stacks_fit_their_schema() {
    let home = home();
    let home = home.path();
    let started = hvtui(home, &["run", "--detach", "-H", "here:2", "--", "sleep", "100"]);
    assert!(started.status.success(), "{started:?}");
    let told = assert_fits("stacks", &hvtui(home, &["stacks", "last", "--json"]));
    hvtui(home, &["stop", "last", "--now"]);
    assert_eq!((&told["version"], &told["stacks"][1]["rank"]), (&1.into(), &1.into()));
    assert_eq!(told["stacks"][0]["by"], "kernel");
}

#[test]
fn a_schema_refuses_what_does_not_fit() {
    let check = |value: Value| {
        let mut found = Vec::new();
        faults(&schema("hosts-check"), &value, "$", &mut found);
        found
    };
    let good = serde_json::json!({"version": 1, "at": "2026-11-21T14:32:07.120Z", "hosts": []});
    assert_eq!(check(good.clone()), Vec::<String>::new());
    for (name, bad) in [
        ("version", 2.into()),
        ("at", "2026-11-21T14:32:07.120000Z".into()),
        ("hosts", Value::Null),
        ("new", 1.into()),
    ] {
        let mut value = good.clone();
        value[name] = bad;
        assert_eq!(check(value).len(), 1, "{name}");
    }
    assert_eq!(check(serde_json::json!({"version": 1, "hosts": [{}]})).len(), 8);
}

#[test]
fn numbers_for_other_programs_are_printed_or_put_into_a_file_at_once() {
    let home = home();
    let home = home.path();
    let printed = hvtui(home, &["watch", "--once", "--prometheus"]);
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.contains("# TYPE hvtui_host_up gauge\nhvtui_host_up{host=\"here\"} 1\n"), "{text}");
    assert!(text.contains("hvtui_host_up{host=\"gone\"} 0\n"), "{text}");
    assert!(!text.contains("hvtui_host_cpus{host=\"gone\"}"), "{text}");

    let out = hvtui(home, &["watch", "--once", "--prometheus", "hvtui.prom"]);
    assert!(out.stdout.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(home.join("hvtui.prom")).unwrap();
    assert!(text.contains("hvtui_host_cpus{host=\"here\"} "), "{text}");
    let names: Vec<_> = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
    let out = hvtui(home, &["watch", "--once", "--prometheus", "nowhere/hvtui.prom"]);
    assert_eq!(out.status.code(), Some(74));
    assert!(String::from_utf8_lossy(&out.stderr).contains("--prometheus nowhere/hvtui.prom: No such file"));

    let csv = String::from_utf8(hvtui(home, &["watch", "--once", "--csv"]).stdout).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("at,host,host_up,host_sample_age_seconds,"), "{csv}");
    assert!(lines.len() >= 3 && lines.iter().any(|line| line.contains("Z,gone,0,")), "{csv}");
    let both = hvtui(home, &["watch", "--json", "--csv"]);
    assert_eq!(both.status.code(), Some(64), "one form at a time");
}

/// By python's urllib, a client that is not ours; what it printed, or its last line of error.
fn fetched(url: &str) -> Result<String, String> {
    let script = "import sys, urllib.request\nprint(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode(), end='')";
    let out = Command::new("python3").args(["-c", script, url]).output_in_time().unwrap();
    let error = || String::from_utf8_lossy(&out.stderr).lines().last().unwrap_or_default().to_owned();
    if out.status.success() { Ok(String::from_utf8(out.stdout).unwrap()) } else { Err(error()) }
}

#[test]
fn numbers_for_prometheus_are_served_on_a_loopback_port() {
    let home = home();
    let home = home.path();
    let mut watch = Command::new(crate::common::program::hvtui())
        .args(["watch", "-n", "600", "--prometheus", "127.0.0.1:0"])
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines().map(Result::unwrap);
    let url = said.find_map(|line| line.strip_prefix("hvtui: metrics at ").map(str::to_owned)).unwrap();
    // the values of the moment, long before the first tick
    let text = std::iter::repeat_with(|| fetched(&url).unwrap())
        .find(|text| text.contains("hvtui_host_up{host=\"here\"} 1\n"))
        .unwrap();
    assert!(text.contains("hvtui_host_up{host=\"gone\"} 0\n"), "{text}");
    let none = fetched(&url.replace("/metrics", "/")).unwrap_err();
    assert!(none.contains("404"), "{none}");

    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let taken = hvtui(home, &["watch", "--prometheus", address]);
    let why = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert_eq!(taken.status.code(), Some(74), "{why}");
    assert!(why.contains(&format!("--prometheus {address}: Address already in use")), "{why}");
    // a process of hvtui shows what it has to root alone
    let holder = format!("process {} (", watch.id());
    assert!(why.contains(&holder) || why.contains(": a process of "), "{why}");
    assert!(why.trim_end().ends_with(" is free"), "{why}");

    rustix::process::kill_process(rustix::process::Pid::from_child(&watch), rustix::process::Signal::INT)
        .unwrap();
    let ended = watch.output_in_time().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert!(ended.stdout.is_empty(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert!(std::net::TcpStream::connect(address).is_err(), "the port is closed");

    for (wrong, why) in [
        ("0.0.0.0:9400", "no authentication"),
        ("gpu-a:9400", "ssh -L"),
        ("9400", "127.0.0.1:9400"),
        ("127.0.0.1:9400x", "'9400x' is no TCP port; for a file give ./127.0.0.1:9400x"),
    ] {
        let out = hvtui(home, &["watch", "--prometheus", wrong]);
        let said = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(out.status.code(), Some(64), "{wrong}: {said}");
        assert!(said.contains(why), "{wrong}: {said}");
    }
    let once = hvtui(home, &["watch", "--once", "--prometheus", "127.0.0.1:0"]);
    assert_eq!(once.status.code(), Some(64));
}

#[test]
fn the_schema_has_each_field_of_a_process() {
    let gpu = &schema("watch")["properties"]["hosts"]["items"]["properties"]["sample"]["properties"]["gpus"];
    let known = &gpu["items"]["properties"]["processes"]["items"]["properties"];
    let run = Some(RunOfProcess { id: RunId::new(1, 1), rank: Some(Rank(0)) });
    let process = GpuProcess { run, container: Some("59c313908f42".to_owned()), ..GpuProcess::unknown(1) };
    for (name, _) in serde_json::to_value(process).unwrap().as_object().unwrap() {
        assert!(known.get(name).is_some(), "docs/formats/watch.schema.json lacks {name} of a process");
    }
}

#[test]
fn the_schema_has_each_number_of_a_gpu() {
    let host = &schema("watch")["properties"]["hosts"]["items"]["properties"];
    let names = |of: &str| {
        let properties = &host[of]["properties"]["gpus"]["items"]["properties"];
        properties.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let (facts, live) = (names("info"), names("sample"));
    for field in GpuInfo::NUMBERS {
        assert!(
            facts.iter().any(|name| name == field.name),
            "docs/formats/watch.schema.json lacks {}",
            field.name
        );
    }
    for field in GpuSample::NUMBERS {
        assert!(
            live.iter().any(|name| name == field.name),
            "docs/formats/watch.schema.json lacks {}",
            field.name
        );
    }
}

#[test]
fn an_xid_error_is_in_the_next_tick_with_words_and_the_topology_stands_with_the_facts() {
    let fake = FakeNvml::idle(2);
    let home = home();
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", crate::common::program::hvtui(), "watch", "--json", "-n", "0.2"]);
    command.current_dir(home.path()).env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    let mut watch = command.envs(fake.env()).stdout(Stdio::piped()).spawn().unwrap();
    let ticks = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut told = false;
    let last = ticks.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()).find(|tick| {
        let here = &tick["hosts"][0];
        if !told && here["sample"]["gpus"][1]["util"] == 0 && here["info"]["topology"].is_object() {
            let event = serde_json::json!({ "gpu": 1, "what": { "xid": 79 } });
            fake.set(&serde_json::json!({ "gpus": [{}, {}], "events": [event] }));
            told = true;
        }
        here["gpu_events"].as_array().is_some_and(|events| !events.is_empty())
    });
    watch.kill().unwrap();
    end_of(&mut watch);
    let tick = last.expect("watch ended before it told the event");
    assert_value_fits("watch", &tick);
    let here = &tick["hosts"][0];
    let event = &here["gpu_events"][0];
    let uuid = &here["info"]["gpus"][1]["uuid"];
    assert_eq!((&event["what"], &event["xid"], &event["uuid"]), (&"xid".into(), &79.into(), uuid));
    assert_eq!((&event["severity"], &event["count"]), (&"act".into(), &1.into()));
    assert_eq!(event["meaning"], "the GPU has fallen off the bus");
    assert!(event["t"].as_u64().unwrap() > 0, "{event}");
    let gpu = &here["gpus"][1];
    assert_eq!((&gpu["free"], &gpu["why"]), (&false.into(), &"it has fallen off the bus".into()));
    let topology = &here["info"]["topology"];
    assert_eq!(topology["paths"], serde_json::json!([["X", "NV18"], ["NV18", "X"]]));
    assert_eq!(topology["affinity"][0]["cpus"], "0-15");
}
