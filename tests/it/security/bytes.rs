//! Bytes and words from outside: arguments arrive as they are, frames and recordings are bounded, output is harmless.

use std::ffi::OsStr;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::escapes::{ESCAPES, drives_a_terminal};
use super::person::Person;
use crate::common::client::Client;
use crate::common::cluster::{Cluster, skip};
use crate::common::in_time::OutputInTime;

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
    let in_a_terminal = format!("{} logs last", crate::common::program::hvtui());
    let output =
        person.command("script").args(["-qec", &in_a_terminal, "/dev/null"]).output_in_time().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    assert!(shown.contains("at the end"), "{shown}");
    harmless("logs in a terminal", shown.as_bytes());
    // where the terminal shows colours, colours and nothing else
    let output = person
        .command("script")
        .args(["-qec", &in_a_terminal, "/dev/null"])
        .env("TERM", "xterm-256color")
        .output_in_time()
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

/// Login shells that read what they are given in five ways.
const SHELLS: [&str; 5] = ["/bin/dash", "/bin/bash", "/usr/bin/zsh", "/usr/bin/fish", "/usr/bin/tcsh"];

/// Words that a shell would take apart, expand or run, and random ones; none has a NUL.
fn awkward_words() -> Vec<String> {
    let mut words: Vec<String> = [
        "",
        " ",
        "a b",
        "'",
        "\"",
        "$(touch owned)",
        "`touch owned`",
        "; touch owned",
        "(touch owned)",
        "a\nb",
        "\ntouch owned\n",
        "\\",
        "\\\n",
        "~",
        "*",
        "=ls",
        "{a,b}",
        "^x^y",
        "#",
        "-n",
        "--",
        "%s",
        "!!",
        "!touch owned",
        "${HOME}",
        "$0",
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
    words
}

#[test]
fn vector_05_arguments_arrive_byte_for_byte() {
    if let Some(missing) = SHELLS.iter().find(|shell| !std::path::Path::new(shell).exists()) {
        return skip(&format!("{missing} is not installed"));
    }
    let shells: Vec<String> = (1..).zip(SHELLS).map(|(host, shell)| format!("n{host}={shell}")).collect();
    let more: Vec<&OsStr> = shells.iter().flat_map(|shell| ["--shell".as_ref(), shell.as_ref()]).collect();
    let Some(cluster) = Cluster::up(SHELLS.len(), &more) else { return };
    let client = Client::new(&cluster);
    let words = awkward_words();
    // The words stand in the arguments, and all together in a variable and in the name of the folder.
    let all = words.join("").replace('/', "");
    let (variable, folder) = (format!("WORDS={all}"), all.chars().take(60).collect::<String>());
    for host in 1..=SHELLS.len() {
        let place = cluster.dir().join(format!("n{host}/home")).join(&folder);
        std::fs::create_dir(&place).unwrap();
    }
    let np = SHELLS.len().to_string();
    let script = r#"printf '%s\0' "$@" "$WORDS" "${PWD##*/}""#;
    let workdir = format!("~/{folder}");
    let mut args = vec!["run", "-np", &np, "--env", &variable, "--workdir", &workdir];
    args.extend(["--", "sh", "-c", script, "sh"]);
    args.extend(words.iter().map(String::as_str));
    let ran = client.run(&args);
    assert_eq!(ran.code, 0, "{ran:?}");
    let listed = client.run(&["runs", "--json", "--local"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let run = listed[0]["spec"]["id"].as_str().unwrap();
    let said = words.iter().chain([&all, &folder]);
    let expected: Vec<u8> = said.flat_map(|word| word.bytes().chain([0])).collect();
    for (rank, shell) in SHELLS.iter().enumerate() {
        let host = format!("n{}", rank + 1);
        let passwd = cluster.on(&host, "getent passwd $(id -u)");
        assert!(passwd.trim().ends_with(shell), "{host} logs in by {passwd}");
        let printed = cluster.spool(&host, run).unwrap().join(format!("rank-{rank}.out"));
        let printed = std::fs::read(printed).unwrap();
        assert!(printed == expected, "{shell}: {}", String::from_utf8_lossy(&printed));
        assert_eq!(cluster.surely_on(&host, "find ~ -ignore_readdir_race -name owned"), "", "{shell}");
    }
}
