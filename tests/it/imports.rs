//! `hvtui import` by the real binary: files that Horovod wrote, hvtui's own exports, traces in the shape of torch's profiler, and
//! what is no trace or not a whole one.

mod bad;
mod chrome;
mod folders;
mod kineto;
mod kineto_folders;
mod kineto_work;
mod nccl_inspector;
mod slices;
mod tensorboard;

use std::collections::BTreeMap;
use std::fs::{File, FileTimes};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hvtui::domain::event::{Event, Origin};
use hvtui::domain::ids::{HostId, Rank};
use hvtui::domain::run::Slot;
use hvtui::domain::timing::{Phase, StepTiming};
use hvtui::record::{Player, Reader};
use serde_json::Value;

use crate::common::in_time::OutputInTime;
use crate::common::terminal::Terminal;
use crate::json_forms::{assert_fits, assert_value_fits};
use crate::local_runs::Person;
use crate::record::{events, write};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/imports").join(name);
    path.to_str().unwrap().to_owned()
}

fn said(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn imported(person: &Person, args: &[&str]) -> Value {
    assert_fits("import", &person.run(&[&["import", "--json"], args].concat()))
}

/// Steps by rank and number.
fn steps(reader: &Reader) -> BTreeMap<(Rank, u64), StepTiming> {
    let envelopes = reader.envelopes(..).map(Result::unwrap);
    let steps = envelopes.filter_map(|envelope| match (envelope.origin, envelope.event) {
        (Origin::Rank(_, rank), Event::StepDone { timing }) => Some(((rank, timing.step), (*timing).clone())),
        _ => None,
    });
    steps.collect()
}

/// Why something is left out.
fn why(told: &Value, what: &str) -> String {
    let all = told["left_out"].as_array().unwrap();
    let one = all.iter().find(|one| one["what"].as_str().unwrap().starts_with(what));
    one.map(|one| one["why"].as_str().unwrap().to_owned()).unwrap_or_default()
}

fn left_out(told: &Value, what: &str) -> Option<u64> {
    let all = told["left_out"].as_array().unwrap();
    all.iter()
        .find(|one| one["what"].as_str().unwrap().starts_with(what))
        .map(|one| one["count"].as_u64().unwrap())
}

/// The table of waits, from its head to the line behind it.
fn waits_of(text: &str) -> &str {
    let from = text.find("Waits by rank").unwrap_or_else(|| panic!("{text}"));
    let table = &text[from..];
    &table[..table.find("\n\n").unwrap_or(table.len())]
}

#[test]
fn the_waits_of_a_horovod_timeline_are_in_its_reports() {
    let person = Person::new(1);
    let file = fixture("horovod.json");
    let at_import = said(&person.run(&["import", &file, "--name", "kept"]));
    let table = waits_of(&at_import);
    assert!(table.lines().count() > 4 && table.contains("RANK   LAST"), "{at_import}");
    // of the file itself, and of the run that was made of it
    for run in [file.as_str(), "kept"] {
        let report = said(&person.run(&["report", run]));
        assert_eq!(waits_of(&report), table, "{report}");
        let json = assert_fits("run-report", &person.run(&["report", run, "--json"]));
        let ranks = json["waits"]["ranks"].as_array().unwrap();
        assert_eq!((ranks.len(), &json["waits"]["clock"].is_string()), (2, &true));
        let last: u64 = ranks.iter().map(|rank| rank["last_in"].as_u64().unwrap()).sum();
        assert_eq!(last, json["waits"]["told"].as_u64().unwrap(), "one rank came last to each: {json}");
        let page = said(&person.run(&["report", run, "--html", "-"]));
        assert!(page.contains("<h2>Waits by rank, of "), "{page}");
    }
    // a second time it is there already, and under another name it is another one
    let again = person.run(&["import", &file, "--name", "kept"]);
    let words = String::from_utf8(again.stderr).unwrap();
    assert!(again.status.success() && words.contains("this is there already as run "), "{words}");
    let count = || String::from_utf8_lossy(&person.run(&["runs", "--local"]).stdout).lines().count() - 1;
    assert_eq!(count(), 1);
    let name = words.rsplit(' ').next().unwrap().trim();
    assert!(said(&person.run(&["report", name])).contains("Waits by rank"), "{words}");
    person.run(&["import", &file, "--name", "other"]);
    assert_eq!(count(), 2);
    // the file alone has all of it, wherever it is copied to, and a repaired one too
    person.run(&["import", &file, "-o", "out.mcap"]);
    let whole = std::fs::read(person.home().join("out.mcap")).unwrap();
    for (name, bytes) in [("copied.mcap", &whole[..]), ("cut.mcap", &whole[..whole.len() - 40])] {
        let elsewhere = Person::new(1);
        std::fs::write(elsewhere.home().join(name), bytes).unwrap();
        elsewhere.run(&["runs", "check", name, "--repair"]);
        assert_eq!(waits_of(&said(&elsewhere.run(&["report", name]))), table, "{name}");
    }
}

#[test]
fn a_file_of_another_program_is_looked_at_without_being_kept() {
    let person = Person::new(1);
    let file = fixture("horovod.json");
    let told = person.run(&["report", &file, "--json"]);
    let report = assert_fits("run-report", &told);
    assert_eq!((&report["name"], &report["steps"]["last"]), (&"horovod".into(), &3.into()));
    let hints = String::from_utf8(told.stderr).unwrap();
    let hint = format!("hvtui: {file} is read as horovod; `hvtui import {file}` keeps it among the runs\n");
    assert!(hints.starts_with(&hint) && hints.contains(" are left out or unknown; "), "{hints}");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(person.home().join("cut.json"), &whole[..whole.len() * 2 / 3]).unwrap();
    let cut = person.run(&["report", "cut.json"]);
    let words = String::from_utf8(cut.stderr).unwrap();
    assert!(cut.status.success() && words.contains(": read up to byte "), "{words}");
    let rows = said(&person.run(&["export", &file, "--to", "csv"]));
    assert_eq!(rows.lines().count(), 1 + 2 * 3, "{rows}");
    let diff = said(&person.run(&["diff", &file, &fixture("horovod-killed.json")]));
    assert!(diff.contains("horovod"), "{diff}");
    let wrong = person.run(&["report", "/etc/passwd"]);
    assert_eq!(wrong.status.code(), Some(65), "{wrong:?}");
    assert!(String::from_utf8(wrong.stderr).unwrap().starts_with("hvtui: /etc/passwd: no JSON list"));
    let listed: Value = serde_json::from_str(&said(&person.run(&["runs", "--local", "--json"]))).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(0), "{listed}");
    let temporary = person.home().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut shows = Command::new(crate::common::program::hvtui());
    shows.args(["replay", &file]).env("HOME", person.home()).env("TMPDIR", &temporary);
    let Some(ui) = Terminal::start(&shows, 100, 30) else { return };
    ui.wait("the replay", |screen| screen.contains(" Replay ") && screen.contains("step 3"));
    ui.press(&["q"]);
    let screen = ui.assert_restored(0);
    assert!(screen.contains("is read as horovod"), "{screen}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "what was made for the replay is gone");
    // a note is not lost
    let Some(ui) = Terminal::start(&shows, 100, 30) else { return };
    ui.wait("the replay", |screen| screen.contains(" Replay ") && screen.contains("step 3"));
    ui.press(&["m"]);
    ui.wait("the prompt", |screen| screen.contains("note of the mark"));
    ui.type_in("look here");
    ui.press(&["Enter", "q"]);
    let screen = ui.assert_restored(0);
    assert!(screen.contains("your marks are kept"), "{screen}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
}

/// Once an hour has passed since. What a person has noted in it stays, and what may be in use.
#[test]
fn what_a_look_that_was_killed_has_left_goes_with_the_next_one() {
    let person = Person::new(1);
    let temporary = person.home().join("tmp");
    let now = Duration::from_micros(hvtui::clock::now().0.unsigned_abs());
    let hour = now.saturating_sub(Duration::from_secs(3_700));
    let made = |pid: u32, name: &str, is_old: bool| {
        let name = format!("hvtui-import-{pid}-{name}");
        let folder = temporary.join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("run.mcap"), "half of one").unwrap();
        if name.ends_with("marked") {
            std::fs::write(folder.join("run.marks.json"), "{}").unwrap();
        }
        if is_old {
            let then = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + hour);
            File::open(&folder).unwrap().set_times(then).unwrap();
        }
        name
    };
    // no process has that number
    let gone = u32::MAX;
    let old = made(gone, "old", true);
    let mut kept =
        [made(gone, "young", false), made(gone, "marked", true), made(std::process::id(), "in-use", true)];
    let mut report = person.hvtui(&["report", &fixture("horovod.json")]);
    let out = report.env("TMPDIR", &temporary).output_in_time().unwrap();
    assert!(out.status.success(), "{out:?}");
    let left = std::fs::read_dir(&temporary).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    kept.sort();
    assert_eq!(left, kept, "without {old}");
}

