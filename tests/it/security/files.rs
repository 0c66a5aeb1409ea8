//! What hvtui writes is its owner's alone, goes where it should, and is not led elsewhere.

use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;

use hvtui::domain::ids::{HostId, RunId};
use hvtui::supervise::rundir::RunDir;
use hvtui::sync::manifest::{Kind, Manifest};

use super::person::Person;
use super::tree::{changes, tree};
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until};

#[test]
fn vector_07_nothing_that_is_written_is_open_to_others() {
    let person = Person::new();
    let ran = person
        .command("sh")
        .args(["-c", "umask 0; exec \"$0\" \"$@\""])
        .arg(crate::common::program::hvtui())
        .args(["run", "-np", "2", "--", "hvtui", "train", "diabetes"])
        .output_in_time()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let ours = tree(&person.path(".local/state/hvtui"));
    assert!(ours.len() > 10, "{ours:?}");
    for (path, leaf) in ours {
        assert_eq!(leaf.mode & 0o077, 0, "{} is open to others", path.display());
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

/// What a rank prints that would do something if it reached a terminal.
const PRINTED: &str = "\u{1b}]52;c;cm0=\u{7}\u{1b}]8;;file:///etc/passwd\u{7}x and then\nthe last line";

#[test]
fn vector_17_reading_a_strangers_recording_writes_nothing() {
    let person = Person::new();
    let ran = person.hvtui(&["run", "-np", "1", "--name", "strange", "--", "printf", "%s", PRINTED]);
    assert_eq!(ran.code, Some(0), "{}", String::from_utf8_lossy(&ran.err));
    let runs = person.path(".local/state/hvtui/runs");
    let recording =
        tree(&runs).into_keys().find(|path| path.extension().is_some_and(|end| end == "mcap")).unwrap();
    let run = recording.parent().unwrap().file_name().unwrap().to_str().unwrap();

    // As a file, among the reader's own runs, and as one that is left open: each has been read by then.
    let stranger = Person::new();
    std::fs::copy(&recording, stranger.path("theirs.mcap")).unwrap();
    let whole = std::fs::read(&recording).unwrap();
    std::fs::write(stranger.path("cut.mcap"), &whole[..whole.len() - 60]).unwrap();
    let own = stranger.path(".local/state/hvtui/runs").join(run);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&own).unwrap();
    std::fs::copy(&recording, own.join("run.mcap")).unwrap();
    let before = tree(&stranger.path(""));
    // a pipe gets the bytes as they are, each line after its rank
    let printed: Vec<String> = PRINTED.lines().map(|line| format!("[0] {line}\n")).collect();
    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
    let raw = &printed[..];
    let cases: [(&[&str], &[&str]); 10] = [
        (&["logs", "theirs.mcap"], raw),
        (&["logs", "cut.mcap"], raw),
        (&["logs", run], raw),
        (&["logs", "--rank", "0", "theirs.mcap"], &["the last line"]),
        (&["report", "theirs.mcap"], &["strange"]),
        (&["report", run], &["strange"]),
        (&["export", "theirs.mcap", "--to", "chrome"], &["process_name", "local"]),
        (&["runs", "--local"], &["strange", "exit 0"]),
        (&["runs", "--local", "--json"], &["\"strange\"", run]),
        (&["runs", "prune", "--keep", "0", "--dry-run"], &["strange"]),
    ];
    for (args, shown) in cases {
        let ran = stranger.hvtui(args);
        let said = String::from_utf8_lossy(&ran.out).into_owned();
        assert_eq!(ran.code, Some(0), "{args:?}: {said}{}", String::from_utf8_lossy(&ran.err));
        for words in shown {
            assert!(said.contains(words), "{args:?}: {said:?}");
        }
        assert_eq!(changes(&before, &tree(&stranger.path(""))), [""; 0].map(PathBuf::from), "{args:?}");
    }
    // The screen of a replay: its content is there, and nothing of it but the screen's own drives the terminal.
    let replay = format!("{} replay theirs.mcap", crate::common::program::hvtui());
    let mut command = stranger.command("script");
    command.args(["-qec", &format!("stty cols 120 rows 40; {replay}"), "/dev/null"]).env("TERM", "xterm");
    let mut screen = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = screen.stdin.take().unwrap();
    let mut pipe = screen.stdout.take().unwrap();
    let (told, chunks) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut bytes = vec![0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut bytes) {
            let _ = told.send(bytes[..count].to_vec());
        }
    });
    let mut shown = Vec::new();
    until("the replay's screen", || {
        shown.extend(chunks.try_iter().flatten());
        String::from_utf8_lossy(&shown).contains("strange")
    });
    // to its end, where all is printed, and out
    for key in ["G", "A"] {
        keys.write_all(key.as_bytes()).unwrap();
    }
    until("the last line", || {
        shown.extend(chunks.try_iter().flatten());
        String::from_utf8_lossy(&shown).contains("last line")
    });
    keys.write_all(b"q").unwrap();
    assert!(end_of(&mut screen).success());
    reading.join().unwrap();
    let text = String::from_utf8_lossy(&shown);
    assert!(!text.contains("]52;") || text.contains("␛]52;"), "{text:?}");
    assert!(!text.contains("\u{1b}]52") && !text.contains("\u{1b}]8;;file"), "{text:?}");
    assert_eq!(changes(&before, &tree(&stranger.path(""))), [""; 0].map(PathBuf::from), "replay");
}

