//! Rows 4 to 13 and 33: the link to a host breaks in every way, the run goes on, and no byte of it is lost.

use std::time::Duration;

use hvtui::clock::now;
use hvtui::domain::host::LinkState;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::rig::{Job, Rig, lasts};

const DONE: [Ends; 2] = [Ends::Exit(0); 2];

/// Lets the run come to its good end: all invariants hold.
fn all_is_well(mut job: Job<'_>, notes: &mut Notes) {
    job.hear(20);
    job.enough();
    let code = job.wait();
    exits_agree(&job, code, 0, &DONE);
    let bytes = no_byte_lost(&job);
    notes.say(&format!("{bytes} bytes compared"));
    nothing_left(job.rig, &job.run());
}

/// A run on two hosts; `fault` breaks and heals the link to n1.
fn with_a_run(notes: &mut Notes, fault: impl FnOnce(&Rig, &Job<'_>, &mut Notes)) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    let job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    fault(&rig, &job, notes);
    all_is_well(job, notes);
    Some(())
}

pub(crate) fn silent(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        let since = now();
        rig.relay("n1").stall();
        notes.took("dead", job.down_after("n1", since), 8.0);
        let healed = now();
        rig.relay("n1").clear();
        notes.took("back after heal", job.up_after("n1", healed), 30.0);
        let quiet =
            job.links("n2").iter().filter(|(_, state)| matches!(state, LinkState::Down { .. })).count();
        assert_eq!(quiet, 0, "n2 has nothing to do with it");
    })
}

pub(crate) fn reset(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        let since = now();
        rig.relay("n1").reset();
        notes.took("reset seen", job.down_after("n1", since), 1.0);
        notes.took("back", job.up_after("n1", since), 3.0);
        job.hear(20);
        let since = now();
        rig.relay("n1").half_close();
        notes.took("half-close seen", job.down_after("n1", since), 1.0);
        notes.took("back", job.up_after("n1", since), 3.0);
        job.hear(20);
        let since = now();
        rig.change("refuse", "n1");
        notes.took("REJECT seen", job.down_after("n1", since), 1.0);
        let healed = now();
        rig.change("heal", "n1");
        notes.took("back after heal", job.up_after("n1", healed), 3.0);
    })
}

pub(crate) fn flapping(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, _, notes| {
        let before = rig.relay("n1").connects();
        for _ in 0..30 {
            rig.relay("n1").set(|weather| weather.refuse = true);
            rig.relay("n1").reset();
            lasts(Duration::from_secs(1));
            rig.relay("n1").clear();
            lasts(Duration::from_secs(1));
        }
        notes.count("connects in 60 s", u64::from(rig.relay("n1").connects() - before), 30);
    })
}

pub(crate) fn one_way(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        let since = now();
        rig.change("drop", "n1 in");
        notes.took("dead, client to host lost", job.down_after("n1", since), 8.0);
        let healed = now();
        rig.change("heal", "n1");
        job.up_after("n1", healed);
        job.hear(20);
        let since = now();
        rig.change("drop", "n1 out");
        notes.took("dead, host to client lost", job.down_after("n1", since), 8.0);
        let healed = now();
        rig.change("heal", "n1");
        job.up_after("n1", healed);
    })
}

pub(crate) fn lossy(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        rig.change("loss", "n1 10");
        rig.relay("n1").set(|weather| weather.delay = Duration::from_millis(100));
        job.hear(200);
        let downs =
            job.links("n1").iter().filter(|(_, state)| matches!(state, LinkState::Down { .. })).count();
        notes.say(&format!("{downs} links lost meanwhile"));
        rig.change("heal", "n1");
        rig.relay("n1").clear();
    })
}

pub(crate) fn narrow(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    // 100 lines of 1 KiB a second is far more than 64 kbit/s carry
    let job = rig.start(&person, 1, &["--until", "~/enough", "--every", "0.01", "--pad", "1000"]);
    job.hear(20);
    rig.change("rate", "n1 64");
    lasts(Duration::from_secs(15));
    notes.took("age of telemetry", telemetry_age(&job, "n1"), 5.0);
    rig.change("heal", "n1");
    all_is_well(job, notes);
    Some(())
}

/// The longest time without a sample of the host, over the last ten seconds.
fn telemetry_age(job: &Job<'_>, host: &str) -> f64 {
    use hvtui::domain::event::{Event, Origin};
    let now = now();
    let from = hvtui::domain::time::Stamp(now.0 - 10_000_000);
    let mut samples: Vec<_> = job
        .events()
        .into_iter()
        .filter(|envelope| matches!(&envelope.origin, Origin::Host(id) if id.as_str() == host))
        .filter(|envelope| matches!(envelope.event, Event::HostSampled { .. }))
        .map(|envelope| envelope.at)
        .filter(|at| *at >= from)
        .collect();
    samples.insert(0, from);
    samples.push(now);
    samples.windows(2).map(|pair| pair[1].micros_since(pair[0]) as f64 / 1e6).fold(0.0, f64::max)
}

pub(crate) fn corrupt(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        let since = now();
        rig.relay("n1").corrupt();
        notes.took("seen", job.down_after("n1", since), 1.0);
        notes.took("back", job.up_after("n1", since), 3.0);
    })
}

pub(crate) fn session_killed(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        let since = now();
        rig.change("sever", "n1");
        notes.took("seen", job.down_after("n1", since), 1.0);
        notes.took("back", job.up_after("n1", since), 3.0);
    })
}

pub(crate) fn listener_stopped(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, _| {
        rig.change("close", "n1");
        job.hear(50);
        let downs =
            job.links("n1").iter().filter(|(_, state)| matches!(state, LinkState::Down { .. })).count();
        assert_eq!(downs, 0, "the session lives on");
        let other = rig.person();
        let ended = other.run(&["run", "-H", "n1:1", "--", "true"]);
        assert_eq!(ended.code, 69, "{ended:#?}");
        assert!(ended.said().contains("n1"), "{ended:#?}");
        rig.change("start", "n1");
    })
}

pub(crate) fn stopped(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        let since = now();
        rig.change("freeze", "n1");
        notes.took("dead", job.down_after("n1", since), 8.0);
        let healed = now();
        rig.change("thaw", "n1");
        notes.took("back", job.up_after("n1", healed), 30.0);
    })
}

pub(crate) fn host_vanishes(notes: &mut Notes) -> Option<()> {
    with_a_run(notes, |rig, job, notes| {
        let since = now();
        rig.change("cut", "n1");
        notes.took("dead", job.down_after("n1", since), 8.0);
        lasts(Duration::from_secs(120));
        job.hear_rank(1, 20);
        let healed = now();
        rig.change("heal", "n1");
        notes.took("back", job.up_after("n1", healed), 31.0);
    })
}
