//! Rows 27 to 35: what becomes of a run when its agent, its ranks or its processes end in every way.

use std::time::Instant;

use hvtui::clock::now;
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::time::Stamp;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::rig::{Job, Rig};

pub(crate) fn agent_killed(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    let since = now();
    rig.kill_agents("n1");
    notes.took("a new agent answers", job.up_after("n1", since), 3.0);
    job.hear(20);
    job.enough();
    let code = job.wait();
    exits_agree(&job, code, 0, &[Ends::Exit(0); 2]);
    no_byte_lost(&job);
    nothing_left(&rig, &job.run());
    Some(())
}

/// When the client learnt of a rank's last line, and of its exit.
fn last_line_and_exit(job: &Job<'_>, rank: u32) -> (Stamp, Stamp) {
    let events = job.events();
    let of = |origin: &Origin| matches!(origin, Origin::Rank(_, of) if *of == Rank(rank));
    let line = events.iter().rfind(|e| of(&e.origin) && matches!(e.event, Event::LogPrinted { .. }));
    let exit = events.iter().find(|e| of(&e.origin) && matches!(e.event, Event::RankExited { .. }));
    (line.expect("a line").at, exit.expect("an exit").at)
}

/// Rank 1 of four ends by itself; the others are stopped because of it.
fn rank_one_ends(notes: &mut Notes, what: &str, code: i32, end: Ends, words: &[&str]) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    person.write("hosts.toml", &rig.cluster.hosts_toml(2));
    let mut job = rig.start(&person, 2, &["--lines", "100000", "--at", &format!("1:60:{what}")]);
    let told = job.wait();
    exits_agree(&job, told, code, &[Ends::Stopped, end, Ends::Stopped, Ends::Stopped]);
    for word in words {
        assert!(job.said().contains(word), "'{word}' is not said: {}", job.said());
    }
    no_byte_lost(&job);
    nothing_left(&rig, &job.run());
    let (line, exit) = last_line_and_exit(&job, 1);
    notes.took(&format!("{what}: told"), exit.micros_since(line) as f64 / 1e6, 1.0);
    for other in [0, 2, 3] {
        let (_, ended) = last_line_and_exit(&job, other);
        notes.took(&format!("{what}: rank {other} stopped"), ended.micros_since(exit) as f64 / 1e6, 5.0);
    }
    Some(())
}

pub(crate) fn rank_exits(notes: &mut Notes) -> Option<()> {
    rank_one_ends(notes, "exit3", 3, Ends::Exit(3), &["rank 1", "exit 3"])
}

pub(crate) fn rank_crashes(notes: &mut Notes) -> Option<()> {
    rank_one_ends(notes, "kill11", 139, Ends::Signal(11), &["rank 1", "SIGSEGV"])
}

pub(crate) fn deaf_rank(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--lines", "100000", "--deaf", "--daemon"]);
    job.hear(20);
    let run = job.run();
    let started = Instant::now();
    let stopped = person.run(&["stop", &run]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    let told = job.wait();
    nothing_left(&rig, &run);
    // five seconds of grace are the default
    notes.took("the whole tree is gone", started.elapsed().as_secs_f64(), 7.0);
    exits_agree(&job, told, 130, &[Ends::Stopped; 2]);
    no_byte_lost(&job);
    Some(())
}

pub(crate) fn pid_reused(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--lines", "100000"]);
    job.hear(20);
    let run = job.run();
    job.kill_client();
    let all = rig.cluster.processes("n1");
    let of_run: Vec<u32> = all.iter().filter(|one| one.is_of(&run)).map(|one| one.pid).collect();
    assert!(of_run.len() >= 4, "supervisor, sample-host, rank-wrap, rank: {of_run:?}");
    let list: Vec<String> = of_run.iter().map(ToString::to_string).collect();
    rig.cluster.on("n1", &format!("kill -9 {}", list.join(" ")));
    rig.cluster.until_free("n1", &run);
    // Strangers get the very pids that the run's files name. One shell for all: each would take a pid itself.
    let line = format!(
        "for p in {}; do echo $((p - 1)) >/proc/sys/kernel/ns_last_pid; sleep 600 >/dev/null 2>&1 & echo $!; done",
        list.join(" ")
    );
    let strangers = rig.cluster.on("n1", &line);
    assert_eq!(strangers.split_whitespace().collect::<Vec<_>>(), list, "the strangers' pids");
    let stopped = person.run(&["stop", &run]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    nothing_left(&rig, &run);
    let alive = rig.cluster.processes("n1");
    for pid in &of_run {
        let stranger = alive.iter().any(|one| one.pid == *pid && one.name == "sleep");
        assert!(stranger, "stranger {pid} was killed: {alive:#?}");
    }
    notes.say(&format!("{} strangers untouched", of_run.len()));
    Some(())
}
