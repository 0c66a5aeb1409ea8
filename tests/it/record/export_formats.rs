//! Exports other than the Chrome trace, each read back by a reader that is not its writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hvtui::domain::analysis::{Analyzer, Choice};
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::hooks::StepsBy;
use hvtui::domain::ids::Rank;
use hvtui::domain::time::HostTime;
use hvtui::domain::timing::{Phase, PhaseSpan, StepTiming};
use hvtui::record::export::{FORMATS, Selection};
use serde_json::Value;

use super::events::{START, run, step_timing};
use super::export::{exported, exported_of};

fn text(format: &str, selection: &Selection) -> String {
    String::from_utf8(exported(format, selection).0).unwrap()
}

fn nothing() -> Selection {
    Selection { ranks: Some(vec![Rank(99)]), ..Selection::default() }
}

fn steps(range: &str) -> Selection {
    Selection { steps: Some(range.parse().unwrap()), ..Selection::default() }
}

#[test]
fn every_format_counts_what_it_writes_and_stops_at_the_limit() {
    for format in FORMATS {
        let (_, whole) = exported(format.name, &Selection::default());
        assert!(whole.recorded > 100 && whole.recorded <= whole.events, "{}: {whole:?}", format.name);
        assert!(!whole.truncated, "{}", format.name);
        let limit = Selection { max_events: Some(30), ..Selection::default() };
        let (_, cut) = exported(format.name, &limit);
        assert!(cut.truncated && cut.events <= 30, "{}: {cut:?}", format.name);
        let (_, empty) = exported(format.name, &nothing());
        assert_eq!((empty.recorded, empty.truncated), (0, false), "{}", format.name);
    }
}

fn table(text: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    assert!(text.ends_with("\r\n") && text.lines().count() == text.matches("\r\n").count());
    let mut lines = text.split_terminator("\r\n").map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let rows: Vec<Vec<&str>> = lines.collect();
    assert!(rows.iter().all(|row| row.len() == head.len()), "{head:?}");
    (head, rows)
}

#[test]
fn csv_has_one_row_a_rank_and_step() {
    let whole = text("csv", &Selection::default());
    let (head, rows) = table(&whole);
    assert_eq!(rows.len(), 4 * 160);
    let column = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    let row = rows.iter().find(|row| row[0] == "9" && row[1] == "3").unwrap();
    let timing = step_timing(9, HostTime(0), 3);
    assert_eq!((row[column("host")], row[column("gpu")]), ("gpu-b", "1"));
    assert_eq!(row[column("dur_us")], timing.dur_us.to_string());
    for (name, us) in
        ["data_us", "forward_us", "backward_us", "wait_us", "transfer_us", "optimizer_us", "other_us"]
            .iter()
            .zip(timing.phase_totals())
    {
        let rest = u64::from(timing.dur_us) - timing.phase_totals().iter().sum::<u64>();
        let told = if *name == "other_us" { rest } else { us };
        assert_eq!(row[column(name)], told.to_string(), "{name}");
    }
    assert_eq!(row[column("hidden_us")], timing.hidden_us.to_string());
    assert_eq!((row[column("loss")], row[column("samples")]), ("0.11111111", "64"));
    let start: i64 = row[column("start_us")].parse().unwrap();
    assert!((start - 2_000_400).abs() < 10, "{start}");
    let some = text("csv", &steps("9-10"));
    let (_, rows) = table(&some);
    assert_eq!(
        rows.iter().map(|row| row[0]).collect::<Vec<_>>(),
        ["9", "9", "9", "9", "10", "10", "10", "10"]
    );
    assert_eq!(text("csv", &nothing()).lines().count(), 1, "the head alone");
}

/// The run with other steps.
fn run_with(change: impl Fn(&mut StepTiming)) -> Vec<Envelope> {
    let mut run = run(4, 40);
    for envelope in &mut run {
        if let Event::StepDone { timing } = &mut envelope.event {
            change(Arc::make_mut(timing));
        }
    }
    run
}

