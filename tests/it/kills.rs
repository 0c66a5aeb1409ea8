//! What `kill -9` of an agent and of a supervisor costs a recording: of what ranks print and tell, and of telemetry, what lies within
//! a second of it at most, by the times of the host.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use hvtui::clock::{host_now, now};
use hvtui::domain::event::{Envelope, Event};
use hvtui::domain::ids::{Rank, RunId};
use hvtui::domain::log::Stream;
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::procs::identity::Stat;
use hvtui::record::Reader;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::samples;
use hvtui::supervise::times::moments;
use hvtui::wire::samples::PastSamples;
use rustix::process::Signal;

use super::common::bed::{ended, running, state};
use super::common::processes::{end_of, kill, until, wait_for, waited_for_processors};
use super::local_runs::Person;

/// Steps of 50 ms, each with a line that holds its number and when it was printed; the rank notes the same by itself.
const STEADY: &str = r#"
import json, os, time
report = open(os.environ["HVTUI_REPORT"], "a", buffering=1)
own = open("own", "a", buffering=1)
number = 0
while number < 4000 and not os.path.exists("go"):
    number += 1
    t = time.monotonic_ns() // 1000
    print(number, t, flush=True)
    time.sleep(0.05)
    dur = time.monotonic_ns() // 1000 - t
    spans = [{"phase": "forward", "start_us": 0, "dur_us": dur}]
    report.write(json.dumps({"kind": "step", "step": number, "t": t, "dur_us": dur, "samples": 8, "loss": 1 / number, "spans": spans}) + "\n")
    own.write(f"{number} {t}\n")
"#;
/// So much is lost at most, microseconds.
const LOST_US: u64 = 1_000_000;
/// How far telemetry is apart, microseconds.
const PERIOD_US: u64 = 1_000_000;
/// A look for lines that comes later by so much tells no time of them, microseconds.
const LATE_US: u64 = 2_000_000;

/// A client, which does not outlive its test.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        // it has ended, unless the test fails; `timeout` hands it on, as it can't do with a kill
        if matches!(self.0.try_wait(), Ok(None)) {
            kill(self.0.id(), Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// The moment of a kill, by the clock of the host and by that of the client.
#[derive(Debug, Clone, Copy)]
struct Moment(HostTime, Stamp);

impl Moment {
    fn now() -> Self {
        Self(host_now(), now())
    }
}

/// What lies in the recording of the only run.
#[derive(Debug, Default)]
struct Recorded {
    /// By their numbers, when they were printed and when that was seen.
    lines: BTreeMap<u64, (u64, Option<HostTime>)>,
    /// When each began.
    steps: BTreeMap<u64, u64>,
    samples: Vec<Stamp>,
}

impl Recorded {
    /// So far; nothing where there is no recording yet.
    fn so_far(person: &Person) -> Self {
        let mut recorded = Self::default();
        let path = glob::glob(&below(person, "runs/*/run.mcap")).unwrap().next();
        let Some(reader) = path.and_then(|path| Reader::open(&path.unwrap()).ok()) else { return recorded };
        for Envelope { at, event, .. } in reader.envelopes(..).flatten() {
            match event {
                Event::LogPrinted { line } => {
                    let (number, printed) = line.text.split_once(' ').unwrap();
                    let before =
                        recorded.lines.insert(number.parse().unwrap(), (printed.parse().unwrap(), line.t));
                    assert!(before.is_none(), "twice: {line:?}");
                }
                Event::StepDone { timing } => {
                    let before = recorded.steps.insert(timing.step, timing.start.0);
                    assert!(before.is_none(), "twice: {timing:?}");
                }
                Event::HostSampled { .. } => recorded.samples.push(at),
                _ => {}
            }
        }
        recorded
    }

    /// Whether each kind of it reaches beyond a second behind a moment.
    fn is_beyond(&self, moment: Moment) -> bool {
        let us = moment.0.0 + LOST_US;
        self.lines.values().any(|(printed, _)| *printed > us)
            && self.steps.values().any(|start| *start > us)
            && self.samples.iter().any(|at| at.micros_since(moment.1) > LOST_US.cast_signed())
    }

    /// What is lost lies within a second of the kill, before which looks were late by what processes waited for processors.
    fn assert_whole(&self, person: &Person, killed: Moment, waited_us: u64) {
        let own = std::fs::read_to_string(person.home().join("own")).unwrap();
        let own = own.lines().map(|line| {
            let (number, t) = line.split_once(' ').unwrap();
            (number.parse::<u64>().unwrap(), t.parse::<u64>().unwrap())
        });
        let host = killed.0.0;
        let (mut before, mut behind) = (0, 0);
        for (number, t) in own {
            *(if t < host { &mut before } else { &mut behind }) += 1;
            assert!(
                t.abs_diff(host) <= LOST_US || self.lines.contains_key(&number),
                "line {number} of {t} is lost, killed at {host}"
            );
            assert!(
                t.abs_diff(host) <= LOST_US || self.steps.get(&number) == Some(&t),
                "step {number} of {t} is lost, killed at {host}"
            );
        }
        assert!(before > 0 && behind > 0, "{before} steps before the kill, {behind} behind it");
        let untimed = |(printed, t): &&(u64, Option<HostTime>)| *printed + LOST_US < host && t.is_none();
        let untimed = self.lines.values().filter(untimed).count();
        assert!(
            untimed == 0 || waited_us >= LATE_US,
            "{untimed} lines whose time is lost, waited {waited_us} µs: {:?}",
            self.lines
        );
        let last = self.samples.iter().filter(|at| **at <= killed.1).max().copied();
        let short_us = last.map(|last| killed.1.micros_since(last));
        assert!(
            short_us.is_some_and(|us| us <= (LOST_US + PERIOD_US + waited_us).cast_signed()),
            "the last sample before the kill: {last:?}, waited {waited_us} µs, killed at {:?}",
            killed.1
        );
    }
}

fn below(person: &Person, pattern: &str) -> String {
    format!("{}/.local/state/hvtui/{pattern}", person.home().display())
}

fn spool(person: &Person) -> RunDir {
    let path: PathBuf = glob::glob(&below(person, "spool/*/*/")).unwrap().next().unwrap().unwrap();
    RunDir::open(&path).unwrap()
}

fn person() -> Person {
    let person = Person::new(1);
    std::fs::write(person.home().join("steady.py"), STEADY).unwrap();
    person
}

/// The agent of a client, which `timeout` has started.
fn agent_of(client: u32) -> Option<u32> {
    let parent = |pid: u32| Stat::read(pid).ok().map(|stat| stat.parent);
    let mut pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let is_agent = std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.ends_with(b"\0agent\0--stdio\0"));
        is_agent && parent(*pid).and_then(parent) == Some(client)
    })
}

