//! Signals to a process that is known by its start time.
//!
//! They go through a pidfd that is checked after it was opened, so that no other process can be hit. Where there is none
//! (before Linux 5.3, and in sandboxes) the process is checked right before the signal.

use std::io;

use rustix::process::{Signal, kill_process, pidfd_send_signal};

use super::identity::Stat;
use super::pidfd;

/// The signal of this number, if it is one of those that programs are free to use: the real-time ones.
#[expect(unsafe_code, reason = "the crate has names for none of them")]
pub(crate) fn real_time(number: u32) -> Option<Signal> {
    let raw = i32::try_from(number).ok().filter(|raw| (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(raw))?;
    // SAFETY: it is a signal of this system and none of those that the C library keeps for itself.
    Some(unsafe { Signal::from_raw_unchecked(raw) })
}

/// Signals the process with this pid if it is the one that started at `start`; `false` when it is gone.
pub(crate) fn signal_started(pid: u32, start: u64, signal: Signal) -> io::Result<bool> {
    let Some(raw) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return Ok(false);
    };
    let handle = match pidfd::try_open(pid) {
        Ok(handle) => Some(handle),
        // before Linux 5.3, and in sandboxes that forbid it: between look and signal a pid could pass to another process,
        // in theory
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => None,
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // The handle pins the process that has the pid now; only then is the start time worth checking.
    if !Stat::read(pid).is_ok_and(|stat| stat.start == start && stat.runs()) {
        return Ok(false);
    }
    let sent = match handle.map(|handle| pidfd_send_signal(&handle, signal)) {
        // whether it may be signalled at all is what `kill` says
        None | Some(Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM)) => kill_process(raw, signal),
        Some(sent) => sent,
    };
    match sent {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a process has a handler for a signal of this number.
pub(crate) fn handles(pid: u32, signal: i32) -> bool {
    let mask = super::status::field(pid, "SigCgt:").ok().flatten();
    let caught = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    signal > 0 && caught >> (signal - 1) & 1 == 1
}
