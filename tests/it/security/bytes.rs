//! Bytes and words from outside: arguments arrive as they are, frames and recordings are bounded, output is harmless.

use std::os::unix::process::CommandExt;

use crate::common::bodies;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::escapes::{ESCAPES, drives_a_terminal};
use super::person::Person;

fn harmless(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.split('\n') {
        assert!(!line.chars().any(drives_a_terminal), "{what}: {line:?}");
    }
}

/// A text without its sequences `ESC [ numbers m`.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        let end = part.find(|c: char| !matches!(c, '0'..='9' | ';')).unwrap_or(part.len());
        match part[end..].strip_prefix('m') {
            Some(rest) => out + rest,
            None => out + "\u{1b}[" + part,
        }
    })
}

#[test]
fn vector_04_no_text_of_a_rank_drives_the_terminal_of_the_command_line() {
    let person = Person::new();
    let script = ESCAPES.join("\n") + "\n\u{1b}[31m at the end";
    std::fs::write(person.path("script"), &script).unwrap();
    let name = format!("name{}", ESCAPES[0]);
    let both = "cat \"$1\"; cat \"$1\" >&2; exit 3";
    let file = person.path("script");
    let file = file.to_str().unwrap();
    let ran = person.hvtui(&["run", "-np", "1", "--name", &name, "--", "sh", "-c", both, ESCAPES[3], file]);
    harmless("run, output", &ran.out);
    harmless("run, errors", &ran.err);
    assert_eq!(ran.code, Some(3), "{}", String::from_utf8_lossy(&ran.err));
    assert_eq!(String::from_utf8(person.printed()).unwrap(), script, "what a rank printed is kept as it was");
    for args in [&["runs"][..], &["runs", "--json", "--local"], &["watch", "--once"], &["hosts", "list"]] {
        let ran = person.hvtui(args);
        harmless(&format!("{args:?}"), &ran.out);
        harmless(&format!("{args:?}"), &ran.err);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", String::from_utf8_lossy(&ran.err));
    }
    // A pipe gets the bytes as they are, a terminal does not.
    let in_a_terminal = format!("{} logs last", env!("CARGO_BIN_EXE_hvtui"));
    let output = person.command("script").args(["-qec", &in_a_terminal, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    assert!(shown.contains("at the end"), "{shown}");
    harmless("logs in a terminal", shown.as_bytes());
    // where the terminal shows colours, colours and nothing else
    let output = person
        .command("script")
        .args(["-qec", &in_a_terminal, "/dev/null"])
        .env("TERM", "xterm-256color")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    // a colour goes on over lines: an earlier one has turned reverse on
    assert!(shown.contains("\u{1b}[7;31m at the end\u{1b}[0m"), "{shown}");
    harmless("logs in colour", without_colours(&shown).as_bytes());
    for args in [
        &["run", "--", ESCAPES[0]][..],
        &["run", "-H", ESCAPES[1], "--", "true"],
        &["--hosts", ESCAPES[2], "watch", "--once"],
        &["logs", ESCAPES[4]],
        &["stop", ESCAPES[5]],
    ] {
        let ran = person.hvtui(args);
        harmless(&format!("{args:?}"), &ran.err);
        assert!(ran.code.is_some_and(|code| code != 0 && code != 70), "{args:?}: {:?}", ran.code);
    }
}

#[test]
fn vector_05_arguments_arrive_byte_for_byte() {
    let mut words: Vec<String> = [
        "",
        " ",
        "a b",
        "'",
        "\"",
        "$(touch owned)",
        "`touch owned`",
        "; touch owned",
        "a\nb",
        "\\",
        "~",
        "*",
        "-n",
        "--",
        "%s",
        "!!",
        "${HOME}",
        "&",
        "|",
        "<",
        "ä\u{1b}[31m",
        "\u{202e}",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut runner = TestRunner::deterministic();
    let random = "[^\u{0}]{0,40}";
    words.extend((0..60).map(|_| random.new_tree(&mut runner).unwrap().current()));
    let person = Person::new();
    let mut args: Vec<&str> = vec!["run", "-np", "1", "--", "printf", "%s\\0"];
    args.extend(words.iter().map(String::as_str));
    let ran = person.hvtui(&args);
    assert_eq!(ran.code, Some(0), "{}", String::from_utf8_lossy(&ran.err));
    let expected: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    assert_eq!(person.printed(), expected);
    assert!(!person.path("owned").exists());
}

#[test]
fn vector_12_a_recording_that_unpacks_to_too_much_is_refused() {
    // A zstd frame of run-length blocks of 128 KiB: one gigabyte out of 32 KiB, said to be 1 MiB.
    let mut frame = b"\x28\xb5\x2f\xfd\x80\x58".to_vec();
    frame.extend_from_slice(&u32::MAX.to_le_bytes());
    for block in 0..8192u32 {
        let head = (128 << 10) << 3 | 1 << 1 | u32::from(block == 8191);
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(0);
    }
    let person = Person::new();
    for says in [1u64 << 20, 1 << 30, u64::MAX] {
        let path = person.path("bomb.mcap");
        std::fs::write(&path, bodies::recording_with(says, &frame)).unwrap();
        let mut command = person.command("sh");
        command.args(["-c", "ulimit -v 1500000; exec \"$0\" \"$@\""]).arg(env!("CARGO_BIN_EXE_hvtui"));
        command.args(["logs", path.to_str().unwrap()]).process_group(0);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().is_some_and(|code| code != 70), "{says}: {:?} {said}", output.status);
    }
}

#[test]
fn vector_13_two_hundred_mutated_captures_are_read_or_refused() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus/frames");
    let mut captures: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    captures.sort();
    let mut runner = TestRunner::deterministic();
    let edit = (0..captures.len(), proptest::num::usize::ANY, proptest::num::u8::ANY, 0..4u8);
    for _ in 0..200 {
        let (which, at, byte, how) = edit.new_tree(&mut runner).unwrap().current();
        let mut capture = captures[which].clone();
        let at = at % capture.len();
        match how {
            0 => capture[at] = byte,
            1 => capture.truncate(at),
            2 => capture.insert(at, byte),
            _ => capture.extend_from_within(at..),
        }
        bodies::frames(&capture);
    }
}
