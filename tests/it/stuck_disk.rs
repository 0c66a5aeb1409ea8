//! A disk for recordings that hangs or can't be written: what is said when hvtui is left, and that a signal leaves at once.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::common::cluster::skip;
use super::common::stuck_file::StuckFile;
use super::common::terminal::Terminal;
use crate::common::processes::end_of;
use crate::local_runs::Person;

fn hvtui(person: &Person, args: &[&str]) -> Command {
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(args).current_dir(person.home());
    command.env_clear().env("HOME", person.home()).env("PATH", "/usr/bin:/bin");
    command.env("LANG", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn recordings(person: &Person) -> PathBuf {
    person.home().join(".local/state/hvtui/runs")
}

fn stuck(person: &Person) -> Option<StuckFile> {
    let stuck = StuckFile::folder(&recordings(person));
    if stuck.is_none() {
        skip("no right to mount");
    }
    stuck
}

fn send(hvtui: &Child, signal: Signal) {
    kill_process(Pid::from_child(hvtui), signal).unwrap();
}

#[test]
fn a_run_that_is_left_tells_that_it_was_not_recorded() {
    let person = Person::new(1);
    std::fs::create_dir_all(recordings(&person).parent().unwrap()).unwrap();
    std::fs::write(recordings(&person), "no folder").unwrap();
    let mut run =
        hvtui(&person, &["run", "-np", "1", "--", "sh", "-c", "echo said; exec sleep 600"]).spawn().unwrap();
    let (mut line, mut said) = (String::new(), String::new());
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "[0] said\n");
    send(&run, Signal::HUP);
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(end_of(&mut run).code(), Some(129), "{said}");
    assert!(said.contains("is not recorded: ") && said.contains(".local/state/hvtui/runs"), "{said}");
    assert!(said.contains("leaving; the run goes on"), "{said}");
    std::fs::remove_file(recordings(&person)).unwrap();
    let stopped = person.run(&["stop", "last", "--now"]);
    assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
}

#[test]
fn a_run_whose_disk_hangs_says_so_at_its_end_and_a_signal_leaves() {
    let person = Person::new(1);
    let Some(_stuck) = stuck(&person) else { return };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut run = hvtui(&person, &["run", "-np", "1", "--", "true"]).spawn().unwrap();
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
        let waits = lines.find(|line| line.contains("waiting for the recording")).unwrap();
        assert!(
            waits.contains("the recording of run ") && waits.contains("/run.mcap; ctrl-c leaves it"),
            "{waits}"
        );
        assert!(waits.contains("`hvtui attach "), "{waits}");
        send(&run, signal);
        assert_eq!(end_of(&mut run).code(), Some(code));
    }
}

#[test]
fn the_ui_gives_the_terminal_back_before_it_waits_for_a_disk_and_ctrl_c_leaves() {
    let person = Person::new(2);
    let Some(_stuck) = stuck(&person) else { return };
    let Some(terminal) = Terminal::start(&hvtui(&person, &[]), 120, 40) else { return };
    terminal.wait("its host", |screen| screen.contains("here"));
    terminal.press(&["L"]);
    terminal.wait("the Launch screen", |screen| screen.contains("command"));
    terminal.type_in("true");
    terminal.wait("its plan", |screen| screen.contains(", enter starts"));
    terminal.press(&["Enter"]);
    terminal.wait("its end", |screen| screen.contains("all 2 ranks finished"));
    terminal.press(&["q"]);
    terminal.wait("what is waited for", |screen| {
        screen.contains("waiting for the recording of run") && screen.contains("run.mcap")
    });
    assert_eq!(terminal.mode("#{alternate_on} #{cursor_flag}"), "0 1");
    // to hvtui alone: the shell around it is to tell its end
    terminal.signal("INT");
    terminal.assert_restored(130);
}
