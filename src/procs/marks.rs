//! The marks that every process of a run carries in its environment, and the processes that carry them.
//!
//! Knows nothing of ranks or of when to stop them.

use super::memory;
use super::table::{Process, ancestors};
use crate::domain::gpu::RunOfProcess;
use crate::domain::ids::{HostId, Rank, RunId};

/// The variable that names the run in each rank's environment.
pub const RUN_MARK: &str = "HVTUI_RUN";
/// The variable that names the host in each rank's environment.
pub const HOST_MARK: &str = "HVTUI_HOST";
/// The variables that number a rank, by which kind of run is asked first.
const RANK_MARKS: [&str; 3] = ["HVTUI_RANK", "RANK", "OMPI_COMM_WORLD_RANK"];

/// Those of `processes` whose environment names this run and no other host than this one: the way to find what a dead
/// supervisor has left behind. What a launcher of its own has started may name no host. Never this process or one that
/// it descends from.
pub fn marked(processes: &[Process], run: &RunId, host: &HostId) -> Vec<Process> {
    let own = ancestors(processes, std::process::id());
    let mark = format!("{RUN_MARK}={run}");
    let (any, here) = (format!("{HOST_MARK}="), format!("{HOST_MARK}={host}"));
    let is_ours = |environment: &Vec<u8>| {
        let mut variables = environment.split(|byte| *byte == 0);
        let elsewhere = |one: &[u8]| one.starts_with(any.as_bytes()) && one != here.as_bytes();
        variables.clone().any(|one| one == mark.as_bytes()) && !variables.any(elsewhere)
    };
    let others: Vec<&Process> = processes.iter().filter(|process| !own.contains(&process.pid)).collect();
    let pids: Vec<u32> = others.iter().map(|process| process.pid).collect();
    let environments = memory::environments(&pids);
    // Of one that is unknown the marks are not believed: it may be a stranger. If it is of the run, its descent tells.
    let marked = others.into_iter().zip(environments).filter(|(_, read)| read.as_ref().is_ok_and(is_ours));
    marked.map(|(process, _)| process.clone()).collect()
}

/// Those of `processes` whose environment names a run, with it: of other users and of those that hang none is known. Never this
/// process or one that it descends from.
pub fn of_runs(processes: Vec<Process>) -> Vec<(Process, RunOfProcess)> {
    let own = ancestors(&processes, std::process::id());
    let others: Vec<Process> = processes.into_iter().filter(|process| !own.contains(&process.pid)).collect();
    let pids: Vec<u32> = others.iter().map(|process| process.pid).collect();
    let environments = memory::environments(&pids);
    let of_run = |(process, read): (Process, std::io::Result<Vec<u8>>)| Some((process, run_in(&read.ok()?)?));
    others.into_iter().zip(environments).filter_map(of_run).collect()
}

/// The variables that launchers alone give their ranks: `RANK` and `WORLD_SIZE` are set by hand, too, and for all that is in a pod.
const OF_LAUNCHERS: [&str; 5] =
    ["TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK"];
/// Those by which a program finds the screen that it shows itself on.
const DISPLAYS: [&str; 2] = ["DISPLAY", "WAYLAND_DISPLAY"];

/// What the environment of a process of no run tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Whether a launcher has started it as a rank.
    pub(crate) of_launcher: bool,
    /// Whether it has a screen.
    pub(crate) has_display: bool,
}

/// Those of `processes` whose environment names no run, each with what it tells. Those whose environment is not known are left out: they
/// may be of a run.
pub(crate) fn of_no_run(processes: Vec<Process>) -> Vec<(Process, Marks)> {
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let environments = memory::environments(&pids);
    let marked = |(process, read): (Process, std::io::Result<Vec<u8>>)| Some((process, marks(&read.ok()?)?));
    processes.into_iter().zip(environments).filter_map(marked).collect()
}

/// `None` where it names a run.
fn marks(environment: &[u8]) -> Option<Marks> {
    let marks =
        Marks { of_launcher: has(environment, &OF_LAUNCHERS), has_display: has(environment, &DISPLAYS) };
    (!has(environment, &[RUN_MARK])).then_some(marks)
}

/// Whether one of these variables is set.
fn has(environment: &[u8], names: &[&str]) -> bool {
    let is_it =
        |one: &[u8], name: &str| one.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    environment.split(|byte| *byte == 0).any(|one| names.iter().any(|name| is_it(one, name)))
}

/// The run that a process's environment names, and its rank. `None` for processes of other users and those that hang, too.
pub fn run_of(pid: u32) -> Option<RunOfProcess> {
    run_in(&memory::environment(pid).ok()?)
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_launchers_own_mark_is_another_one_than_a_number_that_is_given_by_hand() {
        let of = |text: &str| marks(text.as_bytes()).map(|marks| (marks.of_launcher, marks.has_display));
        for launcher in [
            "TORCHELASTIC_RUN_ID=none",
            "OMPI_COMM_WORLD_RANK=0",
            "PMIX_RANK=1",
            "PMI_RANK=1",
            "HOROVOD_RANK=1",
        ] {
            assert_eq!(of(&format!("RANK=1\0{launcher}\0")), Some((true, false)), "{launcher}");
        }
        assert_eq!(of("RANK=1\0LOCAL_RANK=0\0WORLD_SIZE=2\0MY_PMI_RANK=0\0"), Some((false, false)));
        assert_eq!(of("DISPLAY=:0\0"), Some((false, true)));
        assert_eq!(of("HVTUI_RUN=x\0PMI_RANK=1\0"), None, "it is of a run");
    }
}
