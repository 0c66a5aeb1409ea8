//! How fast a trace of torch's profiler is imported: `cargo bench --bench import [-- MB]`, 300 MB where nothing is said.
//!
//! The trace is written to the temporary folder, in the shape and with the arguments that PyTorch's profiler gives its events: of a step
//! 80 operators, and a kernel and a launch of each. It is imported three times.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::panic,
    reason = "a program that prints figures, or why it has none"
)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use hvtui::clock::host_now;
use hvtui::domain::time::Stamp;
use hvtui::record::import::{Asked, Place, import};

const TIMES: usize = 3;
const OPERATORS: u64 = 80;
/// A step and what lies between two operators, microseconds.
const STEP_US: u64 = 20_000;
const APART_US: u64 = 200;

fn main() {
    let told: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let megabytes: u64 = told
        .first()
        .map_or(300, |word| word.parse().unwrap_or_else(|_| panic!("{word} is no number of megabytes")));
    let folder = std::env::temp_dir().join(format!("hvtui-bench-import.{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let trace = folder.join("rank0.pt.trace.json");
    let (events, steps) = write(&trace, megabytes * 1_000_000).expect("a trace");
    let bytes = fs::metadata(&trace).expect("the trace").len();
    println!("trace      {:.0} MB, {events} events, {steps} steps", bytes as f64 / 1e6);
    for time in 0..TIMES {
        let recording = folder.join(format!("{time}.mcap"));
        let asked = Asked {
            files: std::slice::from_ref(&trace),
            name: None,
            step: None,
            place: Place::File(&recording),
            now: Stamp(1_790_000_000_000_000),
            random: time as u128,
        };
        let begin = host_now().0;
        let imported = import(&asked).expect("it is imported");
        let us = (host_now().0 - begin) as f64;
        assert_eq!(imported.steps.count, steps, "{imported:?}");
        println!(
            "import     {:.2} s, {:.2} M events/s, {:.0} MB/s",
            us / 1e6,
            events as f64 / us,
            bytes as f64 / us
        );
    }
    fs::remove_dir_all(&folder).expect("the folder");
}

/// Writes steps until the trace has so many bytes. How many events and steps it has then.
fn write(path: &Path, bytes: u64) -> io::Result<(u64, u64)> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let head = r#"{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H100"}],"distributedInfo":{"backend":"nccl","rank":0,"world_size":1},"#;
    writeln!(out, "{head}\"traceEvents\":[")?;
    writeln!(
        out,
        r#"  {{"ph":"M","name":"process_name","pid":42,"tid":0,"ts":0,"args":{{"name":"python"}}}}"#
    )?;
    let (mut events, mut steps, mut written) = (1, 0, 0);
    let mut text = Vec::new();
    while written < bytes {
        text.clear();
        let at = 5_000 + steps * STEP_US;
        for (cat, pid) in [("user_annotation", 42), ("gpu_user_annotation", 0)] {
            write!(
                text,
                ",\n  {{\n    \"ph\": \"X\", \"cat\": \"{cat}\", \"name\": \"ProfilerStep#{steps}\", \"pid\": {pid}, \"tid\": 7,\n    \
                 \"ts\": {at}.125, \"dur\": {}.500,\n    \"args\": {{\n      \"External id\": {steps}, \"Ev Idx\": {events}\n    }}\n  }}",
                STEP_US - 10
            )?;
            events += 1;
        }
        for number in 0..OPERATORS {
            let (id, start) = (events, at + 100 + number * APART_US);
            write!(
                text,
                ",\n  {{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::addmm\", \"pid\": 42, \"tid\": 42,\n    \"ts\": {start}.250, \
                 \"dur\": 90.125,\n    \"args\": {{\n      \"External id\": {id}, \"Record function id\": 0, \"Concrete Inputs\": [\"\", \"\"], \
                 \"Ev Idx\": {id}\n    }}\n  }}"
            )?;
            write!(
                text,
                ",\n  {{\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 42, \"tid\": 42,\n    \
                 \"ts\": {start}.500, \"dur\": 6.375,\n    \"args\": {{\n      \"External id\": {id}, \"cbid\": 211, \"correlation\": {id}\n    \
                 }}\n  }}"
            )?;
            write!(
                text,
                ",\n  {{\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ampere_sgemm_128x64_tn\", \"pid\": 0, \"tid\": 7,\n    \
                 \"ts\": {}.750, \"dur\": 150.000,\n    \"args\": {{\n      \"External id\": {id}, \"queued\": 0, \"device\": 0, \"context\": 1, \
                 \"stream\": 7, \"correlation\": {id}, \"registers per thread\": 122, \"shared memory\": 12544, \"grid\": [12, 8, 1], \
                 \"block\": [128, 1, 1]\n    }}\n  }}",
                start + 20
            )?;
            events += 3;
        }
        steps += 1;
        written += text.len() as u64;
        out.write_all(&text)?;
    }
    writeln!(out, "\n],\"traceName\":\"t.json\",\"baseTimeNanoseconds\":1790857026000000000}}")?;
    out.flush()?;
    Ok((events, steps))
}
