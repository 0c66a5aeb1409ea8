//! What ranks tell lies where it happened on their hosts, however late a client reads it: ranks that print faster than it reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::run::RunStage;
use hvtui::domain::time::Stamp;
use hvtui::domain::world::{RunState, World};
use hvtui::record::{Player, Reader};
use serde_json::Value;

use super::local_runs::Person;

/// Ten steps, in each of which 2,000 lines are printed in one go.
const FLOODS: &str = r#"
import json, os, time
report = open(os.environ["HVTUI_REPORT"], "a", buffering=1)
def tell(**fields):
    report.write(json.dumps(fields) + "\n")
def now():
    return time.monotonic_ns() // 1000
tell(kind="hello", job="flood", total_steps=10)
tell(kind="met", t=now())
text = b"".join(b"this is line %04d of many\n" % line for line in range(2000))
for step in range(1, 11):
    t = now()
    os.write(1, text)
    forward = now() - t
    time.sleep(0.01)
    dur = now() - t
    spans = [{"phase": "forward", "start_us": 0, "dur_us": forward}, {"phase": "wait", "start_us": forward, "dur_us": dur - forward}]
    tell(kind="step", step=step, t=t, dur_us=dur, samples=8, loss=1 / step, spans=spans)
tell(kind="done")
"#;
const LINES: usize = 40_000;
/// Bytes that are printed in a step.
const OF_A_STEP: u64 = 52_000;

