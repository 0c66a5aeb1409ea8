//! Handles on processes that the kernel makes readable when the process has ended.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::status;
use crate::domain::text::os_text;

/// A handle on the process that has this pid now. `None` where the kernel gives none: its end is then polled for.
pub(crate) fn open(pid: u32) -> Option<OwnedFd> {
    try_open(pid).ok()
}

/// A handle on the process that has this pid now.
///
/// # Errors
/// The kernel's: `SRCH` where no process has it, `NOSYS` before Linux 5.3, `PERM` in sandboxes that forbid it.
pub(super) fn try_open(pid: u32) -> Result<OwnedFd, Errno> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    // without blocking: what waits for it is told by the kernel that it can be read
    pidfd_open(raw, PidfdFlags::empty())
}

/// Why no signal goes through a handle here, and what is done instead; `None` where it does. Tried on this process, by a
/// signal that ends no process.
pub(crate) fn lack() -> Option<String> {
    let (call, error) = match try_open(std::process::id()) {
        Err(error) => ("pidfd_open", error),
        Ok(own) => ("pidfd_send_signal", pidfd_send_signal(&own, Signal::URG).err()?),
    };
    let filtered =
        status::field(std::process::id(), "Seccomp:").ok().flatten().is_some_and(|mode| mode == "2");
    let by = if filtered { " (seccomp)" } else { "" };
    let text = os_text(&error.into());
    Some(format!("{call}: {text}{by}; signals go by pid after the start time is checked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_handles_and_nobody_has_no_process() {
        assert_eq!(lack(), None);
        assert_eq!(try_open(4_194_305).unwrap_err(), Errno::SRCH);
        assert!(open(std::process::id()).is_some());
    }
}
