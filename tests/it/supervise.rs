//! Real supervisors, rank-wraps and ranks, started with the real binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::bed;
use crate::common::bed::{Bed, ended, exit, hvtui, launch, rank_process, running, state, text};
use crate::common::processes::{alive, kill, pid_in, until};
use hvtui::domain::ids::Rank;
use hvtui::domain::log::Stream;
use hvtui::domain::redaction::MASK;
use hvtui::procs::identity::{Identity, Stat};
use hvtui::supervise::lease::Claims;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::secrets::Hidden;
use hvtui::supervise::start::{Started as Start, start_by};
use hvtui::supervise::stop::{Stopped, stop};
use rustix::process::Signal;

#[test]
fn ranks_run_apart_from_whoever_started_them_and_leave_the_truth_on_disk() {
    let bed = Bed::new();
    let wait = "while [ ! -e go ]; do sleep 0.01; done;";
    let script = format!(
        "echo out-$RANK; echo err-$RANK >&2; echo '{{}}' >> \"$HVTUI_REPORT\"; [ -z \"$HVTUI_SECRET\" ] || {wait} pwd"
    );
    let dir = bed.start(bed.spec(&[&script, &script], 1000));
    let supervisor = state(&dir).supervisor;
    let stat = Stat::read(supervisor.pid).unwrap();
    assert_ne!(stat.parent, std::process::id());
    assert_eq!(stat.session, supervisor.pid);
    let ours: Vec<PathBuf> = descriptors(std::process::id()).into_iter().filter(|d| is_pipe(d)).collect();
    for descriptor in descriptors(supervisor.pid) {
        assert!(!ours.contains(&descriptor), "shared: {}", descriptor.display());
    }
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", supervisor.pid)).unwrap(), Path::new("/"));
    let ranks = [rank_process(&dir, 0), rank_process(&dir, 1)];
    assert!(ranks.iter().all(Identity::alive));
    assert!(Stat::read(ranks[0].pid).unwrap().session != supervisor.pid);
    std::fs::write(bed.work("go"), "").unwrap();
    let end = ended(&dir);
    assert!(end.left.is_empty());
    for rank in 0..2 {
        let work = bed.home.path().join("work").canonicalize().unwrap();
        assert_eq!(text(&dir, &format!("rank-{rank}.out")), format!("out-{rank}\n{}\n", work.display()));
        assert_eq!(text(&dir, &format!("rank-{rank}.err")), format!("err-{rank}\n"));
        assert_eq!(text(&dir, &format!("rank-{rank}.report")), "{}\n");
        assert_eq!((exit(&dir, rank).code, exit(&dir, rank).stopped), (Some(0), false));
    }
    assert_eq!(bed.processes(), [0; 0]);
}

fn descriptors(pid: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

fn is_pipe(descriptor: &Path) -> bool {
    let name = descriptor.to_string_lossy();
    name.starts_with("pipe:") || name.starts_with("socket:")
}

#[test]
fn the_secret_reaches_the_rank_and_no_file() {
    let bed = Bed::new();
    let script = "printf %s \"$HVTUI_SECRET\" > seen; env | grep -c ^HVTUI_SECRET= > count";
    let dir = bed.start(bed.spec(&[script], 1000));
    ended(&dir);
    assert_eq!(std::fs::read_to_string(bed.work("seen")).unwrap(), "canary-5f1c");
    assert_eq!(std::fs::read_to_string(bed.work("count")).unwrap(), "1\n");
    let mut todo = vec![bed.state_dir()];
    let mut files = 0;
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(6).any(|window| window == b"canary"), "{}", path.display());
            files += 1;
        }
    }
    assert!(files >= 6, "{files} files");
}

