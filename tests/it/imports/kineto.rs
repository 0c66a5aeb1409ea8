//! Traces in the shape of torch's profiler: several ranks, several files, and one that is cut.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use hvtui::domain::ids::Rank;
use hvtui::domain::timing::Phase;
use hvtui::record::Reader;
use serde_json::{Value, json};

use super::{imported, left_out, said, steps};
use crate::json_forms::assert_fits;
use crate::local_runs::Person;

/// Nanoseconds since the Unix epoch from which times count.
const BASE: i64 = 1_790_857_026_000_000_000;

/// A rank's trace of so many steps of 10 ms from step 3 on. Rank 1 comes to the collective of 2 ms one millisecond late: its kernel
/// begins later, and all end together. Of each kernel of NCCL 0.5 ms run beside computing.
fn trace(rank: u32, world: u32, count: u64) -> Value {
    let mut events = vec![
        json!({ "ph": "M", "name": "process_name", "pid": 42, "tid": 0, "ts": 0, "args": { "name": "python" } }),
    ];
    for step in 0..count {
        let at = 5_000.25 + 10_000.0 * step as f64;
        let late = if rank == 1 { 1_000.0 } else { 0.0 };
        let name = format!("ProfilerStep#{}", step + 3);
        let kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)";
        for (cat, pid) in [("user_annotation", 42), ("gpu_user_annotation", 0)] {
            events.push(json!({ "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": at, "dur": 9_990.5, "args": { "Ev Idx": 1 } }));
        }
        events.push(json!({ "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 42, "tid": 42, "ts": at, "dur": 10.5 }));
        // in no order of time, as the buffers of a GPU come
        events.push(json!({ "ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 20, "ts": at + 5_500.0 + late, "dur": 3_000.0 - late,
            "args": { "device": 0, "stream": 20, "Collective name": "allreduce", "Group size": world, "dtype": "Float" } }));
        events.push(json!({ "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 1_000.0, "dur": 5_000.0 + late }));
    }
    json!({
        "schemaVersion": 1, "deviceProperties": [{ "id": 0, "name": "NVIDIA H100" }],
        "distributedInfo": { "backend": "nccl", "rank": rank, "world_size": world, "pg_config": [{ "ranks": [0, 1] }] },
        "displayTimeUnit": "ms", "traceEvents": events, "traceName": "t.json", "baseTimeNanoseconds": BASE,
    })
}

#[test]
fn a_folder_of_all_ranks_tells_who_came_late() {
    let person = Person::new(1);
    let folder = person.home().join("log");
    std::fs::create_dir(&folder).unwrap();
    for rank in 0..2 {
        let text = trace(rank, 2, 12).to_string();
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        // the names say the opposite
        std::fs::write(folder.join(format!("rank{}.pt.trace.json.gz", 1 - rank)), packer.finish().unwrap())
            .unwrap();
    }
    std::fs::write(folder.join(".hidden"), "no trace").unwrap();
    let told = imported(&person, &["log", "--name", "profile"]);
    assert_eq!(
        (&told["format"], &told["ranks"], &told["told_ranks"]),
        (&"kineto".into(), &2.into(), &2.into())
    );
    let of_steps = json!({ "first": 4, "last": 15, "count": 12, "with_waits": 12 });
    assert_eq!(told["steps"], of_steps);
    assert_eq!(told["created"], "2026-10-01T12:17:06.005Z");
    assert_eq!(left_out(&told, "steps whose transfer includes waiting"), None);
    assert_eq!((&told["files"][0]["rank"], &told["files"][0]["packed"]), (&1.into(), &true.into()));

    let report = assert_fits("run-report", &person.run(&["report", "profile", "--json"]));
    assert_eq!((&report["ranks"][0]["last_in"], &report["ranks"][1]["last_in"]), (&0.into(), &12.into()));
    assert_eq!(report["ranks"][1]["wait_caused_us"], 12 * 500, "half of the millisecond is hidden");
    let csv = person.run(&["export", "profile", "--to", "csv"]);
    let trace = said(&csv);
    let note = String::from_utf8_lossy(&csv.stderr);
    assert!(note.contains("24 steps are placed by the clocks of their traces"), "{note}");
    let row = |rank: &str| {
        let row = trace.lines().find(|line| line.starts_with(&format!("4,{rank},"))).unwrap();
        row.split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    // wait, transfer, hidden: of 3 ms 0.5 are hidden, of the 1 ms of waiting too
    assert_eq!([10, 11, 14].map(|at| row("0")[at].clone()), ["500", "2000", "500"]);
    assert_eq!([10, 11, 14].map(|at| row("1")[at].clone()), ["0", "1500", "500"]);
    assert_eq!((row("0")[6].as_str(), row("0")[7].as_str()), ("9991", ""), "no phase is invented");
}

#[test]
fn the_trace_of_one_rank_of_several_calls_all_of_it_transfer() {
    let person = Person::new(1);
    // the moment stands behind the events, as newer versions write it
    let mut whole = trace(1, 4, 5);
    let base = whole.as_object_mut().unwrap().remove("baseTimeNanoseconds").unwrap();
    let text = whole.to_string();
    let text = format!("{},\"baseTimeNanoseconds\":{base}}}", text.strip_suffix('}').unwrap());
    std::fs::write(person.home().join("one.json"), &text).unwrap();
    let told = imported(&person, &["one.json", "-o", "one.mcap"]);
    assert_eq!((&told["ranks"], &told["told_ranks"]), (&4.into(), &1.into()));
    assert_eq!(left_out(&told, "steps whose transfer includes waiting"), Some(5));
    let all = steps(&Reader::open(&person.home().join("one.mcap")).unwrap());
    assert!(all.keys().all(|(rank, _)| *rank == Rank(1)) && all.len() == 5);
    assert!(all.values().all(|timing| timing.spans.iter().all(|span| span.phase == Phase::Transfer)));
    let words = said(&person.run(&["import", "one.json"]));
    assert!(words.contains("  4 ranks, 1 of them told; 5 steps, number 4 to 8; "), "{words}");
    assert!(
        words.contains("steps whose transfer includes waiting: 5; a collective lasts from its rank's"),
        "{words}"
    );
    // cut in the middle of the last step, and with it the moment
    let at = text.rfind("ncclDev").unwrap();
    std::fs::write(person.home().join("cut.json"), &text[..at]).unwrap();
    let told = imported(&person, &["cut.json", "-o", "cut.mcap"]);
    assert!(told["files"][0]["cut"]["byte"].as_u64().unwrap() > at as u64 - 400, "{told:#}");
    assert_eq!((&told["steps"]["count"], left_out(&told, "moment of the beginning")), (&5.into(), Some(1)));
    // what tells no beginning is known by what is in it
    for is_there in [false, true] {
        let out = person.run(&["import", "cut.json"]);
        let words = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{out:?}");
        assert_eq!(words.contains("this is there already as run "), is_there, "{words}");
    }
    std::fs::write(person.home().join("cut.json"), &text[..text.find("ProfilerStep#6").unwrap()]).unwrap();
    let other = person.run(&["import", "cut.json"]);
    assert!(!String::from_utf8_lossy(&other.stderr).contains("this is there already"), "{other:?}");
    // and with a comma behind the last event
    let comma = text.replacen("],\"traceName\"", ",],\"traceName\"", 1);
    assert!(comma.contains(",],\"traceName\""));
    std::fs::write(person.home().join("comma.json"), comma).unwrap();
    let told = imported(&person, &["comma.json", "-o", "comma.mcap"]);
    assert_eq!(
        (&told["files"][0]["cut"], &told["created"]),
        (&Value::Null, &"2026-10-01T12:17:06.005Z".into())
    );
}

#[test]
fn a_trace_of_several_ranks_in_one_file_is_read_as_hvtui_trace_writes_it() {
    let person = Person::new(1);
    let mut events = Vec::new();
    for rank in 0..2_u64 {
        let one = trace(rank as u32, 2, 4);
        for event in one["traceEvents"].as_array().unwrap() {
            let mut event = event.clone();
            let pid = rank + if event["pid"] == 42 { 0 } else { 2 };
            event["pid"] = pid.into();
            events.extend((event["ph"] != "M").then_some(event));
        }
        for (pid, more) in [(rank, ", process 42"), (rank + 2, " · GPU 0")] {
            let name = format!("rank {rank} on gpu-{rank}{more}");
            events.push(json!({ "ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": { "name": name } }));
        }
    }
    let text = json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string();
    std::fs::write(person.home().join("trace.json"), text).unwrap();
    let told = imported(&person, &["trace.json", "-o", "trace.mcap"]);
    assert_eq!((&told["ranks"], &told["steps"]["with_waits"]), (&2.into(), &4.into()), "{told:#}");
    let reader = Reader::open(&person.home().join("trace.mcap")).unwrap();
    let hosts: Vec<String> =
        reader.spec().unwrap().placements.iter().map(|place| place.host.to_string()).collect();
    assert_eq!(hosts, ["gpu-0", "gpu-1"]);
    assert_eq!(steps(&reader).len(), 8);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let person = Person::new(1);
    std::fs::write(person.home().join("a.json"), trace(0, 2, 1).to_string()).unwrap();
    let out = person.run(&["import", "a.json", &super::fixture("horovod.json")]);
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(words.contains("a horovod trace among 2 files: import it by itself"), "{words}");
    let mut without = trace(0, 2, 1);
    without["traceEvents"].as_array_mut().unwrap().retain(|event| event["cat"] != "user_annotation");
    std::fs::write(person.home().join("b.json"), without.to_string()).unwrap();
    let out = person.run(&["import", "b.json"]);
    assert_eq!(out.status.code(), Some(65));
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("`profile(schedule=torch.profiler.schedule("),
        "{out:?}"
    );
    let mut wild = trace(4_000_000_000, 2, 1);
    std::fs::write(person.home().join("c.json"), wild.to_string()).unwrap();
    let out = person.run(&["import", "c.json"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("names rank 4000000000"), "{out:?}");
    wild["distributedInfo"] = json!({ "rank": "x", "world_size": [2] });
    std::fs::write(person.home().join("d.json"), wild.to_string()).unwrap();
    assert_eq!(imported(&person, &["d.json", "-o", "d.mcap"])["ranks"], 1);
}
