//! What was run, and where: one line a fact, so that two runs can be compared line by line.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::Fact;
use super::gpus::HostFold;
use crate::domain::gpu::Reading;
use crate::domain::hooks::HookFacts;
use crate::domain::host::HostInfo;
use crate::domain::ids::HostId;
use crate::domain::run::RunSpec;
use crate::domain::sync::Code;
use crate::domain::units::{bytes, ranges_joined};

/// Options that say nothing of the run itself.
const PASSING: [&str; 2] = ["reached", "hooks_off"];
/// Options that have a line of their own.
const OWN: [&str; 1] = ["sync"];

/// Options whose names say little to who did not write them.
const PLAIN: [(&str, &str); 3] = [
    ("local_rank_arg", "local rank as argument"),
    ("python_of", "Python of launcher"),
    ("mpi_args", "arguments of mpirun"),
];

/// An option's value as a person would write it: words of a list behind each other, of an object each with its name.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::Object(map) => {
            let each = map.iter().map(|(name, value)| format!("{} {}", name.replace('_', " "), words(value)));
            each.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// What the ranks tell of themselves.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct JobFacts {
    jobs: BTreeSet<String>,
    transports: BTreeSet<String>,
    hooks: HookFacts,
}

impl JobFacts {
    pub(super) fn add(&mut self, job: &str, transport: Option<&str>, facts: &HookFacts) {
        // what a rank tells may be anything: a few names are enough
        if self.jobs.len() < 8 {
            self.jobs.insert(job.to_owned());
        }
        if let Some(transport) = transport.filter(|_| self.transports.len() < 8) {
            self.transports.insert(transport.to_owned());
        }
        self.hooks.add(facts);
    }
}

/// All facts of a run.
pub(super) fn of(
    spec: &RunSpec,
    hosts: &BTreeMap<HostId, HostFold>,
    job: &JobFacts,
    total_steps: Option<u64>,
) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut tell = |name: &str, value: String| {
        if !value.is_empty() {
            facts.push(Fact { name: name.to_owned(), value });
        }
    };
    tell("command", spec.command.join(" "));
    tell("kind", spec.kind.name().to_owned());
    tell("ranks", spec.world().to_string());
    tell("slots", slots(spec));
    tell("workdir", spec.workdir.clone().unwrap_or_default());
    let code = spec.code.clone().unwrap_or_default();
    tell("commit", code.commit.unwrap_or_default());
    tell("branch", code.branch.unwrap_or_default());
    let unclear = if code.unclear { Code::UNCLEAR } else { "" };
    tell("uncommitted changes", code.dirty.unwrap_or_else(|| unclear.to_owned()));
    tell("synced tree", code.tree.map(|tree| tree.to_string()).unwrap_or_default());
    let sync = spec.options.sync.as_ref();
    tell("synced folder", sync.map(|sync| format!("{}:{}", sync.dir, sync.remote)).unwrap_or_default());
    for (name, value) in &spec.env {
        tell(&format!("env {name}"), if value.is_empty() { "''".to_owned() } else { value.clone() });
    }
    if let Ok(Value::Object(options)) = serde_json::to_value(&spec.options) {
        for (name, value) in options {
            if PASSING.contains(&name.as_str()) || OWN.contains(&name.as_str()) {
                continue;
            }
            let is_empty = match &value {
                Value::Null => true,
                Value::Array(list) => list.is_empty(),
                Value::Object(map) => map.is_empty(),
                _ => false,
            };
            let plain =
                PLAIN.iter().find(|(option, _)| *option == name).map(|(_, plain)| (*plain).to_owned());
            let name = plain.unwrap_or_else(|| name.replace('_', " "));
            tell(&name, if is_empty { String::new() } else { words(&value) });
        }
    }
    tell("job", joined(&job.jobs));
    tell("transport", joined(&job.transports));
    tell("total steps", total_steps.map(|total| total.to_string()).unwrap_or_default());
    for (name, version) in &job.hooks.versions {
        tell(&format!("version {name}"), version.clone());
    }
    let infos: Vec<&HostInfo> = hosts.values().filter_map(|host| host.info.as_deref()).collect();
    let each = |of: &dyn Fn(&HostInfo) -> Option<String>| {
        joined(&infos.iter().filter_map(|info| of(info)).collect::<BTreeSet<String>>())
    };
    tell("GPUs", gpus(spec, &infos));
    tell("driver", each(&|info| known(&info.driver)));
    tell("CUDA of the driver", each(&|info| known(&info.cuda_driver)));
    tell("NCCL", each(&|info| known(&info.nccl)));
    tell("kernel", each(&|info| Some(info.kernel.clone())));
    tell("architecture", each(&|info| Some(info.arch.clone())));
    tell("CPUs a host", each(&|info| Some(info.cpus.to_string())));
    tell("memory a host", each(&|info| info.memory_total.value().map(|total| bytes(*total))));
    tell("hvtui", each(&|info| Some(info.agent_version.clone())));
    facts
}

fn known(reading: &Reading<String>) -> Option<String> {
    reading.value().cloned()
}

fn joined(values: &BTreeSet<String>) -> String {
    values.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// `gpu-a:0-3 gpu-b:0-3`.
fn slots(spec: &RunSpec) -> String {
    let of = |host: &HostId| {
        let placed = spec.placements.iter().filter(|placement| placement.host == *host);
        let numbers: BTreeSet<u32> =
            placed.flat_map(|placement| placement.slots().map(crate::domain::run::Slot::index)).collect();
        format!("{host}:{}", ranges_joined(numbers, ","))
    };
    spec.hosts().iter().map(of).collect::<Vec<_>>().join(" ")
}

/// `4 × H200, 4 × H100`.
fn gpus(spec: &RunSpec, infos: &[&HostInfo]) -> String {
    let known = infos.iter().flat_map(|info| &info.gpus);
    let models: BTreeMap<_, _> = known.map(|gpu| (&gpu.uuid, gpu.model())).collect();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for gpu in spec.placements.iter().flat_map(crate::domain::run::Placement::gpus) {
        if let Some(model) = models.get(gpu) {
            *counts.entry(model).or_default() += 1;
        }
    }
    counts.iter().map(|(model, count)| format!("{count} × {model}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_options_value_has_no_marks_of_json() {
        let value = serde_json::json!({ "at": 3, "option": "--local_rank" });
        assert_eq!(words(&value), "at 3, option --local_rank");
        assert_eq!(words(&serde_json::json!(["--mca", "btl", "tcp"])), "--mca btl tcp");
        assert_eq!(words(&serde_json::json!(true)), "true");
    }
}
