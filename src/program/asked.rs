//! A short question to another program: its answer, or that there was none in time. What it prints is bounded.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock;
use crate::procs::pidfd;

/// The most that is taken of each of its streams, bytes.
const MOST: u64 = 4 << 20;
/// Between two looks where the kernel gives no handle on a process.
const LOOK: Duration = Duration::from_millis(10);

/// What a program has said.
#[derive(Debug)]
pub struct Told {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Told {
    /// The last line that says something, of its errors if there is one.
    pub fn last_words<'a>(&'a self) -> &'a str {
        let last = |text: &'a str| text.lines().map(str::trim).rfind(|line| !line.is_empty());
        last(&self.err).or_else(|| last(&self.out)).unwrap_or("it said nothing")
    }
}

/// Runs a program to its end; after `patience` it is killed, and the error is `TimedOut`.
pub fn ask(mut command: Command, patience: Duration) -> io::Result<Told> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn()?;
    let (out, err) = (child.stdout.take().map(reading), child.stderr.take().map(reading));
    let handle = pidfd::open(child.id());
    let begun = clock::host_now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let gone = Duration::from_micros(clock::host_now().0.saturating_sub(begun.0));
        let left = patience.saturating_sub(gone);
        if left.is_zero() {
            let _ = child.kill();
            let _ = child.wait();
            // What it has started may hold the pipes: their threads end with those.
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        match (&handle, Timespec::try_from(left)) {
            (Some(handle), Ok(left)) => {
                let _ = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&left));
            }
            _ => std::thread::sleep(LOOK),
        }
    };
    let text = |pipe: Option<JoinHandle<String>>| pipe.and_then(|pipe| pipe.join().ok()).unwrap_or_default();
    Ok(Told { status, out: text(out), err: text(err) })
}

fn reading(pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // what came before an error counts
        let _ = pipe.take(MOST).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