#[test]
fn what_no_step_of_a_run_tells_is_no_0() {
    let run = run_with(|timing| {
        (timing.samples, timing.hidden_us) = (0, 0);
        // one step alone tells a phase, another one another phase, and the rest none
        let told = [(7, Phase::Forward), (9, Phase::Backward)];
        let told = timing.spans.iter().filter(|span| told.contains(&(timing.step, span.phase)));
        timing.spans = told.copied().collect();
    });
    let of = |format: &str| exported_of(&run, format, &steps("9-")).0;
    let csv = String::from_utf8(of("csv")).unwrap();
    let (head, rows) = table(&csv);
    for (name, told) in head.iter().zip(&rows[0]) {
        let is_unknown = ["data", "wait", "transfer", "optimizer", "hidden"]
            .iter()
            .any(|phase| **name == format!("{phase}_us"));
        match *name {
            "forward_us" => assert_eq!(*told, "0", "step 7 tells it"),
            name if is_unknown || name == "samples" => assert_eq!(*told, "", "{name}"),
            "worker" => assert_eq!(*told, "", "its ranks train themselves"),
            name => assert_ne!(*told, "", "{name}"),
        }
        if name.starts_with("forward") || name.starts_with("backward") {
            let silent = rows.iter().find(|row| row[0] == "10").unwrap();
            let at = head.iter().position(|cell| cell == name).unwrap();
            assert_eq!(silent[at], "", "step 10 tells no phase at all");
            let other = head.iter().position(|cell| *cell == "other_us").unwrap();
            assert_eq!(silent[other], "", "so that nothing is left of it");
        }
    }
    let (_, row) = &self::rows(&of("mcap"))["/rank_3/step"][0];
    assert_eq!(row["forward_us"], 0);
    for name in ["data_us", "wait_us", "hidden_us", "samples", "samples_per_s"] {
        assert!(row.get(name).is_none(), "{name}: {row}");
    }
    let chrome: Value = serde_json::from_slice(&of("chrome")).unwrap();
    let slices = chrome["traceEvents"].as_array().unwrap().iter();
    let step = slices.clone().find(|event| event["name"] == "step").unwrap();
    let names: BTreeSet<&str> = step["args"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["loss", "step"]));
    let prometheus = String::from_utf8(of("prometheus")).unwrap();
    let families = families(&prometheus);
    for name in ["samples_total", "allreduce_wait_seconds_total", "allreduce_hidden_seconds_total"] {
        assert!(!families.contains_key(&format!("hvtui_{name}")), "{name}");
    }
    assert_eq!(families["hvtui_steps_total"].1[0].1.to_string(), "152");
}

/// As screens and reports have it: the rank that came last to the allreduce did not wait.
#[test]
fn the_wait_that_hooks_tell_is_parted() {
    let whole = |timing: &mut StepTiming| {
        let rest = |span: &PhaseSpan| matches!(span.phase, Phase::Wait | Phase::Transfer);
        let length = timing.spans.iter().filter(|span| rest(span)).map(|span| span.dur_us).sum();
        let told = timing.spans.iter().filter(|span| span.phase != Phase::Transfer);
        timing.spans = told.copied().collect();
        let wait = timing.spans.iter_mut().find(|span| span.phase == Phase::Wait);
        wait.unwrap().dur_us = length;
    };
    let mut run = run_with(whole);
    let first = run.iter().position(|envelope| matches!(envelope.event, Event::StepDone { .. })).unwrap();
    let ranks = run.iter().filter_map(|envelope| match &envelope.origin {
        Origin::Rank(id, rank) => Some((id.clone(), *rank)),
        _ => None,
    });
    let ranks: BTreeSet<_> = ranks.collect();
    for (id, rank) in ranks {
        let event = Event::StepsBy { by: StepsBy::Hooks };
        run.insert(first, Envelope { origin: Origin::Rank(id, rank), event, ..run[first].clone() });
    }
    let csv = String::from_utf8(exported_of(&run, "csv", &Selection::default()).0).unwrap();
    let (head, rows) = table(&csv);
    let column = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    assert_eq!(rows.len(), 4 * 160);
    let mut by_step: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for row in &rows {
        let number = |name: &str| row[column(name)].parse::<u64>().unwrap();
        let (step, rank) = (number("step"), number("rank") as u32);
        let mut told = step_timing(step, HostTime(0), rank);
        whole(&mut told);
        let (wait, transfer) = (number("wait_us"), number("transfer_us"));
        assert_eq!(wait + transfer, told.phase_totals()[Phase::Wait.index()], "step {step}, rank {rank}");
        by_step.entry(step).or_default().push((wait, transfer));
    }
    for (step, parts) in by_step {
        assert_eq!(parts.iter().map(|(wait, _)| *wait).min(), Some(0), "step {step}");
        assert!(parts.iter().all(|(_, transfer)| *transfer == parts[0].1 && *transfer > 9_000), "{parts:?}");
    }
    for format in FORMATS {
        let (_, report) = exported_of(&run, format.name, &Selection::default());
        // the wait of the rank that came last is none
        let without = if format.name == "chrome" { 160 } else { 0 };
        let all = exported(format.name, &Selection::default()).1.recorded;
        assert_eq!(report.recorded, all - without, "{}", format.name);
    }
}

