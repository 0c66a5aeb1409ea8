//! The ends of processes, which must come in time: a test that hangs tells nothing.

use std::io;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Far beyond what anything here takes on a busy machine, a container image or a compiler too.
const DEADLINE: Duration = Duration::from_secs(600);

/// [`Command::output`] and [`Child::wait_with_output`], which panic where that takes too long, and end the process.
pub(crate) trait OutputInTime {
    fn output_in_time(self) -> io::Result<Output>;
}

/// [`Command::status`], which panics where that takes too long, and ends the process.
pub(crate) trait StatusInTime {
    fn status_in_time(self) -> io::Result<ExitStatus>;
}

impl OutputInTime for &mut Command {
    #[track_caller]
    fn output_in_time(self) -> io::Result<Output> {
        taken(self, Command::output)
    }
}

impl StatusInTime for &mut Command {
    #[track_caller]
    fn status_in_time(self) -> io::Result<ExitStatus> {
        taken(self, Command::status)
    }
}

impl OutputInTime for Child {
    #[track_caller]
    fn output_in_time(self) -> io::Result<Output> {
        let pid = self.id();
        within(&format!("process {pid}"), move || self.wait_with_output(), move |_| vec![pid])
    }
}

/// Runs a command to its end on a thread of its own, and gives it back: it may be run again.
#[track_caller]
fn taken<T: Send + 'static>(
    command: &mut Command,
    run: impl FnOnce(&mut Command) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let name = format!("{command:?}");
    let mut own = std::mem::replace(command, Command::new("true"));
    let (ended, own) = within(
        &name,
        move || {
            let ended = run(&mut own);
            (ended, own)
        },
        children,
    );
    *command = own;
    ended
}

/// What `work` gives; where it takes too long the processes that `whose` finds by its thread are ended.
#[track_caller]
fn within<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
    whose: impl FnOnce(i32) -> Vec<u32>,
) -> T {
    let (place, thread) = channel();
    let (told, heard) = channel();
    thread::spawn(move || {
        let _ = place.send(rustix::thread::gettid().as_raw_nonzero().get());
        let _ = told.send(work());
    });
    match heard.recv_timeout(DEADLINE) {
        Ok(gives) => return gives,
        Err(RecvTimeoutError::Disconnected) => panic!("{what} could not be run"),
        Err(RecvTimeoutError::Timeout) => {}
    }
    for pid in thread.recv().map_or_else(|_| Vec::new(), whose) {
        let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, Signal::KILL));
    }
    panic!("{what} does not end within {} s", DEADLINE.as_secs());
}

/// The processes that a thread of this one started.
fn children(thread: i32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/self/task/{thread}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
