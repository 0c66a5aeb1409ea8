//! Supervisors that die, and those that take their place: real processes, killed for real.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::common::bed::{Bed, ended, exit, hvtui, rank_process, running, state, text};
use crate::common::cluster;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{alive, kill, pid_in, until, wait_for};
use hvtui::domain::engine::{Engine, Launcher, Program};
use hvtui::domain::ids::Rank;
use hvtui::domain::mpirun::{MpiHost, MpiPlan};
use hvtui::domain::note::{Note, what};
use hvtui::domain::run::HostRun;
use hvtui::procs::identity::Identity;
use hvtui::supervise::adopt::{Adopted, adopt, owner};
use hvtui::supervise::notes;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::state::{Phase, exit_file};
use hvtui::supervise::stop::{Stopped, stop};
use rustix::process::Signal;

/// A rank that waits until the file `go` is there, and then does this.
fn waits(then: &str) -> String {
    format!("while [ ! -e go ]; do sleep 0.01; done; {then}")
}

fn kill_supervisor(dir: &RunDir) -> Identity {
    let (_, supervisor) = owner(dir, &state(dir)).unwrap();
    kill(supervisor.pid, Signal::KILL);
    until("the supervisor's death", || !supervisor.alive());
    supervisor
}

/// Waits for the supervisor that took the place of the dead one.
fn adopter(dir: &RunDir, dead: &Identity) -> Identity {
    wait_for("a new supervisor", || {
        let supervisor = state(dir).supervisor;
        (supervisor != *dead && supervisor.alive()).then_some(supervisor)
    })
}

fn noted(dir: &RunDir) -> Vec<Note> {
    notes::Reader::default().news(dir).unwrap().into_iter().map(|(_, note)| note).collect()
}

fn kinds(dir: &RunDir) -> Vec<String> {
    noted(dir).into_iter().map(|note| note.what).collect()
}

#[test]
fn a_killed_supervisor_is_replaced_at_once_and_the_new_one_ends_the_peers_of_a_failing_rank() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&[&waits("exit 7"), "exec sleep 600", "exec sleep 600"], 60_000));
    let peers = [rank_process(&dir, 1), rank_process(&dir, 2)];
    let dead = kill_supervisor(&dir);
    let new = adopter(&dir, &dead);
    assert!(peers.iter().all(Identity::alive), "ranks go on without a supervisor");
    std::fs::write(bed.work("go"), "").unwrap();
    let end = ended(&dir);
    assert_eq!((end.supervisor, end.generation), (new, 1));
    assert_eq!((exit(&dir, 0).code, exit(&dir, 0).stopped), (Some(7), false));
    for rank in [1, 2] {
        assert_eq!((exit(&dir, rank).signal, exit(&dir, rank).stopped), (Some(15), true));
    }
    assert_eq!(bed.processes(), [0; 0]);
    assert_eq!(kinds(&dir), [what::SUPERVISOR_LOST, what::ADOPTED, what::GONE]);
}

#[test]
fn the_new_supervisor_is_watched_like_the_first_one() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&[&waits("exit 0"), &waits("exit 0")], 1000));
    rank_process(&dir, 0);
    rank_process(&dir, 1);
    let mut dead = BTreeSet::new();
    for _ in 0..3 {
        let killed = kill_supervisor(&dir);
        adopter(&dir, &killed);
        assert!(dead.insert(killed.pid), "each was another process");
    }
    std::fs::write(bed.work("go"), "").unwrap();
    let end = ended(&dir);
    assert_eq!(end.generation, 3);
    assert_eq!([exit(&dir, 0).code, exit(&dir, 1).code], [Some(0), Some(0)]);
}

