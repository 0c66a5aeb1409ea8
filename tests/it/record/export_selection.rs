//! What is left out of an export has no trace in it, in any format: the export is that of a run in which it never happened.
//! Three formats tell of a step who came last: for that the steps of all ranks are looked at, and those of others are not told.

use std::collections::BTreeSet;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::record::export::{FORMATS, Selection};
use serde_json::Value;

use super::events::{run, run_id};
use super::export::exported_of;

/// The events of the run that `is_left` takes, with the numbers that they have in the whole run.
fn left(run: &[Envelope], is_left: impl Fn(&Envelope) -> bool) -> Vec<Envelope> {
    run.iter().filter(|envelope| is_left(envelope)).cloned().collect()
}

/// The run with two processes in each of its first ranks: what ranks 0 to 3 tell is told by processes 0 to 3 in ranks 0 and 1.
fn with_workers(run: Vec<Envelope>) -> Vec<Envelope> {
    let trains = |event: &Event| matches!(event, Event::StepDone { .. } | Event::MetricReported { .. });
    run.into_iter()
        .map(|mut envelope| {
            if let (Origin::Rank(run, rank), true) = (&envelope.origin, trains(&envelope.event)) {
                envelope.origin = Origin::Worker(run.clone(), Rank(rank.0 / 2), rank.0);
            }
            envelope
        })
        .collect()
}

/// The formats that compare ranks.
const COMPARE: [&str; 3] = ["chrome", "horovod", "jsonl"];

fn same(format: &str, run: &[Envelope], alone: &[Envelope], selection: &Selection) {
    let (bytes, report) = exported_of(run, format, selection);
    let (wanted, told) = exported_of(alone, format, selection);
    assert!(report.recorded > 0 && report.recorded == told.recorded, "{format}: {report:?}, not {told:?}");
    assert!(bytes == wanted, "{format}:\n{}", first_difference(&bytes, &wanted));
    let (whole, _) = exported_of(run, format, &Selection::default());
    assert!(bytes.len() < whole.len(), "{format}: nothing was left out");
}

/// Where two files begin to differ, as text.
fn first_difference(one: &[u8], other: &[u8]) -> String {
    let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let around = |bytes: &[u8]| {
        let end = bytes.len().min(at + 200);
        String::from_utf8_lossy(&bytes[at.saturating_sub(100).min(end)..end]).into_owned()
    };
    format!("{}\n-- not --\n{}", around(one), around(other))
}

#[test]
fn of_ranks_that_are_not_chosen_nothing_is_told() {
    let plain = run(4, 40);
    for (run, chosen) in
        [(plain.clone(), vec![2]), (plain.clone(), vec![0, 3]), (with_workers(plain), vec![3])]
    {
        let alone = left(&run, |envelope| match &envelope.origin {
            Origin::Rank(_, Rank(number)) | Origin::Worker(_, _, number) => chosen.contains(number),
            Origin::Host(_) | Origin::Run(_) => true,
        });
        assert!(alone.len() < run.len());
        let ranks = Some(chosen.iter().map(|rank| Rank(*rank)).collect());
        let selection = Selection { ranks, ..Selection::default() };
        for format in FORMATS.iter().filter(|format| !COMPARE.contains(&format.name)) {
            same(format.name, &run, &alone, &selection);
        }
        let trains_itself = !run.iter().any(|envelope| matches!(envelope.origin, Origin::Worker(..)));
        for name in COMPARE.iter().filter(|_| trains_itself) {
            let text =
                |run: &[Envelope], selection| String::from_utf8(exported_of(run, name, selection).0).unwrap();
            let (told, whole) = (text(&run, &selection), text(&run, &Selection::default()));
            let ranks = ranks_of(name, &told);
            assert_eq!(ranks, chosen.iter().copied().collect(), "{name}: {told}");
            assert!(ranks_of(name, &whole).len() > ranks.len(), "{name}: {whole}");
        }
    }
}

/// The ranks of which rows, slices or counters tell.
fn ranks_of(format: &str, text: &str) -> BTreeSet<u32> {
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    if format == "jsonl" {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_ranks =
            lines.filter(|line| !["straggler", "allreduce"].iter().any(|kind| line["type"] == *kind));
        return of_ranks.filter_map(|line| number(&line["rank"])).collect();
    }
    let whole: Value = serde_json::from_str(text).unwrap();
    let events = whole.get("traceEvents").unwrap_or(&whole).as_array().unwrap();
    if format == "horovod" {
        // each rank's arrival is a slice with its number as its name
        let arrivals = events.iter().filter(|event| event["ph"] == "X");
        return arrivals.map(|event| event["name"].as_str().unwrap().parse().unwrap()).collect();
    }
    let named = events.iter().filter(|event| event["name"] == "process_name");
    let rank = |event: &Value| {
        let name = event["args"]["name"].as_str()?;
        let place =
            name.split_once("in rank ").map_or_else(|| name.strip_prefix("rank "), |(_, rank)| Some(rank))?;
        place.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    named.filter_map(rank).collect()
}

#[test]
fn of_steps_that_are_not_chosen_nothing_is_told() {
    let plain = run(4, 40);
    for run in [plain.clone(), with_workers(plain)] {
        let alone = left(&run, |envelope| match &envelope.event {
            Event::StepDone { timing } => (9..=40).contains(&timing.step),
            _ => true,
        });
        let selection = Selection { steps: Some("9-40".parse().unwrap()), ..Selection::default() };
        for format in FORMATS {
            same(format.name, &run, &alone, &selection);
        }
    }
}

/// Each format names a process within a rank by both numbers.
#[test]
fn processes_within_a_rank_have_their_own_rows_and_names() {
    let run = with_workers(run(4, 40));
    assert!(run.iter().any(|envelope| envelope.origin == Origin::Worker(run_id(), Rank(1), 3)));
    let of = |format: &str| exported_of(&run, format, &Selection::default()).0;
    let has = |format: &str, text: &str| {
        let bytes = of(format);
        assert!(bytes.windows(text.len()).any(|part| part == text.as_bytes()), "{format} has no {text}");
    };
    has("tensorboard", "loss/rank_1/worker_3");
    has("prometheus", "rank=\"1\",worker=\"3\"");
    has("jsonl", "\"worker\":3");
    has("chrome", "rank 3 · gpu-a · in rank 1");
    let topics = mcap::Summary::read(&of("mcap")).unwrap().unwrap().channels;
    assert!(topics.values().any(|channel| channel.topic == "/rank_1/worker_3/step"), "{topics:?}");

    let csv = String::from_utf8(of("csv")).unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let at = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    let third = lines.filter(|row| row[at("rank")] == "1" && row[at("worker")] == "3");
    assert_eq!(third.count(), 160);
}
