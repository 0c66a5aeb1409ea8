//! Row 22: half of the binary is on a host when the link goes.

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