#[test]
fn an_agent_that_is_killed_costs_a_second_at_most() {
    let person = person();
    let mut command = person.hvtui(&["run", "-np", "1", "--", "python3", "steady.py"]);
    let err = person.home().join("err");
    command.stdout(Stdio::null()).stderr(File::create(&err).unwrap());
    let waited = waited_for_processors();
    let mut client = Client(command.spawn().unwrap());
    until("lines, steps and telemetry in the recording", || {
        let recorded = Recorded::so_far(&person);
        recorded.lines.len() >= 40 && recorded.steps.len() >= 40 && recorded.samples.len() >= 3
    });
    let agent = wait_for("the agent", || agent_of(client.0.id()));
    let killed = Moment::now();
    kill(agent, Signal::KILL);
    let waited_us = waited_for_processors() - waited;
    until("what was told after it", || Recorded::so_far(&person).is_beyond(killed));
    File::create(person.home().join("go")).unwrap();
    assert!(end_of(&mut client.0).success(), "{}", std::fs::read_to_string(err).unwrap());
    Recorded::so_far(&person).assert_whole(&person, killed, waited_us);
}

/// While no client follows, the supervisor alone notes when lines were printed, and has its host and GPUs sampled.
#[test]
fn a_supervisor_that_is_killed_costs_a_second_at_most() {
    let person = person();
    let waited = waited_for_processors();
    let out = person.run(&["run", "--detach", "-np", "1", "--", "python3", "steady.py"]);
    assert!(out.status.success(), "{out:?}");
    let run = String::from_utf8(out.stdout).unwrap();
    let dir = spool(&person);
    let noted = || moments(&dir, Rank(0), Stream::Stdout, 0, u64::MAX).len();
    let sampled = |since: HostTime| {
        let pieces = samples::since(&dir, since).unwrap();
        let of = |data: Vec<u8>| PastSamples { run: RunId::new(1, 1), data: data.into() }.samples().len();
        pieces.into_iter().map(of).sum::<usize>()
    };
    let detached = host_now();
    until("notes and samples without a client", || noted() >= 2 && sampled(detached) >= 2);
    let dead = running(&dir).supervisor;
    // both look once a second, how late on a busy machine is its affair: right behind a look of each
    let before = sampled(detached);
    until("the next sample", || sampled(detached) > before);
    let before = noted();
    until("the next note", || noted() > before);
    let killed = Moment::now();
    kill(dead.pid, Signal::KILL);
    let waited_us = waited_for_processors() - waited;
    until("a new supervisor", || state(&dir).supervisor != dead);
    let own = || std::fs::read_to_string(person.home().join("own")).unwrap();
    let beyond_us = killed.0.0 + LOST_US;
    until("steps a second behind it", || {
        let own = own();
        let whole = own.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole.lines().last().and_then(|line| line.split_once(' ')?.1.parse::<u64>().ok());
        last.is_some_and(|t| t > beyond_us)
    });
    until("samples of the new one", || sampled(HostTime(beyond_us)) >= 2);
    File::create(person.home().join("go")).unwrap();
    ended(&dir);
    let attached = person.run(&["attach", run.trim()]);
    assert!(attached.status.success(), "{attached:?}");
    let recorded = Recorded::so_far(&person);
    assert!(recorded.is_beyond(killed), "{killed:?}: {recorded:?}");
    recorded.assert_whole(&person, killed, waited_us);
}
