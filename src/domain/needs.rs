//! Which of the doctor's checks a launch rests on, so that they are made while its form is still open. Pure: a plan in, names of
//! checks out.

use super::run::{JobKind, RunSpec};

/// Programs that the doctor's check of Python looks at: those that a command over ssh finds by name.
const PYTHONS: [&str; 4] = ["python", "python3", "torchrun", "horovodrun"];

/// The checks, by name. What the launch brings along itself, as an image or an environment, is not looked at on the host.
pub fn checks(spec: &RunSpec) -> Vec<&'static str> {
    let mut checks = Vec::new();
    let spans_hosts = spec.hosts().len() > 1;
    if spans_hosts {
        checks.extend(["reach", "interface"]);
    }
    checks.push("disk");
    let has_gpus = spec.placements.iter().any(|placement| placement.gpus().next().is_some());
    if has_gpus {
        checks.extend(["gpu", "driver"]);
    }
    if spec.options.container.is_some() {
        checks.push("docker");
        return checks;
    }
    if has_gpus {
        checks.push("stub");
    }
    let activates = spec.options.environment.activates() || !spec.options.environments.is_empty();
    let program = spec.command.first().map_or("", String::as_str);
    let is_found_by_name = PYTHONS.contains(&program);
    let is_python = program.rsplit('/').next().is_some_and(|name| name.starts_with("python"));
    // what is none of these may never open a file there
    if has_gpus || is_python || is_found_by_name || !matches!(spec.kind, JobKind::Plain | JobKind::Slurm) {
        checks.push("shm");
    }
    if is_found_by_name && !activates {
        checks.push("python");
        match spec.kind {
            JobKind::Torch => checks.push("torch"),
            JobKind::Horovod => checks.extend(["torch", "horovod"]),
            _ => {}
        }
    }
    if spec.options.delegate.is_some() {
        checks.push("path");
        if spans_hosts {
            checks.push("logins");
        }
    }
    if spec.kind == JobKind::Mpi || spec.options.delegate.is_some() && spec.kind == JobKind::Horovod {
        checks.push("mpi");
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::environment::EnvironmentPlan;
    use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
    use crate::domain::options::RunOptions;
    use crate::domain::run::{Placement, Slot};
    use crate::domain::time::Stamp;

    fn spec(kind: JobKind, program: &str, hosts: &[&str]) -> RunSpec {
        let slot = Slot::Gpu { index: 0, uuid: GpuUuid::from("GPU-1") };
        let placement = |(rank, host): (usize, &&str)| Placement {
            rank: Rank(rank as u32),
            host: HostId::from(*host),
            local_rank: 0,
            slot: slot.clone(),
            more: Vec::new(),
        };
        RunSpec {
            id: RunId::new(1, 1),
            name: "test".to_owned(),
            kind,
            command: vec![program.to_owned(), "train.py".to_owned()],
            env: std::collections::BTreeMap::new(),
            workdir: None,
            placements: hosts.iter().enumerate().map(placement).collect(),
            created: Stamp(0),
            options: RunOptions::default(),
            code: None,
        }
    }

    #[test]
    fn a_kind_is_checked_for_what_it_rests_on() {
        let torch = checks(&spec(JobKind::Torch, "python3", &["a", "b"]));
        assert_eq!(torch, ["reach", "interface", "disk", "gpu", "driver", "stub", "shm", "python", "torch"]);
        let alone = checks(&spec(JobKind::Horovod, "python", &["a"]));
        assert!(alone.contains(&"horovod") && !alone.contains(&"reach"), "{alone:?}");
        assert!(checks(&spec(JobKind::Mpi, "./solver", &["a", "b"])).contains(&"mpi"));
    }

    #[test]
    fn what_it_brings_along_is_not_looked_for() {
        let mut conda = spec(JobKind::Torch, "python3", &["a", "b"]);
        conda.options.environment =
            EnvironmentPlan { conda: Some("train".to_owned()), ..EnvironmentPlan::default() };
        assert!(!checks(&conda).contains(&"torch"));
        let own = checks(&spec(JobKind::Torch, "/opt/conda/bin/python3", &["a"]));
        assert!(!own.contains(&"python") && own.contains(&"shm"), "{own:?}");
        let mut plain = spec(JobKind::Plain, "sleep", &["a"]);
        plain.placements[0].slot = Slot::Cpu { index: 0 };
        assert_eq!(checks(&plain), ["disk"]);
    }
}
