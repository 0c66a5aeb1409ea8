//! The Chrome trace in Perfetto's own trace processor: tracks, names, sums, counters, arrows and marks are the recording's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::log::{GapReason, LogGap, Stream};
use hvtui::domain::marks::{MarkChange, NewMark};
use hvtui::domain::nccl_timing::{CollectiveTiming, CommId};
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::record::export::kernels;
use hvtui::record::marks;
use serde_json::{Value, json};

use super::events::{START, run, run_id, step_timing};
use super::write;
use crate::common::built;
use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::trace_processor::TraceProcessor;
use crate::local_runs::Person;

/// A step's columns of the CSV, with the threads and names that they have in the trace.
const SLICES: [(&str, &str, &str); 8] = [
    ("dur_us", "steps", "step"),
    ("data_us", "compute", "data"),
    ("forward_us", "compute", "forward"),
    ("backward_us", "compute", "backward"),
    ("wait_us", "comm", "allreduce wait"),
    ("transfer_us", "comm", "allreduce transfer"),
    ("optimizer_us", "compute", "optimizer"),
    ("other_us", "compute", "other"),
];

/// Ranks with the names of their processes.
type Ranks<'a> = &'a [(i64, &'a str)];

/// Slices with their ranks, threads and steps; arrows between them; moments; and counters with their processes.
const TABLES: [&str; 4] = [
    "CREATE TABLE ours AS SELECT slice.id, ts, dur, depth, slice.name, category, pid - 1 AS rank, thread.name AS thread,
       EXTRACT_ARG(slice.arg_set_id, 'args.step') AS step, slice.arg_set_id
     FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)",
    "CREATE TABLE arrows AS SELECT a.rank AS rank_out, a.name AS name_out, a.thread AS thread_out, a.step AS step_out, a.ts AS ts_out,
       b.rank AS rank_in, b.name AS name_in, b.thread AS thread_in, b.step AS step_in, b.ts AS ts_in
     FROM flow JOIN ours a ON slice_out = a.id JOIN ours b ON slice_in = b.id",
    "CREATE TABLE moments AS SELECT slice.name, ts, category, pid - 1 AS rank, slice.arg_set_id
     FROM slice JOIN track ON track_id = track.id LEFT JOIN process_track ON track_id = process_track.id LEFT JOIN process USING (upid)
     WHERE dur = 0",
    "CREATE TABLE points AS SELECT pid - 1 AS rank, process.name AS process, process_counter_track.name, ts, value
     FROM counter JOIN process_counter_track ON track_id = process_counter_track.id JOIN process USING (upid)",
];

/// One choice of a recording, as a trace and as the table of its steps.
struct Export {
    trace: PathBuf,
    steps: Table,
}

/// A file in a format, by the real binary in a person's home; `args` name the run and choose from it.
fn exported(person: &Person, format: &str, args: &[&str]) -> PathBuf {
    let path = person.home().join(format!("export-{format}"));
    let out = person.run(&[&["export", "--to", format, "-o", path.to_str().unwrap()], args].concat());
    assert!(out.status.success(), "{out:?}");
    path
}

impl Export {
    fn of(person: &Person, args: &[&str]) -> Self {
        Self { trace: exported(person, "chrome", args), steps: Table::read(&exported(person, "csv", args)) }
    }

    /// In the processor; `None` where there is none.
    fn load(&self) -> Option<TraceProcessor> {
        let mut loaded = TraceProcessor::load(&self.trace)?;
        for table in TABLES {
            assert_eq!(loaded.rows::<()>(table), []);
        }
        Some(loaded)
    }

    fn events(&self) -> Vec<Value> {
        let mut trace: Value = serde_json::from_slice(&std::fs::read(&self.trace).unwrap()).unwrap();
        serde_json::from_value(trace["traceEvents"].take()).unwrap()
    }
}

/// A CSV whose cells have no quotes.
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        Self { head: lines.next().unwrap(), rows: lines.collect() }
    }

    /// A number of each row; `None` where it is not known.
    fn column<T: std::str::FromStr>(&self, name: &str) -> Vec<Option<T>> {
        let at = self.head.iter().position(|cell| cell == name).unwrap();
        self.rows.iter().map(|row| row[at].parse().ok()).collect()
    }

    fn numbers(&self, name: &str) -> Vec<i64> {
        self.column(name).into_iter().map(Option::unwrap).collect()
    }
}

