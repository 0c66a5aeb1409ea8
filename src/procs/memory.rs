//! What stands in another process's memory: its environment and its command line.
//!
//! The kernel reads both under the lock of that process's memory map. One that hangs in the kernel (state D, as where a file
//! server has gone away) may hold that lock for ever, and a reader then hangs as well and cannot be killed. So
//! threads of their own read, those who ask wait for [`PATIENCE`], and a process over which a thread hangs is not asked
//! again: it is unknown, at once, until the kernel lets go. A thread that only has no processor does not hang.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::identity::Stat;

/// How long a process may take to be read whose reader waits in the kernel. Far beyond what any takes that does not hang: its
/// answer counts.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long where the reader does not wait there: it has no processor.
const LONGEST: Duration = Duration::from_secs(10);
/// How long between two looks at the time.
const STEP: Duration = Duration::from_millis(100);
/// How many are read at once after one of them has been found to hang.
const AT_ONCE: usize = 64;
/// The most that is taken of one process, bytes: more than the kernel lets a program be started with.
const MOST: u64 = 8 << 20;

/// What is read of a process.
#[derive(Debug, Clone, Copy)]
enum Part {
    Environment,
    CommandLine,
}

/// The variables with which a process was started, a zero byte behind each. It has none when it is about to end.
///
/// # Errors
/// The system's, where it is gone or another user's; `TimedOut` where it hangs in the kernel, or the host is too busy to read
/// it, and so is unknown.
pub(crate) fn environment(pid: u32) -> io::Result<Vec<u8>> {
    one(Part::Environment, pid)
}

/// Of each of several processes, in their order, [its environment](environment).
pub(super) fn environments(pids: &[u32]) -> Vec<io::Result<Vec<u8>>> {
    each(Part::Environment, pids)
}

/// The words with which a process was started, a zero byte behind each. The kernel's own processes and those that have
/// ended have none.
///
/// # Errors
/// As those of [`environment`].
pub(crate) fn command_line(pid: u32) -> io::Result<Vec<u8>> {
    one(Part::CommandLine, pid)
}

/// [The words](command_line) with a blank between them, at most so many characters; `None` where there are none or they
/// can't be read.
pub(crate) fn command_words(pid: u32, most: usize) -> Option<String> {
    let line = command_line(pid).ok()?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    Some(words.join(" ").trim_end().chars().take(most).collect()).filter(|words: &String| !words.is_empty())
}

fn one(part: Part, pid: u32) -> io::Result<Vec<u8>> {
    each(part, &[pid]).pop().unwrap_or_else(|| Err(hangs()))
}

/// Reads one after the other in one thread, up to the first that hangs, and then many at once: where the file server of a
/// run has gone away, all of its processes may hang, and the wait for them is one.
fn each(part: Part, pids: &[u32]) -> Vec<io::Result<Vec<u8>>> {
    let mut answers = in_turn(part, pids);
    for some in pids.get(answers.len()..).unwrap_or_default().chunks(AT_ONCE) {
        answers.extend(at_once(part, some));
    }
    answers
}

/// The answers of those up to the first that hangs, with it.
fn in_turn(part: Part, pids: &[u32]) -> Vec<io::Result<Vec<u8>>> {
    let (tell, told) = channel();
    let asked = pids.to_vec();
    // where nothing takes its answers any more it has hung, and its caller has stopped waiting
    let started = reader(move || asked.into_iter().try_for_each(|pid| tell.send(read(part, pid)).ok()));
    if let Err(error) = started {
        return pids.iter().map(|_| Err(no_thread(&error))).collect();
    }
    let mut answers = Vec::with_capacity(pids.len());
    for pid in pids {
        let answer = awaited(&told, *pid);
        let is_told = answer.is_ok();
        answers.push(answer.and_then(|answer| answer));
        if !is_told {
            break;
        }
    }
    answers
}

/// What is told of one; the error is that nothing is.
fn awaited<T>(told: &Receiver<T>, pid: u32) -> io::Result<T> {
    let mut waited = Duration::ZERO;
    loop {
        match told.recv_timeout(STEP) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => waited += STEP,
            Err(RecvTimeoutError::Disconnected) => return Err(late()),
        }
        if let Some(error) = given_up(pid, waited) {
            return Err(error);
        }
    }
}

