//! Processes that can't be read: in state D, with the lock of their memory map held, as where a file server has gone away.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use hvtui::domain::gpu::Reading;
use hvtui::domain::ids::Rank;
use hvtui::procs::identity::{Identity, Stat};
use hvtui::supervise::stop::{Stopped, stop, sweep};
use hvtui::telemetry;
use rustix::process::Signal;

use crate::common::bed::{Bed, ended, exit, hvtui, rank_process, state};
use crate::common::cluster::skip;
use crate::common::processes::{alive, end_of, pid_in, until, wait_for, waited_for_processors};

/// One at a time: all of them look at every process of the machine.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn program() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/procs/stuck_in_munmap.py").to_owned()
}

fn hangs(pid: u32) -> bool {
    Stat::read(pid).is_ok_and(|stat| stat.state == 'D')
}

/// A process that hangs until this is dropped.
struct Stuck {
    process: Child,
    pid: u32,
    daemon: Identity,
    _place: tempfile::TempDir,
}

impl Stuck {
    /// `None` where none can be made: no right to mount, no python3.
    fn new() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("python3");
        command.arg(program()).arg(place.path().join("file")).arg("30").stdout(Stdio::piped());
        let mut process = command.spawn().ok()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take()?).read_line(&mut line).unwrap();
        let Some((pid, daemon)) = pids(&line) else {
            let _ = process.wait();
            skip("no right to mount");
            return None;
        };
        until("the process to hang", || hangs(pid));
        Some(Self { process, pid, daemon: Identity::of(daemon).unwrap(), _place: place })
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.daemon.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}

fn pids(line: &str) -> Option<(u32, u32)> {
    let (one, other) = line.trim().split_once(' ')?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

/// Threads of this process that hang in the kernel over the memory of another one.
fn hanging_readers() -> usize {
    let tasks: Vec<PathBuf> =
        std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()).collect();
    let stats = tasks.iter().filter_map(|task| std::fs::read_to_string(task.join("stat")).ok());
    stats.filter(|stat| stat.contains("(proc-reader) D")).count()
}

#[test]
fn the_command_of_a_process_that_cannot_be_read_is_unknown_and_costs_one_reader() {
    let _alone = alone();
    let Some(stuck) = Stuck::new() else { return };
    for _ in 0..5 {
        let (user, command) = telemetry::identify(stuck.pid);
        let error = match command {
            Reading::Failed { error } => error,
            other => panic!("{other:?}, and it hangs: {}", hangs(stuck.pid)),
        };
        assert!(error.contains(&format!("process {}", stuck.pid)), "{error}");
        assert!(error.contains("hangs in the kernel"), "{error}");
        assert!(matches!(user, Reading::Value(_)), "{user:?}");
    }
    assert!(hangs(stuck.pid));
    until("one reader to hang", || hanging_readers() == 1);
    let all = hvtui::procs::table::all();
    assert!(all.iter().any(|process| process.pid == stuck.pid), "the table has it");
    assert_eq!(hvtui::procs::marks::run_of(stuck.pid), None);
    drop(stuck);
    until("its reader to be let go", || hanging_readers() == 0);
}

#[test]
fn many_processes_that_cannot_be_read_are_waited_for_together() {
    const MANY: usize = 8;
    let _alone = alone();
    let stuck: Vec<Stuck> = (0..MANY).map_while(|_| Stuck::new()).collect();
    if stuck.len() < MANY {
        return;
    }
    let processes = hvtui::procs::table::all();
    let (start, waited) = (hvtui::clock::host_now(), waited_for_processors());
    let marked = hvtui::procs::marks::of_runs(processes);
    let took_us = hvtui::clock::host_now().0 - start.0;
    let without_us = took_us.saturating_sub(waited_for_processors() - waited);
    assert!(!marked.iter().any(|(process, _)| stuck.iter().any(|one| one.pid == process.pid)));
    until("each to be asked once", || hanging_readers() == MANY);
    // a second for the first and a second for all others; one after the other they are eight
    assert!(took_us >= 1_000_000 && without_us < 6_000_000, "{took_us} us, {without_us} us with a processor");
    drop(stuck);
    until("their readers to be let go", || hanging_readers() == 0);
}