#[test]
fn a_failing_rank_ends_its_peers() {
    let bed = Bed::new();
    let dir =
        bed.start(bed.spec(&["exec sleep 600", "while [ ! -e go ]; do sleep 0.01; done; exit 3"], 60_000));
    let peer = rank_process(&dir, 0);
    std::fs::write(bed.work("go"), "").unwrap();
    ended(&dir);
    assert_eq!((exit(&dir, 1).code, exit(&dir, 1).stopped), (Some(3), false));
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 0).stopped), (Some(15), true));
    assert!(!peer.alive());
    assert!(text(&dir, "supervisor.log").contains("rank 1 failed: exit 3"));
}

#[test]
fn a_killed_rank_is_told_from_one_that_exits() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["exec sleep 600", "exec sleep 600"], 60_000));
    assert!(rank_process(&dir, 1).signal(Signal::KILL).unwrap());
    ended(&dir);
    assert_eq!((exit(&dir, 1).signal, exit(&dir, 1).stopped), (Some(9), false));
    assert_eq!(exit(&dir, 1).shell_code(), 137);
    assert!(exit(&dir, 0).stopped);
}

#[test]
fn nothing_escapes_a_stop() {
    let bed = Bed::new();
    // Ignores TERM; has a child in its own session, and one whose parent has ended.
    let script = "trap '' TERM; setsid sh -c 'echo $$ > own; exec sleep 600' & \
                  (sh -c 'echo $$ > orphan; exec setsid sleep 600' &) ; echo $$ > self; sleep 600";
    let dir = bed.start(bed.spec(&[script], 300));
    let pids = ["own", "orphan", "self"].map(|file| pid_in(&bed.work(file)));
    assert!(pids.iter().all(|pid| alive(*pid)));
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    let end = ended(&dir);
    assert!(end.left.is_empty());
    assert!(!pids.iter().any(|pid| alive(*pid)));
    assert_eq!(bed.processes(), [0; 0]);
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 0).stopped), (Some(9), true));
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::NothingLeft);
}

#[test]
fn a_rank_that_is_halted_can_obey_a_stop() {
    let bed = Bed::new();
    let script = "trap 'exit 7' TERM; echo $$ > self; kill -STOP $$; while :; do sleep 0.01; done";
    // the grace is longer than the wait for the end: what is not woken fails here
    let dir = bed.start(bed.spec(&[script], 600_000));
    let pid = pid_in(&bed.work("self"));
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    until("the rank is halted", || state().rsplit_once(')').unwrap().1.starts_with(" T"));
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    ended(&dir);
    assert_eq!((exit(&dir, 0).code, exit(&dir, 0).stopped), (Some(7), true));
}

#[test]
fn what_outlives_a_successful_rank_is_ended_too() {
    let bed = Bed::new();
    let script = "(setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 0.05; done' &); \
                  while [ ! -e daemon ]; do sleep 0.01; done";
    let dir = bed.start(bed.spec(&[script], 200));
    ended(&dir);
    assert!(!alive(pid_in(&bed.work("daemon"))));
    assert_eq!((exit(&dir, 0).code, exit(&dir, 0).stopped), (Some(0), false));
    assert_eq!(bed.processes(), [0; 0]);
}

#[test]
fn a_stop_lets_ranks_finish_and_a_stop_now_does_not() {
    let script = "trap 'echo saved; exit 0' TERM; echo $$ > self; while :; do sleep 0.01; done";
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&[script], 60_000));
    pid_in(&bed.work("self"));
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    ended(&dir);
    assert_eq!(text(&dir, "rank-0.out"), "saved\n");
    assert_eq!((exit(&dir, 0).code, exit(&dir, 0).stopped), (Some(0), true));

    let bed = Bed::new();
    let dir = bed.start(bed.spec(&[script], 60_000));
    pid_in(&bed.work("self"));
    assert_eq!(stop(hvtui(), &dir, true).unwrap(), Stopped::Told);
    ended(&dir);
    assert_eq!(text(&dir, "rank-0.out"), "");
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 0).stopped), (Some(9), true));
}