#[test]
fn one_of_many_that_would_adopt_does() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&[&waits("exit 0"), &waits("exit 0")], 1000));
    rank_process(&dir, 0);
    rank_process(&dir, 1);
    // Halted, they can't start a supervisor of their own.
    let wraps: Vec<Identity> = running(&dir).wraps.into_values().collect();
    for wrap in &wraps {
        kill(wrap.pid, Signal::STOP);
    }
    kill_supervisor(&dir);
    let found: Vec<Adopted> = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..6).map(|_| scope.spawn(|| adopt(hvtui(), &dir).unwrap())).collect();
        tries.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(found.iter().filter(|found| **found == Adopted::Now).count(), 1, "{found:?}");
    for wrap in &wraps {
        kill(wrap.pid, Signal::CONT);
    }
    std::fs::write(bed.work("go"), "").unwrap();
    assert_eq!(ended(&dir).generation, 1);
    assert_eq!(adopt(hvtui(), &dir).unwrap(), Adopted::Needless, "it has ended");
}

#[test]
fn a_stop_reaches_the_whole_tree_through_the_new_supervisor() {
    let bed = Bed::new();
    // A daemon that forgets its environment and outlives its parents.
    let daemon = "trap '' TERM; (setsid env -i sh -c 'echo $$ > daemon; exec sleep 600' &); sleep 600";
    let dir = bed.start(bed.spec(&[daemon, daemon], 200));
    rank_process(&dir, 1);
    let daemon = pid_in(&bed.work("daemon"));
    kill_supervisor(&dir);
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    let end = ended(&dir);
    assert!(end.left.is_empty());
    assert!(!alive(daemon));
    assert_eq!(bed.processes(), [0; 0]);
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 0).stopped), (Some(9), true));
    let gone = noted(&dir).pop().unwrap();
    assert_eq!(gone.what, what::GONE);
    assert!(gone.count >= 4, "{gone:?}");
    assert_eq!(stop(hvtui(), &dir, true).unwrap(), Stopped::NothingLeft);
}

#[test]
fn a_stop_that_was_under_way_goes_on() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["trap '' TERM; echo $$ > self; while :; do sleep 0.05; done"], 4000));
    let rank = pid_in(&bed.work("self"));
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    until("the mark", || state(&dir).phase == Phase::Stopping);
    kill_supervisor(&dir);
    ended(&dir);
    assert!(!alive(rank));
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 0).stopped), (Some(9), true));
}

#[test]
fn a_rank_that_dies_with_its_supervisor_is_told_by_its_exit_file() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["exec sleep 600", "exec sleep 600"], 1000));
    let ranks = [rank_process(&dir, 0), rank_process(&dir, 1)];
    let supervisor = state(&dir).supervisor;
    kill(supervisor.pid, Signal::KILL);
    kill(ranks[0].pid, Signal::KILL);
    ended(&dir);
    assert_eq!((exit(&dir, 0).signal, exit(&dir, 0).stopped), (Some(9), false));
    assert_eq!((exit(&dir, 1).signal, exit(&dir, 1).stopped), (Some(15), true));
}

#[test]
fn a_rank_that_dies_with_all_that_watched_it_is_lost_and_no_success() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["exec sleep 600"], 1000));
    let rank = rank_process(&dir, 0);
    let state = running(&dir);
    let wrap = &state.wraps[&Rank(0)];
    kill(wrap.pid, Signal::STOP);
    for process in [&state.supervisor, wrap, &rank] {
        kill(process.pid, Signal::KILL);
    }
    until("their death", || [&state.supervisor, wrap, &rank].iter().all(|process| !process.alive()));
    assert!(!dir.has(&exit_file(Rank(0))));
    assert_eq!(adopt(hvtui(), &dir).unwrap(), Adopted::Now);
    ended(&dir);
    let exit = exit(&dir, 0);
    assert!(exit.is_lost() && exit.shell_code() != 0 && !exit.stopped, "{exit:?}");
    assert_eq!(exit.describe(), "lost, hvtui's process beside it (rank-wrap) was killed");
}

#[test]
fn a_rank_without_its_rank_wrap_is_ended_by_the_new_supervisor() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&["sleep 600 & echo $! > child; wait"], 1000));
    let rank = rank_process(&dir, 0);
    let child = pid_in(&bed.work("child"));
    let state = running(&dir);
    kill(state.wraps[&Rank(0)].pid, Signal::STOP);
    kill(state.supervisor.pid, Signal::KILL);
    kill(state.wraps[&Rank(0)].pid, Signal::KILL);
    until("the supervisor's death", || !state.supervisor.alive());
    assert_eq!(adopt(hvtui(), &dir).unwrap(), Adopted::Now);
    ended(&dir);
    assert!(!rank.alive() && !alive(child));
    assert!(exit(&dir, 0).is_lost());
}

