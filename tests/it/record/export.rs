//! The Chrome trace: valid JSON, slices that nest, hosts on one clock.

use std::collections::BTreeMap;

use hvtui::domain::ids::Rank;
use hvtui::domain::time::Stamp;
use hvtui::record::Reader;
use hvtui::record::export::{Exported, Format, Selection};
use serde_json::Value;

use super::events::{START, run};
use super::write;

fn exported(options: &Selection) -> (Vec<Value>, Exported, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    write(&path, &run(4, 40));
    let mut text = Vec::new();
    let format = Format::named("chrome").unwrap();
    let report = format.export(&Reader::open(&path).unwrap(), &mut text, options).unwrap();
    let text = String::from_utf8(text).unwrap();
    (serde_json::from_str(&text).unwrap(), report, text)
}

fn slices(events: &[Value]) -> BTreeMap<(u64, u64), Vec<(f64, f64)>> {
    let mut threads: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let ts = event["ts"].as_f64().unwrap();
        threads.entry(thread).or_default().push((ts, ts + event["dur"].as_f64().unwrap()));
    }
    threads
}

#[test]
fn a_trace_is_valid_and_its_slices_nest() {
    let (events, report, text) = exported(&Selection::default());
    assert!(text.starts_with("[\n{") && text.ends_with("}\n]\n"));
    assert_eq!(text.lines().count(), events.len() + 2);
    assert_eq!(report.events, events.len() as u64);
    assert_eq!((report.truncated, report.unaligned_steps, report.missing_chunks), (false, 0, 0));
    let names: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["rank 0 · gpu-a · GPU0", "rank 1 · gpu-a · GPU1", "rank 2 · gpu-b · GPU0", "rank 3 · gpu-b · GPU1"]
    );
    let threads = slices(&events);
    assert_eq!(threads.len(), 4 * 3);
    for (thread, mut slices) in threads {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(slices.len(), if thread.1 == 0 { 160 } else { 160 * if thread.1 == 1 { 4 } else { 2 } });
        for pair in slices.windows(2) {
            assert!(pair[0].1 <= pair[1].0 + 1e-3, "{thread:?}: {pair:?} overlap");
        }
    }
    let hidden = |event: &Value| event["args"]["hidden_us"].as_u64().is_some_and(|us| us >= 31_000);
    assert_eq!(events.iter().filter(|event| hidden(event)).count(), 4 * 160);
    // gpu-b's clock is 400 µs behind gpu-a's and both drift alike: the fit brings the offset back
    let first = |rank: u64| slices(&events)[&(rank, 0)][0].0;
    assert!((first(2) - first(0) - 400.0).abs() < 5.0, "{} {}", first(0), first(2));
    assert!(
        events.iter().any(|event| event["ph"] == "C"
            && event["name"] == "gpu util %"
            && event["args"]["util"].is_u64())
    );
    assert_eq!(events.iter().filter(|event| event["ph"] == "i").count(), 4 * 6);
}

#[test]
fn a_trace_can_be_cut_to_what_is_asked() {
    let window = Selection {
        from: Some(Stamp(START + 10_000_000)),
        to: Some(Stamp(START + 12_000_000)),
        ranks: Some(vec![Rank(2)]),
        ..Selection::default()
    };
    let (events, ..) = exported(&window);
    assert!(events.iter().all(|event| event["pid"] == 2));
    let threads = slices(&events);
    let steps = &threads[&(2, 0)];
    assert!((8..=10).contains(&steps.len()), "{steps:?}");
    let (events, report, _) = exported(&Selection { max_events: Some(50), ..Selection::default() });
    assert_eq!((events.len(), report.truncated), (50, true));
}
