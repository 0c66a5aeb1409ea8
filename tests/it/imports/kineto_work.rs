//! What of a trace of torch's profiler becomes phases: kernels, gloo's work, batches and optimizers; and what a cut leaves unknown.

use hvtui::domain::ids::Rank;
use hvtui::domain::timing::Phase;
use hvtui::record::Reader;
use serde_json::{Value, json};

use super::{fixture, imported, left_out, said, steps};
use crate::json_forms::assert_fits;
use crate::local_runs::Person;

fn event(cat: &str, name: &str, at: u64, dur: u64) -> Value {
    json!({ "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": 1_000_000 + at, "dur": dur })
}

fn whole(rank: u32, world: u32, events: &[Value]) -> Value {
    json!({
        "schemaVersion": 1, "distributedInfo": { "backend": "gloo", "rank": rank, "world_size": world, "pg_count": 1 },
        "host_name": "vm", "baseTimeNanoseconds": 1_790_857_026_000_000_000_u64, "traceEvents": events,
    })
}

const NCCL: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)";

/// Imports traces of all ranks.
fn all(person: &Person, name: &str, ranks: &[Vec<Value>]) -> (Value, Reader) {
    let folder = person.home().join(name);
    std::fs::create_dir(&folder).unwrap();
    for (events, rank) in ranks.iter().zip(0_u32..) {
        let text = whole(rank, ranks.len() as u32, events).to_string();
        std::fs::write(folder.join(format!("{rank}.json")), text).unwrap();
    }
    let output = format!("{name}.mcap");
    let told = imported(person, &[name, "-o", &output]);
    (told, Reader::open(&person.home().join(output)).unwrap())
}