#[test]
fn csv_of_gpus_has_one_row_a_sample_and_gpu() {
    let whole = text("csv-gpus", &Selection::default());
    let (head, rows) = table(&whole);
    assert_eq!(rows.len(), 4 * 40);
    let column = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    let row = rows.iter().find(|row| row[column("rank")] == "2").unwrap();
    let cells =
        ["host", "gpu", "uuid", "util", "power_mw", "pcie_rx_bytes_per_s"].map(|name| row[column(name)]);
    assert_eq!(cells, ["gpu-b", "0", "GPU-2", "90", "650123", ""], "a value that is not known is empty");
}

/// Of ranks on two hosts the one that waited least may not have been the last.
#[test]
fn exports_name_a_last_rank_in_the_steps_in_which_a_report_does() {
    let mut slow = run(4, 40);
    let mut spec = None;
    for envelope in &mut slow {
        match &mut envelope.event {
            // so messages take longer than ranks of two hosts come apart in some steps
            Event::ClockSampled { sample } => sample.rtt_us += 100,
            Event::RunCreated { spec: of_run } => spec = Some(Arc::clone(of_run)),
            _ => {}
        }
    }
    let text = |format| String::from_utf8(exported_of(&slow, format, &Selection::default()).0).unwrap();
    let lines = text("jsonl");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let last: BTreeMap<u64, Option<u64>> = lines
        .filter(|line| line["type"] == "allreduce")
        .map(|line| (line["step"].as_u64().unwrap(), line["last"].as_u64()))
        .collect();
    let named: BTreeSet<u64> =
        last.iter().filter(|(_, last)| last.is_some()).map(|(step, _)| *step).collect();
    assert!(last.len() == 160 && (1..160).contains(&named.len()), "{last:?}");

    let chrome: Value = serde_json::from_str(&text("chrome")).unwrap();
    let arrows = chrome["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "s");
    let arrows: Vec<u64> = arrows.map(|event| event["args"]["step"].as_u64().unwrap()).collect();
    assert_eq!(arrows.len(), 3 * named.len());
    assert_eq!(arrows.into_iter().collect::<BTreeSet<u64>>(), named);

    let horovod: Value = serde_json::from_str(&text("horovod")).unwrap();
    let (mut ticks, mut alone) = (Vec::new(), BTreeSet::new());
    for event in horovod.as_array().unwrap() {
        match event["ph"].as_str().unwrap() {
            "X" => ticks.push(event["ts"].as_i64().unwrap()),
            "E" if event["args"]["step"].is_u64() => {
                let latest = ticks.iter().max().copied().unwrap();
                if std::mem::take(&mut ticks).iter().filter(|at| **at == latest).count() == 1 {
                    alone.insert(event["args"]["step"].as_u64().unwrap());
                }
            }
            _ => {}
        }
    }
    assert_eq!(alone, named, "those that may have been the last come together");

    let mut analyzer = Analyzer::new(spec.unwrap(), Choice::default());
    for envelope in &slow {
        analyzer.take(envelope);
    }
    let report = analyzer.finish(None);
    // a first step that warms up is not judged
    let from = 160 - report.steps.judged;
    for (rank, of_rank) in (0..).zip(&report.ranks) {
        let of_it = last.iter().filter(|(step, last)| **step > from && **last == Some(rank));
        assert_eq!(of_rank.last_in, Some(of_it.count() as u64), "rank {rank}");
    }
}

#[test]
fn horovods_shape_negotiates_each_step_from_the_first_to_the_last_rank() {
    let whole: Value = serde_json::from_str(&text("horovod", &steps("5-8"))).unwrap();
    let events = whole.as_array().unwrap();
    assert_eq!(events[0]["args"]["start_time_since_epoch_in_micros"], START);
    let mut open: Vec<&str> = Vec::new();
    let (mut last, mut ticks, mut rounds) = (i64::MIN, BTreeSet::new(), 0);
    for event in events.iter().filter(|event| event["ph"] != "M") {
        let ts = event["ts"].as_i64().unwrap();
        assert!(ts >= last, "{event}");
        last = ts;
        if event["ph"] == "i" {
            continue;
        }
        assert_eq!(event["pid"], 1);
        match event["ph"].as_str().unwrap() {
            "B" => open.push(event["name"].as_str().unwrap()),
            "X" => {
                assert_eq!((&open[..], event["dur"].as_u64()), (&["NEGOTIATE_ALLREDUCE"][..], Some(0)));
                assert!(ticks.insert(event["name"].as_str().unwrap()));
            }
            "E" if open.pop() == Some("ALLREDUCE") => {
                assert_eq!(std::mem::take(&mut ticks), BTreeSet::from(["0", "1", "2", "3"]));
                rounds += 1;
            }
            _ => {}
        }
    }
    assert_eq!((rounds, open.len()), (4, 0));
    let cycles = events.iter().filter(|event| event["name"] == "CYCLE_START" && event["s"] == "g");
    assert_eq!(cycles.count(), 4);
    let empty: Value = serde_json::from_str(&text("horovod", &nothing())).unwrap();
    assert!(empty.as_array().unwrap().iter().all(|event| event["ph"] == "M"));
}

/// Families by name, with their samples: the labels and the value.
type Families = BTreeMap<String, (String, Vec<(String, f64)>)>;

fn families(text: &str) -> Families {
    let mut families = Families::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            help.split(' ').next().unwrap().clone_into(&mut name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let kind = kind.strip_prefix(&*name).unwrap().trim().to_owned();
            assert!(families.insert(name.clone(), (kind, Vec::new())).is_none(), "{name} is there twice");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(series.starts_with(&*name) && series.ends_with('}'), "{line}");
            let samples = &mut families.get_mut(&name).unwrap().1;
            samples.push((series[name.len()..].to_owned(), value.parse().unwrap()));
        }
    }
    families
}

