//! A process as (boot, pid, start time): a pid alone may belong to someone else by now.

use std::io;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::signal::signal_started;

/// One process for all time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The kernel's boot id.
    pub boot: String,
    /// Process id.
    pub pid: u32,
    /// When it started: clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start: u64,
}

impl Identity {
    /// The process that has this pid now; a process that has ended and was not yet waited for counts.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { boot: boot_id()?, pid, start: Stat::read(pid)?.start })
    }

    /// This process.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Whether it still runs. One that ended and was not yet waited for does not.
    pub fn alive(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot)
            && Stat::read(self.pid).is_ok_and(|stat| stat.start == self.start && stat.runs())
    }

    /// Sends a signal; `false` when the process is gone.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        if boot_id()? != self.boot {
            return Ok(false);
        }
        signal_started(self.pid, self.start, signal)
    }
}

/// Changes at each boot of this kernel.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// What `/proc/PID/stat` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The program's short name.
    pub name: String,
    /// `R`, `S`, `D`, `Z` …
    pub state: char,
    /// Parent's pid.
    pub parent: u32,
    /// Session id.
    pub session: u32,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Of the process that has this pid now.
    pub fn read(pid: u32) -> io::Result<Self> {
        Self::of_file(&format!("/proc/{pid}/stat"))
    }

    /// Of this process's thread of this number.
    pub(super) fn of_thread(number: u32) -> io::Result<Self> {
        Self::of_file(&format!("/proc/self/task/{number}/stat"))
    }

    fn of_file(path: &str) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        Self::parse(&String::from_utf8_lossy(&bytes))
            .ok_or_else(|| io::Error::other(format!("{path} has an unknown form")))
    }

    /// The name may hold spaces and parentheses: it ends at the last one.
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        Some(Self {
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            terminal: *fields.get(4)? != "0",
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it is more than an entry that its parent has not waited for.
    pub fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 1 0 98765 1000 2 3";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) b (c", 'S', 7));
        assert_eq!((stat.session, stat.terminal, stat.start), (42, false, 98765));
        let on_terminal = Stat::parse(&line.replace(" 42 42 0 ", " 42 42 34816 ")).unwrap();
        assert!(on_terminal.terminal && on_terminal.session == 42);
        assert_eq!(Stat::parse("42 (a"), None);
    }

    #[test]
    fn a_process_is_known_until_it_ends_and_a_stranger_is_never_signalled() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let known = Identity::of(child.id()).unwrap();
        assert!(known.alive());
        let stranger = Identity { start: known.start + 1, ..known.clone() };
        assert!(!stranger.alive());
        assert!(!stranger.signal(Signal::KILL).unwrap());
        let earlier = Identity { boot: "another boot".to_owned(), ..known.clone() };
        assert!(!earlier.alive());
        assert!(!earlier.signal(Signal::KILL).unwrap());
        assert!(known.alive());
        assert!(known.signal(Signal::KILL).unwrap());
        child.wait().unwrap();
        assert!(!known.alive());
        assert!(!known.signal(Signal::KILL).unwrap());
    }
}
