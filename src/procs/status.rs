//! What `/proc/PID/status` and `/proc/PID/cgroup` tell of a process: whose it is, and in which control groups. Neither waits for
//! the lock of its memory map.

use std::io;

/// The first word of a line of `/proc/PID/status`, by the line's name with its colon. `None` where there is no such line.
pub(super) fn field(pid: u32, name: &str) -> io::Result<Option<String>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(word(&status, name).map(str::to_owned))
}

fn word<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()
}

/// The real uid of a process. Not the owner of the folder `/proc/PID`: that is root for one that may not be dumped. `None`
/// where the kernel's answer has an unknown form.
pub(crate) fn real_uid(pid: u32) -> io::Result<Option<u32>> {
    Ok(field(pid, "Uid:")?.and_then(|uid| uid.parse().ok()))
}

/// The login name of a uid as `/etc/passwd` has it; its number where it has none.
pub(crate) fn user_name(uid: u32) -> String {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
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

/// The control groups of a process, a line each: `0::/user.slice/…`. `None` where it is not visible.
pub(crate) fn cgroups(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()
}

/// Whether `/proc` is that of an outer namespace: its pids are not those that a signal from here goes by.
pub(crate) fn has_foreign_pids() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| has_several_pids(&status))
}

/// Of a process that is in a namespace within that of `/proc`.
fn has_several_pids(status: &str) -> bool {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    pids.is_some_and(|pids| pids.split_ascii_whitespace().count() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_an_inner_namespace_has_several_pids() {
        assert!(has_several_pids("Name:\tx\nNSpid:\t4711\t7\nNSsid:\t1\n"));
        assert!(!has_several_pids("Name:\tx\nNSpid:\t4711\nNSsid:\t1\t1\n"));
        assert!(!has_several_pids("Name:\tx\n"), "a kernel without namespaces");
    }

    #[test]
    fn names_come_from_passwd() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nli:x:1001:1001:Li,,,:/home/li:/bin/zsh\n\n+::::::\nbad:x:y:0\n";
        assert_eq!(name_in_passwd(passwd, 1001).as_deref(), Some("li"));
        assert_eq!(name_in_passwd(passwd, 1002), None);
        assert_eq!(user_name(4_000_000_001), "4000000001");
    }

    #[test]
    fn the_real_uid_counts() {
        assert_eq!(word("Name:\tsudo\nUid:\t1001\t0\t0\t0\n", "Uid:"), Some("1001"));
        assert_eq!(word("Name:\tsudo\n", "Uid:"), None);
        assert_eq!(real_uid(std::process::id()).unwrap(), Some(rustix::process::getuid().as_raw()));
    }
}
