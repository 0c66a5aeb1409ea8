//! What a launcher's own words say of how its ranks ended, and of itself. Pure.

use super::engine::Engine;

/// A rank that a launcher names, and how it says that it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blamed {
    /// The rank.
    pub rank: u32,
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// The words that `strsignal` has for signals, as srun prints them.
const SIGNALS: [(&str, i32); 9] = [
    ("Hangup", 1),
    ("Interrupt", 2),
    ("Illegal instruction", 4),
    ("Aborted", 6),
    ("Bus error", 7),
    ("Floating point exception", 8),
    ("Killed", 9),
    ("Segmentation fault", 11),
    ("Terminated", 15),
];

/// The ranks that failed by a launcher's words, each once, in the order in which they are named.
pub fn blamed(text: &str) -> Vec<Blamed> {
    let mut found: Vec<Blamed> = Vec::new();
    let mut named: Option<u32> = None;
    for line in text.lines() {
        let line = line.trim();
        let mut ranks = Vec::new();
        let mut how = (None, None);
        if let Some(rest) =
            line.strip_prefix("Process ").filter(|rest| rest.contains(" exit with status code "))
        {
            // horovodrun
            ranks.extend(first_number::<u32>(rest));
            how = signed(after(rest, "status code "));
        } else if let Some(rest) = line.strip_prefix("srun: error: ") {
            if let Some((tasks, what)) = after(rest, ": task").and_then(|rest| rest.split_once(": ")) {
                ranks = numbers(tasks.trim_start_matches('s'));
                let signal =
                    SIGNALS.iter().find(|(word, _)| what.starts_with(word)).map(|(_, signal)| *signal);
                how = (first_number_of(after(what, "exit code ")), signal);
            }
        } else if let Some(rest) = after(line, "noticed that process rank ") {
            // mpirun
            ranks.extend(first_number::<u32>(rest));
            how = (None, first_number_of(after(rest, "exited on signal ")));
        } else if let Some(rest) = after(line, "MPI_ABORT was invoked on rank ") {
            named = first_number(rest);
        } else if let Some(rest) = line.strip_prefix("with errorcode ") {
            ranks.extend(named.take());
            how = (first_number(rest), None);
        } else if let Some(rest) = line.strip_prefix("Process name: ") {
            // `[[8920,1],3]` of mpirun, `3` of horovodrun
            let name = rest.trim_end_matches(']').rsplit(',').next().unwrap_or(rest);
            named = first_number(name);
        } else if let Some(rest) = line.strip_prefix("rank ").filter(|rest| rest.contains("(local_rank: ")) {
            // torchrun
            named = first_number_of(after(rest, ": "));
        } else if let Some(rest) = line.strip_prefix("Exit code: ").or_else(|| line.strip_prefix("exitcode "))
        {
            ranks.extend(named.take());
            how = signed(Some(rest.trim_start_matches([' ', ':'])));
        }
        if how == (None, None) || how == (Some(0), None) {
            continue;
        }
        for rank in ranks {
            if !found.iter().any(|one| one.rank == rank) {
                found.push(Blamed { rank, code: how.0, signal: how.1 });
            }
        }
    }
    found
}

/// The exit code of a rank of MPICH or Intel MPI that has called `MPI_Abort`, by its own last words:
/// `Abort(3) on node 2 (rank 2 in comm 0): application called MPI_Abort`.
pub fn aborted(text: &str) -> Option<i32> {
    let mut codes = text.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("Abort(")?.split_once(')')?;
        let code = number.parse::<i64>().ok()?;
        (rest.starts_with(" on node ") || rest.starts_with(": ")).then_some((code & 0xff) as i32)
    });
    codes.next_back().filter(|code| *code != 0)
}

/// Whether a launcher's words tell of a rank that failed: then it ended because of that, not by itself.
pub fn names_a_rank(text: &str) -> bool {
    !blamed(text).is_empty()
        || [
            "returned\na non-zero exit code",
            "exited with non-zero status",
            "MPI_ABORT was invoked",
            "BAD TERMINATION",
        ]
        .iter()
        .any(|words| text.contains(words))
}

/// What is said of a launcher that tells that a rank has failed, and not which one.
const UNNAMED: &str = ": which rank, it does not say";

/// The launcher's words, with that it names no rank.
pub fn unnamed(words: &str) -> String {
    format!("{words}{UNNAMED}")
}

/// Whether a cause is a failure of a rank that its launcher does not name.
pub fn is_unnamed(cause: &str) -> bool {
    cause.ends_with(UNNAMED)
}

/// How a launcher says that it has lost one of its daemons, or the way to it.
const LOSSES: [&str; 3] = [
    "lost communication with",
    "daemon has unexpectedly failed",
    "unable to reliably start one or more daemons",
];