/// Names as an attacker would write them who wants a file elsewhere, or two things in one place.
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
    // No archive is unpacked. What comes from outside and becomes a part of a path are the ids of runs, which hosts and
    // recordings tell, the hosts' names in them, which a client tells, and the list of what `--sync` brings.
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
fn vector_11_no_list_of_a_sync_leads_out_of_its_folder() {
    // where a path leads by its words: the entries are made one by one in a new folder, in which no link is followed by an
    // entry, as each one lies in folders of the list
    let depth = |path: &str| {
        path.split('/').try_fold(0_u32, |depth, part| match part {
            "" | "." => Some(depth),
            ".." => depth.checked_sub(1),
            _ => Some(depth + 1),
        })
    };
    let is_within = |path: &str| !path.starts_with('/') && depth(path).is_some();
    let mut accepted = Vec::new();
    for name in hostile_names() {
        let hash = "0".repeat(64);
        let lines = [
            format!("d 755 {name}\n"),
            format!("f 644 0 {hash} {name}\n"),
            format!("d 755 a\nf 644 0 {hash} a/{name}\n"),
            format!("l a\t{name}\n"),
            format!("d 755 a\nl a/b\t{name}\n"),
            // through a link of the same list
            format!("l a\t.\nf 644 0 {hash} a/{name}\n"),
        ];
        for lines in lines {
            let Ok(list) = Manifest::decode(format!("hvtui-tree 1\n{lines}").as_bytes()) else { continue };
            for entry in list.entries() {
                assert!(is_within(&entry.path) && !entry.path.is_empty(), "{lines:?}");
                let folders = entry.path.rsplit_once('/').map(|(folder, _)| folder);
                let is_folder = |path: &str| {
                    list.entries().iter().any(|e| e.path == path && matches!(e.kind, Kind::Dir { .. }))
                };
                assert!(folders.is_none_or(is_folder), "below what is no folder: {lines:?}");
                if let Kind::Link { target } = &entry.kind {
                    let from = folders.unwrap_or_default();
                    assert!(
                        !target.starts_with('/')
                            && is_within(&format!("{from}/{target}")[usize::from(from.is_empty())..]),
                        "{lines:?}"
                    );
                }
            }
            accepted.push(lines);
        }
    }
    assert!(
        accepted.iter().any(|lines| lines.starts_with("f 644")),
        "names that are but odd are taken: {accepted:?}"
    );
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
