//! The identity of a process: its owner, its command line and when it started, from `/proc`. Knows nothing of GPUs.

use std::fs;
use std::io::Read;
use std::time::Duration;

use crate::domain::gpu::Reading;

/// Longest command line that is kept, bytes: a sample of a full host must fit into one frame.
const COMMAND_LIMIT: u64 = 1024;
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
    let start = match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => start_ticks(&String::from_utf8_lossy(&stat)).map_or_else(
            || Reading::failed(format!("/proc/{pid}/stat: no usable start time")),
            Reading::Value,
        ),
        Err(error) => invisible(pid, &error),
    };
    let age = start.clone().and_then(|ticks| match fs::read_to_string("/proc/uptime") {
        Ok(text) => age_s(&text, ticks)
            .map_or_else(|| Reading::failed("/proc/uptime: no usable seconds"), Reading::Value),
        Err(error) => Reading::failed(format!("/proc/uptime: {error}")),
    });
    (start, age)
}

/// Field 22; the name before may hold spaces and parentheses, and ends at the last one.
fn start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn age_s(uptime: &str, start_ticks: u64) -> Option<u64> {
    let seconds: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let up = Duration::try_from_secs_f64(seconds).ok()?;
    Some(up.as_secs().saturating_sub(start_ticks / USER_HZ))
}

/// The container that the process runs in, by the names of its control groups; none where it is this process's own.
pub(super) fn container(pid: u32) -> Option<String> {
    let of = |pid: &str| container_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?);
    let id = of(&pid.to_string())?;
    (of("self").as_ref() != Some(&id)).then_some(id)
}

/// `59c313908f42` of `/docker/ID`, `/system.slice/docker-ID.scope`, `/kubepods/…/cri-containerd-ID.scope`. The last one counts:
/// an engine may run inside a container itself.
fn container_in(groups: &str) -> Option<String> {
    let is_id = |word: &&str| word.len() == CONTAINER_ID && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let of_line =
        |line: &str| line.split(['/', '-', '.', ':']).rfind(is_id).map(|id| id[..SHORT_ID].to_owned());
    groups.lines().find_map(of_line)
}

/// The login name of `uid` as `/etc/passwd` has it; the number where it has none.
pub(super) fn user_name(uid: u32) -> String {
    let passwd = fs::read("/etc/passwd").unwrap_or_default();
    name_in_passwd(&String::from_utf8_lossy(&passwd), uid).unwrap_or_else(|| uid.to_string())
}

fn name_in_passwd(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then(|| name.to_owned())
    })
}

/// The real uid. Not the owner of the folder `/proc/PID`: that is root for a process that may not be dumped.
fn owner(pid: u32) -> Reading<u32> {
    match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => real_uid(&status).map_or_else(
            || Reading::failed(format!("/proc/{pid}/status: no usable Uid line")),
            Reading::Value,
        ),
        Err(error) => invisible(pid, &error),
    }
}

fn real_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn command(pid: u32) -> Reading<String> {
    let mut line = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(COMMAND_LIMIT).read_to_end(&mut line));
    match read {
        // Kernel threads and zombies have no arguments, only a name.
        Ok(0) => match fs::read(format!("/proc/{pid}/comm")) {
            Ok(name) => Reading::Value(format!("[{}]", String::from_utf8_lossy(&name).trim_end())),
            Err(error) => invisible(pid, &error),
        },
        Ok(_) => Reading::Value(joined(&line)),
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
    fn names_come_from_passwd() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nli:x:1001:1001:Li,,,:/home/li:/bin/zsh\n\n+::::::\nbad:x:y:0\n";
        assert_eq!(name_in_passwd(passwd, 1001).as_deref(), Some("li"));
        assert_eq!(name_in_passwd(passwd, 1002), None);
        assert_eq!(user_name(4_000_000_001), "4000000001");
    }

    #[test]
    fn an_age_is_the_time_since_the_start() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 1 0 98765 1000 2 3";
        assert_eq!(start_ticks(line), Some(98_765));
        assert_eq!(start_ticks("42 (a"), None);
        assert_eq!(age_s("1000.58 3000.1\n", 98_765), Some(13));
        assert_eq!(age_s("10.58 30.1\n", 98_765), Some(0));
        assert_eq!(age_s("nan 1", 1), None);
    }

    #[test]
    fn the_real_uid_counts() {
        assert_eq!(real_uid("Name:\tsudo\nUid:\t1001\t0\t0\t0\n"), Some(1001));
        assert_eq!(real_uid("Name:\tsudo\n"), None);
        assert_eq!(real_uid("Uid:\tx"), None);
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
