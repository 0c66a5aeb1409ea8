//! Which checks of the doctor fit what a run that failed has said. Pure: words in, names of checks out.

use super::ids::Rank;
use super::world::RunState;

/// How many of the newest lines are looked at.
const LINES: usize = 400;
/// Checks at most: more are no hint any more.
const MOST: usize = 4;

/// What stands in an error, in lower case, and the checks that look for its cause, the likeliest first.
pub const SYMPTOMS: [(&[&str], &[&str]); 15] = [
    (&["host key verification failed", "permission denied (publickey"], &["logins"]),
    (&["command not found", ": not found"], &["path"]),
    (&["modulenotfounderror", "no module named"], &["python", "path"]),
    (&["undefined symbol", "cannot open shared object file"], &["horovod", "libraries", "python"]),
    (&["address already in use"], &["ports"]),
    (&["unable to find address for", "no such interface"], &["interface", "hostname"]),
    (&["driver version is insufficient", "driver on your system is too old"], &["torch", "driver"]),
    (&["cuda driver is a stub library"], &["stub"]),
    (&["driver/library version mismatch"], &["gpu"]),
    (
        &["no cuda-capable device", "no cuda gpus are available", "cuda_error_no_device"],
        &["gpu", "stub", "torch"],
    ),
    (&["unhandled system error", "ncclsystemerror"], &["interface", "shm", "reach", "limits"]),
    (&["bus error"], &["shm"]),
    (&["no space left on device"], &["disk", "shm"]),
    (&["too many open files", "ibv_reg_mr", "resource temporarily unavailable"], &["limits"]),
    (&["connection timed out", "no route to host", "connect timeout"], &["reach", "interface"]),
];

/// The checks that fit a run that failed, by what its outcome and the rank that failed first have said: of all ranks where
/// that is not known. None where nothing fits, and of a run that did not fail.
pub fn checks(run: &RunState) -> Vec<&'static str> {
    let Some(outcome) = run.outcome.as_ref().filter(|outcome| !outcome.is_stopped()) else {
        return Vec::new();
    };
    if outcome.exit_code() == 0 || run.spec.is_imported() {
        return Vec::new();
    }
    let of_root = |rank: Rank| outcome.root.is_none_or(|root| root == rank);
    let lines = run.log.iter().rev().map(|(_, logged)| &logged.line).filter(|line| of_root(line.rank));
    let mut found = Vec::new();
    add(&outcome.summary, &mut found);
    lines.take(LINES).for_each(|line| add(&line.text, &mut found));
    found
}

fn add(text: &str, found: &mut Vec<&'static str>) {
    let text = text.to_lowercase();
    for (words, checks) in SYMPTOMS {
        if words.iter().any(|word| text.contains(word)) {
            for check in checks {
                if found.len() < MOST && !found.contains(check) {
                    found.push(check);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_names_the_checks_that_look_for_its_cause() {
        let of = |text: &str| {
            let mut found = Vec::new();
            add(text, &mut found);
            found
        };
        assert_eq!(of("sh: 1: horovodrun: not found"), ["path"]);
        assert_eq!(of("ModuleNotFoundError: No module named 'torch'"), ["python", "path"]);
        assert_eq!(
            of("ncclSystemError: System call (e.g. socket, malloc) failed"),
            ["interface", "shm", "reach", "limits"]
        );
        assert_eq!(
            of("RuntimeError: The NVIDIA driver on your system is too old (found version 11040)"),
            ["torch", "driver"]
        );
        assert_eq!(of("[Errno 98] Address already in use"), ["ports"]);
        assert!(of("loss is nan").is_empty());
    }
}
