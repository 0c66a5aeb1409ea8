//! The documents keep up with the program: every relative link leads somewhere, and every `hvtui` command line
//! that a document shows is one that this version understands. Knows Markdown only as far as that needs.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use hvtui::tui::core::keymap::{Binding, EVERYWHERE, LISTS};
use hvtui::tui::screens::{Entry, SCREENS};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every document: those beside Cargo.toml and all below docs/.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("docs")];
    let top = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    found.extend(top.filter(|path| is_document(path)));
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if is_document(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "md")
}

/// Lines of prose (`false`) and of fenced blocks (`true`), with their numbers from 1.
fn lines(text: &str) -> Vec<(usize, bool, &str)> {
    let mut fenced = false;
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else {
            all.push((number + 1, fenced, line));
        }
    }
    all
}

/// The targets of `[text](target)` and `![text](target)` in a line of prose.
fn links(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Command lines of hvtui in a line: the whole line of a fenced block, with or without `cargo run --release --`
/// or a prompt; in prose each `code span`.
fn commands(fenced: bool, line: &str) -> Vec<String> {
    let spans = if fenced { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
    spans.into_iter().filter_map(command).collect()
}

fn command(text: &str) -> Option<String> {
    let text = text.trim().trim_start_matches("$ ");
    let text =
        text.strip_prefix("cargo run --release -- ").map_or(text.to_owned(), |rest| format!("hvtui {rest}"));
    // what another program reads, and a remark, are not hvtui's
    let ours = text.split(" | ").next().unwrap_or_default().split(" > ").next().unwrap_or_default();
    let ours = ours.split("  #").next().unwrap_or_default().trim();
    let shown = ours == "hvtui" || ours.starts_with("hvtui ");
    // `…` and `...` stand for what the reader adds
    (shown && !ours.contains('…') && !ours.contains("...")).then(|| ours.to_owned())
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut dead = Vec::new();
    let mut seen = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for (number, _, line) in lines(&text).into_iter().filter(|(_, fenced, _)| !fenced) {
            for target in
                links(line).into_iter().filter(|target| !target.contains("://") && !target.starts_with('#'))
            {
                seen += 1;
                let path = target.split('#').next().unwrap_or_default();
                if !document.parent().unwrap().join(path).exists() {
                    dead.push(format!("{}:{number}: {target}", document.display()));
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} links were found: does this test still read Markdown?");
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn every_command_line_shown_is_understood() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for (number, fenced, line) in lines(&text) {
            for shown in commands(fenced, line) {
                seen += 1;
                let at = format!("{}:{number}: {shown}", document.display());
                let Some(words) = shlex::split(&shown) else {
                    wrong.push(format!("{at}\n  has an open quote"));
                    continue;
                };
                if let Err(error) = hvtui::cli::parse(words.into_iter().map(OsString::from)) {
                    // prose names a command without its arguments: `hvtui stop`
                    let name_alone = !fenced && error.kind() == ErrorKind::MissingRequiredArgument;
                    // `--help` and `--version` end the parser with what they print
                    if error.use_stderr() && !name_alone {
                        wrong.push(format!("{at}\n  {error}"));
                    }
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} command lines were found: does this test still read Markdown?");
    assert!(wrong.is_empty(), "command lines that this version refuses:\n{}", wrong.join("\n"));
}

/// A table of keys as the page of the screens shows it.
fn keys_table<'a>(bindings: impl Iterator<Item = &'a Binding>) -> String {
    let line = |binding: &Binding| {
        let keys = binding.keys.iter().map(|key| format!("`{}`", key.name())).collect::<Vec<_>>().join(" ");
        format!("| {keys} | {} |\n", binding.help.replace('|', "\\|"))
    };
    "| Key | |\n|---|---|\n".to_owned() + &bindings.map(line).collect::<String>()
}

/// The keys of a screen without those that many have.
fn own_keys(screen: &'static Entry) -> impl Iterator<Item = &'static Binding> {
    let is_shared = |table: &[Binding]| {
        let is =
            |shared: &[Binding]| table.iter().map(|one| one.action).eq(shared.iter().map(|one| one.action));
        is(LISTS) || is(EVERYWHERE)
    };
    let tables = screen.keys.iter().zip(screen.tables());
    tables.filter(move |(table, _)| !is_shared(table)).flat_map(|(_, shown)| shown)
}

#[test]
fn the_page_of_the_screens_has_each_screen_its_picture_and_its_keys() {
    let page = std::fs::read_to_string(root().join("docs/guide/screens.md")).unwrap();
    let part =
        |name: &str| page.split("\n## ").find(|part| part.lines().next() == Some(name)).unwrap_or_default();
    let mut wrong = String::new();
    let mut check = |name: &str, wanted: String| {
        // no further line: the table ends where the program's does
        let ends = part(name).split_once(&wanted).is_some_and(|(_, rest)| !rest.starts_with('|'));
        if !ends {
            let _ = write!(wrong, "## {name}\n\n{wanted}\n");
        }
    };
    check("Keys", keys_table(LISTS.iter()));
    check("Keys", keys_table(EVERYWHERE.iter()));
    for screen in SCREENS {
        check(screen.name, keys_table(own_keys(screen)));
        assert!(part(screen.name).contains("](../../assets/screenshots/"), "{} has no picture", screen.name);
    }
    assert!(wrong.is_empty(), "docs/guide/screens.md lacks these tables of keys:\n{wrong}");
}

/// Every source file of the tests, in one text.
fn test_sources() -> String {
    let mut text = String::new();
    let mut folders = vec![root().join("tests")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.ends_with("fuzz/target") && !path.ends_with("loom/target") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    text
}

#[test]
fn the_page_of_security_names_each_vector_and_each_of_its_tests() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let sources = test_sources();
    for number in 1..=18 {
        assert!(page.contains(&format!("\n| {number} | ")), "vector {number} is not on the page");
    }
    let word =
        |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    let named = |text: &str, before: &str| -> std::collections::BTreeSet<String> {
        let found =
            text.match_indices(before).map(|(at, _)| word(&text[at + before.len() - "vector_".len()..]));
        found.filter(|name| name.as_bytes().get(7).is_some_and(u8::is_ascii_digit)).collect()
    };
    assert_eq!(named(&page, "vector_"), named(&sources, "fn vector_"));
}
