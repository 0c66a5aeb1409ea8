//! What hvtui writes is its owner's alone, goes where it should, and is not led elsewhere.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hvtui::domain::ids::{HostId, RunId};
use hvtui::supervise::rundir::RunDir;

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

/// Names as somebody would write them who wants a file elsewhere, or two things in one place.
fn hostile_names() -> Vec<String> {
    let plain = [
        "",
        ".",
        "..",
        "/",
        "//",
        "../x",
        "../../x",
        "a/../../x",
        "/etc/passwd",
        "/tmp/x",
        "./x",
        "x/",
        "x/.",
        "a/b",
        "a//b",
        "~",
        "~/x",
        "~root/x",
        "-rf",
        "--",
        "con",
        "a\\b",
        "..\\x",
        "C:\\x",
        "a\0b",
        "a\nb",
        "a\rb",
        "a\tb",
        "\u{1b}[2J",
        "\u{202e}x",
        "%2e%2e%2fx",
        "\u{ff0e}\u{ff0e}/x",
        "lock",
        "run.mcap",
        "*",
        "$(id)",
        "`id`",
        // an id in small letters, one a letter short and one too long: the same folder on some file systems
        "01jd3hs0000000000000000000",
        "01JD3HS000000000000000000",
        "01JD3HS00000000000000000000",
        "01JD3HS0000000000000000000/..",
        "01JD3HS0000000000000000000\0",
        " 01JD3HS0000000000000000000",
    ];
    let long = ["x".repeat(101), "x".repeat(4096), "../".repeat(1365)];
    plain.into_iter().map(str::to_owned).chain(long).collect()
}

#[test]
fn vector_11_no_name_from_outside_leads_out_of_its_folder() {
    // Code is not copied to hosts, and no archive is unpacked. What comes from outside and becomes a part of a path
    // are the ids of runs, which hosts and recordings tell, and the hosts' names in them, which a client tells.
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("home/state");
    let run: RunId = "01JD3HS0000000000000000000".parse().unwrap();
    for name in hostile_names() {
        let told = serde_json::to_string(&name).unwrap();
        // one in small letters is read as the one spelling of its id, so that no two folders are one
        let spelled = |id: &RunId| id.as_str().chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        for id in [serde_json::from_str::<RunId>(&told).ok(), name.parse().ok()].into_iter().flatten() {
            assert!(spelled(&id) && name.eq_ignore_ascii_case(id.as_str()), "a run with the id {name:?}");
        }
        // a name may be odd; what counts is where it leads
        if let Ok(dir) = RunDir::create(&state, &run, &HostId::from(name.as_str())) {
            let folder = state.join("spool").join(run.as_str());
            let inside = dir.path().canonicalize().unwrap();
            assert_eq!(inside.parent(), Some(folder.canonicalize().unwrap().as_path()), "{name:?}");
        }
    }
    let outside: Vec<PathBuf> =
        tree(place.path()).into_keys().filter(|path| !path.starts_with(&state)).collect();
    assert!(outside.iter().all(|path| state.starts_with(path)), "{outside:?}");
}

#[test]
fn vector_06_a_secret_file_is_read_only_where_nobody_else_can() {
    let person = Person::new();
    let file = person.path("tokens");
    std::fs::write(&file, "# mine\nexport TOKEN='sesame-open-thou'\n").unwrap();
    let words =
        ["run", "-np", "1", "--secret-file", "tokens", "--", "sh", "-c", "echo is=$TOKEN; echo ${#TOKEN}"];
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let refused = person.hvtui(&words);
    let said = String::from_utf8_lossy(&refused.err).into_owned();
    assert_eq!(refused.code, Some(77), "{said}");
    assert!(said.contains("chmod 600 tokens"), "{said}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let ran = person.hvtui(&words);
    let shown = format!("{}{}", String::from_utf8_lossy(&ran.out), String::from_utf8_lossy(&ran.err));
    assert_eq!(ran.code, Some(0), "{shown}");
    assert!(shown.contains("is=•••") && shown.contains("16") && !shown.contains("sesame"), "{shown}");
}
