//! What a host notes of itself and its GPUs while no client follows a run: where it lies when one does.

use std::path::PathBuf;
use std::process::Command;

use hvtui::clock::{host_now, now};
use hvtui::domain::event::{Envelope, Event};
use hvtui::domain::gpu::Reading;
use hvtui::domain::ids::RunId;
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::record::Reader;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::samples;
use hvtui::wire::samples::PastSamples;
use serde_json::{Value, json};

use crate::common::bed::ended;
use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::processes::until;

const UTIL: u32 = 73;
const WAITS: &str = "while [ ! -e go ]; do sleep 0.05; done";

/// A person whose only host, this machine, has a GPU that is busy all the time.
struct Person {
    home: tempfile::TempDir,
    gpu: FakeNvml,
}

impl Person {
    fn new() -> Self {
        let uuid = format!("GPU-meanwhile-{}", std::process::id());
        let gpu = FakeNvml::new(&json!({ "gpus": [{ "uuid": uuid, "util": UTIL }] }));
        let person = Self { home: tempfile::tempdir().unwrap(), gpu };
        let hosts = "[[host]]\nname = \"gpu-a\"\naddress = \"local\"\n";
        std::fs::write(person.home.path().join("hosts.toml"), hosts).unwrap();
        person
    }

    fn said(&self, args: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", crate::common::program::hvtui(), "--hosts"]);
        command.arg(self.home.path().join("hosts.toml")).args(args).current_dir(self.home.path());
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        command.env("HOME", self.home.path()).envs(self.gpu.env());
        let output = command.output_in_time().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The file or folder of this pattern below the state folder.
    fn file(&self, pattern: &str) -> PathBuf {
        let pattern = format!("{}/.local/state/hvtui/{pattern}", self.home.path().display());
        glob::glob(&pattern).unwrap().next().unwrap_or_else(|| panic!("no {pattern}")).unwrap()
    }

    /// How many samples its host has noted since then.
    fn noted(&self, since: HostTime) -> usize {
        let dir = RunDir::open(&self.file("spool/*/*/")).unwrap();
        let pieces = samples::since(&dir, since).unwrap();
        let of = |data: Vec<u8>| PastSamples { run: RunId::new(1, 1), data: data.into() }.samples().len();
        pieces.into_iter().map(of).sum()
    }

    /// When the samples of the recording were taken in that time; each tells how busy the GPU was.
    fn sampled(&self, (from, to): (Stamp, Stamp)) -> Vec<Stamp> {
        let reader = Reader::open(&self.file("runs/*/run.mcap")).unwrap();
        let all: Vec<Envelope> = reader.envelopes(..).map(Result::unwrap).collect();
        let within = all.iter().filter(|envelope| from < envelope.at && envelope.at < to);
        let samples = within.filter_map(|envelope| match &envelope.event {
            Event::HostSampled { sample } => Some((envelope.at, sample)),
            _ => None,
        });
        samples
            .map(|(at, sample)| {
                let util = &sample.gpus[0].util;
                // on a busy machine a GPU may not answer in time
                assert!(matches!(util, Reading::Value(UTIL) | Reading::Failed { .. }), "{util:?}");
                at
            })
            .collect()
    }
}

#[test]
fn a_run_that_was_detached_to_its_end_has_the_telemetry_of_that_time() {
    let person = Person::new();
    let run = person.said(&["run", "--detach", "-np", "1", "--", "sh", "-c", WAITS]);
    let (detached, from) = (now(), host_now());
    until("samples of the host", || person.noted(from) > 1);
    std::fs::write(person.home.path().join("go"), "").unwrap();
    ended(&RunDir::open(&person.file("spool/*/*/")).unwrap());
    let over = now();
    assert!(person.sampled((detached, over)).is_empty());
    person.said(&["attach", run.trim()]);
    let sampled = person.sampled((detached, over));
    assert!(sampled.len() > 1 && sampled.len() <= person.noted(HostTime(0)), "{sampled:?}");
    assert!(sampled.is_sorted_by(|one, next| one < next), "each once, in order: {sampled:?}");
    let report: Value = serde_json::from_str(&person.said(&["report", "last", "--json"])).unwrap();
    assert!(report["gpus"][0]["samples"].as_u64() > Some(1), "{}", report["gpus"]);
}