/// Everything that is told of steps: tracks with their names, slices and their sums by rank and name, each phase in its step.
fn assert_steps(loaded: &mut TraceProcessor, export: &Export, ranks: Ranks<'_>) {
    let steps = &export.steps;
    let processes: Vec<(i64, String)> = loaded
        .rows("SELECT pid - 1, IFNULL(name, '') FROM process WHERE upid != 0 AND pid < 500001 ORDER BY pid");
    let named: Vec<_> = ranks.iter().map(|(rank, name)| (*rank, (*name).to_owned())).collect();
    assert_eq!(processes, named, "each rank is a process, and nothing else is");
    let threads: Vec<(i64, String)> = loaded.rows(
        "SELECT pid - 1, thread.name FROM thread JOIN process USING (upid)
         WHERE thread.name IS NOT NULL AND thread.name != 'nccl' AND NOT is_main_thread ORDER BY pid, tid",
    );
    let three =
        |(rank, _): &(i64, &str)| ["steps", "compute", "comm"].map(|thread| (*rank, thread.to_owned()));
    assert_eq!(threads, ranks.iter().flat_map(three).collect::<Vec<_>>());

    let mut told: BTreeMap<(i64, String, String), i64> = BTreeMap::new();
    for (column, thread, name) in SLICES {
        for (rank, us) in steps.numbers("rank").iter().zip(steps.column::<i64>(column)) {
            if let Some(us) = us.filter(|us| *us > 0) {
                *told.entry((*rank, thread.to_owned(), name.to_owned())).or_default() += us * 1_000;
            }
        }
    }
    let shown: Vec<(i64, String, String, i64)> = loaded.rows(
        "SELECT rank, thread, name, SUM(dur) FROM ours WHERE category IN ('step', 'phase', 'comm') GROUP BY 1, 2, 3",
    );
    let shown: BTreeMap<_, _> =
        shown.into_iter().map(|(rank, thread, name, ns)| ((rank, thread, name), ns)).collect();
    // the table has what no phase tells of a step too, of which the trace has no slice
    let parted = |all: &BTreeMap<(i64, String, String), i64>, other: bool| -> BTreeMap<_, _> {
        let some = all.iter().filter(|((_, _, name), _)| (name == "other") == other);
        some.map(|(key, ns)| (key.clone(), *ns)).collect()
    };
    assert_eq!(parted(&shown, false), parted(&told, false), "sums by rank, thread and name, nanoseconds");
    assert!(!told.is_empty(), "the table tells of steps");
    // how much that is depends on the program: a step whose phases touch has none of it
    let (shown, told) = (parted(&shown, true), parted(&told, true));
    assert!(shown.iter().all(|(key, ns)| told.get(key).is_some_and(|all| all >= ns)), "{shown:?} {told:?}");

    let mut begins: Vec<(i64, i64, i64)> =
        loaded.rows("SELECT rank, step, ts / 1000 FROM ours WHERE name = 'step' ORDER BY 1, 2");
    let mut written: Vec<_> = (steps.numbers("rank").into_iter())
        .zip(steps.numbers("step"))
        .zip(steps.numbers("start_us"))
        .map(|((rank, step), us)| (rank, step, us))
        .collect();
    begins.sort_unstable();
    written.sort_unstable();
    assert_eq!(begins, written, "each step has its number and begins where the table says");

    let outside: Vec<(i64, String, i64)> = loaded.rows(
        "SELECT part.rank, part.name, part.step FROM ours part
         LEFT JOIN ours whole ON whole.name = 'step' AND whole.rank = part.rank AND whole.step = part.step
         WHERE part.category IN ('phase', 'comm')
           AND (whole.ts IS NULL OR part.ts < whole.ts OR part.ts + part.dur > whole.ts + whole.dur)",
    );
    assert_eq!(outside, [], "phases lie in their steps");
    let (deep, overlapping): (i64, i64) = loaded.rows(
        "SELECT SUM(depth > 0), (SELECT COUNT(*) FROM (SELECT ts, LAG(ts + dur) OVER (PARTITION BY rank, thread ORDER BY ts) AS before FROM ours)
                                 WHERE ts < before) FROM ours",
    )[0];
    assert_eq!((deep, overlapping), (0, 0), "no slice of a thread lies in another one");
    assert_times(loaded, &export.events());
}