/// Rank 1 fetches its batch for 30 ms; the others wait for it in gloo's allreduce, which takes 2 ms.
#[test]
fn gloos_work_tells_who_came_late() {
    let person = Person::new(1);
    let rank = |rank: u64| {
        let late = if rank == 1 { 30_000 } else { 1_000 };
        let mut events = Vec::new();
        for step in 0..12 {
            let at = step * 50_000;
            events.push(event("user_annotation", &format!("ProfilerStep#{step}"), at, 49_000));
            let next = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
            events.push(event("user_annotation", next, at, late));
            events.push(event("cpu_op", "aten::linear", at + late, 4_000));
            events.push(event(
                "user_annotation",
                "gloo:all_reduce",
                at + late + 3_000,
                36_000 - late - 3_000,
            ));
            events.push(event("user_annotation", "Optimizer.step#SGD.step", at + 40_000, 5_000));
        }
        events
    };
    let (told, reader) = all(&person, "gloo", &[rank(0), rank(1), rank(2)]);
    assert_eq!(told["steps"], json!({ "first": 1, "last": 12, "count": 12, "with_waits": 12 }), "{told:#}");
    assert_eq!(told["clock"], "the clock of vm, on which all ranks ran");
    let places = &reader.spec().unwrap().placements;
    assert_eq!(places.iter().map(|place| place.local_rank).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(places.iter().all(|place| place.host.as_str() == "vm"));
    let totals = |rank| steps(&reader)[&(Rank(rank), 1)].phase_totals();
    // of 32 ms 29 are waiting, 1 of them beside the operator; rank 1 moves bytes for 3 ms
    assert_eq!([Phase::Wait, Phase::Transfer].map(|phase| totals(0)[phase.index()]), [28_000, 3_000]);
    assert_eq!([Phase::Wait, Phase::Transfer].map(|phase| totals(1)[phase.index()]), [0, 2_000]);
    assert_eq!([Phase::Data, Phase::Optimizer].map(|phase| totals(1)[phase.index()]), [30_000, 5_000]);
    // the first step of a run is not judged
    let report = assert_fits("run-report", &person.run(&["report", "gloo.mcap", "--json"]));
    assert_eq!((&report["ranks"][0]["last_in"], &report["ranks"][1]["last_in"]), (&0.into(), &11.into()));
}

#[test]
fn a_kernel_that_lasts_into_the_next_step_counts_in_both() {
    let person = Person::new(1);
    // rank 1's GPU is so far behind that its kernel begins in the next step
    let rank = |rank: u64| {
        let mut events = Vec::new();
        for step in 0..3 {
            events.push(event("user_annotation", &format!("ProfilerStep#{step}"), step * 10_000, 10_000));
            let from = step * 10_000 + if rank == 1 { 11_000 } else { 8_000 };
            if step < 2 {
                events.push(event("kernel", NCCL, from, step * 10_000 + 13_000 - from));
            }
        }
        events
    };
    let (told, reader) = all(&person, "lag", &[rank(0), rank(1)]);
    assert_eq!(told["steps"]["with_waits"], 3, "{told:#}");
    assert_eq!(left_out(&told, "steps whose transfer includes waiting"), None);
    let all = steps(&reader);
    let of = |rank, step| {
        let totals = all[&(Rank(rank), step)].phase_totals();
        [Phase::Wait, Phase::Transfer].map(|phase| totals[phase.index()])
    };
    // 5 ms, 3 of them waiting: 2 before the step's end
    assert_eq!([1, 2, 3].map(|step| of(0, step)), [[2_000, 0], [3_000, 2_000], [1_000, 2_000]]);
    assert_eq!([1, 2, 3].map(|step| of(1, step)), [[0, 0], [0, 2_000], [0, 2_000]]);
}

#[test]
fn a_cut_leaves_communication_unknown() {
    let person = Person::new(1);
    let mut events: Vec<Value> = (0..4)
        .map(|step| event("user_annotation", &format!("ProfilerStep#{step}"), step * 10_000, 9_000))
        .collect();
    let next = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    events.extend((0..4).map(|step| event("user_annotation", next, step * 10_000, 1_000)));
    // the GPU's buffers come behind the program's events
    events.extend((0..4).map(|step| event("kernel", NCCL, step * 10_000 + 5_000, 3_000)));
    let mut text = whole(0, 1, &[]).to_string();
    let inside: Vec<String> = events.iter().map(Value::to_string).collect();
    text = text.replace("\"traceEvents\":[]", &format!("\"traceEvents\":[{}]", inside.join(",\n")));
    let kernel = text.rfind("{\"cat\":\"kernel\"").unwrap();
    for (name, at) in [("within.json", kernel + 30), ("between.json", kernel)] {
        std::fs::write(person.home().join(name), &text[..at]).unwrap();
        let output = format!("{name}.mcap");
        let told = imported(&person, &[name, "-o", &output]);
        assert!(told["files"][0]["cut"].is_object(), "{told:#}");
        assert_eq!(told["steps"]["count"], 4);
        assert_eq!(left_out(&told, "steps whose communication is unknown"), Some(4), "{told:#}");
        let all = steps(&Reader::open(&person.home().join(output)).unwrap());
        assert!(all.values().all(|timing| timing.spans.is_empty() && timing.hidden_us == 0), "{all:?}");
    }
    std::fs::write(person.home().join("whole.json"), text).unwrap();
    let told = imported(&person, &["whole.json", "-o", "whole.mcap"]);
    assert_eq!(left_out(&told, "steps whose communication is unknown"), None);
    let all = steps(&Reader::open(&person.home().join("whole.mcap")).unwrap());
    assert!(all.values().all(|timing| timing.phase_totals()[Phase::Transfer.index()] == 3_000));
}

#[test]
fn steps_are_counted_from_one_whatever_the_schedule() {
    let person = Person::new(1);
    for (name, first) in [("zero.json", 0), ("two.json", 2)] {
        let events: Vec<Value> = (first..first + 3)
            .map(|step| event("user_annotation", &format!("ProfilerStep#{step}"), step * 10_000, 9_000))
            .collect();
        std::fs::write(person.home().join(name), whole(0, 1, &events).to_string()).unwrap();
        let told = imported(&person, &[name, "-o", &format!("{name}.mcap")]);
        assert_eq!(told["steps"]["first"], first + 1);
        assert_eq!(left_out(&told, "steps numbered from 1"), Some(3));
    }
}

#[test]
fn a_trace_without_marks_has_the_steps_of_its_optimizer() {
    let person = Person::new(1);
    let mut events = Vec::new();
    for rank in 0..2_u64 {
        let label = format!("rank {rank} on local");
        events.push(
            json!({ "ph": "M", "name": "process_name", "pid": rank, "tid": 0, "ts": 0, "args": { "name": label } }),
        );
        for step in 0..4 {
            let mut end = event("user_annotation", "Optimizer.step#SGD.step", step * 10_000, 500);
            end["pid"] = rank.into();
            events.push(end);
        }
    }
    let text = json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string();
    std::fs::write(person.home().join("trace.json"), text).unwrap();
    let told = imported(&person, &["trace.json", "-o", "trace.mcap"]);
    assert_eq!((&told["ranks"], &told["steps"]["count"]), (&2.into(), &3.into()), "{told:#}");
    assert_eq!(left_out(&told, "steps that no ProfilerStep#N marks"), Some(3));
    let all = steps(&Reader::open(&person.home().join("trace.mcap")).unwrap());
    assert!(all.len() == 6 && all.values().all(|timing| timing.dur_us == 10_000), "{all:?}");
    assert!(all.keys().all(|(_, step)| (1..=3).contains(step)));
}

/// Of a run whose rank 1 was cut before its kernels, nothing is told of rank 1's communication: it is not 0.
#[test]
fn what_a_cut_leaves_unknown_is_exported_as_unknown() {
    let person = Person::new(1);
    let folder = person.home().join("log");
    std::fs::create_dir(&folder).unwrap();
    for rank in 0..2 {
        let mut events: Vec<Value> = (0..4)
            .map(|step| event("user_annotation", &format!("ProfilerStep#{step}"), step * 10_000, 9_000))
            .collect();
        events.extend((0..4).map(|step| event("kernel", NCCL, step * 10_000 + 5_000, 3_000)));
        let text = whole(rank, 2, &events).to_string();
        let kernel = text.find("{\"cat\":\"kernel\"").unwrap();
        let length = if rank == 1 { kernel + 30 } else { text.len() };
        std::fs::write(folder.join(format!("{rank}.json")), &text[..length]).unwrap();
    }
    imported(&person, &["log", "-o", "log.mcap"]);
    let csv = said(&person.run(&["export", "log.mcap", "--to", "csv"]));
    let cells = |rank: &str| {
        let row = csv.lines().find(|line| line.starts_with(&format!("2,{rank},"))).unwrap();
        let row: Vec<String> = row.split(',').map(str::to_owned).collect();
        [11, 14].map(|at| row[at].clone())
    };
    assert_eq!(
        (cells("0"), cells("1")),
        (["3000", "0"].map(str::to_owned), [const { String::new() }; 2]),
        "{csv}"
    );
}

#[test]
fn a_clock_is_that_of_a_host_only_where_all_files_have_their_moment() {
    let person = Person::new(1);
    let folder = person.home().join("log");
    std::fs::create_dir(&folder).unwrap();
    for rank in 0..2_u32 {
        let events = [event("user_annotation", "ProfilerStep#1", 0, 9_000)];
        let mut text = whole(rank, 2, &events);
        if rank == 1 {
            text.as_object_mut().unwrap().remove("baseTimeNanoseconds");
        }
        std::fs::write(folder.join(format!("{rank}.json")), text.to_string()).unwrap();
    }
    let told = imported(&person, &["log", "-o", "log.mcap"]);
    assert_eq!(left_out(&told, "moment of the beginning"), Some(1));
    assert_eq!(told["clock"], "each rank's own clock, not compared with the others'", "{told:#}");
    let note = person.run(&["export", "log.mcap", "--to", "csv"]).stderr;
    let note = String::from_utf8(note).unwrap();
    assert!(note.contains("2 steps are placed by the clocks of their traces"), "{note}");
}

/// What torch 1.13 without Kineto wrote of a rank of a `DistributedDataParallel` by gloo: a list of events without categories.
#[test]
fn a_trace_of_a_torch_without_kineto_has_the_phases_of_its_events() {
    let person = Person::new(1);
    let file = fixture("torch-1.13.json.gz");
    let packed = std::fs::File::open(&file).unwrap();
    let text = std::io::read_to_string(flate2::read::GzDecoder::new(packed)).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(events.iter().all(|event| event["cat"].is_null() && event["pid"] == "CPU functions"));
    let span = |event: &Value| {
        let from = event["ts"].as_u64().unwrap();
        (from, from + event["dur"].as_u64().unwrap())
    };
    // the parts of events that lie in a step
    let within = |step: &Value, name: &str| {
        let (begin, end) = span(step);
        let own = events.iter().filter(|event| event["name"].as_str().unwrap().starts_with(name)).map(span);
        own.map(|(from, to)| (from.max(begin), to.min(end)))
            .filter(|(from, to)| from < to)
            .collect::<Vec<_>>()
    };
    let length = |spans: Vec<(u64, u64)>| spans.iter().map(|(from, to)| to - from).sum::<u64>();
    let told = imported(&person, &[&file, "-o", "old.mcap"]);
    assert_eq!(told["steps"], json!({ "first": 3, "last": 5, "count": 3, "with_waits": 0 }), "{told:#}");
    let all = steps(&Reader::open(&person.home().join("old.mcap")).unwrap());
    for step in events.iter().filter(|event| event["name"].as_str().unwrap().starts_with("ProfilerStep#")) {
        let number: u64 = step["name"].as_str().unwrap()["ProfilerStep#".len()..].parse().unwrap();
        let timing = &all[&(Rank(0), number + 1)];
        let of = |phase: Phase| timing.phase_totals()[phase.index()];
        assert_eq!(of(Phase::Data), length(within(step, "enumerate(DataLoader)#")), "{number}");
        assert_eq!(of(Phase::Optimizer), length(within(step, "Optimizer.step#")), "{number}");
        // two collectives run beside each other, and one goes on into the next step
        let mut gloo = within(step, "gloo:");
        gloo.sort_unstable();
        let mut covered = (0, 0);
        for (from, to) in gloo {
            covered = (covered.0 + to.max(covered.1) - from.max(covered.1), to.max(covered.1));
        }
        assert_eq!(of(Phase::Transfer) + u64::from(timing.hidden_us), covered.0, "{number}");
        assert!(timing.hidden_us > 0 && of(Phase::Transfer) > 0, "{timing:?}");
    }
}
