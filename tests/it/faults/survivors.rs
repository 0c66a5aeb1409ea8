//! Rows 28, 29, 34 and 39: supervisors and whole hosts end, and a client attaches to the run again; what held a GPU ends.

use std::time::Instant;

use hvtui::clock::now;
use hvtui::domain::event::{Envelope, Event};
use hvtui::domain::ids::Rank;
use hvtui::domain::note::what;
use hvtui::domain::time::Stamp;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left, spool};
use super::matrix::Notes;
use super::rig::{Job, Rig, until, until_some};
use crate::common::{built, left};

/// A file of the run on a host.
fn json(rig: &Rig, host: &str, run: &str, file: &str) -> serde_json::Value {
    let text = std::fs::read(spool(rig, host, run).join(file)).expect(file);
    serde_json::from_slice(&text).expect("JSON")
}

/// When the client learnt of a note of this kind after `since`: seconds.
fn noted(job: &Job<'_>, kind: &str, since: Stamp) -> f64 {
    let of =
        |e: &Envelope| matches!(&e.event, Event::RunNoted { note, .. } if note.what == kind) && e.at >= since;
    let at = until_some(&format!("the note {kind}"), || job.events().into_iter().find(of));
    at.at.micros_since(since) as f64 / 1e6
}

pub(crate) fn supervisor_killed(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    let run = job.run();
    let since = now();
    rig.cluster.kill_supervisor("n1", &run);
    notes.took("lost is told", noted(&job, what::SUPERVISOR_LOST, since), 5.0);
    notes.took("adopted is told", noted(&job, what::ADOPTED, since), 5.0);
    job.hear(20);
    job.enough();
    let code = job.wait();
    exits_agree(&job, code, 0, &[Ends::Exit(0); 2]);
    no_byte_lost(&job);
    nothing_left(&rig, &run);
    Some(())
}

pub(crate) fn supervisor_and_rank_killed(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--lines", "100000"]);
    job.hear(20);
    let run = job.run();
    let rank = json(&rig, "n1", &run, "started-0.json")["process"]["pid"].clone();
    let supervisor = rig.cluster.state_of("n1", &run).supervisor.pid;
    let since = now();
    rig.cluster.on("n1", &format!("kill -9 {supervisor} {rank}"));
    let code = job.wait();
    exits_agree(&job, code, 137, &[Ends::Signal(9), Ends::Stopped]);
    no_byte_lost(&job);
    nothing_left(&rig, &run);
    let exit =
        job.events().into_iter().find(|e| matches!(e.event, Event::RankExited { .. })).expect("an exit");
    notes.took("the rank's exit is told", exit.at.micros_since(since) as f64 / 1e6, 5.0);
    Some(())
}

/// Two hosts with scripted GPUs.
fn with_gpus() -> Option<Rig> {
    let library = built::example("libfake_nvml.so").display().to_string();
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gpus");
    Rig::up_with(2, &["--fake-nvml", &library, scripts], super::seed())
}

