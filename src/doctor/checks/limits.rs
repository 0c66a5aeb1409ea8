//! Whether the limits of a user's processes, and of the control groups that they are in, are what training needs.

use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::preflight::Mark;
use crate::domain::units;
use crate::procs::cgroup;

pub(in crate::doctor) struct Limits;

/// A rank with data loaders opens hundreds of files, NCCL a few for each peer.
const FILES: u64 = 4096;
const FILES_LEAST: u64 = 1024;
/// What an RDMA card's queues lock, about.
const LOCKED: u64 = 1 << 30;
const PROCESSES: u64 = 4096;
/// A control group's memory is told where it is less than this of the machine's.
const MEMORY_PERCENT: u64 = 90;
/// The capability that no limit of locked memory binds.
const IPC_LOCK: u32 = 14;

/// What lets processes look into their children again, from the next boot on.
const YAMA_FILE: &str = "echo kernel.yama.ptrace_scope=1 | sudo tee /etc/sysctl.d/99-hvtui-ptrace.conf";
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Open files, soft and hard; absent: no limit.
    files: Option<u64>,
    files_hard: Option<u64>,
    /// Locked memory, bytes.
    locked: Option<u64>,
    processes: Option<u64>,
    #[serde(default)]
    processes_hard: Option<u64>,
    /// Whether there is an RDMA card.
    rdma: bool,
    /// Of a core file, after a crash; absent where it is not told.
    #[serde(default)]
    core: Option<Cores>,
    /// Who may look into another process of the same user (Yama): 0 everyone, 1 its parents, 2 root, 3 no one. Root is told 0 for 2.
    #[serde(default)]
    ptrace: Option<u8>,
    /// Whether it may lock memory whatever the limit: root, mostly.
    #[serde(default)]
    locks_any: bool,
    /// Of the control groups of the second version that it is in, the one that leaves the fewest processes and threads.
    #[serde(default)]
    tasks: Option<Tasks>,
    /// The least memory that one of those may take, bytes.
    #[serde(default)]
    memory: Option<u64>,
}

/// Processes and threads of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Tasks {
    most: u64,
    /// So many more may begin.
    left: u64,
}

/// How large a core file may be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Cores {
    UpTo(u64),
    Any,
}

impl Check for Limits {
    const NAME: &'static str = "limits";
    const ASKS: &'static str =
        "open files, locked memory, processes, core files and control groups of a command over ssh";
    const OF_IMAGE: OfImage = OfImage::There;
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        let (files, processes) = (getrlimit(Resource::Nofile), getrlimit(Resource::Nproc));
        let rdma = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut cards| cards.next().is_some());
        let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let group = cgroup::own();
        let (tasks, memory) = group.as_deref().map_or((None, None), of_groups);
        Ok(Found {
            files: files.current,
            files_hard: files.maximum,
            locked: getrlimit(Resource::Memlock).current,
            processes: processes.current,
            processes_hard: processes.maximum,
            rdma,
            core: Some(getrlimit(Resource::Core).current.map_or(Cores::Any, Cores::UpTo)),
            ptrace: ptrace(),
            locks_any: locks_any(&text("/proc/self/status"), &text("/proc/self/uid_map")),
            tasks,
            memory,
        })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        // what tells where a rank hangs is no reason not to start one
        let judge_one = |one: &Seen<'_, Found>| {
            let ptrace = one.found.ptrace.filter(|_| one.uses.is_none());
            judge(&Found { ptrace, ..one.found }, one.info.memory_total.value().copied())
        };
        seen.iter().map(judge_one).collect()
    }
}

/// The command that sets a limit for the user who is logged in: `*` counts less than a line for a group, and would lower what others
/// have.
fn drop_in(item: &str, value: &str) -> String {
    let name = item.rsplit(' ').next().unwrap_or_default();
    let file = format!("/etc/security/limits.d/99-hvtui-$(id -un)-{name}.conf");
    // whatever shell the login has
    format!("sh -c 'echo \"$(id -un) {item} {value}\" | sudo tee \"{file}\"'")
}

fn ptrace() -> Option<u8> {
    let scope = std::fs::read_to_string(YAMA).ok()?.trim().parse().ok()?;
    Some(if scope == 2 && rustix::process::getuid().is_root() { 0 } else { scope })
}

/// Whether the capability is held in the first namespace of users: in another one, as a container without root has it, it does not
/// count for memory.
fn locks_any(status: &str, uid_map: &str) -> bool {
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok()).unwrap_or_default();
    let is_first = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    is_first && held >> IPC_LOCK & 1 == 1
}

