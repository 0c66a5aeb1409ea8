//! Rows 28, 29 and 34: supervisors and whole hosts end, and the run is taken up again.

use hvtui::clock::now;
use hvtui::domain::event::{Envelope, Event};
use hvtui::domain::note::what;
use hvtui::domain::time::Stamp;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left, spool};
use super::matrix::Notes;
use super::rig::{Job, Rig, until_some};

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

pub(crate) fn reboot(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let mut job = rig.start(&person, 1, &["--lines", "100000"]);
    job.hear(20);
    let run = job.run();
    rig.change("reboot", "n1");
    let back = now();
    let code = job.wait();
    assert_ne!(code, 0, "a rank that is lost is no success: {}", job.said());
    exits_agree(&job, code, code, &[Ends::Lost, Ends::Stopped]);
    assert!(job.said().contains("reboot"), "{}", job.last_words());
    nothing_left(&rig, &run);
    let exit =
        job.events().into_iter().find(|e| matches!(e.event, Event::RankExited { .. })).expect("an exit");
    notes.took("told, once the host is back", exit.at.micros_since(back) as f64 / 1e6, 5.0);
    assert_eq!(person.run(&["run", "-H", "n1:1", "--", "true"]).code, 0, "the host takes runs again");
    Some(())
}