/// Written by Horovod 0.28.1 over Gloo, two ranks; its first three steps.
#[test]
fn horovods_timeline_becomes_a_run_that_every_command_takes() {
    let person = Person::new(1);
    let words = said(&person.run(&["import", &fixture("horovod.json")]));
    assert!(words.lines().all(|line| line.chars().count() <= 80), "{words}");
    assert!(words.contains("  2 ranks; 3 steps, number 1 to 3; "), "{words}");
    assert!(words.contains("rank 0's clock, includes network"), "{words}");
    assert!(words.contains("HOROVOD_CACHE_CAPACITY=0"), "{words}");
    // ticks of the first step: 26014 to 34011 and 26015 to 34012, 33786 to 34013 and 33787 to 34013, 41091 to 41529
    assert!(words.contains("Waits by rank, of 5 of 15 collectives"), "{words}");
    assert!(words.contains("\n      0    0 %   0.0 ms   0.0 ms   0.0 ms   3.4 ms "), "{words}");
    assert!(words.contains("\n      1  100 %   3.4 ms "), "{words}");
    let id = words.split_whitespace().nth(3).unwrap();
    assert!(words.contains(&format!("Next: hvtui report {id}\n      hvtui replay {id}\n")), "{words}");

    let listed: Value = serde_json::from_str(&said(&person.run(&["runs", "--local", "--json"]))).unwrap();
    assert_value_fits("runs", &listed);
    let run = &listed[0];
    assert_eq!((&run["spec"]["name"], &run["spec"]["kind"]), (&"horovod".into(), &"horovod".into()));
    assert_eq!(run["created"], "2026-11-21T01:43:51.312Z", "Horovod tells when it began");
    let source = run["spec"]["options"]["imported"].as_str().unwrap();
    assert!(source.starts_with("Horovod timeline, rank 0's clock, includes network, from "), "{source}");
    let outcome = &run["outcome"];
    assert_eq!((&outcome["end"], &outcome["code"]), (&"unknown".into(), &Value::Null), "it is not known");
    let list = said(&person.run(&["runs", "--local"]));
    assert!(list.contains("imported: Horovod timeline") && !list.contains("exit 0"), "{list}");
    let filtered = |word: &str| said(&person.run(&["runs", "--local", "--filter", word])).contains("horovod");
    assert_eq!([filtered("imported"), filtered("ended"), filtered("done")], [true, false, false]);

    let report = said(&person.run(&["report", id]));
    assert!(report.contains("imported: Horovod timeline"), "{report}");
    assert!(report.contains("of 2 steps it is not known which ranks waited"), "{report}");
    assert!(report.contains("HOROVOD_CACHE_CAPACITY=0") && !report.contains("dropped"), "{report}");
    let json = assert_fits("run-report", &person.run(&["report", id, "--json"]));
    assert_eq!((&json["world"], &json["steps"]["last"]), (&2.into(), &3.into()));
    assert_eq!(json["success"], Value::Null);
    assert_eq!(json["ranks"][1]["last_in"], Value::Null, "nothing tells it of the steps that count");
    // data, forward, backward, wait, optimizer, and who came last; a tensor's way and the rest of the step are told
    let row = report.lines().find(|line| line.starts_with("     1 unknown:1")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().skip(4).collect();
    let unknown = [&cells[..4], &cells[5..6], &cells[7..]].concat();
    assert!(
        unknown.iter().all(|cell| *cell == "–") && cells[4].ends_with('%') && cells[6].ends_with('%'),
        "{row}"
    );
    let csv = said(&person.run(&["export", id, "--to", "csv"]));
    let row = csv.lines().nth(1).unwrap().split(',').collect::<Vec<_>>();
    // step 1, from the end of the last broadcast to that of the loss's allreduce, in which rank 0 waited for its last tensors
    // alone: from 33787 to 34013 and from 41091 to 41530
    assert_eq!(
        (row[0], row[1], row[10], row[14]),
        ("1", "0", (226 + 439).to_string().as_str(), "7773"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 1 + 2 * 3);
    said(&person.run(&["import", &fixture("horovod-killed.json"), "--name", "killed"]));
    let diff = said(&person.run(&["diff", id, "killed"]));
    assert!(diff.contains("imported"), "{diff}");
    let mut player = Player::open(Path::new(run_path(&person, id).as_str())).unwrap();
    player.step(2);
    assert!(player.state().playhead > player.state().start);

    let again = person.run(&["run", "--again", id]);
    let words = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(64), "{words}");
    assert!(words.contains("never launched by hvtui"), "{words}");
}

fn run_path(person: &Person, id: &str) -> String {
    let runs = person.home().join(".local/state/hvtui/runs");
    let mut found = std::fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path());
    let folder = found.find(|path| path.to_str().unwrap().ends_with(id)).unwrap();
    folder.join("run.mcap").to_str().unwrap().to_owned()
}