#[test]
fn a_rank_that_failed_before_the_stop_was_not_stopped() {
    let bed = Bed::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exit 3";
    let dir = bed.start(bed.spec(&[script, "exec sleep 600"], 60_000));
    let (rank, other) = (rank_process(&dir, 0), rank_process(&dir, 1));
    let wrap = running(&dir).wraps.remove(&Rank(0)).unwrap();
    kill(wrap.pid, Signal::STOP);
    std::fs::write(bed.work("go"), "").unwrap();
    until("the end of the rank", || !rank.alive());
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    until("the end of the other rank", || !other.alive());
    kill(wrap.pid, Signal::CONT);
    ended(&dir);
    assert_eq!((exit(&dir, 0).code, exit(&dir, 0).stopped), (Some(3), false));
    assert_eq!((exit(&dir, 1).signal, exit(&dir, 1).stopped), (Some(15), true));
}

#[test]
fn a_rank_that_kills_its_process_group_still_has_an_exit() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["kill -9 0"], 1000));
    ended(&dir);
    assert_eq!(exit(&dir, 0).signal, Some(9));
}

#[test]
fn a_killed_rank_wrap_takes_its_rank_with_it() {
    let bed = Bed::new();
    // it ignores TERM, and the grace is longer than the wait for the end: it must be killed at once
    let script = "trap '' TERM; sleep 600 & echo $! > child; wait";
    let dir = bed.start(bed.spec(&[script, "exec sleep 600"], 600_000));
    let rank = rank_process(&dir, 0);
    let child = pid_in(&bed.work("child"));
    let wrap = running(&dir).wraps.remove(&Rank(0)).unwrap();
    assert_eq!(Stat::read(rank.pid).unwrap().parent, wrap.pid);
    kill(wrap.pid, Signal::TERM);
    kill(wrap.pid, Signal::HUP);
    assert!(rank.alive() && wrap.alive());
    kill(wrap.pid, Signal::KILL);
    ended(&dir);
    assert!(!rank.alive() && !alive(child));
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 0).stopped), (Some(9), false));
    assert!(exit(&dir, 1).stopped);
}

#[test]
fn a_program_that_cannot_run_is_an_exit_with_a_reason() {
    let bed = Bed::new();
    std::fs::write(bed.work("no-interpreter"), "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bed.work("no-interpreter"), mode).unwrap();
    let mut spec = bed.spec(&["", "", ""], 1000);
    spec.ranks[0].argv = vec!["/x/y".to_owned()];
    spec.ranks[1].argv = vec!["./no-interpreter".to_owned()];
    spec.ranks[2].cwd = Some("/no/such/folder".to_owned());
    let dir = bed.start(spec);
    ended(&dir);
    assert_eq!(exit(&dir, 0).code, Some(127));
    assert_eq!(exit(&dir, 0).error.unwrap(), "exec /x/y: no such file or directory");
    assert_eq!(exit(&dir, 1).code, Some(126));
    let error = exit(&dir, 1).error.unwrap();
    let lacking = "no-interpreter: its interpreter /no/such/interpreter is not there: install it there, or name another";
    assert!(error.contains(lacking), "{error}");
    let error = exit(&dir, 2).error.unwrap();
    assert_eq!(error, "working directory /no/such/folder: no such file or directory");
}

#[test]
fn a_run_starts_once_however_often_it_is_asked_for() {
    let bed = Bed::new();
    let spec = bed.spec(&["echo started >> count; exec sleep 600"], 1000);
    let answers: Vec<Start> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
                    launch(&dir, spec.clone(), BTreeMap::new()).unwrap()
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| **answer == Start::Now).count(), 1, "{answers:?}");
    let dir = RunDir::find(&bed.state_dir(), &bed.run, &bed.host).unwrap().unwrap();
    let count = || std::fs::read_to_string(bed.work("count")).unwrap_or_default();
    until("the rank's line", || count().ends_with('\n'));
    stop(hvtui(), &dir, true).unwrap();
    ended(&dir);
    assert_eq!(launch(&dir, spec, BTreeMap::new()).unwrap(), Start::Before);
    assert_eq!(count(), "started\n");
}

