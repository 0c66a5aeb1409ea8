//! What ranks tell lies where it happened on their hosts, however late a client reads it: ranks that print faster than it reads.

use std::path::PathBuf;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::record::Reader;

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
