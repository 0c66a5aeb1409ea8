//! What stands in another process's memory: its environment and its command line.
//!
//! The kernel reads both under the lock of that process's memory map. One that hangs in the kernel (state D, as where a file
//! server has gone away) may hold that lock for ever, and a reader then hangs as well and cannot be killed. So
//! threads of their own read, those who ask wait for [`PATIENCE`], and a process over which a thread hangs is not asked
//! again: it is unknown, at once, until the kernel lets go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a process may take to be read. Far beyond what any takes that does not hang: its answer counts.
const PATIENCE: Duration = Duration::from_secs(1);
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

/// Reads one after the other, in one thread unless one of them hangs.
fn each(part: Part, pids: &[u32]) -> Vec<io::Result<Vec<u8>>> {
    let mut answers = Vec::with_capacity(pids.len());
    while let Some(rest) = pids.get(answers.len()..).filter(|rest| !rest.is_empty()).map(<[u32]>::to_vec) {
        let (tell, told) = channel();
        let reader = std::thread::Builder::new().name("proc-reader".to_owned());
        let started = reader.spawn(move || {
            for pid in rest {
                if tell.send(read(part, pid)).is_err() {
                    // It has hung, and its caller has stopped waiting.
                    return;
                }
            }
        });
        if let Err(error) = started {
            let failed = || Err(io::Error::new(error.kind(), format!("no thread to read it: {error}")));
            answers.resize_with(pids.len(), failed);
            break;
        }
        while let Some(pid) = pids.get(answers.len()) {
            let Ok(answer) = told.recv_timeout(PATIENCE) else {
                give_up(*pid);
                answers.push(Err(hangs()));
                break;
            };
            answers.push(answer);
        }
    }
    answers
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
