//! What is no trace, or not a whole one: it is said, with the file, what it is and what is read; and nothing is left of it.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::{fixture, imported, left_out};
use crate::common::in_time::OutputInTime;
use crate::local_runs::Person;

/// What an import says that fails.
fn refused(person: &Person, name: &str, bytes: &[u8]) -> String {
    std::fs::write(person.home().join(name), bytes).unwrap();
    let out = person.run(&["import", name]);
    let words = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(65), "{words}");
    assert!(words.starts_with(&format!("hvtui: {name}: ")) && out.stdout.is_empty(), "{words}");
    assert!(!person.home().join(".local/state/hvtui/runs").exists(), "nothing is left");
    words
}

#[test]
fn what_is_no_trace_is_named_with_what_is_read() {
    let person = Person::new(1);
    for (name, bytes, what) in [
        (
            "notes.txt",
            &b"dear diary, \x1b[31mred\nsecond"[..],
            "no JSON list or object, it begins with `dear diary, ␛[31mred`",
        ),
        ("config.json", b"{\"traceEvents\": 7, \"a\": [1, 2]}", "a JSON object without `traceEvents`"),
        (
            "numbers.json",
            b"[1, 2, \"x\", [3]]",
            "JSON without a trace event: none of its 4 values is an object that is read",
        ),
        ("one.json", b"[[[[7]]]]", "JSON without a trace event: its one value is not an object that is read"),
        (
            "browser.json",
            br#"[{"ph":"X","name":"paint","cat":"gfx","ts":1,"dur":2,"pid":1}]"#,
            "a trace with 1 events, none of which is known",
        ),
        ("rows.json", b"[{\"ph\":1},{\"ph\" oops},{]}", "events"),
        (
            "run.mcap",
            b"\x89MCAP0\r\n",
            "`hvtui report` and `hvtui replay` take a recording of hvtui as it is",
        ),
        ("broken.zst", b"\x28\xb5\x2f\xfd\0\0", "can't be unpacked"),
        // a window of 2 GiB
        ("wide.zst", b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", "can't be unpacked"),
        ("broken.gz", b"\x1f\x8b\x08\0", "can't be unpacked"),
    ] {
        let words = refused(&person, name, bytes);
        assert!(words.contains(what), "{name}: {words}");
        if name != "run.mcap" {
            assert!(
                words.contains("`hvtui import` reads a timeline of Horovod, a trace of torch's profiler"),
                "{words}"
            );
        }
    }
    let missing = person.run(&["import", "gone.json"]);
    assert_eq!(missing.status.code(), Some(74), "{missing:?}");
}

#[test]
fn a_timeline_without_a_collective_says_so() {
    let person = Person::new(1);
    for (name, text) in [("empty", ""), ("blank", " \n")] {
        let words = refused(&person, name, text.as_bytes());
        assert!(
            words.contains(": empty: nothing was written into it; `hvtui import` reads"),
            "{name}: {words}"
        );
    }
    for (name, text) in [("open", "[\n"), ("closed", "[]"), ("comma", "[ , ")] {
        let words = refused(&person, name, text.as_bytes());
        assert!(words.contains("no collective was recorded"), "{name}: {words}");
    }
    let started = r#"[{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":1795225431312767}},
        {"ph":"i","name":"CYCLE_START","ts":926,"s":"g"},"#;
    let words = refused(&person, "started", started.as_bytes());
    assert!(words.contains("no collective was recorded, turns of Horovod's loop alone: 1"), "{words}");
}

#[test]
fn a_packed_file_is_read_up_to_where_it_is_cut() {
    let person = Person::new(1);
    let text = std::fs::read(fixture("horovod.json")).unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&text).unwrap();
    let packed = encoder.finish().unwrap();
    let path = |name: &str| person.home().join(name);
    // a name tells nothing
    std::fs::write(path("whole.txt"), &packed).unwrap();
    let whole = imported(&person, &["whole.txt", "-o", "whole.mcap"]);
    assert_eq!((&whole["files"][0]["packed"], &whole["files"][0]["cut"]), (&true.into(), &Value::Null));
    assert_eq!(whole["files"][0]["bytes"], text.len());
    std::fs::write(path("cut.gz"), &packed[..packed.len() * 3 / 4]).unwrap();
    let cut = imported(&person, &["cut.gz", "-o", "cut.mcap"]);
    let place = &cut["files"][0]["cut"];
    let byte = place["byte"].as_u64().unwrap() as usize;
    assert!((text.len() / 3..text.len()).contains(&byte), "{place}");
    assert!(text[byte..].starts_with(b"{"), "an event begins there");
    let reason = place["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("it can't be unpacked any further: ") && reason.contains(" ms after"),
        "{reason}"
    );
    assert!(cut["steps"]["count"].as_u64() < whole["steps"]["count"].as_u64(), "{cut:#}");
    let words = super::said(&person.run(&["import", "cut.gz"]));
    assert!(words.contains(&format!("cut.gz: read up to byte {byte}: ")), "{words}");
    // bytes that were written over: behind the first step, and before it
    let damaged = |at: usize| {
        let mut wrong = packed.clone();
        wrong[at..at + 8].fill(0xff);
        wrong
    };
    std::fs::write(path("late.gz"), damaged(packed.len() * 3 / 4)).unwrap();
    let late = imported(&person, &["late.gz", "-o", "late.mcap"]);
    assert!(late["files"][0]["cut"]["byte"].is_u64(), "{late:#}");
    let words = refused(&Person::new(1), "early.gz", &damaged(packed.len() / 2));
    assert!(
        words.contains("no collective of a step was recorded") && words.contains("; read up to byte "),
        "{words}"
    );
}