/// Whether a launcher's words tell of what it has lost itself before they tell of a rank that failed: after that it ends its
/// daemons, and may take the end of one for a loss.
pub fn names_a_loss(text: &str) -> bool {
    let loss = LOSSES.iter().filter_map(|words| text.find(words)).min();
    loss.is_some_and(|at| !text.get(..at).is_some_and(names_a_rank))
}

/// How lines begin that a launcher or its daemon says itself.
const OWN_STARTS: [&str; 4] = ["[mpiexec@", "[proxy:", "srun: ", "slurmstepd: "];
/// What stands in such lines behind a host, a process or a time.
const OWN_NAMES: [&str; 5] =
    ["ORTE_ERROR_LOG", "PRTE ERROR", "PMIX ERROR", "torch.distributed.elastic", "torch/distributed/elastic"];

/// Whether a line is a launcher's or its daemon's own, though it stands in the output of the first rank of a host.
pub fn is_launchers(line: &str) -> bool {
    OWN_STARTS.iter().any(|mark| line.starts_with(mark)) || OWN_NAMES.iter().any(|mark| line.contains(mark))
}

/// What to say of a launcher that has ended: the first sentence of its last message, in one line.
pub fn words(text: &str) -> Option<String> {
    let ruled = |line: &str| line.len() >= 20 && line.chars().all(|letter| letter == '-' || letter == '=');
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut blocks: Vec<Vec<&str>> = vec![Vec::new()];
    let mut boxed = false;
    let mut messages: Vec<Vec<&str>> = Vec::new();
    for line in &lines {
        if ruled(line) {
            let block = blocks.pop().unwrap_or_default();
            if boxed && block.iter().any(|line| !line.is_empty()) {
                messages.push(block);
            }
            boxed = !boxed;
            blocks = vec![Vec::new()];
        } else if let Some(block) = blocks.last_mut() {
            block.push(line);
        }
    }
    // mpirun puts its messages between rules: the first tells the cause. Others say it in their last line.
    let paragraph: Vec<&str> = match messages.first() {
        Some(message) => {
            let text = message.iter().map(|line| line.trim()).skip_while(|line| line.is_empty());
            text.take_while(|line| !line.is_empty()).collect()
        }
        None => match lines.iter().find_map(|line| hydra(line.trim())) {
            Some(said) => vec![said],
            None => {
                lines.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty()).into_iter().collect()
            }
        },
    };
    let said = paragraph.join(" ");
    let said = said.trim_end_matches([':', '.', ' ']);
    (!said.is_empty()).then(|| said.chars().take(400).collect())
}

/// `[mpiexec@n1] match_arg (utils/args/args.c:163): unrecognized argument x`: the first such line tells the cause, those
/// after it the way back through Hydra's functions.
fn hydra(line: &str) -> Option<&str> {
    let said = after(line.strip_prefix("[mpiexec@")?, "] ")?;
    Some(match said.split_once("): ") {
        Some((place, said)) if place.contains(" (") && place.contains(".c:") => said,
        _ => said,
    })
}

/// `mpirun: There are not enough slots …`, once.
pub fn sentence(engine: &Engine, said: Option<&str>, how: &str) -> String {
    let name = engine.name();
    match said {
        Some(said) if said.starts_with(&format!("{name}: ")) || said.starts_with("hvtui: ") => {
            said.to_owned()
        }
        Some(said) => format!("{name}: {said}"),
        None => format!("{name} ended ({how}) without a word"),
    }
}

fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.find(mark).and_then(|at| text.get(at + mark.len()..))
}

fn first_number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

fn first_number_of<N: std::str::FromStr>(text: Option<&str>) -> Option<N> {
    first_number(text?)
}

/// An exit code, or the signal of a negative one, as Python tells it.
fn signed(text: Option<&str>) -> (Option<i32>, Option<i32>) {
    match text {
        Some(text) => match text.strip_prefix('-') {
            Some(signal) => (None, first_number(signal)),
            None => (first_number(text), None),
        },
        None => (None, None),
    }
}

