//! The UI on a terminal that others write on, and as a job of a shell: drawn whole again, stopped with ctrl-z, continued
//! with `fg`.

use std::io::Write as _;
use std::process::Command;

use tempfile::TempDir;

use crate::common::processes::until;
use crate::common::terminal::Terminal;

/// `program` with a home folder of its own.
fn alone(program: &str, home: &TempDir) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", home.path()).env("TMPDIR", home.path()).env("PS1", "shell> ").current_dir("/");
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command
}

fn has_cluster(screen: &str) -> bool {
    screen.lines().next().is_some_and(|line| line.contains("hvtui  1 Cluster"))
        && screen.contains("gpu-03")
        && screen.contains("q quit")
}

/// The shell waits for a line: its prompt is the last that stands there, whatever stood there before.
fn has_prompt(screen: &str) -> bool {
    !has_cluster(screen) && screen.trim_end().ends_with("shell>")
}

fn is_taken(terminal: &Terminal) -> bool {
    terminal.mode("#{alternate_on} #{mouse_any_flag}") == "1 1"
}

#[test]
fn a_screen_that_others_wrote_on_is_drawn_whole_and_keys_go_on() {
    let home = tempfile::tempdir().expect("a home folder");
    let mut command = alone(crate::common::program::hvtui(), &home);
    command.arg("demo");
    let Some(terminal) = Terminal::start(&command, 100, 30) else { return };
    terminal.wait("the cluster", has_cluster);
    let tty = terminal.mode("#{pane_tty}");
    let mut tty = std::fs::OpenOptions::new().write(true).open(tty).expect("the pane's terminal");
    // in the last row, which has the keys: in others the UI draws what has changed, over the half of a word
    tty.write_all(b"\x1b[2J\x1b[30;1Ha message to all users").expect("what another program says");
    terminal.wait("what was written", |screen| screen.contains("a message to all users"));
    terminal.press(&["C-l"]);
    terminal.wait("the whole screen", |screen| has_cluster(screen) && !screen.contains("a message to all"));
    // the library waits two seconds for an answer of the terminal
    std::thread::sleep(std::time::Duration::from_millis(2500));
    terminal.press(&["?"]);
    terminal.wait("the help", |screen| screen.contains("keys of Cluster"));
    terminal.press(&["C-l"]);
    terminal.press(&["C-c"]);
    terminal.assert_restored(0);
}

#[test]
fn the_mouse_is_left_to_the_terminal_where_that_is_wanted_also_at_the_next_start() {
    let home = tempfile::tempdir().expect("a home folder");
    let command = alone(crate::common::program::hvtui(), &home);
    for (has_mouse, typed) in [(true, ":mouse off"), (false, ":mouse on"), (true, "")] {
        let Some(terminal) = Terminal::start(&command, 100, 30) else { return };
        terminal.wait("the cluster", |screen| screen.contains("1 Cluster") && screen.contains("q quit"));
        assert_eq!(is_taken(&terminal), has_mouse, "as it was left");
        if !typed.is_empty() {
            terminal.type_in(typed);
            terminal.press(&["Enter"]);
            until("the change", || is_taken(&terminal) != has_mouse);
            assert_eq!(terminal.mode("#{alternate_on}"), "1");
        }
        terminal.press(&["q"]);
        terminal.assert_restored(0);
    }
}

#[test]
fn a_shell_stops_the_ui_and_continues_it() {
    let home = tempfile::tempdir().expect("a home folder");
    let mut shell = alone("bash", &home);
    shell.args(["--norc", "--noprofile", "-i"]);
    let Some(terminal) = Terminal::start(&shell, 100, 30) else { return };
    terminal.wait("a prompt", has_prompt);
    // a job may be more than one process: the shell that waits stops with it
    terminal.type_in(&format!("sh -c '{} demo; true'", crate::common::program::hvtui()));
    terminal.press(&["Enter"]);
    terminal.wait("the cluster", has_cluster);
    for word in ["first", "second"] {
        terminal.press(&["C-z"]);
        terminal.wait("the shell", |screen| screen.contains("Stopped") && has_prompt(screen));
        assert!(!is_taken(&terminal), "the terminal is the shell's");
        terminal.type_in(&format!("echo $((20 + 3)){word}"));
        terminal.press(&["Enter"]);
        terminal.wait("its echo", |screen| screen.contains(&format!("23{word}")));
        terminal.type_in("fg");
        terminal.press(&["Enter"]);
        terminal.wait("the whole screen", has_cluster);
        assert!(is_taken(&terminal), "the terminal is the UI's");
    }
    terminal.press(&["?"]);
    terminal.wait("the help", |screen| screen.contains("keys of Cluster"));
    terminal.press(&["Escape"]);
    terminal.wait("no help", |screen| !screen.contains("keys of Cluster"));
    terminal.press(&["q"]);
    terminal.wait("the shell", has_prompt);

    // a signal alone does the same
    terminal.type_in(&format!("{} demo", crate::common::program::hvtui()));
    terminal.press(&["Enter"]);
    terminal.wait("the cluster", has_cluster);
    terminal.signal_below("TSTP");
    terminal.wait("the shell", |screen| screen.contains("Stopped") && has_prompt(screen));
    assert!(!is_taken(&terminal), "the terminal is the shell's");
    terminal.type_in("fg");
    terminal.press(&["Enter"]);
    terminal.wait("the whole screen", has_cluster);
    terminal.press(&["q"]);
    terminal.wait("the shell", has_prompt);
    terminal.type_in("exit 0");
    terminal.press(&["Enter"]);
    terminal.assert_restored(0);
}

#[test]
fn where_no_shell_would_continue_it_the_ui_goes_on() {
    let home = tempfile::tempdir().expect("a home folder");
    // a session of its own: its job belongs to no shell
    let mut command = alone("setsid", &home);
    command.args(["-c", "-w", crate::common::program::hvtui(), "demo"]);
    let Some(terminal) = Terminal::start(&command, 100, 30) else { return };
    terminal.wait("the cluster", has_cluster);
    terminal.press(&["C-z"]);
    terminal.wait("why it does not", |screen| {
        has_cluster(screen) && screen.contains("hvtui does not stop: no shell would continue it")
    });
    terminal.press(&["q"]);
    terminal.wait("its end", |screen| screen.contains("[exit 0]"));
}