#[test]
fn a_file_packed_by_zstd_is_read_as_one_by_gzip() {
    let person = Person::new(1);
    let text = std::fs::read(fixture("horovod.json")).unwrap();
    let path = |name: &str| person.home().join(name);
    // in frames, as it is where files that `zstd` packed are put together
    let frames = text.chunks(text.len() / 16 + 1).map(|part| zstd::encode_all(part, 3).unwrap());
    let packed = frames.collect::<Vec<_>>().concat();
    std::fs::write(path("before.json.zst"), &packed).unwrap();
    let whole = imported(&person, &["before.json.zst", "-o", "whole.mcap"]);
    assert_eq!((&whole["files"][0]["packed"], &whole["files"][0]["cut"]), (&true.into(), &Value::Null));
    assert_eq!((&whole["files"][0]["bytes"], &whole["name"]), (&text.len().into(), &"before".into()));
    let plain = imported(&person, &[&fixture("horovod.json"), "-o", "plain.mcap"]);
    assert_eq!((&whole["steps"], &whole["waits"]), (&plain["steps"], &plain["waits"]));
    std::fs::write(path("cut.zst"), &packed[..packed.len() - 9]).unwrap();
    let cut = imported(&person, &["cut.zst", "-o", "cut.mcap"]);
    let place = &cut["files"][0]["cut"];
    assert!(place["byte"].as_u64().unwrap() as usize >= text.len() * 3 / 4, "{place}");
    assert!(place["reason"].as_str().unwrap().starts_with("it can't be unpacked any further: "), "{place}");
}

/// A timeline of two ranks and so many steps, each of 1000 µs, of one tensor.
fn timeline(steps: u64, beside: impl Fn(u64) -> Option<String>) -> String {
    let mut text = String::from("[\n");
    for step in 0..steps {
        let at = 1_000 * step;
        for event in [
            json!({ "ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": at + 500, "pid": 1 }),
            json!({ "ph": "X", "name": "0", "ts": at + 500, "pid": 1, "dur": 0 }),
            json!({ "ph": "X", "name": "1", "ts": at + 700, "pid": 1, "dur": 0 }),
            json!({ "ph": "E", "ts": at + 700, "pid": 1 }),
            json!({ "ph": "B", "name": "ALLREDUCE", "ts": at + 700, "pid": 1 }),
            json!({ "ph": "E", "ts": at + 900, "pid": 1 }),
        ] {
            let _ = writeln!(text, "{event},");
        }
        text.extend(beside(step));
    }
    text
}

