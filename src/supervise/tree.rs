//! Finds the processes of a run: by descent, and by the mark that every rank's environment carries.
//!
//! Knows nothing of ranks or of when to stop them.

use std::collections::BTreeSet;

use rustix::process::Signal;

use super::identity::{Stat, signal_started};
use crate::domain::gpu::RunOfProcess;
use crate::domain::ids::{HostId, Rank, RunId};

/// The variable that names the run in each rank's environment.
pub const RUN_MARK: &str = "HVTUI_RUN";
/// The variable that names the host in each rank's environment.
pub const HOST_MARK: &str = "HVTUI_HOST";
/// The variables that number a rank, by which kind of run is asked first.
const RANK_MARKS: [&str; 3] = ["HVTUI_RANK", "RANK", "OMPI_COMM_WORLD_RANK"];

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

/// Those of `processes` whose environment names this run and no other host than this one: the way to find what a dead
/// supervisor has left behind. What a launcher of its own has started may name no host. Never this process or one that
/// it descends from.
pub fn marked(processes: &[Process], run: &RunId, host: &HostId) -> Vec<Process> {
    let own = ancestors(processes, std::process::id());
    let mark = format!("{RUN_MARK}={run}");
    let (any, here) = (format!("{HOST_MARK}="), format!("{HOST_MARK}={host}"));
    let is_ours = |environment: Vec<u8>| {
        let mut variables = environment.split(|byte| *byte == 0);
        let elsewhere = |one: &[u8]| one.starts_with(any.as_bytes()) && one != here.as_bytes();
        variables.clone().any(|one| one == mark.as_bytes()) && !variables.any(elsewhere)
    };
    processes
        .iter()
        .filter(|process| !own.contains(&process.pid))
        .filter(|process| std::fs::read(format!("/proc/{}/environ", process.pid)).is_ok_and(is_ours))
        .cloned()
        .collect()
}

/// The run that a process's environment names, and its rank. `None` for processes of other users, too.
pub fn run_of(pid: u32) -> Option<RunOfProcess> {
    run_in(&std::fs::read(format!("/proc/{pid}/environ")).ok()?)
}

fn run_in(environment: &[u8]) -> Option<RunOfProcess> {
    let value = |name: &str| {
        environment
            .split(|byte| *byte == 0)
            .find_map(|one| std::str::from_utf8(one).ok()?.strip_prefix(name)?.strip_prefix('='))
    };
    let id = value(RUN_MARK)?.parse().ok()?;
    let rank = RANK_MARKS.iter().find_map(|name| value(name)?.parse().ok().map(Rank));
    Some(RunOfProcess { id, rank })
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
        Process { pid, stat: Stat { name: String::new(), state: 'S', parent, session: 1, start: 1 } }
    }

    #[test]
    fn the_run_of_a_process_stands_in_its_environment() {
        let run = RunId::new(7, 7);
        let text = format!("PATH=/bin\0HVTUI_RUN={run}\0RANK=3\0OMPI_COMM_WORLD_RANK=x\0");
        assert_eq!(run_in(text.as_bytes()), Some(RunOfProcess { id: run, rank: Some(Rank(3)) }));
        assert_eq!(run_in(b"HVTUI_RUN=x\0RANK=3\0"), None);
        assert_eq!(run_in(b"RANK=3\0"), None);
        assert_eq!(run_of(std::process::id()), None);
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