#[test]
fn prometheus_has_totals_and_whole_histograms() {
    let text = text("prometheus", &Selection::default());
    let families = families(&text);
    let (kind, samples) = &families["hvtui_steps_total"];
    assert_eq!((kind.as_str(), samples.len(), samples[0].1), ("counter", 4, 160.0));
    assert!(samples[3].0.ends_with(",rank=\"3\"}"), "{samples:?}");
    let (kind, samples) = &families["hvtui_phase_seconds"];
    assert_eq!(kind, "histogram");
    let of = |what: &str| -> Vec<f64> {
        let is_it = |labels: &&(String, f64)| {
            labels.0.starts_with(what) && labels.0.contains("rank=\"2\",phase=\"forward\"")
        };
        samples.iter().filter(is_it).map(|(_, value)| *value).collect()
    };
    let buckets = of("_bucket");
    assert!(buckets.is_sorted() && buckets.len() == 19, "{buckets:?}");
    assert_eq!((buckets[18], of("_count")[0]), (160.0, 160.0));
    assert_eq!(buckets[8..10], [0.0, 160.0], "50 to 50.9 ms are within 0.1 s");
    let sum: u64 = (1..=160).map(|step| step_timing(step, HostTime(0), 2).phase_totals()[1]).sum();
    assert!((of("_sum")[0] - sum as f64 / 1e6).abs() < 1e-9);
    let phases: BTreeSet<&str> =
        samples.iter().filter_map(|(labels, _)| labels.split("phase=\"").nth(1)?.split('"').next()).collect();
    assert_eq!(phases.len(), 6, "the phases that are told");
    assert!((families["hvtui_gpu_utilization_ratio"].1[0].1 - 0.99).abs() < 1e-9);
    assert_eq!(families["hvtui_clock_uncertainty_seconds"].1.len(), 2);
    assert!(!text.contains("step="), "the step is no label");
    assert_eq!(self::text("prometheus", &nothing()), "");
}

