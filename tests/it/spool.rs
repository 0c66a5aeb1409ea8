//! What a run's output may take of its host's disk, on a small file system of its own.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::bed::{Bed, ended, exit, launch, state, text};
use crate::common::cluster::skip;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{until, wait_for};
use hvtui::domain::ids::Rank;
use hvtui::domain::run::{HostRun, MinFree, RankExit, Spool};
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::state::exit_file;

/// Runs the test again by itself, in a mount namespace of its own with a small file system; gives that one's folder
/// when this is that run.
fn on_a_small_disk(test: &str, mib: u32) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("HVTUI_SMALL_DISK") {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size="$1"m,mode=0700 none "$2" || exit 42
                    HVTUI_SMALL_DISK="$2" exec "$3" --exact "$4" --nocapture"#;
    let own = std::env::current_exe().unwrap();
    let again = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh", &mib.to_string()])
        .args([folder.path(), &own])
        .arg(test)
        .output_in_time();
    match again {
        Ok(done) if done.status.success() => {}
        Ok(done) if done.status.code() == Some(42) || done.stderr.starts_with(b"unshare: ") => {
            skip("a small disk needs root: run as root, or in a user namespace");
        }
        Ok(done) => {
            panic!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
        }
        Err(error) => skip(&format!("no unshare ({error}): apt-get install util-linux")),
    }
    None
}

/// Starts a run whose files lie on `disk`.
fn start(bed: &Bed, disk: &Path, spec: HostRun) -> RunDir {
    let dir = RunDir::create(&disk.join("state"), &bed.run, &bed.host).unwrap();
    launch(&dir, spec, BTreeMap::new()).unwrap();
    dir
}

#[test]
fn vector_14_a_flood_does_not_fill_its_disk() {
    let Some(disk) = on_a_small_disk("spool::vector_14_a_flood_does_not_fill_its_disk", 48) else { return };
    let bed = Bed::new();
    let mut spec = bed.spec(&["seq -f %07.0f 25000000 && echo all >&2"], 1000);
    spec.spool = Spool { cap: 8 << 20, min_free: MinFree::Percent(5) };
    let dir = start(&bed, &disk, spec);
    ended(&dir);
    assert_eq!(exit(&dir, 0).code, Some(0), "the rank met a full disk: {}", text(&dir, "rank-0.err"));
    assert_eq!(text(&dir, "rank-0.err"), "all\n");
    assert!(std::fs::metadata(dir.path().join("rank-0.out")).unwrap().len() > 4 * (48 << 20));
}

#[test]
fn a_disk_that_others_fill_is_warned_of_and_named_as_the_cause() {
    let Some(disk) =
        on_a_small_disk("spool::a_disk_that_others_fill_is_warned_of_and_named_as_the_cause", 32)
    else {
        return;
    };
    let bed = Bed::new();
    let script = "echo begun; while [ ! -e go ]; do sleep 0.01; done; seq 1000000 || exit 5";
    let mut spec = bed.spec(&[script, "echo fine"], 1000);
    spec.spool = Spool { cap: 8 << 20, min_free: MinFree::Bytes(12 << 20) };
    let dir = start(&bed, &disk, spec);
    wait_for("the first words", || (text(&dir, "rank-0.out") == "begun\n").then_some(()));
    let fill = |name: &str, bytes: u64| {
        let mut file = std::fs::File::create(disk.join(name)).unwrap();
        std::io::copy(&mut std::io::repeat(1).take(bytes), &mut file)
    };
    fill("stranger", 24 << 20).unwrap();
    until("a warning", || {
        dir.read("notes.ndjson").unwrap().is_some() && text(&dir, "notes.ndjson").contains("filling up")
    });
    fill("more", u64::MAX).unwrap_err();
    std::fs::write(bed.work("go"), "").unwrap();
    wait_for("the end of the rank", || dir.read_json::<RankExit>(&exit_file(Rank(0))).unwrap());
    let exit = exit(&dir, 0);
    assert_eq!((exit.code, exit.stopped), (Some(5), false), "{exit:?}");
    assert!(exit.describe().contains("its disk was full"), "{exit:?}");
    until("the end of the supervisor", || !state(&dir).supervisor.alive());
}