#[test]
fn nesting_and_size_have_bounds_and_cost_no_memory() {
    let person = Person::new(1);
    let deep = 3_000_000;
    let words = refused(&person, "deep.json", "[".repeat(deep).as_bytes());
    assert!(words.contains("JSON without a trace event: its first value does not end"), "{words}");
    let objects = refused(&person, "objects.json", "{\"a\":".repeat(deep / 5).as_bytes());
    assert!(objects.contains("without `traceEvents`"), "{objects}");
    let text = timeline(6, |step| match step {
        1 => Some(format!("{{\"ph\":\"B\",\"args\":{}{}}},\n", "[".repeat(500_000), "]".repeat(500_000))),
        2 => Some(format!("{{\"ph\":\"B\",\"name\":\"{}\"}},\n", "x\\\"".repeat(20_000_000))),
        3 => Some("{\"ph\":\"B\" \"name\"},\n7,\n[{}],\n}:,\n".to_owned()),
        _ => None,
    });
    std::fs::write(person.home().join("large.json"), text).unwrap();
    // the program and its libraries take 130 M of addresses, the largest event alone would take 60
    let command = format!(
        "ulimit -v 170000; exec {} import large.json -o large.mcap --json",
        crate::common::program::hvtui()
    );
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &command]).current_dir(person.home()).env_clear();
    limited.env("HOME", person.home()).env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8");
    let out = limited.output_in_time().unwrap();
    let told = crate::json_forms::assert_fits("import", &out);
    assert_eq!((&told["steps"]["count"], &told["steps"]["with_waits"]), (&6.into(), &6.into()), "{told:#}");
    assert_eq!(left_out(&told, "events that can't be read"), Some(7), "{told:#}");
}

#[test]
fn a_clock_that_runs_backwards_makes_no_negative_time() {
    let person = Person::new(1);
    let text = timeline(6, |step| {
        (step == 2).then(|| {
            let event =
                |ts: Value| format!("{},\n", json!({ "ph": "i", "name": "CYCLE_START", "ts": ts, "s": "g" }));
            event(json!(-5))
                + &event(json!(4_000_000_000_000_000_u64))
                + &event(json!("soon"))
                + &event(json!(1.5))
        })
    });
    // the fifth step is told as if it were the first
    let text = text.replace("\"ts\":4500", "\"ts\":500").replace("\"ts\":4700", "\"ts\":100");
    std::fs::write(person.home().join("back.json"), text).unwrap();
    let told = imported(&person, &["back.json", "-o", "back.mcap"]);
    assert_eq!(told["steps"]["count"], 6);
    // those of the fifth step but its last one, and the mark
    assert_eq!(left_out(&told, "events whose time is earlier"), Some(6), "{told:#}");
    assert_eq!(left_out(&told, "events without a time"), Some(3), "{told:#}");
    let why = told["left_out"].as_array().unwrap().iter().find(|one| one["count"] == 6).unwrap();
    assert!(why["why"].as_str().unwrap().starts_with("by up to 3.8 ms: "), "{why}");
    let reader = hvtui::record::Reader::open(&person.home().join("back.mcap")).unwrap();
    let mut last = None;
    for envelope in reader.envelopes(..).map(Result::unwrap) {
        assert!(last.is_none_or(|last| last <= envelope.at), "{envelope:?}");
        last = Some(envelope.at);
    }
    let all = super::steps(&reader);
    assert!(all.values().all(|timing| timing.dur_us <= 2_000), "{all:?}");
    assert_eq!(all.len(), 12);
}

/// A frame of zstd that says so many times how often a byte comes: 4 bytes for 128 KiB (RFC 8878, 3.1.1.2: RLE blocks).
fn packed_2_g(byte: u8) -> Vec<u8> {
    const BLOCK: u32 = 128 << 10;
    // a window of 128 KiB, no size, no checksum
    let mut frame = b"\x28\xb5\x2f\xfd\x00\x38".to_vec();
    for block in (0..2 << 30_u64).step_by(BLOCK as usize) {
        let is_last = block + u64::from(BLOCK) >= 2 << 30;
        let head = BLOCK << 3 | 1 << 1 | u32::from(is_last);
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(byte);
    }
    frame
}

#[test]
fn two_gigabytes_of_brackets_are_refused_before_they_are_read() {
    let person = Person::new(1);
    for (name, byte) in [("lists.json.zst", b'['), ("objects.json.zst", b'{')] {
        std::fs::write(person.home().join(name), packed_2_g(byte)).unwrap();
        // less than the text takes
        let import = format!("ulimit -v 1500000; exec \"$0\" import {name}");
        let program = crate::common::program::hvtui();
        let mut command = std::process::Command::new("timeout");
        command.args(["-k", "5", "60", "sh", "-c", &import, program]);
        command
            .current_dir(person.home())
            .env_clear()
            .env("LANG", "C.UTF-8")
            .env("HOME", person.home())
            .env("PATH", "/usr/bin:/bin");
        let out = command.output_in_time().unwrap();
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(65), "{words}");
        assert!(words.contains(name) && words.contains("JSON"), "{words}");
        let place = match byte {
            b'[' => "read up to byte 1: more than 16 M of it are nested deeper than 64",
            _ => "a JSON object without `traceEvents`",
        };
        assert!(words.contains(place), "{words}");
    }
}
