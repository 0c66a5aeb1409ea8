//! The signals that the UI hears, and how it stops as a job of a shell: the terminal is given back before, and taken again
//! after.

use std::io::{Error, Result};
use std::time::Duration;

use rustix::process::{Signal as Number, getpid, kill_current_process_group, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// So long after a stop it is clear that there was none: nothing could continue this process.
const STOPS_WITHIN: Duration = Duration::from_millis(100);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// To end; this is its number.
    End(u8),
    /// To stop until it is continued.
    Stop,
    /// Nothing: the process was stopped, and goes on.
    GoOn,
}

/// Who is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    /// The whole job of the shell, as the terminal does it with ctrl-z.
    Job,
    /// This process: others got the signal themselves.
    Itself,
}

/// The signals.
pub(super) struct Signals {
    term: Signal,
    hangup: Signal,
    interrupt: Signal,
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            stop: signal(SignalKind::from_raw(libc::SIGTSTP))?,
            go_on: signal(SignalKind::from_raw(libc::SIGCONT))?,
        })
    }

    /// What the next one asks for. Cancel-safe.
    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.term.recv() => Asked::End(15),
            _ = self.hangup.recv() => Asked::End(1),
            _ = self.interrupt.recv() => Asked::End(2),
            _ = self.stop.recv() => Asked::Stop,
            _ = self.go_on.recv() => Asked::GoOn,
        }
    }

    /// Stops, and returns once continued; false where nothing stopped, because no shell would continue it.
    pub(super) async fn stop(&mut self, whom: Whom) -> Result<bool> {
        let before = replace_handler(None)?;
        match whom {
            Whom::Job => kill_current_process_group(Number::TSTP)?,
            Whom::Itself => kill_process(getpid(), Number::TSTP)?,
        }
        // the signal may reach another thread first, a moment from now
        let continued = timeout(STOPS_WITHIN, self.go_on.recv()).await.is_ok();
        replace_handler(Some(&before))?;
        Ok(continued)
    }
}

/// Puts back what handles SIGTSTP; `None`: the system does, and stops the process. Returns what handled it before.
#[expect(unsafe_code, reason = "nothing safe changes the handler of a signal and puts the old one back")]
fn replace_handler(with: Option<&libc::sigaction>) -> Result<libc::sigaction> {
    // SAFETY: zeroes are a valid sigaction: the default handler with no flags and an empty mask
    let (default, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid for the call, and a handler that is put back is the one that was there
    let done = unsafe { libc::sigaction(libc::SIGTSTP, with.unwrap_or(&default), &raw mut before) };
    if done == 0 { Ok(before) } else { Err(Error::last_os_error()) }
}
