//! Where the threads of a rank's process are: stacks as a process or a tool wrote them, read and put side by side.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::standstill::StalledPhase;

/// Threads of one process that are read; a program with more shows its first ones.
const THREADS: usize = 256;
/// Frames of one thread that are read; `faulthandler` itself writes a hundred.
const FRAMES: usize = 200;

/// The frames of hvtui's own hooks are left out: they tell nothing of the program.
const HOOKS: &str = "hvtui_report.py";

/// A line of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CodeLine {
    /// The file's name without its folders.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
}

impl fmt::Display for CodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Who took a process's stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Taker {
    /// Python's `faulthandler`, which hvtui's hooks have told to answer a signal.
    Hooks,
    /// `py-spy`, from outside.
    PySpy,
    /// None: all that is known is what the kernel tells of the process.
    Kernel,
}

/// What one process of a run was doing when it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStacks {
    /// The rank.
    pub rank: Rank,
    /// The process within it that is not the rank itself, by its number in the training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// Its process id on its host.
    pub pid: u32,
    /// Who took the stacks.
    pub by: Taker,
    /// The stacks as they were written; with [`Taker::Kernel`] a sentence on the process.
    pub text: String,
    /// Why there is no more than that, and what would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// The phase of its step, where the hooks say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<StalledPhase>,
}

/// One call that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function's name.
    pub function: String,
    /// The file, from the folder of packages on where it lies in one.
    pub file: String,
    /// The line that is being executed, counted from 1.
    pub line: u32,
    /// Whether the file is one of a package or of Python itself.
    pub is_library: bool,
}

impl Frame {
    fn new(function: &str, path: &str, line: u32) -> Self {
        let (file, is_library) = short_path(path);
        Self { function: function.to_owned(), file, line, is_library }
    }

    /// `train.py:57`, or the file alone where no line is known.
    pub fn place(&self) -> String {
        if self.line == 0 { self.file.clone() } else { format!("{}:{}", self.file, self.line) }
    }
}

/// A thread of a process, the innermost call first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thread {
    /// What it is called: `main`, or what was written of it.
    pub name: String,
    /// Its calls, the innermost first.
    pub frames: Vec<Frame>,
}

/// The threads of a process, the main one first, of what `faulthandler` or `py-spy dump` has written. What is no frame
/// is passed over.
pub fn threads(text: &str) -> Vec<Thread> {
    let mut found: Vec<Thread> = Vec::new();
    let mut in_python = false;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        let head = line.trim();
        if !indented && ["Thread ", "Current thread ", "Stack "].iter().any(|word| head.starts_with(word)) {
            // a newer faulthandler writes what the C library's threads do, too
            in_python = found.len() < THREADS && !head.contains("C stack");
            if in_python {
                found.push(Thread { name: name_of(head), frames: Vec::new() });
            }
        } else if indented
            && in_python
            && let Some(thread) = found.last_mut().filter(|thread| thread.frames.len() < FRAMES)
            && let Some(frame) = frame(head).filter(|frame| frame.file != HOOKS)
        {
            thread.frames.push(frame);
        } else if !indented && !head.is_empty() {
            in_python = false;
        }
    }
    // py-spy names it; faulthandler lists the newest thread first, so that the main one is the last
    let named = found.iter().position(|thread| thread.name == "MainThread");
    if let Some(main) = named.or_else(|| found.len().checked_sub(1)) {
        found[..=main].rotate_right(1);
        "main".clone_into(&mut found[0].name);
    }
    found
}

/// `Thread 0x00007f (most recent call first):`, `Thread 42 (idle): "MainThread"`.
fn name_of(head: &str) -> String {
    if let Some((_, rest)) = head.split_once('"')
        && let Some((name, _)) = rest.rsplit_once('"')
    {
        return name.to_owned();
    }
    let rest =
        head.trim_start_matches("Current ").trim_start_matches("thread ").trim_start_matches("Thread ");
    match rest.split_once('[').and_then(|(_, name)| name.split_once(']')) {
        Some((name, _)) => name.to_owned(),
        None => rest.split(' ').next().unwrap_or_default().to_owned(),
    }
}

/// `File "/x/train.py", line 57 in main` or `main (x/train.py:57)`.
fn frame(text: &str) -> Option<Frame> {
    if let Some(rest) = text.strip_prefix("File \"") {
        let (file, rest) = rest.rsplit_once("\", line ")?;
        let (line, function) = rest.split_once(" in ")?;
        return Some(Frame::new(function, file, line.parse().unwrap_or(0)));
    }
    let (function, place) = text.strip_suffix(')')?.rsplit_once(" (")?;
    // of what is not Python it has no line
    let (file, line) = match place.rsplit_once(':') {
        Some((file, line)) if line.parse::<u32>().is_ok() => (file, line.parse().unwrap_or(0)),
        _ => (place, 0),
    };
    Some(Frame::new(function, file, line))
}

