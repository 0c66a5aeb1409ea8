//! Rows 1 to 3 and 26: clients end, and another takes the run up again.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

use hvtui::clock::now;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::rig::{Job, Rig};

/// A client ends in the given way; the same person takes the run up again, and nothing is missing.
fn taken_up_again(
    notes: &mut Notes,
    end: impl FnOnce(&mut Job<'_>),
    other: impl FnOnce(&Rig, Command) -> Command,
) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    let run = job.run();
    end(&mut job);
    let listed = person.run(&["runs"]);
    assert!(listed.out.contains(&run[run.len() - 4..]), "{listed:#?}");
    let since = now();
    let mut again = rig.spawn(&person, other(&rig, person.hvtui(&["attach", &run, "--verbose"])));
    again.hear(1);
    notes.took("attached, and output", now().micros_since(since) as f64 / 1e6, 2.0);
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
pub(crate) fn client_killed(notes: &mut Notes) -> Option<()> {
    taken_up_again(notes, |job| job.kill_client(), |_, command| command)
}

pub(crate) fn terminal_closed(notes: &mut Notes) -> Option<()> {
    taken_up_again(
        notes,
        |job| {
            let hup = rustix::process::Signal::HUP;
            let pid = rustix::process::Pid::from_raw(job.pid().cast_signed()).expect("a pid");
            rustix::process::kill_process(pid, hup).expect("SIGHUP");
            assert_eq!(job.wait(), 129, "{}", job.last_words());
        },
        |_, command| command,
    )
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method takes one lifetime, the closure any"
)]
pub(crate) fn another_build(notes: &mut Notes) -> Option<()> {
    taken_up_again(
        notes,
        |job| job.kill_client(),
        |rig, command| {
            // what follows a program's end changes nothing but its hash, by which builds are told apart
            let ours = env!("CARGO_BIN_EXE_hvtui");
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