#[test]
fn a_rank_that_cannot_be_read_is_no_obstacle_to_a_new_supervisor_or_a_stop() {
    let _alone = alone();
    let bed = Bed::new();
    let script = format!("exec python3 {} file 30 > pids", program());
    let dir = bed.start(bed.spec(&["exec sleep 600", &script], 1000));
    let line = wait_for("the rank's words", || {
        std::fs::read_to_string(bed.work("pids")).ok().filter(|text| text.ends_with('\n'))
    });
    let Some((stuck, _)) = pids(&line) else { return skip("no right to mount") };
    until("the rank to hang", || hangs(stuck));
    let peer = rank_process(&dir, 0);
    let first = state(&dir).supervisor;
    assert!(first.signal(Signal::KILL).unwrap());
    until("a new supervisor", || state(&dir).generation > 0);
    assert!(hangs(stuck), "the new supervisor has waited for a process that hangs");
    assert!(peer.alive());
    assert_eq!(stop(hvtui(), &dir, true).unwrap(), Stopped::Told);
    // its file server is of the run, too: it ends, and with it the wait
    let end = ended(&dir);
    assert_eq!(end.left, [""; 0]);
    assert!(!peer.alive() && !alive(stuck));
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 1).signal), (Some(9), Some(9)));
}

/// A process that only has the marks of a run: a shell of someone who looks into it.
#[test]
fn of_a_run_with_a_control_group_the_group_tells_who_belongs_to_it() {
    let _alone = alone();
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["sh -c 'exec setsid sleep 600' & exec sleep 600"], 1000));
    let rank = rank_process(&dir, 0);
    let Some(cgroup) = state(&dir).cgroup else {
        stop(hvtui(), &dir, true).unwrap();
        ended(&dir);
        return skip("no control group may be made here");
    };
    let count = || std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().lines().count();
    until("the rank and its child", || count() == 2);
    let mut stranger = Command::new("sleep");
    stranger.arg("600").env("HVTUI_RUN", bed.run.as_str()).env("HVTUI_HOST", bed.host.as_str());
    let mut stranger = stranger.spawn().unwrap();
    assert!(state(&dir).supervisor.signal(Signal::KILL).unwrap());
    until("a new supervisor", || state(&dir).generation > 0);
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    let end = ended(&dir);
    assert_eq!(end.left, [""; 0]);
    assert!(!rank.alive() && !cgroup.exists());
    assert!(stranger.try_wait().unwrap().is_none(), "it was none of the run");
    stranger.kill().unwrap();
    end_of(&mut stranger);
}

#[test]
fn without_a_supervisor_or_one_to_come_the_group_is_ended_as_a_whole() {
    let _alone = alone();
    let bed = Bed::new();
    // Forgets its environment, and its parents end.
    let script = "(env -i setsid sh -c 'echo $$ > hidden; exec sleep 600' &); exec sleep 600";
    let dir = bed.start(bed.spec(&[script], 200));
    let hidden = pid_in(&bed.work("hidden"));
    let rank = rank_process(&dir, 0);
    let before = state(&dir);
    let Some(cgroup) = before.cgroup.clone() else {
        stop(hvtui(), &dir, true).unwrap();
        ended(&dir);
        return skip("no control group may be made here");
    };
    // the rank-wrap first: it would start a new one
    let wrap = &before.wraps[&Rank(0)];
    assert!(wrap.signal(Signal::STOP).unwrap() && before.supervisor.signal(Signal::KILL).unwrap());
    assert!(wrap.signal(Signal::KILL).unwrap());
    until("their end", || !before.supervisor.alive() && !wrap.alive());
    assert_eq!(sweep(&dir, &before, true).unwrap(), Stopped::Swept);
    assert!(!rank.alive() && !alive(hidden) && !cgroup.exists());
}
