//! `hvtui runs check` by the real binary: what it says, what it repairs, what it leaves alone, and its exit code.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::common::in_time::OutputInTime;
use crate::json_forms::assert_fits;
use crate::local_runs::Person;
use crate::record::of_a_later_version;

pub(crate) fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Runs a job to its end; gives its recording.
fn ended(person: &Person, name: &str) -> PathBuf {
    let script = "for i in 1 2 3 4 5 6; do echo said $i; sleep 0.3; done";
    let out = person.run(&["run", "-np", "1", "--name", name, "--", "sh", "-c", script]);
    assert!(out.status.success(), "{}", said(&out));
    let runs: Value = serde_json::from_slice(&person.run(&["runs", "--json", "--local"]).stdout).unwrap();
    let run = runs[0]["spec"]["id"].as_str().unwrap();
    person.home().join(".local/state/hvtui/runs").join(run).join("run.mcap")
}

fn check(person: &Person, args: &[&str]) -> (i32, String) {
    let out = person.run(&[&["runs", "check"], args].concat());
    (out.status.code().unwrap(), said(&out))
}

fn cut(path: &Path, whole: &[u8], at: usize) {
    std::fs::write(path, &whole[..at]).unwrap();
}

/// Where the chunks of a file begin.
fn chunks(bytes: &[u8]) -> Vec<usize> {
    let mut at = 8;
    let mut found = Vec::new();
    while at + 17 <= bytes.len() {
        if bytes[at] == 6 {
            found.push(at);
        }
        at += 9 + u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
    }
    found
}

#[test]
fn a_cut_recording_is_named_and_closed_and_one_that_is_written_is_left_alone() {
    let person = Person::new(1);
    assert_eq!(check(&person, &[]), (0, "0 recordings, 0 files\n".to_owned()));
    let path = ended(&person, "digits");
    let (code, text) = check(&person, &[]);
    assert!(code == 0 && text.ends_with("1 recording, 1 file: 1 whole\n"), "{code} {text}");
    let whole = std::fs::read(&path).unwrap();

    let part = chunks(&whole)[2] + 30;
    cut(&path, &whole, part);
    let (code, text) = check(&person, &["digits"]);
    assert!(
        code == 65 && text.contains("cut at byte ") && text.contains(", complete up to "),
        "{code} {text}"
    );
    assert!(text.ends_with("1 cut; to close and repair them: hvtui runs check --repair digits\n"), "{text}");

    let lock = std::fs::File::options().write(true).open(path.with_file_name("lock")).unwrap();
    lock.lock().unwrap();
    let (code, text) = check(&person, &["--repair"]);
    assert!(code == 0 && text.contains("being recorded"), "{code} {text}");
    assert_eq!(std::fs::read(&path).unwrap().len(), part, "it is left alone");
    drop(lock);

    // a disk that is full: the file stays as it is
    let limited =
        format!("ulimit -f 1; trap '' XFSZ; exec {} runs check --repair", crate::common::program::hvtui());
    let before = std::fs::read(&path).unwrap();
    let full = std::process::Command::new("sh")
        .args(["-c", &limited])
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("HOME", person.home())
        .env("PATH", "/usr/bin:/bin")
        .output_in_time()
        .unwrap();
    // a block more than the limit lets be written
    assert!(before.len() > 1024, "the recording has {} bytes", before.len());
    assert_eq!(full.status.code(), Some(74), "{}", said(&full));
    assert!(said(&full).contains("not repaired: "), "{}", said(&full));
    assert!(std::fs::read(&path).unwrap() == before && !path.with_file_name("run.mcap.part").exists());

    let out = person.run(&["runs", "check", "--repair", "--json"]);
    let told = assert_fits("runs-check", &out);
    let file = &told["recordings"][0]["files"][0];
    assert_eq!(
        (out.status.code(), &file["state"], &file["repaired"]),
        (Some(0), &"cut".into(), &true.into())
    );
    let out = person.run(&["runs", "check", "--json"]);
    assert_eq!(assert_fits("runs-check", &out)["recordings"][0]["files"][0]["state"], "whole");
}

#[test]
fn a_later_file_in_which_nothing_is_recorded_is_no_fault() {
    let person = Person::new(1);
    let path = ended(&person, "digits");
    let next = path.with_file_name("run.2.mcap");
    let whole = std::fs::read(&path).unwrap();
    let head = chunks(&whole)[0];
    for left in [0, 5, head] {
        std::fs::write(&next, &whole[..left]).unwrap();
        let (code, text) = check(&person, &[]);
        assert!(
            code == 0 && text.contains("run.2.mcap") && text.contains("empty; "),
            "{left}: {code} {text}"
        );
        assert!(text.ends_with("1 recording, 2 files: 1 whole, 1 empty\n"), "{left}: {text}");
        let report = person.run(&["report", "last"]);
        assert!(report.status.success(), "{left}: {}", said(&report));
    }
    // the beginning of a chunk may be the beginning of something
    std::fs::write(&next, &whole[..head + 30]).unwrap();
    assert_eq!(check(&person, &[]).0, 65);
    let (code, text) = check(&person, &["--repair"]);
    assert_eq!((code, check(&person, &[]).0), (0, 0), "{text}");
}

