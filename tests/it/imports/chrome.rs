//! hvtui's Chrome trace, read back: what viewers can't show, and clocks that are not told.

use hvtui::domain::ids::Rank;
use hvtui::domain::timing::Phase;
use hvtui::record::Reader;
use serde_json::{Value, json};

use super::{fixture, imported, said, steps};
use crate::json_forms::assert_fits;
use crate::local_runs::Person;

/// Twelve steps of two ranks: rank 0 waits for 3 ms, rank 1 comes last; rank 2 tells no phases.
fn trace() -> Value {
    let mut events = Vec::new();
    for rank in 0..3_u64 {
        let label = format!("rank {rank} · gpu-a · GPU{rank}");
        events.push(json!({ "ph": "M", "cat": "__metadata", "name": "process_name", "pid": rank, "args": { "name": label } }));
    }
    for step in 1..=12_u64 {
        for rank in 0..3_u64 {
            let at = 10_000 * step;
            let slice = |cat: &str, name: &str, from: u64, dur: u64| json!({ "ph": "X", "cat": cat, "name": name, "pid": rank, "tid": 1, "ts": from, "dur": dur, "args": { "step": step } });
            events.push(slice("step", "step", at, 9_000));
            match rank {
                0 => {
                    events.push(slice("phase", "forward", at, 2_000));
                    events.push(slice("comm", "allreduce wait", at + 2_000, 3_000));
                    events.push(slice("comm", "allreduce transfer", at + 5_000, 4_000));
                }
                1 => {
                    events.push(slice("phase", "forward", at, 5_000));
                    events.push(slice("comm", "allreduce transfer", at + 5_000, 4_000));
                }
                _ => {}
            }
        }
    }
    json!({ "traceEvents": events, "otherData": {
        "origin_unix_us": 1_790_857_026_000_000_u64, "hosts": [{ "host": "gpu-a", "clock_uncertainty_us": 40 }],
    } })
}

fn uncertainties(person: &Person, file: &str) -> Vec<Value> {
    let report = assert_fits("run-report", &person.run(&["report", file, "--json"]));
    let hosts = report["host_figures"].as_array().unwrap();
    hosts.iter().map(|host| host["clock_uncertainty_us"].clone()).collect()
}

#[test]
fn a_wait_that_is_not_written_is_none_where_other_ranks_wait() {
    let person = Person::new(1);
    std::fs::write(person.home().join("trace.json"), trace().to_string()).unwrap();
    imported(&person, &["trace.json", "-o", "back.mcap"]);
    let all = steps(&Reader::open(&person.home().join("back.mcap")).unwrap());
    let last = &all[&(Rank(1), 1)].spans;
    let told: Vec<_> = last.iter().map(|span| (span.phase, span.start_us, span.dur_us)).collect();
    assert_eq!(told, [(Phase::Forward, 0, 5_000), (Phase::Wait, 5_000, 0), (Phase::Transfer, 5_000, 4_000)]);
    assert!(all[&(Rank(2), 1)].spans.is_empty(), "one that tells no phases tells no wait");
    let mut two = trace();
    two["traceEvents"].as_array_mut().unwrap().retain(|event| event["pid"] != 2);
    std::fs::write(person.home().join("two.json"), two.to_string()).unwrap();
    imported(&person, &["two.json", "-o", "two.mcap"]);
    let report = assert_fits("run-report", &person.run(&["report", "two.mcap", "--json"]));
    assert_eq!((&report["ranks"][0]["last_in"], &report["ranks"][1]["last_in"]), (&0.into(), &11.into()));
}

#[test]
fn how_well_a_clock_is_known_is_not_invented() {
    let person = Person::new(1);
    let text = trace().to_string();
    std::fs::write(person.home().join("trace.json"), &text).unwrap();
    imported(&person, &["trace.json", "-o", "whole.mcap"]);
    assert_eq!(uncertainties(&person, "whole.mcap"), [json!(40)]);
    // `otherData` stands behind the events in an export: one that is cut has it not
    let events = json!({ "traceEvents": trace()["traceEvents"] }).to_string();
    std::fs::write(person.home().join("cut.json"), &events[..events.len() - 40]).unwrap();
    imported(&person, &["cut.json", "-o", "cut.mcap"]);
    imported(&person, &[&fixture("horovod.json"), "-o", "horovod.mcap"]);
    for file in ["cut.mcap", "horovod.mcap"] {
        let told = uncertainties(&person, file);
        assert!(told.iter().all(Value::is_null), "{file}: {told:?}");
        assert!(!said(&person.run(&["report", file])).contains("±0"), "{file}");
    }
}
