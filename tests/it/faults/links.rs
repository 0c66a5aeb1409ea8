//! Rows 4 to 13 and 33: the link to a host breaks in every way, the run goes on, and no byte of it is lost.

use std::time::Duration;

use hvtui::clock::now;
use hvtui::domain::host::LinkState;
use hvtui::domain::time::Stamp;
use hvtui::domain::world::World;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::rig::{Job, Rig, lasts, until, until_some};
use super::screen::Screen;

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
    run_on(&Rig::up(2)?, notes, fault);
    Some(())
}

fn run_on(rig: &Rig, notes: &mut Notes, fault: impl FnOnce(&Rig, &Job<'_>, &mut Notes)) {
    let person = rig.person();
    let job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    fault(rig, &job, notes);
    all_is_well(job, notes);
}

/// The same while another person looks at the Cluster screen, over links of their own.
fn with_a_run_seen(notes: &mut Notes, fault: impl FnOnce(&Rig, &Job<'_>, &Screen, &mut Notes)) -> Option<()> {
    let rig = Rig::up(2)?;
    let eye = rig.person();
    let screen = Screen::of(&rig, &eye)?;
    run_on(&rig, notes, |rig, job, notes| fault(rig, job, &screen, notes));
    Some(())
}

/// How often the link to a host went down after `since`.
fn downs(job: &Job<'_>, host: &str, since: Stamp) -> usize {
    let down = |(at, state): &&(Stamp, LinkState)| *at >= since && matches!(state, LinkState::Down { .. });
    job.links(host).iter().filter(down).count()
}

pub(crate) fn silent(notes: &mut Notes) -> Option<()> {
    with_a_run_seen(notes, |rig, job, screen, notes| {
        // what is new is written as what is new of a host that nothing happens to
        assert_eq!(screen.colour_of_load("n1"), screen.colour_of_load("n2"));
        let since = now();
        rig.relay("n1").stall();
        // stale, and not down: it is told before the link is given up
        let stale = screen.until("n1 to be stale", || {
            let row = screen.row("n1");
            row.contains(" s old") && !row.contains("down since")
        });
        notes.took("stale", stale, 3.0);
        let (old, new) = (screen.colour_of_load("n1"), screen.colour_of_load("n2"));
        assert_ne!(old, new, "what is old is greyed");
        notes.took("dead", job.down_after("n1", since), 8.0);
        let reconnecting = || {
            let row = screen.row("n1");
            row.contains("down since") && (row.contains("connecting to") || row.contains("next try"))
        };
        screen.until("n1 to be connected to again", reconnecting);
        let healed = now();
        rig.relay("n1").clear();
        notes.took("back after heal", job.up_after("n1", healed), 30.0);
        screen.until("n1 to be fresh again", || {
            let row = screen.row("n1");
            row.contains('%') && !row.contains(" s old") && !row.contains("down since")
        });
        assert_eq!(downs(job, "n2", Stamp(0)), 0, "n2 has nothing to do with it");
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
    with_a_run_seen(notes, |rig, job, screen, notes| {
        let relay = rig.relay("n1");
        let (since, before) = (now(), relay.connects());
        let mut most = 0;
        for _ in 0..30 {
            relay.set(|weather| weather.refuse = true);
            relay.reset();
            lasts(Duration::from_secs(1));
            most = most.max(screen.lines_about("n1"));
            relay.clear();
            lasts(Duration::from_secs(1));
            most = most.max(screen.lines_about("n1"));
        }
        // of two clients: the run's and the screen's
        let connects = relay.connects() - before;
        notes.count("connects of two clients in 60 s", u64::from(connects), 30);
        assert!(connects <= 30, "the backoff grows: {connects} connects in 60 s");
        let pauses = pauses(job, "n1", since);
        let longest = pauses.iter().copied().fold(0.0, f64::max);
        notes.took("longest pause between two tries", longest, 30.0);
        assert!(longest <= 30.5 && !pauses.is_empty(), "the backoff is capped: {pauses:?}");
        assert!(most <= 2, "one badge, with the rest of its text, and no notice beside it: {most} lines");
        let told = job.said().lines().filter(|line| !line.starts_with('[') && line.contains("n1")).count();
        notes.count("lines of the client about n1", told as u64, 60);
        assert!(told <= 60, "at most one line for each change of the link: {told} lines");
        // the longest pause between two tries is half a minute
        let healed = now();
        notes.took("back after heal", up_again(job, "n1", healed), 31.0);
        screen.until("n1 to be fresh again", || screen.row("n1").contains('%'));
        let other = rig.person();
        let ended = other.run(&["run", "-H", "n1:1", "--", "true"]);
        assert_eq!(ended.code, 0, "nobody is locked out: {ended:#?}");
    })
}

/// How long after each loss of the link to a host since then the next try was to come, seconds.
fn pauses(job: &Job<'_>, host: &str, since: Stamp) -> Vec<f64> {
    let pause = |(at, state): &(Stamp, LinkState)| match state {
        LinkState::Down { retry_at: Some(next), .. } if *at >= since => {
            Some(next.micros_since(*at) as f64 / 1e6)
        }
        _ => None,
    };
    job.links(host).iter().filter_map(pause).collect()
}

/// Waits until a link that may be up at `since` is up; the seconds until then.
fn up_again(job: &Job<'_>, host: &str, since: Stamp) -> f64 {
    until(&format!("the link to {host}"), || matches!(job.links(host).last(), Some((_, LinkState::Up))));
    now().micros_since(since) as f64 / 1e6
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
    with_a_run_seen(notes, |rig, job, screen, notes| {
        let since = now();
        rig.change("loss", "n1 10");
        rig.relay("n1").set(|weather| weather.delay = Duration::from_millis(100));
        job.hear(200);
        let mut keys: Vec<f64> = (0..20)
            .flat_map(|_| {
                let help = |screen: &str| screen.contains("launch a run");
                [screen.key("?", help), screen.key("Escape", |screen| !help(screen))]
            })
            .collect();
        keys.sort_by(f64::total_cmp);
        notes.took("a key, of 40 the last but one", keys[keys.len() - 2], 0.05);
        screen.until("telemetry of n1", || screen.row("n1").contains('%'));
        let other = rig.person();
        let ended = other.run(&["run", "-H", "n1:1", "--", "echo", "usable"]);
        assert!(ended.code == 0 && ended.out.contains("usable"), "{ended:#?}");
        let rtt = until_some("the latency", || {
            let watched = other.run(&["watch", "--once", "--json"]);
            let tick: serde_json::Value = serde_json::from_str(watched.out.lines().next()?).ok()?;
            let host = tick["hosts"].as_array()?.iter().find(|host| host["name"] == "n1")?.clone();
            host["rtt_ms"].as_f64()
        });
        assert!(rtt >= 200.0, "the way there and back takes 200 ms, and {rtt} ms are shown");
        notes.say(&format!("{rtt:.0} ms of latency are shown"));
        notes.say(&format!("{} links lost meanwhile", downs(job, "n1", since)));
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
    // what was under way when the link became narrow comes first: the more, the longer the wide link had been in use by then
    let age = until_some("telemetry beside the lines, in 9 of 10 s", || {
        Some(telemetry_age(&job, "n1")).filter(|age| *age < 9.0)
    });
    notes.took("age of telemetry", age, 5.0);
    until("the lines' lag to be known", || is_behind(&job));
    rig.change("heal", "n1");
    all_is_well(job, notes);
    Some(())
}

/// Whether the screens say of the run that its lines are behind, by what the client has recorded.
fn is_behind(job: &Job<'_>) -> bool {
    let (mut world, events) = (World::default(), job.events());
    for envelope in &events {
        world.apply(envelope);
    }
    let newest = events.iter().map(|envelope| envelope.at).max().unwrap_or_default();
    world.runs.values().any(|run| run.behind_us(&world.hosts, newest).is_some())
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
        let since = now();
        rig.change("close", "n1");
        job.hear(50);
        assert_eq!(downs(job, "n1", since), 0, "the session lives on");
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
