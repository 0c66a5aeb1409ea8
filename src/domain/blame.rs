//! What a launcher's own words say of how its ranks ended, and what it has lost itself. Pure.

/// A rank that a launcher names, and how it says that it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blamed {
    /// The rank.
    pub rank: u32,
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What else is said of its end.
    pub cause: Option<&'static str>,
}

/// What srun says of a task that the kernel has ended for want of memory.
const OUT_OF_MEMORY: &str = "Out Of Memory";
/// How such an end is told.
const OF_MEMORY: &str = "out of memory";
/// The words that `strsignal` has for signals, as srun prints them.
const SIGNALS: [(&str, i32); 10] = [
    (OUT_OF_MEMORY, 9),
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

/// How mpirun says that a rank has ended without `MPI_Finalize`, and why the rank is to blame.
pub(super) const LEFT: &str = "has exited due to process rank ";
const UNFINALIZED: &str = "it ended without MPI_Finalize";

/// The ranks that failed by a launcher's words, each once, in the order in which they are named. Of one that is named without more,
/// neither code nor signal is known.
pub fn blamed(text: &str) -> Vec<Blamed> {
    let mut found: Vec<Blamed> = Vec::new();
    let mut named: Option<u32> = None;
    for line in text.lines() {
        let line = line.trim();
        let mut ranks = Vec::new();
        let mut how = (None, None);
        let mut cause = None;
        // its name alone says that it failed
        let mut is_bare = false;
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
                cause = what.starts_with(OUT_OF_MEMORY).then_some(OF_MEMORY);
            }
        } else if let Some(rest) = after(line, "noticed that process rank ") {
            // mpirun
            ranks.extend(first_number::<u32>(rest));
            how = (None, first_number_of(after(rest, "exited on signal ")));
        } else if let Some(rest) = after(line, LEFT) {
            ranks.extend(first_number::<u32>(rest));
            (is_bare, cause) = (true, Some(UNFINALIZED));
        } else if let Some(rank) = reporter(line) {
            ranks.push(rank);
            is_bare = true;
        } else if let Some(rest) = after(line, "MPI_ABORT was invoked on rank ") {
            // of another communicator it is another number
            named = first_number(rest).filter(|_| rest.contains(" MPI_COMM_WORLD"));
        } else if let Some(rest) = line.strip_prefix("with errorcode ") {
            ranks.extend(named.take());
            how = (low_byte(rest), None);
        } else if let Some((rank, code)) = abort(line) {
            ranks.extend(rank);
            how = (Some(code), None);
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
        if !is_bare && matches!(how, (None | Some(0), None)) {
            continue;
        }
        for rank in ranks {
            match found.iter_mut().find(|one| one.rank == rank) {
                Some(one) if (one.code, one.signal) == (None, None) => (one.code, one.signal) = how,
                Some(_) => {}
                None => found.push(Blamed { rank, code: how.0, signal: how.1, cause }),
            }
        }
    }
    found
}

/// The rank that Open MPI's handler of errors tells of: `[n2:79] *** reported by process [2079981569,1]`.
pub fn reporter(line: &str) -> Option<u32> {
    let process = error_handlers(line)?.strip_prefix("reported by process [")?;
    first_number(process.split_once(',')?.1)
}

/// Whether a line is of Open MPI's handler of errors, which speaks for a rank: mpirun prints it where the rank is on another host.
pub fn is_error_handlers(line: &str) -> bool {
    error_handlers(line).is_some()
}

