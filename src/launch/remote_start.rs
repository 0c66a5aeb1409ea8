//! Commands that start their job elsewhere, such as `sbatch job.sh` or `ssh gpu-a python train.py`: as ranks they would start it
//! several times. Pure.

/// Programs that give a job to a scheduler or to another host.
const PROGRAMS: [&str; 10] =
    ["sbatch", "salloc", "qsub", "qrsh", "bsub", "condor_submit", "kubectl", "ssh", "pdsh", "clush"];

/// What to know of a command that starts its job elsewhere, where it has several ranks.
pub fn remark(command: &[String], ranks: u32) -> Option<String> {
    let program = command.first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    (ranks > 1 && PROGRAMS.contains(&name)).then(|| {
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
        for line in ["sbatch job.sh", "/usr/bin/ssh gpu-a python train.py", "kubectl apply -f x.yaml"] {
            assert!(told(line, 2).is_some_and(|text| text.contains("once per rank: 2 times")), "{line}");
            assert_eq!(told(line, 1), None, "{line}");
        }
        assert_eq!(told("python sbatch.py", 2), None);
        assert_eq!(remark(&[], 2), None);
    }
}
