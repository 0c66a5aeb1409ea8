//! Rows 22 and 23: half of the binary is on a host when the link goes, or when the disk is full.

use std::path::PathBuf;

use super::matrix::Notes;
use super::rig::{Rig, until, until_some};
use crate::common::processes::end_of;

/// The files in the folders of the binaries on a host, each with its length.
fn files(rig: &Rig) -> Vec<(PathBuf, u64)> {
    let below = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = below(rig.at_home("n1", ".cache/hvtui/agents"));
    let all = folders.flat_map(|folder| below(folder.path()));
    all.filter_map(|file| Some((file.path(), file.metadata().ok()?.len()))).collect()
}

fn is_binary(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name == "hvtui")
}

pub(crate) fn cut_at_half(notes: &mut Notes) -> Option<()> {
    let rig = Rig::bare(1)?;
    let person = rig.person();
    let size = std::fs::metadata(crate::common::program::hvtui()).expect("the binary").len();
    let relay = rig.relay("n1");
    // slow enough that half of it is seen as half of it
    relay.set(|weather| weather.rate = size / 5);
    let mut watch =
        person.hvtui(&["watch", "--json"]).stdout(std::process::Stdio::null()).spawn().expect("hvtui");
    let half = until_some("half of the binary on the host", || {
        files(&rig).into_iter().find(|(_, length)| *length >= size / 2)
    });
    relay.stall();
    assert!(half.1 < size, "{half:?} of {size}");
    let there = files(&rig);
    assert!(there.iter().all(|(path, _)| !is_binary(path)), "a part of it in the binary's place: {there:?}");
    relay.set(|weather| weather.refuse = true);
    relay.reset();
    // the process that took it in hears of the end
    until("what was cut to be gone", || files(&rig).is_empty());
    let sent = relay.bytes_up();
    relay.clear();
    until("the agent", || {
        rig.cluster.processes("n1").iter().any(|process| process.args.contains("agent --stdio"))
    });
    watch.kill().expect("kill");
    end_of(&mut watch);
    let there = files(&rig);
    let [(path, length)] = &there[..] else { panic!("the binary and nothing else: {there:?}") };
    assert!(is_binary(path) && *length == size, "{there:?}");
    let again = relay.bytes_up() - sent;
    notes.say(&format!(
        "cut at {} %; then {:.2} times the binary's size went up",
        100 * half.1 / size,
        again as f64 / size as f64
    ));
    assert!(again < size + size / 10, "one upload more, and no second: {again} bytes of {size}");
    Some(())
}

/// What a quota does too: there is room when it is asked for, and none in the middle of the writing.
pub(crate) fn disk_fills(notes: &mut Notes) -> Option<()> {
    let rig = Rig::bare(1)?;
    let person = rig.person();
    let size = std::fs::metadata(crate::common::program::hvtui()).expect("the binary").len();
    rig.change("sshd", "n1 SetEnv XDG_RUNTIME_DIR=/run/fallback");
    rig.cluster.on("n1", "mkdir -p -m 700 /run/fallback");
    rig.change("disk", &format!("n1 /root/.cache {}", (size >> 10) + (16 << 10)));
    let relay = rig.relay("n1");
    // slow enough that half of it is seen as half of it
    relay.set(|weather| weather.rate = size / 5);
    let mut watch =
        person.hvtui(&["watch", "--json"]).stdout(std::process::Stdio::null()).spawn().expect("hvtui");
    let found = |what: &str| {
        let line = format!("find /root/.cache /run/fallback -ignore_readdir_race -type f {what}");
        rig.cluster.surely_on("n1", &line)
    };
    let half = format!("-name '.up.*' -size +{}k", size >> 11);
    until("half of the binary on the host", || !found(&half).is_empty());
    relay.stall();
    assert_eq!(found("-name hvtui"), "", "it is whole already");
    rig.cluster.on("n1", "dd if=/dev/zero of=/root/.cache/stranger bs=64k 2>/dev/null");
    relay.clear();
    until("the agent", || {
        rig.cluster.processes("n1").iter().any(|process| process.args.contains("agent --stdio"))
    });
    watch.kill().expect("kill");
    end_of(&mut watch);
    let there = found("-name hvtui");
    assert!(there.starts_with("/run/fallback/hvtui/agents/") && there.lines().count() == 1, "{there}");
    assert_eq!(found("-name '.up.*'"), "", "a part of it is left");
    let uploads = relay.bytes_up() as f64 / size as f64;
    notes.say(&format!("a disk that fills up: {uploads:.2} times the binary's size went up"));
    assert_eq!(relay.connects(), 1, "the next folder is tried over the same connection");
    assert!(uploads < 2.1, "more than one upload too many: {uploads}");
    Some(())
}