#[test]
fn a_timeline_of_a_killed_run_is_read_up_to_its_last_whole_step() {
    let person = Person::new(1);
    let told = imported(&person, &[&fixture("horovod-killed.json"), "--name", "killed"]);
    assert_eq!((&told["name"], &told["format"]), (&"killed".into(), &"horovod".into()));
    assert_eq!(
        (&told["ranks"], &told["steps"]["count"], &told["steps"]["with_waits"]),
        (&2.into(), &4.into(), &1.into())
    );
    assert_eq!(left_out(&told, "unfinished step at the end"), Some(1));
    assert_eq!(left_out(&told, "collectives not through"), Some(1));
    assert_eq!(left_out(&told, "moment of the beginning"), None);
    // and one that the kernel cut in the middle of an event
    let whole = std::fs::read_to_string(fixture("horovod-killed.json")).unwrap();
    let at = whole.rfind("\"MEMCPY_OUT").unwrap();
    std::fs::write(person.home().join("cut.json"), &whole[..at]).unwrap();
    let told = imported(&person, &["cut.json"]);
    let cut = &told["files"][0]["cut"];
    let began = whole[..at].rfind('{').unwrap();
    assert_eq!(cut["byte"], began, "{cut}");
    assert!(
        cut["reason"].as_str().unwrap().starts_with("the text ends within an event, 297 ms after"),
        "{cut}"
    );
    assert_eq!(told["steps"]["count"], 4);
}