/// A run of two ranks that print so; how long it took, microseconds.
fn flooded() -> (Person, u64) {
    let person = Person::new(2);
    let hosts = "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 2\n";
    std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
    std::fs::write(person.home().join("floods.py"), FLOODS).unwrap();
    let begun = std::time::Instant::now();
    let out = person.run(&["run", "-np", "2", "--", "python3", "floods.py"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    (person, begun.elapsed().as_micros() as u64)
}

fn recording(person: &Person) -> PathBuf {
    let pattern = format!("{}/.local/state/hvtui/runs/*/run.mcap", person.home().display());
    glob::glob(&pattern).unwrap().next().unwrap().unwrap()
}

fn envelopes(person: &Person) -> Vec<Envelope> {
    Reader::open(&recording(person)).unwrap().envelopes(..).map(Result::unwrap).collect()
}

#[test]
fn lines_have_the_time_at_which_they_were_printed_however_late_they_are_read() {
    let (person, took_us) = flooded();
    let all = envelopes(&person);
    let of = |rank: Rank| {
        all.iter().filter(
            move |envelope| matches!(&envelope.origin, Origin::Rank(_, of) | Origin::Worker(_, of, _) if *of == rank),
        )
    };
    for rank in [Rank(0), Rank(1)] {
        let begun = of(rank)
            .find_map(|one| if let Event::RankStarted { t, .. } = one.event { Some(t.0) } else { None });
        let end = of(rank)
            .find_map(|one| if let Event::RankExited { exit } = &one.event { Some(exit.t.0) } else { None });
        let (begun, end) = begun.zip(end).unwrap();
        // else nothing was late, and this test shows nothing
        assert!(took_us > 2 * (end - begun) + 1_000_000, "{took_us} for a run of {} µs", end - begun);
        let steps: Vec<u64> = of(rank)
            .filter_map(
                |one| if let Event::StepDone { timing } = &one.event { Some(timing.start.0) } else { None },
            )
            .collect();
        let lines = of(rank)
            .filter_map(|one| if let Event::LogPrinted { line } = &one.event { Some(line) } else { None });
        let lines: Vec<_> = lines.collect();
        assert_eq!((steps.len(), lines.len()), (10, LINES / 2));
        for line in lines {
            let t = line.t.unwrap_or_else(|| panic!("no time of {line:?}")).0;
            let step = steps[(line.offset / OF_A_STEP) as usize];
            assert!(t >= step, "{line:?} is earlier than its step, which began at {step}");
            // a client reads it seconds later
            assert!(t <= end + 500_000, "{line:?} is later than the end of its rank at {end}");
        }
    }
}

/// A world as a replay shows it there.
fn shown(person: &Person, at: Stamp) -> World {
    let mut player = Player::open(&recording(person)).unwrap();
    player.seek(at);
    let (mut world, mut playback) = (World::default(), player.advance(Stamp(0)));
    while playback.reading.is_some() {
        playback = player.advance(Stamp(0));
    }
    if let Some(whole) = playback.reset {
        world = *whole;
    }
    playback.envelopes.iter().for_each(|envelope| world.apply(envelope));
    world
}

/// Since when a stage of the run lasted.
fn entered(run: &RunState, stage: RunStage) -> Stamp {
    let found = run.stages.iter().find(|(_, own)| *own == stage);
    found.unwrap_or_else(|| panic!("no {stage:?}: {:?}", run.stages)).0
}

#[test]
fn a_flood_of_lines_is_a_short_run_wherever_it_is_looked_at() {
    let (person, _) = flooded();
    let (mut starts, mut ends) = (BTreeMap::new(), BTreeMap::new());
    let (mut steps, mut lines) = (Vec::new(), Vec::new());
    // what two moments of the host may be off by on the client's clock, which its pings place ever better
    let mut off_us = None;
    for envelope in envelopes(&person) {
        if let Event::ClockSampled { sample } = &envelope.event {
            off_us = off_us.or(Some(5_000 + i64::from(sample.rtt_us)));
        }
        let (at, Origin::Rank(_, rank)) = (envelope.at, envelope.origin) else { continue };
        match envelope.event {
            Event::RankStarted { t, .. } => drop(starts.insert(rank, (at, t))),
            Event::RankExited { exit } => drop(ends.insert(rank, (at, exit.t))),
            Event::StepDone { timing } => steps.push((rank, at, timing)),
            Event::LogPrinted { line } => lines.push((rank, at, line)),
            _ => {}
        }
    }
    let off_us = off_us.expect("a ping");
    let (Some((begin, begin_t)), Some((end, _))) = (starts.values().min(), ends.values().max()) else {
        panic!("no rank has started and ended")
    };
    let place = |t: u64| begin.plus_micros(t as i64 - begin_t.0 as i64);
    let is_near = |at: Stamp, other: Stamp| at.micros_since(other).abs() <= off_us;
    for (rank, (at, t)) in &starts {
        assert!(is_near(*at, place(t.0)), "rank {rank} at {at:?}, not {:?}", place(t.0));
    }
    for (rank, at, step) in &steps {
        let end = place(step.start.0 + u64::from(step.dur_us));
        assert!(is_near(*at, end), "rank {rank} step {} at {at:?}, not {end:?}", step.step);
    }
    for (rank, at, line) in &lines {
        assert!(is_near(*at, place(line.t.unwrap().0)), "rank {rank} at {at:?}: {line:?}");
    }
    for (rank, (at, t)) in &ends {
        let of_lines = lines.iter().filter(|line| line.0 == *rank);
        let of_steps = steps.iter().filter(|step| step.0 == *rank);
        assert!(
            of_lines.clone().is_sorted_by_key(|line| line.1)
                && of_steps.clone().is_sorted_by_key(|step| step.1)
        );
        let last = of_lines.map(|line| line.1).chain(of_steps.map(|step| step.1)).max().unwrap();
        assert!(is_near(*at, place(t.0).max(last)) && *at >= last, "rank {rank} at {at:?}, last at {last:?}");
    }

    // in a replay: its stages, its length, and what it shows at a moment
    let state = Player::open(&recording(&person)).unwrap().state();
    assert!(state.end.micros_since(*end) < 1_000_000, "{state:?} for an end at {end:?}");
    let world = shown(&person, state.end);
    let run = world.runs.values().next().unwrap();
    let stages = &run.stages;
    assert!(
        is_near(entered(run, RunStage::Ended), *end) && entered(run, RunStage::Ended) >= *end,
        "{stages:?}"
    );
    assert!(entered(run, RunStage::Training) <= *end && stages.is_sorted(), "{stages:?}");
    // the playhead meets what is told late where it is by then
    let mut playhead = Stamp(0);
    let mut told = envelopes(&person);
    told.iter_mut().for_each(|envelope| {
        playhead = playhead.max(envelope.at);
        envelope.at = playhead;
    });
    let is_step = |envelope: &&Envelope| matches!(envelope.event, Event::StepDone { .. });
    let is_line = |envelope: &&Envelope| matches!(envelope.event, Event::LogPrinted { .. });
    let middle = told.iter().filter(is_step).nth(4).unwrap().at;
    let by_then = told.iter().filter(|envelope| envelope.at <= middle);
    let (stepped, printed) = (by_then.clone().filter(is_step).count(), by_then.filter(is_line).count());
    let world = shown(&person, middle);
    let run = world.runs.values().next().unwrap();
    assert_eq!((run.steps_held(), run.log.count() as usize), (stepped, printed), "by {middle:?}");
    // what has no time of its own came in time, a quarter of a second late at most
    assert!(middle.micros_since(*end) < 500_000, "{middle:?} is later than the end at {end:?}");

    // in an export
    let out = person.run(&["export", "--to", "jsonl", "--output", "run.jsonl"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(person.home().join("run.jsonl")).unwrap();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let newest = all.filter_map(|line| line["time_us"].as_i64()).max().unwrap();
    let long_us = end.micros_since(run.spec.created);
    assert!((newest - long_us).abs() <= 1_000_000, "{newest} µs for {long_us}");
}