/// `1`, ` 0-1`, `0,2-3`: the numbers, of a range not more than a large run has.
fn numbers(text: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<u32>(), to.trim().parse::<u32>()) {
            all.extend((from..=to).take(65_536));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(u32, Option<i32>, Option<i32>)> {
        blamed(text).into_iter().map(|one| (one.rank, one.code, one.signal)).collect()
    }

    #[test]
    fn each_launcher_names_the_rank_that_failed_in_its_own_words() {
        assert_eq!(
            of("Process 1 exit with status code 3.\nProcess 0 exit with status code 143."),
            [(1, Some(3), None), (0, Some(143), None)]
        );
        assert_eq!(of("srun: error: n2: task 1: Exited with exit code 3"), [(1, Some(3), None)]);
        assert_eq!(
            of("srun: error: vm: tasks 0-1: Exited with exit code 3\nsrun: error: n2: task 1: Killed"),
            [(0, Some(3), None), (1, Some(3), None)]
        );
        assert_eq!(of("srun: error: n2: task 1: Killed"), [(1, None, Some(9))]);
        let noticed =
            "mpirun noticed that process rank 1 with PID 20456 on node n2 exited on signal 9 (Killed).";
        assert_eq!(of(noticed), [(1, None, Some(9))]);
        let torch = "[0]:\n  time      : x\n  rank      : 5 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n";
        assert_eq!(of(torch), [(5, None, Some(9))]);
        assert_eq!(of("  Process name: [[8920,1],3]\n  Exit code:    7\n"), [(3, Some(7), None)]);
        let abort = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 4.\n";
        assert_eq!(of(abort), [(2, Some(4), None)]);
        for none in ["Process 1 started", "rank 1: Exit code: 3", "Exit code: 3", "srun: job 6 queued"] {
            assert_eq!(of(none), [], "{none}");
        }
    }

    #[test]
    fn a_rank_that_aborts_says_its_code() {
        let text = "x\nAbort(259) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 259)\n\
                    [cli_2]: readline failed\n";
        assert_eq!(aborted(text), Some(3));
        assert_eq!(aborted("Abort(605670927): Fatal error in internal_Init: Other MPI error\n"), Some(15));
        for none in ["Abort(x) on node 1", "I said Abort(3) on node 1", "Abort(3)", "Abort(256): x"] {
            assert_eq!(aborted(none), None, "{none}");
        }
    }

    #[test]
    fn what_a_launcher_has_lost_is_no_ranks_failure() {
        let text =
            "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[8920,0],0] on node n1\n";
        assert!(names_a_loss(text) && !names_a_rank(text));
        let text = "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction";
        assert!(names_a_rank(text) && !names_a_loss(text));
        // the end of a daemon that it has told to end
        let lost = "ORTE has lost communication with a remote daemon.\n";
        assert!(!names_a_loss(&format!("{text}\n{lost}")) && names_a_loss(&format!("{lost}{text}")));
    }

    #[test]
    fn what_a_launcher_says_itself_is_known_by_its_marks() {
        for line in [
            "[n1:00194] [[6621,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file x.c at line 513",
            "[proxy:0:1@n2] HYD_pmcd_pmip_control_cmd_cb (pmip_cb.c:480): assert (!closed) failed",
            "srun: error: n2: task 1: Killed",
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 3) local_rank: 1 (pid: 7) of binary: x",
            "E1121 14:32:07.310 4711 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1)",
        ] {
            assert!(is_launchers(line), "{line}");
        }
        for line in [
            "RuntimeError: out of memory",
            "RuntimeError: srun: command not found",
            "[n1:00194] *** An error occurred in MPI_Send",
        ] {
            assert!(!is_launchers(line), "{line}");
        }
    }

    #[test]
    fn the_cause_is_the_first_sentence_of_mpiruns_first_message() {
        let rule = "-".repeat(74);
        let text = format!(
            "{rule}\nThere are not enough slots available in the system to satisfy the 3\nslots that were requested \
             by the application:\n\n  hostname\n\nEither …\n{rule}\n{rule}\nmore\n{rule}\n"
        );
        let said = "There are not enough slots available in the system to satisfy the 3 slots that were requested by \
                    the application";
        assert_eq!(words(&text).as_deref(), Some(said));
        let text =
            "srun: job 6 queued\nsrun: error: Unable to allocate resources: Requested nodes are busy\n\n";
        assert_eq!(
            words(text).as_deref(),
            Some("srun: error: Unable to allocate resources: Requested nodes are busy")
        );
        let text = "[mpiexec@n1] match_arg (utils/args/args.c:163): unrecognized argument genvexcl\n\
                    [mpiexec@n1] main (ui/mpich/mpiexec.c:127): error parsing parameters\n";
        assert_eq!(words(text).as_deref(), Some("unrecognized argument genvexcl"));
        let text = "[mpiexec@hub] Error: Unable to run bstrap_proxy on 10.77.0.11 (pid 3, exit code 256)\n\
                    [mpiexec@hub] poll_for_event (../demux_poll.c:157): check exit codes error\n";
        let said = "Error: Unable to run bstrap_proxy on 10.77.0.11 (pid 3, exit code 256)";
        assert_eq!(words(text).as_deref(), Some(said));
        assert_eq!(words("\n \n"), None);
    }
}