/// What stands behind `[n2:00079] *** `.
pub(super) fn error_handlers(line: &str) -> Option<&str> {
    let (process, said) = line.trim().strip_prefix('[')?.split_once("] *** ")?;
    let (_, pid) = process.rsplit_once(':')?;
    (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then_some(said)
}

/// Whether a line in a rank's output tells that the rank is the cause, as its MPI library says before it ends.
pub fn tells_of_end(line: &str) -> bool {
    // what ends by stars too is of its handler of signals
    abort(line).is_some() || error_handlers(line).is_some_and(|said| !said.ends_with("***"))
}

/// The exit code of a rank of MPICH or Intel MPI that has called `MPI_Abort`, by its own last words:
/// `Abort(3) on node 2 (rank 2 in comm 0): application called MPI_Abort`.
pub fn aborted(text: &str) -> Option<i32> {
    text.lines().filter_map(abort).next_back().map(|(_, code)| code).filter(|code| *code != 0)
}

/// The rank where it is known, and the code, of a line that says so.
fn abort(line: &str) -> Option<(Option<u32>, i32)> {
    let (number, rest) = line.strip_prefix("Abort(")?.split_once(')')?;
    let rank = match rest.strip_prefix(" on node ") {
        Some(node) => Some(first_number(node)?),
        None => None,
    };
    (rank.is_some() || rest.starts_with(": ")).then_some((rank, low_byte(number)?))
}

/// Whether a launcher's words tell of a rank that failed: then it ended because of that, not by itself.
pub fn names_a_rank(text: &str) -> bool {
    !blamed(text).is_empty()
        || [
            "returned\na non-zero exit code",
            "exited with non-zero status",
            "MPI_ABORT was invoked",
            "BAD TERMINATION",
            "exiting without calling \"finalize\"",
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

/// What is said of a rank that failed by itself after another one that its launcher named.
pub const LATER: &str = "its launcher told of another rank first";

/// How the end is told of a rank that its launcher has ended without a stop of the run.
pub const BY_LAUNCHER: &str = "its launcher ended it";

/// Whether that is the cause of a rank's end.
pub fn is_by_launcher(cause: &str) -> bool {
    cause == BY_LAUNCHER
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

pub(super) fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.find(mark).and_then(|at| text.get(at + mark.len()..))
}

fn first_number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

fn first_number_of<N: std::str::FromStr>(text: Option<&str>) -> Option<N> {
    first_number(text?)
}

/// What a process ends with that is told to end with this number.
fn low_byte(text: &str) -> Option<i32> {
    let end = text.find(|letter: char| letter != '-' && !letter.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse::<i64>().ok().map(|code| (code & 0xff) as i32)
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
    use crate::domain::launcher_words;

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
        let abort = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode -1.\n";
        assert_eq!(of(abort), [(1, Some(255), None)]);
        let split = "MPI_ABORT was invoked on rank 0 in communicator MPI COMMUNICATOR 3 SPLIT FROM 0\nwith errorcode 4.";
        assert_eq!(of(split), []);
        let mpich = "Abort(3) on node 1 (rank 0 in comm 496): application called MPI_Abort(comm=0x84000002, 3) - process 0";
        assert_eq!(of(mpich), [(1, Some(3), None)]);
        for none in ["Process 1 started", "rank 1: Exit code: 3", "Exit code: 3", "srun: job 6 queued"] {
            assert_eq!(of(none), [], "{none}");
        }
    }

    const HANDLER: &str = "[n2:00079] *** An error occurred in MPI_Send\n\
                           [n2:00079] *** reported by process [2079981569,1]\n\
                           [n2:00079] *** on communicator MPI_COMM_WORLD\n\
                           [n2:00079] *** MPI_ERR_RANK: invalid rank\n\
                           [n2:00079] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n\
                           [n2:00079] ***    and potentially your MPI job)\n";

    #[test]
    fn open_mpis_handler_of_errors_names_the_rank_for_which_it_speaks() {
        assert_eq!(of(HANDLER), [(1, None, None)]);
        assert!(names_a_rank(HANDLER));
        let words = launcher_words::cause(HANDLER);
        assert_eq!(words.as_deref(), Some("an error occurred in MPI_Send: MPI_ERR_RANK: invalid rank"));
        assert_eq!(HANDLER.lines().find_map(reporter), Some(1));
        assert!(HANDLER.lines().all(|line| is_error_handlers(line) && tells_of_end(line)));
        for line in ["[n1:02616] *** Process received signal ***", "[n1:02616] *** End of error message ***"]
        {
            assert!(is_error_handlers(line) && !tells_of_end(line), "{line}");
        }
        for line in ["[rank1] *** a line", "*** reported by process [1,1]", "[10:42:07] ** x"] {
            assert!(!is_error_handlers(line), "{line}");
        }
        // a code that comes later is its own
        let later = format!("{HANDLER}  Process name: [[31739,1],1]\n  Exit code:    6\n");
        assert_eq!(of(&later), [(1, Some(6), None)]);
    }

    #[test]
    fn a_rank_that_ended_without_mpi_finalize_is_named() {
        let said = "mpirun.openmpi has exited due to process rank 1 with PID 0 on\n\
                    node vm exiting improperly. There are three reasons this could occur:\n";
        let found = blamed(said);
        assert_eq!((of(said), found[0].cause), (vec![(1, None, None)], Some(UNFINALIZED)));
        assert!(names_a_rank(said));
    }

    #[test]
    fn a_task_that_the_kernel_ended_for_want_of_memory_is_named() {
        let said = "srun: error: n2: task 1: Out Of Memory\nsrun: error: n1: task 0: Terminated";
        assert_eq!(of(said), [(1, None, Some(9)), (0, None, Some(15))]);
        assert_eq!(
            blamed(said).iter().map(|one| one.cause).collect::<Vec<_>>(),
            [Some("out of memory"), None]
        );
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
}
