//! The Chrome trace: valid JSON, slices that nest, hosts on one clock, arrows with both ends, numbers that Perfetto
//! takes for what they are.

use std::collections::{BTreeMap, BTreeSet};

use hvtui::domain::event::{Envelope, Event};
use hvtui::domain::ids::Rank;
use hvtui::domain::time::Stamp;
use hvtui::domain::timing::Phase;
use hvtui::record::Reader;
use hvtui::record::export::{Exported, Format, Selection};
use serde_json::Value;

use super::events::{START, run};
use super::write;

/// A plausible run of 4 ranks and 160 steps in a format.
pub(super) fn exported(format: &str, selection: &Selection) -> (Vec<u8>, Exported) {
    exported_of(&run(4, 40), format, selection)
}

/// A run in a format.
pub(super) fn exported_of(run: &[Envelope], format: &str, selection: &Selection) -> (Vec<u8>, Exported) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    write(&path, run);
    let mut bytes = Vec::new();
    let format = Format::named(format).unwrap();
    let (reader, mut shares) = (Reader::open(&path).unwrap(), Vec::new());
    let report = format.export(&reader, &mut bytes, selection, &mut |share| shares.push(share)).unwrap();
    assert!(shares.is_sorted() && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    (bytes, report)
}

fn trace(selection: &Selection) -> (Vec<Value>, Exported, String, Value) {
    let (bytes, report) = exported("chrome", selection);
    let text = String::from_utf8(bytes).unwrap();
    let mut whole: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(events) = whole["traceEvents"].take() else { panic!("{text}") };
    (events, report, text, whole)
}

/// By process and thread.
type Slices = BTreeMap<(u64, u64), Vec<(f64, f64)>>;

fn slices(events: &[Value], is_meant: impl Fn(&Value) -> bool) -> Slices {
    let mut threads: Slices = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X" && is_meant(event)) {
        let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let ts = event["ts"].as_f64().unwrap();
        threads.entry(thread).or_default().push((ts, ts + event["dur"].as_f64().unwrap()));
    }
    threads
}

