//! A child process with all that it started: the whole group ends when the value goes.

use std::io;
use std::ops::{Deref, DerefMut};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// A running child at the head of a process group of its own.
#[derive(Debug)]
pub(super) struct Group(Child);

impl Group {
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.process_group(0).kill_on_drop(true).spawn().map(Self)
    }
}

impl Deref for Group {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Group {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Only while it was not waited for is the number surely its own.
        let group = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
