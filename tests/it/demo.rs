//! `hvtui demo` in a terminal: a cluster and its runs, a launch of one's own that fails, what was recorded; and nothing
//! is left.

use std::process::Command;
use std::time::Duration;

use crate::common::in_time::OutputInTime;
use crate::common::terminal::Terminal;

#[test]
fn a_cluster_that_does_not_exist_is_launched_on_and_leaves_nothing() {
    let home = tempfile::tempdir().expect("a home folder");
    let mut command = Command::new(crate::common::program::hvtui());
    command.arg("demo").env("HOME", home.path()).env("TMPDIR", home.path()).current_dir("/");
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    let Some(terminal) = Terminal::start(&command, 120, 40) else { return };
    let marked = |screen: &str| screen.contains(" DEMO ");
    // three runs are launched by themselves, on gpu-01; one host does not answer
    let cluster = terminal.wait("the cluster with its runs", |screen| {
        screen.contains("gpu-03") && screen.contains("rank 0 step") && screen.contains("not reached")
    });
    assert!(marked(&cluster) && cluster.contains("8 hosts"), "{cluster}");

    terminal.press(&["f", "4", "Enter"]);
    terminal.wait("four picks", |screen| screen.contains("4 picked"));
    terminal.press(&["l"]);
    terminal.wait("the Launch screen", |screen| screen.contains("command") && marked(screen));
    terminal.type_in("hvtui run -np 4 -- python mine.py --fail");
    terminal.wait("its plan", |screen| screen.contains("4 ranks, enter starts"));
    terminal.press(&["Enter"]);
    terminal.wait("steps of four ranks", |screen| screen.contains("4 ranks") && screen.contains("samples/s"));
    let failed = terminal.wait("its failure", |screen| screen.contains("uncorrectable ECC error"));
    assert!(marked(&failed) && failed.contains("rank 2"), "{failed}");

    // escape and a letter that are read at once would be one key
    terminal.press(&["Escape"]);
    terminal.wait("the cluster", |screen| screen.contains("LAST MINUTE"));
    terminal.press(&["r"]);
    terminal
        .wait("the runs", |screen| screen.contains("mine") && screen.contains("resnet50") && marked(screen));
    terminal.press(&["g", "Enter"]);
    terminal.wait("what was recorded", |screen| screen.contains("Replay") && marked(screen));
    terminal.press(&["Escape"]);
    terminal.wait("the runs again", |screen| screen.contains("newest first"));
    // the hosts' world went on beside the recording
    terminal.press(&["c"]);
    let again = terminal.wait("the cluster again", |screen| {
        screen.contains("gpu-03") && screen.contains("LAST MINUTE") && screen.contains("xid 48")
    });
    assert!(marked(&again), "{again}");
    let records = |home: &std::path::Path| std::fs::read_dir(home).expect("the home folder").count();
    assert_eq!(records(home.path()), 1, "the demo's recordings are there while it is");
    terminal.press(&["q"]);
    terminal.assert_restored(0);
    assert_eq!(records(home.path()), 0, "and go with it");
}

#[test]
fn a_hang_and_an_idle_gpu_are_told_within_a_minute() {
    let home = tempfile::tempdir().expect("a home folder");
    let mut command = Command::new(crate::common::program::hvtui());
    command.arg("demo").env("HOME", home.path()).env("TMPDIR", home.path()).current_dir("/");
    let Some(terminal) = Terminal::start(&command, 120, 40) else { return };
    terminal.wait("the cluster with its runs", |screen| screen.contains("rank 0 step"));
    terminal.press(&["E"]);
    let told = terminal.wait_within(Duration::from_secs(120), "the suspicion", |screen| {
        screen.contains("stands still in step 160: rank 1 in data") && screen.contains("held and idle: wang")
    });
    assert!(told.contains("\u{25b2}"), "{told}");
    terminal.press(&["Escape"]);
    let cluster = terminal.wait("the cluster again", |screen| screen.contains("LAST MINUTE"));
    assert!(cluster.contains("alerts (E)") || cluster.contains("\u{25b2}"), "{cluster}");
    // the stacks of its ranks say why
    terminal.press(&["r"]);
    let runs = terminal.wait("the runs", |screen| {
        screen.contains("llama-hangs") && screen.contains("they go when you leave")
    });
    assert!(!runs.contains("kept until deleted"), "{runs}");
    terminal.press(&["/"]);
    terminal.type_in("llama");
    terminal.press(&["Enter"]);
    terminal.wait("the run that hangs alone", |screen| !screen.contains("resnet50"));
    terminal.press(&["Enter"]);
    terminal.wait("its screen", |screen| screen.contains("LATE") && screen.contains("no step"));
    terminal.press(&["S"]);
    let stacks = terminal.wait("its stacks", |screen| screen.contains("all_reduce"));
    assert!(stacks.contains("_next_data") && stacks.contains("in data of step 160"), "{stacks}");
    terminal.press(&["Escape"]);
    terminal.wait("the run again", |screen| !screen.contains("all_reduce"));
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

#[test]
fn the_keys_of_the_recorded_tour_still_do_what_it_shows() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let cast = folder.path().join("tour.cast");
    if Command::new("tmux").arg("-V").output_in_time().is_err() {
        return crate::common::cluster::skip("no tmux: apt-get install tmux");
    }
    let tour = Command::new("python3")
        .arg(root.join("tests/screenshot"))
        .args(["--quick", "--hvtui", crate::common::program::hvtui(), "--cast"])
        .arg(&cast)
        .output_in_time()
        .expect("python3");
    assert!(tour.status.success(), "{}", String::from_utf8_lossy(&tour.stderr));
    // of what is in the repository the same must be true
    for path in [&cast, &root.join("assets/demo.cast")] {
        let text = std::fs::read_to_string(path).expect("the recording");
        assert!(text.len() < 300_000, "{}: {} bytes", path.display(), text.len());
        let mut lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let head = lines.next().expect("a head");
        assert_eq!((&head["version"], &head["width"], &head["height"]), (&2.into(), &100.into(), &30.into()));
        let mut last = 0.0;
        for event in lines {
            let at = event[0].as_f64().expect("a time");
            assert!(at >= last && ["o", "m"].contains(&event[1].as_str().expect("a kind")), "{event}");
            assert!(event[2].is_string(), "{event}");
            last = at;
        }
    }
}