#[test]
fn a_trace_is_valid_and_its_slices_nest() {
    let (events, report, text, whole) = trace(&Selection::default());
    assert!(text.starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{"), "one event a line");
    assert_eq!(text.lines().count(), events.len() + 2);
    assert_eq!(report.events, events.len() as u64);
    assert_eq!((report.truncated, report.unaligned_steps, report.missing_chunks), (false, 0, 0));
    let names: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    let ranks =
        ["rank 0 · gpu-a · GPU0", "rank 1 · gpu-a · GPU1", "rank 2 · gpu-b · GPU0", "rank 3 · gpu-b · GPU1"];
    assert_eq!(names, [&ranks[..], &["host gpu-a", "host gpu-b"]].concat());
    let threads = slices(&events, |_| true);
    assert_eq!(threads.len(), 4 * 3);
    for (thread, mut slices) in threads {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in slices.windows(2) {
            assert!(pair[0].1 <= pair[1].0 + 1e-3, "{thread:?}: {pair:?} overlap");
        }
    }
    let hidden = |event: &Value| event["args"]["hidden_us"].as_u64().is_some_and(|us| us >= 31_000);
    assert_eq!(events.iter().filter(|event| hidden(event)).count(), 4 * 160);
    // gpu-b's clock is 400 µs behind gpu-a's and both drift alike: the fit brings the offset back
    let steps = slices(&events, |event| event["name"] == "step");
    let first = |pid: u64| steps.iter().find(|((of, _), _)| *of == pid).unwrap().1[0].0;
    assert!((first(3) - first(1) - 400.0).abs() < 5.0, "{} {}", first(1), first(3));
    assert_eq!(events.iter().filter(|event| event["ph"] == "i").count(), 4 * 6);
    let other = &whole["otherData"];
    assert_eq!(other["argv"], serde_json::json!(["hvtui", "train", "digits"]));
    assert_eq!(other["origin_unix_us"], START);
    let hosts = other["hosts"].as_array().unwrap();
    let told = |at: usize, key: &str| hosts[at][key].as_f64().unwrap();
    assert!((told(1, "clock_offset_us") - told(0, "clock_offset_us") - 400.0).abs() < 1.0, "{other}");
    assert_eq!((told(0, "clock_uncertainty_us"), hosts.len()), (30.0, 2));
}

#[test]
fn no_thread_has_the_number_of_a_process_and_none_is_0() {
    let (events, ..) = trace(&Selection::default());
    let numbers = |key: &str| -> BTreeSet<u64> {
        events.iter().filter_map(|event| event.get(key)).map(|number| number.as_u64().unwrap()).collect()
    };
    let (pids, tids) = (numbers("pid"), numbers("tid"));
    assert_eq!((pids.len(), tids.len()), (4 + 2, 4 * 3));
    assert!(pids.is_disjoint(&tids) && !pids.contains(&0) && !tids.contains(&0), "{pids:?} {tids:?}");
    // and a thread's number is that of one process alone
    let owners: BTreeSet<(u64, u64)> = events
        .iter()
        .filter_map(|event| Some((event.get("tid")?.as_u64()?, event["pid"].as_u64()?)))
        .collect();
    assert_eq!(owners.len(), tids.len());
    assert!(events.iter().all(|event| event["cat"].is_string() && event["pid"].is_u64()));
}

#[test]
fn what_a_trace_adds_up_to_is_what_was_recorded() {
    let (events, ..) = trace(&Selection::default());
    let mut sums: BTreeMap<(u64, String), f64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let name = event["name"].as_str().unwrap().to_owned();
        *sums.entry((event["pid"].as_u64().unwrap(), name)).or_default() += event["dur"].as_f64().unwrap();
    }
    let mut recorded: BTreeMap<(u64, String), f64> = BTreeMap::new();
    for envelope in run(4, 40) {
        let hvtui::domain::event::Origin::Rank(_, rank) = envelope.origin else { continue };
        let Event::StepDone { timing } = envelope.event else { continue };
        let mut add = |name: &str, us: u64| {
            *recorded.entry((u64::from(rank.0) + 1, name.to_owned())).or_default() += us as f64;
        };
        add("step", timing.dur_us.into());
        for (phase, us) in Phase::ALL.into_iter().zip(timing.phase_totals()).filter(|(_, us)| *us > 0) {
            let name = match phase {
                Phase::Wait => "allreduce wait",
                Phase::Transfer => "allreduce transfer",
                other => other.name(),
            };
            add(name, us);
        }
    }
    assert_eq!(sums.len(), 4 * 7, "names of slices are constant");
    assert_eq!(sums.keys().collect::<Vec<_>>(), recorded.keys().collect::<Vec<_>>());
    for (key, sum) in sums {
        assert!((sum - recorded[&key]).abs() < 0.5, "{key:?}: {sum} {}", recorded[&key]);
    }
}

#[test]
fn arrows_lead_from_the_rank_that_came_last_to_each_that_waited() {
    let (events, ..) = trace(&Selection::default());
    let threads = slices(&events, |_| true);
    let mut arrows: BTreeMap<u64, Vec<(&Value, f64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "s" || event["ph"] == "f") {
        let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let ts = event["ts"].as_f64().unwrap();
        let lies_in = |slice: &(f64, f64)| slice.0 - 1e-3 <= ts && ts < slice.1;
        let slice = threads[&thread].iter().copied().find(lies_in);
        let (begins, _) = slice.unwrap_or_else(|| panic!("{event} binds to no slice"));
        arrows.entry(event["id"].as_u64().unwrap()).or_default().push((event, begins));
    }
    assert_eq!(arrows.len(), 3 * 160);
    let waits = |pid: &Value, step: &Value| {
        let is_it = |event: &&Value| {
            event["pid"] == *pid && event["args"]["step"] == *step && event["name"] == "allreduce wait"
        };
        events.iter().find(is_it).unwrap()["dur"].as_f64().unwrap()
    };
    for arrow in arrows.values() {
        let [(from, before), (to, after)] = arrow[..] else { panic!("{arrow:?}") };
        assert!(before <= after, "Perfetto turns an arrow round that leads to an earlier slice: {arrow:?}");
        assert_eq!((&from["ph"], &to["ph"], &to["bp"]), (&"s".into(), &"f".into(), &"e".into()));
        assert!(from["ts"].as_f64() <= to["ts"].as_f64() && from["pid"] != to["pid"], "{arrow:?}");
        let step = &from["args"]["step"];
        assert!(waits(&from["pid"], step) <= waits(&to["pid"], step), "{arrow:?}");
    }
}

#[test]
fn counters_of_gpus_hosts_and_training_have_their_processes() {
    let (events, ..) = trace(&Selection::default());
    let mut counters: BTreeMap<&str, (BTreeSet<u64>, usize)> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "C") {
        let (pids, count) = counters.entry(event["name"].as_str().unwrap()).or_default();
        pids.insert(event["pid"].as_u64().unwrap());
        *count += 1;
        let values = event["args"].as_object().unwrap();
        assert!(!values.is_empty() && values.values().all(Value::is_number), "{event}");
    }
    let ranks = BTreeSet::from([1, 2, 3, 4]);
    for name in ["gpu util", "gpu memory", "gpu power", "gpu temperature"] {
        assert_eq!(counters[name], (ranks.clone(), 4 * 40), "{name}");
    }
    for name in ["loss", "samples"] {
        assert_eq!(counters[name], (ranks.clone(), 4 * 160), "{name}");
    }
    for name in ["cpu", "memory", "net"] {
        let (pids, count) = &counters[name];
        assert_eq!((pids.len(), pids.is_disjoint(&ranks), *count), (2, true, 2 * 40), "{name}");
    }
}