/// Each slice is where its numbers in the file say, to the nanosecond.
fn assert_times(loaded: &mut TraceProcessor, events: &[Value]) {
    let nanos = |event: &Value, key: &str| (event[key].as_f64().unwrap() * 1e3).round() as i64;
    let slices = events.iter().filter(|event| event["ph"] == "X");
    let mut written: Vec<_> = slices.map(|event| (nanos(event, "ts"), nanos(event, "dur"))).collect();
    written.sort_unstable();
    let mut shown: Vec<(i64, i64)> = loaded.rows("SELECT ts, dur FROM slice WHERE dur > 0");
    shown.sort_unstable();
    assert_eq!(shown.len(), written.len());
    let apart = shown.iter().zip(&written).find(|(shown, written)| shown != written);
    assert_eq!(apart, None);
}

/// An arrow for each step and each rank that did not come last, from what the rank that waited least did before.
fn assert_arrows(loaded: &mut TraceProcessor, steps: &Table, world: usize, from: &[&str]) {
    let mut waits: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
    let rows = steps.numbers("step").into_iter().zip(steps.numbers("rank")).zip(steps.numbers("wait_us"));
    for ((step, rank), wait) in rows {
        waits.entry(step).or_default().push((wait, rank));
    }
    for waits in waits.values_mut() {
        waits.sort_unstable();
    }
    // of two that came together none is the last
    let whole = waits.iter().filter(|(_, waits)| waits.len() == world && waits[0].0 < waits[1].0);
    let last: BTreeMap<i64, i64> = whole.map(|(step, waits)| (*step, waits[0].1)).collect();
    let arrows: Vec<(i64, i64, i64, i64)> =
        loaded.rows("SELECT step_out, step_in, rank_out, rank_in FROM arrows ORDER BY 1, 3, 4");
    let meant = last.iter().flat_map(|(step, last)| {
        let others = (0..world as i64).filter(move |rank| rank != last);
        others.map(move |rank| (*step, *step, *last, rank))
    });
    assert_eq!(arrows, meant.collect::<Vec<_>>());
    let flows: i64 = loaded.rows::<(i64,)>("SELECT COUNT(*) FROM flow")[0].0;
    assert_eq!(flows, arrows.len() as i64, "both ends of each are slices of steps");
    let leads: Vec<(String, String)> =
        loaded.rows("SELECT DISTINCT name_out, name_in FROM arrows ORDER BY name_out");
    let to = |from: &&str| ((*from).to_owned(), "allreduce transfer".to_owned());
    assert_eq!(leads, from.iter().map(to).collect::<Vec<_>>());
}

/// The points of a counter of a rank: nanoseconds and values.
fn points(loaded: &mut TraceProcessor, rank: i64, name: &str) -> Vec<(i64, f64)> {
    loaded.rows(&format!("SELECT ts, value FROM points WHERE rank = {rank} AND name = '{name}' ORDER BY ts"))
}

/// The counters of ranks by the tables of steps and GPUs.
fn assert_counters(loaded: &mut TraceProcessor, steps: &Table, gpus: &Table, ranks: Ranks<'_>) {
    for (rank, _) in ranks {
        let of_gpus = [
            ("util", "gpu util %", 1.0),
            ("memory_used", "gpu memory bytes", 1.0),
            ("power_mw", "gpu power W", 1e3),
            ("temperature", "gpu temperature °C", 1.0),
        ];
        for (column, name, by) in of_gpus {
            let rows =
                gpus.numbers("rank").into_iter().zip(gpus.numbers("time_us")).zip(gpus.column::<f64>(column));
            let told = rows.filter(|((of, _), _)| of == rank);
            let told: Vec<_> = told.filter_map(|((_, us), value)| Some((us * 1_000, value? / by))).collect();
            assert_eq!(points(loaded, *rank, name), told, "{name} of rank {rank}");
        }
        let mut loss: Vec<Option<f32>> = Vec::new();
        let mut rate: Vec<Option<f64>> = Vec::new();
        let columns = steps.column::<f32>("loss").into_iter().zip(steps.column::<f64>("samples"));
        let columns = columns.zip(steps.numbers("dur_us")).zip(steps.numbers("rank"));
        for (((value, samples), us), _) in columns.filter(|(_, of)| of == rank) {
            loss.push(value);
            rate.push(samples.map(|samples| samples * 1e6 / us as f64));
        }
        let shown = points(loaded, *rank, "loss value").into_iter().map(|(_, value)| value as f32);
        assert_eq!(shown.collect::<Vec<_>>(), loss.into_iter().flatten().collect::<Vec<_>>(), "rank {rank}");
        let shown = points(loaded, *rank, "samples per second").into_iter().map(|(_, value)| value);
        let rate: Vec<_> = rate.into_iter().flatten().collect();
        assert_eq!(rate.len(), shown.len());
        // the last of 17 digits is the processor's
        let apart = rate.iter().zip(shown).find(|(told, shown)| (*told - shown).abs() > *told * 1e-15);
        assert_eq!(apart, None, "rank {rank}");
    }
    // they stand at the steps' ends
    let astray: Vec<(i64, String)> = loaded.rows(
        "SELECT points.rank, points.name FROM points
         LEFT JOIN ours ON ours.name = 'step' AND ours.rank = points.rank AND ours.ts + ours.dur = points.ts
         WHERE points.name IN ('loss value', 'samples per second') AND ours.ts IS NULL",
    );
    assert_eq!(astray, []);
}

