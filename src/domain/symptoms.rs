//! Which checks of the doctor fit what a run that failed has said, or where one that hangs stands. Pure: words in, names of
//! checks out.

use super::ids::{HostId, Rank};
use super::run::RankExit;
use super::stacks::{Alike, Frame};
use super::world::RunState;

/// How many of the newest lines are looked at.
const LINES: usize = 400;

const SIGKILL: i32 = 9;
/// Checks at most: more are no hint any more.
const MOST: usize = 4;

/// What stands in an error, in lower case, and the checks that look for its cause, the likeliest first.
pub const SYMPTOMS: [(&[&str], &[&str]); 18] = [
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
    // an address of docker's own network, which means another machine on each host
    (&["[172.17.", "/172.17.", " 172.17."], &["interface"]),
    (
        &["did not join the other ranks", "do not reach each other", "diststoreerror", "distnetworkerror"],
        &["reach", "interface", "hostname"],
    ),
    (&["numpy 1.x cannot be run in numpy 2", "numpy.core.multiarray failed to import"], &["packages"]),
];

/// Where a process of a run that hangs may stand, by words of its calls in lower case, and the checks that look for what can keep
/// it there. The first that fits counts.
pub const PLACES: [(&[&str], &[&str]); 3] = [
    (
        &["init_process_group", "rendezvous", "tcpstore", "store_based_barrier", "init_gloo", "mpi_init"],
        &["reach", "interface", "hostname", "ports"],
    ),
    (&["_try_get_data", "dataloader", "data_loader"], &["disk", "shm"]),
    (
        &[
            "all_reduce",
            "allreduce",
            "all_gather",
            "allgather",
            "reduce_scatter",
            "broadcast",
            "barrier",
            "synchronize",
        ],
        &["reach", "interface", "health", "shm"],
    ),
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

/// The file of the command that the ranks of a run that failed did not find, where nothing was copied to them: `train.py`.
pub fn missing_file(run: &RunState) -> Option<&str> {
    let outcome = run.outcome.as_ref().filter(|outcome| !outcome.is_stopped() && outcome.exit_code() != 0)?;
    let spec = &run.spec;
    if spec.options.sync.is_some() || spec.options.container.is_some() || spec.is_imported() {
        return None;
    }
    let of_root = |rank: Rank| outcome.root.is_none_or(|root| root == rank);
    let lines = run.log.iter().rev().map(|(_, logged)| &logged.line).filter(|line| of_root(line.rank));
    lines.take(LINES).find_map(|line| named_and_missing(&line.text, &spec.command))
}

/// The Python module that the rank which failed first did not find: of `No module named 'a.b'`, `a`.
pub fn missing_module(run: &RunState) -> Option<&str> {
    let outcome = run.outcome.as_ref().filter(|outcome| !outcome.is_stopped() && outcome.exit_code() != 0)?;
    if run.spec.options.container.is_some() || run.spec.is_imported() {
        return None;
    }
    let of_root = |rank: Rank| outcome.root.is_none_or(|root| root == rank);
    let lines = run.log.iter().rev().map(|(_, logged)| &logged.line).filter(|line| of_root(line.rank));
    lines.take(LINES).find_map(|line| module_of(&line.text))
}

/// The rank that failed first of a run that failed, where SIGKILL ended it: its host and its end.
pub fn killed(run: &RunState) -> Option<(&HostId, &RankExit)> {
    let outcome = run.outcome.as_ref().filter(|outcome| !outcome.is_stopped())?;
    let root = outcome.root?.0 as usize;
    let (_, exit) = run.ranks.get(root)?.exit.as_ref()?;
    let place = run.spec.placements.get(root)?;
    (exit.signal == Some(SIGKILL) && !exit.stopped && !run.spec.is_imported()).then_some((&place.host, exit))
}

fn module_of(text: &str) -> Option<&str> {
    let (_, name) = text.split_once("No module named ")?;
    let name = name.trim_start_matches(['\'', '"']);
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    name.get(..end).filter(|name| !name.is_empty())
}

/// What a program says of a file that is not there, directly before or behind its name, in lower case.
const NO_FILE: [&str; 5] =
    ["can't open file", "cannot open", "can't open", "no such file or directory", "not found"];

/// The word of a command that a line says is no file: one that is told by its place in the folder of the launch.
fn named_and_missing<'a>(text: &str, command: &'a [String]) -> Option<&'a str> {
    let lower = text.to_ascii_lowercase();
    let around = |words: &str| {
        let at = lower.find(words)?;
        Some((
            text.get(..at)?.trim_end_matches(MARKS),
            text.get(at + words.len()..)?.trim_start_matches(MARKS),
        ))
    };
    let said: Vec<(&str, &str)> = NO_FILE.iter().filter_map(|words| around(words)).collect();
    let is_file = |word: &&String| {
        let is_told = !word.starts_with(['/', '~', '-']) && !word.contains(['=', ' ']);
        is_told && (word.contains('/') || word.rsplit_once('.').is_some_and(|(name, _)| !name.is_empty()))
    };
    let stands = |word: &&String| {
        let place = word.trim_start_matches("./");
        let ends_with = |text: &str| {
            let before = text.strip_suffix(place)?;
            Some(before.is_empty() || before.ends_with(MARKS) || before.ends_with('/'))
        };
        said.iter().any(|(before, behind)| {
            let next = behind.split(MARKS).next().unwrap_or_default();
            ends_with(before) == Some(true) || ends_with(next) == Some(true)
        })
    };
    command.iter().filter(is_file).find(stands).map(String::as_str)
}

