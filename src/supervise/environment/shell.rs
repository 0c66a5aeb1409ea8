//! Asks a shell for its environment: it runs a script that ends by printing it between two marks, for profiles and
//! activation scripts print things too. Standard input is closed, there is no terminal, and the time is bounded.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::{Deadline, Variables};
use crate::domain::text::os_text;
use crate::domain::text::sanitize;

/// What a script ends with. `env` by its path: a profile may have broken the search path.
macro_rules! tell_environment {
    () => {
        "echo; echo hvtui-environment-begins; /usr/bin/env -0; echo hvtui-environment-ends"
    };
}
pub(super) use tell_environment;

const BEGINS: &[u8] = b"\nhvtui-environment-begins\n";
const ENDS: &[u8] = b"hvtui-environment-ends\n";
/// The most that is read of what a shell prints.
const MOST: usize = 8 << 20;
/// So much of its last words is kept.
const WORDS: usize = 4096;
/// The most characters of them that are told.
const TOLD: usize = 300;
/// What was printed may come after a shell's end.
const LATE: Duration = Duration::from_millis(500);
/// The longest that one shell may take.
pub(super) const LONGEST_US: u64 = 10_000_000;

/// Why a shell told no environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShellFault {
    /// It can't be started.
    NotStarted(String),
    /// It does not end.
    Hangs {
        /// For how long it was waited for.
        seconds: u64,
        /// The end of what it said on its standard error.
        words: String,
    },
    /// It has ended without telling.
    Silent {
        /// How.
        status: String,
        /// Its exit code.
        code: Option<i32>,
        /// The end of what it said on its standard error.
        words: String,
    },
    /// It prints without end.
    Floods,
}

/// A shell that is asked.
pub(super) struct Question<'a> {
    pub(super) program: &'a Path,
    /// The name under which it is started, where that says something.
    pub(super) arg0: Option<OsString>,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: &'a Variables,
    pub(super) deadline: Deadline,
}

/// What the reader of its output, or who waits for its end, has to say.
enum News {
    Told(Vec<u8>),
    Closed,
    Floods,
    Ended(Option<ExitStatus>),
}

impl Question<'_> {
    /// The environment that it tells.
    pub(super) fn ask(self) -> Result<Variables, ShellFault> {
        let micros = self.deadline.left(LONGEST_US);
        let mut child = self.start()?;
        let pid = Pid::from_child(&child);
        let (tell, news) = mpsc::channel();
        let words = Arc::new(Mutex::new(Vec::new()));
        if let Some(stream) = child.stderr.take() {
            let (words, tell) = (Arc::clone(&words), tell.clone());
            thread::spawn(move || {
                keep_last(stream, &words);
                // as long as it is there, more words may come
                drop(tell);
            });
        }
        if let Some(stream) = child.stdout.take() {
            let tell = tell.clone();
            thread::spawn(move || drop(tell.send(read(stream))));
        }
        thread::spawn(move || wait(child, &tell));
        let last =
            || String::from_utf8_lossy(&words.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
        let until = Deadline(crate::clock::host_now().0.saturating_add(micros));
        let mut ended = None;
        loop {
            let patience = Duration::from_micros(until.left(u64::MAX));
            let patience = if ended.is_some() { patience.min(LATE) } else { patience };
            let fault = match news.recv_timeout(patience) {
                Ok(News::Told(bytes)) => return Ok(parse(&bytes)),
                // its end says how
                Ok(News::Closed) => continue,
                Ok(News::Ended(status)) => {
                    ended = Some(status);
                    continue;
                }
                Ok(News::Floods) => ShellFault::Floods,
                Err(RecvTimeoutError::Timeout) if ended.is_none() => {
                    ShellFault::Hangs { seconds: micros.div_ceil(1_000_000), words: last() }
                }
                // the one who reads waits for what the shell has left behind
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let status = ended.flatten();
                    let code = status.and_then(|status| status.code());
                    let status = status.map_or_else(|| "no status".to_owned(), |status| status.to_string());
                    return Err(ShellFault::Silent { status, code, words: last() });
                }
            };
            // All that it has started: of a shell that told its environment what it leaves is left alone.
            let _ = kill_process_group(pid, Signal::KILL);
            return Err(fault);
        }
    }

    fn start(&self) -> Result<Child, ShellFault> {
        // A session of its own: an interactive shell would take the terminal of hvtui's user on this machine.
        let apart =
            ["/usr/bin/setsid", "/bin/setsid"].map(PathBuf::from).into_iter().find(|file| file.is_file());
        let mut command =
            Command::new(apart.as_deref().filter(|_| self.arg0.is_none()).unwrap_or(self.program));
        match &self.arg0 {
            // setsid would start it under its own name
            Some(name) => drop(command.arg0(name).process_group(0)),
            None if apart.is_some() => drop(command.arg(self.program)),
            None => drop(command.process_group(0)),
        }
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| ShellFault::NotStarted(os_text(&error)))
    }
}