#[test]
fn a_damaged_recording_is_kept_beside_its_repaired_copy_and_the_loss_is_told() {
    let person = Person::new(1);
    let path = ended(&person, "digits");
    let mut bytes = std::fs::read(&path).unwrap();
    let third = chunks(&bytes)[2];
    bytes[third + 60..third + 90].fill(0x55);
    let elsewhere = person.home().join("copy.mcap");
    std::fs::write(&elsewhere, &bytes).unwrap();
    let name = elsewhere.to_str().unwrap();

    let out = person.run(&["runs", "check", name, "--json"]);
    let told = assert_fits("runs-check", &out);
    assert_eq!(
        (out.status.code(), &told["recordings"][0]["files"][0]["state"]),
        (Some(65), &"damaged".into())
    );
    assert_eq!(told["recordings"][0]["lost"].as_array().map(Vec::len), Some(1), "{told:#}");
    let (code, text) = check(&person, &[name, "--repair"]);
    assert!(code == 65 && text.contains("lost from "), "what is lost stays lost: {code} {text}");
    assert!(text.contains("the damaged file is kept as copy.mcap.damaged"), "{text}");
    assert!(std::fs::read(person.home().join("copy.mcap.damaged")).unwrap() == bytes);
    assert_eq!(check(&person, &[name]).0, 0);
    assert!(!person.home().join("lock").exists(), "a file that lies elsewhere gets no lock for good");

    // of which nothing can be saved
    let found = chunks(&bytes);
    for at in found {
        bytes[at + 60..at + 90].fill(0x55);
    }
    let lost = person.home().join("lost.mcap");
    std::fs::write(&lost, &bytes).unwrap();
    let name = lost.to_str().unwrap();
    let (code, text) = check(&person, &[name, "--repair"]);
    let said = ": nothing of it can be saved; the damaged file is kept as lost.mcap.damaged";
    assert!(code == 65 && text.contains(said), "{text}");
    assert!(!text.contains("repaired now"), "{text}");
    let (code, text) = check(&person, &[name]);
    assert!(code == 65 && text.contains("the damaged file is kept as "), "{text}");
    assert!(text.contains("lost.mcap.damaged") && !text.contains("full disk"), "{text}");
    // another one in its place is kept beside the first, and named
    bytes.extend_from_slice(b"another");
    std::fs::write(&lost, &bytes).unwrap();
    let (code, text) = check(&person, &[name, "--repair"]);
    assert!(code == 65 && text.contains("the damaged file is kept as lost.mcap.damaged.2"), "{text}");
    assert!(std::fs::read(person.home().join("lost.mcap.damaged.2")).unwrap() == bytes);
    for args in [&[name][..], &[name, "--repair"]] {
        let (code, text) = check(&person, args);
        assert!(code == 65 && text.contains("lost.mcap.damaged.2"), "{text}");
    }

    let (code, text) = check(&person, &["hosts.toml", "--repair"]);
    assert!(code == 65 && text.contains("not a recording of hvtui"), "{code} {text}");
    assert_eq!(check(&person, &["nothing"]).0, 64);
}

/// By its name as by its run: no trace of another program is looked for in it.
#[test]
fn a_recording_whose_first_byte_was_changed_is_one_still() {
    let person = Person::new(1);
    let mut bytes = std::fs::read(ended(&person, "digits")).unwrap();
    bytes[0] ^= 1;
    std::fs::write(person.home().join("copy.mcap"), &bytes).unwrap();
    let out = person.run(&["report", "copy.mcap"]);
    let text = said(&out);
    assert!(out.status.success() && text.contains("digits") && !text.contains("is read as"), "{text}");
    let (code, text) = check(&person, &["copy.mcap", "--repair"]);
    assert!(code == 0 && text.contains("no event is missing: closed now, "), "{code} {text}");
    assert_eq!(std::fs::read(person.home().join("copy.mcap")).unwrap()[0], 0x89);
}

/// What can't be read here may be read by another hvtui: nothing repairs it, closes it or deletes it.
#[test]
fn a_recording_of_a_later_version_is_named_by_each_command_and_left_alone() {
    let person = Person::new(1);
    let path = ended(&person, "digits");
    let mut later = of_a_later_version();
    // its client was killed
    later.truncate(later.len() - 40);
    std::fs::write(&path, &later).unwrap();
    let words = format!("{} has recording format 9, ", path.display());
    for args in [
        &["report", "last"][..],
        &["logs", "last"],
        &["export", "last", "--to", "csv"],
        &["runs", "mark", "last", "a note"],
    ] {
        let out = person.run(args);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(65), "{args:?}: {text}");
        assert!(text.contains(&words) && text.contains("update hvtui"), "{args:?}: {text}");
    }
    let listed = person.run(&["runs", "--local"]);
    assert!(listed.status.success() && said(&listed).contains("update hvtui"), "{}", said(&listed));

    let (code, text) = check(&person, &["--repair"]);
    assert!(code == 65 && text.contains("recording format 9 of a later version: update hvtui"), "{text}");
    assert!(text.ends_with("1 recording, 1 file: 1 not readable\n"), "{text}");
    let told = assert_fits("runs-check", &person.run(&["runs", "check", "--json"]));
    assert_eq!(told["recordings"][0]["files"][0]["state"], "later_format");
    ended(&person, "second");
    let pruned = said(&person.run(&["runs", "prune", "--keep", "0", "--yes"]));
    assert!(pruned.contains("update hvtui: it stays") && pruned.contains("1 deleted, "), "{pruned}");
    assert!(std::fs::read(&path).unwrap() == later, "it is as it was");
}

#[test]
fn a_recording_that_a_crash_left_open_is_closed_by_the_next_start() {
    let person = Person::new(1);
    let path = ended(&person, "first");
    let whole = std::fs::read(&path).unwrap();
    // its summary was never written
    cut(&path, &whole, whole.len() - 40);
    assert_eq!(check(&person, &[]).0, 65);
    ended(&person, "second");
    let (code, text) = check(&person, &[]);
    assert!(code == 0 && text.ends_with("2 recordings, 2 files: 2 whole\n"), "{code} {text}");
    assert!(std::fs::read(&path).unwrap() == whole, "as its recorder would have closed it");
}
