//! What stands in another process's memory: its environment and its command line.
//!
//! The kernel reads both under the lock of that process's memory map. One that hangs in the kernel (state D, as where a file
//! server has gone away) may hold that lock for ever, and a reader then hangs as well and cannot be killed. So
//! threads of their own read, those who ask wait for [`PATIENCE`], and a process over which a thread hangs is not asked
//! again: it is unknown, at once, until the kernel lets go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a process may take to be read. Far beyond what any takes that does not hang: its answer counts.
const PATIENCE: Duration = Duration::from_secs(1);
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
/// The system's, where it is gone or another user's; `TimedOut` where it hangs in the kernel and so is unknown.
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
        let Ok(answer) = told.recv_timeout(PATIENCE) else {
            give_up(*pid);
            answers.push(Err(hangs()));
            break;
        };
        answers.push(answer);
    }
    answers
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
    let mut left = PATIENCE;
    while !left.is_zero() {
        match told.recv_timeout(STEP) {
            Ok((number, answer)) => answers[number] = Some(answer),
            Err(RecvTimeoutError::Timeout) => left = left.saturating_sub(STEP),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let given_up = |(answer, pid): (Option<_>, &u32)| {
        answer.unwrap_or_else(|| {
            give_up(*pid);
            Err(hangs())
        })
    };
    answers.into_iter().zip(pids).map(given_up).collect()
}

fn reader(read: impl FnOnce() -> Option<()> + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("proc-reader".to_owned());
    thread.spawn(read).map(drop)
}

fn no_thread(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("no thread to read it: {error}"))
}

/// The processes that are being read now, and whether a reader hangs over one.
static READ: Mutex<BTreeMap<u32, bool>> = Mutex::new(BTreeMap::new());
/// One of them is not read any more, or found to hang.
static CHANGED: Condvar = Condvar::new();

fn reads() -> MutexGuard<'static, BTreeMap<u32, bool>> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a thread that may hang. Of several that would read the same process one does, so that one hangs at most.
fn read(part: Part, pid: u32) -> io::Result<Vec<u8>> {
    let mut reads = reads();
    loop {
        match reads.get(&pid).copied() {
            None => break,
            Some(true) => return Err(hangs()),
            Some(false) => reads = CHANGED.wait(reads).unwrap_or_else(PoisonError::into_inner),
        }
    }
    reads.insert(pid, false);
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
    if let Some(hangs) = reads().get_mut(&pid) {
        *hangs = true;
    }
    CHANGED.notify_all();
}

fn hangs() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it hangs in the kernel and holds its memory, which can't be read")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