#[test]
fn a_real_run_of_two_ranks_on_gpus_is_what_was_recorded() {
    let person = Person::new(2);
    let hosts = "[[host]]\nname = \"here\"\naddress = \"local\"\n";
    std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
    let nvml = FakeNvml::new(
        &json!({ "gpus": [{ "util": [10, 50, 90] }, { "util": 33, "memory_used": 5_000_000_001_u64 }] }),
    );
    let late = built::example("late_rank");
    let mut run = person.hvtui(&["run", "--name", "late", "-np", "2", "--env", "LATE_STEPS=100"]);
    run.args(["--env", "LATE_RANK=1", "--env", "LATE_PHASE=data", "--env", "LATE_MS=10", "--"]).arg(late);
    let ran = run.envs(nvml.env()).output_in_time().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    for mark in [&["lr was changed", "--at", "1.5", "--rank", "1"][..], &["all of them", "--at", "1.25"]] {
        let marked = person.run(&[&["runs", "mark", "late"], mark].concat());
        assert!(marked.status.success(), "{marked:?}");
    }
    let export = Export::of(&person, &["late"]);
    assert_eq!(export.steps.rows.len(), 200);
    let gpus = Table::read(&exported(&person, "csv-gpus", &["late"]));
    assert!(gpus.rows.len() > 4);
    let Some(mut loaded) = export.load() else { return };
    let ranks = [(0, "rank 0 · here · GPU0"), (1, "rank 1 · here · GPU1")];
    assert_steps(&mut loaded, &export, &ranks);
    assert_counters(&mut loaded, &export.steps, &gpus, &ranks);
    assert_arrows(&mut loaded, &export.steps, 2, &["backward"]);
    let marks: Vec<(String, i64, Option<i64>)> =
        loaded.rows("SELECT name, ts, rank FROM moments WHERE category = 'mark' ORDER BY ts");
    let meant = [("all of them", 1_250_000_000, None), ("lr was changed", 1_500_000_000, Some(1))];
    assert_eq!(marks, meant.map(|(name, ns, rank)| (name.to_owned(), ns, rank)));
    let late: Vec<(i64, String)> = loaded
        .rows("SELECT rank, EXTRACT_ARG(arg_set_id, 'args.line') FROM moments WHERE name = 'STRAGGLER'");
    assert!(matches!(&late[..], [(1, words), ..] if words.contains("late in data")), "{late:?}");
}

