//! `hvtui export` as it is called: files, folders, pipes, and what it says.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use hvtui::record::export::FORMATS;

use super::events::run;
use super::write;
use crate::common::in_time::{OutputInTime, StatusInTime};

fn export(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(["export", "theirs.mcap"]).args(args).current_dir(dir);
    command.env_clear().env("LANG", "C.UTF-8").env("HOME", dir).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn recorded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("theirs.mcap"), &run(2, 10));
    folder
}

#[test]
fn a_file_and_a_pipe_get_the_same_and_a_failed_export_leaves_what_was_there() {
    let folder = recorded();
    for format in FORMATS {
        let piped = export(folder.path(), &["--to", format.name]).output_in_time().unwrap();
        assert!(piped.status.success() && piped.stderr.is_empty() && !piped.stdout.is_empty(), "{piped:?}");
        let target = format!("out-{}", format.name);
        let ran = export(folder.path(), &["--to", format.name, "-o", &target]).output_in_time().unwrap();
        assert!(ran.status.success() && ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran:?}");
        let mut file = folder.path().join(target);
        if format.name == "tensorboard" {
            let mut inside = std::fs::read_dir(&file).unwrap().map(|entry| entry.unwrap().path());
            file = inside.next().unwrap();
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(name.starts_with("events.out.tfevents.1795000000.hvtui-"), "{name}");
            assert_eq!(inside.next(), None);
        }
        assert_eq!(std::fs::read(file).unwrap(), piped.stdout, "{}", format.name);
    }
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.contains("part")), "{names:?}");
    // a folder is in the way of the file, a file in that of the folder
    std::fs::create_dir(folder.path().join("there")).unwrap();
    for (format, target) in [("csv", "there"), ("tensorboard", "out-csv"), ("csv", "missing/file")] {
        let ran = export(folder.path(), &["--to", format, "-o", target]).output_in_time().unwrap();
        let told = said(&ran);
        assert_eq!(ran.status.code(), Some(74), "{told}");
        assert!(told.starts_with(&format!("hvtui: {target}")) && told.lines().count() == 1, "{told}");
    }
    assert!(std::fs::metadata(folder.path().join("out-csv")).unwrap().len() > 100);
    assert!(!folder.path().join("there.part").exists());
}

#[test]
fn a_device_is_written_and_not_replaced() {
    let folder = recorded();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status_in_time().unwrap().success());
    let reading = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read_to_string(fifo).unwrap()
    });
    let ran = export(folder.path(), &["--to", "csv", "-o", "fifo"]).output_in_time().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert!(reading.join().unwrap().starts_with("step,rank,"));
    assert!(!std::fs::metadata(fifo).unwrap().is_file());
    let full = export(folder.path(), &["--to", "csv", "-o", "/dev/full"]).output_in_time().unwrap();
    assert_eq!(full.status.code(), Some(74));
    assert!(said(&full).starts_with("hvtui: /dev/full: "), "{}", said(&full));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = recorded();
    for format in FORMATS {
        let mut child = export(folder.path(), &["--to", format.name]);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.output_in_time().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{}: {ended:?}", format.name);
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = export(folder.path(), &["--to", "csv"]).stdout(full).output_in_time().unwrap();
    assert_eq!(ran.status.code(), Some(74));
    assert!(said(&ran).starts_with("hvtui: can't write to standard output: "), "{}", said(&ran));
}

#[test]
fn an_empty_selection_is_said_and_a_wrong_one_refused() {
    let folder = recorded();
    for format in FORMATS {
        let ran = export(folder.path(), &["--to", format.name, "--from", "90000"]).output_in_time().unwrap();
        let told = said(&ran);
        assert!(ran.status.success() && told.contains("the export is empty"), "{}: {told}", format.name);
    }
    for (args, words) in [
        (&["--ranks", "1,7"][..], "--ranks 7: the run has ranks 0 to 1"),
        (&["--steps", "5-3"], "step 5 comes after step 3"),
        (&["--steps", "0"], "steps are counted from 1"),
        (&["--steps", "x"], "write it as 5-10, 5-, -10 or 7"),
        (&["--from", "9", "--to-time", "3"], "--from 9 is later than --to-time 3"),
    ] {
        let ran = export(folder.path(), &[&["--to", "csv"], args].concat()).output_in_time().unwrap();
        assert_eq!(ran.status.code(), Some(64), "{args:?}");
        assert!(said(&ran).contains(words), "{args:?}: {}", said(&ran));
    }
    let ran = export(folder.path(), &["--to", "csv", "--steps", "-2"]).output_in_time().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap().lines().count(), 1 + 2 * 2);
}

/// A part of the time gives less than all of it in every format, and a time behind the end nothing.
#[test]
fn every_format_is_cut_to_the_time_that_is_asked_for() {
    let folder = recorded();
    let size = |format: &str, args: &[&str]| {
        let ran = export(folder.path(), &[&["--to", format], args].concat()).output_in_time().unwrap();
        assert!(ran.status.success(), "{format} {args:?}: {}", said(&ran));
        ran
    };
    for format in FORMATS {
        let all = size(format.name, &[]);
        let half = size(format.name, &["--from", "3", "--to-time", "6"]);
        let first = size(format.name, &["--to-time", "3"]);
        let last = size(format.name, &["--from", "6"]);
        let none = size(format.name, &["--from", "3600"]);
        assert!(said(&none).contains("the export is empty"), "{}: {}", format.name, said(&none));
        for (name, part) in [("half", &half), ("first", &first), ("last", &last)] {
            assert!(!said(part).contains("empty"), "{} {name}: {}", format.name, said(part));
            // Prometheus takes sums and last values alone: as many lines for a part
            let is_less = part.stdout.len() < all.stdout.len() || format.name == "prometheus";
            assert!(
                part.stdout != all.stdout && is_less && part.stdout.len() > none.stdout.len(),
                "{} {name}: {} of {}, {} of nothing",
                format.name,
                part.stdout.len(),
                all.stdout.len(),
                none.stdout.len()
            );
        }
        assert_ne!(first.stdout, last.stdout, "{}", format.name);
    }
    // and by its numbers: steps 13 to 24 end between the third and the sixth second of ten, four a second
    let rows = size("csv", &["--from", "3", "--to-time", "6"]).stdout;
    let steps: std::collections::BTreeSet<u64> = String::from_utf8(rows)
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap().parse().unwrap())
        .collect();
    let (least, most) = (*steps.first().unwrap(), *steps.last().unwrap());
    assert!((12..=14).contains(&least) && (23..=25).contains(&most), "{least} to {most}");
    assert_eq!(steps.len() as u64, most - least + 1);
}