/// A path from the folder of packages on, and that it lies in one; the name alone of a file of the person's own.
fn short_path(path: &str) -> (String, bool) {
    if !path.starts_with('/') {
        // py-spy has shortened it already
        return (
            path.to_owned(),
            path.starts_with('<') || LIBRARIES.iter().any(|begin| path.starts_with(begin)),
        );
    }
    for folder in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, rest)) = path.rsplit_once(folder) {
            return (rest.to_owned(), true);
        }
    }
    let in_library = path.match_indices("/python3.").find_map(|(at, _)| path[at + 1..].split_once('/'));
    match in_library {
        Some((_, rest)) => (rest.to_owned(), true),
        None => (path.rsplit('/').next().unwrap_or(path).to_owned(), false),
    }
}

/// What calls a script from outside, as py-spy names it: `python -m`, and what starts processes in Python.
const LIBRARIES: [&str; 4] = ["runpy.py", "multiprocessing/", "torch/", "concurrent/"];

/// The line of the person's script that a thread is in: the innermost of the file that their outermost call is in. A process that
/// Python's `multiprocessing` has started begins in that.
pub fn script_line(thread: &Thread) -> Option<CodeLine> {
    let own = |frame: &&Frame| !frame.is_library;
    let script = &thread.frames.iter().rfind(own)?.file;
    let innermost = thread.frames.iter().find(|frame| frame.file == *script)?;
    let file = script.rsplit('/').next().unwrap_or(script).to_owned();
    Some(CodeLine { file, line: innermost.line })
}

/// Processes that are at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alike<'a> {
    /// Who, in the order of ranks.
    pub of: Vec<&'a ProcessStacks>,
    /// Their threads, the main one first; of the first of them where they differ in others than that.
    pub threads: Vec<Thread>,
}

/// Puts together the processes whose main threads stand at the same place: those first that hold the others up.
pub fn alike(stacks: &[ProcessStacks]) -> Vec<Alike<'_>> {
    let mut sorted: Vec<&ProcessStacks> = stacks.iter().collect();
    sorted.sort_by_key(|one| (one.rank, one.worker));
    let mut groups: Vec<Alike<'_>> = Vec::new();
    for one in sorted {
        let threads = if one.by == Taker::Kernel { Vec::new() } else { threads(&one.text) };
        let same = |group: &&mut Alike<'_>| {
            let first = group.of[0];
            first.by == one.by
                && first.lacks == one.lacks
                && group.threads.first().map(|thread| &thread.frames)
                    == threads.first().map(|thread| &thread.frames)
                && (!threads.is_empty() || first.text == one.text)
                && phase_of(first) == phase_of(one)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.of.push(one),
            None => groups.push(Alike { of: vec![one], threads }),
        }
    }
    groups.sort_by_key(|group| group.of[0].standing.as_ref().map_or(u8::MAX, StalledPhase::place));
    groups
}

fn phase_of(one: &ProcessStacks) -> Option<(super::timing::Phase, u64, bool)> {
    one.standing.as_ref().map(|standing| (standing.phase, standing.step, standing.stopped))
}

