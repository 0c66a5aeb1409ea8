//! Rows 1 to 3 and 26: clients end, and another attaches to the run again.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use hvtui::clock::now;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::rig::{Job, Rig, until};
use crate::common::terminal::Terminal;

/// A client ends in the given way; the same person attaches again by one of so many builds, and nothing is missing.
fn resumed_again(
    notes: &mut Notes,
    builds: usize,
    end: impl FnOnce(&mut Job<'_>),
    other: impl FnOnce(&Rig, Command) -> Command,
) -> Option<()> {
    let rig = Rig::bare(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    let run = job.run();
    let supervisor = rig.cluster.state_of("n1", &run).supervisor;
    end(&mut job);
    let listed = person.run(&["runs"]);
    let line = listed.out.lines().find(|line| line.contains(&run[run.len() - 4..]));
    assert!(line.is_some_and(|line| line.contains("running")), "{listed:#?}");
    let since = now();
    let mut again = rig.spawn(&person, other(&rig, person.hvtui(&["attach", &run, "--verbose"])));
    again.hear(1);
    notes.took("attached, and output", now().micros_since(since) as f64 / 1e6, 2.0);
    again.hear(20);
    assert_eq!(rig.cluster.state_of("n1", &run).supervisor, supervisor, "whoever owns the run goes on");
    let there = rig.cluster.on("n1", "find ~/.cache/hvtui/agents -name hvtui -type f | wc -l");
    assert_eq!(there.trim(), builds.to_string(), "each build has an agent of its own");
    again.enough();
    let code = again.wait();
    exits_agree(&again, code, 0, &[Ends::Exit(0); 2]);
    no_byte_lost(&again);
    nothing_left(&rig, &run);
    Some(())
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method takes one lifetime, the closure any"
)]
pub(crate) fn client_killed(notes: &mut Notes) -> Option<()> {
    resumed_again(notes, 1, |job| job.kill_client(), |_, command| command)
}

/// A person who looks at a run leaves the UI by its key.
pub(crate) fn left_by_key(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    let run = job.run();
    let short = &run[run.len() - 4..];
    job.kill_client();
    let terminal = Terminal::start(&person.hvtui(&[]), 120, 40)?;
    let hosts = rig.hosts();
    terminal.wait("all hosts", |screen| {
        hosts.iter().all(|host| screen.lines().any(|line| line.contains(host) && line.contains('%')))
    });
    terminal.press(&["r"]);
    terminal.wait("the run", |screen| {
        screen.lines().any(|line| line.contains(short) && line.contains("running"))
    });
    terminal.press(&["Enter"]);
    // the list of runs has a column RANKS
    terminal.wait("its ranks", |screen| screen.contains("RANK") && !screen.contains("RANKS"));
    terminal.press(&["d"]);
    terminal.wait("the runs again", |screen| screen.contains("all recordings") || screen.contains("SIZE"));
    let since = Instant::now();
    terminal.press(&["q"]);
    let said = terminal.wait("its end", |screen| screen.contains("[exit "));
    notes.took("the UI's end", since.elapsed().as_secs_f64(), 0.3);
    // with the hosts file the line is longer than the screen is wide
    let words: String = said.split_whitespace().collect();
    assert!(said.contains("[exit 0]") && words.contains(&format!("run{short}goeson")), "{said}");
    let mut again = rig.launch(&person, &["attach", &run, "--verbose"]);
    again.hear(20);
    again.enough();
    let code = again.wait();
    exits_agree(&again, code, 0, &[Ends::Exit(0); 2]);
    no_byte_lost(&again);
    nothing_left(&rig, &run);
    Some(())
}

pub(crate) fn terminal_closed(notes: &mut Notes) -> Option<()> {
    resumed_again(
        notes,
        1,
        |job| {
            let hup = rustix::process::Signal::HUP;
            let pid = rustix::process::Pid::from_raw(job.pid().cast_signed()).expect("a pid");
            rustix::process::kill_process(pid, hup).expect("SIGHUP");
            assert_eq!(job.wait(), 129, "{}", job.last_words());
        },
        |_, command| command,
    )
}

/// What a supervisor of a later version could have written, and no program here knows.
pub(crate) fn newer_supervisor(notes: &mut Notes) -> Option<()> {
    let rig = Rig::bare(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    let run = job.run();
    job.kill_client();
    let state = rig.cluster.spool("n1", &run).expect("its folder").join("state.json");
    let ours = std::fs::read_to_string(&state).expect("its state");
    let own = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(ours.contains(&own) && ours.contains("\"running\""), "{ours}");
    std::fs::write(
        &state,
        ours.replace(&own, "\"version\":\"99.1.2\"").replace("\"running\"", "\"dreaming\""),
    )
    .expect("a state");
    let since = now();
    let other = rig.person();
    let mut attached = rig.launch(&other, &["attach", &run, "--verbose"]);
    let told = "n1: ";
    until("it to be told", || {
        let said = attached.said();
        said.lines().any(|line| line.contains(told) && line.contains("use hvtui 99.1.2 for this run"))
            || !attached.runs()
    });
    notes.took("which hvtui to use is told", now().micros_since(since) as f64 / 1e6, 1.0);
    assert!(attached.said().contains("use hvtui 99.1.2 for this run"), "{}", attached.last_words());
    drop(attached);
    let stopped = person.run(&["runs"]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    // nothing was done to it meanwhile
    std::fs::write(&state, ours).expect("a state");
    let mut again = rig.launch(&person, &["attach", &run, "--verbose"]);
    again.hear(20);
    again.enough();
    let code = again.wait();
    exits_agree(&again, code, 0, &[Ends::Exit(0); 2]);
    no_byte_lost(&again);
    nothing_left(&rig, &run);
    Some(())
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method takes one lifetime, the closure any"
)]
pub(crate) fn another_build(notes: &mut Notes) -> Option<()> {
    resumed_again(
        notes,
        2,
        |job| job.kill_client(),
        |rig, command| {
            // what follows a program's end changes nothing but its hash, by which builds are told apart
            let ours = crate::common::program::hvtui();
            let other = rig.cluster.dir().join("other-hvtui");
            std::fs::copy(ours, &other).expect("a copy");
            OpenOptions::new()
                .append(true)
                .open(&other)
                .and_then(|mut file| file.write_all(b"x"))
                .expect("a byte");
            let mut changed = Command::new(command.get_program());
            for word in command.get_args() {
                changed.arg(if word == ours { other.as_os_str() } else { word });
            }
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => changed.env(name, value),
                    None => changed.env_remove(name),
                };
            }
            changed.current_dir(command.get_current_dir().expect("the person's home"));
            changed
        },
    )
}