/// CRC-32C bit by bit.
fn crc32c(data: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn number<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (number, rest) = bytes.split_at(N);
    *bytes = rest;
    number.try_into().unwrap()
}

/// The data of each record of a TFRecord file, with its checksums checked.
fn records(mut file: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let check = |data: &[u8], masked: u32| {
        let crc = masked.wrapping_sub(0xa282_ead8);
        assert_eq!(crc.rotate_left(15), crc32c(data));
    };
    while !file.is_empty() {
        let length = number::<8>(&mut file);
        check(&length, u32::from_le_bytes(number(&mut file)));
        let (data, rest) = file.split_at(u64::from_le_bytes(length) as usize);
        file = rest;
        check(data, u32::from_le_bytes(number(&mut file)));
        all.push(data);
    }
    all
}

#[derive(Debug, Clone, Copy)]
enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

/// The fields of a protobuf message with their numbers.
fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let [byte] = number(message);
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut all = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut message)),
            1 => Field::Fixed64(number(&mut message)),
            5 => Field::Fixed32(number(&mut message)),
            2 => {
                let length = varint(&mut message) as usize;
                let (bytes, rest) = message.split_at(length);
                message = rest;
                Field::Bytes(bytes)
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, field));
    }
    all
}

#[test]
fn tensorboards_file_has_the_scalars_of_each_rank() {
    let (file, report) = exported("tensorboard", &steps("5-"));
    let mut records = records(&file).into_iter();
    let version = fields(records.next().unwrap());
    assert!(matches!(version[..], [_, _, (3, Field::Bytes(b"brain.Event:2"))]), "{version:?}");
    let mut scalars: BTreeMap<String, BTreeMap<u64, f32>> = BTreeMap::new();
    let mut events = 0;
    for event in records.map(fields) {
        let [(1, Field::Fixed64(time)), (2, Field::Varint(step)), (5, Field::Bytes(summary))] = event[..]
        else {
            panic!("{event:?}")
        };
        let time = f64::from_le_bytes(time);
        assert!((0.9..41.0).contains(&(time - START as f64 / 1e6)), "{time}");
        for (_, value) in fields(summary) {
            let Field::Bytes(value) = value else { panic!("{value:?}") };
            let value = fields(value);
            let [(1, Field::Bytes(tag)), (2, Field::Fixed32(number))] = value[..] else {
                panic!("{value:?}")
            };
            let tag = std::str::from_utf8(tag).unwrap().to_owned();
            scalars.entry(tag).or_default().insert(step, f32::from_le_bytes(number));
        }
        events += 1;
    }
    assert_eq!((events, report.recorded), (4 * 156, 4 * 156));
    assert_eq!(scalars.len(), 4 * 4);
    let loss = &scalars["loss/rank_3"];
    assert_eq!((loss.len(), loss[&5], loss[&160]), (156, 0.2, 1.0 / 160.0));
    let timing = step_timing(7, HostTime(0), 1);
    assert!((scalars["step_seconds/rank_1"][&7] - timing.dur_us as f32 / 1e6).abs() < 1e-6);
    assert!((scalars["samples_per_second/rank_1"][&7] - 64e6 / timing.dur_us as f32).abs() < 1e-2);
    assert!(scalars["wait_seconds/rank_0"][&7] < 0.004_001);
    assert_eq!(self::records(&exported("tensorboard", &nothing()).0).len(), 1, "its version alone");
}

#[test]
fn parquet_has_the_rows_of_csv_by_their_types() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    for (name, as_csv) in [("parquet", "csv"), ("parquet-gpus", "csv-gpus")] {
        let (file, report) = exported(name, &Selection::default());
        let whole = text(as_csv, &Selection::default());
        let (head, wanted) = table(&whole);
        assert_eq!(wanted.len() as u64, report.recorded);
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let facts = reader.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(facts.iter().any(|fact| fact.key == "run" && fact.value.is_some()), "{facts:?}");
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), wanted.len());
        for (row, wanted) in rows.iter().zip(&wanted) {
            let cells: Vec<(&String, &Field)> = row.get_column_iter().collect();
            assert!(cells.iter().map(|(name, _)| name.as_str()).eq(head.iter().copied()));
            for ((name, field), wanted) in cells.into_iter().zip(wanted) {
                let told = match field {
                    Field::Null => String::new(),
                    Field::Long(value) => value.to_string(),
                    Field::Float(value) => value.to_string(),
                    Field::Str(text) => text.clone(),
                    Field::TimestampMicros(at) => hvtui::domain::time::Stamp(*at).rfc3339(),
                    other => panic!("{name}: {other:?}"),
                };
                assert_eq!(told, *wanted, "{name}");
            }
        }
        let empty = SerializedFileReader::new(bytes::Bytes::from(exported(name, &nothing()).0)).unwrap();
        assert_eq!(empty.metadata().file_metadata().num_rows(), 0);
    }
}