/// What the export has of each rank, by a reader of its own: how often it came last, and how long it waited and was late.
#[test]
fn the_table_of_waits_is_what_the_ticks_say() {
    let person = Person::new(1);
    write(&person.home().join("own.mcap"), &events::run(4, 40));
    let timeline = said(&person.run(&["export", "own.mcap", "--to", "horovod"]));
    std::fs::write(person.home().join("timeline.json"), &timeline).unwrap();
    let told = imported(&person, &["timeline.json", "-o", "back.mcap"]);
    let events: Vec<Value> = serde_json::from_str(&timeline).unwrap();
    let mut ticks: Vec<(usize, i64)> = Vec::new();
    let (mut last, mut late, mut wait, mut rounds) = ([0_u64; 4], [0; 4], [0; 4], 0_u64);
    for event in &events {
        let ts = event["ts"].as_i64().unwrap_or_default();
        match event["ph"].as_str().unwrap() {
            "X" => ticks.push((event["name"].as_str().unwrap().parse().unwrap(), ts)),
            "E" if !ticks.is_empty() => {
                rounds += 1;
                let first = ticks.iter().map(|tick| tick.1).min().unwrap();
                last[ticks.iter().max_by_key(|tick| tick.1).unwrap().0] += 1;
                for (rank, at) in ticks.drain(..) {
                    late[rank] += at - first;
                    wait[rank] += ts - at;
                }
            }
            _ => {}
        }
    }
    assert_eq!((&told["waits"]["told"], &told["steps"]["with_waits"]), (&rounds.into(), &rounds.into()));
    let reader = Reader::open(&person.home().join("back.mcap")).unwrap();
    let mut in_steps = [0_u64; 4];
    for ((rank, _), timing) in steps(&reader) {
        in_steps[rank.0 as usize] += timing.phase_totals()[Phase::Wait.index()];
    }
    for rank in 0..4 {
        let row = &told["waits"]["ranks"][rank];
        assert_eq!((&row["last_in"], &row["collectives"]), (&last[rank].into(), &rounds.into()), "{rank}");
        let mean = |sum: i64| sum as f64 / rounds as f64;
        assert_eq!(row["late"]["mean_us"].as_f64(), Some(mean(late[rank])), "{rank}");
        assert_eq!(row["wait"]["mean_us"].as_f64(), Some(mean(wait[rank])), "{rank}");
        // one tensor a step: what it waits there is what it waits
        assert_eq!((row["idle_us"].as_u64(), in_steps[rank]), (Some(wait[rank] as u64), wait[rank] as u64));
    }
    let report = assert_fits("run-report", &person.run(&["report", "back.mcap", "--json"]));
    assert!(report["ranks"].as_array().unwrap().iter().all(|rank| rank["last_in"].is_u64()), "{report:#}");
}

