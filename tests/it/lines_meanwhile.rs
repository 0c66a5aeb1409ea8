//! Lines that ranks print while no client follows: at which time they lie when one does.

use std::io::Read;
use std::path::PathBuf;

use hvtui::domain::ids::Rank;
use hvtui::domain::log::Stream;
use hvtui::domain::run_log::LoggedLine;
use hvtui::domain::time::HostTime;
use hvtui::record::Reader;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::times::moments;
use rustix::process::Signal;

use super::common::bed::{Bed, ended, running, state, text as text_of};
use super::common::cluster::skip;
use super::common::processes::{end_of, kill, until};
use super::local_runs::Person;

/// Eight lines, one a second, every second one on standard error; each holds the time at which it was printed, in microseconds.
/// Then it waits for the file `go`.
const PRINTS: &str = r#"i=0
while [ $i -lt 8 ]; do
    i=$((i+1)); line="$i $(date +%s%6N)"
    if [ $((i % 2)) = 0 ]; then echo "$line" >&2; else echo "$line"; fi
    sleep 1
done
touch printed
while [ ! -e go ]; do sleep 0.05; done"#;

/// By what two clocks are known to agree on a busy machine: half of the time between two lines.
const APART_US: i64 = 500_000;

/// A run that has printed all of it while no client followed; `by` starts its rank.
fn printed(person: &Person, by: &[&str]) -> String {
    let out = person.run(&[&["run", "--detach", "--"], by, &["sh", "-c", PRINTS]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    until("all lines", || person.home().join("printed").exists());
    let dir = RunDir::open(&file(person, "spool/*/*/")).unwrap();
    until("a note of all lines", || {
        [Stream::Stdout, Stream::Stderr].into_iter().all(|stream| {
            let printed = text_of(&dir, &format!("rank-0.{}", stream.extension())).len() as u64;
            let noted = moments(&dir, Rank(0), stream, 0, u64::MAX);
            noted.last().is_some_and(|(length, _)| *length == printed)
        })
    });
    text(&out.stdout).trim().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Follows the run until it has shown what there was, and then to its end.
fn attach(person: &Person, run: &str) {
    let mut attached = person.hvtui(&["attach", run]).spawn().unwrap();
    let mut out = attached.stdout.take().unwrap();
    let mut said = Vec::new();
    until("the last line of standard output", || {
        let mut bytes = [0; 4096];
        let count = out.read(&mut bytes).unwrap();
        said.extend_from_slice(&bytes[..count]);
        text(&said).contains("[0] 7 ")
    });
    std::fs::write(person.home().join("go"), "").unwrap();
    assert!(end_of(&mut attached).success());
}

/// The file of a run's that begins so, below the state folder.
fn file(person: &Person, pattern: &str) -> PathBuf {
    let pattern = format!("{}/.local/state/hvtui/{pattern}", person.home().display());
    glob::glob(&pattern).unwrap().next().unwrap_or_else(|| panic!("no {pattern}")).unwrap()
}

fn recorded(person: &Person) -> Vec<LoggedLine> {
    let reader = Reader::open(&file(person, "runs/*/run.mcap")).unwrap();
    reader.log(None).map(Result::unwrap).collect()
}

/// The number of a line, and when it was printed.
fn printed_at(logged: &LoggedLine) -> (u32, i64) {
    let (number, printed) = logged.line.text.split_once(' ').unwrap();
    (number.parse().unwrap(), printed.parse().unwrap())
}

/// Each line lies where its host's supervisor first saw it, which looks once a second; how late a look is is the machine's affair.
#[track_caller]
fn assert_in_time(person: &Person) {
    let lines = recorded(person);
    let dir = RunDir::open(&file(person, "spool/*/*/")).unwrap();
    let noted = |logged: &LoggedLine| {
        let notes = moments(&dir, Rank(0), logged.line.stream, 0, u64::MAX);
        let end = logged.line.offset + logged.line.text.len() as u64;
        let note = notes.into_iter().find(|(length, _)| *length > end);
        note.map(|(_, t)| t).filter(|t| t.0 > 0)
    };
    for logged in &lines {
        assert_eq!(logged.line.t, noted(logged), "{logged:?}");
        assert!(logged.at.0 - printed_at(logged).1 > -APART_US, "before it was printed: {logged:?}");
    }
    // those of one moment of the host lie at one, and its clock is not stretched
    let seen: Vec<(i64, i64)> =
        lines.iter().filter_map(|logged| Some((logged.line.t?.0.cast_signed(), logged.at.0))).collect();
    assert!(seen.len() > 1, "{lines:?}");
    let apart = seen.iter().map(|(t, at)| (at - seen[0].1) - (t - seen[0].0));
    assert!(apart.clone().all(|us| us.abs() < APART_US), "{:?}", apart.collect::<Vec<_>>());
    assert!(lines.is_sorted_by_key(|logged| logged.at), "{lines:?}");
    for parity in [1, 0] {
        let of_stream = lines.iter().map(|logged| printed_at(logged).0).filter(|number| number % 2 == parity);
        assert!(of_stream.eq((1..=8).filter(|number| number % 2 == parity)), "{lines:?}");
    }
    let told = text(&person.run(&["logs"]).stdout);
    let expected: Vec<String> = lines.iter().map(|logged| format!("[0] {}", logged.line.text)).collect();
    assert!(told.lines().eq(expected), "{told}");
}

#[test]
fn they_lie_where_they_were_printed_when_a_client_follows_again() {
    let person = Person::new(1);
    let run = printed(&person, &[]);
    attach(&person, &run);
    assert_in_time(&person);
}

#[test]
fn they_lie_where_they_were_printed_when_the_run_of_a_launcher_has_ended() {
    if !std::path::Path::new("/usr/bin/mpirun").exists() {
        return skip("no mpirun: apt-get install openmpi-bin");
    }
    let person = Person::new(1);
    printed(&person, &["mpirun", "-np", "1"]);
    std::fs::write(person.home().join("go"), "").unwrap();
    until("the end of the run", || {
        let runs: serde_json::Value =
            serde_json::from_slice(&person.run(&["runs", "--json"]).stdout).unwrap();
        !runs[0]["outcome"].is_null()
    });
    assert_in_time(&person);
}

/// As a supervisor of before leaves it.
#[test]
fn without_a_note_of_it_they_have_no_time() {
    let person = Person::new(1);
    let run = printed(&person, &[]);
    std::fs::remove_file(file(&person, "spool/*/*/rank-0.times")).unwrap();
    let begun = hvtui::clock::now();
    attach(&person, &run);
    let lines = recorded(&person);
    assert!(lines.len() == 8 && lines.iter().all(|logged| logged.line.t.is_none()), "{lines:?}");
    assert!(lines.iter().all(|logged| logged.at >= begun), "they lie where they were read: {lines:?}");
    for parity in [0, 1] {
        let offsets: Vec<u64> = lines
            .iter()
            .map(|logged| (logged.line.offset, &logged.line.text))
            .filter(|(_, text)| text.as_bytes()[0] % 2 == parity)
            .map(|(offset, _)| offset)
            .collect();
        assert!(offsets.len() == 4 && offsets.is_sorted(), "{offsets:?}");
    }
}

/// Who takes a run over does not know when that was printed which was not noted, and notes what comes.
#[test]
fn a_new_supervisor_goes_on_where_the_dead_one_noted_last() {
    let bed = Bed::new();
    let script = "i=0; while [ ! -e go ]; do i=$((i+1)); echo $i; sleep 0.1; done";
    let dir = bed.start(bed.spec(&[script], 1000));
    let noted = || moments(&dir, Rank(0), Stream::Stdout, 0, u64::MAX);
    until("two notes", || noted().len() >= 2);
    // what is printed between the last note and the next supervisor has no time
    let printed = || text_of(&dir, "rank-0.out").len() as u64;
    until("lines after the last note", || noted().last().is_some_and(|(length, _)| printed() > *length));
    let dead = running(&dir).supervisor;
    kill(dead.pid, Signal::KILL);
    let before = noted().len();
    until("a new supervisor", || state(&dir).supervisor != dead);
    until("two notes of it", || noted().len() >= before + 3);
    std::fs::write(bed.work("go"), "").unwrap();
    ended(&dir);
    let noted = noted();
    let unknown: Vec<usize> = (0..noted.len()).filter(|at| noted[*at].1 == HostTime(0)).collect();
    assert!(matches!(unknown[..], [at] if at == before || at == before + 1), "{noted:?}");
    assert!(noted.iter().map(|(_, t)| *t).filter(|t| t.0 > 0).is_sorted(), "{noted:?}");
    assert_eq!(noted.last().map(|(length, _)| *length), Some(text_of(&dir, "rank-0.out").len() as u64));
}
