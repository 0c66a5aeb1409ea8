//! Event files of TensorBoard: hvtui's own export, and folders as writers of several ranks leave them.

use std::collections::BTreeMap;
use std::path::Path;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::time::Stamp;
use hvtui::domain::timing::Phase;
use hvtui::record::Reader;
use serde_json::json;

use super::{imported, left_out, said, steps};
use crate::json_forms::assert_fits;
use crate::local_runs::Person;
use crate::record::{events, write};

/// The numbers that ranks reported: when, by whom, at which step, which.
fn numbers(path: &Path) -> Vec<(Stamp, u32, Option<u64>, String, f64)> {
    let reader = Reader::open(path).unwrap();
    let all = reader.envelopes(..).map(Result::unwrap);
    let numbers = all.filter_map(|envelope| match (envelope.origin, envelope.event) {
        (Origin::Rank(_, rank), Event::MetricReported { name, value, step }) => {
            Some((envelope.at, rank.0, step, name, value))
        }
        _ => None,
    });
    numbers.collect()
}

#[test]
fn hvtuis_own_scalars_come_back_as_they_were() {
    let person = Person::new(1);
    let path = |name: &str| person.home().join(name);
    let mut run = Vec::new();
    for envelope in events::run(3, 10) {
        let told = match (&envelope.origin, &envelope.event) {
            (Origin::Rank(..), Event::StepDone { timing }) => Some(timing.step),
            _ => None,
        };
        let Envelope { at, origin, .. } = &envelope;
        let number = told.map(|step| {
            let event = Event::MetricReported {
                name: "val/accuracy".into(),
                value: step as f64 / 64.0,
                step: Some(step),
            };
            Envelope { seq: 0, at: *at, origin: origin.clone(), event }
        });
        run.push(envelope);
        run.extend(number);
    }
    for (seq, envelope) in (1..).zip(&mut run) {
        envelope.seq = seq;
    }
    write(&path("own.mcap"), &run);
    said(&person.run(&["export", "own.mcap", "--to", "tensorboard", "-o", "logs"]));
    let told = imported(&person, &["logs", "-o", "back.mcap"]);
    assert_eq!((&told["format"], &told["ranks"]), (&"tensorboard".into(), &3.into()));
    assert_eq!((&told["steps"]["count"], &told["steps"]["last"]), (&40.into(), &40.into()));
    let open = |name: &str| Reader::open(&path(name)).unwrap();
    let told = |reader: &Reader| {
        let steps = steps(reader).into_iter().map(|(key, step)| {
            (key, (step.dur_us, step.loss, step.samples, step.phase_totals()[Phase::Wait.index()]))
        });
        steps.collect::<BTreeMap<(Rank, u64), _>>()
    };
    assert_eq!(told(&open("own.mcap")), told(&open("back.mcap")));
    let unordered = |name: &str| {
        let mut all: Vec<_> = numbers(&path(name))
            .into_iter()
            .map(|(_, rank, step, name, value)| (step, rank, name, value))
            .collect();
        all.sort_by_key(|number| (number.0, number.1));
        all
    };
    assert_eq!(unordered("own.mcap"), unordered("back.mcap"));
    assert_eq!(unordered("back.mcap").len(), 3 * 40);
    // and they are exported as before
    said(&person.run(&["export", "back.mcap", "--to", "tensorboard", "-o", "again"]));
    let again = imported(&person, &["again", "-o", "third.mcap"]);
    assert_eq!(again["steps"]["count"], 40);
    assert_eq!(told(&open("back.mcap")), told(&open("third.mcap")));
    assert_eq!(numbers(&path("back.mcap")), numbers(&path("third.mcap")));
    let report = said(&person.run(&["report", "back.mcap"]));
    let row = "  val/accuracy              0    0.0156    0.0156    0.6250    0.6250        40\n";
    assert!(report.contains("\nMetrics ") && report.contains(row), "{report}");
}

