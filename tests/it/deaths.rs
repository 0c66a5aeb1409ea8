//! Unrequested ends: a host that is started anew, want of memory, a process that even KILL does not end,
//! and a tree of which only the kernel knows all of it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::bed::{Bed, ended, exit, hvtui, rank_process, running};
use crate::common::cluster::skip;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{alive, kill, pid_in, until};
use crate::common::stuck_file::StuckFile;
use hvtui::domain::ids::Rank;
use hvtui::domain::note::what;
use hvtui::procs::identity::{Identity, Stat};
use hvtui::supervise::adopt::{Adopted, adopt};
use hvtui::supervise::lease::Claims;
use hvtui::supervise::notes;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::start::start;
use hvtui::supervise::state::exit_file;
use hvtui::supervise::stop::{Stopped, stop};
use rustix::process::Signal;

/// A program that does something first and then is hvtui.
fn wrapper(bed: &Bed, name: &str, script: &str) -> PathBuf {
    let path = bed.home.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn note(dir: &RunDir, what: &str) -> Option<String> {
    let notes = notes::Reader::default().news(dir).unwrap();
    notes.into_iter().find(|(_, note)| note.what == what).map(|(_, note)| note.text)
}

/// Ends the supervisor, the rank-wraps and the ranks, none of which may say a word.
fn kill_all(dir: &RunDir, ranks: &[Identity]) {
    let state = running(dir);
    for wrap in state.wraps.values() {
        kill(wrap.pid, Signal::STOP);
    }
    let all = || std::iter::once(&state.supervisor).chain(state.wraps.values()).chain(ranks);
    for process in all() {
        kill(process.pid, Signal::KILL);
    }
    until("their death", || all().all(|process| !process.alive()));
}

#[test]
fn a_reboot_is_told_and_is_no_success() {
    let bed = Bed::new();
    let boot = bed.home.path().join("boot_id");
    std::fs::write(&boot, "00000000-0000-0000-0000-000000000000\n").unwrap();
    let script = format!(
        "exec unshare -m sh -c 'mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"' '{}' '{}' \"$@\"",
        boot.display(),
        hvtui().display()
    );
    let rebooted = wrapper(&bed, "rebooted", &script);
    if !Command::new(&rebooted).arg("--version").output_in_time().is_ok_and(|out| out.status.success()) {
        return skip("no right to mount in a namespace of its own");
    }
    let dir = bed.start(bed.spec(&["exit 0", "exec sleep 600", "exec sleep 600"], 1000));
    let ranks = [rank_process(&dir, 1), rank_process(&dir, 2)];
    until("the exit of rank 0", || dir.has(&exit_file(Rank(0))));
    kill_all_but_done(&dir, &ranks);
    assert_eq!(adopt(&rebooted, &dir).unwrap(), Adopted::Now);
    ended(&dir);
    assert_eq!(exit(&dir, 0).code, Some(0), "what was written down before it stays true");
    for rank in [1, 2] {
        let exit = exit(&dir, rank);
        assert!(exit.is_lost() && exit.shell_code() != 0 && !exit.stopped, "{exit:?}");
        assert_eq!(exit.describe(), "lost, the host was rebooted");
    }
    assert!(note(&dir, what::REBOOTED).unwrap().contains("rebooted"));
    assert_eq!(note(&dir, what::ADOPTED), None);
}

/// Like [`kill_all`] for a run of which a rank has ended.
fn kill_all_but_done(dir: &RunDir, ranks: &[Identity]) {
    let state = running(dir);
    until("the end of the first rank-wrap", || !state.wraps[&Rank(0)].alive());
    let wraps = || state.wraps.iter().filter(|(rank, _)| rank.0 > 0).map(|(_, wrap)| wrap);
    for wrap in wraps() {
        kill(wrap.pid, Signal::STOP);
    }
    let all = || std::iter::once(&state.supervisor).chain(wraps()).chain(ranks);
    for process in all() {
        kill(process.pid, Signal::KILL);
    }
    until("their death", || all().all(|process| !process.alive()));
}

#[test]
fn the_kernel_ends_what_nobody_can_find() {
    let bed = Bed::new();
    // Forgets its environment; its parents will be gone.
    let script = "(env -i setsid sh -c 'echo $$ > hidden; exec sleep 600' &); exec sleep 600";
    let dir = bed.start(bed.spec(&[script], 200));
    let rank = rank_process(&dir, 0);
    let hidden = pid_in(&bed.work("hidden"));
    let state = running(&dir);
    let Some(cgroup) = state.cgroup.clone() else {
        stop(hvtui(), &dir, true).unwrap();
        ended(&dir);
        return skip("no control group may be made here");
    };
    let members = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
    let has = |pid: u32| members.lines().any(|line| line == pid.to_string());
    assert!(has(rank.pid) && has(hidden), "{members}");
    let wrap = &state.wraps[&Rank(0)];
    assert!(!has(wrap.pid) && !has(state.supervisor.pid), "what must outlive the ranks is outside");
    kill_all(&dir, &[rank]);
    assert!(alive(hidden));
    assert_eq!(adopt(hvtui(), &dir).unwrap(), Adopted::Now);
    let end = ended(&dir);
    assert!(end.left.is_empty() && !alive(hidden));
    assert!(!cgroup.exists(), "the group is gone too");
}

/// What a small group may use, bytes: several times what a process of hvtui has of its own program
/// in memory (50 MB of a development build), or the kernel takes one of those for the greatest.
const LIMIT: u64 = 256 << 20;

/// A control group with that limit, until this is dropped.
struct Small(PathBuf);

impl Small {
    fn new() -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let first = own.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path.to_owned()));
        let name = format!("hvtui-test-{}", std::process::id());
        let (base, limit) = match first {
            Some(path) => (Path::new("/sys/fs/cgroup/memory").join(&path[1..]), "memory.limit_in_bytes"),
            None => (Path::new("/sys/fs/cgroup").join(own.trim().strip_prefix("0::/")?), "memory.max"),
        };
        let small = Self(base.join(name));
        std::fs::create_dir(&small.0).ok()?;
        std::fs::write(small.0.join(limit), LIMIT.to_string()).ok()?;
        for swap in ["memory.memsw.limit_in_bytes", "memory.swap.max"] {
            let _ = std::fs::write(small.0.join(swap), LIMIT.to_string());
        }
        Some(small)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn want_of_memory_is_named() {
    let Some(small) = Small::new() else {
        return skip("no control group with a limit of memory may be made here");
    };
    let bed = Bed::new();
    let script =
        format!("echo $$ > '{}/cgroup.procs' && exec '{}' \"$@\"", small.0.display(), hvtui().display());
    let limited = wrapper(&bed, "limited", &script);
    // `tail` keeps what it reads until the end of its input.
    let script = "mkfifo zeros; head -c 2G /dev/zero > zeros & exec tail -c 1G < zeros";
    let spec = bed.spec(&[script, "exec sleep 600"], 1000);
    let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(start(&limited, &dir, spec, hvtui::domain::late::Late::default(), Claims::default()))
        .unwrap();
    ended(&dir);
    let exit_0 = exit(&dir, 0);
    assert_eq!(exit_0.describe(), "killed by SIGKILL, out of memory (cgroup)");
    assert_eq!((exit(&dir, 1).stopped, exit(&dir, 1).cause), (true, None), "its peer was stopped");
}

