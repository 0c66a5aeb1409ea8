//! Whether logging out would end a run: a login manager may end all that a session has started, in whatever
//! session of its own it lives by then.

use std::fs;
use std::path::Path;

/// Where systemd's login manager is configured, the later before the earlier.
const FILE: &str = "/etc/systemd/logind.conf";
const FOLDERS: [&str; 4] = [
    "/usr/lib/systemd/logind.conf.d",
    "/usr/local/lib/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
    "/etc/systemd/logind.conf.d",
];

/// A warning with the remedy, for a process that a logout would end.
pub(super) fn danger() -> Option<String> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    if uid == 0 || !in_session(&membership) || !kills(&configuration()) {
        return None;
    }
    let user =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| uid.to_string());
    let lingers = Path::new("/var/lib/systemd/linger").join(&user).exists();
    let linger = if lingers { String::new() } else { format!("`loginctl enable-linger {user}` and ") };
    Some(format!(
        "logging out ends the run here (KillUserProcesses=yes): {linger}`KillExcludeUsers={user}` in {FILE} prevents it"
    ))
}

/// Whether a process of this `/proc/PID/cgroup` belongs to a login.
fn in_session(membership: &str) -> bool {
    membership.lines().any(|line| line.contains("/session-") && line.contains(".scope"))
}

/// All that is configured, in the order in which it counts.
fn configuration() -> Vec<String> {
    let mut drops = Vec::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        drops.extend(
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "conf")),
        );
    }
    drops.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    let files = std::iter::once(Path::new(FILE).to_owned()).chain(drops);
    files.filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// Whether the last word on it is yes. Nothing said is taken for no, as most distributions build it.
fn kills(texts: &[String]) -> bool {
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut values =
        lines.filter_map(|line| line.trim().strip_prefix("KillUserProcesses")?.trim().strip_prefix('='));
    let last = values.next_back().map(|value| value.trim().to_ascii_lowercase());
    last.is_some_and(|value| matches!(value.as_str(), "yes" | "true" | "on" | "1" | "y" | "t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_a_comment_is_none() {
        let say = |texts: &[&str]| kills(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert!(!say(&[]));
        assert!(!say(&["[Login]\n#KillUserProcesses=yes\n"]));
        assert!(say(&["[Login]\nKillUserProcesses = yes\n"]));
        assert!(!say(&["KillUserProcesses=yes\n", "KillUserProcesses=no\n"]));
        assert!(in_session("0::/user.slice/user-1000.slice/session-3.scope\n"));
        assert!(!in_session("0::/user.slice/user-1000.slice/user@1000.service/app.slice\n"));
    }
}