/// The messages of a file by their topics, as another reader reads them; all schemas are of objects and of one type a property.
fn rows(file: &[u8]) -> BTreeMap<String, Vec<(u64, Value)>> {
    let summary = mcap::Summary::read(file).unwrap().unwrap();
    for schema in summary.schemas.values() {
        assert_eq!(schema.encoding, "jsonschema");
        let text: Value = serde_json::from_slice(&schema.data).unwrap();
        assert_eq!(text["type"], "object", "{}", schema.name);
        let properties = text["properties"].as_object().unwrap();
        assert!(properties.values().all(|property| property["type"].is_string()), "{text}");
    }
    let mut topics: BTreeMap<String, Vec<(u64, Value)>> = BTreeMap::new();
    for message in mcap::MessageStream::new(file).unwrap() {
        let message = message.unwrap();
        let schema = message.channel.schema.as_ref().unwrap();
        let schema: Value = serde_json::from_slice(&schema.data).unwrap();
        let row: Value = serde_json::from_slice(&message.data).unwrap();
        for name in row.as_object().unwrap().keys() {
            assert!(schema["properties"].get(name).is_some(), "{name} of {}", message.channel.topic);
        }
        topics.entry(message.channel.topic.clone()).or_default().push((message.log_time, row));
    }
    topics
}

#[test]
fn mcap_in_rows_has_a_topic_a_rank_gpu_and_host() {
    let (file, report) = exported("mcap", &Selection::default());
    let topics = rows(&file);
    assert_eq!(topics.values().map(|rows| rows.len() as u64).sum::<u64>(), report.recorded);
    let steps = &topics["/rank_3/step"];
    assert_eq!(steps.len(), 160);
    let (at, row) = steps.iter().find(|(_, row)| row["step"] == 9).unwrap();
    let timing = step_timing(9, HostTime(0), 3);
    assert_eq!((&row["dur_us"], &row["samples"]), (&timing.dur_us.into(), &64.into()));
    assert_eq!(row["wait_us"], timing.phase_totals()[3]);
    let end_us = row["start_us"].as_f64().unwrap() + f64::from(timing.dur_us);
    assert!((*at as f64 / 1e3 - START as f64 - end_us).abs() < 2.0, "a step stands at its end: {at} {row}");
    let lines = &topics["/rank_1/log"];
    assert_eq!(lines.len(), 40);
    let warning = lines.iter().find(|(_, row)| row["message"] == "WARNING slow loader").unwrap();
    assert_eq!((&warning.1["level"], &warning.1["name"]), (&3.into(), &"rank 1".into()));
    let (gpu, host) = (&topics["/gpu/gpu-b/1"][0].1, &topics["/host/gpu-b"][0].1);
    assert!(gpu["util"].is_u64() && gpu["memory_used"].is_u64(), "{gpu}");
    assert!(host["cpu_percent"].is_f64(), "{host}");
    let run = mcap::Summary::read(&file).unwrap().unwrap().metadata_indexes;
    assert_eq!(run.len(), 1, "which run it is");
    let (empty, _) = exported("mcap", &nothing());
    assert!(rows(&empty).is_empty());
}

#[test]
fn an_asciicast_has_the_lines_at_their_times() {
    let text = text("asciicast", &Selection { ranks: Some(vec![Rank(1)]), ..Selection::default() });
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    assert_eq!((&head["version"], &head["term"]["cols"]), (&3.into(), &120.into()));
    assert_eq!(head["timestamp"], START / 1_000_000 + 1, "when the first line came");
    let events: Vec<Value> = lines.collect();
    assert_eq!(events.len(), 40 + 1);
    assert_eq!(events[0], serde_json::json!([0.0, "o", "[1] step 0 loss 0.5\r\n"]));
    assert_eq!(events[3], serde_json::json!([1.0, "o", "[1] WARNING slow loader\r\n"]));
    assert_eq!(events[40], serde_json::json!([0.0, "x", "0"]));
    assert_eq!(self::text("asciicast", &nothing()).lines().count(), 1, "its head alone");
}

