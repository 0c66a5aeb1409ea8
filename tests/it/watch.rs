//! `hvtui watch` in a terminal: one table in one place, and the terminal as it was at the end.

use std::process::Command;

use crate::common::terminal::Terminal;

#[test]
fn a_table_stays_in_its_place_and_gives_the_terminal_back() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hvtui"));
    command.args(["watch", "-n", "0.2"]).env("HOME", home.path()).current_dir(home.path());
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    let Some(terminal) = Terminal::start(&command, 100, 30) else { return };
    let of_host =
        |screen: &str| screen.lines().filter(|line| line.contains("CPUs") && line.contains("age")).count();
    let first = terminal.wait("a table", |screen| of_host(screen) == 1);
    let next = terminal.wait("another one", |screen| of_host(screen) > 0 && screen != first);
    assert!(next.starts_with("local") && of_host(&next) == 1, "in the place of the first one:\n{next}");
    assert_eq!(terminal.mode("#{cursor_flag} #{alternate_on}"), "0 0", "the cursor is hidden meanwhile");
    // of a key the shell around it would die, too
    terminal.signal("INT");
    terminal.assert_restored(130);
}
