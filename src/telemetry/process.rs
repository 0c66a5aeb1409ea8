//! The identity of a process: its owner, its command line and when it started, from `/proc`. Knows nothing of GPUs.

use std::fs;
use std::time::Duration;

use crate::domain::gpu::Reading;
use crate::procs::identity::Stat;
use crate::procs::memory;
use crate::procs::status::{self, user_name};

/// Longest command line that is kept, bytes: a sample of a full host must fit into one frame.
const COMMAND_LIMIT: usize = 1024;
/// Digits of a container's id, and as many of them as engines list.
const CONTAINER_ID: usize = 64;
const SHORT_ID: usize = 12;

/// Owner and command of the process `pid`, each failed with a reason where `/proc` does not tell.
pub fn identify(pid: u32) -> (Reading<String>, Reading<String>) {
    (owner(pid).map(user_name), command(pid))
}

/// Clock ticks a second in `/proc`, on every architecture that NVIDIA's driver runs on.
const USER_HZ: u64 = 100;

/// When the process started, clock ticks since boot, and for how many seconds it has been running.
pub(super) fn times(pid: u32) -> (Reading<u64>, Reading<u64>) {
    let start = match Stat::read(pid) {
        Ok(stat) => Reading::Value(stat.start),
        Err(error) => invisible(pid, &error),
    };
    let age = start.clone().and_then(|ticks| match fs::read_to_string("/proc/uptime") {
        Ok(text) => age_s(&text, ticks)
            .map_or_else(|| Reading::failed("/proc/uptime: no usable seconds"), Reading::Value),
        Err(error) => Reading::failed(format!("/proc/uptime: {error}")),
    });
    (start, age)
}

fn age_s(uptime: &str, start_ticks: u64) -> Option<u64> {
    let seconds: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let up = Duration::try_from_secs_f64(seconds).ok()?;
    Some(up.as_secs().saturating_sub(start_ticks / USER_HZ))
}

/// The container that the process runs in, by the names of its control groups; none where it is this process's own.
pub(super) fn container(pid: u32) -> Option<String> {
    let of = |pid| container_in(&status::cgroups(pid)?);
    let id = of(pid)?;
    (of(std::process::id()).as_ref() != Some(&id)).then_some(id)
}

/// `59c313908f42` of `/docker/ID`, `/system.slice/docker-ID.scope`, `/kubepods/…/cri-containerd-ID.scope`. The last one counts:
/// an engine may run inside a container itself.
fn container_in(groups: &str) -> Option<String> {
    let is_id = |word: &&str| word.len() == CONTAINER_ID && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let of_line =
        |line: &str| line.split(['/', '-', '.', ':']).rfind(is_id).map(|id| id[..SHORT_ID].to_owned());
    groups.lines().find_map(of_line)
}

fn owner(pid: u32) -> Reading<u32> {
    match status::real_uid(pid) {
        Ok(Some(uid)) => Reading::Value(uid),
        Ok(None) => Reading::failed(format!("/proc/{pid}/status: no usable Uid line")),
        Err(error) => invisible(pid, &error),
    }
}

fn command(pid: u32) -> Reading<String> {
    match memory::command_line(pid) {
        // Kernel threads and zombies have no arguments, only a name.
        Ok(line) if line.is_empty() => match fs::read(format!("/proc/{pid}/comm")) {
            Ok(name) => Reading::Value(format!("[{}]", String::from_utf8_lossy(&name).trim_end())),
            Err(error) => invisible(pid, &error),
        },
        Ok(mut line) => {
            line.truncate(COMMAND_LIMIT);
            Reading::Value(joined(&line))
        }
        Err(error) => invisible(pid, &error),
    }
}

fn joined(cmdline: &[u8]) -> String {
    let end = cmdline.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    String::from_utf8_lossy(&cmdline[..end]).replace('\0', " ")
}

fn invisible<T>(pid: u32, error: &std::io::Error) -> Reading<T> {
    if error.kind() == std::io::ErrorKind::NotFound {
        Reading::failed(format!(
            "process {pid} is not visible here: ended, hidden, or of another pid namespace"
        ))
    } else {
        Reading::failed(format!("process {pid}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_the_time_since_the_start() {
        assert_eq!(age_s("1000.58 3000.1\n", 98_765), Some(13));
        assert_eq!(age_s("10.58 30.1\n", 98_765), Some(0));
        assert_eq!(age_s("nan 1", 1), None);
    }

    #[test]
    fn arguments_are_joined() {
        assert_eq!(joined(b"python\0train.py\0--lr\x000.1\0"), "python train.py --lr 0.1");
        assert_eq!(joined(b"nginx: worker process\0\0\0\0"), "nginx: worker process");
        assert_eq!(joined(b"bad \xff byte\0"), "bad \u{fffd} byte");
    }

    #[test]
    fn containers_are_known_by_the_groups_of_every_engine() {
        let id = "59c313908f42a99f81af69f8da18101c6ecdf9a4295558101a309be60327ae28";
        let outer = "0".repeat(64);
        for groups in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("12:pids:/docker/{id}\n11:cpu:/docker/{id}\n"),
            format!("0::/docker/{outer}/docker/{id}/inner\n"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n"),
            format!("0::/user.slice/user-1000.slice/libpod-{id}.scope/container\n"),
        ] {
            assert_eq!(container_in(&groups).as_deref(), Some("59c313908f42"), "{groups}");
        }
        assert_eq!(container_in("0::/user.slice/user-1000.slice/session-3.scope\n"), None);
        assert_eq!(container(std::process::id()), None);
    }

    #[test]
    fn a_process_that_is_not_there_is_said_so() {
        // Above the kernel's largest pid.
        let (user, command) = identify(4_194_305);
        assert!(matches!(&user, Reading::Failed { error } if error.contains("not visible here")), "{user:?}");
        assert!(matches!(command, Reading::Failed { .. }));
        let (start, age) = times(4_194_305);
        assert!(
            matches!(&start, Reading::Failed { error } if error.contains("not visible here")),
            "{start:?}"
        );
        assert_eq!(start, age);
        assert!(matches!(times(std::process::id()), (Reading::Value(1..), Reading::Value(0..86_400))));
        let (user, command) = identify(std::process::id());
        assert_eq!(user, Reading::Value(user_name(rustix::process::getuid().as_raw())));
        assert!(!command.value().unwrap().is_empty());
    }
}
