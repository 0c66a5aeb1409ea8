//! What is a launcher's own among the lines of its ranks, and what it says of its end. Pure.

use super::blame::{LEFT, after, error_handlers, is_error_handlers};
use super::engine::Engine;

/// How lines begin that a launcher or its daemon says itself.
const OWN_STARTS: [&str; 4] = ["[mpiexec@", "[proxy:", "srun: ", "slurmstepd: "];
/// What stands in such lines behind a host, a process or a time.
const OWN_NAMES: [&str; 5] =
    ["ORTE_ERROR_LOG", "PRTE ERROR", "PMIX ERROR", "torch.distributed.elastic", "torch/distributed/elastic"];

/// Whether a line is a launcher's or its daemon's own, though it stands in the output of the first rank of a host.
pub fn is_launchers(line: &str) -> bool {
    OWN_STARTS.iter().any(|mark| line.starts_with(mark))
        || OWN_NAMES.iter().any(|mark| line.contains(mark))
        // of torchrun's box
        || line.trim_start().starts_with("error_file: ")
}

/// How the messages begin that a launcher puts between rules, and how torchrun's ends its first line.
const MESSAGES: [&str; 6] = [
    "Primary job  terminated normally",
    "MPI_ABORT was invoked on rank ",
    " detected that one or more processes exited with non-zero status",
    " noticed that process rank ",
    LEFT,
    "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
];
/// What Hydra says behind its message.
const BEHIND_MESSAGE: [&str; 3] = [
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: ",
    "This typically refers to a problem with your application.",
    "Please see the FAQ page for debugging suggestions",
];

/// The lines of one stream of one rank, of which some may be a launcher's message between rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct Messages {
    /// The letter of the rule that ends the message.
    within: Option<char>,
    /// That of the last line, if it was a rule.
    rule: Option<char>,
}

impl Messages {
    /// Whether the next line is of a launcher, its library or such a message.
    pub fn has(&mut self, line: &str) -> bool {
        let (line, last) = (line.trim(), self.rule);
        self.rule = line.chars().next().filter(|_| is_rule(line));
        if let Some(letter) = self.within {
            self.within = Some(letter).filter(|_| self.rule != Some(letter));
            return true;
        }
        let begins = MESSAGES.iter().any(|words| line.contains(words));
        // torchrun rules its box off by other rules within
        let begins = begins || (last == Some('=') && line.ends_with(" FAILED"));
        self.within = last.filter(|_| begins);
        begins
            || is_launchers(line)
            || is_error_handlers(line)
            || BEHIND_MESSAGE.iter().any(|words| line.starts_with(words))
            || line.starts_with("[cli_") && line.contains("]: ")
    }
}

fn is_rule(line: &str) -> bool {
    line.len() >= 20 && (line.chars().all(|letter| letter == '-') || line.chars().all(|letter| letter == '='))
}

/// What to say of a launcher that has ended: the first sentence of its last message, in one line.
pub fn cause(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut blocks: Vec<Vec<&str>> = vec![Vec::new()];
    let mut boxed = false;
    let mut messages: Vec<Vec<&str>> = Vec::new();
    for line in &lines {
        if is_rule(line) {
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
    if let Some(said) = handled(&lines) {
        return Some(said);
    }
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

/// `an error occurred in MPI_Send: MPI_ERR_RANK: invalid rank`, of Open MPI's handler of errors.
fn handled(lines: &[&str]) -> Option<String> {
    let said = |start: &str| {
        lines.iter().find_map(|line| error_handlers(line).filter(|said| said.starts_with(start)))
    };
    let place = said("An error occurred ")?.strip_prefix('A')?;
    let what = said("MPI_ERR_").map_or_else(String::new, |what| format!(": {what}"));
    Some(format!("a{place}{what}"))
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
        None => format!("{name} ended ({how}){WORDLESS}"),
    }
}

const WORDLESS: &str = " without a word";

/// Whether a launcher's end is told by a sentence that has no word of its own.
pub fn is_wordless(sentence: &str) -> bool {
    sentence.ends_with(WORDLESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_launcher_says_itself_is_known_by_its_marks() {
        for line in [
            "[n1:00194] [[6621,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file x.c at line 513",
            "[proxy:0:1@n2] HYD_pmcd_pmip_control_cmd_cb (pmip_cb.c:480): assert (!closed) failed",
            "srun: error: n2: task 1: Killed",
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 3) local_rank: 1 (pid: 7) of binary: x",
            "E1121 14:32:07.310 4711 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1)",
            "  error_file: <N/A>",
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
        assert_eq!(cause(&text).as_deref(), Some(said));
        let text =
            "srun: job 6 queued\nsrun: error: Unable to allocate resources: Requested nodes are busy\n\n";
        assert_eq!(
            cause(text).as_deref(),
            Some("srun: error: Unable to allocate resources: Requested nodes are busy")
        );
        let text = "[mpiexec@n1] match_arg (utils/args/args.c:163): unrecognized argument genvexcl\n\
                    [mpiexec@n1] main (ui/mpich/mpiexec.c:127): error parsing parameters\n";
        assert_eq!(cause(text).as_deref(), Some("unrecognized argument genvexcl"));
        let text = "[mpiexec@hub] Error: Unable to run bstrap_proxy on 10.77.0.11 (pid 3, exit code 256)\n\
                    [mpiexec@hub] poll_for_event (../demux_poll.c:157): check exit codes error\n";
        let said = "Error: Unable to run bstrap_proxy on 10.77.0.11 (pid 3, exit code 256)";
        assert_eq!(cause(text).as_deref(), Some(said));
        assert_eq!(cause("\n \n"), None);
    }

    #[test]
    fn messages_between_rules_are_told_from_what_a_rank_rules_off() {
        let lines = |text: &str| {
            let mut messages = Messages::default();
            let own = text.lines().filter(|line| !messages.has(line) && !is_rule(line));
            own.map(str::to_owned).collect::<Vec<_>>()
        };
        let rule = "-".repeat(74);
        let mpirun = format!(
            "ModuleNotFoundError: No module named 'x'\n{rule}\nPrimary job  terminated normally, but 1 process returned\n\
             a non-zero exit code. Per user-direction, the job has been aborted.\n{rule}\n{rule}\nmpirun.openmpi \
             detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The \
             first process to do so was:\n\n  Process name: [[31699,1],1]\n  Exit code:    3\n{rule}\n\
             [n1:02616] *** End of error message ***\n[cli_1]: readline failed\nsrun: error: n1: task 0: Terminated"
        );
        assert_eq!(lines(&mpirun), ["ModuleNotFoundError: No module named 'x'"]);
        let (wide, thin) = ("=".repeat(60), "-".repeat(60));
        let torchrun = format!(
            "ValueError: no labels\n{wide}\ntrain.py FAILED\n{thin}\nFailures:\n  <NO_OTHER_FAILURES>\n{thin}\nRoot Cause \
             (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 3 (pid: 7)\n  error_file: <N/A>\n  \
             traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n{wide}\nbye"
        );
        assert_eq!(lines(&torchrun), ["ValueError: no labels", "bye"]);
        let wide = "=".repeat(83);
        let hydra = format!(
            "x\n{wide}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 6006 RUNNING AT vm\n=   EXIT CODE: 11\n\
             {wide}\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)\nThis typically refers to a \
             problem with your application.\nPlease see the FAQ page for debugging suggestions"
        );
        assert_eq!(lines(&hydra), ["x"]);
        assert_eq!(lines(&format!("{rule}\nepoch 3\n{rule}\nloss 1")), ["epoch 3", "loss 1"]);
    }
}
