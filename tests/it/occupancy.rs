//! Which GPUs are free, end to end: hvtui on this machine with a scripted NVML, one GPU for each thing that takes a
//! GPU away.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::processes::end_of;
use crate::common::{cluster, processes};
use crate::json_forms::assert_fits;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::state::{STATE, State};
use rustix::process::Signal;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// A person with one host, this machine.
struct Person {
    home: tempfile::TempDir,
    gpus: FakeNvml,
}

impl Person {
    /// GPUs with names of their own, as leases of all tests lie in one place.
    fn new(test: &str, gpus: &[Value]) -> Self {
        let gpu = |(index, gpu): (usize, &Value)| {
            let mut gpu = gpu.clone();
            gpu["uuid"] = json!(format!("GPU-{test}-{}-{index}", std::process::id()));
            gpu["memory_total"] = json!(45 * GIB);
            gpu
        };
        let gpus: Vec<Value> = gpus.iter().enumerate().map(gpu).collect();
        let person =
            Self { home: tempfile::tempdir().unwrap(), gpus: FakeNvml::new(&json!({ "gpus": gpus })) };
        person.write("");
        person
    }

    fn write(&self, line: &str) {
        let hosts = format!("[[host]]\nname = \"gpu-c\"\naddress = \"local\"\n{line}");
        std::fs::write(self.home.path().join("hosts.toml"), hosts).unwrap();
    }

    fn hvtui(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", crate::common::program::hvtui(), "--hosts"]);
        command.arg(self.home.path().join("hosts.toml")).args(args);
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        command.env("HOME", self.home.path()).envs(self.gpus.env());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.hvtui(args).output_in_time().unwrap()
    }