#[test]
fn json_lines_tell_steps_phases_and_whatever_else_happened() {
    let whole = text("jsonl", &Selection::default());
    let lines: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, rest) = lines.split_first().unwrap();
    assert_eq!(
        (&first["type"], &first["ranks"], &first["origin_unix_us"]),
        (&"run".into(), &4.into(), &START.into())
    );
    assert_eq!(first["clocks"][1]["host"], "gpu-b");
    let of = |kind: &str| rest.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    let counts = ["step", "phase", "allreduce", "line", "host", "gpu"].map(|kind| of(kind).len());
    assert_eq!(counts, [640, 640 * 6, 160, 160, 80, 160]);

    // as the table of steps has it
    let csv = text("csv", &Selection::default());
    let (head, rows) = table(&csv);
    let column =
        |row: &[&str], name: &str| row[head.iter().position(|cell| *cell == name).unwrap()].to_owned();
    for (row, step) in rows.iter().zip(of("step")) {
        for name in ["step", "rank", "dur_us", "data_us", "wait_us", "hidden_us", "samples"] {
            assert_eq!(column(row, name), step[name].to_string(), "{name} of {step}");
        }
        assert_eq!(
            (column(row, "host"), column(row, "at")),
            (step["host"].as_str().unwrap().into(), step["at"].as_str().unwrap().into())
        );
    }
    let phases = of("phase");
    let of_step =
        |step: u64, rank: u32| phases.iter().filter(move |line| line["step"] == step && line["rank"] == rank);
    let names: Vec<&str> = of_step(9, 3).map(|line| line["phase"].as_str().unwrap()).collect();
    assert_eq!(names, ["data", "forward", "backward", "wait", "transfer", "optimizer"]);
    let step = of("step").into_iter().find(|line| line["step"] == 9 && line["rank"] == 3).unwrap();
    let begins: Vec<f64> = of_step(9, 3).map(|line| line["time_us"].as_f64().unwrap()).collect();
    assert_eq!(Some(begins[0]), step["time_us"].as_f64());
    assert!(begins.is_sorted(), "{begins:?}");
    let least = |step: u64| {
        (0..4).min_by_key(|rank| step_timing(step, HostTime(0), *rank).phase_totals()[3]).unwrap()
    };
    for allreduce in of("allreduce") {
        assert_eq!(allreduce["last"], least(allreduce["step"].as_u64().unwrap()), "{allreduce}");
        assert_eq!(allreduce["came"].as_array().unwrap().len(), 4);
    }
    let warning =
        of("line").into_iter().find(|line| line["rank"] == 1 && line["level"] == "warning").unwrap();
    assert_eq!((&warning["text"], &warning["stream"]), (&"WARNING slow loader".into(), &"out".into()));
    let gpu = of("gpu").into_iter().find(|line| line["rank"] == 3).unwrap();
    assert!(gpu["gpu"] == 1 && gpu["uuid"] == "GPU-3" && gpu["power_mw"] == 650_123, "{gpu}");
    assert!(gpu.get("pcie_rx_bytes_per_s").is_none(), "what failed is left out");
    let events: Vec<&str> = of("event").iter().map(|line| line["event"]["type"].as_str().unwrap()).collect();
    assert_eq!(events, ["link_changed", "link_changed", "run_created", "stage_entered", "run_ended"]);

    let one = text("jsonl", &Selection { ranks: Some(vec![Rank(3)]), ..steps("9-10") });
    let one: Vec<Value> = one.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = one.iter().filter(|line| line["type"] == "step").map(|line| line["step"].as_u64().unwrap());
    assert_eq!(told.collect::<Vec<_>>(), [9, 10]);
    assert!(one.iter().all(|line| line["rank"].is_null() || line["rank"] == 3));
    assert!(one.iter().all(|line| line["host"].is_null() || line["host"] == "gpu-b"));
    assert_eq!(text("jsonl", &nothing()).lines().count(), 1, "the run alone");
}
