//! Handles on processes that the kernel makes readable when the process has ended.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A handle on whoever has this pid now. `None` where the kernel gives none: whoever waits for its end then looks.
pub(crate) fn open(pid: u32) -> Option<OwnedFd> {
    try_open(pid).ok()
}

/// A handle on whoever has this pid now.
///
/// # Errors
/// The kernel's: `SRCH` where nobody has it, `NOSYS` before Linux 5.3, `PERM` in sandboxes that forbid it.
pub(super) fn try_open(pid: u32) -> Result<OwnedFd, Errno> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    // without blocking: what waits for it is told by the kernel that it can be read
    pidfd_open(raw, PidfdFlags::empty())
}
