//! Commands that start their job elsewhere, such as `sbatch job.sh` or `ssh gpu-a python train.py`: as ranks they would start it
//! several times. Pure.

/// Programs that give a job to a scheduler, to another host or to another terminal, and launchers that hvtui does not read.
const PROGRAMS: [&str; 14] = [
    "sbatch",
    "salloc",
    "qsub",
    "qrsh",
    "bsub",
    "condor_submit",
    "kubectl",
    "ssh",
    "pdsh",
    "clush",
    "composer",
    "docker-compose",
    "screen",
    "tmux",
];
/// Programs that do so by one of their commands.
const COMMANDS: [(&str, &str); 7] = [
    ("colossalai", "run"),
    ("lightning", "run"),
    ("fabric", "run"),
    ("ray", "submit"),
    ("ray", "job"),
    ("docker", "compose"),
    ("podman", "compose"),
];

/// What to know of a command that starts its job elsewhere, where it has several ranks.
pub fn remark(command: &[String], ranks: u32) -> Option<String> {
    let program = command.first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let does = command.iter().skip(1).map(String::as_str).find(|word| !word.starts_with('-'));
    let is_one = PROGRAMS.contains(&name) || does.is_some_and(|does| COMMANDS.contains(&(name, does)));
    (ranks > 1 && is_one).then(|| {
        format!(
            "`{name}` is started once per rank: {ranks} times, each starts the whole job; ask for 1 rank (`-np 1`), or \
             launch here the command that it would start."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_several_ranks_would_start_elsewhere_is_told() {
        let told = |line: &str, ranks| remark(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), ranks);
        for line in [
            "sbatch job.sh",
            "/usr/bin/ssh gpu-a python train.py",
            "kubectl apply -f x.yaml",
            "composer -n 2 train.py",
            "colossalai run --nproc_per_node 2 t.py",
            "lightning run model t.py",
            "ray submit c.yaml t.py",
            "screen -dmS x torchrun t.py",
            "tmux new -d torchrun",
            "docker compose up",
        ] {
            assert!(told(line, 2).is_some_and(|text| text.contains("once per rank: 2 times")), "{line}");
            assert_eq!(told(line, 1), None, "{line}");
        }
        for line in ["python sbatch.py", "docker ps", "ray status"] {
            assert_eq!(told(line, 2), None, "{line}");
        }
        assert_eq!(remark(&[], 2), None);
    }
}
