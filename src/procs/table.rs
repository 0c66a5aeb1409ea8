//! The process table of this host, as `/proc/PID/stat` tells it: who runs, and who descends from whom.
//!
//! Reads nothing that the kernel guards by the lock of a process's memory map, so no process can make it wait.

use std::collections::BTreeSet;

use rustix::process::Signal;

use super::identity::Stat;
use super::signal::signal_started;

/// A process that was there when the list was made.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// The rest.
    pub stat: Stat,
}

impl Process {
    /// Sends a signal to this very process; whether it was still there and ours to signal.
    pub fn signal(&self, signal: Signal) -> bool {
        signal_started(self.pid, self.stat.start, signal).unwrap_or(false)
    }

    /// Tells this very process to end. One that is halted could not obey; for another one CONT would be noise: mpirun
    /// hands it on to its ranks and says so.
    pub fn tell_to_end(&self) {
        self.signal(Signal::TERM);
        if self.stat.state == 'T' {
            self.signal(Signal::CONT);
        }
    }

    /// For a log line: `42 (python) in state D at nfs_wait_bit_killable`.
    pub fn describe(&self) -> String {
        let place = std::fs::read_to_string(format!("/proc/{}/wchan", self.pid)).unwrap_or_default();
        let place = if matches!(place.as_str(), "" | "0") { String::new() } else { format!(" at {place}") };
        format!("{} ({}) in state {}{place}", self.pid, self.stat.name, self.stat.state)
    }
}

/// Every process that runs now.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some(Process { pid, stat: Stat::read(pid).ok()? }))
        .filter(|process| process.stat.runs())
        .collect()
}

/// Those of `processes` that descend from one of `roots`, without the roots.
pub fn descendants(processes: &[Process], roots: &BTreeSet<u32>) -> Vec<Process> {
    let mut family = roots.clone();
    loop {
        let before = family.len();
        for process in processes {
            if family.contains(&process.stat.parent) {
                family.insert(process.pid);
            }
        }
        if family.len() == before {
            break;
        }
    }
    processes.iter().filter(|p| family.contains(&p.pid) && !roots.contains(&p.pid)).cloned().collect()
}

/// Those of `processes` that descend from `root`, children behind their parents.
pub fn below(processes: &[Process], root: u32) -> Vec<Process> {
    let (mut known, mut found) = (BTreeSet::from([root]), Vec::new());
    let mut parents = vec![root];
    while !parents.is_empty() {
        let is_child = |process: &&Process| parents.contains(&process.stat.parent);
        let children: Vec<Process> =
            processes.iter().filter(is_child).filter(|child| known.insert(child.pid)).cloned().collect();
        parents = children.iter().map(|child| child.pid).collect();
        found.extend(children);
    }
    found
}

/// `pid` and all it descends from.
pub fn ancestors(processes: &[Process], pid: u32) -> BTreeSet<u32> {
    let mut line = BTreeSet::from([pid]);
    let mut at = pid;
    while let Some(process) = processes.iter().find(|process| process.pid == at) {
        at = process.stat.parent;
        if !line.insert(at) {
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32) -> Process {
        Process {
            pid,
            stat: Stat { name: String::new(), state: 'S', parent, session: 1, terminal: false, start: 1 },
        }
    }

    #[test]
    fn descent_is_found_whatever_the_order() {
        let all = [process(9, 5), process(5, 3), process(3, 1), process(4, 1), process(1, 0)];
        let pids = |list: Vec<Process>| list.iter().map(|p| p.pid).collect::<Vec<_>>();
        assert_eq!(pids(descendants(&all, &BTreeSet::from([3]))), [9, 5]);
        assert_eq!(pids(descendants(&all, &BTreeSet::from([9]))), [0; 0]);
        assert_eq!(ancestors(&all, 9), BTreeSet::from([9, 5, 3, 1, 0]));
        assert_eq!(pids(below(&all, 1)), [3, 4, 5, 9], "parents first");
        assert_eq!(pids(below(&all, 4)), [0; 0]);
        assert_eq!(pids(below(&[process(2, 3), process(3, 2)], 2)), [3], "a circle has an end");
    }
}
