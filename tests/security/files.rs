//! What hvtui writes is its owner's alone, goes where it should, and is not led elsewhere.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::person::Person;

/// Everything below a directory: path, and what is there.
fn tree(folder: &Path) -> BTreeMap<PathBuf, std::fs::Metadata> {
    let mut found = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                todo.push(path.clone());
            }
            found.insert(path, meta);
        }
    }
    found
}

#[test]
fn vector_07_nothing_that_is_written_is_open_to_others() {
    let person = Person::new();
    let ran = person
        .command("sh")
        .args(["-c", "umask 0; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_hvtui"))
        .args(["run", "-np", "2", "--", "hvtui", "train", "diabetes"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let ours = tree(&person.path(".local/state/hvtui"));
    assert!(ours.len() > 10, "{ours:?}");
    for (path, meta) in ours {
        assert_eq!(meta.permissions().mode() & 0o077, 0, "{} is open to others", path.display());
    }
}

#[test]
fn vector_07_a_planted_link_is_not_followed() {
    let person = Person::new();
    let (state, target) = (person.path(".local/state/hvtui"), person.path("target"));
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir(&target).unwrap();
    symlink(&target, state.join("spool")).unwrap();
    let ran = person.hvtui(&["run", "-np", "1", "--", "true"]);
    let said = String::from_utf8_lossy(&ran.err).into_owned();
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "it was followed: {said}");
    assert!(ran.code != Some(0) && said.contains("it is a link"), "{said}");
}

#[test]
fn vector_17_reading_a_strangers_recording_writes_nothing() {
    let person = Person::new();
    let ran = person.hvtui(&[
        "run",
        "-np",
        "1",
        "--",
        "printf",
        "\u{1b}]52;c;cm0=\u{7}\u{1b}]8;;file:///etc/passwd\u{7}x",
    ]);
    assert_eq!(ran.code, Some(0), "{}", String::from_utf8_lossy(&ran.err));
    let runs = person.path(".local/state/hvtui/runs");
    let recording =
        tree(&runs).into_keys().find(|path| path.extension().is_some_and(|end| end == "mcap")).unwrap();
    let stranger = Person::new();
    let file = stranger.path("theirs.mcap");
    std::fs::copy(recording, &file).unwrap();
    let before: Vec<PathBuf> = tree(&stranger.path(".")).into_keys().collect();
    for args in [&["logs", "theirs.mcap"][..], &["export", "theirs.mcap", "--to", "chrome"]] {
        let ran = stranger.hvtui(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", String::from_utf8_lossy(&ran.err));
        let after: Vec<PathBuf> = tree(&stranger.path(".")).into_keys().collect();
        assert_eq!(after, before, "{args:?}");
    }
}
