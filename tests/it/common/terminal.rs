//! A real terminal for tests: a private tmux server that shows one command.
//!
//! Knows tmux; nothing of what the command draws.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::cluster::skip;
use super::in_time::{OutputInTime, StatusInTime};

/// How long a screen may take to show what is waited for; generous, since many tests share the machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// One command in one pane of a tmux server of its own.
///
/// When the command has ended, the pane shows `[exit N]` and the terminal's settings (`stty -a`).
pub(crate) struct Terminal {
    folder: TempDir,
}

fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

/// A shell line that runs the command with its variables and directory.
fn shell_line(command: &Command) -> String {
    let mut line = String::new();
    if let Some(folder) = command.get_current_dir() {
        let _ = write!(line, "cd {}; ", quoted(folder.as_os_str()));
    }
    line.push_str("env");
    for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
        let _ = write!(line, " -u {}", quoted(name));
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(line, " {}={}", name.to_string_lossy(), quoted(value));
        }
    }
    let _ = write!(line, " {}", quoted(command.get_program()));
    for word in command.get_args() {
        let _ = write!(line, " {}", quoted(word));
    }
    line
}

/// The first child of a process.
fn child_of(pid: &str) -> String {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its child");
    children.split_whitespace().next().expect("the command runs").to_owned()
}

fn send(signal: &str, pid: &str) {
    assert!(Command::new("kill").args(["-s", signal, pid]).status_in_time().expect("kill").success());
}

impl Terminal {
    /// Shows `command` on a screen of that size; `None` (after saying why) where there is no tmux.
    pub(crate) fn start(command: &Command, columns: u16, rows: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status_in_time().is_err() {
            skip("no tmux: apt-get install tmux");
            return None;
        }
        let terminal = Self { folder: tempfile::tempdir().expect("a temporary directory") };
        std::fs::write(
            terminal.folder.path().join("conf"),
            "set -g status off\nset -g default-terminal tmux-256color\nset -s escape-time 0\n",
        )
        .expect("tmux's settings");
        // After its end the shell keeps the pane, so that what the command left on the terminal can be looked at.
        // It outlives a ctrl-c, which the terminal sends to it as well.
        let line = format!("trap : INT; {}; echo \"[exit $?]\"; stty -a; exec cat", shell_line(command));
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let conf = terminal.folder.path().join("conf");
        let started = terminal
            .tmux()
            .arg("-f")
            .arg(conf)
            .args(["new-session", "-d", "-x", &columns, "-y", &rows, "/bin/sh", "-c", &line])
            .status_in_time();
        assert!(started.expect("tmux").success(), "tmux new-session");
        Some(terminal)
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("socket")).env_remove("TMUX").stdin(Stdio::null());
        command
    }

    fn ask(&self, args: &[&str]) -> String {
        let out = self.tmux().args(args).output_in_time().expect("tmux");
        assert!(out.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Presses keys, in tmux's names: `j`, `Enter`, `Escape`, `C-c`, `Space`.
    pub(crate) fn press(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    /// Types text as it stands.
    pub(crate) fn type_in(&self, text: &str) {
        self.ask(&["send-keys", "-l", text]);
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.ask(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// The screen's text, line by line.
    pub(crate) fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// The same with the escape sequences of colours.
    pub(crate) fn coloured(&self) -> String {
        self.ask(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen is as wanted and returns it.
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        self.wait_within(DEADLINE, what, wanted)
    }

    /// The same with another deadline: for what takes its time by what it is.
    #[expect(clippy::disallowed_methods, reason = "the deadline of a wait")]
    pub(crate) fn wait_within(
        &self,
        deadline: Duration,
        what: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(started.elapsed() < deadline, "waited for {what}; the screen shows\n{screen}");
            // each look is a program that starts: what takes long is looked at less often
            let pause = started.elapsed() / 16;
            std::thread::sleep(pause.clamp(Duration::from_millis(20), Duration::from_millis(100)));
        }
    }

    /// Tells tmux's view of the terminal: a format such as `#{alternate_on}`.
    pub(crate) fn mode(&self, format: &str) -> String {
        self.ask(&["display-message", "-p", format]).trim().to_owned()
    }

    /// Sends a signal, named as `kill` names it, to the command.
    pub(crate) fn signal(&self, name: &str) {
        send(name, &child_of(&self.mode("#{pane_pid}")));
    }

    /// The same to what the command, a shell, has started.
    pub(crate) fn signal_below(&self, name: &str) {
        send(name, &child_of(&child_of(&self.mode("#{pane_pid}"))));
    }

    /// Asserts that the command gave the terminal back as it found it, and returns the last screen.
    pub(crate) fn assert_restored(&self, code: i32) -> String {
        let screen =
            self.wait("the command's end", |screen| screen.contains("[exit ") && screen.contains("echoke"));
        assert!(screen.contains(&format!("[exit {code}]")), "{screen}");
        for off in ["-icanon", "-echo ", "-isig", "-opost"] {
            assert!(!screen.contains(off), "{off}:\n{screen}");
        }
        let modes = self.mode("#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_cursor_flag}");
        assert_eq!(modes, "0 1 0 0", "alternate screen, cursor, mouse, cursor keys");
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").stderr(Stdio::null()).status_in_time();
    }
}