pub(super) fn crc(data: &[u8]) -> [u8; 4] {
    let mut crc = !0_u32;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &crc(&length), data, &crc(data)].concat()
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[(number << 3) | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

fn event(wall: f64, step: u8, value: &[u8]) -> Vec<u8> {
    record(&[&[9][..], &wall.to_le_bytes(), &[16, step], &field(5, &field(1, value))].concat())
}

/// As TensorFlow 2 writes a scalar.
fn tensor(tag: &str, number: f32) -> Vec<u8> {
    let tensor = [&[8, 1, 18, 0][..], &field(4, &number.to_le_bytes())].concat();
    [field(1, tag.as_bytes()), field(9, &field(1, &field(1, b"scalars"))), field(8, &tensor)].concat()
}

fn simple(tag: &str, number: f32) -> Vec<u8> {
    [field(1, tag.as_bytes()), vec![21], number.to_le_bytes().to_vec()].concat()
}

const WALL: f64 = 1_795_000_000.0;

fn file(events: &[Vec<u8>]) -> Vec<u8> {
    let version = record(&[&[9][..], &WALL.to_le_bytes(), &field(3, b"brain.Event:2")].concat());
    [version, events.concat()].concat()
}

#[test]
fn folders_name_ranks_and_a_killed_writer_leaves_what_it_wrote() {
    let person = Person::new(1);
    let folder = |name: &str| {
        std::fs::create_dir_all(person.home().join(name)).unwrap();
        person.home().join(name).join("events.out.tfevents.1.a.2.0")
    };
    let zero = [event(WALL + 1.0, 1, &tensor("loss", 0.5)), event(WALL + 3.0, 2, &tensor("loss", 0.25))];
    std::fs::write(folder("log/rank_0"), file(&zero)).unwrap();
    let image = field(1, b"picture");
    let mut cut = file(&[
        event(WALL + 2.0, 1, &simple("loss", 0.75)),
        event(WALL + 2.5, 1, &image),
        event(WALL + 4.0, 2, &simple("loss", 0.125)),
    ]);
    let length = cut.len();
    cut.truncate(length - 3);
    std::fs::write(folder("log/rank_2"), cut).unwrap();
    std::fs::write(folder("log/validation"), file(&[event(WALL + 2.25, 1, &tensor("loss", 2.0))])).unwrap();
    std::fs::write(person.home().join("log/notes.txt"), "not looked at").unwrap();
    let told = imported(&person, &["log", "-o", "back.mcap"]);
    assert_eq!(
        (&told["ranks"], &told["told_ranks"], &told["steps"]["count"]),
        (&3.into(), &2.into(), &0.into())
    );
    assert_eq!(told["created"], "2026-11-18T11:06:41.000Z");
    assert_eq!(left_out(&told, "values that are no scalars"), Some(1));
    let files = told["files"].as_array().unwrap();
    assert_eq!(
        files.iter().map(|file| &file["rank"]).collect::<Vec<_>>(),
        [&0.into(), &2.into(), &serde_json::Value::Null]
    );
    assert_eq!(files[0]["cut"], serde_json::Value::Null);
    assert!(files[1]["cut"]["byte"].as_u64().unwrap() < length as u64 - 3, "{told:#}");
    let at = |seconds: f64| Stamp(((WALL + seconds) * 1e6) as i64);
    let number =
        |seconds, rank, step, name: &str, value| (at(seconds), rank, Some(step), name.to_owned(), value);
    assert_eq!(
        numbers(&person.home().join("back.mcap")),
        [
            number(1.0, 0, 1, "loss", 0.5),
            number(2.0, 2, 1, "loss", 0.75),
            number(2.25, 0, 1, "validation/loss", 2.0),
            number(3.0, 0, 2, "loss", 0.25),
        ]
    );
    let list = said(&person.run(&["report", "back.mcap"]));
    assert!(list.contains("imported: TensorBoard's scalars"), "{list}");
    // one without a number
    std::fs::write(person.home().join("empty"), file(&[])).unwrap();
    let out = person.run(&["import", "empty"]);
    assert_eq!(out.status.code(), Some(65), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("event files without a scalar"), "{out:?}");
}

#[test]
fn a_loss_that_becomes_nan_is_the_first_thing_that_a_report_tells() {
    let person = Person::new(1);
    let loss = |step: u8| if step < 30 { 2.5 - f32::from(step) / 64.0 } else { f32::NAN };
    let events = (0..50).map(|step| event(WALL + f64::from(step), step, &simple("train/loss", loss(step))));
    std::fs::create_dir(person.home().join("log")).unwrap();
    std::fs::write(person.home().join("log/events.out.tfevents.1.a.2.0"), file(&events.collect::<Vec<_>>()))
        .unwrap();
    imported(&person, &["log", "-o", "back.mcap"]);
    let json = assert_fits("run-report", &person.run(&["report", "back.mcap", "--json"]));
    let metric = &json["metrics"][0];
    assert_eq!(
        (&metric["count"], &metric["last"], &metric["last_step"]),
        (&30.into(), &2.046_875.into(), &29.into())
    );
    let not_finite = json!({ "count": 20, "from_step": 30, "to_step": 49, "ends_as": "NaN" });
    assert_eq!(metric["not_finite"], not_finite);
    let finding = &json["findings"][0];
    assert_eq!(finding["words"], "train/loss is NaN from step 30 on");
    assert_eq!(
        (&finding["steps"]["from_step"], &finding["place"]["at"]),
        (&30.into(), &"2026-11-18T11:07:10.000Z".into())
    );
    let report = said(&person.run(&["report", "back.mcap"]));
    let row = "  train/loss                0    2.5000    2.0469    2.5000       NaN        49\n";
    assert!(report.contains("1. train/loss is NaN from step 30 on\n") && report.contains(row), "{report}");
    let page = said(&person.run(&["report", "back.mcap", "--html", "-"]));
    assert!(page.contains("<td>NaN</td><td>49</td>"), "{page}");
}