#[test]
fn what_a_supervisor_may_know_does_not_reach_the_one_that_adopts() {
    let bed = Bed::new();
    let dir = bed.start(bed.spec(&[&waits("exit 0")], 1000));
    rank_process(&dir, 0);
    let dead = kill_supervisor(&dir);
    let new = adopter(&dir, &dead);
    let environment = std::fs::read(format!("/proc/{}/environ", new.pid)).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(!environment.contains("canary") && !environment.contains("HVTUI_"), "{environment}");
    let parent = hvtui::procs::identity::Stat::read(new.pid).unwrap().parent;
    assert!(state(&dir).wraps.values().all(|wrap| wrap.pid != parent), "it is no child of a rank-wrap");
    std::fs::write(bed.work("go"), "").unwrap();
    ended(&dir);
    assert!(text(&dir, "supervisor.log").contains("a new supervisor"));
}

/// The spec with mpirun as the one that starts its ranks; `None`, after saying why, where there is none.
fn by_mpirun(mut spec: HostRun) -> Option<HostRun> {
    if Command::new("mpirun").arg("--version").output_in_time().is_err() {
        cluster::skip("no mpirun: apt-get install openmpi-bin");
        return None;
    }
    let slots = spec.ranks.len() as u32;
    let hosts = vec![MpiHost { address: "127.0.0.1".to_owned(), slots }];
    let plan = MpiPlan {
        program: "mpirun".to_owned(),
        world: slots,
        hosts,
        interface: None,
        options: Vec::new(),
        before: Vec::new(),
        line: Vec::new(),
    };
    let launcher = Launcher {
        program: Program::Mpi(plan),
        env: BTreeMap::new(),
        cwd: None,
        nodes: Vec::new(),
        tags: None,
        name: String::new(),
        elsewhere: BTreeMap::new(),
    };
    spec.engine = Some(Engine::Launcher(launcher));
    Some(spec)
}

#[test]
fn ranks_of_mpirun_go_on_without_a_supervisor_and_the_new_one_ends_the_peers_of_a_failing_one() {
    for (then, code) in [("exit 7", 7), ("exit 0", 0)] {
        let bed = Bed::new();
        let peer = if code == 0 { waits("exit 0") } else { "exec sleep 600".to_owned() };
        let Some(spec) = by_mpirun(bed.spec(&[&waits(then), &peer], 60_000)) else { return };
        let dir = bed.start(spec);
        let ranks = [rank_process(&dir, 0), rank_process(&dir, 1)];
        let new = adopter(&dir, &kill_supervisor(&dir));
        assert!(ranks.iter().all(Identity::alive), "ranks go on without a supervisor");
        std::fs::write(bed.work("go"), "").unwrap();
        let end = ended(&dir);
        assert_eq!((end.supervisor, end.generation, end.left.len()), (new, 1, 0));
        assert_eq!((exit(&dir, 0).code, exit(&dir, 0).stopped), (Some(code), false));
        assert_eq!(exit(&dir, 1).stopped, code != 0);
        assert_eq!(bed.processes(), [0; 0]);
    }
}

#[test]
fn the_new_supervisor_learns_that_mpirun_was_killed() {
    let bed = Bed::new();
    let Some(spec) = by_mpirun(bed.spec(&["exec sleep 600", "exec sleep 600"], 60_000)) else { return };
    let dir = bed.start(spec);
    rank_process(&dir, 0);
    rank_process(&dir, 1);
    adopter(&dir, &kill_supervisor(&dir));
    let all = hvtui::procs::table::all();
    let mpirun =
        all.iter().find(|process| process.stat.name == "mpirun" && bed.processes().contains(&process.pid));
    assert!(mpirun.unwrap().signal(Signal::KILL));
    ended(&dir);
    for rank in 0..2 {
        assert_eq!(exit(&dir, rank).describe(), "killed by SIGTERM, mpirun was killed by SIGKILL");
    }
    assert_eq!(bed.processes(), [0; 0]);
}