/// Four ranks on two hosts, 160 steps: with a metric, a gap, collectives of NCCL and marks.
fn two_hosts(person: &Person) -> PathBuf {
    let path = person.home().join("theirs.mcap");
    let mut run = run(4, 40);
    let end = run.pop().unwrap();
    let of = |rank| Origin::Rank(run_id(), Rank(rank));
    let gap = LogGap {
        rank: Rank(3),
        stream: Stream::Stderr,
        from: 5,
        to: 90,
        reason: GapReason::Unknown,
        cap: None,
    };
    let mut more = vec![
        (of(2), Event::MetricReported { name: "accuracy".into(), value: 0.912_345_678, step: Some(160) }),
        (of(3), Event::LogGap { gap }),
    ];
    for (rank, seq) in [(0, 1), (3, 1), (0, 2), (3, 2)] {
        let timing = CollectiveTiming {
            comm: CommId(0xfeed),
            ranks: 4,
            comm_rank: rank,
            func: "AllReduce".into(),
            seq,
            bytes: 1 << 20,
            datatype: "Float32".into(),
            t: Some(HostTime(7_000_000 + seq * 10_000 + u64::from(rank))),
            dur_ns: 1_234_567 + seq,
            gpu_ns: None,
            every: 1,
            lost: 0,
        };
        more.push((of(rank), Event::CollectiveDone { timing: Box::new(timing) }));
    }
    more.push((end.origin, end.event));
    for (origin, event) in more {
        let seq = run.last().unwrap().seq + 1;
        run.push(Envelope { seq, at: end.at, origin, event });
    }
    write(&path, &run);
    for (after, rank, note) in [(10_500_000, None, "lr 0.1"), (11_000_000, Some(Rank(2)), "")] {
        let mark = NewMark { at: Stamp(START + after), step: Some(42), rank, note: note.to_owned() };
        marks::change(&path, &MarkChange::Add(mark)).unwrap();
    }
    path
}

const FOUR: [(i64, &str); 4] = [
    (0, "rank 0 · gpu-a · GPU0"),
    (1, "rank 1 · gpu-a · GPU1"),
    (2, "rank 2 · gpu-b · GPU0"),
    (3, "rank 3 · gpu-b · GPU1"),
];

#[test]
fn a_run_on_two_hosts_is_what_was_recorded() {
    let person = Person::new(1);
    let path = two_hosts(&person);
    let export = Export::of(&person, &[path.to_str().unwrap()]);
    let gpus = Table::read(&exported(&person, "csv-gpus", &[path.to_str().unwrap()]));
    let Some(mut loaded) = export.load() else { return };
    assert_eq!((export.steps.rows.len(), gpus.rows.len()), (4 * 160, 4 * 40));
    assert_steps(&mut loaded, &export, &FOUR);
    assert_counters(&mut loaded, &export.steps, &gpus, &FOUR);
    assert_arrows(&mut loaded, &export.steps, 4, &["backward"]);

    let hosts: Vec<(String, String, i64, f64, f64)> = loaded.rows(
        "SELECT process, name, COUNT(*), MIN(value), MAX(value) FROM points WHERE process LIKE 'host %' GROUP BY 1, 2",
    );
    let meant = ["host gpu-a", "host gpu-b"].iter().flat_map(|host| {
        let of = |name: &str, least, most| ((*host).to_owned(), name.to_owned(), 40, least, most);
        [
            of("cpu %", 12.5, 12.5),
            of("memory bytes", 33e9, 33e9),
            of("net bytes/s received", 1_000.0, 1_039.0),
            of("net bytes/s sent", 2_000.0, 2_000.0),
        ]
    });
    assert_eq!(hosts, meant.collect::<Vec<_>>());
    let metrics: Vec<(i64, f64)> =
        loaded.rows("SELECT rank, value FROM points WHERE name = 'accuracy value'");
    assert_eq!(metrics, [(2, 0.912_345_678)]);

    let args: Vec<(i64, i64, i64, f64)> = loaded.rows(
        "SELECT rank, EXTRACT_ARG(arg_set_id, 'args.samples'), EXTRACT_ARG(arg_set_id, 'args.hidden_us'),
           EXTRACT_ARG(arg_set_id, 'args.loss') FROM ours WHERE name = 'step' AND step = 9 ORDER BY rank",
    );
    for (rank, samples, hidden_us, loss) in args {
        let told = step_timing(9, HostTime(0), rank as u32);
        assert_eq!((samples, hidden_us), (i64::from(told.samples), i64::from(told.hidden_us)));
        assert_eq!(Some(loss as f32), told.loss);
    }
    let nccl: Vec<(i64, String, i64, i64, i64)> = loaded.rows(
        "SELECT rank, name, dur, EXTRACT_ARG(arg_set_id, 'args.seq'), EXTRACT_ARG(arg_set_id, 'args.bytes')
         FROM ours WHERE thread = 'nccl' ORDER BY rank, ts",
    );
    let of = |rank, seq| (rank, "AllReduce".to_owned(), 1_234_567 + seq, seq, 1 << 20);
    assert_eq!(nccl, [of(0, 1), of(0, 2), of(3, 1), of(3, 2)]);

    let marks: Vec<(String, i64, Option<i64>, i64)> = loaded.rows(
        "SELECT name, ts, rank, EXTRACT_ARG(arg_set_id, 'args.step') FROM moments WHERE category = 'mark' ORDER BY ts",
    );
    let of = |name: &str, ns, rank| (name.to_owned(), ns, rank, 42);
    assert_eq!(marks, [of("lr 0.1", 10_500_000_000, None), of("mark", 11_000_000_000, Some(2))]);
    let lines: Vec<(String, i64, i64, String)> = loaded.rows(
        "SELECT name, rank, COUNT(*), MIN(EXTRACT_ARG(arg_set_id, 'args.line')) FROM moments
         WHERE category = 'log' GROUP BY name, rank",
    );
    assert!(matches!(&lines[0], (name, 3, 1, words) if name == "GAP" && words.contains("85")), "{lines:?}");
    let warned = (0..4).map(|rank| ("WARN".to_owned(), rank, 6, "WARNING slow loader".to_owned()));
    assert_eq!(lines[1..], warned.collect::<Vec<_>>());
}