/// What the control group of this folder and those above it allow: of tasks the fewest that are left, of memory the least.
fn of_groups(own: &Path) -> (Option<Tasks>, Option<u64>) {
    let groups = || own.ancestors().take_while(|folder| folder.join("cgroup.procs").exists());
    let number = |folder: &Path, file: &str| {
        // without a limit it is a word
        std::fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok()
    };
    let tasks = |folder: &Path| {
        let (most, now) = (number(folder, "pids.max")?, number(folder, "pids.current")?);
        Some(Tasks { most, left: most.saturating_sub(now) })
    };
    let memory = groups().filter_map(|folder| number(folder, "memory.max")).min();
    (groups().filter_map(tasks).min_by_key(|tasks| tasks.left), memory)
}

/// With the memory of the machine, where that is known.
fn judge(found: &Found, machine: Option<u64>) -> Verdict {
    if let Some(locked) = found.locked.filter(|locked| found.rdma && !found.locks_any && *locked < LOCKED) {
        return Verdict::bad(
            format!("{} of locked memory, and an RDMA card", units::bytes(locked)),
            "NCCL and MPI can't register memory with the card: they end, or are slow over TCP",
            format!(
                "{}   (then log in again; for a run: --ulimit memlock=unlimited)",
                drop_in("- memlock", "unlimited")
            ),
        )
        .fixed_there(drop_in("- memlock", "unlimited"))
        // the card may be one of Ethernet alone
        .may_run();
    }
    if let Some(files) = found.files.filter(|files| *files < FILES) {
        let seen = format!("{files} open files");
        let cause = "many ranks and data loaders end with \"Too many open files\"";
        let possible = found.files_hard.is_none_or(|hard| hard >= FILES);
        // a run can raise what the hard limit allows
        if possible {
            return Verdict::good(format!("{seen}, and a run may raise them (--ulimit nofile=65536)"));
        }
        let command = drop_in("- nofile", "65536");
        let remedy = format!("{command}   (then log in again)");
        let verdict = Verdict::look(seen, cause, remedy).fixed_there(command);
        return if files < FILES_LEAST { Verdict { mark: Mark::Bad, ..verdict }.may_run() } else { verdict };
    }
    if let Some(processes) = found.processes.filter(|processes| *processes < PROCESSES) {
        // a hard limit that is higher stays as it is
        let is_enough = found.processes_hard.is_none_or(|hard| hard >= 65_536);
        let nproc = if is_enough { "soft nproc" } else { "- nproc" };
        return Verdict::look(
            format!("{processes} processes and threads"),
            "torch and OpenMP start threads for each core: \"Resource temporarily unavailable\"",
            format!("{}   (then log in again)", drop_in(nproc, "65536")),
        )
        .fixed_there(drop_in(nproc, "65536"));
    }
    if let Some(Tasks { most, left }) = found.tasks.filter(|tasks| tasks.left < PROCESSES) {
        let words = format!("processes and threads of its control group: {most} at most (pids.max)");
        return Verdict::look(
            format!("{words}, {left} of them left"),
            "torch, OpenMP and data loaders start threads for each core: \"Resource temporarily unavailable\"",
            "of a container: --pids-limit=-1; of a session: sudo systemctl set-property user-$(id -u).slice TasksMax=infinity; else \
             what has made the group says more",
        )
        // how many are left moves
        .lasting(words);
    }
    if let Some(scope) = found.ptrace.filter(|scope| *scope > 1) {
        let (command, more) = if scope > 2 {
            (YAMA_FILE, "then: sudo reboot (3 can't be lowered before)")
        } else {
            (
                "sudo sysctl kernel.yama.ptrace_scope=1",
                "until the next boot; the stacks of hvtui's Python hooks need none of it",
            )
        };
        return Verdict::look(
            format!("no process may look into another one (kernel.yama.ptrace_scope {scope})"),
            "py-spy and gdb can't tell where a rank hangs, and MPI copies twice between the ranks of a host",
            format!("{command}   ({more})"),
        )
        .fixed_there(command);
    }
    let count = |most: Option<u64>| most.map_or_else(|| "any".to_owned(), |most| most.to_string());
    let cores = match found.core {
        Some(Cores::UpTo(0)) => ", no core files".to_owned(),
        Some(Cores::UpTo(bytes)) => format!(", core files up to {}", units::bytes(bytes)),
        Some(Cores::Any) => ", core files".to_owned(),
        None => String::new(),
    };
    let is_less = |memory: &u64| machine.is_some_and(|machine| *memory < machine / 100 * MEMORY_PERCENT);
    let memory = found.memory.filter(is_less).map_or_else(String::new, |memory| {
        format!(", {} of memory for its control group (memory.max)", units::bytes(memory))
    });
    let (files, processes) = (count(found.files), count(found.processes));
    Verdict::good(format!("{files} open files, {processes} processes{cores}{memory}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        Found {
            files: Some(65_536),
            files_hard: None,
            locked: Some(64 << 10),
            processes: None,
            processes_hard: None,
            rdma: false,
            core: Some(Cores::UpTo(0)),
            ptrace: Some(1),
            locks_any: false,
            tasks: None,
            memory: None,
        }
    }

    fn of(found: Found) -> Verdict {
        judge(&found, Some(512 << 30))
    }

    #[test]
    fn each_limit_is_judged_by_what_needs_it() {
        assert_eq!(of(found()).evidence, "65536 open files, any processes, no core files");
        let alone = of(Found { ptrace: Some(2), ..found() });
        let seen = "no process may look into another one (kernel.yama.ptrace_scope 2)";
        assert_eq!((alone.mark, alone.evidence.as_str()), (Mark::Look, seen));
        assert_eq!(of(Found { files: Some(1024), ..found() }).mark, Mark::Good, "a run raises it");
        assert_eq!(of(Found { files: Some(1024), files_hard: Some(1024), ..found() }).mark, Mark::Look);
        assert_eq!(of(Found { files: Some(256), files_hard: Some(256), ..found() }).mark, Mark::Bad);
        assert_eq!(of(Found { processes: Some(100), ..found() }).mark, Mark::Look);
    }

    #[test]
    fn locked_memory_matters_to_rdma_and_to_those_whom_the_limit_binds() {
        assert_eq!(of(found()).mark, Mark::Good, "no such card");
        let little = Found { rdma: true, ..found() };
        assert_eq!((of(little).mark, of(little).stops_launch()), (Mark::Bad, false));
        assert!(of(little).evidence.ends_with(" of locked memory, and an RDMA card"), "{:?}", of(little));
        for locked in [None, Some(LOCKED)] {
            assert_eq!(of(Found { locked, ..little }).mark, Mark::Good, "{locked:?}");
        }
        assert_eq!(of(Found { locked: Some(LOCKED - 1), ..little }).mark, Mark::Bad);
        assert_eq!(of(Found { locks_any: true, ..little }).mark, Mark::Good, "root's is not bound");
        let status = |held: &str| format!("Name:\thvtui\nCapPrm:\t0000000000000000\nCapEff:\t{held}\n");
        let all = "         0          0 4294967295\n";
        assert!(locks_any(&status("000001ffffffffff"), all));
        assert!(!locks_any(&status("000001ffffffbfff"), all), "all but that one");
        assert!(!locks_any(&status("0000000000000000"), all) && !locks_any("", ""));
        assert!(!locks_any(&status("000001ffffffffff"), "         0       1000          1\n"));
    }

    #[test]
    fn what_control_groups_leave_is_told() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("user.slice/session-1.scope");
        std::fs::create_dir_all(&own).unwrap();
        let write = |folder: &Path, files: &[(&str, &str)]| {
            for (file, text) in files.iter().chain(&[("cgroup.procs", "")]) {
                std::fs::write(folder.join(file), text).unwrap();
            }
        };
        write(&own, &[("pids.max", "max\n"), ("pids.current", "7\n"), ("memory.max", "max\n")]);
        assert_eq!(of_groups(&own), (None, None), "nothing is limited");
        let slice = root.path().join("user.slice");
        write(&slice, &[("pids.max", "5000\n"), ("pids.current", "1000\n"), ("memory.max", "68719476736\n")]);
        let (tasks, memory) = of_groups(&own);
        assert_eq!((tasks, memory), (Some(Tasks { most: 5000, left: 4000 }), Some(64 << 30)));
        // those above are no control groups
        std::fs::write(root.path().join("pids.max"), "1\n").unwrap();
        assert_eq!(of_groups(&own).0, tasks);

        let few = of(Found { tasks, ..found() });
        assert_eq!(
            (few.mark, few.evidence.as_str()),
            (
                Mark::Look,
                "processes and threads of its control group: 5000 at most (pids.max), 4000 of them left"
            )
        );
        assert!(!few.lasting.unwrap().contains("4000"));
        let many = Some(Tasks { most: 100_000, left: PROCESSES });
        assert_eq!(of(Found { tasks: many, ..found() }).mark, Mark::Good);
        let less = of(Found { memory, ..found() });
        assert_eq!(less.mark, Mark::Good);
        assert!(less.evidence.ends_with(", 64 G of memory for its control group (memory.max)"), "{less:?}");
        assert_eq!(of(Found { memory: Some(500 << 30), ..found() }).evidence, of(found()).evidence);
    }
}
