//! Logs of NCCL's Inspector: a file a process, as the plugin writes them.

use std::fmt::Write;

use super::{imported, left_out, said};
use crate::common::in_time::StatusInTime;
use crate::local_runs::Person;

/// When the run began, microseconds since the Unix epoch.
const BEGIN: u64 = 1_748_030_377_748_202;

/// A collective on one rank, as version 4.0 of the format has it.
fn line(comm: u64, (rank, ranks): (u32, u32), host: &str, number: u64, length_us: u64) -> String {
    let at = BEGIN + number * 20_000 + length_us;
    format!(
        r#"{{"header":{{"id":"0x{comm:x}","rank":{rank},"n_ranks":{ranks},"nnodes":2}},"metadata":{{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":{at},"hostname":"{host}","pid":{}}},"coll_perf":{{"coll":"AllReduce","coll_sn":{number},"coll_msg_size_bytes":67108864,"coll_exec_time_us":{length_us},"coll_timing_source":"kernel_gpu","coll_algobw_gbs":20.1,"coll_busbw_gbs":30.2}}}}"#,
        4000 + rank
    )
}

#[test]
fn inspectors_logs_tell_who_comes_last_to_the_collectives() {
    let person = Person::new(1);
    let logs = person.home().join("nccl-inspector-77");
    std::fs::create_dir(&logs).unwrap();
    for rank in 0..4 {
        let host = if rank < 2 { "gpu-a" } else { "gpu-b" };
        let mut text = String::new();
        for number in 1..=60 {
            // all leave together: who comes last has the shortest one
            let length = if rank == 2 { 900 } else { 2500 };
            let _ = writeln!(text, "{}", line(0x7f8c_496a, (rank, 4), host, number, length));
        }
        let host_timed = line(0x7f8c_496a, (rank, 4), host, 61, 9).replace("kernel_gpu", "collective_cpu");
        let _ = writeln!(text, "{host_timed}");
        if rank == 3 {
            // its writer was killed
            text += &host_timed[..77];
        }
        std::fs::write(logs.join(format!("{host}-pid{}.log", 4000 + rank)), text).unwrap();
    }
    let told = imported(&person, &["nccl-inspector-77", "-o", "inspector.mcap"]);
    assert_eq!(
        (&told["format"], &told["ranks"], &told["told_ranks"]),
        (&"nccl-inspector".into(), &4.into(), &4.into())
    );
    assert_eq!(left_out(&told, "collectives timed on the CPU"), Some(4));
    let files = told["files"].as_array().unwrap();
    assert_eq!(files.iter().map(|file| file["events"].as_u64().unwrap()).sum::<u64>(), 240);
    assert!(
        files[3]["cut"]["reason"].as_str().unwrap().contains("the text ends within an event"),
        "{told:#}"
    );
    assert_eq!(files[0]["cut"], serde_json::Value::Null);
    let report =
        said(&person.run(&["report", "inspector.mcap"])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.contains("rank 2 (gpu-b:0) comes last in 60 of 60"), "{report}");
    // and packed, by name, as one file
    let packed = std::process::Command::new("gzip")
        .args(["-k", "gpu-a-pid4000.log"])
        .current_dir(&logs)
        .status_in_time();
    assert!(packed.unwrap().success());
    let one = imported(&person, &["nccl-inspector-77/gpu-a-pid4000.log.gz", "--name", "one rank"]);
    assert_eq!(left_out(&told, "ranks whose number is not told"), None);
    assert_eq!((&one["ranks"], &one["told_ranks"], &one["name"]), (&4.into(), &1.into(), &"one rank".into()));
    // a log beside a trace of another kind
    let mixed = person.run(&["import", "nccl-inspector-77/gpu-a-pid4000.log", "inspector.mcap"]);
    assert_eq!(mixed.status.code(), Some(65), "{mixed:?}");
}

#[test]
fn a_rank_that_was_late_in_the_middle_of_a_log_is_told_with_the_numbers() {
    let person = Person::new(1);
    let logs = person.home().join("log");
    std::fs::create_dir(&logs).unwrap();
    for rank in 0..4 {
        let mut text = String::new();
        for number in 1..=200 {
            let is_late = (80..160).contains(&number);
            // by turns each is the last, by a little
            let early = if u64::from(rank) == number % 4 { 0 } else { 30 };
            let length = 1000 + if is_late && rank != 2 { 3000 } else { early };
            let _ = writeln!(text, "{}", line(0x7f8c_496a, (rank, 4), "gpu-a", number, length));
        }
        std::fs::write(logs.join(format!("pid{}.log", 4000 + rank)), text).unwrap();
    }
    imported(&person, &["log", "-o", "middle.mcap"]);
    let report = said(&person.run(&["report", "middle.mcap"]));
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "1. rank 2 (gpu-a:2) comes last to the collectives: the others wait ",
        "last in 110 of 200 AllReduce; 54 % of the time in them is waiting for it most of it in AllReduce 80 to 159",
        "NCCL: 50 AllReduce/s of 64 M, 1.0 ms each; rank 2 (gpu-a:2) comes last in 110 of 200, the others wait 2.2 ms",
    ] {
        assert!(words.contains(told), "{told}: {report}");
    }
}

#[test]
fn a_log_without_a_collective_says_so() {
    let person = Person::new(1);
    let text = line(1, (0, 2), "a", 1, 5).replace("coll_perf", "p2p_perf");
    std::fs::write(person.home().join("messages.log"), format!("{text}\n")).unwrap();
    let out = person.run(&["import", "messages.log"]);
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(65), "{out:?}");
    assert!(words.contains("without a collective whose length is told"), "{words}");
}