fn wait(mut child: Child, tell: &Sender<News>) {
    // The receiver may be gone: it is waited for all the same, so that nothing of it stays.
    let _ = tell.send(News::Ended(child.wait().ok()));
}

/// Reads until the second mark, or as far as there is something.
fn read(mut stream: impl Read) -> News {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        // a mark may have come in two pieces
        let from = bytes.len().saturating_sub(ENDS.len());
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return News::Closed,
            Ok(count) => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
        if bytes.get(from..).is_some_and(|new| find(new, ENDS).is_some()) {
            return News::Told(bytes);
        }
        if bytes.len() > MOST {
            return News::Floods;
        }
    }
}

fn keep_last(mut stream: impl Read, words: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; WORDS];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let old = words.len().saturating_sub(WORDS);
        words.drain(..old);
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).rposition(|window| window == wanted)
}

/// The variables between the marks.
fn parse(bytes: &[u8]) -> Variables {
    let end = find(bytes, ENDS).unwrap_or(bytes.len());
    let head = bytes.get(..end).unwrap_or_default();
    let begin = find(head, BEGINS).map_or(0, |at| at + BEGINS.len());
    let pairs = head.get(begin..).unwrap_or_default().split(|byte| *byte == 0);
    let pairs = pairs.filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    pairs
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The last line of a shell's words that says something.
pub(super) fn last_line(words: &str) -> String {
    line(words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default())
}

/// The last line that tells of an error; the last one where none does.
pub(super) fn error_line(words: &str) -> String {
    let error = words.lines().rev().find(|line| line.to_ascii_lowercase().contains("error"));
    error.map_or_else(|| last_line(words), line)
}

fn line(text: &str) -> String {
    sanitize(text.trim()).chars().take(TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(script: &str, parameters: &[&str], micros: u64) -> Result<Variables, ShellFault> {
        let environment = Variables::from([("A".to_owned(), "a\nb".to_owned())]);
        let words = ["-c", script, "sh"].iter().chain(parameters).map(OsString::from).collect();
        let deadline = Deadline(crate::clock::host_now().0 + micros);
        let program = Path::new("/bin/sh");
        Question { program, arg0: None, arguments: words, environment: &environment, deadline }.ask()
    }

    #[test]
    fn what_a_script_prints_is_told_from_its_environment() {
        let script = concat!("echo noise; export B=\"$1\"; ", tell_environment!());
        let found = ask(script, &["$(x) '"], 5_000_000).unwrap();
        assert_eq!(
            (found.get("A").map(String::as_str), found.get("B").map(String::as_str)),
            (Some("a\nb"), Some("$(x) '"))
        );
        assert!(!found.keys().any(|name| name.contains("noise")));
    }

    #[test]
    fn a_shell_that_leaves_something_behind_is_not_waited_for() {
        let script = concat!("sleep 600 & echo $!; ", tell_environment!());
        assert!(ask(script, &[], 60_000_000).is_ok());
        let silent = ask("sleep 2 & echo no >&2; exit 3", &[], 60_000_000).unwrap_err();
        let words = "no\n".to_owned();
        assert_eq!(silent, ShellFault::Silent { status: "exit status: 3".to_owned(), code: Some(3), words });
    }

    #[test]
    fn a_shell_that_hangs_or_floods_is_ended() {
        let hangs = ask("echo waiting >&2; sleep 600", &[], 1_000_000).unwrap_err();
        assert_eq!(hangs, ShellFault::Hangs { seconds: 1, words: "waiting\n".to_owned() });
        assert_eq!(ask("exec cat /dev/zero", &[], 60_000_000).unwrap_err(), ShellFault::Floods);
    }
}
