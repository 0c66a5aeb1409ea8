//! Which rank holds a collective up, end to end on this machine: ranks with scripted GPUs that make torch's pipe, write real
//! dumps of torch when they are asked, and answer for NCCL (`tests/fixtures/flight/rank.py`). No GPU, torch or NCCL is
//! here: that theirs do the same is read in their sources, not proven.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until_says};
use crate::json_forms::assert_value_fits;
use hvtui::domain::world::World;
use serde_json::{Value, json};

const RANK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/flight/rank.py");
const LATE: &str = "rank 1 has not come to all_reduce #3 (f32, 1 048 576 values) of the default group; ranks 0, 2 wait in it";

/// A person with one host of three GPUs, this machine.
struct Person {
    home: tempfile::TempDir,
    gpus: FakeNvml,
}

impl Person {
    fn new(test: &str) -> Self {
        let gpu = |index: usize| json!({ "uuid": format!("GPU-{test}-{}-{index}", std::process::id()) });
        let gpus: Vec<Value> = (0..3).map(gpu).collect();
        let person =
            Self { home: tempfile::tempdir().unwrap(), gpus: FakeNvml::new(&json!({ "gpus": gpus })) };
        let hosts = "[[host]]\nname = \"gpu-a\"\naddress = \"local\"\n";
        std::fs::write(person.home.path().join("hosts.toml"), hosts).unwrap();
        person
    }

    fn hvtui(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", crate::common::program::hvtui(), "--hosts"]);
        command.arg(self.home.path().join("hosts.toml")).args(args);
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        command.env("HOME", self.home.path()).envs(self.gpus.env());
        command
    }

    fn said(&self, args: &[&str]) -> String {
        let output = self.hvtui(args).output_in_time().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    /// Three ranks that stand in a collective.
    fn launch(&self, case: &str, ends: &str) -> Child {
        let line = ["run", "--kind", "torch", "-np", "3", "--", "python3", RANK, case, ends];
        let log = File::create(self.log()).unwrap();
        let mut run = self.hvtui(&line);
        run.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    fn wait_for(&self, words: &str) -> String {
        until_says(words, || std::fs::read_to_string(self.log()).unwrap())
    }
}

#[test]
fn the_rank_that_has_not_come_is_named_while_the_run_stands() {
    let person = Person::new("late");
    let mut run = person.launch("missing", "never");
    let nccl = "NCCL RAS: rank 1 has launched 62 AllReduce, ranks 0, 2 have launched 63";
    // each line is written for itself
    for words in [LATE, nccl] {
        person.wait_for(&format!("hvtui: {words}\n"));
    }
    let stacks = person.said(&["stacks", "last"]);
    assert!(stacks.starts_with(&format!("{LATE}\n{nccl}\n\n")), "{stacks}");
    assert!(stacks.contains("python3"), "the stacks are there, too: {stacks}");
    let stacks: Value = serde_json::from_str(&person.said(&["stacks", "last", "--json"])).unwrap();
    assert_value_fits("stacks", &stacks);
    assert_eq!(stacks["differing"][0], LATE);
    assert_eq!(stacks["stacks"].as_array().unwrap().len(), 3);
    assert_eq!(stacks["collectives"][1]["groups"][0]["last"], 2, "{stacks}");
    assert_eq!(stacks["nccl"]["differences"][0]["function"], "AllReduce");
    person.said(&["stop", "last"]);
    assert_ne!(end_of(&mut run).code(), Some(0));
}

#[test]
fn nccl_that_knows_text_alone_is_understood() {
    let person = Person::new("text");
    let mut run = person.launch("text", "never");
    let said = person.wait_for("hvtui: NCCL RAS: rank 1 has launched 62 AllReduce, 2 ranks have launched 63");
    assert!(said.contains("; rank 2 does not answer"), "{said}");
    person.said(&["stop", "last"]);
    end_of(&mut run);
}

#[test]
fn a_rank_that_fails_leaves_the_collective_that_was_waited_for() {
    let person = Person::new("fails");
    let mut run = person.launch("differing", "1:7");
    assert_eq!(end_of(&mut run).code(), Some(7));
    let differs = "rank 2 called broadcast #3 of the default group where ranks 0-1 called all_reduce #3";
    let said = std::fs::read_to_string(person.log()).unwrap();
    assert!(said.contains(&format!("hvtui: {differs}\n")), "{said}");
    // what is recorded says the same
    let runs = std::fs::read_dir(person.home.path().join(".local/state/hvtui/runs")).unwrap();
    let recording = runs.map(|run| run.unwrap().path().join("run.mcap")).next().unwrap();
    let reader = hvtui::record::Reader::open(&recording).unwrap();
    let mut world = World::default();
    reader.envelopes(..).for_each(|envelope| world.apply(&envelope.unwrap()));
    assert_eq!(world.runs.values().next().unwrap().collected.words()[0], differs);
    // who attaches later hears it from the files that are left
    let again = person.hvtui(&["attach", "last"]).output_in_time().unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("exit 7"), "{said}");
}

#[test]
fn what_is_set_is_shown_and_ranks_without_gpus_and_in_containers_get_nothing() {
    let person = Person::new("plan");
    // the script is not there, nor may apptainer be: that is told beside the plan
    let plan = |line: &[&str]| {
        let output = person.hvtui(&[&["run", "--dry-run"], line].concat()).output_in_time().unwrap();
        assert!(output.status.code().is_some_and(|code| [0, 127].contains(&code)), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = plan(&["-np", "2", "--", "python3", "train.py"]);
    for name in ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "NCCL_RAS_ADDR"] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    let shown = plan(&["-np", "2", "--", "apptainer", "exec", "x.sif", "python3", "train.py"]);
    assert!(!shown.contains("NCCL_RAS_ADDR") && shown.contains("HVTUI_REPORT"), "{shown}");
    let environment = ["run", "-np", "1", "--env", "TORCH_FR_BUFFER_SIZE=0", "--", "env"];
    let shown = person.said(&environment);
    let has = |name: &str| shown.lines().any(|line| line.contains(&format!("] {name}=")));
    assert!(has("NCCL_RAS_ADDR") && has("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"), "{shown}");
    assert!(!has("TORCH_NCCL_TRACE_BUFFER_SIZE") && shown.contains("TORCH_FR_BUFFER_SIZE=0"), "{shown}");
}
