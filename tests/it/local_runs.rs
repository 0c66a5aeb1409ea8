//! Runs on this machine alone, by the real binary: its standard output, many ranks, and what the list of runs says.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use hvtui::clock::now;
use hvtui::domain::event::Event;
use hvtui::domain::ids::RunId;
use hvtui::domain::time::Stamp;
use hvtui::domain::world::{RunState, World};
use hvtui::record::{Player, Reader, Store};

use super::common::built;
use super::common::processes::{end_of, until, until_says};
use super::common::terminal::Terminal;
use crate::common::in_time::{OutputInTime, StatusInTime};

/// A person with an empty home, whose hosts file gives this machine so many slots.
pub(crate) struct Person {
    home: TempDir,
}

impl Person {
    pub(crate) fn new(slots: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        let hosts =
            format!("[[host]]\nname = \"here\"\naddress = \"local\"\nslots = {slots}\nspool_cap = \"1M\"\n");
        std::fs::write(home.path().join("hosts.toml"), hosts).unwrap();
        Self { home }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn hvtui(&self, args: &[&str]) -> Command {
        self.command(&[crate::common::program::hvtui()], args)
    }

    /// hvtui, started without a standard output.
    fn without_output(&self, args: &[&str]) -> Output {
        let closed = ["sh", "-c", r#"exec "$0" "$@" >&-"#, crate::common::program::hvtui()];
        self.command(&closed, args).output_in_time().unwrap()
    }

    fn command(&self, program: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120"]).args(program).args(args);
        command.current_dir(self.home()).env_clear().env("HOME", self.home()).env("PATH", "/usr/bin:/bin");
        command.env("LANG", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.hvtui(args).output_in_time().unwrap()
    }

    /// The only run, as `runs --json` tells it.
    fn recorded(&self) -> serde_json::Value {
        let out = self.run(&["runs", "--json"]);
        let runs: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
        runs[0].clone()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_full_standard_output_fails_the_run() {
    let person = Person::new(1);
    let mut command = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", "echo said; exec sleep 600"]);
    let out =
        command.stdout(File::options().write(true).open("/dev/full").unwrap()).output_in_time().unwrap();
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(74), "{err}");
    assert!(err.contains("hvtui: can't write to standard output: No space left on device"), "{err}");
    assert!(err.contains("stopping the run"), "{err}");
    assert_eq!(person.recorded()["outcome"]["end"], "stopped");
}

#[test]
fn a_module_that_is_missing_on_this_machine_names_the_python_that_lacks_it() {
    let person = Person::new(1);
    let hosts = "[[host]]\nname = \"local\"\naddress = \"local\"\nslots = 1\n";
    std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
    let said = |variables: &[&str]| {
        let line = ["python3", "-c", "import no_such_module"];
        let out = person.run(&[&["run", "-np", "1"], variables, &["--"], &line].concat());
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        text(&out.stderr)
    };
    let hint = "doctor --only python,path --module no_such_module -H local";
    let err = said(&[]);
    assert!(err.contains(&format!("{hint}; python3 is /usr/bin/python3\n")), "{err}");
    // of another search path nothing is known here
    let err = said(&["--env", "PATH=/bin:/usr/bin"]);
    assert!(err.contains(hint) && !err.contains("python3 is"), "{err}");
}

#[test]
fn last_is_the_newest_run_in_which_there_is_something() {
    let person = Person::new(1);
    assert!(person.run(&["run", "-np", "1", "--name", "good", "--", "echo", "said"]).status.success());
    // what a full disk has left of a later one
    let store = Store::new(&person.home().join(".local/state/hvtui"));
    let left = store.path_of(&RunId::new(4_000_000_000_000, 1));
    std::fs::create_dir_all(left.parent().unwrap()).unwrap();
    File::create(&left).unwrap();
    for args in [&["report", "last"][..], &["logs", "last"], &["export", "last", "--to", "jsonl"]] {
        let out = person.run(args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
    }
    assert!(text(&person.run(&["report", "last"]).stdout).contains("good"));
    // where there is no other there is none
    let newest = store.list().unwrap().runs.remove(0).spec.id;
    store.delete(&newest).unwrap();
    assert!(store.find("last").unwrap_err().to_string().starts_with("no run is recorded in "));
}

#[test]
fn a_folder_that_holds_a_recording_is_that_recording() {
    let person = Person::new(1);
    assert!(person.run(&["run", "-np", "1", "--name", "good", "--", "echo", "said"]).status.success());
    let store = Store::new(&person.home().join(".local/state/hvtui"));
    let folder = person.home().join("rf");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(store.find("last").unwrap(), folder.join("run.mcap")).unwrap();
    for folder in ["rf", "./rf", "rf/"] {
        for args in [&["report", folder][..], &["logs", folder], &["runs", "check", folder]] {
            let out = person.run(args);
            assert!(out.status.success(), "{args:?}: {}{}", text(&out.stdout), text(&out.stderr));
        }
    }
    assert!(text(&person.run(&["logs", "rf"]).stdout).contains("said"));
    // a run that is called so is meant first
    assert!(person.run(&["run", "-np", "1", "--name", "rf", "--", "echo", "other"]).status.success());
    assert!(text(&person.run(&["logs", "rf"]).stdout).contains("other"));
    assert!(text(&person.run(&["logs", "./rf"]).stdout).contains("said"));
}

#[test]
fn help_that_could_not_be_written_is_no_success() {
    let person = Person::new(1);
    assert!(person.run(&["run", "-np", "1", "--", "echo", "said"]).status.success());
    for args in [
        &["--help"][..],
        &["--version"],
        &["runs", "--local"],
        &["runs", "--json"],
        &["report", "last"],
        &["logs", "last"],
        &["doctor", "--only", "disk"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let out = person.hvtui(args).stdout(full).output_in_time().unwrap();
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(74), "{args:?}: {err}");
        assert!(
            err.contains("hvtui: can't write to standard output: No space left on device"),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn a_closed_standard_output_is_no_success() {
    let person = Person::new(1);
    assert!(person.run(&["run", "-np", "1", "--", "echo", "said"]).status.success());
    let why = "hvtui: can't write to standard output: it was closed when hvtui was started";
    for args in [
        &["--help"][..],
        &["runs", "--local"],
        &["runs", "--json"],
        &["report", "last"],
        &["logs", "last"],
        &["export", "last", "--to", "jsonl"],
    ] {
        let out = person.without_output(args);
        let err = text(&out.stderr);
        assert!(out.status.code() == Some(74) && err.contains(why), "{args:?}: {:?} {err}", out.status);
    }
    let silent = person.without_output(&["export", "last", "--to", "mcap", "-o", "whole.mcap"]);
    assert_eq!(silent.status.code(), Some(0), "it prints nothing there: {}", text(&silent.stderr));
    let run = person.without_output(&["run", "-np", "1", "--", "sh", "-c", "echo said; exec sleep 600"]);
    let err = text(&run.stderr);
    assert!(run.status.code() == Some(74) && err.contains(why) && err.contains("stopping the run"), "{err}");
}

/// 64 is what was typed wrongly, 65 is data that are none, 74 is a file that is not there or that the system refuses.
#[test]
fn a_recording_that_can_not_be_read_is_no_wrong_usage() {
    let person = Person::new(1);
    std::fs::write(person.home().join("text.mcap"), "no recording at all").unwrap();
    std::fs::create_dir(person.home().join("folder.mcap")).unwrap();
    for command in ["report", "export --to csv", "runs check"] {
        for (file, code) in [("text.mcap", 65), ("folder.mcap", 65), ("none.mcap", 74)] {
            let args: Vec<&str> = command.split(' ').chain([file]).collect();
            let out = person.run(&args);
            let err = text(&out.stderr) + &text(&out.stdout);
            assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
            assert!(err.contains(file), "{args:?}: {err}");
        }
    }
    for args in [&["import", "none.json"][..], &["--hosts", "none.toml", "hosts"]] {
        let out = person.run(args);
        assert_eq!(out.status.code(), Some(74), "{args:?}: {}", text(&out.stderr));
    }
    assert_eq!(person.run(&["report", "none"]).status.code(), Some(64), "no run is called so");
}

/// Shows a command on a terminal that is not that of its session, until it has written a word there, and closes it.
const CLOSED_TERMINAL: &str = r#"
import fcntl, os, pty, struct, subprocess, sys, termios
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
hvtui = subprocess.Popen(sys.argv[2:], stdin=slave, stdout=slave, stderr=subprocess.PIPE, start_new_session=True)
os.close(slave)
seen = b""
while sys.argv[1].encode() not in seen:
    seen += os.read(master, 65536)
os.close(master)
try:
    said = hvtui.communicate(timeout=60)[1]
except subprocess.TimeoutExpired:
    hvtui.kill()
    said = b"it goes on without a terminal: " + hvtui.communicate()[1]
sys.stderr.buffer.write(said)
sys.exit(hvtui.wait())
"#;

#[test]
fn a_terminal_that_is_gone_without_a_signal_ends_the_ui_and_a_run() {
    let person = Person::new(1);
    let script = "while :; do echo said; sleep 0.1; done";
    let run = ["run", "-np", "1", "--", "sh", "-c", script];
    for (args, shown, words) in [
        (&[][..], "here", "hvtui: the terminal is gone"),
        (&run[..], "said", "hvtui: can't write to standard output: Input/output error"),
    ] {
        let mut command = Command::new("python3");
        command.args(["-c", CLOSED_TERMINAL, shown, crate::common::program::hvtui()]).args(args);
        command.current_dir(person.home()).env_clear().env("HOME", person.home());
        command.env("PATH", "/usr/bin:/bin").env("TERM", "xterm").env("LANG", "C.UTF-8");
        let out = command.output_in_time().unwrap();
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(74), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
    }
    assert_eq!(person.recorded()["outcome"]["end"], "stopped");
}

/// The same where the keys come from one terminal and the screen is another, which stays: that of the keys is closed.
const CLOSED_KEYS: &str = r#"
import fcntl, os, pty, struct, subprocess, sys, termios, threading
keys, keys_end = pty.openpty()
screen, screen_end = pty.openpty()
for end in (keys_end, screen_end):
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
hvtui = subprocess.Popen(sys.argv[1:], stdin=keys_end, stdout=screen_end, stderr=subprocess.PIPE, start_new_session=True)
os.close(keys_end)
seen = b""
while b"here" not in seen:
    seen += os.read(screen, 65536)
def drain():
    while os.read(screen, 65536):
        pass
threading.Thread(target=drain, daemon=True).start()
os.close(keys)
try:
    said = hvtui.communicate(timeout=60)[1]
except subprocess.TimeoutExpired:
    hvtui.kill()
    said = b"it goes on without keys: " + hvtui.communicate()[1]
sys.stderr.buffer.write(said)
sys.stderr.flush()
os._exit(hvtui.wait())
"#;

#[test]
fn a_terminal_of_the_keys_that_is_gone_ends_the_ui() {
    let person = Person::new(1);
    let mut command = Command::new("python3");
    command.args(["-c", CLOSED_KEYS, crate::common::program::hvtui()]);
    command.current_dir(person.home()).env_clear().env("HOME", person.home());
    command.env("PATH", "/usr/bin:/bin").env("TERM", "xterm").env("LANG", "C.UTF-8");
    let out = command.output_in_time().unwrap();
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(74), "{err}");
    assert!(err.contains("hvtui: the terminal is gone"), "{err}");
}

/// The recorder is behind where the run ends: what it leaves out then is told, too.
#[test]
fn lines_that_a_recording_leaves_out_are_told_once() {
    let person = Person::new(1);
    let hosts = person.home().join("hosts.toml");
    let before = std::fs::read_to_string(&hosts).unwrap().replace("spool_cap = \"1M\"\n", "");
    std::fs::write(&hosts, format!("[runs]\nmax_recording = \"1M\"\n{before}")).unwrap();
    let flood = "import os\nfor i in range(60000): print(i, os.urandom(32).hex())";
    let out = person.run(&["run", "-np", "1", "--", "python3", "-c", flood]);
    let err = text(&out.stderr);
    assert!(out.status.success(), "{err}");
    assert_eq!(text(&out.stdout).lines().count(), 60_000, "{err}");
    assert_eq!(err.matches("is not whole: it has come to 1.0 M").count(), 1, "{err}");
}

#[test]
fn a_reader_that_goes_away_stops_the_run() {
    let person = Person::new(1);
    // one that goes on printing, and one that says nothing more
    for script in ["while :; do echo said; done", "echo said; exec sleep 600"] {
        let mut hvtui = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", script]).spawn().unwrap();
        let mut lines = BufReader::new(hvtui.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert_eq!(first, "[0] said\n");
        drop(lines);
        let out = hvtui.output_in_time().unwrap();
        let err = text(&out.stderr);
        assert_eq!((out.status.code(), out.status.signal()), (Some(141), None), "{script}: {err}");
        assert!(err.contains("nothing reads standard output any more: stopping the run"), "{err}");
        assert!(err.contains("exit 141 after") && !err.contains("exit 130"), "as the command exits: {err}");
    }
}

#[test]
fn what_another_client_follows_goes_on_when_its_reader_goes_away() {
    let person = Person::new(1);
    let out = person.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", "echo said; exec sleep 600"]);
    let run = text(&out.stdout).trim().to_owned();
    let mut attached = person.hvtui(&["attach", &run]).spawn().unwrap();
    let mut first = String::new();
    let mut lines = BufReader::new(attached.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    drop(lines);
    let out = attached.output_in_time().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("detached; the run goes on"), "{}", text(&out.stderr));
    assert_eq!(person.recorded()["state"], "running");
    let stopped = person.run(&["stop", &run]);
    assert!(text(&stopped.stdout).contains("nothing of run"), "{}", text(&stopped.stdout));
    let again = person.run(&["stop", &run]);
    assert!(text(&again.stdout).contains("has ended already"), "{}", text(&again.stdout));
}

#[test]
fn a_stop_waits_for_no_connection_that_is_there_already() {
    let person = Person::new(1);
    let script = "trap 'sleep 2; exit 0' TERM; > trapped; while [ -e ~ ]; do sleep 0.1; done";
    let out = person.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", script]);
    let run = text(&out.stdout).trim().to_owned();
    until("the rank's trap", || person.home().join("trapped").exists());
    // then its hosts are asked which run is meant
    std::fs::remove_dir_all(person.home().join(".local/state/hvtui/runs")).unwrap();
    let stopped = person.run(&["stop", &run]);
    assert!(text(&stopped.stdout).contains("nothing of run"), "{stopped:?}");
    assert!(!text(&stopped.stderr).contains("connecting"), "{stopped:?}");
}

#[test]
fn logs_that_are_followed_end_with_their_reader_though_ranks_print_nothing_more() {
    let person = Person::new(1);
    let out = person.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", "echo said; exec sleep 600"]);
    let run = text(&out.stdout).trim().to_owned();
    let mut logs = person.hvtui(&["logs", "-f", &run]).spawn().unwrap();
    let mut first = String::new();
    let mut lines = BufReader::new(logs.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    assert_eq!(first, "[0] said\n");
    drop(lines);
    let out = logs.output_in_time().unwrap();
    assert!(out.status.success(), "{:?} {}", out.status, text(&out.stderr));
    assert_eq!(person.recorded()["state"], "running");
    assert!(person.run(&["stop", &run]).status.success());
}

#[test]
fn a_run_that_hung_before_it_was_stopped_says_so_in_the_list() {
    let person = Person::new(1);
    let step = r#"echo "{\"kind\":\"step\",\"step\":$i,\"dur_us\":1000}" >>$HVTUI_REPORT"#;
    let script = format!("for i in 1 2 3; do {step}; done; echo told; exec sleep 600");
    let mut run = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", &script]).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(run.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
    assert_eq!(told, "[0] told\n");
    // a stop after less is no hang: the client has to have heard of the last step so long ago
    let heard = || {
        let file = glob::glob(&format!("{}/.local/state/hvtui/runs/*/run.mcap", person.home().display()));
        let reader = Reader::open(&file.unwrap().next()?.ok()?).ok()?;
        let steps = reader.envelopes(..).filter_map(Result::ok);
        steps.filter(|envelope| matches!(envelope.event, Event::StepDone { .. })).map(|step| step.at).last()
    };
    until("ten seconds without a step", || heard().is_some_and(|at| now().micros_since(at) > 11_000_000));
    assert!(person.run(&["stop", "last"]).status.success());
    assert_eq!(end_of(&mut run).code(), Some(130));
    let run = person.recorded();
    let for_us = run["stood"]["for_us"].as_u64().unwrap_or_default();
    assert!(for_us >= 10_000_000 && run["stood"]["ranks"] == "", "{run}");
    let listed = text(&person.run(&["runs", "--local", "--long"]).stdout);
    assert!(listed.contains("; no step for ") && listed.contains(" before its end\n"), "{listed}");
    assert!(listed.contains("COMMIT") && listed.contains("\n      sh -c 'for i in "), "{listed}");
}

#[test]
fn who_follows_a_run_says_when_the_client_that_recorded_it_is_gone() {
    let person = Person::new(1);
    let script = "while :; do echo said; sleep 0.1; done";
    let out = person.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", script]);
    let run = text(&out.stdout).trim().to_owned();
    let follows = |client: &mut Command| {
        let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(client.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        assert_eq!(first, "[0] said\n");
        client
    };
    // this one is killed, not a program around it
    let mut first = Command::new(crate::common::program::hvtui());
    first.args(["attach", &run]).current_dir(person.home()).env_clear().env("LANG", "C.UTF-8");
    first.env("HOME", person.home()).env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).stderr(Stdio::null());
    let mut first = follows(&mut first);
    let mut second = follows(&mut person.hvtui(&["attach", &run]));
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("another hvtui here records it")));
    first.kill().unwrap();
    end_of(&mut first);
    let told = said.find(|line| line.contains("is not recorded any more")).expect("a word of it");
    assert!(told.contains(&format!("then hvtui attach {} goes on", &run[22..])), "{told}");
    let mut third = follows(&mut person.hvtui(&["attach", &run]));
    assert!(person.run(&["stop", &run]).status.success());
    end_of(&mut second);
    end_of(&mut third);
    assert_eq!(person.recorded()["outcome"]["end"], "stopped");
}

#[test]
fn without_a_name_the_newest_run_that_goes_on_is_meant() {
    let person = Person::new(2);
    let out = person.run(&[
        "run",
        "-np",
        "1",
        "--detach",
        "--name",
        "long",
        "--",
        "sh",
        "-c",
        "echo said; exec sleep 600",
    ]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(person.run(&["run", "-np", "1", "--name", "short", "--", "false"]).status.code(), Some(1));
    let stacks = text(&person.run(&["stacks", "--json"]).stdout);
    assert!(stacks.contains("(sleep) in state"), "{stacks}");
    let mut attached = person.hvtui(&["attach"]).spawn().unwrap();
    let mut lines = BufReader::new(attached.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert_eq!(first, "[0] said\n");
    assert!(person.run(&["stop", "long", "--now"]).status.success());
    assert!(!end_of(&mut attached).success());
    // what the newest one printed is asked of the newest one
    assert_eq!(person.run(&["logs"]).stdout, b"");
    let diff = person.run(&["diff", "short"]);
    assert_eq!(diff.status.code(), Some(64));
    assert!(text(&diff.stderr).contains("short is the newest run: name the one"), "{}", text(&diff.stderr));
}

#[test]
fn a_detached_run_took_as_long_as_its_ranks_whenever_it_is_looked_at() {
    let person = Person::new(1);
    let mark = person.home().join("ended");
    let script = format!("touch {}", mark.display());
    let out = person.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", &script]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    // each look asks the host, and writes the end down once there is one
    let ended_at = || Some(person.recorded()["outcome"]["at"].as_str()?.to_owned());
    let at = (0..1000).find_map(|_| ended_at()).expect("when it ended");
    let at = chrono::DateTime::parse_from_rfc3339(&at).unwrap().timestamp_micros();
    let written = |file: &Path| {
        let time = std::fs::metadata(file).unwrap().modified().unwrap();
        time.duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64
    };
    // It ended after its last act, and before that was written down. A host's clock is known to within a round trip.
    let runs = glob::glob(&format!("{}/.local/state/hvtui/spool/*/*/exit-0.json", person.home().display()));
    let exit = runs.unwrap().next().expect("an exit").unwrap();
    let (first, last) = (written(&mark) - 1_000_000, written(&exit) + 1_000_000);
    assert!((first..=last).contains(&at), "{first} {at} {last}");
    // so it says at each look, in the table as for scripts, however long after the end that is
    let listed = person.recorded();
    let created = chrono::DateTime::parse_from_rfc3339(listed["created"].as_str().unwrap()).unwrap();
    let took = (at - created.timestamp_micros()).unsigned_abs();
    assert!(listed["duration_us"].as_u64().unwrap().abs_diff(took) <= 1_000, "{listed}: {took}");
    let table = || {
        let out = person.run(&["runs", "--local"]);
        let table = text(&out.stdout);
        let mut lines = table.lines();
        let at = lines.next().unwrap().find("DURATION").unwrap();
        lines.next().unwrap()[..at + "DURATION".len()].rsplit("  ").next().unwrap().trim().to_owned()
    };
    let shown = table();
    assert_eq!(shown, hvtui::domain::units::duration_us(listed["duration_us"].as_u64().unwrap()));
    assert_eq!(table(), shown);
}

/// The hosts tell what they have rank by rank and in a moment. It is recorded as it happened all the same.
#[test]
fn the_steps_of_a_detached_run_lie_where_they_happened() {
    let person = Person::new(1);
    let hosts =
        ["a", "b"].map(|name| format!("[[host]]\nname = \"{name}\"\naddress = \"local\"\nslots = 1\n"));
    std::fs::write(person.home().join("hosts.toml"), hosts.concat()).unwrap();
    let late_rank = built::example("late_rank");
    let ended = |rank: &str| person.home().join(format!("ended-{rank}"));
    let script = format!("{} && touch {}", late_rank.display(), ended("$RANK").display());
    let steps = 1200;
    let launch = ["run", "--detach", "-H", "a:1,b:1", "--env", "LATE_STEPS=1200", "--", "sh", "-c", &script];
    let out = person.run(&launch);
    assert!(out.status.success(), "{}", text(&out.stderr));
    until("both ranks to end", || ["0", "1"].iter().all(|rank| ended(rank).exists()));
    // what is caught up with is in the past then
    let ended_at = std::fs::metadata(ended("1")).unwrap().modified().unwrap();
    until("4 s after their end", || ended_at.elapsed().is_ok_and(|since| since.as_secs() >= 4));
    until("the end of the run", || !person.recorded()["outcome"].is_null());
    let out = person.run(&["report", "last", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    // the first one warms up
    assert_eq!(report["steps"]["length"]["count"], steps - 1, "{report:#}");
    let found = report["findings"].as_array().unwrap();
    assert!(found.iter().all(|one| one["words"] != "the recording is not complete"), "{report:#}");
    let recording = glob::glob(&format!("{}/.local/state/hvtui/runs/*/run.mcap", person.home().display()));
    let mut player = Player::open(&recording.unwrap().next().unwrap().unwrap()).unwrap();
    let state = player.state();
    let at = person.recorded()["outcome"]["at"].as_str().expect("when it ended").to_owned();
    let at = chrono::DateTime::parse_from_rfc3339(&at).unwrap().timestamp_micros();
    let behind_us = state.end.micros_since(Stamp(at));
    assert!((-1_000..1_000_000).contains(&behind_us), "the replay ends {behind_us} µs behind the run");
    let (mut world, mut reached) = (World::default(), Vec::new());
    for tenth in 0..=10 {
        player.seek(state.start.plus_micros(state.end.micros_since(state.start) * tenth / 10));
        let mut playback = player.advance(Stamp(0));
        while playback.reading.is_some() {
            playback = player.advance(Stamp(0));
        }
        if let Some(whole) = playback.reset {
            world = *whole;
        }
        playback.envelopes.iter().for_each(|envelope| world.apply(envelope));
        reached.push(world.runs.values().next().and_then(RunState::step).unwrap_or(0));
    }
    let between = reached.iter().filter(|step| (1..steps).contains(*step)).count();
    assert!(reached.is_sorted() && between >= 2 && reached[10] == steps, "{reached:?}");
}

#[test]
fn the_lines_of_a_detached_run_are_read_from_its_host() {
    let person = Person::new(1);
    let out = person.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", "echo first; echo second"]);
    let run = text(&out.stdout).trim().to_owned();
    until("both lines", || {
        let out = person.run(&["logs", &run]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stdout) == "[0] first\n[0] second\n"
    });
    // a host that is not reached is named: what it has is not there
    let hosts = "[[host]]\nname = \"here\"\naddress = \"127.0.0.1\"\nport = 1\n";
    std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
    let out = person.run(&["logs", &run]);
    assert_eq!(out.status.code(), Some(69), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("here: "), "{}", text(&out.stderr));
}

/// Its recording is all that there is: it is told, nothing is deleted, and what needs the hosts names them.
#[test]
fn a_run_whose_hosts_are_gone_is_told_by_its_recording() {
    let person = Person::new(1);
    let out = person.run(&["run", "-np", "1", "--detach", "--name", "left", "--", "sleep", "3"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let run = text(&out.stdout).trim().to_owned();
    // one that is not reached, and one that the hosts file does not name any more
    for name in ["here", "another"] {
        let hosts = format!("[[host]]\nname = \"{name}\"\naddress = \"127.0.0.1\"\nport = 1\n");
        std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
        let out = person.run(&["report", &run]);
        let (said, err) = (text(&out.stdout), text(&out.stderr));
        assert!(out.status.success() && said.contains("left"), "{said}{err}");
        assert!(err.contains("may go on, its hosts did not say"), "{err}");
        let out = person.run(&["export", &run, "--to", "jsonl"]);
        assert!(out.status.success() && text(&out.stdout).contains(r#""type":"run""#), "{out:?}");
        assert_eq!(person.recorded()["unheard"][0], "here");
        let out = person.run(&["runs", "prune", "--keep", "0", "--yes"]);
        let said = text(&out.stdout) + &text(&out.stderr);
        assert!(said.contains("stays: it may be running: here did not answer"), "{said}");
    }
    for command in ["logs", "attach", "stop"] {
        let out = person.run(&[command, &run]);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(64), "{command}: {err}");
        let words =
            "host here, which the hosts file does not name: give the hosts file of the launch by --hosts";
        assert!(err.contains(words), "{command}: {err}");
    }
}

#[test]
fn a_cluster_of_many_tensorflow_tasks_on_one_host_starts() {
    let person = Person::new(256);
    let out = person.run(&["run", "-np", "256", "--kind", "tensorflow", "--", "true"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("all 256 ranks finished"), "{}", text(&out.stderr));
}

#[test]
fn a_hosts_own_environment_counts_before_hvtuis_defaults() {
    let person = Person::new(2);
    let line = ["run", "-np", "2", "--", "sh", "-c", "echo $OMP_NUM_THREADS $PYTHONUNBUFFERED"];
    let said = |mut command: Command| {
        let out = text(&command.output_in_time().unwrap().stdout);
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(" ")
    };
    assert_eq!(said(person.hvtui(&line)), "[0] 1 1 [1] 1 1");
    let mut own = person.hvtui(&line);
    own.env("OMP_NUM_THREADS", "7").env("PYTHONUNBUFFERED", "x");
    assert_eq!(said(own), "[0] 7 x [1] 7 x");
}

#[test]
fn an_interface_that_the_only_host_lacks_is_refused() {
    let person = Person::new(2);
    let out = person.run(&["run", "-np", "2", "--network-interface", "nosuch0", "--", "true"]);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(64), "{err}");
    assert!(err.contains("host here has no usable address on interface nosuch0: it has"), "{err}");
    assert!(person.run(&["run", "-np", "2", "--network-interface", "lo", "--", "true"]).status.success());
}

#[test]
fn a_run_is_launched_again_only_where_its_hosts_are_known() {
    let person = Person::new(1);
    assert!(person.run(&["run", "-np", "1", "--", "true"]).status.success());
    let elsewhere = person.home().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let out = person.hvtui(&["run", "--again", "last"]).current_dir(&elsewhere).output_in_time().unwrap();
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(64), "{err}");
    assert!(err.contains("it ran on host here, which no hosts file names"), "{err}");
    assert!(person.run(&["run", "--again", "last"]).status.success());
}

#[test]
fn a_command_that_lies_beside_is_named() {
    let person = Person::new(1);
    let hello = person.home().join("hello");
    std::fs::copy("/bin/true", &hello).unwrap();
    let out = person.run(&["run", "-np", "1", "--", "hello"]);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(127), "{err}");
    assert!(err.contains("command 'hello' not found") && err.contains("there is ./hello in"), "{err}");
    assert_eq!(
        err.matches("here: ").count(),
        err.lines().filter(|line| line.contains("here: ")).count(),
        "{err}"
    );
}

/// As torchrun itself does: another Python may be the first `python3` of the search path.
#[test]
fn a_bare_torchrun_runs_its_script_by_its_own_python() {
    let person = Person::new(1);
    let bin = person.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for (name, text) in
        [("python3", "#!/bin/sh\necho the other; exit 3\n"), ("torchrun", "#!/usr/bin/python3\n")]
    {
        std::fs::write(bin.join(name), text).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::write(person.home().join("t.py"), "import sys\nprint(sys.executable)\n").unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    // no torch is needed for that
    let mut run = person.hvtui(&["run", "--force", "--", "torchrun", "--nproc_per_node=1", "t.py"]);
    let ended = run.env("PATH", path).output_in_time().unwrap();
    assert_eq!(
        (text(&ended.stdout).as_str(), ended.status.code()),
        ("[0] /usr/bin/python3\n", Some(0)),
        "{}",
        text(&ended.stderr)
    );
}

#[test]
fn a_word_written_wrongly_is_taken_for_no_internal_role() {
    let person = Person::new(1);
    let err = |word: &str| text(&person.run(&[word]).stderr);
    assert!(err("rn").contains("run") && !err("rn").contains("rank"), "{}", err("rn"));
    assert!(!err("rank-wra").contains("rank-wrap'"), "{}", err("rank-wra"));
    assert!(err("wach").contains("watch"), "{}", err("wach"));
    assert!(err("launch").contains("'run'") && !err("launch").contains("'watch'"), "{}", err("launch"));
    let number = text(&person.run(&["run", "-np", "two", "--", "true"]).stderr);
    assert!(number.contains("write a whole number, such as 2"), "{number}");
}

#[test]
fn a_mask_of_gpus_that_are_not_there_is_said() {
    let person = Person::new(2);
    let out = person.run(&["run", "--", "CUDA_VISIBLE_DEVICES=0,1", "sh", "-c", "true"]);
    let err = text(&out.stderr);
    assert!(out.status.success(), "{err}");
    let said = "CUDA_VISIBLE_DEVICES=0,1 selects nothing: no GPU slot on here; the ranks run on CPU slots.";
    assert!(err.contains(said), "{err}");
    let dry = person.run(&["run", "--dry-run", "--", "CUDA_VISIBLE_DEVICES=0,1", "sh", "-c", "true"]);
    assert!(text(&dry.stdout).contains(said), "{}", text(&dry.stdout));
}

/// Three steps, then the page of one that is in backward of the fourth step for good.
const HANGS: &str = "\
import os, struct, time
now = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
report = os.environ['HVTUI_REPORT']
with open(report, 'a') as file:
    for step in (1, 2, 3):
        file.write('{\"kind\":\"step\",\"step\":%d,\"t\":%d,\"dur_us\":1000}\\n' % (step, now() - 5000 + 1000 * step))
with open(report + '.now', 'wb') as file:
    file.write(struct.pack('<IIQQII', 2, 2, 4, now(), os.getpid(), 0))
open('stands', 'w')
time.sleep(600)
";

#[test]
fn where_a_rank_stood_that_no_client_followed_is_told_after_its_stop() {
    let person = Person::new(1);
    std::fs::write(person.home().join("hangs.py"), HANGS).unwrap();
    let line = ["run", "--detach", "--python-hooks", "off", "--", "python3", "hangs.py"];
    let begun = person.run(&line);
    assert!(begun.status.success(), "{}", text(&begun.stderr));
    until("it stands", || person.home().join("stands").exists());
    let since = now();
    until("twelve seconds without a step", || now().micros_since(since) > 12_000_000);
    assert!(person.run(&["stop", "last"]).status.success());
    let listed = text(&person.run(&["runs", "--long"]).stdout);
    assert!(listed.contains(" before its end: rank 0 in backward"), "{listed}");
    let report = text(&person.run(&["report", "last"]).stdout);
    assert!(report.contains(" before its end: rank 0 in backward"), "{report}");
}

#[test]
fn a_refused_run_has_a_state_of_its_own_and_is_not_the_last_one_of_a_report() {
    let person = Person::new(1);
    let refused = person.run(&["run", "--", "./nothere"]);
    assert_eq!(refused.status.code(), Some(127), "{}", text(&refused.stderr));
    assert!(person.run(&["run", "--name", "fine", "--", "true"]).status.success());
    assert_eq!(person.run(&["run", "--", "./nothere"]).status.code(), Some(127));
    let listed = |filter: &str| text(&person.run(&["runs", "--local", "--filter", filter]).stdout);
    let refused = listed("refused");
    assert_eq!(refused.matches("refused, exit 127: ").count(), 2, "{refused}");
    assert!(!listed("failed").contains("nothere") && listed("done").contains("fine"));
    for args in [&["report", "--json"][..], &["report", "last", "--json"]] {
        let report = text(&person.run(args).stdout);
        assert!(report.contains("fine") && !report.contains("nothere"), "{report}");
    }
}

#[test]
fn a_dry_run_tells_what_would_keep_the_run_from_starting() {
    let person = Person::new(2);
    let script = person.home().join("sb.py");
    std::fs::write(&script, "#!/no/such/python3.5\nprint()\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    let no_file = "no file nothere.py in ";
    let no_interpreter = "its interpreter /no/such/python3.5 is not on here: install it there";
    for (command, says) in [(&["python3", "nothere.py"][..], no_file), (&[script.as_str()], no_interpreter)] {
        let dry = person.run(&[&["run", "-np", "2", "--dry-run", "--"], command].concat());
        let (out, err) = (text(&dry.stdout), text(&dry.stderr));
        assert_eq!(dry.status.code(), Some(127), "{err}");
        assert!(out.contains("rank 1"), "the plan: {out}");
        assert!(err.contains("hvtui: nothing would be started: here: ") && err.contains(says), "{err}");
        let run = person.run(&[&["run", "-np", "2", "--"], command].concat());
        assert_eq!(run.status.code(), Some(127), "{}", text(&run.stderr));
        assert!(text(&run.stderr).contains(says), "{}", text(&run.stderr));
    }
    let fine = person.run(&["run", "-np", "2", "--dry-run", "--", "true"]);
    assert!(fine.status.success(), "{}", text(&fine.stderr));
}

#[test]
fn a_mask_of_gpus_that_are_not_there_leaves_no_rank_out() {
    let person = Person::new(2);
    let shell = "echo $RANK of $WORLD_SIZE on $HVTUI_HOST";
    let line = ["CUDA_VISIBLE_DEVICES=0", "torchrun", "--nproc_per_node=2", "--no_python", "sh", "-c", shell];
    let out = person.run(&[&["run", "--"], &line[..]].concat());
    let (said, err) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{err}");
    for rank in 0..2 {
        assert!(said.contains(&format!("{rank} of 2 on here")), "{said}{err}");
    }
    assert!(err.contains("CUDA_VISIBLE_DEVICES=0 selects nothing"), "{err}");
}

#[test]
fn a_line_that_is_likely_wrong_starts_nothing() {
    let person = Person::new(2);
    for (line, says) in [
        ("make && python t.py", "makes it one word"),
        ("TF_CONFIG='{}' python3 tf.py", "it names no cluster"),
        ("python t.py > log & tail -f log", "`>` needs a shell"),
        ("torchrun --npoc_per_node=3 ddp.py", "`--nproc_per_node` may be meant"),
        ("mpirun -np 4 -H here:2 true", "4 ranks do not fit the 2 slots"),
    ] {
        let out = person.run(&["run", "--", line]);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(64), "{line}: {err}");
        assert!(err.contains(says), "{line}: {err}");
    }
    let out = person.run(&["run", "--", "hvtui", "run", "-np", "2", "--", "true"]);
    assert_eq!(out.status.code(), Some(64), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("write `true` alone"), "{}", text(&out.stderr));
    let runs = person.run(&["runs", "--json"]);
    assert_eq!(text(&runs.stdout).trim(), "[]", "nothing is recorded");
    let folder = person.run(&["run", "-np", "1", "--", "/tmp"]);
    assert!(
        text(&folder.stderr).contains("exec /tmp: it is a folder, not a program"),
        "{}",
        text(&folder.stderr)
    );
}

#[test]
fn a_line_is_started_as_it_was_copied_from_a_shell() {
    let person = Person::new(2);
    for (line, printed) in [
        ("cd /tmp && export A=7; sh -c 'echo $A in $PWD'", "7 in /tmp"),
        ("nohup sh -c 'echo rank $RANK' > train.log 2>&1 &", "rank R"),
        ("(base) me@gpu-a:~/proj$ FOO='a b' sh -c 'echo $FOO' \\", "a b"),
        ("root@n1:~# sh \\\n> -c 'echo $RANK of $WORLD_SIZE' | tee -a out.log", "R of 2"),
    ] {
        let out = person.run(&["run", "--", line]);
        let (said, err) = (text(&out.stdout), text(&out.stderr));
        assert!(out.status.success(), "{line}: {err}");
        for rank in 0..2 {
            let wanted = format!("[{rank}] {}", printed.replace('R', &rank.to_string()));
            assert!(said.lines().any(|line| line == wanted), "{line}: {said}{err}");
        }
        assert_eq!(
            err.contains("left out: what ranks print is recorded"),
            line.contains("log"),
            "{line}: {err}"
        );
    }
    for file in ["train.log", "out.log"] {
        assert!(!person.home().join(file).exists(), "{file}");
    }
}

#[test]
fn what_a_rank_leaves_in_the_background_is_told_at_the_end() {
    let person = Person::new(1);
    let script = "sleep 600 & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done";
    let out = person.run(&["run", "-np", "1", "--", "sh", "-c", script]);
    let err = text(&out.stderr);
    assert!(out.status.success(), "{err}");
    assert!(err.contains("1 process left in the background was ended with its rank: sleep 600"), "{err}");
    let out = person.run(&["run", "-np", "1", "--", "sh", "-c", "sleep 0.1 & wait"]);
    assert!(!text(&out.stderr).contains("background"), "{}", text(&out.stderr));
}

#[test]
fn more_ranks_than_cpu_slots_share_them_where_that_is_asked_for() {
    let person = Person::new(2);
    let words = [
        "mpirun",
        "--oversubscribe",
        "-np",
        "5",
        "-H",
        "here:2",
        "sh",
        "-c",
        "echo $RANK of $WORLD_SIZE on $HVTUI_PLACE",
    ];
    // whatever launcher there is, the placement is hvtui's
    let asked = [&["run", "--kind", "plain", "--"][..], &words].concat();
    for args in [&asked[..], &["run", "--again", "last"]] {
        let out = person.run(args);
        let (said, err) = (text(&out.stdout), text(&out.stderr));
        assert!(out.status.success(), "{args:?}: {err}");
        for rank in 0..5 {
            assert!(said.contains(&format!("{rank} of 5 on here:{rank}")), "{args:?}: {said}{err}");
        }
    }
}

#[test]
fn a_run_on_cpu_slots_that_another_one_has_says_so() {
    let person = Person::new(2);
    let alone = person.run(&["run", "-np", "1", "--", "sleep", "2"]);
    assert!(!text(&alone.stderr).contains("in use by"), "{}", text(&alone.stderr));
    let first = person.run(&["run", "-np", "2", "--detach", "--name", "first", "--", "sleep", "600"]);
    let run = text(&first.stdout).trim().to_owned();
    let second = person.run(&["run", "-np", "2", "--", "sleep", "5"]);
    let stopped = person.run(&["stop", &run]);
    let err = text(&second.stderr);
    assert!(second.status.success() && stopped.status.success(), "{err}");
    assert!(err.contains("hvtui: here: CPU slots 0-1 are in use by run "), "{err}");
    assert!(err.contains(" (first), too"), "{err}");
}

#[test]
fn a_run_takes_first_the_cpu_slots_that_no_other_one_has() {
    let person = Person::new(2);
    let first = person.run(&["run", "-np", "1", "--detach", "--name", "first", "--", "sleep", "600"]);
    let run = text(&first.stdout).trim().to_owned();
    for place in [&["-np", "1"], &["-H", "here:1"]] {
        let shown = person.run(&[&["run", "--dry-run"][..], place, &["--", "true"]].concat());
        assert!(text(&shown.stdout).contains("rank 0 on here:1"), "{}", text(&shown.stdout));
        let second = person.run(&[&["run"][..], place, &["--", "sh", "-c", "echo on $HVTUI_PLACE"]].concat());
        let (out, err) = (text(&second.stdout), text(&second.stderr));
        assert!(out.contains("on here:1") && !err.contains("in use by"), "{out}{err}");
    }
    assert!(person.run(&["stop", &run]).status.success());
}

#[test]
fn a_mask_that_hides_all_gpus_is_honoured_and_stays_empty() {
    let person = Person::new(2);
    for mask in ["CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=-1"] {
        let out = person.run(&["run", "--", mask, "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}."]);
        let err = text(&out.stderr);
        assert!(out.status.success(), "{err}");
        assert!(
            err.contains("CUDA_VISIBLE_DEVICES hides all GPUs: the ranks run on CPU slots of here."),
            "{err}"
        );
        assert!(text(&out.stdout).lines().any(|line| line.ends_with("] .")), "{}", text(&out.stdout));
    }
    let out = person.run(&["run", "--free", "1", "--", "CUDA_VISIBLE_DEVICES=", "true"]);
    assert_eq!(out.status.code(), Some(64), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("--free asks for GPUs"), "{}", text(&out.stderr));
}

/// No framework is imported: the interpreter's start is enough.
#[test]
fn a_python_that_has_imported_nothing_has_its_stack_too() {
    let person = Person::new(1);
    let script = "import time\ndef waits():\n    for _ in range(6000):\n        time.sleep(0.1)\nprint('begun', flush=True)\nwaits()\n";
    std::fs::write(person.home().join("hang.py"), script).unwrap();
    let out = person.run(&["run", "--detach", "-np", "1", "--", "python3", "hang.py"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let told = until_says("waits", || text(&person.run(&["stacks", "last"]).stdout));
    let stopped = person.run(&["stop", "last"]);
    assert!(told.contains("hang.py:"), "{told}");
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
}

#[test]
fn a_line_that_starts_its_ranks_itself_is_told_what_it_needs() {
    let person = Person::new(2);
    for more in [&["run", "--dry-run", "--"][..], &["run", "--"]] {
        let out = person.run(&[more, &["accelerate", "launch", "--num_processes", "4", "x.py"]].concat());
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(64), "{err}");
        assert!(err.contains("not understood: `accelerate launch`"), "{err}");
        assert!(
            err.contains("the line needs 4 slots on one host (--num_processes 4), and no host has as many"),
            "{err}"
        );
    }
}

#[test]
fn more_ranks_than_slots_are_told_what_gives_more() {
    let person = Person::new(1);
    let out = person.run(&["run", "-np", "2", "--", "true"]);
    assert!(text(&out.stderr).contains("`slots` in the hosts file"), "{}", text(&out.stderr));
}

/// A rank's environment holds what is its own: its number, its report, that its first Python has been seen.
#[test]
fn a_run_within_a_rank_inherits_nothing_that_is_that_rank_s_own() {
    let person = Person::new(4);
    let inner = |options: &str, name: &str| {
        let exe = crate::common::program::hvtui();
        format!(
            "subprocess.run('{exe} run {options} -np 1 -- sh -c \"env >{name}\"', shell=True, check=True)\n"
        )
    };
    let script = format!(
        "import os, subprocess\n\
         if os.environ['RANK'] == '1':\n\
         \x20   assert os.environ['HVTUI_PYTHON_SEEN'] and os.environ['HVTUI_RANK'] == '1'\n\
         \x20   {}\x20   {}",
        inner("", "with"),
        inner("--python-hooks off", "without")
    );
    std::fs::write(person.home().join("outer.py"), script).unwrap();
    let line = ["run", "-np", "2", "--env", "PYTHONPATH=/opt/lib", "--", "python3", "outer.py"];
    let out = person.run(&line);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let variables = |name: &str| std::fs::read_to_string(person.home().join(name)).unwrap();
    let value = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    for name in ["with", "without"] {
        let env = variables(name);
        assert_eq!(value(&env, "HVTUI_PYTHON_SEEN"), None, "{env}");
        assert_eq!(value(&env, "RANK").as_deref(), Some("0"), "{env}");
        let report = value(&env, "HVTUI_REPORT").unwrap();
        assert!(report.contains(&value(&env, "HVTUI_RUN").unwrap()), "{env}");
    }
    let env = variables("with");
    assert_eq!(value(&env, "HVTUI_RANK").as_deref(), Some("0"), "{env}");
    let path = value(&env, "PYTHONPATH").unwrap();
    let folders: Vec<&str> = path.split(':').collect();
    assert!(
        folders.len() == 2 && folders[0].contains("/hvtui/python/") && folders[1] == "/opt/lib",
        "{path}"
    );
    assert_eq!(value(&variables("without"), "PYTHONPATH").as_deref(), Some("/opt/lib"), "{env}");
    assert_eq!(value(&variables("without"), "HVTUI_RANK"), None, "{env}");
}

/// By a signal, by another client, and from the UI: one exit code and one word.
#[test]
fn a_run_that_is_stopped_exits_130_whoever_stops_it() {
    let ways = ["-INT", "-TERM", "stop", "x"];
    for way in ways {
        let person = Person::new(1);
        let ready = person.home().join("ready");
        let script = format!("touch {}; exec sleep 600", ready.display());
        let mut run = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", &script]);
        let status = if way == "x" {
            // the UI owns it: its end is in the recording
            assert!(person.run(&["run", "--detach", "-np", "1", "--", "sh", "-c", &script]).status.success());
            let mut ui = Command::new(crate::common::program::hvtui());
            ui.current_dir(person.home()).env("HOME", person.home());
            let Some(ui) = Terminal::start(&ui, 120, 40) else { continue };
            ui.wait("the hosts", |screen| screen.contains("here"));
            ui.press(&["r"]);
            ui.wait("the run", |screen| screen.contains("running"));
            ui.press(&["Enter"]);
            ui.wait("its screen", |screen| screen.contains("RANK"));
            ui.press(&["x"]);
            ui.wait("the question", |screen| screen.contains("stop"));
            ui.press(&["y"]);
            let screen = ui.wait("its end", |screen| screen.contains("stopped"));
            assert!(!screen.contains("failed"), "{screen}");
            // the screen may be ahead of the disk
            ui.press(&["q"]);
            ui.assert_restored(0);
            None
        } else {
            let hvtui = run.spawn().unwrap();
            until("a rank that runs", || ready.exists());
            if way == "stop" {
                assert!(person.run(&["stop", "last"]).status.success());
            } else {
                let sent = Command::new("kill").args([way, &child_of(hvtui.id())]).status_in_time().unwrap();
                assert!(sent.success());
            }
            let out = hvtui.output_in_time().unwrap();
            let err = text(&out.stderr);
            assert!(err.contains("exit 130 after") && err.contains(": stopped\n"), "{way}: {err}");
            out.status.code()
        };
        assert!(status.is_none_or(|code| code == 130), "{way}: {status:?}");
        let outcome = &person.recorded()["outcome"];
        assert_eq!((&outcome["end"], &outcome["code"]), (&"stopped".into(), &130.into()), "{way}: {outcome}");
        let listed = text(&person.run(&["runs"]).stdout);
        assert!(listed.contains("exit 130: stopped\n"), "{way}: {listed}");
    }
}

/// A launch of the form records the commit of its code as one of the command line does.
#[test]
fn a_launch_of_the_form_records_the_commit_of_its_code() {
    let person = Person::new(1);
    for args in [&["init", "-q"][..], &["add", "hosts.toml"], &["commit", "-qm", "one"]] {
        let mut git = Command::new("git");
        git.arg("-C").arg(person.home()).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args);
        assert!(git.output_in_time().unwrap().status.success(), "{args:?}");
    }
    let mut ui = Command::new(crate::common::program::hvtui());
    ui.current_dir(person.home()).env("HOME", person.home());
    let Some(ui) = Terminal::start(&ui, 80, 24) else { return };
    ui.wait("the hosts", |screen| screen.contains("here") && screen.contains("4 Doctor"));
    ui.press(&["l"]);
    ui.wait("the form", |screen| screen.contains("command"));
    ui.type_in("echo said");
    ui.wait("its plan", |screen| screen.contains("enter starts"));
    ui.press(&["Enter"]);
    ui.wait("its end", |screen| screen.contains("finished"));
    ui.press(&["q"]);
    ui.assert_restored(0);
    let run = person.recorded();
    assert!(run["spec"]["code"]["commit"].as_str().is_some_and(|commit| commit.len() == 40), "{run}");
}

/// Where a kernel before 5.3 has no pidfd (38: ENOSYS) and where a sandbox forbids it (1: EPERM).
#[test]
fn a_run_ends_also_where_there_is_no_pidfd() {
    for (errno, calls) in [("38", "434"), ("1", "434"), ("1", "424"), ("1", "424,434")] {
        let person = Person::new(2);
        let ready = person.home().join("ready");
        let script = format!("touch {}.$RANK; exec sleep 600", ready.display());
        let sandbox = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sandbox/without_calls.py");
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60", "python3", sandbox, errno, calls, crate::common::program::hvtui()]);
        command.args(["run", "-np", "2", "--kind", "torch", "--", "sh", "-c", &script]);
        command.current_dir(person.home()).env("HOME", person.home()).stdin(Stdio::null());
        let hvtui = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("both ranks", || (0..2).all(|rank| ready.with_extension(rank.to_string()).exists()));
        let sent = Command::new("kill").args(["-INT", &child_of(hvtui.id())]).status_in_time().unwrap();
        assert!(sent.success());
        let out = hvtui.output_in_time().unwrap();
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(130), "errno {errno} of {calls}: {err}");
        assert!(err.contains("nothing of the run is left"), "errno {errno} of {calls}: {err}");
        let call = if calls.contains("434") { "pidfd_open" } else { "pidfd_send_signal" };
        let why = if errno == "1" { "operation not permitted" } else { "function not implemented" };
        let said = format!("{call}: {why} (seccomp); signals go by pid after the start time is checked");
        assert_eq!(err.matches(&said).count(), 1, "{said}: {err}");
    }
}

/// Of a machine whose kernel the doctor has more to say of, that is said instead.
#[test]
fn the_doctor_tells_where_no_signal_goes_by_a_handle() {
    let sandbox = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sandbox/without_calls.py");
    let kernel = |before: &[&str]| {
        let person = Person::new(1);
        let doctor = [crate::common::program::hvtui(), "doctor", "--json", "--only", "kernel"];
        let words = [&["-k", "5", "120"][..], before, &doctor[..]].concat();
        let mut command = Command::new("timeout");
        command.args(&words).current_dir(person.home()).env("HOME", person.home()).stdin(Stdio::null());
        let out = command.output_in_time().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let checks = told["checks"].as_array().unwrap();
        let row = checks.iter().find(|row| row["check"] == "kernel").unwrap_or_else(|| panic!("{told:#}"));
        row["verdicts"][0].clone()
    };
    let words = "without signals by handles on processes";
    let says = |verdict: &serde_json::Value| verdict["evidence"].as_str().unwrap().contains(words);
    let with = kernel(&[]);
    assert!(!says(&with), "{with:#}");
    for call in ["434", "424"] {
        let without = kernel(&["python3", sandbox, "1", call]);
        assert!(says(&without) || with["mark"] != "good", "call {call}: {without:#}");
    }
}

/// The only child of a process.
fn child_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().trim().to_owned()
}