#[test]
fn a_trace_can_be_cut_to_what_is_asked() {
    let window = Selection {
        from: Some(Stamp(START + 10_000_000)),
        to: Some(Stamp(START + 12_000_000)),
        ranks: Some(vec![Rank(2)]),
        ..Selection::default()
    };
    let (events, ..) = trace(&window);
    let pids: BTreeSet<u64> = events.iter().map(|event| event["pid"].as_u64().unwrap()).collect();
    assert_eq!((pids.len(), pids.contains(&3)), (2, true), "the rank and its host: {pids:?}");
    assert!(events.iter().all(|event| event["ph"] != "s"), "an arrow needs both its ranks");
    let threads = slices(&events, |event| event["name"] == "step");
    let steps = &threads.values().next().unwrap();
    assert!((8..=10).contains(&steps.len()), "{steps:?}");
    let (events, report, _, whole) = trace(&Selection { max_events: Some(50), ..Selection::default() });
    assert_eq!((events.len(), report.truncated), (50, true));
    assert_eq!(whole["otherData"]["truncated"], true);
}

#[test]
fn steps_choose_what_happened_during_them() {
    let steps = Some("41-44".parse().unwrap());
    let (events, report, ..) = trace(&Selection { steps, ..Selection::default() });
    let numbers: BTreeSet<u64> = events.iter().filter_map(|event| event["args"]["step"].as_u64()).collect();
    assert_eq!(numbers, BTreeSet::from([41, 42, 43, 44]));
    assert!(report.recorded > 0);
    // the tenth second and what borders on it
    let moments = events.iter().filter(|event| event["ph"] == "C" || event["ph"] == "i");
    let moments: Vec<f64> = moments.map(|event| event["ts"].as_f64().unwrap()).collect();
    assert!(!moments.is_empty());
    assert!(moments.iter().all(|ts| (9.9e6..11.1e6).contains(ts)), "{moments:?}");
    let steps = Some("161-".parse().unwrap());
    let (events, report, ..) = trace(&Selection { steps, ..Selection::default() });
    assert_eq!(report.recorded, 0);
    assert!(events.iter().all(|event| event["ph"] == "M"), "an empty trace is valid");
}