#[test]
fn what_is_cut_out_of_a_run_has_its_own_tracks_and_no_others() {
    let person = Person::new(1);
    let path = two_hosts(&person);
    let path = path.to_str().unwrap();
    let cuts: [(&[&str], Ranks<'_>, usize); 5] = [
        (&["--ranks", "1-2"], &FOUR[1..3], 2 * 160),
        (&["--steps", "41-44"], &FOUR, 4 * 4),
        (&["--from", "10", "--to-time", "12", "--ranks", "1"], &FOUR[1..2], 8),
        (&["--ranks", "2,3", "--steps", "40-"], &FOUR[2..], 2 * 121),
        (&["--from", "10.3", "--to-time", "11.1"], &FOUR, 4 * 4),
    ];
    for (cut, ranks, steps) in cuts {
        let args = [&[path], cut].concat();
        let export = Export::of(&person, &args);
        let gpus = Table::read(&exported(&person, "csv-gpus", &args));
        assert_eq!(export.steps.rows.len(), steps, "{cut:?}");
        let Some(mut loaded) = export.load() else { return };
        assert_steps(&mut loaded, &export, ranks);
        assert_counters(&mut loaded, &export.steps, &gpus, ranks);
        let numbers: BTreeSet<i64> = ranks.iter().map(|(rank, _)| *rank).collect();
        let arrows: Vec<(i64, i64)> = loaded.rows("SELECT rank_out, rank_in FROM arrows");
        assert_eq!(arrows.is_empty(), ranks.len() == 1, "{cut:?}");
        assert!(arrows.iter().all(|(from, to)| numbers.contains(from) && numbers.contains(to)), "{arrows:?}");
        let hosts: Vec<(String,)> = loaded.rows("SELECT name FROM process WHERE pid >= 500001 ORDER BY name");
        let places: BTreeSet<String> =
            ranks.iter().map(|(_, name)| format!("host {}", name.split(" · ").nth(1).unwrap())).collect();
        assert_eq!(hosts.into_iter().map(|(name,)| name).collect::<BTreeSet<_>>(), places);
        let marks: Vec<(String, Option<i64>)> =
            loaded.rows("SELECT name, rank FROM moments WHERE category = 'mark' ORDER BY ts");
        assert_eq!(marks[0], ("lr 0.1".to_owned(), None), "the run's mark is in each of them");
    }
}

#[test]
fn an_imported_timeline_of_horovod_is_what_it_was_read_as() {
    let person = Person::new(1);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/imports/horovod.json");
    let export = Export::of(&person, &[file]);
    let Some(mut loaded) = export.load() else { return };
    assert_eq!(export.steps.rows.len(), 2 * 3);
    let names: Vec<(String,)> = loaded.rows("SELECT name FROM process WHERE upid != 0 ORDER BY pid");
    let ranks = [(0, &*names[0].0), (1, &*names[1].0)];
    assert!(ranks.iter().all(|(rank, name)| name.starts_with(&format!("rank {rank} · "))), "{names:?}");
    assert_steps(&mut loaded, &export, &ranks);
    assert_arrows(&mut loaded, &export.steps, 2, &["allreduce wait"]);
}

#[test]
fn a_trace_of_a_hundred_thousand_slices_loads_whole() {
    let person = Person::new(1);
    let path = person.home().join("long.mcap");
    write(&path, &run(4, 900));
    let export = Export::of(&person, &[path.to_str().unwrap()]);
    let Some(mut loaded) = export.load() else { return };
    let (slices, fractions): (i64, i64) = loaded.rows("SELECT COUNT(*), SUM(ts % 1000 != 0) FROM ours")[0];
    assert_eq!(slices, 4 * 3_600 * 7);
    assert!(fractions > slices / 2, "{fractions}: clocks are fitted to less than a microsecond");
    assert_steps(&mut loaded, &export, &FOUR);
    assert_arrows(&mut loaded, &export.steps, 4, &["backward"]);
}

/// What torch's profiler writes of a process: an operator, kernels on streams of the GPU (0 to 9, as AMD's driver numbers them), and a span
/// whose process and thread are words.
fn torch_trace(at: f64) -> Value {
    let mut events = vec![
        json!({ "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 42, "tid": 42, "ts": at, "dur": 100.5 }),
        json!({ "ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 42, "tid": 4_200, "ts": at, "dur": 100.5 }),
        json!({ "ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": at, "dur": 200 }),
        json!({ "ph": "M", "name": "process_name", "pid": 42, "tid": 0, "ts": at, "args": { "name": "python" } }),
        json!({ "ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": at, "args": { "name": "python" } }),
        json!({ "ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": at, "args": { "labels": "GPU 0" } }),
        json!({ "ph": "s", "id": 5, "cat": "ac2g", "name": "ac2g", "pid": 42, "tid": 42, "ts": at }),
        json!({ "ph": "f", "id": 5, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": at + 47.25, "bp": "e" }),
    ];
    for stream in 0..10 {
        // they overlap: streams that came to lie on one track would lose some
        let ts = at + 40.25 + f64::from(stream);
        events.push(json!({ "ph": "X", "cat": "kernel", "name": format!("gemm {stream}"), "pid": 0, "tid": stream, "ts": ts, "dur": 30.125 }));
        events.push(json!({ "ph": "M", "name": "thread_name", "pid": 0, "tid": stream, "ts": 0, "args": { "name": format!("stream {stream}") } }));
    }
    json!({ "schemaVersion": 1, "baseTimeNanoseconds": 1_790_857_026_000_000_000_i64, "traceEvents": events })
}

#[test]
fn kernel_traces_of_three_ranks_have_their_own_tracks() {
    let folder = tempfile::tempdir().unwrap();
    let part = |rank: u32| {
        let path = folder.path().join(format!("{rank}.json"));
        std::fs::write(&path, torch_trace(1_000.25 * f64::from(rank)).to_string()).unwrap();
        kernels::Part { path, name: format!("rank {rank} on a"), pid: 42, shift_us: Some(0) }
    };
    let target = folder.path().join("trace.json");
    kernels::write(&[part(0), part(1), part(2)], &target).unwrap();
    let Some(mut loaded) = TraceProcessor::load(&target) else { return };
    let shown: Vec<(String, String, Option<String>, i64, i64, i64)> = loaded.rows(
        "SELECT process.name, slice.name, thread.name, ts, dur, COUNT(*) OVER (PARTITION BY track_id) FROM slice
         JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid) ORDER BY 1, 2",
    );
    let meant = (0..3_i64).flat_map(|rank| {
        let at = 1_000_250 * rank;
        let of = move |process: &str, name: String, thread: Option<String>, after, ns| {
            (format!("rank {rank} on a{process}"), name, thread, at + after, ns, 1)
        };
        let mut slices =
            vec![of("", "aten::mm".into(), None, 0, 100_500), of("", "aten::mul".into(), None, 0, 100_500)];
        slices.extend((0..10).map(|stream| {
            of(
                " · GPU 0",
                format!("gemm {stream}"),
                Some(format!("stream {stream}")),
                40_250 + 1_000 * stream,
                30_125,
            )
        }));
        slices.push(of(" · Spans", "PyTorch Profiler (0)".into(), None, 0, 200_000));
        slices
    });
    assert_eq!(shown, meant.collect::<Vec<_>>());
    let arrows: Vec<(String, String)> = loaded.rows(
        "SELECT a.name, b.name FROM flow JOIN slice a ON slice_out = a.id JOIN slice b ON slice_in = b.id",
    );
    assert_eq!(arrows, vec![("aten::mm".to_owned(), "gemm 7".to_owned()); 3]);
}