/// By the waits that its ranks tell, as in a report: no clocks are compared, neither here nor there.
#[test]
fn who_came_last_is_the_same_in_horovods_shape_and_its_first_step_is_unknown() {
    let person = Person::new(1);
    let mut run = events::run(2, 40);
    for envelope in &mut run {
        let Event::RunCreated { spec } = &mut envelope.event else { continue };
        for placement in &mut Arc::make_mut(spec).placements {
            (placement.host, placement.local_rank) = (HostId::from("gpu-a"), placement.rank.0);
            placement.slot = Slot::Cpu { index: placement.rank.0 };
        }
    }
    write(&person.home().join("own.mcap"), &run);
    let timeline = said(&person.run(&["export", "own.mcap", "--to", "horovod"]));
    std::fs::write(person.home().join("timeline.json"), timeline).unwrap();
    imported(&person, &["timeline.json", "-o", "back.mcap"]);
    let report = |file: &str| assert_fits("run-report", &person.run(&["report", file, "--json"]));
    let (own, back) = (report("own.mcap"), report("back.mcap"));
    for rank in 0..2_usize {
        for figure in ["last_in", "wait_caused_us"] {
            let [own, back] = [&own, &back].map(|report| report["ranks"][rank][figure].as_u64());
            assert!(own > Some(0) && own == back, "rank {rank}: {figure} {own:?}, and then {back:?}");
        }
    }
    let first = |report: &Value| report["steps"]["warm_up_us"].as_u64();
    assert!(first(&own).is_some() && first(&back).is_none(), "{back:#}");
    assert!(!said(&person.run(&["report", "back.mcap"])).contains("the first step took"));
    // a broadcast tells when it began
    assert!(first(&report(&fixture("horovod.json"))).is_some());
}

#[test]
fn hvtuis_own_trace_comes_back_as_it_was() {
    let person = Person::new(1);
    write(&person.home().join("own.mcap"), &events::run(4, 40));
    said(&person.run(&["export", "own.mcap", "--to", "chrome", "-o", "trace.json"]));
    let told = imported(&person, &["trace.json", "-o", "back.mcap"]);
    assert_eq!((&told["format"], &told["name"]), (&"chrome".into(), &"digits".into()));
    assert_eq!((&told["ranks"], &told["steps"]["count"]), (&4.into(), &160.into()));
    assert!(left_out(&told, "values of hosts and GPUs").unwrap() > 100, "{told:#}");
    let open = |name: &str| Reader::open(&person.home().join(name)).unwrap();
    let (own, back) = (open("own.mcap"), open("back.mcap"));
    let place = |reader: &Reader| {
        let spec = reader.spec().unwrap().clone();
        let places = spec
            .placements
            .iter()
            .map(|place| (place.rank, place.host.clone(), place.local_rank, place.slot.index()));
        (places.collect::<Vec<_>>(), spec.command, spec.kind)
    };
    assert_eq!(place(&own), place(&back));
    let without_start = |reader: &Reader| {
        let mut all = steps(reader);
        for timing in all.values_mut() {
            timing.start = hvtui::domain::time::HostTime(0);
        }
        all
    };
    assert_eq!(without_start(&own), without_start(&back));
    // on the common clock they are where they were; the export of the export is the same
    said(&person.run(&["export", "back.mcap", "--to", "chrome", "-o", "again.json"]));
    let slices = |name: &str| {
        let whole: Value = serde_json::from_slice(&std::fs::read(person.home().join(name)).unwrap()).unwrap();
        let mut slices: Vec<Value> = whole["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["ph"] == "X" && event["cat"] != "nccl")
            .cloned()
            .collect();
        for slice in &mut slices {
            slice["ts"] = (slice["ts"].as_f64().unwrap().round() as i64).into();
        }
        slices.sort_by_key(|slice| (slice["tid"].as_u64(), slice["ts"].as_i64()));
        slices
    };
    let (first, second) = (slices("trace.json"), slices("again.json"));
    assert_eq!(first.len(), second.len());
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(
            (&first["name"], &first["dur"], &first["args"]),
            (&second["name"], &second["dur"], &second["args"])
        );
        let apart = first["ts"].as_i64().unwrap() - second["ts"].as_i64().unwrap();
        assert!(apart.abs() <= 1, "{first} {second}");
    }
    // one that was cut has what stands before the cut, and no moment
    let text = std::fs::read_to_string(person.home().join("trace.json")).unwrap();
    std::fs::write(person.home().join("cut.json"), &text[..text.len() / 2]).unwrap();
    let told = imported(&person, &["cut.json", "-o", "half.mcap"]);
    assert!(told["files"][0]["cut"]["byte"].as_u64().unwrap() > text.len() as u64 / 2 - 400, "{told:#}");
    assert_eq!(left_out(&told, "moment of the beginning"), Some(1));
    let count = told["steps"]["count"].as_u64().unwrap();
    assert!((70..90).contains(&count), "{count}");
}