/// Each has a thread of its own, and all have the same time.
fn at_once(part: Part, pids: &[u32]) -> Vec<io::Result<Vec<u8>>> {
    let (tell, told) = channel();
    let mut answers: Vec<Option<io::Result<Vec<u8>>>> = pids.iter().map(|_| None).collect();
    for (number, pid) in pids.iter().copied().enumerate() {
        let tell = tell.clone();
        if let Err(error) = reader(move || tell.send((number, read(part, pid))).ok()) {
            answers[number] = Some(Err(no_thread(&error)));
        }
    }
    drop(tell);
    let mut waited = Duration::ZERO;
    while answers.iter().any(Option::is_none) {
        match told.recv_timeout(STEP) {
            Ok((number, answer)) => answers[number] = Some(answer),
            Err(RecvTimeoutError::Timeout) => {
                waited += STEP;
                for (answer, pid) in answers.iter_mut().zip(pids).filter(|(answer, _)| answer.is_none()) {
                    *answer = given_up(*pid, waited).map(Err);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(late()))).collect()
}

/// Why a process whose answer was waited for so long is waited for no longer.
fn given_up(pid: u32, waited: Duration) -> Option<io::Error> {
    let is_over = verdict(waited, || hangs_over(pid))?;
    if is_over == Over::Hangs {
        give_up(pid);
    }
    Some(is_over.error())
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Hangs,
    Late,
}

impl Over {
    fn error(self) -> io::Error {
        match self {
            Self::Hangs => hangs(),
            Self::Late => late(),
        }
    }
}

/// What a wait without an answer means; `in_kernel` tells whether the reader waits there.
fn verdict(waited: Duration, in_kernel: impl FnOnce() -> bool) -> Option<Over> {
    match waited {
        waited if waited >= PATIENCE && in_kernel() => Some(Over::Hangs),
        waited if waited >= LONGEST => Some(Over::Late),
        _ => None,
    }
}

fn reader(read: impl FnOnce() -> Option<()> + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("proc-reader".to_owned());
    thread.spawn(read).map(drop)
}

fn no_thread(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("no thread to read it: {error}"))
}

/// The thread that reads a process.
#[derive(Debug, Clone, Copy)]
struct Reader {
    thread: u32,
    /// It was found to hang.
    hangs: bool,
}

/// The processes that are being read now.
static READ: Mutex<BTreeMap<u32, Reader>> = Mutex::new(BTreeMap::new());
/// One of them is not read any more, or found to hang.
static CHANGED: Condvar = Condvar::new();

fn reads() -> MutexGuard<'static, BTreeMap<u32, Reader>> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a thread that may hang. Of several that would read the same process one does, so that one hangs at most.
fn read(part: Part, pid: u32) -> io::Result<Vec<u8>> {
    let mut reads = reads();
    loop {
        match reads.get(&pid).map(|reader| reader.hangs) {
            None => break,
            Some(true) => return Err(hangs()),
            Some(false) => reads = CHANGED.wait(reads).unwrap_or_else(PoisonError::into_inner),
        }
    }
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    reads.insert(pid, Reader { thread, hangs: false });
    drop(reads);
    let file = match part {
        Part::Environment => "environ",
        Part::CommandLine => "cmdline",
    };
    let mut bytes = Vec::new();
    let read =
        File::open(format!("/proc/{pid}/{file}")).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    // A pid is not given to another process as long as the kernel has not let go of this one.
    self::reads().remove(&pid);
    CHANGED.notify_all();
    read.map(|_| bytes)
}

/// Callers stop waiting for this process until its reader returns.
fn give_up(pid: u32) {
    if let Some(reader) = reads().get_mut(&pid) {
        reader.hangs = true;
    }
    CHANGED.notify_all();
}

/// Whether the thread that reads a process waits in the kernel now; one that has not begun does not.
fn hangs_over(pid: u32) -> bool {
    let thread = reads().get(&pid).map(|reader| reader.thread);
    thread.is_some_and(|thread| Stat::of_thread(thread).is_ok_and(|stat| stat.state == 'D'))
}

fn late() -> io::Error {
    let seconds = LONGEST.as_secs();
    io::Error::new(ErrorKind::TimedOut, format!("the host is too busy: it could not be read in {seconds} s"))
}

fn hangs() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it hangs in the kernel and holds its memory, which can't be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_without_a_processor_does_not_hang() {
        let after = |seconds, in_kernel| verdict(Duration::from_secs(seconds), || in_kernel);
        assert_eq!([after(0, true), after(1, true)], [None, Some(Over::Hangs)]);
        assert_eq!([after(1, false), after(9, false), after(10, false)], [None, None, Some(Over::Late)]);
        assert!(!hangs_over(4_194_305), "nothing reads it");
    }

    #[test]
    fn answers_come_in_the_order_of_the_question_and_are_those_of_the_kernel() {
        let own = std::process::id();
        // the second is above the kernel's largest pid
        let lines = each(Part::CommandLine, &[own, 4_194_305, own]);
        let direct = std::fs::read("/proc/self/cmdline").unwrap();
        assert_eq!(lines[0].as_ref().unwrap(), &direct);
        assert_eq!(lines[1].as_ref().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(lines[2].as_ref().unwrap(), &direct);
        assert_eq!(environment(own).unwrap(), std::fs::read("/proc/self/environ").unwrap());
        assert!(!reads().contains_key(&own) && environments(&[]).is_empty());
    }

    #[test]
    fn a_command_line_is_told_in_words_up_to_a_length() {
        let mut child = std::process::Command::new("sleep").args(["600", "0"]).spawn().unwrap();
        // its words come a moment after it has become its program
        while command_words(child.id(), 80).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(command_words(child.id(), 80).as_deref(), Some("sleep 600 0"));
        assert_eq!(command_words(child.id(), 7).as_deref(), Some("sleep 6"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(command_words(child.id(), 80), None);
    }
}