/// What holds a GPU's lease is killed, with the run's supervisor and without.
pub(crate) fn holder_killed(notes: &mut Notes) -> Option<()> {
    let rig = with_gpus()?;
    let person = rig.person();
    person.write("hosts.toml", &rig.cluster.hosts_toml(1).replace("slots = 1\n", ""));
    let trainer = rig.cluster.dir().join("trainer").display().to_string();
    let args = ["run", "--verbose", "--gpus", "n1:1", "--", "python3", &trainer, "--lines", "100000"];
    for (what, with_supervisor) in [("rank-wrap", false), ("supervisor and rank-wrap", true)] {
        let mut job = rig.launch(&person, &args);
        job.hear(20);
        let run = job.run();
        let supervisor = rig.cluster.state_of("n1", &run).supervisor.pid;
        let wrap = until_some("the rank-wrap", || {
            rig.cluster.state_of("n1", &run).wraps.get(&Rank(0)).map(|wrap| wrap.pid)
        });
        let held = || left::held_gpus(&rig.cluster, "n1", &run);
        assert!(!held().is_empty(), "the run has its GPU");
        let victims = if with_supervisor { format!("{supervisor} {wrap}") } else { wrap.to_string() };
        let since = Instant::now();
        rig.cluster.on("n1", &format!("kill -9 {victims}"));
        until("the GPU to be free", || held().is_empty());
        notes.took(&format!("{what} killed: the GPU is free"), since.elapsed().as_secs_f64(), 1.0);
        let again = rig.person();
        again.write("hosts.toml", &rig.cluster.hosts_toml(1).replace("slots = 1\n", ""));
        let taken = again.run(&["run", "--gpus", "n1:1", "--", "true"]);
        assert_eq!(taken.code, 0, "{taken:#?}");
        job.kill_client();
        // a rank whose supervisor and rank-wrap are gone goes on
        until("the rest of the run to end", || {
            let all = rig.cluster.processes("n1");
            let left = all.iter().filter(|process| process.is_of(&run));
            let left: Vec<String> = left.map(|process| process.pid.to_string()).collect();
            if !left.is_empty() {
                rig.cluster.on("n1", &format!("kill -9 {}", left.join(" ")));
            }
            left.is_empty()
        });
    }
    Some(())
}

pub(crate) fn reboot(notes: &mut Notes) -> Option<()> {
    let rig = with_gpus()?;
    let person = rig.person();
    // a folder that outlives the host, with all notes of who had which GPU
    let leases = rig.cluster.on("n1", "mkdir -m 755 ~/leases && cd ~/leases && pwd").trim().to_owned();
    let hosts = rig.cluster.hosts_toml(1).replace("slots = 1\n", &format!("lease_dir = \"{leases}\"\n"));
    rig.cluster.on("n2", "mkdir -m 755 ~/leases");
    person.write("hosts.toml", &hosts);
    let trainer = rig.cluster.dir().join("trainer").display().to_string();
    let args = ["run", "--verbose", "--gpus", "n1:1;n2:1", "--", "python3", &trainer, "--lines", "100000"];
    let mut job = rig.launch(&person, &args);
    job.hear(20);
    let run = job.run();
    let other = rig.person();
    other.write("hosts.toml", &hosts);
    let taken = || other.run(&["run", "--gpus", "n1:1", "--", "true"]);
    let refused = taken();
    assert_eq!(refused.code, 75, "the GPU is leased: {refused:#?}");
    let of_n1 = || rig.cluster.on("n1", "cd ~/leases && cat *.json 2>/dev/null");
    assert!(of_n1().contains(&run), "{}", of_n1());
    rig.change("reboot", "n1");
    let back = now();
    let free = taken();
    assert_eq!(free.code, 0, "what was leased before the reboot is free: {free:#?}");
    notes.took("a run on its GPU, once the host is back", now().micros_since(back) as f64 / 1e6, 5.0);
    let code = job.wait();
    assert_eq!(
        code,
        69,
        "a rank that is lost is no success, and no command that is not there: {}",
        job.said()
    );
    exits_agree(&job, code, code, &[Ends::Lost, Ends::Stopped]);
    let events = job.events();
    let exit = events.iter().find(|e| matches!(e.event, Event::RankExited { .. })).expect("an exit");
    let Event::RankExited { exit: lost } = &exit.event else { panic!("{exit:?}") };
    assert_eq!(lost.describe(), "lost, the host was rebooted", "{lost:?}");
    assert!(job.said().contains("lost, the host was rebooted"), "{}", job.last_words());
    notes.took("told, once the host is back", exit.at.micros_since(back) as f64 / 1e6, 5.0);
    nothing_left(&rig, &run);
    assert!(!of_n1().contains(&run), "no note of its GPU is left: {}", of_n1());
    let listed = person.run(&["runs"]);
    let line = listed.out.lines().find(|line| line.contains(&run[run.len() - 4..]));
    let line = line.unwrap_or_else(|| panic!("it is listed: {listed:#?}"));
    assert!(!line.contains("done") && !line.contains("exit 0"), "it is nowhere a success: {line}");
    assert_eq!(person.run(&["attach", &run]).code, code, "nor when it is asked for again");
    Some(())
}
