//! What ranks tell lies where it happened on their hosts, however late a client reads it: one that is stopped while they print.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hvtui::clock::now;
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::run::RunStage;
use hvtui::domain::time::Stamp;
use hvtui::domain::world::{RunState, World};
use hvtui::record::{Player, Reader};
use rustix::process::Signal;
use serde_json::Value;

use super::common::processes::{end_of, kill, until};
use super::local_runs::Person;

/// Two times five steps, in each of which 2,000 lines are printed in one go, and a pause between.
const FLOODS: &str = r#"
import json, os, time
report = open(os.environ["HVTUI_REPORT"], "a", buffering=1)
def tell(**fields):
    report.write(json.dumps(fields) + "\n")
def now():
    return time.monotonic_ns() // 1000
def flood(steps):
    for step in steps:
        t = now()
        os.write(1, text)
        forward = now() - t
        time.sleep(0.01)
        dur = now() - t
        spans = [{"phase": "forward", "start_us": 0, "dur_us": forward}, {"phase": "wait", "start_us": forward, "dur_us": dur - forward}]
        tell(kind="step", step=step, t=t, dur_us=dur, samples=8, loss=1 / step, spans=spans)
text = b"".join(b"this is line %04d of many\n" % line for line in range(2000))
open("ready-" + os.environ["HVTUI_RANK"], "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
flood(range(1, 6))
time.sleep(2)
flood(range(6, 11))
"#;
/// Lines of a rank.
const LINES: usize = 20_000;
/// Bytes that are printed in a step.
const OF_A_STEP: u64 = 52_000;
/// Steps of a rank before the pause.
const BEFORE: usize = 5;

/// A client, which does not outlive its test.
struct Client(Child);

impl Client {
    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // it has ended, unless the test fails
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run of two ranks that print so while its client is stopped.
struct Flooded {
    person: Person,
    /// When the client was stopped: neither rank had printed anything.
    stopped: Stamp,
    /// When it went on: both ranks had ended, a while ago.
    freed: Stamp,
}

fn flooded() -> Flooded {
    let person = Person::new(2);
    let home = person.home();
    let hosts = "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 2\n";
    std::fs::write(home.join("hosts.toml"), hosts).unwrap();
    std::fs::write(home.join("floods.py"), FLOODS).unwrap();
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(["run", "-np", "2", "--", "python3", "floods.py"]).current_dir(home);
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command.env("LANG", "C.UTF-8");
    command.stdout(File::create(home.join("out")).unwrap()).stderr(File::create(home.join("err")).unwrap());
    let mut client = Client(command.spawn().unwrap());
    let pid = client.0.id();
    until("both ranks", || home.join("ready-0").exists() && home.join("ready-1").exists());
    kill(pid, Signal::STOP);
    until("a stopped client", || client.is_stopped());
    let stopped = now();
    File::create(home.join("go")).unwrap();
    let exits = format!("{}/.local/state/hvtui/spool/*/*/exit-[01].json", home.display());
    until("the end of both ranks", || glob::glob(&exits).unwrap().count() == 2);
    // more than the clock of a host may be off by, which its pings place on the client's
    std::thread::sleep(Duration::from_millis(500));
    let freed = now();
    kill(pid, Signal::CONT);
    assert!(end_of(&mut client.0).success(), "{}", std::fs::read_to_string(home.join("err")).unwrap());
    Flooded { person, stopped, freed }
}

fn recording(person: &Person) -> PathBuf {
    let pattern = format!("{}/.local/state/hvtui/runs/*/run.mcap", person.home().display());
    glob::glob(&pattern).unwrap().next().unwrap().unwrap()
}

/// What a rank has told, each with the moment at which it lies.
#[derive(Default)]
struct Told {
    started: Vec<(Stamp, u64)>,
    /// With its beginning and its end by the clock of the host.
    steps: Vec<(Stamp, u64, u64)>,
    /// With the step in which it was printed, counted from 0, and its time by the clock of the host.
    lines: Vec<(Stamp, usize, u64)>,
    exited: Vec<(Stamp, u64)>,
}

impl Told {
    /// Of each rank.
    fn of(person: &Person) -> BTreeMap<Rank, Self> {
        let mut ranks: BTreeMap<Rank, Self> = BTreeMap::new();
        for envelope in Reader::open(&recording(person)).unwrap().envelopes(..) {
            let Envelope { at, origin: Origin::Rank(_, rank), event, .. } = envelope.unwrap() else {
                continue;
            };
            let told = ranks.entry(rank).or_default();
            match event {
                Event::RankStarted { t, .. } => told.started.push((at, t.0)),
                Event::RankExited { exit } => told.exited.push((at, exit.t.0)),
                Event::StepDone { timing } => {
                    told.steps.push((at, timing.start.0, timing.start.0 + u64::from(timing.dur_us)));
                }
                Event::LogPrinted { line } => {
                    let t = line.t.unwrap_or_else(|| panic!("no time of {line:?}"));
                    told.lines.push((at, (line.offset / OF_A_STEP) as usize, t.0));
                }
                _ => {}
            }
        }
        for told in ranks.values() {
            let counts = (told.started.len(), told.steps.len(), told.lines.len(), told.exited.len());
            assert_eq!(counts, (1, 2 * BEFORE, LINES, 1));
        }
        assert_eq!(ranks.len(), 2);
        ranks
    }
}

#[test]
fn lines_have_the_time_at_which_they_were_printed_however_late_they_are_read() {
    let Flooded { person, .. } = flooded();
    for (rank, told) in Told::of(&person) {
        let (exit, goes_on) = (told.exited[0].1, told.steps[BEFORE].1);
        for (_, step, t) in told.lines {
            let begun = told.steps[step].1;
            assert!(t >= begun, "rank {rank}: printed at {t}, in the step {step} that began at {begun}");
            assert!(t <= exit, "rank {rank}: printed in step {step} at {t}, behind its end at {exit}");
            let is_there = step >= BEFORE || t < goes_on;
            assert!(
                is_there,
                "rank {rank}: printed in step {step} at {t}, behind the pause that ended at {goes_on}"
            );
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
fn what_is_read_late_lies_where_it_happened_wherever_it_is_looked_at() {
    let Flooded { person, stopped, freed } = flooded();
    let ranks = Told::of(&person);
    for (rank, Told { started, steps, lines, exited }) in &ranks {
        let ((start, _), (exit, _)) = (started[0], exited[0]);
        assert!(start < stopped, "rank {rank} started at {start:?}, before {stopped:?}");
        assert!(exit < freed, "rank {rank} ended at {exit:?}, before {freed:?}");
        assert!(
            steps.is_sorted_by_key(|step| step.0) && lines.is_sorted_by_key(|line| line.0),
            "rank {rank}"
        );
        let all = steps.iter().map(|step| step.0).chain(lines.iter().map(|line| line.0));
        let (first, last) = (all.clone().min().unwrap(), all.max().unwrap());
        assert!(start < first && last <= exit, "rank {rank}: {start:?} {first:?} {last:?} {exit:?}");
        // the pause lies between what was told before and behind it, and is as long as it was on the host
        let (before, behind) = (steps[BEFORE - 1], steps[BEFORE]);
        let paused = behind.0.micros_since(before.0);
        let on_host = i64::try_from(behind.2 - before.2).unwrap();
        assert!((paused - on_host).abs() < on_host / 2, "rank {rank}: {paused} µs, on its host {on_host}");
        for (at, step, _) in lines {
            let is_there = if *step < BEFORE { *at < behind.0 } else { *at > before.0 };
            assert!(is_there, "rank {rank}: a line of step {step} lies at {at:?}: {before:?} {behind:?}");
        }
    }

    // in a replay
    let end = ranks.values().map(|told| told.exited[0].0).max().unwrap();
    let world = shown(&person, Player::open(&recording(&person)).unwrap().state().end);
    let run = world.runs.values().next().unwrap();
    let ended = entered(run, RunStage::Ended);
    assert!((end..freed).contains(&ended), "{ended:?}, the last rank at {end:?}, read from {freed:?} on");
    assert!(entered(run, RunStage::Training) < stopped && run.stages.is_sorted(), "{:?}", run.stages);
    assert_eq!(run.last_at, ended, "nothing of the run is later than its end");

    // in an export
    let out = person.run(&["export", "--to", "jsonl", "--output", "run.jsonl"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(person.home().join("run.jsonl")).unwrap();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_ranks = all.filter(|line| line["rank"].is_number());
    let times: Vec<i64> = of_ranks.filter_map(|line| line["time_us"].as_i64()).collect();
    let long_us = freed.micros_since(run.spec.created);
    assert!(times.len() >= 2 * LINES, "{} lines", times.len());
    assert!(times.iter().all(|time| *time < long_us), "{:?} µs, read from {long_us} on", times.iter().max());
}