    /// A run on one GPU is refused as busy, and what it says.
    fn refused(&self, gpu: usize, more: &[&str]) -> String {
        let place = format!("gpu-c:{gpu}");
        let output = self.run(&[&["run"], more, &["--gpus", &place, "--", "echo", "ran"]].concat());
        assert_eq!(output.status.code(), Some(75), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("ran"), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Kills the supervisor of this person's only run, and waits until another one has taken its place.
    fn kill_supervisor(&self) {
        let state = self.home.path().join(".local/state");
        let runs = RunDir::list(&state.join("hvtui")).unwrap();
        let [(run, host)] = &runs[..] else { panic!("one run: {runs:?}") };
        let dir = RunDir::find(&state.join("hvtui"), run, host).unwrap().unwrap();
        let supervisor = || dir.read_json::<State>(STATE).unwrap().unwrap().supervisor;
        let dead = supervisor();
        processes::kill(dead.pid, Signal::KILL);
        processes::until("a new supervisor", || supervisor() != dead && supervisor().alive());
    }

    fn starts(&self, args: &[&str]) -> String {
        let args = [&["run"], args, &["--", "sh", "-c", "echo on $HVTUI_PLACE"]].concat();
        let output = self.run(&args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn free() -> Value {
    json!({ "memory_used": GIB })
}

fn unseen() -> Value {
    json!({ "memory_used": 18 * GIB, "util": 32 })
}

#[test]
fn a_process_takes_a_gpu() {
    let person = Person::new("process", &[json!({ "processes": [{ "pid": "self" }] }), free()]);
    let said = person.refused(0, &[]);
    assert!(said.contains("gpu-c:0 is busy: ") && said.contains("(pid "), "{said}");
    assert!(person.starts(&["-np", "1"]).contains("on gpu-c:1"));
}

#[test]
fn a_lease_takes_a_gpu() {
    let person = Person::new("lease", &[free(), free()]);
    let script = "echo held; exec sleep 100";
    let mut holder = person
        .hvtui(&["run", "--name", "first", "--gpus", "gpu-c:0", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("held")));
    let said = person.refused(0, &[]);
    assert!(said.contains("gpu-c:0 is busy: leased by ") && said.contains("(first)"), "{said}");
    assert!(person.starts(&["-np", "1"]).contains("on gpu-c:1"));
    assert_eq!(person.run(&["stop", "first", "--now"]).status.code(), Some(0));
    lines.for_each(drop);
    assert!(!end_of(&mut holder).success());
    assert!(person.starts(&["--gpus", "gpu-c:0"]).contains("on gpu-c:0"), "it is free again");
}

#[test]
fn ranks_of_mpirun_hold_their_gpus_when_their_supervisor_is_killed() {
    if Command::new("mpirun").arg("--version").output_in_time().is_err() {
        return cluster::skip("no mpirun: apt-get install openmpi-bin");
    }
    let person = Person::new("mpirun", &[free(), free(), free()]);
    let script = "echo held $LOCAL_RANK of $CUDA_VISIBLE_DEVICES by $OMPI_COMM_WORLD_RANK; exec sleep 100";
    let line = ["run", "--kind", "mpi", "--name", "first", "--gpus", "gpu-c:0,1", "--", "sh", "-c", script];
    let mut holder = person.hvtui(&line).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said: Vec<String> = lines.by_ref().filter(|line| line.contains("held")).take(2).collect();
    said.sort();
    let uuid = |gpu: u32| format!("GPU-mpirun-{}-{gpu}", std::process::id());
    let both = format!("{},{}", uuid(0), uuid(1));
    assert_eq!(said, [0, 1].map(|rank| format!("[{rank}] held {rank} of {both} by {rank}")));
    let leased = |gpu: usize| {
        let said = person.refused(gpu, &[]);
        assert!(said.contains(&format!("gpu-c:{gpu} is busy: leased by ")), "{said}");
    };
    [0, 1].into_iter().for_each(leased);
    person.kill_supervisor();
    [0, 1].into_iter().for_each(leased);
    assert!(person.starts(&["-np", "1"]).contains("on gpu-c:2"));
    assert_eq!(person.run(&["stop", "first", "--now"]).status.code(), Some(0));
    lines.for_each(drop);
    assert!(!end_of(&mut holder).success());
    for gpu in ["gpu-c:0", "gpu-c:1"] {
        assert!(person.starts(&["--gpus", gpu]).contains(&format!("on {gpu}")), "it is free again");
    }
}

#[test]
fn memory_in_use_without_a_visible_process_takes_a_gpu() {
    let person = Person::new("memory", &[unseen(), free()]);
    let words = "gpu-c:0: 18 of 45 GiB and 32 % in use by a process that is not visible to you, perhaps in a \
                 container";
    for share in [&[][..], &["--share"]] {
        let said = person.refused(0, share);
        assert!(said.contains(words), "{said}");
    }
    assert!(person.starts(&["-np", "1"]).contains("on gpu-c:1"));
    let both = person.run(&["run", "-np", "2", "--", "true"]);
    assert_eq!(both.status.code(), Some(75), "{both:?}");
    let table = String::from_utf8(person.run(&["watch", "--once"]).stdout).unwrap();
    assert!(table.contains("18 of 45 GiB and 32 % in use"), "{table}");
    let watched = person.run(&["watch", "--once", "--json"]).stdout;
    let tick: Value = serde_json::from_slice(&watched).unwrap();
    let gpus = &tick["hosts"][0]["gpus"];
    assert_eq!((&gpus[0]["free"], &gpus[1]["free"]), (&json!(false), &json!(true)), "{gpus}");
    // how much counts is the owner's to say
    person.write("free_memory = \"20G\"\n");
    assert!(person.starts(&["--gpus", "gpu-c:0"]).contains("on gpu-c:0"));
    person.write("[defaults]\nfree_memory = \"1%\"\n");
    assert_eq!(
        person.run(&["run", "-np", "1", "--", "true"]).status.code(),
        Some(75),
        "1 GiB is more than 1 %"
    );
}

#[test]
fn what_is_not_known_takes_a_gpu() {
    let failing = |what: &str| {
        let mut gpu = free();
        gpu["errors"] = json!({ what: "no_permission" });
        gpu
    };
    let person = Person::new("unknown", &[failing("processes"), failing("memory"), free()]);
    let head = "it is not known whether it is free";
    let said = person.refused(0, &[]);
    assert!(said.contains(&format!("gpu-c:0: {head}: process list: ")), "{said}");
    let said = person.refused(1, &["--share"]);
    assert!(said.contains(&format!("gpu-c:1: {head}: memory: ")), "{said}");
    assert!(person.starts(&["-np", "1"]).contains("on gpu-c:2"));
    assert_eq!(person.run(&["run", "-np", "2", "--", "true"]).status.code(), Some(75));
}

/// The failure comes while other ranks are still being started: then the launch that has waited holds its place yet.
#[test]
fn a_job_that_exits_75_is_not_started_again() {
    let person = Person::new("own", &[]);
    person.write("slots = 24\n");
    let marks = person.home.path().join("marks");
    let script = format!("echo $RANK >>{}; exit 75", marks.display());
    let output = person.run(&["run", "--wait", "-np", "24", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("failed first: exit 75") && !said.contains("waiting: "), "{said}");
    let ranks = std::fs::read_to_string(marks).unwrap();
    assert_eq!(ranks.lines().filter(|rank| *rank == "0").count(), 1, "{ranks}");
}

#[test]
fn what_is_picked_is_free_passes_the_filter_and_can_be_launched_on() {
    let held = json!({ "processes": [{ "pid": "self" }] });
    let hot = json!({ "memory_used": GIB, "temperature": 81 });
    let small = json!({ "memory_used": GIB, "name": "NVIDIA A100" });
    let person = Person::new("pick", &[held, free(), hot, free(), unseen(), small]);
    let pick = |args: &[&str]| {
        let output = person.run(&[&["pick"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (picked, why) = pick(&["3"]);
    assert_eq!(picked, "gpu-c:1,2,3\n", "of one model, none that is held");
    assert!(why.starts_with("hvtui: 3 of gpu-c ("), "{why}");
    assert!(person.starts(&["--gpus", picked.trim()]).contains("on gpu-c:1"));
    let cool = ["2", "--filter", "temp<80 & !model~a100"];
    assert_eq!(pick(&cool).0, "gpu-c:1,3\n");
    let uuid = |gpu: u32| format!("GPU-pick-{}-{gpu}", std::process::id());
    let formatted = |format: &str| pick(&[&cool[..], &["--format", format]].concat()).0;
    assert_eq!(formatted("uuid"), format!("{},{}\n", uuid(1), uuid(3)));
    assert_eq!(formatted("hostfile"), "gpu-c slots=2\n");
    assert_eq!(formatted("horovodrun"), "-np 2 -H gpu-c:2\n");
    assert_eq!(formatted("mpirun"), "-np 2 --host gpu-c:2\n");
    let output = person.run(&[&["pick"], &cool[..], &["--format", "json"]].concat());
    let json = assert_fits("pick", &output);
    assert_eq!((&json["version"], &json["hosts"][0]["name"]), (&json!(1), &json!("gpu-c")), "{json}");
    assert_eq!(json["hosts"][0]["gpus"][1]["uuid"], json!(uuid(3)), "{json}");

    // one at risk is the last that is taken, and a launch says so
    let broken = json!({ "memory_used": GIB, "ecc_uncorrected": 3 });
    let sick = Person::new("sick", &[broken, free(), free()]);
    assert_eq!(String::from_utf8(sick.run(&["pick", "2"]).stdout).unwrap(), "gpu-c:1,2\n");
    assert!(sick.starts(&["-np", "1"]).contains("on gpu-c:1"));
    let all = sick.run(&["run", "-np", "3", "--dry-run", "--", "true"]);
    let said = String::from_utf8(all.stderr).unwrap() + &String::from_utf8(all.stdout).unwrap();
    assert!(said.contains("gpu-c: GPU 0 (ecc errors) is at risk"), "{said}");

    // a launch picks by the same rule, and waits for what the filter lets through
    assert!(person.starts(&["--free", "1", "--filter", "model~a100"]).contains("on gpu-c:5"));
    let dry = person.run(&["run", "--free", "2", "--dry-run", "--", "true"]);
    let said = String::from_utf8(dry.stderr).unwrap() + &String::from_utf8(dry.stdout).unwrap();
    assert!(said.contains("picked 2 of gpu-c ("), "{said}");
    let two = person.starts(&["--free", "2", "--filter", "temp<80 & !model~a100"]);
    assert!(two.contains("on gpu-c:1") && two.contains("on gpu-c:3"), "{two}");

    let watched = person.run(&["watch", "--once", "--json", "--filter", "model~a100 | temp>80"]);
    let tick = assert_fits("watch", &watched);
    let gpus = &tick["hosts"][0]["info"]["gpus"];
    let indices: Vec<u64> = gpus.as_array().unwrap().iter().filter_map(|gpu| gpu["index"].as_u64()).collect();
    assert_eq!(indices, [2, 5], "{gpus}");

    let refused = |args: &[&str], code: i32| {
        let output = person.run(args);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["pick", "5"], 75);
    assert!(said.contains("5 GPUs asked for, 4 are free (gpu-c: 4, busy 0: "), "{said}");
    assert!(said.contains("18 of 45 GiB") && said.contains("(pid "), "{said}");
    let said = refused(&["pick", "2", "--filter", "model~a100"], 75);
    assert!(said.contains("1 is free, 5 are left out by the filter"), "{said}");
    assert!(refused(&["run", "--free", "5", "--", "true"], 75).contains("--wait"));
    let said = refused(&["pick", "2", "--filter", "utl<5 & free"], 64);
    assert!(said.contains("utl<5 & free\n^^^ unknown field 'utl': did you mean util?"), "{said}");
    assert!(
        refused(&["run", "--free", "1", "--filter", "(", "--", "true"], 64)
            .contains("\n ^ something is missing")
    );
    assert!(
        refused(&["pick", "3", "--per-host", "2"], 64).contains("3 is not a multiple of it; ask for 2 or 4")
    );
}

#[test]
fn a_launch_waits_for_gpus_that_its_filter_lets_through_once_they_are_free() {
    let busy = json!({ "processes": [{ "pid": "self" }], "memory_used": 20 * GIB, "util": 90 });
    let person = Person::new("waitfilter", &[busy]);
    let filter = ["--free", "1", "--filter", "util<5 & mem<10G"];
    let line = [&["run", "--wait"], &filter[..], &["--", "sh", "-c", "echo on $HVTUI_PLACE"]].concat();
    let mut waits = person.hvtui(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(waits.stderr.take().unwrap()).lines().map(Result::unwrap);
    let why = said.by_ref().find(|line| line.contains("waiting: ")).unwrap();
    assert!(why.contains("1 GPU asked for, 0 are free"), "{why}");
    assert!(why.contains("left out by the filter: mem<10G excludes 1, util<5 excludes 1 ("), "{why}");
    let free = json!({ "memory_used": GIB, "memory_total": 45 * GIB, "util": 0 });
    let uuid = json!(format!("GPU-waitfilter-{}-0", std::process::id()));
    let mut gpu = free;
    gpu["uuid"] = uuid;
    person.gpus.set(&json!({ "gpus": [gpu] }));
    said.for_each(drop);
    let output = waits.output_in_time().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("on gpu-c:0"), "{output:?}");

    let never =
        person.run(&["run", "--wait", "--free", "1", "--filter", "util<5 & model~a100", "--", "true"]);
    let said = String::from_utf8(never.stderr).unwrap();
    assert_eq!(never.status.code(), Some(64), "{said}");
    assert!(said.contains("1 is left out by the filter: model~a100 excludes 1 ("), "{said}");
    assert!(said.contains("ask for fewer, or write a wider filter"), "{said}");
}

#[test]
fn what_is_leased_is_not_picked() {
    let person = Person::new("picklease", &[free(), free()]);
    let script = "echo held; exec sleep 100";
    let mut holder = person
        .hvtui(&["run", "--name", "first", "--free", "1", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("held")));
    let picked = |args: &[&str]| String::from_utf8(person.run(&[&["pick"], args].concat()).stdout).unwrap();
    assert_eq!(picked(&["1"]), "gpu-c:1\n");
    let both = person.run(&["pick", "2"]);
    assert_eq!(both.status.code(), Some(75), "{both:?}");
    let said = String::from_utf8(both.stderr).unwrap();
    assert!(said.contains("busy 0: leased by ") && said.contains("(first)"), "{said}");
    assert_eq!(picked(&["1", "--filter", "run!=first"]), "gpu-c:1\n");
    assert_eq!(person.run(&["stop", "first", "--now"]).status.code(), Some(0));
    lines.for_each(drop);
    assert!(!end_of(&mut holder).success());
    assert_eq!(picked(&["2"]), "gpu-c:0,1\n", "it is free again");
}