#[test]
fn a_recording_is_put_where_it_is_wanted_and_over_nothing() {
    let person = Person::new(1);
    let file = fixture("horovod.json");
    let words = said(&person.run(&["import", &file, "-o", "mine.mcap"]));
    assert!(words.ends_with("Next: hvtui report mine.mcap\n      hvtui replay mine.mcap\n"), "{words}");
    assert!(!person.home().join(".local/state/hvtui/runs").exists(), "it is in the file alone");
    said(&person.run(&["report", "mine.mcap"]));
    let before = std::fs::read(person.home().join("mine.mcap")).unwrap();
    let out = person.run(&["import", &file, "-o", "mine.mcap"]);
    assert_eq!(out.status.code(), Some(64), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("never overwritten"), "{out:?}");
    assert_eq!(std::fs::read(person.home().join("mine.mcap")).unwrap(), before);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(person.home().join("mine.mcap")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    assert!(!person.home().join("mine.mcap.part").exists());
}

#[test]
fn nothing_is_said_of_the_hosts_of_an_imported_run_that_is_deleted() {
    let person = Person::new(1);
    imported(&person, &[&fixture("horovod.json")]);
    let out = said(&person.run(&["runs", "prune", "--keep", "0", "--dry-run"]));
    assert!(out.contains("1 to be deleted") && !out.contains("not in the hosts file"), "{out}");
}

/// The whole of it: 20 steps, of which the cache of responses hides the waits from the second on. The figures are those that the
/// file's ticks give by hand: `late` 7997, 7997, 227, 226 and 438 µs.
#[test]
fn the_whole_of_horovods_timeline_has_its_figures() {
    let person = Person::new(1);
    let told = imported(&person, &[&fixture("horovod-whole.json"), "-o", "whole.mcap"]);
    let file = &told["files"][0];
    assert_eq!(
        (&file["bytes"], &file["events"], &file["unread"]),
        (&65_402.into(), &1_153.into(), &0.into())
    );
    assert_eq!((&file["cut"], &told["duration_us"]), (&Value::Null, &382_450.into()));
    let steps = &told["steps"];
    assert_eq!((&steps["first"], &steps["last"], &steps["count"]), (&1.into(), &20.into(), &20.into()));
    assert_eq!(steps["with_waits"], 1);
    assert_eq!(left_out(&told, "steps in which it is not told who waited"), Some(19));
    assert_eq!(left_out(&told, "broadcasts, barriers and joins"), Some(6));
    assert_eq!(left_out(&told, "turns of Horovod's loop"), Some(143));
    let waits = &told["waits"];
    assert_eq!((&waits["collectives"], &waits["told"]), (&100.into(), &5.into()));
    let ranks = waits["ranks"].as_array().unwrap();
    let of = |rank: &Value| (rank["last_in"].as_u64().unwrap(), rank["late"]["max_us"].as_u64().unwrap());
    assert_eq!(ranks.iter().map(of).collect::<Vec<_>>(), [(0, 0), (5, 7_997)]);
    let mean = (7_997.0 + 7_997.0 + 227.0 + 226.0 + 438.0) / 5.0;
    assert!((ranks[1]["late"]["mean_us"].as_f64().unwrap() - mean).abs() < 0.1, "{ranks:?}");
    let csv = said(&person.run(&["export", "whole.mcap", "--to", "csv"]));
    assert_eq!(csv.lines().count(), 1 + 2 * 20);
    // its first three steps are those of the part that the other tests read
    imported(&person, &[&fixture("horovod.json"), "-o", "part.mcap"]);
    let part = said(&person.run(&["export", "part.mcap", "--to", "csv"]));
    assert!(csv.starts_with(&part), "{part}{csv}");
}