impl Alike<'_> {
    /// `rank 1`, `ranks 0, 2-7`, `rank 0·3`.
    pub fn who(&self) -> String {
        let workers: Vec<String> =
            self.of.iter().filter_map(|one| Some(format!("{}·{}", one.rank, one.worker?))).collect();
        let ranks =
            super::units::ranges(self.of.iter().filter(|one| one.worker.is_none()).map(|one| one.rank.0));
        let names: Vec<String> =
            Some(ranks).filter(|ranks| !ranks.is_empty()).into_iter().chain(workers).collect();
        format!("{} {}", if self.of.len() == 1 { "rank" } else { "ranks" }, names.join(", "))
    }

    /// `in backward of step 57 for 2.1 s`: of those that stand for the longest.
    pub fn phase(&self) -> Option<String> {
        let longest = self.of.iter().filter_map(|one| one.standing.as_ref()).max_by_key(|one| one.for_us)?;
        Some(longest.words_of_step())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::timing::Phase;

    const FAULTHANDLER: &str = "\
Thread 0x00007f1 (most recent call first):
  File \"/usr/lib/python3.11/threading.py\", line 320 in wait
  File \"/home/me/train.py\", line 3 in watch

Current thread 0x00007f2 (most recent call first):
  File \"/home/me/v/lib/python3.11/site-packages/torch/_tensor.py\", line 487 in backward
  File \"/home/me/.local/state/hvtui/python/ab/hvtui_report.py\", line 894 in backward
  File \"/home/me/train.py\", line 57 in main
  File \"/home/me/train.py\", line 80 in <module>
";

    #[test]
    fn what_faulthandler_writes_is_read_with_the_main_thread_first() {
        let found = threads(FAULTHANDLER);
        let names: Vec<&str> = found.iter().map(|thread| thread.name.as_str()).collect();
        assert_eq!(names, ["main", "0x00007f1"]);
        let places: Vec<String> = found[0].frames.iter().map(Frame::place).collect();
        assert_eq!(places, ["torch/_tensor.py:487", "train.py:57", "train.py:80"]);
        assert_eq!(found[1].frames[0].place(), "threading.py:320");
        assert_eq!(script_line(&found[0]).unwrap().to_string(), "train.py:57");
    }

    #[test]
    fn of_a_process_that_multiprocessing_has_started_the_line_of_the_script_is_told() {
        let text = "\
Current thread 0x00007f2 (most recent call first):
  File \"/home/me/spawned.py\", line 18 in validate
  File \"/home/me/spawned.py\", line 36 in train
  File \"/usr/lib/python3/dist-packages/torch/multiprocessing/spawn.py\", line 69 in _wrap
  File \"/usr/lib/python3.11/multiprocessing/process.py\", line 108 in run
  File \"/usr/lib/python3.11/multiprocessing/spawn.py\", line 133 in _main
  File \"<string>\", line 1 in <module>
";
        assert_eq!(script_line(&threads(text)[0]).unwrap().to_string(), "spawned.py:18");
    }

    #[test]
    fn the_stack_of_one_thread_is_that_of_the_main_one() {
        let text = "\
Stack (most recent call first):
  File \"/home/me/train.py\", line 57 in main
  File \"/home/me/train.py\", line 80 in <module>
";
        let found = threads(text);
        assert_eq!((found.len(), found[0].name.as_str(), found[0].frames.len()), (1, "main", 2));
    }

    #[test]
    fn what_a_newer_faulthandler_writes_beside_is_passed_over() {
        let text = "\
Current thread 0x7f [python] (most recent call first):
  File \"/x/lib/python3.14/multiprocessing/connection.py\", line 5 in poll
  File \"/x/a \\\"b.py\", line ??? in main
  File \"<frozen runpy>\", line 88 in _run_code
  ...

Current thread's C stack trace (most recent call first):
  Binary file \"/usr/bin/python3\", at _Py_DumpStack+0x4f [0x52]
  File \"/not/python.c\", line 9 in f
  <truncated rest of calls>
Extension modules: numpy (total: 1)
";
        let found = threads(text);
        assert_eq!(found.len(), 1);
        let places: Vec<String> = found[0].frames.iter().map(Frame::place).collect();
        assert_eq!(places, ["multiprocessing/connection.py:5", "a \\\"b.py", "<frozen runpy>:88"]);
        assert_eq!(script_line(&found[0]).unwrap().to_string(), "a \\\"b.py:0");
        assert_eq!(threads("Thread 1 (most recent call first):\n  <no Python frame>\n")[0].frames, []);
        assert_eq!(threads(""), []);
    }

    #[test]
    fn what_py_spy_writes_is_read() {
        let text = "\
Process 42: /usr/bin/python3 train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 42 (idle): \"MainThread\"
    wait (torch/distributed/distributed_c10d.py:77)
    c10d::Reducer::finalize_backward (libtorch_cpu.so)
    main (train.py:57)
Thread 43 (active): \"Thread (1)\"
    run (threading.py:9)
";
        let found = threads(text);
        assert_eq!(
            found.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>(),
            ["main", "Thread (1)"]
        );
        let places: Vec<String> = found[0].frames.iter().map(Frame::place).collect();
        assert_eq!(places, ["torch/distributed/distributed_c10d.py:77", "libtorch_cpu.so", "train.py:57"]);
    }

    #[test]
    fn ranks_at_the_same_place_stand_together_and_who_waits_stands_last() {
        let at = |rank, line: u32, phase| ProcessStacks {
            rank: Rank(rank),
            worker: None,
            pid: 100 + rank,
            by: Taker::Hooks,
            text: FAULTHANDLER.replace("line 57", &format!("line {line}")),
            lacks: None,
            standing: Some(StalledPhase {
                phase,
                step: 8,
                for_us: 2_000_000 + u64::from(rank),
                stopped: false,
                at: None,
            }),
        };
        let stacks = [
            at(3, 57, Phase::Wait),
            at(0, 57, Phase::Wait),
            at(1, 60, Phase::Backward),
            at(2, 57, Phase::Wait),
        ];
        let groups = alike(&stacks);
        let who: Vec<String> = groups.iter().map(Alike::who).collect();
        assert_eq!(who, ["rank 1", "ranks 0, 2-3"]);
        assert_eq!(groups[1].phase().unwrap(), "in wait of step 8 for 2.0 s");
    }
}