/// What may stand between a name and what is said of it.
const MARKS: [char; 5] = ['\'', '"', ':', ' ', ','];

/// The checks that fit a run that hangs, by where the processes stand that hold the others up: the first of `groups`. None where
/// they stand in code of their own.
pub fn of_hang(groups: &[Alike<'_>]) -> &'static [&'static str] {
    let threads = groups.first().map(|group| &group.threads[..]).unwrap_or_default();
    let Some(main) = threads.first() else { return &[] };
    let is_in = |frame: &Frame, words: &[&str]| {
        let call = format!("{}/{}", frame.file, frame.function).to_lowercase();
        words.iter().any(|word| call.contains(word))
    };
    let fits = |(words, _): &&(&[&str], _)| main.frames.iter().any(|frame| is_in(frame, words));
    PLACES.iter().find(fits).map_or(&[], |(_, checks)| *checks)
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
    use crate::domain::stacks::{ProcessStacks, Taker, alike};

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
        assert_eq!(of("connect [127.0.1.1]:1 -> [172.17.0.1]:2: Connection refused"), ["interface"]);
        assert!(of("loss is nan").is_empty());
    }

    #[test]
    fn the_module_that_was_not_found_is_named() {
        let names = [
            "ModuleNotFoundError: No module named 'apex'",
            "/usr/bin/python3: No module named torch.distributed.run",
        ];
        assert_eq!(names.map(module_of), [Some("apex"), Some("torch")]);
        assert_eq!(module_of("ImportError: No module named \"cv2.data\"; x"), Some("cv2"));
        assert_eq!(["No module named ''", "no module", "No module named "].map(module_of), [None; 3]);
    }

    #[test]
    fn a_file_of_the_command_that_is_not_there_is_named() {
        let command: Vec<String> =
            "python3 -u ./src/train.py --lr=0.1 data.txt x".split(' ').map(String::from).collect();
        let of = |text: &str| named_and_missing(text, &command);
        let python = "python3: can't open file '/root/src/train.py': [Errno 2] No such file or directory";
        assert_eq!(of(python), Some("./src/train.py"));
        assert_eq!(of("bash: ./src/train.py: No such file or directory"), Some("./src/train.py"));
        assert_eq!(of("sh: 0: cannot open src/train.py: No such file"), Some("./src/train.py"));
        assert_eq!(
            of("FileNotFoundError: [Errno 2] No such file or directory: 'data.txt'"),
            Some("data.txt")
        );
        assert_eq!(of("FileNotFoundError: [Errno 2] No such file or directory: 'olddata.txt'"), None);
        assert_eq!(of("reading ./src/train.py"), None);
        assert_eq!(of("sh: 1: ./src/train.py: not found"), Some("./src/train.py"));
        assert_eq!(of("/home/u/src/train.py:88: UserWarning: checkpoint not found, starting afresh"), None);
    }

    #[test]
    fn who_hangs_is_asked_for_what_can_keep_it_there() {
        let of = |frames: &[(&str, &str)]| {
            let frames: Vec<String> = frames
                .iter()
                .map(|(file, function)| format!("  File \"/x/site-packages/{file}\", line 9 in {function}\n"))
                .collect();
            let stacks = [ProcessStacks {
                rank: Rank(0),
                worker: None,
                pid: 7,
                by: Taker::Hooks,
                text: format!("Current thread 0x1 (most recent call first):\n{}", frames.concat()),
                lacks: None,
                standing: None,
            }];
            of_hang(&alike(&stacks)).to_vec()
        };
        let train = ("../me/train.py", "main");
        let store = of(&[
            ("torch/distributed/rendezvous.py", "_create_c10d_store"),
            ("t.py", "init_process_group"),
            train,
        ]);
        assert_eq!(store, ["reach", "interface", "hostname", "ports"]);
        assert_eq!(
            of(&[("torch/distributed/distributed_c10d.py", "all_reduce"), train]),
            ["reach", "interface", "health", "shm"]
        );
        assert_eq!(of(&[("torch/utils/data/dataloader.py", "_get_data"), train]), ["disk", "shm"]);
        assert!(of(&[train]).is_empty(), "its own code");
        assert!(of_hang(&[]).is_empty());
    }
}
