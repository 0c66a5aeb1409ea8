//! Whether the limits of a user's processes are what training needs.

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::preflight::Mark;
use crate::domain::units;

pub(in crate::doctor) struct Limits;

/// A rank with data loaders opens hundreds of files, NCCL a few for each peer.
const FILES: u64 = 4096;
const FILES_LEAST: u64 = 1024;
/// What an RDMA card's queues lock, about.
const LOCKED: u64 = 1 << 30;
const PROCESSES: u64 = 4096;

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
}

/// How large a core file may be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Cores {
    UpTo(u64),
    Any,
}

impl Check for Limits {
    const NAME: &'static str = "limits";
    const ASKS: &'static str = "open files, locked memory, processes and core files of a command over ssh";
    const OF_IMAGE: OfImage = OfImage::There;
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        let (files, processes) = (getrlimit(Resource::Nofile), getrlimit(Resource::Nproc));
        let rdma = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut cards| cards.next().is_some());
        Ok(Found {
            files: files.current,
            files_hard: files.maximum,
            locked: getrlimit(Resource::Memlock).current,
            processes: processes.current,
            processes_hard: processes.maximum,
            rdma,
            core: Some(getrlimit(Resource::Core).current.map_or(Cores::Any, Cores::UpTo)),
            ptrace: ptrace(),
        })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        // what tells where a rank hangs is no reason not to start one
        let judge_one = |one: &Seen<'_, Found>| match one.uses {
            Some(_) => judge(&Found { ptrace: None, ..one.found }),
            None => judge(&one.found),
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

fn judge(found: &Found) -> Verdict {
    if let Some(locked) = found.locked.filter(|locked| found.rdma && *locked < LOCKED) {
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
    Verdict::good(format!("{} open files, {} processes{cores}", count(found.files), count(found.processes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_judged_by_what_needs_it() {
        let found = || Found {
            files: Some(65_536),
            files_hard: None,
            locked: Some(64 << 10),
            processes: None,
            processes_hard: None,
            rdma: false,
            core: Some(Cores::UpTo(0)),
            ptrace: Some(1),
        };
        assert_eq!(judge(&found()).evidence, "65536 open files, any processes, no core files");
        assert_eq!(judge(&Found { ptrace: Some(2), ..found() }).mark, Mark::Look);
        assert_eq!(judge(&found()).mark, Mark::Good, "locked memory matters to RDMA alone");
        assert_eq!(judge(&Found { rdma: true, ..found() }).mark, Mark::Bad);
        assert_eq!(judge(&Found { files: Some(1024), ..found() }).mark, Mark::Good, "a run raises it");
        assert_eq!(judge(&Found { files: Some(1024), files_hard: Some(1024), ..found() }).mark, Mark::Look);
        assert_eq!(judge(&Found { files: Some(256), files_hard: Some(256), ..found() }).mark, Mark::Bad);
        assert_eq!(judge(&Found { processes: Some(100), ..found() }).mark, Mark::Look);
    }
}
