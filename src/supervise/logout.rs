//! Whether logging out would end a run: a login manager may end all that a session has started, in whatever
//! session of its own it lives by then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where systemd's login manager is configured by a person.
const FILE: &str = "/etc/systemd/logind.conf";
/// Where its files may lie, the later before the earlier.
const FOLDERS: [&str; 4] = ["usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd"];

/// Users below are the system's, whose shared memory stays.
const FIRST_PERSON: u32 = 1000;

/// The program that asks a service manager to start something, looked for on `PATH`.
pub(super) const SYSTEMD_RUN: &str = "systemd-run";

/// What a logout would do to processes that this one starts, and what there is against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Logout {
    /// Nothing.
    Harmless,
    /// It would end them, but the user's own service manager outlives it and can take them in.
    Escapable,
    /// It ends them: a warning with the remedy.
    Deadly(String),
}

impl Logout {
    /// What to tell of a process that is there now.
    pub(super) fn warning(self) -> Option<String> {
        match self {
            Self::Harmless => None,
            Self::Escapable => Some(
                "logging out ends the run here (KillUserProcesses=yes): `systemd-run --user` could not start it"
                    .to_owned(),
            ),
            Self::Deadly(text) => Some(text),
        }
    }
}

/// That logging out would end what this process starts, with what prevents it.
pub fn ends_runs() -> Option<String> {
    match danger() {
        Logout::Deadly(text) => Some(text),
        Logout::Harmless | Logout::Escapable => None,
    }
}

/// The user whose shared memory the login manager deletes with the last session, if it does.
pub fn removes_memory_of() -> Option<String> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    let user = user(uid);
    let is_of_a_person = uid >= FIRST_PERSON && in_session(&membership) && !lingers(&user);
    (is_of_a_person && removes_memory(&configuration(Path::new("/")))).then_some(user)
}

fn user(uid: u32) -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| uid.to_string())
}

fn lingers(user: &str) -> bool {
    Path::new("/var/lib/systemd/linger").join(user).exists()
}

/// Looks at this process and its machine.
pub(super) fn danger() -> Logout {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    if uid == 0 || !in_session(&membership) || !kills(&configuration(Path::new("/"))) {
        return Logout::Harmless;
    }
    let user = user(uid);
    let lingers = lingers(&user);
    // where it listens for what `systemd-run --user` asks
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| format!("/run/user/{uid}").into(), PathBuf::from);
    judge(&user, lingers, runtime.join("systemd/private").exists())
}

/// For a process that a logout would end. A manager that does not linger ends with the user's last session itself.
fn judge(user: &str, lingers: bool, manager: bool) -> Logout {
    if lingers && manager {
        return Logout::Escapable;
    }
    let remedy = if lingers {
        format!("`KillExcludeUsers={user}` in {FILE}, or a user manager (`systemctl --user`),")
    } else {
        format!("`loginctl enable-linger {user}`")
    };
    Logout::Deadly(format!("logging out ends the run here (KillUserProcesses=yes): {remedy} prevents it"))
}

/// The command that starts `exe` where a logout does not reach it, through the user's service manager. It becomes that
/// program itself, with the same environment and standard streams; nothing secret is in its words.
pub(super) fn escape(systemd_run: &Path, exe: &Path, dir: &Path) -> Command {
    let mut command = Command::new(systemd_run);
    // A name that says whose it is, and is free again when it ends, however it ends.
    let run = dir.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let unit = format!("--unit=hvtui-{run}-{}", std::process::id());
    command.args(["--user", "--scope", "--quiet", "--collect", &unit, "--"]).arg(exe);
    command
}

/// Whether a process of this `/proc/PID/cgroup` belongs to a login.
fn in_session(membership: &str) -> bool {
    membership.lines().any(|line| line.contains("/session-") && line.contains(".scope"))
}