#[test]
fn a_start_that_fails_says_why_and_can_be_tried_again() {
    let bed = Bed::new();
    let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
    // Where the spec belongs there is a directory.
    std::fs::create_dir(dir.path().join("spec.json")).unwrap();
    let error = launch(&dir, bed.spec(&["true"], 1000), BTreeMap::new()).unwrap_err().to_string();
    assert!(error.starts_with("supervisor did not start: rename ") && error.contains("directory"), "{error}");
    std::fs::remove_dir(dir.path().join("spec.json")).unwrap();
    assert_eq!(launch(&dir, bed.spec(&["true"], 1000), BTreeMap::new()).unwrap(), Start::Now);
    ended(&dir);
    assert_eq!(exit(&dir, 0).code, Some(0));
}

/// A `systemd-run` for tests: writes down its words and the variables that it got, and becomes what it was told to
/// start, as the real one does with `--scope`.
fn manager(bed: &Bed, script: &str) -> PathBuf {
    let path = bed.work("systemd-run");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn start_through(bed: &Bed, manager: &Path, script: &str) -> (RunDir, Start) {
    let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
    let secret = BTreeMap::from([("HVTUI_SECRET".to_owned(), "canary-5f1c".to_owned())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exe = Path::new(crate::common::program::hvtui());
    let spec = bed.spec(&[script], 1000);
    let started = runtime
        .block_on(start_by(Some(manager), exe, &dir, spec, bed::secrets(secret), Claims::default()))
        .unwrap();
    (dir, started)
}

#[test]
fn where_a_logout_would_end_a_run_the_users_service_manager_takes_it_in() {
    let bed = Bed::new();
    let record = format!(
        "(echo \"$@\"; env) > {}; while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"",
        bed.work("asked").display()
    );
    let (dir, started) = start_through(&bed, &manager(&bed, &record), "exit 0");
    assert_eq!(started, Start::Now);
    ended(&dir);
    assert_eq!(exit(&dir, 0).code, Some(0));
    let asked = std::fs::read_to_string(bed.work("asked")).unwrap();
    let words = asked.lines().next().unwrap();
    let begin = format!("--user --scope --quiet --collect --unit=hvtui-{}-", bed.run);
    let end = format!(" -- {} supervise --dir {}", crate::common::program::hvtui(), dir.path().display());
    assert!(words.starts_with(&begin) && words.ends_with(&end), "{words}");
    assert!(!asked.contains("canary"), "{asked}");
}

#[test]
fn a_service_manager_that_fails_costs_no_run() {
    for script in ["echo Failed to connect to bus >&2; exit 1", "exit 0", "kill -9 $$"] {
        let bed = Bed::new();
        let (dir, started) = start_through(&bed, &manager(&bed, script), "exit 3");
        assert_eq!(started, Start::Now, "{script}");
        ended(&dir);
        assert_eq!(exit(&dir, 0).code, Some(3));
    }
    let bed = Bed::new();
    let (dir, _) = start_through(&bed, &bed.work("none"), "exit 3");
    ended(&dir);
    assert_eq!(exit(&dir, 0).code, Some(3));
}

#[test]
fn where_a_rank_printed_a_secret_is_known_however_it_ends() {
    let value = "hunter2-hunter2";
    for script in ["echo a $TOKEN", "echo a $TOKEN; kill -9 $PPID; sleep 600"] {
        let bed = Bed::new();
        let mut spec = bed.spec(&[script], 1000);
        spec.ranks[0].env.insert("TOKEN".to_owned(), MASK.to_owned());
        let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
        let secret = BTreeMap::from([("TOKEN".to_owned(), value.to_owned())]);
        assert_eq!(launch(&dir, spec, secret).unwrap(), Start::Now);
        ended(&dir);
        assert_eq!(text(&dir, "rank-0.out"), format!("a {value}\n"), "the rank's own file is left as it is");
        let hidden = Hidden::read(&dir, Rank(0)).unwrap().expect("it is written down");
        assert_eq!(hidden.within(Stream::Stdout, 0, 100).collect::<Vec<_>>(), [(2, 17)], "{script}");
    }
}
