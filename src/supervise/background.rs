//! Processes that ranks leave behind when they end by themselves: they are ended with the run, and that is said. A rank that
//! starts its work in the background and ends would look like one that has done it.

use super::state::STOP;
use super::supervisor::Supervisor;
use crate::clock;
use crate::domain::note::{Note, what};
use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;
use crate::procs::memory::command_line;
use crate::procs::table::Process;

impl Supervisor {
    /// Whether what lives was left by ranks that have ended by themselves. A launcher and an engine have processes of their own.
    pub(super) fn leaves_background(&self) -> bool {
        let plain = self.spec.engine.is_none() && self.spec.container().is_none();
        plain && self.machine.open().is_empty() && !self.dir.has(STOP)
    }
}

/// The most of them that are named.
const NAMED: usize = 3;
/// The most columns of a name.
const WIDTH: usize = 60;

/// Those that were found, each as it was started.
#[derive(Debug, Default)]
pub(super) struct Background {
    found: Vec<String>,
    more: u64,
}

impl Background {
    /// Before one of them is told to end; `is_left`: by what a rank left, not by a stop. Python's own helpers end by themselves a
    /// moment after their script.
    pub(super) fn see(&mut self, is_left: bool, process: &Process) {
        if !is_left {
            return;
        }
        let words = command_line(process.pid).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
        // one that is just ending has no command line any more
        if process.stat.state == 'Z' || words.is_empty() || words.contains("multiprocessing.") {
            return;
        }
        if self.found.len() == NAMED {
            self.more += 1;
            return;
        }
        self.found.push(middle_cut(&sanitize(&words), WIDTH));
    }

    /// What to say of them, if there were any.
    pub(super) fn note(&self) -> Option<Note> {
        if self.found.is_empty() {
            return None;
        }
        let count = self.found.len() as u64 + self.more;
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        let (processes, were, them) =
            if count == 1 { ("process", "was", "its rank") } else { ("processes", "were", "their ranks") };
        let text = format!(
            "{count} {processes} left in the background {were} ended with {them}: {}{more}; a rank must stay until its work is done",
            self.found.join(", ")
        );
        Some(Note { count, ..Note::new(what::BACKGROUND, text, clock::host_now()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procs::table;

    #[test]
    fn what_is_left_is_named_and_counted() {
        let mut background = Background::default();
        assert_eq!(background.note(), None);
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        // until it is the program that was asked for
        while !command_line(child.id()).unwrap().starts_with(b"sleep\0") {
            std::thread::yield_now();
        }
        let process = table::all().into_iter().find(|process| process.pid == child.id()).unwrap();
        background.see(true, &process);
        let one = background.note().unwrap();
        assert_eq!(
            one.text,
            "1 process left in the background was ended with its rank: sleep 600; a rank must stay until its work is done"
        );
        for _ in 0..4 {
            background.see(true, &process);
        }
        let many = background.note().unwrap();
        assert!(
            many.text
                .starts_with("5 processes left in the background were ended with their ranks: sleep 600, "),
            "{many:?}"
        );
        assert!(many.text.contains(" and 2 more; ") && many.is_trouble() && many.count == 5, "{many:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