#[test]
fn a_crash_is_named_by_its_signal() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["kill -SEGV $$"], 1000));
    ended(&dir);
    assert_eq!(exit(&dir, 0).describe(), "killed by SIGSEGV");
    assert_eq!(exit(&dir, 0).shell_code(), 139);
}

#[test]
fn what_even_kill_does_not_end_is_named_and_keeps_what_it_holds() {
    let bed = Bed::new();
    let Some(mut stuck) = StuckFile::new(&bed.work("stuck")) else {
        return skip("no file system of its own can be mounted here");
    };
    let dir = bed.start(bed.spec(&["exec cat stuck", "exec sleep 600"], 200));
    let rank = rank_process(&dir, 0);
    stuck.taken();
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    let end = ended(&dir);
    assert_eq!(Stat::read(rank.pid).unwrap().state, 'D');
    let [left] = &end.left[..] else { panic!("{end:?}") };
    assert!(left.starts_with(&format!("{} (cat) in state D", rank.pid)), "{left}");
    assert!(note(&dir, what::UNKILLABLE).unwrap().contains(left));
    assert_eq!(note(&dir, what::GONE), None, "it is not gone, and nobody says so");
    assert!(exit(&dir, 0).is_lost(), "{:?}", exit(&dir, 0));
    assert_eq!(exit(&dir, 0).describe(), "lost, KILL does not end it");
    assert!(exit(&dir, 1).stopped);
    let wrap = end.wraps[&Rank(0)].clone();
    assert!(wrap.alive(), "whoever holds the rank's GPU holds it as long as the rank lives");
    drop(stuck);
    until("the rank's end", || !rank.alive());
    until("its rank-wrap's end", || !wrap.alive());
    assert!(exit(&dir, 0).signal.is_some(), "the truth, once there is one");
}