/// All that is configured, in the order in which it counts: one main file, and then what is dropped in, by its names. Of files with
/// one name that of the first folder counts, also where it is empty or leads to `/dev/null`.
fn configuration(root: &Path) -> Vec<String> {
    let mut drops = BTreeMap::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(root.join(folder).join("logind.conf.d")).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "conf"));
        drops.extend(paths.filter_map(|path| Some((path.file_name()?.to_owned(), path))));
    }
    let mut main = FOLDERS.iter().rev().map(|folder| root.join(folder).join("logind.conf"));
    let main = main.find(|path| path.exists());
    main.into_iter().chain(drops.into_values()).filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// Whether the last word on it is yes. Nothing said is taken for no, as most distributions build it.
fn kills(texts: &[String]) -> bool {
    last_word(texts, "KillUserProcesses").unwrap_or(false)
}

/// Whether the last word on it is yes; where nothing is said, the default that the file comes with as a comment.
fn removes_memory(texts: &[String]) -> bool {
    last_word(texts, "RemoveIPC").or_else(|| last_word(texts, "#RemoveIPC")).unwrap_or(false)
}

fn last_word(texts: &[String], name: &str) -> Option<bool> {
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut values = lines.filter_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix('='));
    let last = values.next_back().map(|value| value.trim().to_ascii_lowercase())?;
    Some(matches!(last.as_str(), "yes" | "true" | "on" | "1" | "y" | "t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_manager_that_lingers_is_a_way_out() {
        assert_eq!(judge("li", true, true), Logout::Escapable);
        let Logout::Deadly(text) = judge("li", false, true) else { panic!("it ends with the session") };
        assert_eq!(
            text,
            "logging out ends the run here (KillUserProcesses=yes): `loginctl enable-linger li` prevents it"
        );
        let Logout::Deadly(text) = judge("li", true, false) else { panic!("there is none") };
        assert!(text.contains("`KillExcludeUsers=li` in /etc/systemd/logind.conf"), "{text}");
    }

    #[test]
    fn the_first_main_file_counts_and_of_each_name_one_that_is_dropped_in() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert!(configuration(root.path()).is_empty());
        // a vendor's alone
        write("usr/lib/systemd/logind.conf", "[Login]\nKillUserProcesses=yes\n");
        assert!(kills(&configuration(root.path())));
        write("run/systemd/logind.conf", "run");
        write("usr/local/lib/systemd/logind.conf", "local");
        assert_eq!(configuration(root.path()), ["run"]);
        write("etc/systemd/logind.conf", "etc");
        for (path, text) in [
            ("etc/systemd/logind.conf.d/20-b.conf", ""),
            ("run/systemd/logind.conf.d/10-a.conf", "a of run"),
            ("usr/local/lib/systemd/logind.conf.d/30-c.conf", "c of local"),
            ("usr/lib/systemd/logind.conf.d/10-a.conf", "a of lib"),
            ("usr/lib/systemd/logind.conf.d/20-b.conf", "KillUserProcesses=yes\n"),
            ("usr/lib/systemd/logind.conf.d/README", "none"),
        ] {
            write(path, text);
        }
        assert_eq!(configuration(root.path()), ["etc", "a of run", "", "c of local"]);
        // hidden by who keeps the host
        fs::remove_file(root.path().join("etc/systemd/logind.conf.d/20-b.conf")).unwrap();
        assert!(kills(&configuration(root.path())));
        let hides = root.path().join("etc/systemd/logind.conf.d/20-b.conf");
        std::os::unix::fs::symlink("/dev/null", hides).unwrap();
        assert!(!kills(&configuration(root.path())));
    }

    #[test]
    fn the_last_word_counts_and_a_comment_is_none() {
        let say = |texts: &[&str]| kills(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert!(!say(&[]));
        assert!(!say(&["[Login]\n#KillUserProcesses=yes\n"]));
        assert!(say(&["[Login]\nKillUserProcesses = yes\n"]));
        assert!(!say(&["KillUserProcesses=yes\n", "KillUserProcesses=no\n"]));
        let memory =
            |texts: &[&str]| removes_memory(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert!(
            memory(&["#RemoveIPC=yes\n"]) && !memory(&["#RemoveIPC=yes\n", "RemoveIPC=no\n"]) && !memory(&[])
        );
        assert!(in_session("0::/user.slice/user-1000.slice/session-3.scope\n"));
        assert!(!in_session("0::/user.slice/user-1000.slice/user@1000.service/app.slice\n"));
    }
}
